"""Which segments of an open journal are on the disk, what they take, and which nobody needs.

Sans-IO. The promise: of the segments that have a name the last one always stays, so that an empty
folder means a loss, and a number is never used twice.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from roost.journal.chain import Segment
from roost.journal.header import HEADER_BYTES
from roost.journal.plan import Part
from roost.types import Position


class Kept:
    """The segments, oldest first; the last one grows if this journal has begun it."""

    def __init__(self, segments: Sequence[Segment], *, file_bytes: int) -> None:
        self.bytes = sum(segment.file_bytes for segment in segments)
        """What the files take, those made ahead included."""
        self._segments: Final = deque(segments)
        self._file_bytes: Final = file_bytes
        self._grows = False
        self.removing = False
        """Whether some are being removed."""
        self._wanted_from = Position(0)

    def on_made(self) -> None:
        """Note that another one was made ahead."""
        self.bytes += self._file_bytes

    def on_written(self, part: Part) -> None:
        """Note what was written and, where a segment begins, that the one before was cut."""
        if part.header is None:
            self._segments[-1] = replace(self._segments[-1], end=part.end)
            return
        if self._grows:
            last = self._segments[-1]
            sealed = replace(last, file_bytes=HEADER_BYTES + last.end - last.begin)
            self.bytes -= last.file_bytes - sealed.file_bytes
            self._segments[-1] = sealed
        self._grows = True
        self._segments.append(
            Segment(
                number=part.number,
                begin=part.begin,
                end=part.end,
                file_bytes=self._file_bytes,
            )
        )

    def has_unneeded(self, before: Position) -> bool:
        """Tell whether there is a segment whose records all lie before a position."""
        return len(self._segments) > 1 and self._segments[0].end <= before

    def want_from(self, position: Position) -> None:
        """Note that nobody needs what lies before a position."""
        self._wanted_from = max(self._wanted_from, position)

    def take_unneeded(self) -> list[Segment]:
        """Give the segments to be removed now; none while others are being removed."""
        gone: list[Segment] = []
        while not self.removing and self.has_unneeded(self._wanted_from):
            gone.append(self._segments.popleft())
        self.removing = self.removing or bool(gone)
        return gone

    def on_removed(self, gone: Sequence[Segment]) -> None:
        """Note that they were removed."""
        self.removing = False
        self.bytes -= sum(segment.file_bytes for segment in gone)

    def on_not_removed(self, gone: Sequence[Segment]) -> None:
        """Note that they could not all be removed; they are given again."""
        self.removing = False
        self._segments.extendleft(reversed(gone))
