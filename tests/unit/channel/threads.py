"""Threads for tests: all start at once, every wait is bounded, and no error is lost."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Barrier, Event, Thread
from typing import Final

WAIT_S: Final = 30.0
"""No call of a test blocks longer: a lost wake-up makes it fail, not hang."""


@contextmanager
def restless() -> Iterator[None]:
    """Switch threads a thousand times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class Running:
    """A call in a thread of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._answer: object = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001 (raised again in the test's own thread)
            self._error = error

    def block(self) -> None:
        """Wait until it stands still: it waits for something that has not come yet."""
        seen: list[object] = []
        while len(seen) < 20 or len(set(seen[-20:])) > 1:
            frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 (no other sign)
            assert frame is not None, "it ended instead of waiting"
            seen.append((id(frame), frame.f_lasti))
            Event().wait(0.001)

    def answer(self) -> object:
        """Wait for its end, and give its answer or raise its error."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "a thread waits for something that never comes"
        if self._error is not None:
            raise self._error
        return self._answer


def until(condition: Callable[[], object]) -> None:
    """Wait for something that nothing tells of."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for does not come"
        Event().wait(0.001)


def together(*works: Callable[[], object]) -> list[object]:
    """Run all at once, to their end, and give their answers."""
    start = Barrier(len(works))

    def begin(work: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            start.wait(WAIT_S)
            return work()

        return run

    running = [Running(begin(work)) for work in works]
    return [each.answer() for each in running]
