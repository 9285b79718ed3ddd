"""Reads entries back from a ledger's files, on a worker of its own.

The promise: bytes are given out only if they say themselves, under their checksum, that they are
the entry that was asked for. Everything else about an id that has a slot is *suspect*: something
was here, and cannot be told any more. Only an id without a slot is missing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from roost.host.disk import Disk, File
from roost.node.files import INDEX, LOG, OpenFiles
from roost.node.index import SLOT_BYTES, Run, plan, slot_offset
from roost.node.ledgers import Stored
from roost.types import EntryId, LedgerId
from roost.wire.entry import HEAD_BYTES, BadEntry, check_entry, decode_head
from roost.wire.kernel import holds

SLOTS_MAX: Final = 4096
"""How many ids one piece of a read covers at most."""


class Piece(msgspec.Struct, frozen=True):
    """Entries whose ids follow one another, as one range of bytes."""

    first: EntryId
    count: int
    blocks: bytes | memoryview


class Found(msgspec.Struct, frozen=True):
    """What the files say about the ids from some first one up to `before`, exclusive."""

    pieces: list[Piece]
    missing: list[EntryId]
    suspects: list[EntryId]
    before: EntryId


class Reader:
    """The reading side of all ledgers' files."""

    def __init__(self, disk: Disk, folder: Path, *, files_max: int) -> None:
        self._files: Final = OpenFiles(disk, folder, files_max=files_max, writable=False)

    def read(
        self, ledger: LedgerId, stored: Stored, first: EntryId, before: EntryId, *, bytes_max: int
    ) -> Found:
        """Read what there is of some ids, as much as fits `bytes_max` but at least one entry.

        `stored` is what the files held when the read was asked for.
        """
        before = EntryId(min(before, first + SLOTS_MAX))
        known_before = EntryId(min(before, stored.highest + 1))
        if first >= known_before:
            return Found(pieces=[], missing=[*_ids(first, before)], suspects=[], before=before)
        size = (known_before - first) * SLOT_BYTES
        try:
            index = self._files.get(ledger, INDEX)
            slots = index.read_at(slot_offset(first), size)
            log = self._files.get(ledger, LOG)
        except OSError:
            self._files.drop(ledger)
            return Found(
                pieces=[], missing=[], suspects=[*_ids(first, known_before)], before=known_before
            )
        readable = len(slots) // SLOT_BYTES
        wanted = plan(
            slots[: readable * SLOT_BYTES], first, bytes_max=bytes_max, log_end=stored.log_end
        )
        suspects = [*wanted.bad]
        pieces: list[Piece] = []
        for run in wanted.runs:
            for piece in _read_run(log, ledger, run):
                if isinstance(piece, Piece):
                    pieces.append(piece)
                else:
                    suspects.append(piece)
        missing = wanted.missing
        if readable * SLOT_BYTES < size and wanted.before == first + readable:
            # The index ends before what was stored: it was cut.
            suspects.extend(_ids(wanted.before, known_before))
            return Found(pieces=pieces, missing=missing, suspects=suspects, before=known_before)
        if stored.entries == stored.highest + 1:
            # All ids are stored, so that a slot of zeros is damage.
            suspects.extend(missing)
            missing = []
        return Found(
            pieces=pieces, missing=missing, suspects=sorted(suspects), before=wanted.before
        )

    def drop(self, ledger: LedgerId) -> None:
        """Close the files of a ledger that was deleted."""
        self._files.drop(ledger)

    def close(self) -> None:
        """Close all files."""
        self._files.close()


def _ids(first: int, before: int) -> Iterator[EntryId]:
    return (EntryId(entry) for entry in range(first, before))


def _read_run(log: File, ledger: LedgerId, run: Run) -> Iterator[Piece | EntryId]:
    """Read entries that stand together: as one piece if all are good, else one by one."""
    try:
        piece = log.read_at(run.offset, run.size)
    except (OSError, OverflowError):  # a slot may say any offset
        piece = b""
    if len(piece) == run.size and holds(piece, ledger, run.first, run.before):
        yield Piece(first=run.first, count=len(run.sizes), blocks=piece)
        return
    offset = run.offset
    for entry, size in zip(_ids(run.first, run.before), run.sizes, strict=True):
        block = _read_one(log, ledger, entry, offset)
        yield entry if block is None else Piece(first=entry, count=1, blocks=block)
        offset += size


def _read_one(log: File, ledger: LedgerId, entry: EntryId, offset: int) -> bytes | None:
    """Read the block at an offset, by its own length; None if it is not that entry's."""
    try:
        head = decode_head(log.read_at(offset, HEAD_BYTES))
        block = log.read_at(offset, head.block_bytes)
        good = check_entry(block) == head and head.ledger == ledger and head.entry == entry
    except (BadEntry, OSError, OverflowError):
        return None
    return block if good else None
