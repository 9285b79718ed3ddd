"""Many threads over one appender and one cursor of the kernel and its twin.

The interpreter is made to switch threads as often as it can. Nothing is stored twice or lost,
nothing is given twice or left out, while a slow path changes the windows beneath.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from threading import Barrier, Event, Lock, Thread
from types import ModuleType
from typing import Any

import pytest

from roost.segments import _kernel
from tests.unit.segments.kernels import (
    appender,
    cursor,
    framed,
    implementations,
    slot,
    slot_copy,
)

THREADS = 4
EACH = 400


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Switch threads a thousand times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def together(*works: Callable[[], None]) -> None:
    """Run all at once, to their end; the first error of any of them is raised."""
    start = Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised below, in the test's own thread)
            errors.append(error)

    threads = [Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for error in errors:
        raise error
    assert not any(thread.is_alive() for thread in threads)


class Tail:
    """The slow path of many senders: a window that is full is replaced by the next."""

    def __init__(self, made: ModuleType) -> None:
        self.ends = made.Ends()
        self.appender = made.Appender(self.ends, publish=True)
        self.windows: list[tuple[int, bytearray]] = []
        self._lock = Lock()

    def send(self, payload: bytes) -> int:
        at: int = self.appender.append(payload)
        while at < 0:
            with self._lock:
                at = self.appender.append(payload)
                if at < 0:
                    self.appender.close_window()
                    self._open()
        return at

    def _open(self) -> None:
        window = bytearray(500)
        self.windows.append((self.ends.written, window))
        self.appender.open_window(memoryview(window), self.ends.written)

    def stored(self) -> bytes:
        """Put together what stands in all windows."""
        whole = bytearray(self.ends.written)
        behind = [begin for begin, _ in self.windows[1:]] + [self.ends.written]
        for (begin, window), end in zip(self.windows, behind, strict=True):
            whole[begin:end] = window[: end - begin]
        return bytes(whole)


@implementations
def test_what_many_threads_append_is_stored_once_each_where_it_was_said(made: ModuleType) -> None:
    tail = Tail(made)
    told: dict[int, bytes] = {}

    def send(sender: int) -> None:
        for number in range(EACH):
            payload = b"%d:%d" % (sender, number) * (1 + number % 5)
            told[tail.send(payload)] = payload

    together(*(lambda sender=n: send(sender) for n in range(THREADS)))

    assert len(told) == THREADS * EACH
    assert tail.stored() == framed(*(told[at] for at in sorted(told)))


class Unmapped(bytearray):
    """A window whose end lets others run, as the end of a mapped one does."""

    def __init__(self, size: int, others: Callable[[], object]) -> None:
        super().__init__(size)
        self._others = others

    def __del__(self) -> None:
        self._others()


def test_nothing_is_stored_astray_while_the_window_before_is_unmapped() -> None:
    # The twin holds its lock meanwhile. The new window is the larger one, so that there is room
    # where a frame would stand if its place were counted from the begin of the old one.
    writer, ends = appender(_kernel, Unmapped(20, lambda: writer.append(b"meanwhile")))
    writer.append(b"before")
    fresh = bytearray(100)

    writer.open_window(memoryview(fresh), ends.written)

    assert fresh.startswith(framed(b"meanwhile"))


def test_nothing_is_read_astray_while_the_window_before_is_unmapped() -> None:
    got: list[bytes | None] = []
    whole = framed(b"first", b"second", b"third")
    window = Unmapped(0, lambda: got.append(reader.next()))
    window += whole
    reader = cursor(_kernel, window)
    reader.next()
    del window

    reader.open_window(whole[len(framed(b"first")) :], len(framed(b"first")))

    assert got == [b"second"]


@implementations
@pytest.mark.parametrize("batch", [0, 3])
def test_competing_threads_get_each_message_once(made: ModuleType, batch: int) -> None:
    payloads = [b"%d" % n for n in range(THREADS * EACH)]
    memory = bytearray(256)
    reader = cursor(made, framed(*payloads), slot=slot(made, memory))
    got: list[list[bytes]] = [[] for _ in range(THREADS)]

    def receive(mine: list[bytes]) -> None:
        if batch:
            while taken := reader.take(batch, 1000):
                mine += taken
        else:
            while (message := reader.next()) is not None:
                mine.append(message)

    together(*(lambda mine=mine: receive(mine) for mine in got))

    assert sorted(message for mine in got for message in mine) == sorted(payloads)
    assert all(mine == sorted(mine, key=int) for mine in got)
    halves = sorted([memory[:128], memory[128:]], key=lambda copy: copy[104:112])
    assert halves[1] == slot_copy(reader.slot.sequence, len(framed(*payloads)))


@implementations
def test_readers_go_on_while_windows_change_beneath_them(made: ModuleType) -> None:
    payloads = [b"%d" % n for n in range(THREADS * EACH)]
    whole = framed(*payloads)
    reader = cursor(made, whole)
    got: list[bytes] = []
    done = Event()

    def receive() -> None:
        while reader.position < len(whole):
            message = reader.next()
            if message is not None:
                got.append(message)

    def receive_all() -> None:
        together(*[receive] * THREADS)
        done.set()

    def slide() -> None:
        for turn in count():
            if done.is_set():
                break
            reader.close_window()
            begin = 0 if turn % 2 else max(0, reader.position - 50)
            reader.open_window(bytearray(whole[begin : begin + 900 + reader.position]), begin)

    together(receive_all, slide)

    assert sorted(got) == sorted(payloads)


@implementations
def test_one_reads_what_another_appends(made: ModuleType) -> None:
    window = bytearray(THREADS * EACH * 12)
    ends = made.Ends()
    writer = made.Appender(ends, publish=True)
    writer.open_window(memoryview(window), 0)
    readers: list[Any] = [made.Cursor(ends, position=0, slot=None) for _ in range(2)]
    got: list[list[bytes]] = [[], []]

    def send() -> None:
        for number in range(EACH):
            writer.append(b"%d" % number)

    def receive(which: int) -> None:
        readers[which].open_window(memoryview(window).toreadonly(), 0)
        while len(got[which]) < EACH:
            got[which] += readers[which].take(7, 100)

    together(send, lambda: receive(0), lambda: receive(1))

    assert got == [[b"%d" % number for number in range(EACH)]] * 2
