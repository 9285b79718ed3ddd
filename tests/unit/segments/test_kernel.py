"""The kernel and its twin: one suite, two implementations, the same answers and the same bytes.

Here: frames, appending, windows, and a story that both are told. What is stored is laid out as
in `docs/formats/channel.md`; an answer of -1, None or an error moves nothing; views are let go
of when they are closed.
"""

import ast
import gc
import inspect
import subprocess
import sys
import weakref
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.segments import _kernel, kernel, plain
from tests.unit.segments.kernels import MIB, appender, framed, implementations, slot

STUB = Path(kernel.__file__).with_name("_kernel.pyi")


def test_a_development_environment_has_the_compiled_kernel() -> None:
    assert kernel.COMPILED
    assert kernel.GUARDED
    assert kernel.Appender is _kernel.Appender


def test_without_the_compiled_kernel_its_twin_takes_over() -> None:
    script = (
        "import sys; sys.modules['roost.segments._kernel'] = None\n"
        "from roost.segments import kernel, plain\n"
        "assert not kernel.COMPILED and not kernel.GUARDED\n"
        "assert kernel.Appender is plain.Appender and kernel.scan is plain.scan\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_stub_names_what_both_have_with_the_same_parameters() -> None:
    tree = ast.parse(STUB.read_text())
    stubs = {("", node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    stubs |= {(c.name, f) for c in classes for f in c.body if isinstance(f, ast.FunctionDef)}

    for owner, stub in stubs:
        parameters = [a.arg for a in (*stub.args.args, *stub.args.kwonlyargs)]
        for made in (_kernel, plain):
            named = getattr(getattr(made, owner) if owner else made, stub.name)
            constructs = made is _kernel and stub.name == "__init__"
            if callable(named) and not constructs:
                assert list(inspect.signature(named).parameters) == parameters, (made, stub.name)


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_a_checksum_is_that_of_zlib_and_can_be_continued(first: bytes, second: bytes) -> None:
    for made in (_kernel, plain):
        assert made.crc32(first) == zlib.crc32(first)
        assert made.crc32(second, made.crc32(first)) == zlib.crc32(first + second)


@implementations
def test_a_checksum_of_any_length_is_that_of_zlib(made: ModuleType) -> None:
    content = bytes(n * n % 251 for n in range(5000)) * 220

    for size in (*range(1100), 4095, 65_537, MIB + 13):
        assert made.crc32(memoryview(content)[3 : 3 + size]) == zlib.crc32(content[3 : 3 + size])


@implementations
@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_checksum_has_32_bits(made: ModuleType, value: int) -> None:
    with pytest.raises(OverflowError):
        made.crc32(b"x", value)


@implementations
def test_a_frame_is_length_checksum_and_payload(made: ModuleType) -> None:
    assert made.frame(b"roost") == bytes.fromhex("00000005 3684b0ea") + b"roost"


@implementations
@pytest.mark.parametrize("kind", [list, tuple])
def test_frames_stand_one_behind_the_other(made: ModuleType, kind: Any) -> None:
    payloads = [b"a", b"bc" * 40, b"d" * (MIB + 1)]

    assert made.frames(kind(payloads)) == framed(*payloads)
    assert made.frames(kind([])) == b""


@implementations
@pytest.mark.parametrize("payload", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_only_bytes_are_framed(made: ModuleType, payload: Any) -> None:
    with pytest.raises(TypeError):
        made.frame(payload)
    with pytest.raises(TypeError):
        made.frames([b"good", payload])


@implementations
def test_an_empty_payload_is_not_framed(made: ModuleType) -> None:
    with pytest.raises(ValueError, match="1 to 4294967295 bytes, not 0"):
        made.frame(b"")
    with pytest.raises(ValueError, match="1 to 4294967295 bytes, not 0"):
        made.frames([b"good", b""])


@implementations
def test_what_is_no_sequence_is_not_framed(made: ModuleType) -> None:
    with pytest.raises(TypeError):
        made.frames(7)


@implementations
def test_ends_begin_at_zero_and_hold_any_position(made: ModuleType) -> None:
    ends = made.Ends()
    assert (ends.written, ends.visible) == (0, 0)

    ends.written, ends.visible = 2**64 - 1, 17

    assert (ends.written, ends.visible) == (2**64 - 1, 17)


@implementations
@pytest.mark.parametrize(
    ("value", "error"), [(-1, OverflowError), (2**64, OverflowError), ("5", TypeError)]
)
def test_ends_refuse_what_is_no_position(
    made: ModuleType, value: Any, error: type[Exception]
) -> None:
    ends = made.Ends()

    with pytest.raises(error):
        ends.written = value
    with pytest.raises(error):
        ends.visible = value
    assert (ends.written, ends.visible) == (0, 0)


@implementations
def test_appended_frames_stand_one_behind_the_other(made: ModuleType) -> None:
    window = bytearray(100)
    writer, ends = appender(made, window, 1000)

    assert writer.append(b"first") == 1000
    assert writer.append(b"second") == 1013

    assert window == framed(b"first", b"second").ljust(100, b"\0")
    assert (ends.written, ends.visible) == (1027, 1027)


@implementations
def test_without_publish_a_frame_is_written_but_not_visible(made: ModuleType) -> None:
    writer, ends = appender(made, bytearray(100), publish=False)

    writer.append(b"first")

    assert (ends.written, ends.visible) == (13, 0)


@implementations
def test_a_frame_goes_where_written_says(made: ModuleType) -> None:
    window = bytearray(100)
    writer, ends = appender(made, window, 1000)
    ends.written = 1050

    assert writer.append(b"first") == 1050

    assert window[50:63] == framed(b"first")


@implementations
@pytest.mark.parametrize("size", [1, 63, 64, 100, MIB + 5])
def test_a_frame_may_end_with_its_window_but_not_behind_it(made: ModuleType, size: int) -> None:
    payload = b"x" * size
    exact, _ = appender(made, bytearray(8 + size))
    short, ends = appender(made, too_short := bytearray(7 + size))

    assert exact.append(payload) == 0
    assert short.append(payload) == -1

    assert ends.written == 0
    assert not any(too_short)


@implementations
@pytest.mark.parametrize("room", range(9))
def test_a_window_without_room_for_a_header_takes_nothing(made: ModuleType, room: int) -> None:
    writer, ends = appender(made, window := bytearray(50))
    ends.written = 50 - room

    assert writer.append(b"x") == -1

    assert not any(window)


@implementations
@pytest.mark.parametrize("written", [0, 999, 1101, 2**64 - 1])
def test_outside_its_window_an_appender_stores_nothing(made: ModuleType, written: int) -> None:
    writer, ends = appender(made, window := bytearray(100), 1000)
    ends.written = written

    assert writer.append(b"x") == -1

    assert ends.written == written
    assert not any(window)


@implementations
def test_without_a_window_every_append_is_left_to_the_slow_path(made: ModuleType) -> None:
    writer = made.Appender(made.Ends(), publish=True)
    assert writer.append(b"x") == -1

    writer.open_window(memoryview(bytearray(100)), 0)
    writer.close_window()
    writer.close_window()

    assert writer.append(b"x") == -1


@implementations
@pytest.mark.parametrize(
    "payload",
    [b"", "text", bytearray(b"x"), memoryview(b"x"), None, 7, type("B", (bytes,), {})(b"x")],
)
def test_what_is_not_plain_bytes_is_left_to_the_slow_path(made: ModuleType, payload: Any) -> None:
    writer, ends = appender(made, window := bytearray(100))

    assert writer.append(payload) == -1

    assert (ends.written, any(window)) == (0, False)


@implementations
def test_an_appender_goes_on_in_the_next_window(made: ModuleType) -> None:
    writer, ends = appender(made, bytearray(13))
    writer.append(b"first")
    behind = bytearray(20)

    writer.open_window(memoryview(behind), ends.written)

    assert writer.append(b"second") == 13
    assert behind[:14] == framed(b"second")


def makers(made: ModuleType) -> list[Any]:
    """Make one of each that opens windows."""
    ends = made.Ends()
    return [made.Appender(ends, publish=True), made.Cursor(ends, position=0, slot=None)]


@implementations
@pytest.mark.parametrize("which", [0, 1])
def test_a_closed_or_replaced_window_is_let_go_of(made: ModuleType, which: int) -> None:
    opener = makers(made)[which]
    first, second, third = bytearray(64), bytearray(64), bytearray(64)

    opener.open_window(first, 0)
    with pytest.raises(BufferError):
        first.append(1)
    opener.open_window(second, 0)
    first.append(1)
    opener.close_window()
    second.append(1)
    opener.open_window(third, 0)
    del opener

    third.append(1)


@implementations
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("view", "begin", "error"),
    [
        (7, 0, TypeError),
        (None, 0, TypeError),
        (memoryview(bytearray(64))[::2], 0, BufferError),
        (bytearray(64), -1, OverflowError),
        (bytearray(64), 2**64, OverflowError),
        (bytearray(64), 2**64 - 64, OverflowError),
        (bytearray(64), "0", TypeError),
    ],
)
def test_a_bad_window_is_refused_and_the_old_one_stays(
    made: ModuleType, which: int, view: Any, begin: Any, error: type[Exception]
) -> None:
    opener = makers(made)[which]
    window = bytearray(64)
    opener.open_window(window, 0)

    with pytest.raises(error):
        opener.open_window(view, begin)

    with pytest.raises(BufferError):
        window.append(1)
    assert opener.append(b"x") == 0 if which == 0 else opener.next() is None


@implementations
def test_only_a_writable_window_is_appended_to(made: ModuleType) -> None:
    writer, _ = appender(made, bytearray(64))

    with pytest.raises(BufferError):
        writer.open_window(memoryview(bytes(64)), 0)

    assert writer.append(b"x") == 0


@implementations
def test_a_refused_window_is_let_go_of(made: ModuleType) -> None:
    view = bytearray(64)
    for opener in makers(made):
        with pytest.raises(OverflowError):
            opener.open_window(view, 2**64 - 1)

    view.append(1)


class Memory(bytearray):
    """What a window looks at, so that one can tell when it is gone."""


@implementations
def test_garbage_that_holds_a_window_and_its_view_is_collected(made: ModuleType) -> None:
    def leave_garbage() -> weakref.ref[Memory]:
        view = memoryview(memory := Memory(256))
        writer, reader = makers(made)
        writer.open_window(view, 0)
        reader.open_window(view, 0)
        garbage = [view, writer, reader, slot(made, memory)]
        garbage.append(garbage)
        return weakref.ref(memory)

    gc.collect()
    left = leave_garbage()
    gc.collect()

    assert left() is None


@implementations
def test_ends_and_slots_are_what_they_say(made: ModuleType) -> None:
    ends = made.Ends()
    reader = made.Cursor(ends, position=0, slot=None)

    for refused in (None, 7, object()):
        with pytest.raises(TypeError):
            made.Appender(refused, publish=True)
        with pytest.raises(TypeError):
            made.Cursor(refused, position=0, slot=None)
    for refused in (7, object(), ends):
        with pytest.raises(TypeError):
            made.Cursor(ends, position=0, slot=refused)
        with pytest.raises(TypeError):
            reader.slot = refused
    assert reader.slot is None


positions = st.integers(0, 300)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=70)),
        st.tuples(st.just("next")),
        st.tuples(st.just("take"), st.integers(-1, 5), st.integers(-1, 120)),
        st.tuples(st.just("seek"), positions),
        st.tuples(st.just("write_here"), positions, positions),
        st.tuples(st.just("read_here"), positions, positions),
        st.tuples(st.just("move_ends"), positions, positions),
        st.tuples(st.just("spoil"), positions),
        st.tuples(st.just("swap_slot")),
    ),
    max_size=40,
)


class Story:
    """One implementation, told the same steps as the other."""

    def __init__(self, made: ModuleType) -> None:
        self.memory = bytearray(600)
        self.slots = bytearray(512)
        self.ends = made.Ends()
        self.writer = made.Appender(self.ends, publish=True)
        self.reader = made.Cursor(self.ends, position=0, slot=None)
        self.unused = slot(made, self.slots)
        self.write_here(0, 300)
        self.read_here(0, 300)

    def write_here(self, begin: int, size: int) -> None:
        self.writer.open_window(memoryview(self.memory)[begin : begin + size], begin)

    def read_here(self, begin: int, size: int) -> None:
        self.reader.open_window(memoryview(self.memory)[begin : begin + size], begin)

    def move_ends(self, written: int, visible: int) -> None:
        self.ends.written, self.ends.visible = written, visible

    def spoil(self, at: int) -> None:
        self.memory[at] ^= 0x10

    def swap_slot(self) -> None:
        self.reader.slot, self.unused = self.unused, self.reader.slot

    def tell(self, name: str, *arguments: Any) -> Any:
        """Do one step and give all that can be seen afterwards."""
        teller = {"append": self.writer, "next": self.reader, "take": self.reader}
        teller["seek"] = self.reader
        answer = getattr(teller.get(name, self), name)(*arguments)
        ends = self.ends.written, self.ends.visible
        return answer, ends, self.reader.position, bytes(self.memory), bytes(self.slots)


@settings(max_examples=200)
@given(steps)
def test_the_two_tell_the_same_story(told: list[tuple[Any, ...]]) -> None:
    compiled, twin = Story(_kernel), Story(plain)

    for step in told:
        assert compiled.tell(*step) == twin.tell(*step), step
