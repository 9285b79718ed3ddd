"""What the channel is measured against: the plainest Python loops, and the plainest raw file.

They do what nobody could leave out and nothing else: no lock, no position, no limits, no errors.
What a channel handed over outlives its process; what the loops made does not even leave it.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from roost.segments.format import HEADER_BYTES
from roost.segments.windows import Windows

BATCH = 1_000
"""How many messages `send_many` and `recv_many` get at once, and one bytearray of the loop."""

HEADER = struct.Struct(">II")


def pack(messages: Sequence[bytes]) -> bytearray:
    """Frame messages: pack a header, compute the checksum, extend a bytearray."""
    header, crc32 = HEADER.pack, zlib.crc32
    framed = bytearray()
    for message in messages:
        framed += header(len(message), crc32(message))
        framed += message
    return framed


def pack_all(batches: Sequence[Sequence[bytes]]) -> None:
    """Frame all batches, each into a bytearray of its own: small ones are quicker to extend."""
    for batch in batches:
        pack(batch)


def unpack_all(framed: bytes) -> None:
    """Take frames apart again: unpack the header, slice, check."""
    header, crc32 = HEADER.unpack_from, zlib.crc32
    at, end = 0, len(framed)
    while at < end:
        size, crc = header(framed, at)
        at += 8
        payload = framed[at : at + size]
        if crc32(payload) != crc:
            raise ValueError(f"the frame before {at} is damaged")
        at += size


class RawFile:
    """A file that grows by `pwrite` and `fdatasync` into space reserved as a segment's is."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._windows = Windows()
        self._end = HEADER_BYTES
        self._reserved = 0

    def write(self, framed: bytes | bytearray, times: int) -> None:
        """Write the same bytes again and again, each time behind the last, and sync each time."""
        size = len(framed)
        for _ in range(times):
            stop = self._end + size
            if stop > self._reserved:
                start, length = self._windows.around(stop - 1)
                os.posix_fallocate(self._fd, self._reserved, start + length - self._reserved)
                self._reserved = start + length
            os.pwrite(self._fd, framed, self._end)
            os.fdatasync(self._fd)
            self._end = stop

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
