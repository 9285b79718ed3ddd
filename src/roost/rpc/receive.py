"""Turns the bytes of a connection into frames.

    view = receiver.room()        # the transport fills it from its beginning,
    receiver.took(size)           # says how much it was,
    for frame in receiver.frames():
        ...                       # and whoever stops in the middle goes on where they stopped

Pure. The promises: what comes out does not depend on how the bytes were cut, and memory is bounded
by what has arrived, whatever lengths a peer claims. There is one buffer, used again and again; what
it holds is copied out once, and frames are slices of that copy. A frame that is large and not yet
there gets memory of its own, which grows as the frame arrives and is read into directly. Where one
was large the next one may be: its head is read by itself, so that all behind it can be read to
where it stays.
"""

from collections.abc import Iterator
from typing import Final

from roost.wire.frame import HEAD_BYTES, BadFrame, Frame, decode_frame, frame_bytes
from roost.wire.kernel import Frames, blank

BUFFER_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 64 << 10
"""From this size on, a frame that has not arrived whole is not copied any more."""

GROWTH: Final = 8
"""How many times as long as what has arrived the memory of a large frame may be."""


class Receiver:
    """Collects what one peer sends."""

    __slots__ = (
        "_buffer",
        "_chunk",
        "_frame_bytes_max",
        "_frames",
        "_large",
        "_large_bytes",
        "_room",
        "_there",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        # The bytes in which frames are looked for, and how far that has come.
        self._look_in(b"", frame_bytes_max)
        # The large frame that is arriving, and how much of it is there.
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._there = 0
        self.limit(frame_bytes_max)

    def limit(self, frame_bytes_max: int) -> None:
        """Take frames of this size from now on."""
        self._frame_bytes_max = self._frames.frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(bytearray(min(frame_bytes_max, BUFFER_BYTES)))
        # As much of it as is filled with the next read.
        self._room = self._buffer

    def room(self) -> memoryview:
        """Give the place where what comes next belongs; it is never empty."""
        if self._large is None:
            return self._room
        return memoryview(self._large)[self._there :]

    def took(self, size: int) -> None:
        """Note that so many bytes were written where `room` said."""
        if self._large is not None:
            self._there += size
            return
        fresh = self._buffer[:size]
        self._room = self._buffer
        chunk, at = self._chunk, self._frames.at
        if at == len(chunk) and (whole_bytes := self._large_one(fresh)):
            self._begin(whole_bytes, fresh)
        else:
            self._look_in(b"".join((chunk[at:], fresh)), self._frame_bytes_max)

    def frames(self) -> Iterator[Frame]:
        """Hand out all frames that are there; `BadFrame` ends it all."""
        if self._large is not None:
            if self._there < len(self._large):
                return
            if len(self._large) < self._large_bytes:
                self._grow(self._large, self._there)
                return
            whole, self._large = self._large, None
            self._room = self._buffer[:HEAD_BYTES]
            yield decode_frame(whole)
        yield from self._frames
        self._look_behind(self._chunk, self._frames.at)

    def _look_in(self, chunk: bytes, frame_bytes_max: int) -> None:
        self._chunk = chunk
        self._frames = Frames(chunk, 0, frame_bytes_max)

    def _look_behind(self, chunk: bytes, at: int) -> None:
        """See why there are no more frames: one has not arrived whole, or is bad."""
        if len(chunk) - at < HEAD_BYTES:
            return
        whole_bytes = frame_bytes(chunk[at : at + HEAD_BYTES], self._frame_bytes_max)
        if whole_bytes <= len(chunk) - at:
            decode_frame(chunk[at : at + whole_bytes])  # raises what is wrong with it
        elif whole_bytes > LARGE_BYTES:
            # The rest is not copied once more, as that of a small one is.
            self._begin(whole_bytes, memoryview(chunk)[at:])

    def _large_one(self, fresh: memoryview) -> int:
        """Tell the length of the large frame that these bytes begin; 0 if there is none to see."""
        if len(fresh) < HEAD_BYTES:
            return 0
        try:
            whole_bytes = frame_bytes(fresh, self._frame_bytes_max)
        except BadFrame:  # `frames` finds that too
            return 0
        return whole_bytes if whole_bytes > max(LARGE_BYTES, len(fresh)) else 0

    def _begin(self, whole_bytes: int, begun: memoryview) -> None:
        """Collect a large frame where it stays."""
        self._look_in(b"", self._frame_bytes_max)
        self._large_bytes = whole_bytes
        self._grow(begun, len(begun))

    def _grow(self, begun: memoryview | bytearray, there: int) -> None:
        """Move a large frame to where there is more room for it."""
        # Never resized in place: a transport may still hold a view of it.
        self._large = blank(min(self._large_bytes, max(GROWTH * there, BUFFER_BYTES)))
        memoryview(self._large)[:there] = begun
        self._there = there
