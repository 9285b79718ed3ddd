"""Reads everything in a stopped node's folder, and says what does not hold; changes nothing.

What the last flush or the last group left behind the end of a file is no problem: recovery deals
with it. What was durable and cannot be read any more is one, and is named by file and offset, and
by ledger and entry where that is known.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from roost.host.disk import Disk, File
from roost.journal.header import HEADER_BYTES as SEGMENT_HEADER_BYTES
from roost.journal.header import BadHeader, Header, decode_header, parse_name, segment_name
from roost.journal.scan import Walk, judge_tail
from roost.node.files import HEADER_BYTES, INDEX, LOG, file_name, header_problem
from roost.node.identity import load_identity
from roost.node.layout import CHECKPOINT, JOURNAL, LEDGERS, is_new
from roost.node.ledgers import Ledger
from roost.node.reading import Reader
from roost.node.table import Checkpoint, decode
from roost.types import EntryId, LedgerId

PIECE_BYTES: Final = 1 << 20


class Problem(msgspec.Struct, frozen=True):
    """Something that does not hold."""

    file: str
    text: str
    offset: int | None = None
    ledger: LedgerId | None = None
    entry: EntryId | None = None


class Checked(msgspec.Struct, frozen=True):
    """What one step has looked at."""

    bytes: int
    entries: int = 0
    problems: tuple[Problem, ...] = ()


def size_of(disk: Disk, folder: Path) -> int:
    """Tell about how many bytes there are to look at, for who shows progress."""
    checkpoint = _checkpoint(disk, folder)
    logs = sum(ledger.stored.log_end for ledger in checkpoint.ledgers)
    return logs + sum(_size(disk, folder / JOURNAL / name) for name in _segments(disk, folder))


def verify_all(disk: Disk, folder: Path) -> Iterator[Checked]:
    """Look at everything, step by step. Raises what `load_identity` does of a foreign folder."""
    load_identity(disk, folder)
    checkpoint = _checkpoint(disk, folder)
    if checkpoint.problem and not is_new(disk, folder):
        text = checkpoint.problem
        yield Checked(bytes=0, problems=(Problem(file=str(folder / CHECKPOINT), text=text),))
    yield from _verify_journal(disk, folder)
    reader = Reader(disk, folder / LEDGERS, files_max=16)
    try:
        for ledger in checkpoint.ledgers:
            if ledger.stored.log_end:
                yield from _verify_headers(disk, folder / LEDGERS, ledger.id)
                yield from _verify_entries(reader, folder / LEDGERS, ledger)
    finally:
        reader.close()


def _checkpoint(disk: Disk, folder: Path) -> Checkpoint:
    try:
        file = disk.open(folder / CHECKPOINT, writable=False)
    except FileNotFoundError:
        return msgspec.structs.replace(decode(b""), problem="it is missing")
    try:
        return decode(file.read_at(0, file.size()))
    finally:
        file.close()


def _segments(disk: Disk, folder: Path) -> list[str]:
    try:
        names = disk.names(folder / JOURNAL)
    except FileNotFoundError:
        return []
    parsed = (parse_name(name) for name in names)
    return [segment_name(found.number) for found in parsed if found and not found.making]


def _size(disk: Disk, path: Path) -> int:
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()


def _verify_journal(disk: Disk, folder: Path) -> Iterator[Checked]:
    """Walk all segments, each up to where the next one begins."""
    names = _segments(disk, folder)
    for name, following in pairwise([*names, ""]):
        path = folder / JOURNAL / name
        content = _content(disk, path)
        try:
            header = decode_header(content[:SEGMENT_HEADER_BYTES])
        except BadHeader as error:
            problem = Problem(file=str(path), offset=0, text=str(error))
            yield Checked(bytes=len(content), problems=(problem,) if following else ())
            continue
        stop = _stop(disk, folder, header, following, len(content))
        walk = Walk(content, header, stop=stop)
        walk.look()
        end = walk.end
        if not following:
            end = judge_tail(walk.bads, bound=walk.synced_before, end=end)
        problems = tuple(
            Problem(
                file=str(path),
                offset=bad.start - header.begin + SEGMENT_HEADER_BYTES,
                ledger=bad.ledger,
                entry=bad.entry,
                text=f"{bad.stop - bad.start} bytes are no good record",
            )
            for bad in walk.bads
            if bad.start < end
        )
        yield Checked(bytes=len(content), problems=problems)


def _content(disk: Disk, path: Path) -> bytes:
    file = disk.open(path, writable=False)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def _stop(disk: Disk, folder: Path, header: Header, following: str, size: int) -> int:
    """Tell where the records of a segment end: where those of the next one begin."""
    if not following:
        return size
    file = disk.open(folder / JOURNAL / following, writable=False)
    try:
        begin = decode_header(file.read_at(0, SEGMENT_HEADER_BYTES)).begin
    except BadHeader:
        return size
    finally:
        file.close()
    return min(size, begin - header.begin + SEGMENT_HEADER_BYTES)


def _verify_headers(disk: Disk, folder: Path, ledger: LedgerId) -> Iterator[Checked]:
    for kind in (LOG, INDEX):
        path = folder / file_name(ledger, kind)
        try:
            file = disk.open(path, writable=False)
        except FileNotFoundError:
            yield Checked(
                bytes=0, problems=(Problem(file=str(path), ledger=ledger, text="it is missing"),)
            )
            continue
        if text := _problem_of(file, ledger, kind):
            problem = Problem(file=str(path), offset=0, ledger=ledger, text=text)
            yield Checked(bytes=HEADER_BYTES, problems=(problem,))
        file.close()


def _problem_of(file: File, ledger: LedgerId, kind: str) -> str:
    try:
        return header_problem(file.read_at(0, HEADER_BYTES), ledger, kind)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def _verify_entries(reader: Reader, folder: Path, ledger: Ledger) -> Iterator[Checked]:
    """Read every entry that the index names, and count whether there are as many as there were."""
    stored = ledger.stored
    log = str(folder / file_name(ledger.id, LOG))
    first, entries, bad = EntryId(0), 0, 0
    while first <= stored.highest:
        found = reader.read(
            ledger.id, stored, first, EntryId(stored.highest + 1), bytes_max=PIECE_BYTES
        )
        size = sum(len(piece.blocks) for piece in found.pieces)
        count = sum(piece.count for piece in found.pieces)
        entries += count
        bad += len(found.suspects)
        problems = tuple(
            Problem(file=log, ledger=ledger.id, entry=entry, text="this entry cannot be read")
            for entry in found.suspects
        )
        yield Checked(bytes=size, entries=count, problems=problems)
        first = found.before
    if entries + bad < stored.entries:
        text = f"{stored.entries} entries were stored, and {entries} are found"
        yield Checked(bytes=0, problems=(Problem(file=log, ledger=ledger.id, text=text),))
