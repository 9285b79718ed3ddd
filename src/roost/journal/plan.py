"""Where each record of a journal goes, and what the next write takes along.

Sans-IO; everything happens in one thread. A position is fixed when a record is appended, and with
it the segment and the place in its file. The promises: a position is used once; what a group takes
along is handed back whole and in order; and an append that could not be carried out, since no
space is secured for it, is refused before it gets a position. Space for adds is secured one
segment ahead; behind it each segment keeps a reserve, so that a fence or a delete still finds
room on a disk that is full.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from roost.errors import Closed, Invalid, NoRoom, Unavailable
from roost.journal.header import HEADER_BYTES, SEGMENT_BYTES_MAX, Header
from roost.journal.record import ADD, HEAD_BYTES, HEADS_BYTES, encode_head
from roost.types import Position
from roost.wire.entry import PAYLOAD_BYTES_MAX

SyncPolicy = Literal["always", "interval", "never"]
"""When a record counts as stored: after a sync; or in the page cache, with syncs by a timer, or
with none but where a segment ends."""

_NOT_READY: Final = "the next segment of the journal is not there yet"
_NOWHERE: Final = Position(-1)


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a journal is cut and synced."""

    segment_bytes: int = 64 << 20
    """What a segment holds of records, all of it allocated when it is made."""

    sync: SyncPolicy = "always"
    """When a record counts as stored."""

    interval_s: float = 0.01
    """How long a record stays unsynced with `sync="interval"`."""

    reserve_bytes: int = 64 << 10
    """What each segment keeps free for records other than adds."""

    record_bytes_max: int = HEADS_BYTES + PAYLOAD_BYTES_MAX
    """The longest record that is ever appended."""

    ahead_bytes: int = 1 << 20
    """From this size on what waits is handed over while a group before it is still written."""

    quick_s: float = 0.5e-3
    """A sync as quick as this may be waited for: the ways between threads take as long."""

    retry_s: float = 1.0
    """How long a journal without room waits before it tries again to make the next segment."""

    def __post_init__(self) -> None:
        if not HEADS_BYTES <= self.record_bytes_max <= self.segment_bytes:
            raise Invalid(
                f"record_bytes_max={self.record_bytes_max}: a record has at least {HEADS_BYTES} "
                f"bytes, and the longest one fits a segment (segment_bytes={self.segment_bytes})"
            )
        if self.reserve_bytes < 0 or self.file_bytes > SEGMENT_BYTES_MAX:
            raise Invalid(
                f"segment_bytes={self.segment_bytes} and reserve_bytes={self.reserve_bytes}: a "
                f"segment's file has at most {SEGMENT_BYTES_MAX} bytes"
            )
        if self.sync == "interval" and self.interval_s <= 0:
            raise Invalid(f"interval_s={self.interval_s}: it has to be more than 0")

    @property
    def file_bytes(self) -> int:
        """How long the file of a segment is while it is written."""
        return HEADER_BYTES + self.segment_bytes + self.reserve_bytes


class Planned(msgspec.Struct, frozen=True):
    """A segment that has a number and a nonce, and maybe no place among the positions yet."""

    number: int
    nonce: int


class Part(msgspec.Struct, frozen=True):
    """Bytes that go into one segment, one behind the other, from an offset of its file.

    With the first records of a segment comes its header, which goes before them.
    """

    number: int
    header: Header | None
    offset: int
    begin: Position
    end: Position
    pieces: list[bytes | memoryview]


class Group(msgspec.Struct, frozen=True):
    """What is written and synced together, and handed back together."""

    parts: tuple[Part, ...]
    items: list[Any]
    upto: Position


class Plan:
    """The growing end of a journal, as far as it has been decided.

    `wake` is called by the first append since `rest`, and `wanted` when the last segment that was
    made ahead comes into use.
    """

    def __init__(
        self,
        *,
        uuid: bytes,
        begin: Position,
        settings: JournalSettings,
        wake: Callable[[], None],
        wanted: Callable[[], None],
    ) -> None:
        self.tail = begin
        """The position of the next record."""
        self.synced_before = begin
        """What records say about that; whoever syncs moves it."""
        self.why_no_room = "no segment of the journal was made yet"
        """Why an add may be refused, or ''; while it is '', an add that is short enough is not."""
        self.refusal = ""
        """Why nothing is appended any more, for whoever tries."""
        self._closed = False
        self._uuid: Final = uuid
        self._settings: Final = settings
        self._wake: Final = wake
        self._wanted: Final = wanted
        self._asleep = True
        # The segment that is appended to, the next one if it is there, and where records of the
        # first have to stop: `_limit` is where an append has to think.
        self._segment: Planned | None = None
        self._next: Planned | None = None
        self._begin = begin
        self._seed = 0
        self._limit: Position = _NOWHERE
        # What waits for the next group, and from where on.
        self._taken = begin
        self._header: Header | None = None
        self._part_begin = begin
        self._pieces: list[bytes | memoryview] = []
        self._parts: list[Part] = []
        self._items: list[Any] = []

    def append(
        self,
        kind: int,
        epoch: int,
        lac: int,
        block: bytes | memoryview,
        item: Any,
        *,
        recovery: bool = False,
    ) -> Position:
        """Give a record its place, and have it written with the next group."""
        begin = self.tail
        end: Any = begin + HEAD_BYTES + len(block)  # a call of `Position` costs as much as the sum
        if end > self._limit:
            self._think(kind, end)
        pieces = self._pieces
        what = kind | 256 if recovery else kind
        pieces.append(encode_head(what, begin, self.synced_before, epoch, lac, block, self._seed))
        pieces.append(block)
        self._items.append(item)
        self.tail = end
        if self._asleep:
            self._asleep = False
            self._wake()
        return begin

    def barrier(self, item: Any) -> None:
        """Have an item handed back behind everything before it, without a record."""
        self._check_open()
        self._items.append(item)
        if self._asleep:
            self._asleep = False
            self._wake()

    @property
    def waiting_bytes(self) -> int:
        """Tell how much `take` would give."""
        return self.tail - self._taken

    def take(self) -> Group:
        """Give what was appended since, which the caller now writes."""
        self._end_part()
        group = Group(parts=tuple(self._parts), items=self._items, upto=self.tail)
        self._parts, self._items = [], []
        self._taken = self.tail
        return group

    def rest(self) -> bool:
        """Have `wake` called for the next append; False if there is something to take already."""
        self._asleep = not self._items
        return self._asleep

    @property
    def wants_segment(self) -> bool:
        """Whether the next segment is to be made."""
        return self._next is None and not self.refusal

    def on_made(self, segment: Planned) -> None:
        """Note that a segment can be written."""
        if self.refusal:
            return
        assert self._next is None, "one segment is made ahead"
        self._next = segment
        if self._segment is None:
            self._roll()
        self._set_limit()

    def on_no_room(self, why: str) -> None:
        """Note that the next segment cannot be made now."""
        self.why_no_room = why

    def stop(self, refusal: str, *, closed: bool) -> None:
        """Refuse everything from now on; what waits can still be taken."""
        self.refusal = self.refusal or refusal
        self._closed = closed
        self._limit = _NOWHERE

    def _think(self, kind: int, end: int) -> None:
        """See to it that a record that ends at `end` has room, or refuse it."""
        self._check_open()
        if end - self.tail > self._settings.record_bytes_max:
            raise Invalid(
                f"a record of {end - self.tail} bytes; record_bytes_max="
                f"{self._settings.record_bytes_max} are allowed"
            )
        full = self._begin + self._settings.segment_bytes
        if self._segment is not None and end <= full:
            self.why_no_room = self.why_no_room or _NOT_READY
        elif self._next is not None:
            self._roll()
            self._set_limit()
            self._wanted()
        elif self._segment is None or kind == ADD or end > full + self._settings.reserve_bytes:
            raise NoRoom(
                f"the journal has no room: {self.why_no_room or _NOT_READY}. Nothing was written; "
                "it works again when there is room."
            )
        else:
            self.why_no_room = self.why_no_room or _NOT_READY

    def _roll(self) -> None:
        """Go on in the next segment, from the position that is due."""
        assert self._next is not None, "a segment is made before it is appended to"
        self._end_part()
        self._segment, self._next = self._next, None
        self._begin = self.tail
        self._header = Header(
            uuid=self._uuid,
            number=self._segment.number,
            begin=self._begin,
            nonce=self._segment.nonce,
            # Whoever carries this out syncs the segment before, and only then names this one.
            synced_before=self._begin,
        )
        self._seed = self._header.seed
        self.why_no_room = ""

    def _set_limit(self) -> None:
        """Have an append think where the segment is full, or where the next one is wanted."""
        self._limit = Position(self._begin + self._settings.segment_bytes)
        if self._next is None:
            self._limit = Position(self._limit - self._settings.record_bytes_max)
        else:
            self.why_no_room = ""

    def _end_part(self) -> None:
        if self._pieces:
            assert self._segment is not None, "nothing is appended before there is a segment"
            self._parts.append(
                Part(
                    number=self._segment.number,
                    header=self._header,
                    offset=HEADER_BYTES + self._part_begin - self._begin,
                    begin=self._part_begin,
                    end=self.tail,
                    pieces=self._pieces,
                )
            )
            self._header = None
            self._pieces = []
        self._part_begin = self.tail

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self.refusal)
        if self.refusal:
            raise Unavailable(self.refusal)
