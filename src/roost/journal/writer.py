"""Writes the segment files of a journal, in steps, on the journal's worker.

A group that needs no new segment may also be written by whoever owns the journal while the worker
has none: making the next segment and removing old ones touch nothing that such a write touches.

A segment is allocated whole under the name of one that is being made. With its first records it
gets its header, is synced and renamed, and its folder synced: whatever has the name of a segment
has a header, and everything before it was durable by then. Any error but that of `make` leaves a
file of which nothing is known any more; the caller then writes to none.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from roost.host.disk import Disk, File
from roost.journal.chain import Segment
from roost.journal.header import (
    SALVAGE_NAME,
    encode_header,
    making_name,
    segment_name,
)
from roost.journal.plan import Part

JOINED_BYTES: Final = 256 << 10
"""What is short is joined up to this much and written at once."""
LONG_BYTES: Final = 32 << 10
"""A piece of this length is written by itself: copying it would cost more than a write."""


class Writer:
    """The files of one journal that are being written or were made ahead."""

    def __init__(self, disk: Disk, folder: Path, *, file_bytes: int) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._file_bytes: Final = file_bytes
        self._made: dict[int, File] = {}
        self._file: File | None = None
        # Where in that file the records end.
        self._stop = 0
        # What went wrong for good: groups that were handed over by then must not be written.
        self._error: OSError | None = None

    def make(self, number: int) -> Iterator[None]:
        """Have the next segment's space on the disk, or raise `OSError` and leave nothing."""
        path = self._folder / making_name(number)
        file = self._disk.open(path, create=True)
        try:
            yield
            file.truncate(0)
            yield
            file.allocate(self._file_bytes)
            yield
            file.sync()
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(path)
            raise
        self._made[number] = file

    def write(self, parts: Iterable[Part], *, sync: bool) -> Iterator[None]:
        """Write what belongs together, and make it durable if that is asked for.

        Once it has raised, it raises the same for every other group.
        """
        if self._error is not None:
            raise self._error
        try:
            yield from self._write(parts, sync=sync)
        except OSError as error:
            self._error = error
            raise

    def _write(self, parts: Iterable[Part], *, sync: bool) -> Iterator[None]:
        unsynced = True
        for part in parts:
            yield
            if part.header is not None:
                yield from self._enter(part)
                unsynced = False
            else:
                assert self._file is not None, "a segment begins with its header"
                yield from _spill(self._file, part.offset, part.pieces, part.end - part.begin)
                unsynced = True
            self._stop = part.offset + part.end - part.begin
        if sync and unsynced and self._file is not None:
            yield
            self._file.sync()

    def finish(self) -> Iterator[None]:
        """Cut the last segment to its records, make that durable, and leave nothing half made."""
        yield from self._seal()
        for number in list(self._made):
            self._made.pop(number).close()
            yield
            self._disk.unlink(self._folder / making_name(number))

    def abandon(self) -> None:
        """Let go of all files as they are."""
        for file in (self._file, *self._made.values()):
            if file is not None:
                file.close()
        self._file = None
        self._made.clear()

    def remove(self, segments: Iterable[Segment]) -> Iterator[None]:
        """Remove segments durably; one with damage in it moves to `salvage/`."""
        salvage = self._folder.parent / SALVAGE_NAME
        for segment in segments:
            path = self._folder / segment_name(segment.number)
            with suppress(FileNotFoundError):
                if segment.damaged:
                    self._disk.make_folder(salvage)
                    yield
                    self._disk.rename(path, salvage / path.name)
                    yield
                    self._disk.sync_folder(salvage)
                else:
                    self._disk.unlink(path)
            yield
        self._disk.sync_folder(self._folder)

    def _enter(self, part: Part) -> Iterator[None]:
        """Go on in a segment that was made ahead."""
        assert part.header is not None, "a segment begins with its header"
        yield from self._seal()
        self._file = self._made.pop(part.number)
        header = encode_header(part.header)
        size = len(header) + part.end - part.begin
        yield from _spill(self._file, 0, [header, *part.pieces], size)
        yield
        self._file.sync()
        yield
        name = segment_name(part.number)
        self._disk.rename(self._folder / making_name(part.number), self._folder / name)
        yield
        self._disk.sync_folder(self._folder)

    def _seal(self) -> Iterator[None]:
        """Be done with the segment that was written last: it ends where its records end."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            yield
            file.truncate(self._stop)
            yield
            file.sync()
        finally:
            file.close()


def _spill(file: File, offset: int, pieces: list[bytes | memoryview], size: int) -> Iterator[None]:
    """Write pieces one behind the other, with as few copies and calls as pay."""
    if size <= JOINED_BYTES:
        file.write_at(offset, b"".join(pieces))
        return
    short: list[bytes | memoryview] = []
    waiting = 0
    for piece in pieces:
        length = len(piece)
        if length < LONG_BYTES:
            short.append(piece)
            waiting += length
            if waiting < JOINED_BYTES:
                continue
        if short:
            file.write_at(offset, b"".join(short))
            offset += waiting
            short, waiting = [], 0
            yield
        if length >= LONG_BYTES:
            file.write_at(offset, piece)
            offset += length
            yield
    if short:
        file.write_at(offset, b"".join(short))
