"""Moves entries from memory into a ledger's files, on a worker.

The order is what makes it safe: blocks into the entry log, the log synced, and only then slots
into the index, the index synced. So a slot never speaks of a block that a crash could take back.
Nothing here says that the journal may forget anything: that is for whoever hears that it ended.
"""

import errno
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from roost.host.disk import Disk, File
from roost.node.files import HEADER_BYTES, INDEX, LOG, OpenFiles, encode_header, file_name
from roost.node.index import SLOT_BYTES, fill, make_slots, slot_offset, spans
from roost.node.ledgers import Block, Stored
from roost.types import EntryId, LedgerId, Position

# Blocks are joined into pieces of about this size for one write.
PIECE_BYTES: Final = 1 << 20
# A block of this length is written by itself: copying it would cost more than a write.
LONG_BYTES: Final = 64 << 10
# How far ahead of its growth a log is reserved at most.
AHEAD_BYTES_MAX: Final = 8 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Flush(msgspec.Struct, frozen=True):
    """What one flush has to do."""

    ledger: LedgerId
    blocks: dict[EntryId, Block]
    stored: Stored
    """What was in the files before."""

    before: Position
    """Everything of the ledger before this position of the journal is stored after it."""

    closed: bool
    """Whether the log will hardly grow any more."""

    at: float

    rewritten: int = 0
    """How many of the blocks take the place of some that cannot be read any more."""


class Flusher:
    """The writing side of the files of those ledgers that one worker owns."""

    def __init__(self, disk: Disk, folder: Path, *, files_max: int) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._files: Final = OpenFiles(disk, folder, files_max=files_max, writable=True)

    def flush(self, flush: Flush) -> Generator[None, None, Stored]:
        """Store what was frozen, step by step, and give what is in the files then."""
        log = yield from self.write_log(flush)
        log.sync()
        yield
        index = yield from self.write_index(flush)
        index.sync()
        if not flush.stored.log_end:
            yield
            self._disk.sync_folder(self._folder)
        return stored_by(flush)

    def write_logs(self, flushes: Sequence[Flush]) -> Generator[None, None, None]:
        """Write the blocks of many ledgers, to be synced by somebody else."""
        for flush in flushes:
            yield from self.write_log(flush)

    def write_indexes(self, flushes: Sequence[Flush]) -> Generator[None, None, None]:
        """Write the slots of many ledgers, whose logs are synced."""
        for flush in flushes:
            yield from self.write_index(flush)

    def write_log(self, flush: Flush) -> Generator[None, None, File]:
        """Write the blocks of one ledger."""
        blocks = [*map(flush.blocks.__getitem__, sorted(flush.blocks))]
        yield
        log = self._files.get(flush.ledger, LOG, create=True)
        begin = flush.stored.log_end or HEADER_BYTES
        if not flush.stored.log_end:
            log.write_at(0, encode_header(flush.ledger, LOG))
        yield
        end = begin + sum(map(len, blocks))
        if flush.stored.log_end and not flush.closed:
            _reserve(log, end + min(end - HEADER_BYTES, AHEAD_BYTES_MAX))
        for at, piece in _pieces(blocks, begin):
            log.write_at(at, piece)
            yield
        if flush.closed:
            log.truncate(end)
        return log

    def write_index(self, flush: Flush) -> Generator[None, None, File]:
        """Write the slots of one ledger, whose log is synced."""
        entries = sorted(flush.blocks)
        begin = flush.stored.log_end or HEADER_BYTES
        index = self._files.get(flush.ledger, INDEX, create=True)
        if not flush.stored.log_end:
            index.write_at(0, encode_header(flush.ledger, INDEX))
        slots = make_slots([*map(flush.blocks.__getitem__, entries)], begin)
        yield
        at = 0
        for span in spans(entries):
            until = at + len(span) * SLOT_BYTES
            _write_span(index, span, slots[at:until], known=flush.stored.highest)
            at = until
            yield
        return index

    def remove(self, ledger: LedgerId) -> Generator[None, None, None]:
        """Remove a deleted ledger's files."""
        self._files.drop(ledger)
        for kind in (INDEX, LOG):
            path = self._folder / file_name(ledger, kind)
            try:
                self._disk.unlink(path)
            except FileNotFoundError:
                continue
            yield
        self._disk.sync_folder(self._folder)

    def cut(self, ledger: LedgerId, log_end: int) -> Generator[None, None, None]:
        """Cut off what was reserved for a log that will not grow any more."""
        log = self._files.get(ledger, LOG)
        if log.size() > log_end:
            yield
            log.truncate(log_end)
            yield
            log.sync()

    def close(self) -> None:
        """Close all files."""
        self._files.close()


def stored_by(flush: Flush) -> Stored:
    """Tell what is in the files of a ledger after a flush."""
    stored = flush.stored
    return Stored(
        log_end=(stored.log_end or HEADER_BYTES) + sum(map(len, flush.blocks.values())),
        entries=stored.entries + len(flush.blocks) - flush.rewritten,
        highest=max(stored.highest, *flush.blocks),
        before=flush.before,
        at=flush.at,
    )


def _reserve(log: File, size: int) -> None:
    """Have space for what a log will grow by, if there is any; what is stored now may fit yet."""
    try:
        log.allocate(size)
    except OSError as error:
        if not is_full(error):
            raise


def is_full(error: BaseException) -> bool:
    """Tell whether there was no room, which may pass; everything else is a failure."""
    return isinstance(error, OSError) and error.errno in _FULL


def _write_span(index: File, entries: Sequence[EntryId], slots: bytes, *, known: EntryId) -> None:
    """Write the slots of a span, keeping those in between."""
    at = slot_offset(entries[0])
    size = (entries[-1] - entries[0] + 1) * SLOT_BYTES
    present = b"" if entries[0] > known else index.read_at(at, size)
    index.write_at(at, fill(present, entries, slots))


def _pieces(blocks: list[Block], at: int) -> Iterator[tuple[int, Block]]:
    """Join what is short and stands together into pieces that are worth a write each."""
    gathered: list[Block] = []
    size = 0
    for block in blocks:
        long = len(block) >= LONG_BYTES
        if gathered and (long or size >= PIECE_BYTES):
            yield at, b"".join(gathered)
            at += size
            gathered, size = [], 0
        if long:
            yield at, block
            at += len(block)
        else:
            gathered.append(block)
            size += len(block)
    if gathered:
        yield at, b"".join(gathered)
