"""The wire's kernel and its twin: one suite, two implementations, the same answers and bytes.

What is simple is done here, and everything else is left to Python: a frame that is not all there
or not whole ends a walk, and what is no good ADD, or no good run of blocks, is None or False.
"""

import ast
import gc
import inspect
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.wire import _kernel, kernel, plain
from roost.wire.entry import ENTRY_ID_MAX, LEDGER_ID_MAX, PAYLOAD_BYTES_MAX
from roost.wire.frame import Frame
from tests.unit.wire.kernels import LEDGER, block, blocks, frame, implementations

ROOT = Path(__file__).parents[3]
STUB = Path(kernel.__file__).with_name("_kernel.pyi")
UINT32_MAX, UINT64_MAX = 2**32 - 1, 2**64 - 1
MIB = 1 << 20
READABLE = pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])


def test_a_development_environment_has_the_compiled_kernel() -> None:
    assert kernel.COMPILED
    assert kernel.Frames is _kernel.Frames


def test_without_the_compiled_kernel_its_twin_takes_over() -> None:
    script = (
        "import sys; sys.modules['roost.wire._kernel'] = None\n"
        "from roost.wire import kernel, plain\n"
        "assert not kernel.COMPILED\n"
        "assert kernel.Frames is plain.Frames and kernel.read_add is plain.read_add\n"
        "import roost.node.process, roost.node.client\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.slow
def test_what_stands_on_the_kernel_stands_on_its_twin_too() -> None:
    script = (
        "import sys; sys.modules['roost.wire._kernel'] = None\n"
        "import pytest\n"
        "names = 'rpc/test_receive rpc/test_violations node/test_service node/test_reading '\n"
        "names += 'node/test_index node/test_flush journal/test_scan journal/test_golden'\n"
        "paths = [f'tests/unit/{name}.py' for name in names.split()]\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *paths]))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert done.returncode == 0, done.stdout[-3000:]


def test_the_stub_names_what_both_have_with_the_same_parameters() -> None:
    tree = ast.parse(STUB.read_text())
    stubs = [node for node in tree.body if isinstance(node, ast.FunctionDef)]

    assert {stub.name for stub in stubs} | {"Frames"} == {
        name for name in vars(kernel) if name.islower() or name == "Frames"
    } - {"chosen"} - {name for name in vars(kernel) if name.startswith("__")}
    for stub in stubs:
        parameters = [argument.arg for argument in stub.args.args]
        for made in (_kernel, plain):
            assert list(inspect.signature(getattr(made, stub.name)).parameters) == parameters


# Frames


RAW = frame(2, 1, b"body", b"blob", 1) + frame(66, UINT32_MAX) + frame(255, 0, b"b" * 300, b"", 255)
FRAMES = [
    Frame(2, 1, 1, b"body", b"blob"),
    Frame(66, 0, UINT32_MAX, b"", b""),
    Frame(255, 255, 0, b"b" * 300, b""),
]


@implementations
def test_a_chunk_is_taken_apart_into_frames(made: ModuleType) -> None:
    found = made.Frames(RAW, 0, MIB)

    assert [*found] == FRAMES
    assert found.at == len(RAW)
    assert all(
        type(each) is Frame and type(each.blob) is bytes for each in made.Frames(RAW, 0, MIB)
    )


@implementations
def test_whoever_stops_in_the_middle_of_a_chunk_goes_on_there(made: ModuleType) -> None:
    found = made.Frames(RAW, 0, MIB)

    for number, each in enumerate(FRAMES, 1):
        assert next(iter(found)) == each
        assert found.at == sum(len(encoded(one)) for one in FRAMES[:number])
    assert [*found] == []


def encoded(one: Frame) -> bytes:
    return frame(one.kind, one.request, one.body, bytes(one.blob), one.flags)


@implementations
def test_a_walk_ends_before_a_frame_that_is_not_all_there(made: ModuleType) -> None:
    ends = [0, *(sum(len(encoded(one)) for one in FRAMES[:n]) for n in (1, 2, 3))]

    for stop in range(len(RAW) + 1):
        found = made.Frames(RAW[:stop], 0, MIB)
        whole = sum(end <= stop for end in ends) - 1
        assert [*found] == FRAMES[:whole]
        assert found.at == ends[whole]


@implementations
def test_a_walk_ends_before_a_frame_that_was_changed(made: ModuleType) -> None:
    first = len(encoded(FRAMES[0]))

    for at in range(first + 4, first + 16):  # its length is not summed up
        for bit in range(8):
            raw = bytearray(RAW)
            raw[at] ^= 1 << bit
            found = made.Frames(bytes(raw), 0, MIB)
            assert [*found] == FRAMES[:1]
            assert found.at == first


@implementations
def test_a_blob_is_not_looked_at(made: ModuleType) -> None:
    changed = RAW.replace(b"blob", b"BLOB")

    assert [each.blob for each in made.Frames(changed, 0, MIB)] == [b"BLOB", b"", b""]


@implementations
def test_a_walk_ends_before_a_frame_that_is_too_long_until_it_may_be_so_long(
    made: ModuleType,
) -> None:
    raw = frame(1, 1) + frame(1, 2, b"", bytes(85))
    found = made.Frames(raw, 0, 100)

    assert [each.request for each in found] == [1]
    found.frame_bytes_max = 101
    assert found.frame_bytes_max == 101
    assert [each.request for each in found] == [2]


@implementations
@pytest.mark.parametrize("length", [0, 3, 11, 12 + 3, 2**31, UINT32_MAX - 3, UINT32_MAX])
def test_a_walk_ends_before_a_length_that_cannot_be(made: ModuleType, length: int) -> None:
    raw = struct.pack("<I", length) + frame(2, 7, b"body")[4:]

    found = made.Frames(raw * 2, 0, UINT64_MAX)

    assert [*found] == []
    assert found.at == 0


@implementations
def test_a_walk_begins_where_it_is_told_to(made: ModuleType) -> None:
    assert [*made.Frames(b"junk" + RAW, 4, MIB)] == FRAMES
    assert [*made.Frames(RAW, len(RAW), MIB)] == []
    for at in (-1, len(RAW) + 1):
        with pytest.raises(ValueError, match=f"{at} is no offset"):
            made.Frames(RAW, at, MIB)
    for limit in (-1, 2**64):
        with pytest.raises(OverflowError):
            made.Frames(RAW, 0, limit)


def test_frames_are_let_go_of() -> None:
    gc.collect()
    before = sys.getrefcount(Frame), sys.getrefcount(None)

    for _ in range(1000):
        for each in _kernel.Frames(RAW, 0, MIB):
            del each

    assert sys.getrefcount(Frame) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100


# ADD


def add_body(epoch: int, lac: int) -> bytes:
    return struct.pack("<Qq", epoch, lac)


@implementations
@READABLE
def test_an_add_says_which_entry_of_which_writer_it_is(made: ModuleType, kind: Any) -> None:
    body = add_body(2**63 - 1, -1)
    highest = block(ENTRY_ID_MAX, b"payload", LEDGER_ID_MAX)

    assert made.read_add(body, kind(highest)) == (LEDGER_ID_MAX, ENTRY_ID_MAX, 2**63 - 1, -1)
    assert made.read_add(add_body(0, ENTRY_ID_MAX), kind(block(0, b""))) == (
        LEDGER,
        0,
        0,
        ENTRY_ID_MAX,
    )


@implementations
@pytest.mark.parametrize(
    "body",
    [b"", bytes(15), bytes(17), add_body(2**63, 0), add_body(0, -2), add_body(0, 2**36)],
)
def test_a_body_that_is_none_of_an_add_is_left_alone(made: ModuleType, body: bytes) -> None:
    assert made.read_add(body, block(1, b"payload")) is None


@implementations
def test_an_add_of_anything_but_one_good_block_is_left_alone(made: ModuleType) -> None:
    good = block(1, b"payload")

    for size in range(len(good)):
        assert made.read_add(add_body(1, 0), good[:size]) is None
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        assert made.read_add(add_body(1, 0), bad) is None
    assert made.read_add(add_body(1, 0), good + b"\0") is None
    assert made.read_add(add_body(1, 0), good * 2) is None


@implementations
@pytest.mark.parametrize(
    "beyond",
    [
        block(ENTRY_ID_MAX + 1, b"x"),
        block(1, b"x", LEDGER_ID_MAX + 1),
        block(1, bytes(PAYLOAD_BYTES_MAX + 1)),
    ],
    ids=["entry", "ledger", "payload"],
)
def test_a_block_beyond_what_is_allowed_is_none_though_its_checksum_holds(
    made: ModuleType, beyond: bytes
) -> None:
    assert made.read_add(add_body(1, 0), beyond) is None


@implementations
def test_the_longest_payload_is_one(made: ModuleType) -> None:
    longest = block(1, bytes(PAYLOAD_BYTES_MAX))

    assert made.read_add(add_body(1, 0), longest) == (LEDGER, 1, 1, 0)


@implementations
@READABLE
@pytest.mark.parametrize("size", [0, 1, 100, 101, 70_000])
def test_an_add_is_made_whole_if_it_is_short(made: ModuleType, kind: Any, size: int) -> None:
    payload = bytes(n % 251 for n in range(size))
    body = add_body(3, -1)

    made_one = made.encode_add(9, 1, 3, -1, LEDGER, 5, kind(payload), 100)

    whole = frame(2, 9, body, block(5, payload), 1)
    assert made_one == (whole if size <= 100 else whole[:-size])


@implementations
@pytest.mark.parametrize(
    "numbers",
    [
        (2**32, 0, 1, 0, 7, 1),
        (-1, 0, 1, 0, 7, 1),
        (1, 256, 1, 0, 7, 1),
        (1, 0, 2**64, 0, 7, 1),
        (1, 0, -1, 0, 7, 1),
        (1, 0, 1, 2**63, 7, 1),
        (1, 0, 1, 0, 2**64, 1),
        (1, 0, 1, 0, -1, 1),
        (1, 0, 1, 0, 7, 2**64),
    ],
)
def test_a_number_that_does_not_fit_in_an_add_is_refused(
    made: ModuleType, numbers: tuple[int, ...]
) -> None:
    with pytest.raises(OverflowError):
        made.encode_add(*numbers, b"payload", 100)


@implementations
def test_the_head_of_a_record_is_laid_out_as_its_table_says(made: ModuleType) -> None:
    written = block(5, b"payload" * 9)
    rest = struct.pack("<IIQQqq", 257, len(written), 1 << 40, 99, -2, -1)
    crc = zlib.crc32(rest + written[:28], 0xDEADBEEF)

    for kind in (bytes, bytearray, memoryview):
        head = made.record_head(257, 1 << 40, 99, -2, -1, kind(written), 0xDEADBEEF)
        assert head == struct.pack("<II", 0x6A526F7E, crc) + rest


@implementations
@pytest.mark.parametrize(
    "numbers",
    [
        (2**32, 0, 0, 0, 0),
        (1, 2**64, 0, 0, 0),
        (1, 0, -1, 0, 0),
        (1, 0, 0, 2**63, 0),
        (1, 0, 0, 0, -(2**63) - 1),
    ],
)
def test_a_number_that_does_not_fit_in_a_record_is_refused(
    made: ModuleType, numbers: tuple[int, ...]
) -> None:
    with pytest.raises(OverflowError):
        made.record_head(*numbers, block(1, b""), 0)


@implementations
def test_a_record_needs_a_block_and_a_seed_that_fits(made: ModuleType) -> None:
    with pytest.raises(ValueError, match="27 bytes are no block"):
        made.record_head(1, 0, 0, 0, 0, bytes(27), 0)
    for seed in (-1, 2**32):
        with pytest.raises(OverflowError):
            made.record_head(1, 0, 0, 0, 0, bytes(28), seed)


# Runs of blocks


@implementations
def test_blocks_of_entries_that_follow_one_another_hold(made: ModuleType) -> None:
    run = blocks(3, b"three", b"", b"five" * 1000)

    assert made.holds(run, LEDGER, 3, 6)
    assert made.holds(b"", LEDGER, 3, 3)
    assert not made.holds(run, LEDGER + 1, 3, 6)
    assert not made.holds(run, LEDGER, 2, 6)
    assert not made.holds(run, LEDGER, 2, 5)
    assert not made.holds(run, LEDGER, 3, 7)
    assert not made.holds(run, LEDGER, 3, 5)
    assert not made.holds(b"", LEDGER, 3, 4)
    assert not made.holds(block(3, b"three") + block(5, b"five"), LEDGER, 3, 5)


@implementations
def test_no_changed_bit_and_no_cut_of_a_run_passes(made: ModuleType) -> None:
    run = blocks(0, b"zero", b"one")

    for size in range(len(run)):
        assert not made.holds(run[:size], LEDGER, 0, 2)
    for bit in range(8 * len(run)):
        bad = bytearray(run)
        bad[bit // 8] ^= 1 << bit % 8
        assert not made.holds(bytes(bad), LEDGER, 0, 2)
        assert made.payloads(bad, LEDGER, 0, 2) is None


@implementations
@READABLE
def test_payloads_are_given_by_their_entries_and_not_copied(made: ModuleType, kind: Any) -> None:
    run = kind(block(3, b"three") + block(9, b"") + block(4, b"four"))

    found = made.payloads(run, LEDGER, 3, 10)

    assert found == {3: b"three", 9: b"", 4: b"four"}
    assert [*found] == [3, 9, 4]
    for payload in found.values():
        assert type(payload) is memoryview
        assert payload.obj is (run.obj if kind is memoryview else run)


@implementations
def test_payloads_that_nobody_asked_for_are_none(made: ModuleType) -> None:
    run = blocks(3, b"three", b"four")

    assert made.payloads(run, LEDGER, 3, 5) is not None
    assert made.payloads(run, LEDGER, 4, 5) is None
    assert made.payloads(run, LEDGER, 3, 4) is None
    assert made.payloads(run, LEDGER + 1, 3, 5) is None
    assert made.payloads(run[:-1], LEDGER, 3, 5) is None
    assert made.payloads(run + b"\0", LEDGER, 3, 5) is None
    assert made.payloads(b"", LEDGER, 3, 5) == {}


@implementations
@pytest.mark.parametrize("numbers", [(-1, 0, 1), (2**64, 0, 1), (7, -1, 1), (7, 0, 2**64)])
def test_numbers_of_a_run_have_64_bits(made: ModuleType, numbers: tuple[int, ...]) -> None:
    for ask in (made.holds, made.payloads):
        with pytest.raises(OverflowError):
            ask(b"", *numbers)


@implementations
def test_memory_of_payloads_can_be_resized_once_they_are_gone(made: ModuleType) -> None:
    memory = bytearray(blocks(0, b"zero", b"one"))

    found = made.payloads(memory, LEDGER, 0, 2)
    with pytest.raises(BufferError):
        memory.clear()
    del found
    memory.clear()

    assert made.payloads(memory, LEDGER, 0, 2) == {}


# Slots


@implementations
def test_slots_say_where_blocks_stand_one_behind_the_other(made: ModuleType) -> None:
    written = [block(entry, b"x" * entry) for entry in (3, 4, 9)]
    expected = b"".join(
        struct.pack("<QI", offset, len(each)) + each[4:8]
        for offset, each in zip((1000, 1031, 1063), written, strict=True)
    )

    for kind in (bytes, bytearray, memoryview):
        assert made.slots([kind(each) for each in written], 1000) == expected
    assert made.slots(tuple(written), 1000) == expected
    assert made.slots([], 1000) == b""


@implementations
def test_what_is_no_block_has_no_slot(made: ModuleType) -> None:
    with pytest.raises(ValueError, match="27 bytes are no block"):
        made.slots([block(1, b""), bytes(27)], 0)
    with pytest.raises(ValueError, match="are no block"):
        made.slots([bytes(28 + PAYLOAD_BYTES_MAX + 1)], 0)
    for offset in (-1, 2**64):
        with pytest.raises(OverflowError):
            made.slots([], offset)


def slot(offset: int, size: int) -> bytes:
    return struct.pack("<QII", offset, size, 0xABCD)


@implementations
def test_blocks_are_adjacent_as_far_as_their_slots_say_so(made: ModuleType) -> None:
    slots = slot(64, 30) + slot(94, 40) + slot(134, 28) + slot(163, 50)

    assert made.adjacent(slots, 0, 1000) == [30, 40, 28]
    assert made.adjacent(slots, 16, 1000) == [40, 28]
    assert made.adjacent(slots, 48, 1000) == [50]
    assert made.adjacent(slots, 0, 98) == [30, 40, 28]
    assert made.adjacent(slots, 0, 97) == [30, 40]
    assert made.adjacent(slots, 0, 0) == [30]
    assert made.adjacent(slots + b"more", 48, 1000) == [50]


@implementations
def test_a_slot_that_can_be_none_ends_what_is_adjacent(made: ModuleType) -> None:
    longest = 28 + PAYLOAD_BYTES_MAX

    assert made.adjacent(slot(64, 30) + slot(94, 27), 0, UINT64_MAX) == [30]
    assert made.adjacent(slot(64, 30) + slot(94, longest), 0, UINT64_MAX) == [30, longest]
    assert made.adjacent(slot(64, 30) + slot(94, longest + 1), 0, UINT64_MAX) == [30]
    assert made.adjacent(slot(UINT64_MAX, 30) + slot(29, 30), 0, UINT64_MAX) == [30, 30]


@implementations
@pytest.mark.parametrize("at", [-1, 1, 16, 2**40])
def test_what_is_adjacent_begins_with_a_slot(made: ModuleType, at: int) -> None:
    with pytest.raises(ValueError, match="no slot in 16 bytes"):
        made.adjacent(bytes(16), at, 1000)


@implementations
def test_blank_memory_is_as_long_as_it_was_asked_to_be(made: ModuleType) -> None:
    for size in (0, 1, 100, MIB + 1):
        memory = made.blank(size)
        assert type(memory) is bytearray
        assert len(memory) == size
    with pytest.raises(ValueError, match="negative"):
        made.blank(-1)


# Both on the same bytes


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 300))
def test_both_answer_the_same_of_any_bytes(raw: bytes, first: int, limit: int) -> None:
    for ask in (
        lambda made: [*made.Frames(raw, min(first, len(raw)), limit)],
        lambda made: made.read_add(raw[:16], raw[16:]),
        lambda made: made.holds(raw, LEDGER, first, limit),
        lambda made: made.payloads(raw, LEDGER, first, limit),
    ):
        assert ask(_kernel) == ask(plain)


@given(st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=90)), max_size=6), st.data())
def test_both_answer_the_same_of_blocks(
    entries: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    run = b"".join(block(entry, payload) for entry, payload in entries)
    first, before = sorted((data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13))))

    assert _kernel.holds(run, LEDGER, first, before) == plain.holds(run, LEDGER, first, before)
    assert _kernel.payloads(run, LEDGER, first, before) == plain.payloads(
        run, LEDGER, first, before
    )
