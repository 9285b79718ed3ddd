"""Which part of a plain segment is mapped at a time."""

from typing import Final

import msgspec

WINDOW_BYTES_MIN: Final = 64 * 1024
WINDOW_BYTES_MAX: Final = 4 * 1024 * 1024


class Windows(msgspec.Struct, frozen=True):
    """How large the windows of a plain segment are; both are powers of two, 4,096 at least."""

    bytes_min: int = WINDOW_BYTES_MIN
    bytes_max: int = WINDOW_BYTES_MAX

    def around(self, offset: int) -> tuple[int, int]:
        """Give start and size of the window that holds a file offset.

        Windows double from the file's start on, so that a small segment reserves little.
        """
        size = min(max(1 << (offset.bit_length() - 1), self.bytes_min), self.bytes_max)
        return offset - offset % size, size
