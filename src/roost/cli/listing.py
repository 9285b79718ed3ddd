"""What stands in a node's files, row by row: records of the journal, entries, slots of an index.

It looks at the bytes alone and judges nothing: whether something that is bad was ever durable, and
so is a problem, says `roost node verify`, which knows what the checkpoint says.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from roost.errors import Invalid, NotFound
from roost.host.disk import Disk, File
from roost.journal.chain import Damage
from roost.journal.header import (
    HEADER_BYTES,
    BadHeader,
    Header,
    decode_header,
    parse_name,
    segment_name,
)
from roost.journal.record import KINDS, Record
from roost.journal.scan import Walk, judge_tail
from roost.node.files import HEADER_BYTES as FILE_HEADER_BYTES
from roost.node.files import INDEX, LOG, file_name, header_problem, parse_file_name
from roost.node.index import SLOT, SLOT_BYTES, slot_offset
from roost.node.layout import JOURNAL
from roost.types import LedgerId, Position
from roost.wire.entry import (
    HEAD_BYTES,
    MAGIC,
    PAYLOAD_BYTES_MAX,
    BadEntry,
    Head,
    check_entry,
    decode_head,
    payload_of,
)

PIECE_BYTES: Final = 1 << 20
BLOCK_BYTES_MAX: Final = HEAD_BYTES + PAYLOAD_BYTES_MAX
_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")


class Row(msgspec.Struct, frozen=True):
    """One thing that stands in a file; what is bad says why in a field of its own."""

    what: str
    fields: dict[str, object]
    payload: bytes | None = None


# The journal


def journal_rows(disk: Disk, path: Path, start: int) -> Iterator[Row]:
    """List the records from a position on, of a segment, of a journal, or of a node's journal."""
    folder, wanted = _segments_of(disk, path)
    names = [
        name for name in disk.names(folder) if (found := parse_name(name)) and not found.making
    ]
    for name, following in pairwise([*names, ""]):
        if wanted not in ("", name):
            continue
        before = _header(disk, folder / following) if following else None
        if before is not None and before.begin <= start:
            continue
        yield from _segment_rows(disk, folder / name, before, start, last=not following)


def _segments_of(disk: Disk, path: Path) -> tuple[Path, str]:
    if parse_name(path.name):
        return path.parent, path.name
    for folder in (path / JOURNAL, path):
        try:
            names = disk.names(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if folder.name == JOURNAL or any(map(parse_name, names)):
            return folder, ""
    raise NotFound(
        f"{path} holds no journal: give a node's folder, its {JOURNAL}, or a file such "
        f"as {segment_name(1)}"
    )


def _header(disk: Disk, path: Path) -> Header | None:
    file = disk.open(path, writable=False)
    try:
        return decode_header(file.read_at(0, HEADER_BYTES))
    except BadHeader:
        return None
    finally:
        file.close()


def _segment_rows(
    disk: Disk, path: Path, before: Header | None, start: int, *, last: bool
) -> Iterator[Row]:
    file = disk.open(path, writable=False)
    try:
        content = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        header = decode_header(content[:HEADER_BYTES])
    except BadHeader as error:
        yield Row("bad", {"file": path.name, "offset": 0, "bytes": len(content), "why": str(error)})
        return
    stop = len(content) if before is None else HEADER_BYTES + before.begin - header.begin
    look = Walk(content, header, stop=stop)
    look.look()
    end = judge_tail(look.bads, bound=look.synced_before, end=look.end) if last else look.end
    good = (
        (record.position, _record_row(record, header))
        for record in Walk(content, header, stop=HEADER_BYTES + end - header.begin).records()
        if record.position >= start
    )
    bad = (
        (each.start, _bad_row(header, each))
        for each in look.bads
        if each.start < end and each.stop > start
    )
    for _, row in merge(good, bad, key=itemgetter(0)):
        yield row
    if last:
        yield from _torn_rows(content, header, end)


def _torn_rows(content: bytes, header: Header, end: Position) -> Iterator[Row]:
    size = len(content[HEADER_BYTES + end - header.begin :].rstrip(b"\0"))
    if size:
        told = {"position": end, "segment": header.number, "bytes": size}
        yield Row("torn", {**told, "why": "it was never durable, and is cut at the next start"})


def _bad_row(header: Header, bad: Damage) -> Row:
    told = {"position": bad.start, "segment": header.number, "bytes": bad.stop - bad.start}
    return Row("bad", {**told, "why": "no good record"})


def _record_row(record: Record, header: Header) -> Row:
    return Row(
        KINDS[record.kind],
        {
            "position": record.position,
            "segment": header.number,
            "ledger": record.ledger,
            "entry": record.entry,
            "epoch": record.epoch,
            "lac": record.lac,
            "recovery": record.recovery,
            "bytes": len(record.block) - HEAD_BYTES,
        },
        payload=bytes(payload_of(record.block)),
    )


# A ledger's files


def ledger_rows(disk: Disk, path: Path, start: int) -> Iterator[Row]:
    """List the entries from an id on: as they stand in a log, or by the slots of an index."""
    named = parse_file_name(path.name)
    if named is None:
        raise Invalid(
            f"{path} is no file of a ledger: give one such as {file_name(7, LOG)} or "
            f"{file_name(7, INDEX)}"
        )
    ledger, kind = named
    file = disk.open(path, writable=False)
    try:
        why = header_problem(file.read_at(0, FILE_HEADER_BYTES), ledger, kind)
        if why:
            yield Row("bad", {"offset": 0, "bytes": FILE_HEADER_BYTES, "why": why})
        if kind == LOG:
            yield from _log_rows(_Pieces(file), ledger, start)
        else:
            yield from _index_rows(disk, file, path.with_name(file_name(ledger, LOG)), start)
    finally:
        file.close()


class _Pieces:
    """A file that is read in order, a large piece at a time."""

    def __init__(self, file: File) -> None:
        self.size: Final = file.size()
        self._file: Final = file
        self._piece = b""
        self._begin = 0

    def get(self, offset: int, size: int) -> bytes:
        """Read some bytes, fewer where the file ends."""
        at = offset - self._begin
        if at < 0 or at + size > len(self._piece):
            self._piece = self._file.read_at(offset, max(size, PIECE_BYTES))
            self._begin, at = offset, 0
        return self._piece[at : at + size]


def _log_rows(pieces: _Pieces, ledger: LedgerId, start: int) -> Iterator[Row]:
    at = FILE_HEADER_BYTES
    while at < pieces.size:
        try:
            head = decode_head(pieces.get(at, HEAD_BYTES))
        except BadEntry as error:
            again = _search(pieces, at + 1, ledger)
            yield Row("bad", {"offset": at, "bytes": again - at, "why": str(error)})
            at = again
            continue
        block = pieces.get(at, head.block_bytes)
        if head.entry >= start:
            yield _entry_row(at, head, block, _why_bad(block, ledger, head.entry))
        at += head.block_bytes


def _search(pieces: _Pieces, at: int, ledger: LedgerId) -> int:
    """Find the next whole entry of a ledger; the end of the file if there is none."""
    while at < pieces.size:
        piece = pieces.get(at, PIECE_BYTES)
        found = piece.find(_MAGIC_BYTES)
        if found < 0:
            at += max(1, len(piece) - 1)
            continue
        at += found
        try:
            head = decode_head(pieces.get(at, HEAD_BYTES))
            if not _why_bad(pieces.get(at, head.block_bytes), ledger, head.entry):
                return at
        except BadEntry:
            pass
        at += 1
    return pieces.size


def _why_bad(block: bytes, ledger: LedgerId, entry: int) -> str:
    try:
        head = check_entry(block)
    except BadEntry as error:
        return str(error)
    if (head.ledger, head.entry) != (ledger, entry):
        return f"it is entry {head.entry} of ledger {head.ledger}"
    return ""


def _entry_row(offset: int, head: Head, block: bytes, why: str) -> Row:
    fields: dict[str, object] = {
        "offset": offset,
        "ledger": head.ledger,
        "entry": head.entry,
        "bytes": head.length,
        "crc32": f"{head.crc:08x}",
    }
    if why:
        return Row("bad", {**fields, "why": why})
    return Row("entry", fields, payload=bytes(payload_of(block)))


def _index_rows(disk: Disk, index: File, log_path: Path, start: int) -> Iterator[Row]:
    """List the slots that are not empty, each with what is wrong with the block that it names."""
    named = parse_file_name(log_path.name)
    assert named is not None, "it was made of a name that is one"
    try:
        log: File | None = disk.open(log_path, writable=False)
    except FileNotFoundError:
        log = None
    try:
        offset = slot_offset(start)
        while slots := index.read_at(offset, PIECE_BYTES - PIECE_BYTES % SLOT_BYTES):
            first = (offset - slot_offset(0)) // SLOT_BYTES
            whole = slots[: len(slots) - len(slots) % SLOT_BYTES]
            for entry, slot in enumerate(SLOT.iter_unpack(whole), first):
                if any(slot):
                    yield _slot_row(log, named[0], entry, slot)
            offset += len(slots)
    finally:
        if log is not None:
            log.close()


def _slot_row(log: File | None, ledger: LedgerId, entry: int, slot: tuple[int, int, int]) -> Row:
    at, size, crc = slot
    fields: dict[str, object] = {"entry": entry, "offset": at, "bytes": size, "crc32": f"{crc:08x}"}
    if log is None:
        return Row("bad", {**fields, "why": "the entry log is missing"})
    if not HEAD_BYTES <= size <= BLOCK_BYTES_MAX:
        return Row("bad", {**fields, "why": "no entry is so long"})
    try:
        block = log.read_at(at, size)
    except (OSError, OverflowError) as error:
        return Row("bad", {**fields, "why": f"it cannot be read: {error}"})
    why = _why_bad(block, ledger, entry)
    if not why and decode_head(block).crc != crc:
        why = "the block there has another checksum"
    return Row("bad", {**fields, "why": why}) if why else Row("slot", fields)
