"""Where records go: positions, rolls, the reserve, and what an append without room is told."""

from random import Random
from typing import Any

import pytest

from roost.errors import Closed, Invalid, NoRoom, Unavailable
from roost.journal.header import HEADER_BYTES, decode_header, encode_header
from roost.journal.plan import Group, JournalSettings, Plan, Planned
from roost.journal.record import ADD, FENCE
from roost.journal.scan import Walk
from roost.types import Position
from roost.wire.entry import encode_entry
from tests.unit.journal.lives import UUID

# A record of an empty payload has 76 bytes.
SETTINGS = JournalSettings(segment_bytes=1000, reserve_bytes=200, record_bytes_max=400)


class Desk:
    """A plan, and somebody who makes segments and writes groups as they come."""

    def __init__(self, settings: JournalSettings = SETTINGS, *, begin: int = 0) -> None:
        self.woken = 0
        self.wanted = 0
        self.plan = Plan(
            uuid=UUID,
            begin=Position(begin),
            settings=settings,
            wake=self._on_wake,
            wanted=self._on_wanted,
        )
        self.numbers = 1
        self.files: dict[int, bytearray] = {}

    def _on_wake(self) -> None:
        self.woken += 1

    def _on_wanted(self) -> None:
        self.wanted += 1

    def make(self) -> None:
        """Have the next segment."""
        self.plan.on_made(Planned(number=self.numbers, nonce=self.numbers * 77))
        self.numbers += 1

    def add(self, size: int, item: Any = None, kind: int = ADD) -> int:
        """Append a record of this size."""
        return self.plan.append(kind, 1, 0, encode_entry(7, 0, bytes(size - 76)), item)

    def write(self) -> Group:
        """Put a group where it says that it goes."""
        group = self.plan.take()
        for part in group.parts:
            if part.header is not None:
                assert part.number not in self.files, "a segment is begun twice"
                assert part.offset == HEADER_BYTES
                self.files[part.number] = bytearray(encode_header(part.header))
            file = self.files[part.number]
            assert len(file) == part.offset, "a part goes elsewhere than behind the last one"
            file += b"".join(part.pieces)
            assert len(file) - part.offset == part.end - part.begin
        return group


def ready(**options: Any) -> Desk:
    """Make a plan with a segment, and one ahead."""
    desk = Desk(**options)
    desk.make()
    desk.make()
    return desk


def test_records_stand_one_behind_the_other() -> None:
    desk = ready(begin=5000)

    assert [desk.add(size) for size in (76, 100, 90)] == [5000, 5076, 5176]
    assert desk.plan.tail == 5266
    (part,) = desk.write().parts
    assert (part.number, part.offset, part.begin, part.end) == (1, 64, 5000, 5266)
    assert part.header is not None
    assert (part.header.begin, part.header.synced_before) == (5000, 5000)


def test_only_the_first_part_of_a_segment_has_its_header() -> None:
    desk = ready()
    desk.add(76)
    desk.write()
    desk.add(80)

    (part,) = desk.write().parts

    assert part.header is None
    assert part.offset == 64 + 76


def test_somebody_is_woken_once_until_they_rest() -> None:
    desk = ready()
    desk.add(76)
    desk.add(76)
    desk.plan.barrier("b")
    assert desk.woken == 1
    assert not desk.plan.rest()

    desk.write()
    desk.add(76)
    assert desk.woken == 1

    desk.write()
    assert desk.plan.rest()
    desk.plan.barrier("c")
    assert desk.woken == 2


def test_a_group_has_all_items_in_order_barriers_included() -> None:
    desk = ready()
    desk.add(76, "a")
    desk.plan.barrier("b")
    desk.add(76, "c")

    group = desk.write()

    assert group.items == ["a", "b", "c"]
    assert group.upto == 152
    assert desk.write() == Group(parts=(), items=[], upto=Position(152))


def test_barriers_alone_write_nothing() -> None:
    desk = Desk()
    desk.plan.barrier("b")

    assert desk.write() == Group(parts=(), items=["b"], upto=Position(0))


def test_a_record_that_does_not_fit_begins_the_next_segment() -> None:
    desk = ready()
    for size in (400, 400, 200):
        desk.add(size)
    assert desk.wanted == 0

    desk.add(76)

    assert desk.wanted == 1
    first, second = desk.write().parts
    assert (first.number, first.begin, first.end) == (1, 0, 1000)
    assert (second.number, second.begin, second.end, second.offset) == (2, 1000, 1076, 64)
    assert second.header is not None
    assert second.header.synced_before == 1000


def test_records_have_the_checksums_of_the_segment_that_they_go_to() -> None:
    desk = ready()
    for size in (400, 400, 300, 300):
        desk.add(size)
    desk.write()

    for number, count in ((1, 2), (2, 2)):
        content = bytes(desk.files[number])
        walk = Walk(content, decode_header(content[:64]), stop=len(content))
        assert len(list(walk.records())) == count
        assert walk.bads == []


def test_records_say_what_was_durable_when_they_were_appended() -> None:
    desk = ready()
    desk.add(76)
    desk.plan.synced_before = desk.write().upto
    desk.add(76)
    desk.write()

    content = bytes(desk.files[1])
    walk = Walk(content, decode_header(content[:64]), stop=len(content))
    list(walk.records())
    assert walk.synced_before == 76


# Room


def test_before_there_is_a_segment_nothing_has_room() -> None:
    desk = Desk()
    assert desk.plan.why_no_room

    for kind in (ADD, FENCE):
        with pytest.raises(NoRoom, match="no segment of the journal was made yet"):
            desk.add(76, kind=kind)

    desk.make()
    assert desk.plan.why_no_room == ""
    desk.add(76)


def test_adds_have_room_while_any_of_them_fits() -> None:
    desk = Desk()
    desk.make()
    desk.add(400)
    desk.add(200)
    assert desk.plan.why_no_room == ""

    desk.add(76)
    assert "is not there yet" in desk.plan.why_no_room
    desk.add(324)
    with pytest.raises(NoRoom, match="Nothing was written; it works again when there is room"):
        desk.add(76)

    desk.make()
    assert desk.plan.why_no_room == ""
    assert desk.add(400) == 1000


def test_an_append_without_room_leaves_everything_as_it_was() -> None:
    desk = Desk()
    desk.make()
    for size in (400, 400, 200):
        desk.add(size, size)

    for _ in range(3):
        with pytest.raises(NoRoom):
            desk.add(76)

    assert desk.plan.tail == 1000
    assert desk.write().items == [400, 400, 200]


def test_other_records_than_adds_use_the_reserve_and_no_more() -> None:
    desk = Desk()
    desk.make()
    for size in (400, 400, 200):
        desk.add(size)
    desk.plan.on_no_room("the disk is full")

    assert [desk.add(76, kind=FENCE) for _ in range(2)] == [1000, 1076]
    with pytest.raises(NoRoom, match="the disk is full"):
        desk.add(76, kind=FENCE)

    (part,) = desk.write().parts
    assert part.end == 1152
    assert len(desk.files[1]) <= SETTINGS.file_bytes
    desk.make()
    assert desk.add(76, kind=FENCE) == 1152
    assert desk.write().parts[0].number == 2


def test_a_full_disk_is_told_at_once_and_forgotten_with_the_next_segment() -> None:
    desk = Desk()
    desk.make()

    desk.plan.on_no_room("the disk is full")

    assert desk.plan.why_no_room == "the disk is full"
    desk.add(76)
    desk.make()
    assert desk.plan.why_no_room == ""


def test_a_segment_is_wanted_while_none_is_ahead() -> None:
    desk = Desk()
    wants = [desk.plan.wants_segment]
    for step in (desk.make, desk.make, lambda: [desk.add(400) for _ in range(3)]):
        step()
        wants.append(desk.plan.wants_segment)
    desk.plan.stop("it failed", closed=False)
    wants.append(desk.plan.wants_segment)

    assert wants == [True, True, False, True, False]


def test_a_record_that_is_too_long_is_refused() -> None:
    desk = ready()
    for size in (400, 400):
        desk.add(size)

    with pytest.raises(Invalid, match="a record of 401 bytes; record_bytes_max=400 are allowed"):
        desk.add(401)


# The end


def test_what_was_stopped_takes_nothing_and_gives_what_waits() -> None:
    for closed, error in ((True, Closed), (False, Unavailable)):
        desk = ready()
        desk.add(76, "a")
        desk.plan.stop("it is over", closed=closed)
        desk.plan.on_made(Planned(number=9, nonce=9))

        with pytest.raises(error, match="it is over"):
            desk.add(76)
        with pytest.raises(error, match="it is over"):
            desk.plan.barrier("b")

        assert desk.plan.take().items == ["a"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 100, "record_bytes_max": 101},
        {"record_bytes_max": 75},
        {"segment_bytes": 1 << 30},
        {"reserve_bytes": -1},
        {"interval_s": 0.0, "sync": "interval"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        JournalSettings(**wrong)


def test_whatever_is_appended_stands_where_it_was_said_and_comes_back_once() -> None:
    for seed in range(60):
        rng = Random(seed)
        desk = Desk(begin=seed * 1000)
        appended: list[tuple[int, int]] = []
        items: list[Any] = []
        for _ in range(300):
            match rng.randrange(8):
                case 0 if desk.plan.wants_segment:
                    desk.make()
                case 1:
                    items += desk.write().items
                case 2:
                    desk.plan.on_no_room("full")
                case n:
                    size = rng.randrange(76, 401) if n < 6 else 76
                    roomy = desk.plan.why_no_room == ""
                    try:
                        at = desk.add(size, len(appended), ADD if n < 6 else FENCE)
                    except NoRoom:
                        assert not roomy, "there was room, as it said"
                    else:
                        appended.append((at, size))
        items += desk.write().items

        assert items == list(range(len(appended)))
        _check_files(desk, appended)


def _check_files(desk: Desk, appended: list[tuple[int, int]]) -> None:
    found = []
    for content in map(bytes, desk.files.values()):
        assert len(content) <= SETTINGS.file_bytes
        walk = Walk(content, decode_header(content[:64]), stop=len(content))
        found += [(record.position, 48 + len(record.block)) for record in walk.records()]
        assert walk.bads == []
    assert found == appended
