"""Turns the bytes of a connection into frames.

    view = receiver.room()        # the transport fills it from its beginning,
    receiver.took(size)           # says how much it was,
    for frame in receiver.frames():
        ...                       # and whoever stops in the middle goes on where they stopped

Pure. The promises: what comes out does not depend on how the bytes were cut, and memory is bounded
by what has arrived, whatever lengths a peer claims. There is one buffer, used again and again; what
it holds is copied out once, and frames are slices of that copy. A frame that is large and not yet
there gets memory of its own, which grows as the frame arrives and is read into directly.
"""

from collections.abc import Iterator
from typing import Final

from roost.wire.checksum import crc32
from roost.wire.frame import (
    CHECKED_FROM,
    HEAD,
    HEAD_BYTES,
    LENGTH_BYTES,
    Frame,
    bad_checksum,
    decode_frame,
    frame_bytes,
)

BUFFER_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 64 << 10
"""From this size on, a frame that has not arrived whole is not copied any more."""

GROWTH: Final = 4
"""How many times as long as what has arrived the memory of a large frame may be."""

_BODY_AT: Final = HEAD_BYTES - CHECKED_FROM


class Receiver:
    """Collects what one peer sends."""

    __slots__ = ("_at", "_buffer", "_chunk", "_frame_bytes_max", "_large", "_large_bytes", "_there")

    def __init__(self, frame_bytes_max: int) -> None:
        # The bytes in which frames are looked for, and where the next one begins.
        self._chunk = b""
        self._at = 0
        # The large frame that is arriving, and how much of it is there.
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._there = 0
        self.limit(frame_bytes_max)

    def limit(self, frame_bytes_max: int) -> None:
        """Take frames of this size from now on."""
        self._frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(bytearray(min(frame_bytes_max, BUFFER_BYTES)))

    def room(self) -> memoryview:
        """Give the place where what comes next belongs; it is never empty."""
        if self._large is None:
            return self._buffer
        return memoryview(self._large)[self._there :]

    def took(self, size: int) -> None:
        """Note that so many bytes were written where `room` said."""
        if self._large is not None:
            self._there += size
        else:
            fresh = self._buffer[:size]
            self._chunk = b"".join((self._chunk[self._at :], fresh))
            self._at = 0

    def frames(self) -> Iterator[Frame]:
        """Hand out all frames that are there; `BadFrame` ends it all."""
        if self._large is not None:
            if self._there < len(self._large):
                return
            if len(self._large) < self._large_bytes:
                self._grow(self._large, self._there)
                return
            whole, self._large = self._large, None
            yield decode_frame(whole)
        unpack, make = HEAD.unpack_from, tuple.__new__
        chunk, at = self._chunk, self._at
        size = len(chunk)
        while size - at >= HEAD_BYTES:
            length, crc, kind, flags, body_bytes, request = unpack(chunk, at)
            blob_at = at + HEAD_BYTES + body_bytes
            end = at + LENGTH_BYTES + length
            if end > size or end < blob_at or end - at > self._frame_bytes_max:
                self._expect(frame_bytes(chunk[at : at + HEAD_BYTES], self._frame_bytes_max))
                return
            checked = chunk[at + CHECKED_FROM : blob_at]
            if crc32(checked) != crc:
                raise bad_checksum(kind, request)
            self._at = at = end
            # Past the named tuple's own __new__, which takes as long as the rest of this loop.
            yield make(Frame, (kind, flags, request, checked[_BODY_AT:], chunk[blob_at:end]))

    def _expect(self, whole_bytes: int) -> None:
        """Make ready for the rest of a frame, unless it is small enough to be copied once more."""
        if whole_bytes > LARGE_BYTES:
            begun = self._chunk[self._at :]
            self._chunk, self._at = b"", 0
            self._large_bytes = whole_bytes
            self._grow(begun, len(begun))

    def _grow(self, begun: bytes | bytearray, there: int) -> None:
        """Move a large frame to where there is more room for it."""
        # Never resized in place: a transport may still hold a view of it.
        self._large = bytearray(min(self._large_bytes, max(GROWTH * there, BUFFER_BYTES)))
        self._large[:there] = begun
        self._there = there
