"""What a checkpoint says: every ledger that the node knows, and where replay has to begin.

Pure. A checkpoint is one file, replaced as a whole. All integers are little endian:

    offset  bytes
    0       8      magic
    8       4      CRC-32 of the header behind this field
    12      4      flags: 1 means that ledgers may have been forgotten
    16      8      replay from: the journal position before which all entries are in ledgers' files
    24      8      rows
    32             rows of 88 bytes

    row     8      ledger
            8      epoch, -1 if not known
            8      epoch that fenced it, -1 if none did
            8      last entry of a closed ledger, -2 of an open one
            8      LAC
            8      end of its entry log, 0 if it has no files
            8      entries in its files
            8      the highest of them, -1 if there are none
            8      journal position before which all of its entries are in its files
            8      wall time of its last flush, in milliseconds
            2      flags: 1 suspect, 2 deleted
            2      zero
            4      CRC-32 of the row before this field

A row checks itself, so that a damaged one costs no other ledger anything. A deleted ledger keeps a
row: its id is never used again, and what comes late for it is refused.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

import msgspec

from roost.node.ledgers import Ledger, Stored
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.checksum import crc32

_HEADER: Final = Struct("<8sIIQQ")
_ROW: Final = Struct("<QqqqqQQqQQHHI")
_MAGIC: Final = b"ROOSTCP1"
_OPEN: Final = -2
_NONE: Final = -1
_FORGETFUL: Final = 1
_SUSPECT: Final = 1
_DELETED: Final = 2

HEADER_BYTES: Final = _HEADER.size
ROW_BYTES: Final = _ROW.size


class Checkpoint(msgspec.Struct, frozen=True):
    """What was read."""

    replay_from: Position
    forgetful: bool
    """Whether ledgers may have been forgotten: then an unknown one is not said to be absent."""

    ledgers: list[Ledger]
    deleted: set[LedgerId]
    problem: str
    """What of it did not hold, or ''; what did is given."""


def encode_row(ledger: Ledger) -> bytes:
    """Make the row of a ledger."""
    stored = ledger.stored
    return _finished(
        _ROW.pack(
            ledger.id,
            _NONE if ledger.epoch is None else ledger.epoch,
            _NONE if ledger.fenced is None else ledger.fenced,
            _OPEN if ledger.last is None else ledger.last,
            ledger.lac,
            stored.log_end,
            stored.entries,
            stored.highest,
            stored.before,
            int(stored.at * 1000),
            _SUSPECT if ledger.suspect else 0,
            0,
            0,
        )
    )


def encode_deleted(ledger: LedgerId) -> bytes:
    """Make the row of a ledger that was deleted."""
    return _finished(_ROW.pack(ledger, _NONE, _NONE, _OPEN, -1, 0, 0, -1, 0, 0, _DELETED, 0, 0))


def _finished(row: bytes) -> bytes:
    return row[:-4] + crc32(row[:-4]).to_bytes(4, "little")


def encode_header(*, replay_from: Position, forgetful: bool, rows: int) -> bytes:
    """Make what stands before the rows."""
    flags = _FORGETFUL if forgetful else 0
    behind = _HEADER.pack(_MAGIC, 0, flags, replay_from, rows)[12:]
    return _HEADER.pack(_MAGIC, crc32(behind), flags, replay_from, rows)


def decode(file: bytes) -> Checkpoint:
    """Read a whole checkpoint, as much of it as holds."""
    ledgers: list[Ledger] = []
    deleted: set[LedgerId] = set()
    for row in _rows(file):
        if row[10] & _DELETED:
            deleted.add(LedgerId(row[0]))
        else:
            ledgers.append(_decoded(row))
    problem = _header_problem(file)
    replay_from, flags, count = 0, _FORGETFUL, 0
    if not problem:
        _, _, flags, replay_from, count = _HEADER.unpack_from(file)
        if lost := count - len(ledgers) - len(deleted):
            problem = f"{lost} of its {count} rows do not hold"
    return Checkpoint(
        replay_from=Position(replay_from),
        forgetful=bool(problem or flags & _FORGETFUL),
        ledgers=ledgers,
        deleted=deleted,
        problem=problem,
    )


def _header_problem(file: bytes) -> str:
    if len(file) < HEADER_BYTES:
        return f"it has {len(file)} bytes, and its header {HEADER_BYTES}"
    magic, crc, *_ = _HEADER.unpack_from(file)
    if magic != _MAGIC:
        return f"it begins with {magic!r}, which no checkpoint does"
    if crc32(file[12:HEADER_BYTES]) != crc:
        return "the checksum of its header does not hold"
    return ""


def _rows(file: bytes) -> Iterator[tuple[int, ...]]:
    view = memoryview(file)
    for at in range(HEADER_BYTES, len(file) - ROW_BYTES + 1, ROW_BYTES):
        row = _ROW.unpack_from(file, at)
        if crc32(view[at : at + ROW_BYTES - 4]) == row[-1]:
            yield row


def _decoded(row: Iterable[int]) -> Ledger:
    number, epoch, fenced, last, lac, log_end, entries, highest, before, at_ms, flags, _, _ = row
    ledger = Ledger(LedgerId(number))
    ledger.epoch = None if epoch == _NONE else Epoch(epoch)
    ledger.fenced = None if fenced == _NONE else Epoch(fenced)
    ledger.last = None if last == _OPEN else EntryId(last)
    ledger.lac = EntryId(lac)
    ledger.suspect = bool(flags & _SUSPECT)
    ledger.restore(
        Stored(
            log_end=log_end,
            entries=entries,
            highest=EntryId(highest),
            before=Position(before),
            at=at_ms / 1000,
        )
    )
    return ledger
