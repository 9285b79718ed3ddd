"""What a channel was opened with."""

import msgspec

from roost.segments.compress import Method
from roost.segments.windows import Windows
from roost.types import Durability


class Settings(msgspec.Struct, frozen=True):
    """The choices of whoever opened a channel, checked and completed."""

    durability: Durability
    segment_bytes: int
    message_bytes_max: int
    interval_s: float
    method: Method | None
    windows: Windows
    unmapped_because: str

    @property
    def fsync(self) -> bool:
        """Whether sends and acknowledgements wait for a sync."""
        return self.durability == "fsync"

    @property
    def timed(self) -> bool:
        """Whether everything is synced within `interval_s`."""
        return self.durability == "interval"
