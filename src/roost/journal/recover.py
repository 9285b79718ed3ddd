"""Puts a journal's folder right after whatever ended its last owner, and reads what it holds.

Blocking: it runs in a worker's job. The promises: every record that was ever durable is given
back, byte for byte and in order, or its place is reported as damage; bytes are cut only where no
record says that they were durable, and kept in `salvage/`; nothing is given back before it is
durable again. A crash anywhere in here leaves a folder that this puts right again.
"""

import errno
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from roost.errors import Corrupt
from roost.host.disk import Disk, File
from roost.journal.chain import Damage, Finding, Link, Opened, Seen, Segment, follow
from roost.journal.header import (
    HEADER_BYTES,
    NUMBER_MAX,
    POSITION_MAX,
    SALVAGE_NAME,
    SEGMENT_BYTES_MAX,
    BadHeader,
    Header,
    decode_header,
    making_name,
    parse_name,
    segment_name,
)
from roost.journal.record import Record
from roost.journal.scan import Walk, judge_tail
from roost.segments.scan import nonzero_stop
from roost.types import Position

PIECE_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 4096


class JournalRecovery:
    """One run over one folder: `prepare` to its end, then `records` to its end, then `opened`."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        uuid: bytes,
        replay_from: Position,
        reach: Position | None = None,
    ) -> None:
        self.findings: Final[list[Finding]] = []
        """What an operator may want to know."""
        self.damages: Final[list[Damage]] = []
        """Which positions from `replay_from` on held records that cannot be read; complete once
        `records` has ended."""
        self.missing = False
        """Whether a segment is gone that must be there."""
        self.salvaged_bytes = 0
        """How much was moved to `salvage/`."""
        self._disk: Final = disk
        self._folder: Final = folder
        self._uuid: Final = uuid
        self._replay_from: Final = replay_from
        self._links: list[Link] = []
        # Whatever is known up to there, from elsewhere, was in the journal once: no position is
        # given twice.
        self._begin = self._reach = max(replay_from, reach or replay_from)
        self._damaged: Final[set[int]] = set()

    @property
    def opened(self) -> Opened:
        """Where the journal goes on, and its segments; complete once `records` has ended."""
        return Opened(
            number=self._links[-1].seen.number + 1 if self._links else 1,
            begin=self._begin,
            segments=tuple(
                Segment(
                    number=link.seen.number,
                    begin=link.begin,
                    end=link.stop,
                    file_bytes=link.seen.file_bytes,
                    damaged=link.seen.header is None or link.seen.number in self._damaged,
                )
                for link in self._links
            ),
        )

    # Before anything is read

    def prepare(self) -> Iterator[None]:
        """Judge the tail, cut what is torn, and make durable again what may not be."""
        self._disk.make_folder(self._folder)
        yield
        names = [name for name in map(parse_name, self._disk.names(self._folder)) if name]
        seen: list[Seen] = []
        for name in names:
            if not name.making:
                yield
                seen.append(self._look(name.number))
        self._check_reach(seen)
        for name in names:
            if name.making:
                yield
                self._disk.unlink(self._folder / making_name(name.number))
        if self._was_never_made(seen):
            yield from self._set_aside(seen.pop())
        yield
        # A name that is seen may not be durable yet: its owner may have been killed after a rename.
        self._disk.sync_folder(self._folder)
        self._arrange(seen)
        if self._links and self._links[-1].seen.header is not None:
            yield from self._settle(self._links[-1], self._links[-1].seen.header)
        self._conclude()

    def _look(self, number: int) -> Seen:
        """Read the header of a segment."""
        file = self._disk.open(self._folder / segment_name(number), writable=False)
        try:
            size = file.size()
            raw, unread = _read(file, HEADER_BYTES)
        finally:
            file.close()
        if unread:
            return Seen(number, size, None, "unreadable", "its header cannot be read")
        try:
            header = decode_header(raw)
        except BadHeader as error:
            return Seen(number, size, None, "corrupt", str(error))
        if header.uuid != self._uuid:
            text = f"a segment of the node with the uuid {header.uuid.hex()}"
            return Seen(number, size, None, "foreign", text)
        if header.number != number:
            return Seen(number, size, None, "corrupt", f"its header is of segment {header.number}")
        if size > SEGMENT_BYTES_MAX:
            return Seen(number, size, None, "corrupt", "it is longer than any segment")
        return Seen(number, size, header)

    def _check_reach(self, seen: list[Seen]) -> None:
        """Refuse a folder of which a name or a header tells what no journal ever reaches."""
        number = max((each.number for each in seen), default=0)
        begins = [each.header.begin for each in seen if each.header is not None]
        position = max([self._replay_from, *begins])
        if number > NUMBER_MAX // 2 or position > POSITION_MAX // 2:
            raise Corrupt(
                f"{self._folder} claims to reach segment {number} and position {position}, where "
                f"{NUMBER_MAX // 2} and {POSITION_MAX // 2} are the most. Nothing was changed; "
                "restore its files from a copy, or take the wrong one out of the folder.",
                file=str(self._folder),
                offset=0,
            )

    def _was_never_made(self, seen: list[Seen]) -> bool:
        """Tell whether the last segment is one that was begun, and holds nothing but a bad header.

        Only one is ever begun at a time.
        """
        if not seen or seen[-1].kind != "corrupt" or seen[-1].file_bytes > SEGMENT_BYTES_MAX:
            return False
        if len(seen) > 1 and seen[-2].header is None:
            return False
        file = self._disk.open(self._folder / segment_name(seen[-1].number), writable=False)
        try:
            content, unread = _read(file, seen[-1].file_bytes)
        finally:
            file.close()
        return not unread and not content[HEADER_BYTES:].strip(b"\0")

    def _set_aside(self, seen: Seen) -> Iterator[None]:
        """Remove a segment that holds no records, and keep what is left of its header."""
        name = segment_name(seen.number)
        file = self._disk.open(self._folder / name, writable=False)
        start = file.read_at(0, HEADER_BYTES)
        file.close()
        if start.strip(b"\0"):
            yield
            kept = self._keep(name, memoryview(start))
            self._note("torn", seen.number, 0, len(start), f"it was never made, moved to {kept}")
        yield
        self._disk.unlink(self._folder / name)

    def _arrange(self, seen: list[Seen]) -> None:
        """Put the segments into their places, and say what is wrong with that."""
        found = follow(seen, replay_from=self._replay_from)
        for text in found.missing:
            self._miss(text)
        for link in found.links:
            each = link.seen
            if each.header is None:
                self._note(
                    each.kind, each.number, 0, each.file_bytes, f"{each.text}; left as it is"
                )
        self._links = list(found.links)

    def _settle(self, link: Link, header: Header) -> Iterator[None]:
        """Say where the last segment ends, and see to it that it is durable up to there.

        After a failed sync its pages only seem clean: the system may drop them at any time, and
        show what is on the disk instead. So what no record calls durable is written again, not
        just synced, from the very bytes that were judged.
        """
        name = segment_name(link.seen.number)
        file = self._disk.open(self._folder / name)
        try:
            content, unread = _read(file, link.seen.file_bytes)
            walk = Walk(content, header, stop=len(content))
            walk.look()
            yield
            shift = header.begin - HEADER_BYTES
            proven = max(walk.synced_before, self._replay_from, header.begin)
            unread_before = max((stop for _, stop in unread), default=-shift) + shift
            end = judge_tail(
                walk.bads, bound=proven, unread_before=Position(unread_before), end=walk.end
            )
            stop = end - shift
            size = len(content)
            if stop < size:
                # What proves that it is damage may stand in the tail, and may be needed again.
                damaged = any(bad.start < end for bad in walk.bads)
                torn = memoryview(content)[stop : nonzero_stop(memoryview(content), stop, size)]
                yield from self._put_aside(link.seen.number, stop, torn, damaged=damaged)
                if not damaged:
                    file.truncate(stop)
                    size = stop
            if proven < end:
                for start, before in _without(unread, proven - shift, stop):
                    yield
                    file.write_at(start, content[start:before])
            if proven < end or size < len(content):
                yield
                file.sync()
        finally:
            file.close()
        self._links[-1] = replace(link, seen=replace(link.seen, file_bytes=size), stop=end)

    def _put_aside(
        self, number: int, offset: int, torn: memoryview, *, damaged: bool
    ) -> Iterator[None]:
        """Keep what is cut from a tail, or say that it is not cut."""
        if torn:
            yield
            text = "a torn tail, left as it is behind damage"
            if not damaged:
                kept = self._keep(f"{segment_name(number)}.at.{offset}", torn)
                text = f"a torn tail, moved to {kept}"
            self._note("torn", number, offset, len(torn), text)
        yield

    def _conclude(self) -> None:
        """Say where the journal goes on."""
        if self._links:
            held = self._links[-1].stop
            if held < self._replay_from:
                self._miss(f"records up to {self._replay_from} were there, and it ends at {held}")
            self._begin = max(self._reach, held)

    # Reading

    def records(self) -> Iterator[Record]:
        """Give the good records from `replay_from` on, in order."""
        reached = self._replay_from
        for link in self._links:
            header = link.seen.header
            if not link.needed or header is None:
                continue
            self._lose(reached, link.begin)
            content = self._content(link)
            walk = Walk(content, header, stop=HEADER_BYTES + link.stop - link.begin)
            del content
            if link.begin < self._replay_from:
                for record in walk.records():
                    if record.position >= self._replay_from:
                        yield record
            else:
                yield from walk.records()
            self._report(link, walk.bads)
            reached = max(reached, walk.end)
            del walk
        self._lose(reached, self._begin)

    def _content(self, link: Link) -> bytes:
        name = segment_name(link.seen.number)
        file = self._disk.open(self._folder / name, writable=False)
        try:
            content, unread = _read(file, link.seen.file_bytes)
        finally:
            file.close()
        for start, before in unread:
            self._note(
                "unreadable", link.seen.number, start, before - start, "the disk cannot read it"
            )
        return content

    def _report(self, link: Link, bads: list[Damage]) -> None:
        """Note what is bad in a segment that is kept as it is."""
        for bad in bads:
            self._damaged.add(link.seen.number)
            offset = HEADER_BYTES + bad.start - link.begin
            size = bad.stop - bad.start
            text = "the checksums do not hold; left as it is"
            self._note("corrupt", link.seen.number, offset, size, text)
            if bad.stop > self._replay_from:
                self.damages.append(bad)

    def _lose(self, start: Position, stop: Position) -> None:
        """Note positions that no file holds."""
        if start < stop:
            self.damages.append(Damage(start=start, stop=stop))

    # Words, and what is put aside

    def _note(self, kind: str, number: int, offset: int, size: int, text: str) -> None:
        file = str(self._folder / segment_name(number))
        self.findings.append(Finding(kind=kind, file=file, offset=offset, size=size, text=text))

    def _miss(self, text: str) -> None:
        self.missing = True
        self.findings.append(
            Finding(kind="missing", file=str(self._folder), offset=0, size=0, text=text)
        )

    def _keep(self, name: str, content: memoryview) -> str:
        """Write a file of its own in `salvage/`; what was put there before stays."""
        folder = self._folder.parent / SALVAGE_NAME
        self._disk.make_folder(folder)
        there = {*self._disk.names(folder)}
        fresh = next(n for n in chain([name], (f"{name}.{k}" for k in count(1))) if n not in there)
        kept = self._disk.open(folder / fresh, create=True)
        try:
            for start in range(0, len(content), PIECE_BYTES):
                kept.write_at(start, content[start : start + PIECE_BYTES])
            kept.sync()
        finally:
            kept.close()
        self._disk.sync_folder(folder)
        self.salvaged_bytes += len(content)
        return f"{SALVAGE_NAME}/{fresh}"


def _read(file: File, size: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Read the front of a file; the ranges that cannot be read are told, and are zeros."""
    try:
        return file.read_at(0, size), []
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    pieces: list[bytes] = []
    unread: list[tuple[int, int]] = []
    for start in range(0, size, _SECTOR_BYTES):
        before = min(start + _SECTOR_BYTES, size)
        try:
            pieces.append(file.read_at(start, before - start))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            pieces.append(bytes(before - start))
            unread.append((start, before))
    return b"".join(pieces), unread


def _without(unread: list[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Give a range in pieces, without what could not be read."""
    for hole_start, hole_before in [*unread, (stop, stop)]:
        while start < min(hole_start, stop):
            before = min(start + PIECE_BYTES, hole_start, stop)
            yield start, before
            start = before
        start = max(start, hole_before)
