"""One segment on disk: how it is created, and how its frames are read.

A source answers one question, `window(position)`: bytes that hold the frame at `position`
whole, and the position of their first byte. Where the frame cannot be whole (its length is
impossible, the stream is damaged, the file ends) it raises `Corrupt` with file and offset. So a
cursor can trust the window's size, and checks only the frame's own checksum.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from roost.errors import Corrupt
from roost.host.disk import Disk, File
from roost.segments.compress import BadStream, Method, decompress
from roost.segments.format import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAKING,
    Header,
    decode_header,
    encode_header,
    packed_name,
    plain_name,
)
from roost.segments.kernel import scan
from roost.segments.windows import Windows

PIECE_BYTES: Final = 256 * 1024


class Segment(msgspec.Struct, frozen=True):
    """A segment as the catalogue knows it; `end` is None while it grows."""

    number: int
    begin: int
    end: int | None = None
    method: Method | None = None

    @property
    def name(self) -> str:
        """The file name of the form in which it is stored."""
        return plain_name(self.number) if self.method is None else packed_name(self.number)


def create_segment(disk: Disk, folder: Path, *, number: int, begin: int) -> File:
    """Make a plain segment that exists whole or not at all, durably, and open it."""
    target = folder / plain_name(number)
    making = target.with_name(target.name + MAKING)
    file = disk.open(making, create=True)
    try:
        file.truncate(0)
        file.write_at(0, encode_header(Header(segment=number, begin=begin)))
        file.sync()
        disk.rename(making, target)
        disk.sync_folder(folder)
    except OSError:
        file.close()
        raise
    return file


def read_header(file: File, *, packed: bool) -> Header:
    """Read a segment file's header; ValueError says what is wrong with it."""
    return decode_header(file.read_at(0, HEADER_BYTES), packed=packed)


class Source(Protocol):
    """Where a cursor gets a segment's frames from."""

    segment: Segment

    def window(self, position: int, before: int) -> tuple[memoryview, int]:
        """Give bytes with the whole frame at `position`, and the position where they begin.

        `before` is the position at which readable frames end.
        """

    def close(self) -> None:
        """Let go of the file."""


class PlainSource:
    """Reads a plain segment through mapped windows, or in pieces where it cannot be mapped."""

    def __init__(
        self, file: File, segment: Segment, *, path: Path, windows: Windows, message_bytes_max: int
    ) -> None:
        self.segment = segment
        self._file = file
        self._path = path
        self._windows = windows
        self._message_bytes_max = message_bytes_max

    def window(self, position: int, before: int) -> tuple[memoryview, int]:
        """Give a window of the file, or a copy of just one frame that no window holds."""
        offset = HEADER_BYTES + position - self.segment.begin
        stop = HEADER_BYTES + before - self.segment.begin
        size = self._frame_size(offset, stop)
        start, length = self._windows.around(offset)
        length = min(length, self._file.size() - start)
        if self.segment.end is not None:  # what lies behind it may be cut off at any time
            length = min(length, stop - start)
        if offset + size <= start + length:
            view = self._file.map(start, length, writable=False)
            if view is not None:
                header = max(0, HEADER_BYTES - start)
                return view[header:], self._position(start + header)
            return self._copy(offset, min(max(size, PIECE_BYTES), stop - offset), size), position
        return self._copy(offset, size, size), position

    def _copy(self, offset: int, length: int, least: int) -> memoryview:
        piece = self._file.read_at(offset, length)
        if len(piece) < least:  # somebody else has just cut it off
            raise self.corrupt(offset, "the message reaches behind the end of what was stored")
        return memoryview(piece)

    def _frame_size(self, offset: int, stop: int) -> int:
        head = self._file.read_at(offset, FRAME_BYTES)
        length = int.from_bytes(head[:4], "big")
        if len(head) < FRAME_BYTES or offset + FRAME_BYTES + length > min(stop, self._file.size()):
            raise self.corrupt(offset, "the message reaches behind the end of what was stored")
        if not 1 <= length <= self._message_bytes_max:
            raise self.corrupt(
                offset,
                f"a message of {length} bytes, and from 1 to message_bytes_max="
                f"{self._message_bytes_max} are allowed",
            )
        return FRAME_BYTES + length

    def _position(self, offset: int) -> int:
        return self.segment.begin + offset - HEADER_BYTES

    def corrupt(self, offset: int, what: str) -> Corrupt:
        """Make the error for damage at a file offset."""
        return damaged(self._path, offset, what)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class PackedSource:
    """Reads a compressed segment as a stream; going back starts it again."""

    def __init__(self, file: File, segment: Segment, *, path: Path, message_bytes_max: int) -> None:
        self.segment = segment
        self._file = file
        self._path = path
        self._message_bytes_max = message_bytes_max
        self._rewind()

    def _rewind(self) -> None:
        self._buffer = b""
        self._begin = self.segment.begin
        self._chunks = decompressed(self._file, self.segment)

    def window(self, position: int, before: int) -> tuple[memoryview, int]:
        """Give decompressed bytes that hold the frame at `position` whole."""
        assert position < before
        if position < self._begin:
            self._rewind()
        self._fill(position, FRAME_BYTES)
        at = position - self._begin
        length = int.from_bytes(self._buffer[at : at + 4], "big")
        if not 1 <= length <= self._message_bytes_max:
            raise self.corrupt(
                position,
                f"a message of {length} bytes, and from 1 to message_bytes_max="
                f"{self._message_bytes_max} are allowed",
            )
        self._fill(position, FRAME_BYTES + length)
        return memoryview(self._buffer), self._begin

    def _fill(self, position: int, size: int) -> None:
        """Have `size` bytes from `position` on, and drop what is before it."""
        if self._begin + len(self._buffer) >= position + size:
            return
        pieces = [self._buffer[max(0, position - self._begin) :]]
        begin = max(self._begin, min(position, self._begin + len(self._buffer)))
        end = self._begin + len(self._buffer)
        while end < position + size:
            chunk = self._next_chunk(position)
            if end + len(chunk) > position:
                pieces.append(chunk[max(0, position - end) :])
                begin = max(begin, min(position, end + len(chunk)))
            else:
                begin = end + len(chunk)
            end += len(chunk)
        self._buffer = b"".join(pieces)
        self._begin = end - len(self._buffer)

    def _next_chunk(self, position: int) -> bytes:
        try:
            chunk = next(self._chunks, None)
        except BadStream as error:
            raise damaged(self._path, HEADER_BYTES + error.offset, str(error)) from error
        except OSError:
            self._rewind()  # a stream that failed to be read once cannot be gone on with
            raise
        if chunk is None:
            raise self.corrupt(position, "the message reaches behind the end of what was stored")
        return chunk

    def corrupt(self, position: int, what: str) -> Corrupt:
        """Make the error for damage at a position; the offset is that in the decompressed bytes."""
        return damaged(self._path, HEADER_BYTES + position - self.segment.begin, what)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def decompressed(file: File, segment: Segment) -> Iterator[bytes]:
    """Yield the frames of a compressed segment in chunks; raises `BadStream`."""
    assert segment.method is not None
    assert segment.end is not None
    return decompress(segment.method, pieces(file), size=segment.end - segment.begin)


def pieces(file: File, start: int = HEADER_BYTES, stop: int | None = None) -> Iterator[bytes]:
    """Yield a range of a file in pieces of bounded size."""
    while stop is None or start < stop:
        piece = file.read_at(start, PIECE_BYTES if stop is None else min(PIECE_BYTES, stop - start))
        if not piece:
            return
        yield piece
        start += len(piece)


def good_stop(file: File, at: int, *, message_bytes_max: int) -> int:
    """Give the file offset behind the good frames that follow one another from `at` on.

    It reads instead of mapping, so that it may look at a file which its owner cuts.
    """
    while True:
        head = file.read_at(at, FRAME_BYTES)
        length = int.from_bytes(head[:4], "big")
        if len(head) < FRAME_BYTES or not 1 <= length <= message_bytes_max:
            return at
        piece = file.read_at(at, max(PIECE_BYTES, FRAME_BYTES + length))
        size, _ = scan(piece, 0, len(piece))
        if size == 0:
            return at
        at += size


def damaged(path: Path, offset: int, what: str) -> Corrupt:
    """Make the error for damage in a segment file."""
    return Corrupt(
        f"{path} is damaged at offset {offset}: {what}. Nothing was removed; restore the file "
        "from a copy, or go on behind the damage with skip_corrupt().",
        file=str(path),
        offset=offset,
    )
