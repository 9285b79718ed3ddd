"""Where entries stand: slots, the spans in which they are written, and the runs that are read."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.node.index import (
    FILE_HEADER_BYTES,
    GAP_MAX,
    RUN_BYTES_MAX,
    SLOT,
    SLOT_BYTES,
    Run,
    fill,
    make_slots,
    plan,
    slot_offset,
    spans,
)
from roost.types import EntryId
from roost.wire.entry import HEAD_BYTES, PAYLOAD_BYTES_MAX, encode_entry

FIRST = EntryId(10)
LOG_END = 1 << 62
EMPTY = bytes(SLOT_BYTES)
IDS = st.lists(st.integers(0, 1000), unique=True).map(sorted)


def slot(offset: int, size: int, crc: int = 1) -> bytes:
    return SLOT.pack(offset, size, crc)


def ids(*entries: int) -> list[EntryId]:
    return [EntryId(entry) for entry in entries]


def test_the_place_of_a_slot_follows_from_the_id() -> None:
    assert [slot_offset(entry) for entry in (0, 1, 1000)] == [64, 80, 16064]
    assert FILE_HEADER_BYTES == 64


def test_slots_say_where_blocks_stand_that_are_written_one_behind_the_other() -> None:
    blocks = [encode_entry(7, entry, b"x" * entry) for entry in (3, 4, 9)]

    slots = make_slots(blocks, 1000)

    assert [*SLOT.iter_unpack(slots)] == [
        (offset, len(block), int.from_bytes(block[4:8], "little"))
        for offset, block in zip((1000, 1031, 1063), blocks, strict=True)
    ]
    assert make_slots([memoryview(block) for block in blocks], 1000) == slots


def test_ids_that_are_close_are_written_together() -> None:
    near, far = 5 + 1 + GAP_MAX, 5 + 2 + GAP_MAX

    assert [*spans(ids(5))] == [[5]]
    assert [*spans(ids(5, 6, 7))] == [[5, 6, 7]]
    assert [*spans(ids(5, 6, near))] == [[5, 6, near]]
    assert [*spans(ids(5, far))] == [[5], [far]]
    assert [*spans(ids(0, 1000, 1001))] == [[0], [1000, 1001]]


@given(IDS.filter(bool))
def test_spans_hold_each_id_once_and_are_cut_where_that_pays(entries: list[int]) -> None:
    cut = [*spans(ids(*entries))]

    assert [entry for span in cut for entry in span] == entries
    assert all(later[0] - earlier[-1] > GAP_MAX for earlier, later in pairwise(cut))
    size = sum(span[-1] - span[0] + 1 for span in cut)
    assert size <= len(entries) * (GAP_MAX + 1)


def test_a_span_keeps_the_slots_between_those_that_are_placed() -> None:
    old = slot(64, 30) + EMPTY + slot(94, 30)
    one, two = slot(500, 40), slot(540, 40)

    assert fill(old, ids(10, 12), one + two) == one + EMPTY + two
    assert fill(slot(1, 30) + old[:32], ids(10, 12), one + two) == one + slot(64, 30) + two


def test_a_span_reaches_beyond_what_the_file_has() -> None:
    one, two = slot(500, 40), slot(540, 40)

    assert fill(b"", ids(10, 12), one + two) == one + EMPTY + two
    assert fill(slot(64, 30) + b"torn", ids(10, 12), one + two)[32:] == two
    assert fill(slot(64, 30), ids(10), one) == one


@given(IDS.filter(bool), st.data())
def test_filling_changes_nothing_but_what_is_placed(
    entries: list[int], draw: st.DataObject
) -> None:
    first, before = entries[0], entries[-1] + 1
    size = draw.draw(st.integers(0, before - first))
    present = b"".join(slot(64 + entry, 30) for entry in range(first, first + size))
    placed = {entry: slot(9999, 99, entry) for entry in entries}

    span = fill(present, ids(*entries), b"".join(placed.values()))

    assert len(span) == (before - first) * SLOT_BYTES
    for entry in range(first, before):
        there = span[(entry - first) * SLOT_BYTES :][:SLOT_BYTES]
        old = slot(64 + entry, 30) if entry < first + size else EMPTY
        assert there == placed.get(entry, old)


def test_entries_that_stand_together_are_read_together() -> None:
    slots = slot(64, 30) + slot(94, 40) + EMPTY + slot(134, 50) + slot(500, 28) + slot(528, 28)

    found = plan(slots, FIRST, bytes_max=1000, log_end=LOG_END)

    assert found.runs == [
        Run(first=EntryId(10), sizes=[30, 40], offset=64),
        Run(first=EntryId(13), sizes=[50], offset=134),
        Run(first=EntryId(14), sizes=[28, 28], offset=500),
    ]
    assert (found.missing, found.bad, found.before) == ([12], [], 16)
    assert [(run.size, run.before) for run in found.runs] == [(70, 12), (50, 14), (56, 16)]


@pytest.mark.parametrize(("size", "each"), [(128, 2016), (4124, 62), (RUN_BYTES_MAX // 2 + 1, 1)])
def test_a_run_is_no_longer_than_is_good_and_no_short_one_goes_on(size: int, each: int) -> None:
    slots = b"".join(slot(64 + size * n, size) for n in range(5 * each))

    found = plan(slots, FIRST, bytes_max=4 * RUN_BYTES_MAX + size, log_end=LOG_END)

    longest = RUN_BYTES_MAX // size
    assert longest == each
    assert {len(run.sizes) for run in found.runs} == {each}
    assert [run.first for run in found.runs] == [FIRST + n * each for n in range(len(found.runs))]
    assert found.before == found.runs[-1].before
    assert len(found.runs) >= 4


def test_an_entry_that_is_longer_than_a_good_run_is_one() -> None:
    size = HEAD_BYTES + PAYLOAD_BYTES_MAX
    slots = slot(64, 30) + slot(94, size) + slot(94 + size, 30) + slot(124 + size, 30)

    found = plan(slots, FIRST, bytes_max=1 << 30, log_end=1 << 40)

    assert [run.sizes for run in found.runs] == [[30], [size], [30, 30]]


def test_a_run_ends_where_the_log_does() -> None:
    slots = slot(64, 30) + slot(94, 30) + slot(124, 30)

    found = plan(slots, FIRST, bytes_max=1000, log_end=94)

    assert [run.sizes for run in found.runs] == [[30]]
    assert (found.bad, found.before) == ([11, 12], 13)


def test_blocks_that_touch_but_whose_ids_do_not_are_two_runs() -> None:
    found = plan(slot(64, 30) + EMPTY + slot(94, 30), FIRST, bytes_max=1000, log_end=LOG_END)

    assert [run.first for run in found.runs] == [10, 12]


@pytest.mark.parametrize(
    ("bytes_max", "taken"), [(0, 1), (1, 1), (30, 1), (59, 1), (60, 2), (89, 2), (90, 3)]
)
def test_at_least_one_entry_is_taken_and_no_more_than_fit(bytes_max: int, taken: int) -> None:
    slots = b"".join(slot(64 + 30 * n, 30) for n in range(3))

    found = plan(slots, FIRST, bytes_max=bytes_max, log_end=LOG_END)

    assert sum(len(run.sizes) for run in found.runs) == taken
    assert found.before == FIRST + taken


@pytest.mark.parametrize(
    "raw",
    [
        slot(0, 0, 1),
        slot(64, 0, 0),
        slot(64, HEAD_BYTES - 1),
        slot(64, HEAD_BYTES + PAYLOAD_BYTES_MAX + 1),
        slot((1 << 64) - 1, (1 << 32) - 1, (1 << 32) - 1),
    ],
)
def test_a_slot_that_cannot_be_one_is_bad_and_not_missing(raw: bytes) -> None:
    found = plan(raw + slot(64, 30), FIRST, bytes_max=1000, log_end=LOG_END)

    assert (found.bad, found.missing) == ([10], [])
    assert [run.first for run in found.runs] == [11]


def test_a_slot_behind_the_end_of_the_log_does_not_count() -> None:
    found = plan(slot(64, 30) + slot(94, 30), FIRST, bytes_max=1000, log_end=94)

    assert ([run.first for run in found.runs], found.bad) == ([10], [11])


@given(st.binary(max_size=40 * SLOT_BYTES), st.integers(0, 1 << 26))
def test_every_id_is_in_a_run_missing_or_bad(raw: bytes, bytes_max: int) -> None:
    raw = raw[: len(raw) // SLOT_BYTES * SLOT_BYTES]

    found = plan(raw, FIRST, bytes_max=bytes_max, log_end=LOG_END)

    run_ids = [run.first + n for run in found.runs for n in range(len(run.sizes))]
    told = sorted([*run_ids, *found.missing, *found.bad])
    assert told == [*range(FIRST, found.before)]
    assert len(run_ids) <= 1 or sum(run.size for run in found.runs) <= bytes_max
    assert found.before == FIRST + len(raw) // SLOT_BYTES or run_ids
