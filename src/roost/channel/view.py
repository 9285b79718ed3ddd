"""Reads a channel beside its owner: without the lock, and without leaving a trace.

    head ......... position ............ visible ............ written
     |                |                     |                    |
     what the owner   the next message      how far it may be    good frames that may
     has not removed  of this view          read                 still be lost

In mode `fsync` `visible` is the bound that the owner keeps in `offset`. In the other modes, and in
a folder without `offset`, it is the end of the good frames behind that bound: a frame that is
half there is only "not yet". (Should a full disk cut off a write that was half done, then in
those modes its first messages have been seen all the same.)

The promise: what is given here is whole and in order, and in mode `fsync` can never vanish. What
the owner does meanwhile is noticed: a segment that grew, rolled or was compressed is read on,
one that was collected is said to be `Trimmed`.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from roost.channel.catalogue import Catalogue
from roost.channel.channel import MESSAGE_BYTES_LIMIT
from roost.channel.cursors import SLOTS, Mark, copy_offset, decode_slots
from roost.channel.folder import LOOKS_MAX, Folder, restless
from roost.channel.handle import BATCH_BYTES_MAX
from roost.channel.positions import OFFSET_NAME
from roost.channel.recover import Finding
from roost.channel.walk import Walk, aligned
from roost.errors import Corrupt, Invalid, NotFound, Trimmed, Unavailable
from roost.host.disk import Disk
from roost.segments.file import Segment, good_stop
from roost.segments.format import FRAME_BYTES, HEADER_BYTES
from roost.segments.kernel import Ends
from roost.segments.scan import next_good, nonzero_stop
from roost.segments.windows import Windows

T = TypeVar("T")

BATCH_COUNT: Final = 1000
"""How many messages are looked at in one step."""

READS_MAX: Final = 100
"""How often a slot that its owner may be writing is read before it is called damaged."""


class Message(msgspec.Struct, frozen=True):
    """A message and where it stands: its frame's begin and end, and the segment's number."""

    begin: int
    end: int
    segment: int
    payload: bytes


class View:
    """One reader's view of a folder, at one position in it.

    `disk` must not map files: their owner may cut them at any time. A view does not know which
    limit on messages its owner has, so that it allows for all of them.
    """

    def __init__(
        self, disk: Disk, path: Path, *, message_bytes_max: int = MESSAGE_BYTES_LIMIT
    ) -> None:
        self.path: Final = path
        self.findings: list[Finding] = []
        self._disk: Final = disk
        self._folder: Final = Folder(disk, path)
        self._ends: Final = Ends()
        self._message_bytes_max: Final = message_bytes_max
        self._catalogue: Final = Catalogue(
            disk, path, [], windows=Windows(), message_bytes_max=message_bytes_max
        )
        self._channel: Mark | None = None
        self._searched = (0, 0)
        self._walk: Final = Walk(self._catalogue, self._ends, position=0)
        self.refresh()
        self.go("head")

    # How things stand

    @property
    def head(self) -> int:
        """The first position that is still there."""
        return self._catalogue.head

    @property
    def visible(self) -> int:
        """Where messages end that may be read, as far as was looked."""
        return self._ends.visible

    @property
    def bound(self) -> int:
        """A position before which everything is known to be durable; 0 where nobody says."""
        return 0 if self._channel is None else self._channel.position

    @property
    def durability(self) -> str:
        """The mode that the last owner chose; '' where nobody says."""
        return "" if self._channel is None else self._channel.name

    @property
    def incarnation(self) -> int:
        """How often the system lost messages that a receiver had read."""
        return 0 if self._channel is None else self._channel.id

    @property
    def segments(self) -> list[Segment]:
        """The segments in order; the last one has no end if it may grow."""
        return list(self._catalogue.segments)

    def written(self) -> int:
        """Find how far good frames go, those that may not be read yet included."""
        return self.again(lambda: self._good_before(self.visible))

    def receivers(self) -> list[Mark]:
        """List the receivers and where they stand."""
        return [mark for slot, mark in sorted(self.marks()[0].items()) if slot != 0]

    def marks(self) -> tuple[dict[int, Mark], list[int]]:
        """Read the file `offset`: who stands where, and which slots are damaged."""
        return self._slots(range(SLOTS))

    def refresh(self) -> bool:
        """Look at the folder again; the answer is whether more may be read than before."""
        before = self._ends.visible
        for _ in range(LOOKS_MAX):
            # The bound first: a segment that is made after this look holds nothing below it.
            self._note(self._slots(range(1))[0].get(0))
            self._renew()
            try:
                visible = self._readable()
            except FileNotFoundError:
                continue
            self._ends.written = self._ends.visible = max(before, visible)
            return self._ends.visible > before
        raise restless(self.path)

    def _note(self, channel: Mark | None) -> None:
        if channel is not None and channel.position < self.bound:
            raise Unavailable(f"{self.path} was replaced by another channel; read it anew")
        self._channel = channel if channel is not None else self._channel

    def _slots(self, slots: range) -> tuple[dict[int, Mark], list[int]]:
        """Read some slots; their owner may be storing into them, so that a torn copy is no news."""
        try:
            file = self._disk.open(self.path / OFFSET_NAME, writable=False)
        except (FileNotFoundError, NotADirectoryError):
            return {}, []
        size = copy_offset(len(slots), 0)
        marks: dict[int, Mark] = {}
        untold: list[int] = []
        try:
            for _ in range(READS_MAX):
                halves = [file.read_at(copy_offset(slots.start, half), size) for half in (0, 1)]
                marks, untold = decode_slots(slots, *halves)
                if not untold:
                    break
            return marks, untold
        finally:
            file.close()

    def _renew(self) -> None:
        """Take over which segments there are, and end the one that was growing if it rolled."""
        listing = self._folder.look()
        if not listing.segments:
            raise NotFound(f"there is no channel in {self.path}")
        grown = {segment.number for segment in self._catalogue.segments if segment.end is None}
        self._catalogue.renew(listing.segments)
        self.findings = listing.findings
        for segment in listing.segments:
            if segment.number in grown and segment.end is not None:
                # What is open is the plain form, whatever has taken its place.
                self._walk.sealed(msgspec.structs.replace(segment, method=None))
        here = {segment.number for segment in listing.segments}
        open_one = self._walk.segment
        if open_one is not None and open_one.end is None and open_one.number not in here:
            self._walk.close()  # nobody can tell any more where it ended

    # How far it may be read

    def _readable(self) -> int:
        if self.durability == "fsync":
            return self.bound
        last = self._catalogue.segments[-1]
        known = self.bound if self._channel is not None else last.begin
        end = self._good_before(max(known, self.head, self._ends.visible))
        return end if self._channel is not None else self._good_behind(last, end)

    def _good_before(self, position: int) -> int:
        """Follow good frames from a boundary on, from segment to segment, to where they end."""
        while True:
            segment = self._catalogue.find(position)
            if segment.end is not None and position >= segment.end:
                return position
            end = self._good_in(segment, position)
            following = self._catalogue.after(segment)
            if end != segment.end or following is None:
                return end
            position = following.begin

    def _good_in(self, segment: Segment, position: int) -> int:
        if segment.method is not None:  # compressed only once it was whole
            assert segment.end is not None
            return segment.end
        file = self._catalogue.open(segment)
        try:
            at = HEADER_BYTES + position - segment.begin
            stop = good_stop(file, at, message_bytes_max=self._message_bytes_max)
        finally:
            file.close()
        end = segment.begin + stop - HEADER_BYTES
        return end if segment.end is None else min(end, segment.end)

    def _good_behind(self, segment: Segment, end: int) -> int:
        """Look for good frames behind bad ones: in a folder without a bound these are damage."""
        if segment.method is not None:
            return end
        file = self._catalogue.open(segment)
        try:
            while self._searched != (end, size := file.size()):
                self._searched = (end, size)
                at = HEADER_BYTES + end - segment.begin
                rest = memoryview(file.read_at(at, max(0, size - at)))
                if not nonzero_stop(rest, 0, len(rest)):
                    continue
                found = next_good(rest, 0, len(rest), self._message_bytes_max)
                if found > 0:
                    end = self._good_in(segment, end + found)
            return end
        finally:
            file.close()

    # Reading

    @property
    def position(self) -> int:
        """Where the next message stands."""
        return self._walk.cursor.position

    def go(self, start: int | str) -> int:
        """Go on from 'head', 'tail', or a position (of a message, or inside one)."""
        match start:
            case "head":
                position = self.head
            case "tail":
                position = self.visible
            case int() if start < self.head:
                raise Trimmed(
                    f"position {start} of {self.path} is gone: the channel begins at {self.head}",
                    head=self.head,
                )
            case int() if start <= self.visible:
                position = self.boundary(start)
            case _:
                raise Invalid(
                    f"start={start!r}: 'head', 'tail', or a position from {self.head} to "
                    f"{self.visible}"
                )
        self._walk.cursor.seek(position)
        return position

    def boundary(self, position: int) -> int:
        """Find where the message begins that a position stands at, or in."""
        return self.again(lambda: aligned(self._catalogue, position, self.visible))

    def go_to_receiver(self, name: str) -> int:
        """Go on from where a receiver stands: at the first message that it has not acknowledged."""
        for mark in self.receivers():
            if mark.name == name:
                return self.go(min(mark.position, self.visible))
        raise NotFound(f"there is no receiver {name!r} in {self.path}")

    def go_back(self, count: int) -> int:
        """Go to where the last `count` messages begin, passing over damage between them."""
        begins: list[int] = []
        before = self.visible
        for segment in reversed(self.segments):
            if segment.begin < before and len(begins) < count:
                begins = self._begins(segment.begin, before, count - len(begins)) + begins
                before = segment.begin
        position = begins[0] if begins else self.visible
        self._walk.cursor.seek(position)
        return position

    def _begins(self, start: int, before: int, count_max: int) -> list[int]:
        """Find the last boundaries in a range that good messages begin at."""
        begins: deque[int] = deque(maxlen=count_max)
        self._walk.cursor.seek(start)
        while self.position < before:
            try:
                messages = self.take(BATCH_COUNT)
            except (Corrupt, Trimmed):
                if self.pass_over():
                    continue
                break
            if not messages:
                break
            begins.extend(message.begin for message in messages if message.begin < before)
        return list(begins)

    def take(self, count_max: int, *, bytes_max: int = BATCH_BYTES_MAX) -> list[Message]:
        """Give the next messages; none where there are no more for now.

        Raises `Corrupt` where the next message is damaged and `Trimmed` where it was collected,
        again each time, until `pass_over` is called.
        """
        while True:
            begin, segment = self.position, self._walk.segment
            payloads = self.again(lambda: self._walk.take(count_max, bytes_max))
            if payloads:
                return self._messages(begin, segment, payloads)
            if not self.refresh():
                return []

    def pass_over(self) -> int:
        """Go on behind damage, or at the head; the answer is how many bytes are passed over."""
        before = self.position
        self._walk.cursor.seek(self.again(self._walk.behind_damage))
        return self.position - before

    def close(self) -> None:
        """Let go of the files."""
        self._walk.close()

    def __enter__(self) -> Self:
        """Use the view for a while."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the files."""
        self.close()

    def again(self, work: Callable[[], T]) -> T:
        """Do something to the segments as they are now, for as long as one of them vanishes."""
        for _ in range(LOOKS_MAX):
            try:
                return work()
            except FileNotFoundError:
                self.refresh()
        raise restless(self.path)

    def _messages(self, begin: int, first: Segment | None, payloads: list[bytes]) -> list[Message]:
        """Say of each payload where it stands.

        `first` is the segment that was open, which may be gone from the catalogue.
        """
        messages: list[Message] = []
        segment = first
        for payload in payloads:
            if segment is None or not _covers(segment, begin):
                segment = self._catalogue.find(begin)
            end = begin + FRAME_BYTES + len(payload)
            messages.append(Message(begin=begin, end=end, segment=segment.number, payload=payload))
            begin = end
        return messages


def _covers(segment: Segment, position: int) -> bool:
    return segment.begin <= position and (segment.end is None or position < segment.end)
