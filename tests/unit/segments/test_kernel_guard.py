"""A mapped file that is lost is an error, not the end of the process.

Files are really mapped and really cut short. Whatever the kernel was doing raises `OSError`,
nothing has moved, and everything goes on when the file is back. A SIGBUS that is not the kernel's
goes where it would have gone without it.
"""

import errno
import mmap
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from roost.segments import _kernel as made
from tests.unit.segments.kernels import PREFIX, appender, cursor, framed, slot_copy

PAGE = mmap.PAGESIZE


class Lost:
    """A mapped file of four pages that another program may cut short."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.resize(4 * PAGE)
        self.map = mmap.mmap(self._file, 4 * PAGE)
        self.view = memoryview(self.map)

    def resize(self, size: int) -> None:
        os.ftruncate(self._file, size)

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Lost]:
    file = Lost(tmp_path / "file")
    yield file
    file.close()


def lost_slot(lost: Lost) -> Any:
    """Make a slot whose copies stand in two different pages."""
    first, second = lost.view[PAGE : PAGE + 128], lost.view[2 * PAGE : 2 * PAGE + 128]
    return made.Slot(PREFIX, first, second, sequence=0, position=0)


def fails(doing: str) -> Any:
    return pytest.raises(OSError, match=rf"\[Errno {errno.EIO}\] cannot {doing} the mapped file")


def test_an_append_into_a_lost_page_is_an_error_and_moves_nothing(lost: Lost) -> None:
    writer, ends = appender(made, lost.view, 1000)
    writer.append(b"before")
    lost.resize(0)

    with fails("write"):
        writer.append(b"lost")
    assert (ends.written, ends.visible) == (1014, 1014)

    lost.resize(4 * PAGE)
    assert writer.append(b"after") == 1014
    assert lost.view[:27] == bytes(14) + framed(b"after")


def test_a_frame_that_only_begins_in_the_file_leaves_no_header(lost: Lost) -> None:
    writer, ends = appender(made, lost.view)
    ends.written = 2 * PAGE - 20
    lost.resize(2 * PAGE)

    with fails("write"):
        writer.append(b"x" * 100)

    assert lost.view[2 * PAGE - 20 : 2 * PAGE - 12] == bytes(8)
    assert ends.written == 2 * PAGE - 20


@pytest.mark.parametrize("left", [0, PAGE, 2 * PAGE])
def test_a_message_in_a_lost_page_is_an_error_and_moves_nothing(lost: Lost, left: int) -> None:
    payloads = [b"a" * (PAGE // 2 - 8), b"b" * (PAGE // 2 - 8), b"c" * 2 * PAGE]
    lost.view[: len(framed(*payloads))] = framed(*payloads)
    reader = cursor(made, lost.view)
    lost.resize(left)
    while reader.position < left and reader.position < PAGE:
        reader.next()
    before = reader.position

    with fails("read"):
        reader.next()
    with fails("read"):
        reader.take(5, 1 << 20)
    assert reader.position == before


def test_a_take_that_meets_a_lost_page_gives_nothing_and_moves_nothing(lost: Lost) -> None:
    lost.view[: 2 * PAGE] = framed(*[b"x" * 8] * (2 * PAGE // 16))
    memory = bytearray(256)
    views = memoryview(memory)[:128], memoryview(memory)[128:]
    reader = cursor(made, lost.view)
    reader.slot = made.Slot(PREFIX, *views, sequence=0, position=0)
    lost.resize(PAGE)

    with fails("read"):
        reader.take(1000, 1 << 20)

    assert (reader.position, any(memory)) == (0, False)
    assert len(reader.take(PAGE // 16, 1 << 20)) == PAGE // 16


def test_a_slot_in_a_lost_page_is_an_error_and_moves_nothing(lost: Lost) -> None:
    kept = lost_slot(lost)
    kept.store(7)
    lost.resize(0)

    with fails("write"):
        kept.store(8)
    assert (kept.sequence, kept.position) == (1, 7)

    lost.resize(4 * PAGE)
    kept.store(9)
    assert lost.view[PAGE : PAGE + 128] == slot_copy(2, 9)


def test_a_position_that_cannot_be_kept_is_not_moved(lost: Lost) -> None:
    reader = cursor(made, framed(b"first", b"second"))
    reader.slot = lost_slot(lost)
    lost.resize(0)

    with fails("write"):
        reader.next()
    with fails("write"):
        reader.take(5, 100)
    assert (reader.position, reader.slot.sequence) == (0, 0)

    lost.resize(4 * PAGE)
    assert reader.take(5, 100) == [b"first", b"second"]
    assert (reader.position, reader.slot.position) == (27, 27)


def test_walks_that_meet_a_lost_page_are_errors(lost: Lost) -> None:
    lost.view[:] = framed(*[b"x" * 24] * (4 * PAGE // 32))
    lost.resize(PAGE)

    with fails("read"):
        made.scan(lost.view, 0, 4 * PAGE)
    with fails("read"):
        made.boundary(lost.view, 0, 4 * PAGE, 3 * PAGE)
    with fails("read"):
        made.resume(lost.view, PAGE - 40, 4 * PAGE, 1)
    assert made.scan(lost.view, 0, PAGE) == (PAGE, PAGE // 32)


def test_every_thread_survives_its_own_lost_pages(lost: Lost) -> None:
    reader = cursor(made, lost.view)
    lost.resize(0)
    survived = []

    def read() -> None:
        for _ in range(50):
            with fails("read"):
                reader.next()
        survived.append(True)

    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert survived == [True] * 4


def test_lost_pages_cost_no_memory(lost: Lost) -> None:
    lost.view[:8] = framed(b"x" * 3 * PAGE)[:8]
    reader = cursor(made, lost.view)
    lost.resize(PAGE)
    with fails("read"):
        reader.next()

    tracemalloc.start()
    for _ in range(100):
        with fails("read"):
            reader.next()
        with fails("read"):
            reader.take(1, 1)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert grown < 10 * PAGE


# What is not the kernel's, each in a process of its own

WORLD = """
import faulthandler, mmap, os, signal, sys
from roost.segments import _kernel as made

def lost():
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    mapped = mmap.mmap(file, 4096)
    os.ftruncate(file, 0)
    return mapped

def guard():
    writer = made.Appender(made.Ends(), publish=True)
    writer.open_window(memoryview(lost()), 0)
    return writer

def survives(writer):
    try:
        writer.append(b"x")
    except OSError:
        print("survived", flush=True)
"""


def run(path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script behind the definitions above."""
    command = [sys.executable, "-c", WORLD + script, str(path / "file")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_fault_outside_the_kernel_still_kills(tmp_path: Path) -> None:
    done = run(tmp_path, "writer = guard()\nsurvives(writer)\nlost()[0]\nprint('never')\n")

    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "survived\n")


def test_a_signal_that_was_sent_still_kills(tmp_path: Path) -> None:
    done = run(tmp_path, "guard()\nos.kill(os.getpid(), signal.SIGBUS)\nprint('never')\n")

    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")


def test_a_signal_that_was_ignored_is_still_ignored_but_a_fault_kills(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
writer = guard()
os.kill(os.getpid(), signal.SIGBUS)
survives(writer)
lost()[0]
print('never')
"""

    done = run(tmp_path, script)

    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "survived\n")


def test_a_handler_that_was_there_still_gets_its_signals(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGBUS, lambda number, frame: print("handled", flush=True))
writer = guard()
os.kill(os.getpid(), signal.SIGBUS)
survives(writer)
"""

    done = run(tmp_path, script)

    assert (done.returncode, done.stdout) == (0, "handled\nsurvived\n")


def test_a_fault_handler_that_was_there_still_says_where(tmp_path: Path) -> None:
    done = run(tmp_path, "faulthandler.enable()\nwriter = guard()\nsurvives(writer)\nlost()[0]\n")

    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "survived\n")
    assert done.stderr.count("Fatal Python error: Bus error") == 1


def test_a_fault_handler_put_in_front_may_speak_but_the_process_lives(tmp_path: Path) -> None:
    done = run(tmp_path, "writer = guard()\nfaulthandler.enable()\nsurvives(writer)\n")

    assert (done.returncode, done.stdout) == (0, "survived\n")
    assert "Bus error" in done.stderr


def test_a_process_that_only_imports_the_kernel_has_no_handler(tmp_path: Path) -> None:
    script = """
import ctypes
def handler():
    place = (ctypes.c_void_p * 32)()
    ctypes.CDLL(None).sigaction(signal.SIGBUS, None, place)
    return place[0]
before = handler()
made.frame(b"x")
assert handler() == before
guard()
assert handler() != before
first = handler()
guard()
assert handler() == first
"""

    done = run(tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
