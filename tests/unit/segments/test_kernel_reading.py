"""Slots and cursors of the kernel and its twin: what is not whole is never given.

A position in a slot is laid out as in `docs/formats/channel.md` and kept before a call returns;
a message belongs to who got it, and where none is given nothing has moved.
"""

import struct
import sys
import tracemalloc
import zlib
from types import ModuleType
from typing import Any

import pytest

from tests.unit.segments.kernels import (
    MIB,
    PREFIX,
    cursor,
    framed,
    implementations,
    slot,
    slot_copy,
)


@implementations
def test_a_slot_is_written_in_turn_into_its_two_copies(made: ModuleType) -> None:
    memory = bytearray(256)
    kept = slot(made, memory, sequence=6, position=10)
    assert (kept.sequence, kept.position, any(memory)) == (6, 10, False)

    kept.store(2**64 - 1)
    kept.store(77)

    assert memory[128:] == slot_copy(7, 2**64 - 1)
    assert memory[:128] == slot_copy(8, 77)
    assert (kept.sequence, kept.position) == (8, 77)


@implementations
def test_a_slot_has_a_prefix_of_104_and_copies_of_128_bytes(made: ModuleType) -> None:
    good, short = memoryview(bytearray(128)), memoryview(bytearray(127))

    with pytest.raises(ValueError, match="104 bytes, not 103"):
        made.Slot(PREFIX[1:], good, good, sequence=0, position=0)
    for first, second in ((short, good), (good, short)):
        with pytest.raises(ValueError, match="128 bytes"):
            made.Slot(PREFIX, first, second, sequence=0, position=0)
    for first, second in ((good.toreadonly(), good), (good, good.toreadonly())):
        with pytest.raises(BufferError):
            made.Slot(PREFIX, first, second, sequence=0, position=0)


@implementations
def test_a_slot_refuses_what_is_no_position(made: ModuleType) -> None:
    kept = slot(made, memory := bytearray(256))

    for refused in (-1, 2**64):
        with pytest.raises(OverflowError):
            kept.store(refused)

    assert (kept.sequence, any(memory)) == (0, False)


@implementations
def test_a_slot_lets_go_of_its_copies_with_its_end(made: ModuleType) -> None:
    memory = bytearray(256)
    kept = slot(made, memory)
    reader = cursor(made, b"", slot=kept)

    del kept
    reader.slot = None

    memory.append(1)


@implementations
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_messages_come_in_order_and_then_none(made: ModuleType, kind: Any) -> None:
    payloads = [b"first", b"\0" * 9, b"x" * (MIB + 3), b"z"]
    reader = cursor(made, kind(framed(*payloads)), 500)

    assert [reader.next() for _ in payloads] == payloads

    assert reader.position == 500 + len(framed(*payloads))
    assert reader.next() is None
    assert reader.take(10, MIB) == []


@implementations
def test_a_message_is_given_only_when_all_of_it_is_visible(made: ModuleType) -> None:
    whole = framed(b"first")
    ends = made.Ends()
    reader = made.Cursor(ends, position=100, slot=None)
    reader.open_window(whole, 100)

    for visible in range(100 + len(whole)):
        ends.visible = visible
        assert reader.next() is None
    ends.visible += 1

    assert reader.next() == b"first"


@implementations
@pytest.mark.parametrize("window_bytes", [0, 1, 7, 8, 9, 12])
def test_a_message_is_given_only_when_all_of_it_is_in_the_window(
    made: ModuleType, window_bytes: int
) -> None:
    whole = framed(b"first")
    reader = cursor(made, whole)
    reader.open_window(whole[:window_bytes], 0)

    assert reader.next() is None
    assert reader.take(1, 100) == []

    assert reader.position == 0


@implementations
@pytest.mark.parametrize("position", [0, 99, 114, 2**64 - 1])
def test_outside_its_window_a_cursor_gives_nothing(made: ModuleType, position: int) -> None:
    reader = cursor(made, framed(b"first"), 100)

    reader.seek(position)

    assert reader.next() is None
    assert reader.position == position
    reader.seek(100)
    assert reader.next() == b"first"


@implementations
@pytest.mark.parametrize(
    "garbage",
    [
        bytes(40),
        b"\xff" * 40,
        struct.pack(">II", 2**32 - 1, 0) + bytes(32),
        struct.pack(">II", 2**31, 0) + bytes(32),
        struct.pack(">II", 33, zlib.crc32(bytes(33))) + bytes(32),
        framed(b"x" * 32)[:-1] + b"y",
        bytes(4) + framed(b"x" * 28),
    ],
)
def test_what_is_not_a_good_frame_is_never_given(made: ModuleType, garbage: bytes) -> None:
    reader = cursor(made, framed(b"good") + garbage)

    assert reader.take(10, 1000) == [b"good"]
    assert reader.next() is None

    assert reader.position == 12


@implementations
def test_a_message_is_a_copy_that_nobody_can_change(made: ModuleType) -> None:
    window = bytearray(framed(b"first"))
    given_one = cursor(made, window).next()

    window[8:] = b"other"

    assert given_one == b"first"
    assert cursor(made, window).next() is None


@implementations
def test_every_next_keeps_the_position_in_the_slot(made: ModuleType) -> None:
    memory = bytearray(256)
    reader = cursor(made, framed(b"a", b"b"), 100, slot=slot(made, memory))

    reader.next()
    reader.next()
    reader.next()

    assert memory == slot_copy(2, 118) + slot_copy(1, 109)


@implementations
def test_a_take_keeps_the_position_in_the_slot_once(made: ModuleType) -> None:
    memory = bytearray(256)
    reader = cursor(made, framed(b"a", b"b", b"c"), 100, slot=slot(made, memory))

    assert reader.take(3, 100) == [b"a", b"b", b"c"]
    assert reader.take(3, 100) == []

    assert memory == bytes(128) + slot_copy(1, 127)


@implementations
def test_a_seek_or_another_slot_writes_nothing(made: ModuleType) -> None:
    memory = bytearray(256)
    reader = cursor(made, framed(b"a", b"b"))

    reader.slot = slot(made, memory)
    reader.seek(9)

    assert not any(memory)
    assert reader.next() == b"b"
    assert reader.slot.position == 18


@implementations
@pytest.mark.parametrize(
    ("count_max", "bytes_max", "given_count"),
    [
        *((0, 99, 0), (-1, 99, 0), (1, 99, 1), (2, 99, 2), (9, 99, 4)),
        *((9, 0, 1), (9, -1, 1), (9, 4, 1), (9, 5, 1), (9, 6, 2), (9, 7, 3), (9, 8, 3), (9, 9, 4)),
    ],
)
def test_a_take_is_bounded_by_count_and_bytes_but_gives_one(
    made: ModuleType, count_max: int, bytes_max: int, given_count: int
) -> None:
    payloads = [b"fives", b"o", b"n", b"es"]
    reader = cursor(made, framed(*payloads))

    taken = reader.take(count_max, bytes_max)

    assert taken == payloads[:given_count]
    assert reader.position == len(framed(*taken))


@implementations
def test_what_is_given_belongs_to_the_caller_alone(made: ModuleType) -> None:
    reader = cursor(made, framed(b"first", b"second", b"third"))

    one = reader.next()
    two, three = reader.take(2, 100)

    # What stands on the stack, and the call's own argument.
    assert [sys.getrefcount(one), sys.getrefcount(two), sys.getrefcount(three)] == [2, 2, 2]


@implementations
def test_refused_frames_cost_no_memory(made: ModuleType) -> None:
    bad = bytearray(framed(b"x" * 100_000))
    bad[-1] ^= 1
    reader = cursor(made, bad)
    reader.next()

    tracemalloc.start()
    for _ in range(50):
        assert reader.next() is None
        assert reader.take(5, 1000) == []
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert grown < 100_000
