"""Opens a channel's folder and puts right what a crash left, as in `docs/protocols/channel.md`.

Runs alone, under the folder's lock. The promises: every good frame stays; bytes are cut only at
or above the durable bound, and then kept in `salvage/`; no position that was ever durable is
given to another message. A crash anywhere in here leaves a folder that this recovers again.
"""

from collections.abc import Iterable
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Final

import msgspec

from roost.channel.positions import Positions, open_positions
from roost.errors import Corrupt
from roost.host.disk import Disk, File
from roost.segments.compress import BadStream, method_of
from roost.segments.file import (
    Segment,
    create_segment,
    decompressed,
    pieces,
    read_header,
)
from roost.segments.format import (
    HEADER_BYTES,
    SEGMENT_MAX,
    packed_name,
    parse_name,
    plain_name,
)
from roost.segments.scan import Survey, nonzero_stop, survey

SALVAGE_NAME: Final = "salvage"
POSITION_MAX: Final = 2**62
"""What no position of a folder that is opened exceeds; there is room for more in 64 bits."""
SEGMENTS_TO_COME: Final = 2**30
"""How many segments a folder that is opened can still begin, at least."""


class Finding(msgspec.Struct, frozen=True):
    """Something that recovery met and that a user may want to know."""

    kind: str
    file: str
    offset: int
    size: int
    text: str


class Recovered(msgspec.Struct):
    """A folder that is in order again: its segments, the growing one last and open."""

    segments: list[Segment]
    tail: File
    positions: Positions
    written: int
    findings: list[Finding]


class Recovery:
    """One run over one folder."""

    def __init__(
        self, disk: Disk, folder: Path, *, message_bytes_max: int, durability: str
    ) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._message_bytes_max: Final = message_bytes_max
        self._durability: Final = durability
        self._findings: Final[list[Finding]] = []
        self._last = -1
        self._last_is_damaged = False

    def run(self) -> Recovered:
        """Put the folder in order, and open its last segment for writing."""
        segments = self._catalogue()
        positions = open_positions(self._disk, self._folder)
        place = positions.channel
        foreign = place is None
        bound = 0 if place is None else place.position
        bound = max(bound, segments[-1].begin if foreign and segments else 0)
        self._check_reach(max([bound, *(segment.end or segment.begin for segment in segments)]))
        segments = self._survey(segments, bound=bound, foreign=foreign)
        held = max((segment.end or 0 for segment in segments), default=0)
        if held < bound:
            self._note("corrupt", "", 0, bound - held, f"messages {held} to {bound} are missing")
        written = max(bound, held)
        segments, tail = self._open_tail(segments, written)
        self._settle(positions, head=segments[0].begin, written=written)
        return Recovered(
            segments=segments,
            tail=tail,
            positions=positions,
            written=written,
            findings=self._findings,
        )

    def _check_reach(self, position: int) -> None:
        """Refuse a folder of which a header or a slot tells what no channel ever reaches."""
        if position > POSITION_MAX or self._last > SEGMENT_MAX - SEGMENTS_TO_COME:
            raise Corrupt(
                f"{self._folder} claims to reach position {position} and segment {self._last}, "
                f"where {POSITION_MAX} and {SEGMENT_MAX - SEGMENTS_TO_COME} are the most. Nothing "
                "was changed; restore its files from a copy, or begin another folder.",
                file=str(self._folder),
                offset=0,
            )

    def _note(self, kind: str, name: str, offset: int, size: int, text: str) -> None:
        self._findings.append(
            Finding(kind=kind, file=str(self._folder / name), offset=offset, size=size, text=text)
        )

    # What is there

    def _catalogue(self) -> list[Segment]:
        """List the segments in order, each in one form, with the end that its place gives it."""
        plain: dict[int, str] = {}
        packed: dict[int, str] = {}
        # What is seen may not be durable yet: its owner may have been killed after a rename.
        self._disk.sync_folder(self._folder)
        for name in self._disk.names(self._folder):
            parsed = parse_name(name)
            if parsed is None:
                continue
            if parsed.making:
                self._disk.unlink(self._folder / name)
            else:
                (packed if parsed.packed else plain)[parsed.segment] = name
        found: list[Segment] = []
        self._last = max([*plain, *packed], default=-1)
        for number in sorted({*plain, *packed}):
            segment = self._header(number, plain=number in plain, packed=number in packed)
            if segment is not None:
                found.append(segment)
            elif number != self._last or number in packed or not self._set_aside_unborn(number):
                self._note(
                    "corrupt", plain_name(number), 0, 0, "the header is damaged; left as it is"
                )
        return in_order(found, self._folder)

    def _set_aside_unborn(self, number: int) -> bool:
        """Remove a last segment that was never wholly created; False if it holds frames."""
        file = self._disk.open(self._folder / plain_name(number), writable=False)
        size = file.size()
        file.close()
        if size <= HEADER_BYTES:
            self._set_aside(plain_name(number), "torn", "never made durable")
        return size <= HEADER_BYTES

    def _header(self, number: int, *, plain: bool, packed: bool) -> Segment | None:
        if packed:
            segment = self._read(packed_name(number), number, packed=True)
            if not plain:
                return segment
            if segment is not None and self._whole(segment):
                self._disk.unlink(self._folder / plain_name(number))
                self._disk.sync_folder(self._folder)
                return segment
            other = self._read(plain_name(number), number, packed=False)
            if segment is not None or other is not None:
                worse = packed_name if other is not None else plain_name
                self._set_aside(worse(number), "corrupt", "the other form is kept")
            return other if other is not None else segment
        return self._read(plain_name(number), number, packed=False)

    def _read(self, name: str, number: int, *, packed: bool) -> Segment | None:
        file = self._disk.open(self._folder / name, writable=False)
        try:
            header = read_header(file, packed=packed)
            method = None if header.method is None else method_of(header.method)
        except ValueError:
            return None
        finally:
            file.close()
        if header.segment != number:
            return None
        return Segment(number=number, begin=header.begin, end=header.end, method=method)

    def _whole(self, segment: Segment) -> bool:
        """Tell whether a compressed segment holds all that it should, by its own checksums."""
        packed = self._disk.open(self._folder / segment.name, writable=False)
        try:
            for _ in decompressed(packed, segment):
                pass
        except BadStream:
            return False
        finally:
            packed.close()
        return True

    # What of it counts

    def _survey(self, segments: list[Segment], *, bound: int, foreign: bool) -> list[Segment]:
        """Give each segment its end; cut what is torn, and drop what stands behind that."""
        known: list[Segment] = []
        for at, segment in enumerate(segments):
            begins = segments[at + 1].begin if at + 1 < len(segments) else None
            if segment.method is not None:
                assert segment.end is not None, "a compressed segment knows its end"
                if begins is not None and segment.end < begins:
                    gap = f"messages {segment.end} to {begins} are missing behind it"
                    self._note("corrupt", segment.name, 0, begins - segment.end, gap)
                known.append(segment)
                continue
            if begins is not None and begins <= bound:
                known.append(self._sealed_below_bound(segment, begins))
                continue
            self._write_again(segment, bound)
            end, torn = self._look(segment, begins, bound=bound, foreign=foreign)
            if torn is not None:
                for later in reversed(segments[at + 1 :]):
                    self._set_aside(later.name, "torn", "never made durable")
                self._cut(segment, torn)
                return [*known, _ended(segment, end)]
            known.append(_ended(segment, end))
        return known

    def _sealed_below_bound(self, segment: Segment, begins: int) -> Segment:
        """Take a sealed durable segment as its neighbour says it is; receivers check frames."""
        file = self._disk.open(self._folder / segment.name, writable=False)
        held = segment.begin + file.size() - HEADER_BYTES
        file.close()
        if held < begins:
            self._note_shorter(segment, held, begins)
        elif held > begins:
            self._cut_reserve(segment, begins)
        return _ended(segment, begins)

    def _note_shorter(self, segment: Segment, held: int, begins: int) -> None:
        offset = HEADER_BYTES + held - segment.begin
        text = "the file is shorter than it was"
        self._note("corrupt", segment.name, offset, begins - held, text)

    def _cut_reserve(self, segment: Segment, end: int) -> None:
        """Cut room that was reserved in a sealed segment and, by a crash, not given back."""
        file = self._disk.open(self._folder / segment.name)
        stop, size = HEADER_BYTES + end - segment.begin, file.size()
        held = nonzero_stop(memoryview(file.read_at(stop, size - stop)), 0, size - stop)
        if held:
            self._note("corrupt", segment.name, stop, held, "bytes behind the end; left as it is")
        else:
            file.truncate(stop)
            file.sync()
        file.close()

    def _write_again(self, segment: Segment, bound: int) -> None:
        """Make durable what no sync is known to have covered, before it is looked at.

        After a failed sync its pages only seem clean: the system may drop them at any time, and
        show what is on the disk instead. So it is written again, not just synced; and what is
        judged afterwards is what is there. Zeros hold no frames, and need no room. After a clean
        close there is nothing, and nothing to sync.
        """
        file = self._disk.open(self._folder / segment.name)
        start = HEADER_BYTES + max(bound, segment.begin) - segment.begin
        written = False
        for piece in pieces(file, start):
            if piece.strip(b"\0"):
                file.write_at(start, piece)
                written = True
            start += len(piece)
        if written:
            file.sync()
        file.close()

    def _look(
        self, segment: Segment, begins: int | None, *, bound: int, foreign: bool
    ) -> tuple[int, Survey | None]:
        """Survey one segment; the survey comes back too if its tail is to be cut."""
        file = self._disk.open(self._folder / segment.name, writable=False)
        try:
            size = file.size()
            stop = size if begins is None else min(size, HEADER_BYTES + begins - segment.begin)
            view = file.map(0, stop, writable=False)
            seen = survey(
                view if view is not None else memoryview(file.read_at(0, stop)),
                stop=stop,
                bound=HEADER_BYTES + bound - segment.begin,
                message_bytes_max=self._message_bytes_max,
                foreign=foreign,
            )
        finally:
            file.close()
        self._last_is_damaged = bool(seen.damages)
        for damage in seen.damages:
            self._note(
                "corrupt",
                segment.name,
                damage.start,
                damage.stop - damage.start,
                "the checksums do not hold; left as it is",
            )
        end = segment.begin + seen.end - HEADER_BYTES
        if begins is None:
            return end, seen if size > seen.end else None
        if end == begins:
            if HEADER_BYTES + end - segment.begin < size:
                self._cut_reserve(segment, end)
            return end, None
        if end >= bound:
            return end, seen
        self._note_shorter(segment, end, begins)
        return begins, None

    def _cut(self, segment: Segment, seen: Survey) -> None:
        """Cut a segment behind its last good frame, keeping what is not zero in `salvage/`."""
        file = self._disk.open(self._folder / segment.name)
        if seen.torn_bytes:
            position = segment.begin + seen.end - HEADER_BYTES
            kept = self._keep(
                f"{segment.name}.at.{position}", pieces(file, seen.end, seen.torn_stop)
            )
            self._note(
                "torn", segment.name, seen.end, seen.torn_bytes, f"a torn tail, moved to {kept}"
            )
        file.truncate(seen.end)
        file.sync()
        file.close()

    def _keep(self, name: str, content: Iterable[bytes]) -> str:
        """Write a file of its own in `salvage/`; what was put there before stays."""
        folder = self._folder / SALVAGE_NAME
        self._disk.make_folder(folder)
        there = {*self._disk.names(folder)}
        fresh = next(n for n in chain([name], (f"{name}.{k}" for k in count(1))) if n not in there)
        kept = self._disk.open(folder / fresh, create=True)
        at = 0
        for piece in content:
            kept.write_at(at, piece)
            at += len(piece)
        kept.sync()
        kept.close()
        self._disk.sync_folder(folder)
        return f"{SALVAGE_NAME}/{fresh}"

    def _set_aside(self, name: str, kind: str, why: str) -> None:
        """Move a whole file to `salvage/`, or just remove it if nothing stands in it."""
        path = self._folder / name
        file = self._disk.open(path, writable=False)
        size = file.size()
        start = file.read_at(0, HEADER_BYTES)
        if size > HEADER_BYTES or start.strip(b"\0"):
            kept = self._keep(name, pieces(file, 0))
            self._note(kind, name, 0, size, f"{why}, moved to {kept}")
        file.close()
        self._disk.unlink(path)
        self._disk.sync_folder(self._folder)

    # Where it goes on

    def _open_tail(self, segments: list[Segment], written: int) -> tuple[list[Segment], File]:
        """Open the last segment for writing, or begin one where it cannot be continued.

        A damaged one is not: where a damaged message ends is told by what stands behind it, and
        must not be told anew, and what is sent must not be taken for a part of it.
        """
        last = segments[-1] if segments else None
        goes_on = last is not None and last.method is None and last.end == written
        if last is not None and goes_on and not self._last_is_damaged:
            growing = Segment(number=last.number, begin=last.begin)
            return [*segments[:-1], growing], self._disk.open(self._folder / last.name)
        number = self._last + 1
        tail = create_segment(self._disk, self._folder, number=number, begin=written)
        return [*segments, Segment(number=number, begin=written)], tail

    def _settle(self, positions: Positions, *, head: int, written: int) -> None:
        """Keep every receiver inside what is there, durably, before anything is served."""
        before = positions.channel
        ahead = [place for place in positions.receivers() if place.position > written]
        for place in ahead:
            self._note(
                "lost",
                "offset",
                0,
                place.position - written,
                f"receiver {place.mark.name!r} had read on to {place.position}; the system lost "
                f"what came after {written} before it was durable",
            )
        bound = max(written, head)
        incarnation = 0 if before is None else before.mark.id
        if ahead:
            # Durable before their positions are: a crash in between must not hide the loss.
            incarnation += 1
            positions.put_channel(bound=bound, incarnation=incarnation, durability=self._durability)
        for place in positions.receivers():  # stored again, since a sync of them may have failed
            place.store(min(place.position, written))
        positions.put_channel(bound=bound, incarnation=incarnation, durability=self._durability)


def _ended(segment: Segment, end: int) -> Segment:
    return Segment(number=segment.number, begin=segment.begin, end=end, method=segment.method)


def in_order(found: list[Segment], folder: Path) -> list[Segment]:
    """Check that segments follow one another; positions must never run backwards."""
    for before, after in pairwise(found):
        if after.begin < (before.end if before.end is not None else before.begin):
            raise Corrupt(
                f"{folder / after.name} says that it begins at {after.begin}, inside "
                f"{before.name}. Nothing was changed; restore the two from a copy, or move the "
                "wrong one out of the folder.",
                file=str(folder / after.name),
                offset=4,
            )
    return found
