"""Waiting for a position, by threads and by tasks: no wake-up is lost, and none takes too much."""

import asyncio
from collections.abc import Callable
from threading import Event, Lock

import pytest

from roost.channel.wait import Waiters
from tests.unit.channel.threads import WAIT_S, Running, restless, together, until


class Counter:
    """A position that somebody moves."""

    def __init__(self) -> None:
        self.reached = 0
        self.waiters = Waiters(lambda: self.reached)
        self._lock = Lock()

    def move(self, by: int = 1) -> None:
        """Move the position, and wake who waited for it."""
        with self._lock:
            self.reached += by
        self.waiters.wake()


class Watched(Counter):
    """A counter at which something happens while a waiter looks whether it has come."""

    def __init__(self, while_looking: Callable[[Counter], None]) -> None:
        super().__init__()
        self.waiters = Waiters(self._look)
        self._while_looking = [while_looking]

    def at_next_look(self, while_looking: Callable[[Counter], None]) -> None:
        """Let something happen to the next waiter, too."""
        self._while_looking.append(while_looking)

    def _look(self) -> int:
        if self._while_looking:
            self._while_looking.pop()(self)
        return self.reached


def test_who_waits_for_what_has_come_does_not_wait() -> None:
    counter = Counter()
    counter.move(5)

    assert counter.waiters.wait(5, None)
    assert not counter.waiters.queue


def test_a_wait_that_runs_out_says_so_and_leaves_nothing_behind() -> None:
    counter = Counter()

    assert not counter.waiters.wait(1, 0.001)
    assert not counter.waiters.queue


def test_only_those_whose_position_has_come_are_woken() -> None:
    counter = Counter()
    first = Running(lambda: counter.waiters.wait(1, WAIT_S))
    first.block()
    second = Running(lambda: counter.waiters.wait(2, WAIT_S))
    second.block()

    counter.move()
    assert first.answer() is True
    second.block()
    counter.move()
    assert second.answer() is True


def test_a_change_between_the_look_and_the_wait_is_not_missed() -> None:
    counter = Counter()
    turn = counter.waiters.turn

    counter.waiters.wake_all()

    assert counter.waiters.wait(1, WAIT_S, turn=turn)
    asyncio.run(asyncio.wait_for(counter.waiters.wait_async(1, turn=turn), WAIT_S))
    assert not counter.waiters.queue


def test_after_the_end_nobody_waits_any_more() -> None:
    counter = Counter()
    waiting = Running(lambda: counter.waiters.wait(1, WAIT_S))
    waiting.block()

    counter.waiters.finish()

    assert waiting.answer() is True
    assert counter.waiters.wait(1, WAIT_S)
    asyncio.run(asyncio.wait_for(counter.waiters.wait_async(1), WAIT_S))


def test_a_cancelled_task_leaves_nothing_behind() -> None:
    async def cancelled() -> None:
        counter = Counter()
        task = asyncio.create_task(counter.waiters.wait_async(1))
        await asyncio.sleep(0)
        assert len(counter.waiters.queue) == 1

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert not counter.waiters.queue

    asyncio.run(cancelled())


def test_a_thread_that_finds_it_need_not_wait_still_wakes_the_next() -> None:
    behind: list[Running] = []

    def while_looking(counter: Counter) -> None:
        behind.append(Running(lambda: counter.waiters.wait(1, WAIT_S)))
        behind[0].block()
        counter.move()

    counter = Watched(while_looking)

    assert counter.waiters.wait(1, None)
    assert behind[0].answer() is True


def test_a_thread_that_gives_up_while_those_before_it_wake_holds_nobody_back() -> None:
    others: list[Running] = []
    go_on = Event()

    def wait_in_line(timeout_s: float) -> None:
        others.append(Running(lambda: counter.waiters.wait(1, timeout_s)))
        until(lambda: len(counter.waiters.queue) == 1 + len(others))

    def while_looking(_: Counter) -> None:
        counter.at_next_look(lambda _: until(go_on.is_set))
        wait_in_line(WAIT_S)
        wait_in_line(0.2)
        wait_in_line(WAIT_S)
        counter.move()
        assert others[1].answer() is False
        go_on.set()

    counter = Watched(while_looking)

    assert counter.waiters.wait(1, None)
    assert others[0].answer() is True
    assert others[2].answer() is True


def test_a_task_whose_loop_is_gone_stops_nobody_else_from_being_woken() -> None:
    counter = Counter()
    loop = asyncio.new_event_loop()
    abandoned = counter.waiters.wait_async(1)
    task = loop.create_task(abandoned)
    loop.run_until_complete(asyncio.sleep(0, loop))
    loop.close()
    waiting = Running(lambda: counter.waiters.wait(1, WAIT_S))
    waiting.block()

    counter.move()

    assert waiting.answer() is True
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 (it is meant)
    abandoned.close()


def test_many_threads_and_tasks_each_see_each_step() -> None:
    counter = Counter()
    steps = 300

    def by_thread() -> None:
        for n in range(1, steps + 1):
            assert counter.waiters.wait(n, WAIT_S)
            assert counter.reached >= n

    async def task() -> None:
        for n in range(1, steps + 1):
            await counter.waiters.wait_async(n)
            assert counter.reached >= n

    async def tasks() -> None:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(task())

    def move() -> None:
        for _ in range(steps):
            counter.move()

    with restless():
        together(by_thread, by_thread, by_thread, lambda: asyncio.run(tasks()), move)
    assert not counter.waiters.queue
