"""How fast copies may go: so many bytes a second, shared by all copies of one process.

Pure. A copy is made in pieces. Behind each piece its bytes are paid for, and whoever has paid waits
until they are worth their time: as long as it takes, at that rate, since the last wait was over.
The promise: over any longer time the rate is kept to, but for one piece of each copy.
"""

from typing import Final

PIECE_ENTRIES_FIRST: Final = 256
"""How many entries the first piece has: nobody knows yet how long they are."""

PIECE_ENTRIES_MAX: Final = 1 << 16
PIECE_BYTES: Final = 4 << 20
"""How much a piece should have: enough for its requests not to matter, and soon done."""


class Pace:
    """What all copies together have spent."""

    def __init__(self, bytes_per_s: float | None = None) -> None:
        self._bytes_per_s: Final = bytes_per_s
        self._free_at = 0.0

    def wait_s(self, spent_bytes: int, now: float) -> float:
        """Pay for a piece; tells how long to wait before the next one."""
        if self._bytes_per_s is None:
            return 0.0
        self._free_at = max(self._free_at, now) + spent_bytes / self._bytes_per_s
        return self._free_at - now

    def piece_entries(self, entries: int, entries_bytes: int) -> int:
        """Tell how many entries the next piece has, after so many that had so many bytes."""
        if not entries:
            return PIECE_ENTRIES_FIRST
        piece_bytes = float(PIECE_BYTES)
        if self._bytes_per_s is not None:
            piece_bytes = min(piece_bytes, self._bytes_per_s)
        wanted = int(piece_bytes * entries / max(entries_bytes, 1))
        return min(max(wanted, 1), PIECE_ENTRIES_MAX)
