"""The loop runs asyncio programs in virtual time, and reorders only what asyncio leaves open."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from random import Random
from typing import Any

import pytest

from roost.sim.loop import SimLoop, as_in_a_thread, simulate
from roost.sim.timeline import Deadlock, Defect, Livelock, Timeline

SEEDS = range(20)


class Stage:
    """Two processes and a story that looks on, all on one timeline."""

    def __init__(self, seed: int = 0, tick_s: float = 0.0) -> None:
        self.timeline = Timeline(Random(seed))
        self.story = SimLoop(self.timeline, name="story")
        self.here = SimLoop(self.timeline, name="here", tick_s=tick_s)
        self.there = SimLoop(self.timeline, name="there", tick_s=tick_s)

    def play(self, story: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run it to its end, and close everything."""
        try:
            self.story.run_until_complete(story())
            self.timeline.settle()
        finally:
            for loop in (self.here, self.there, self.story):
                loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        await asyncio.sleep(86400)
        return asyncio.get_running_loop().time()

    assert simulate(main) == 86400.0


def test_callbacks_run_first_in_first_out_whatever_the_seed() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        for number in range(10):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(1)
        return order

    assert all(simulate(main, seed=seed) == list(range(10)) for seed in SEEDS)


def test_an_earlier_deadline_comes_first_whatever_the_seed() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        for number in (3, 1, 2, 0):
            loop.call_later(1.0 + number / 1e6, order.append, number)
        await asyncio.sleep(2)
        return order

    assert all(simulate(main, seed=seed) == [0, 1, 2, 3] for seed in SEEDS)


def test_equal_deadlines_come_in_an_order_of_the_seed() -> None:
    async def main() -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        for number in range(4):
            loop.call_at(1.0, order.append, number)
        await asyncio.sleep(2)
        return tuple(order)

    orders = [simulate(main, seed=seed) for seed in SEEDS]

    assert len(set(orders)) > 5
    assert orders == [simulate(main, seed=seed) for seed in SEEDS]


def test_timers_of_one_tick_are_late_together_and_in_order() -> None:
    stage = Stage(tick_s=0.5)
    calls: list[tuple[int, float]] = []

    def note(number: int) -> None:
        calls.append((number, stage.timeline.now))

    async def story() -> None:
        for number in (2, 0, 1):
            stage.here.call_at(1.0 + number / 1e3, note, number)
        await asyncio.sleep(2)

    stage.play(story)
    times = {time for _, time in calls}
    assert [number for number, _ in calls] == [0, 1, 2]
    assert len(times) == 1
    assert 1.002 <= times.pop() < 1.502


def test_a_cancelled_timer_neither_runs_nor_moves_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for _ in range(1000):
            loop.call_later(3600, pytest.fail, "it was cancelled").cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert simulate(main) == 1.0


def test_cancelled_timers_do_not_pile_up() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        for _ in range(100):
            for _ in range(100):
                loop.call_later(3600, print).cancel()
            await asyncio.sleep(0.001)
        return len(loop.timeline.due)

    assert simulate(main) < 1000


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(forever(), name="the culprit")

    with pytest.raises(Deadlock, match=r"the culprit .*forever at line") as caught:
        simulate(main)

    assert "2 tasks wait" in str(caught.value)


def test_a_livelock_is_noticed() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    async def main() -> None:
        again()
        await asyncio.sleep(1)

    with pytest.raises(Livelock, match="still 0"):
        simulate(main)


def test_an_exception_in_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(Defect, match="ZeroDivisionError") as caught:
        simulate(main)

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_exception_that_nobody_looks_at_fails_the_run() -> None:
    async def fails() -> None:
        raise ValueError("nobody asked")

    stage = Stage()

    async def story() -> None:
        stage.here.create_task(fails())
        await asyncio.sleep(1)

    with pytest.raises(Defect, match="nobody asked"):
        stage.play(story)


def test_threads_and_sockets_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match=r"host\.tasks"):
            await asyncio.to_thread(print)
        with pytest.raises(RuntimeError, match=r"host\.net"):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", 1)
        with pytest.raises(RuntimeError, match=r"host\.net"):
            await loop.create_server(asyncio.Protocol, "127.0.0.1", 1)

    simulate(main)


def test_context_variables_travel_as_ever() -> None:
    name: ContextVar[str] = ContextVar("name")

    async def main() -> list[str]:
        seen: list[str] = []
        name.set("outer")
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: seen.append(name.get()))
        loop.call_later(1, lambda: seen.append(name.get()))
        name.set("changed")
        await asyncio.sleep(2)
        return seen

    assert simulate(main) == ["outer", "outer"]


def test_async_generators_are_closed_on_the_loop_that_ran_them() -> None:
    stage = Stage()
    closed: list[str] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            closed.append(loop.name)

    async def use() -> None:
        async for _ in numbers():
            break

    async def story() -> None:
        task = stage.here.create_task(use())
        await asyncio.sleep(1)
        assert task.done()

    stage.play(story)
    assert closed == ["here"]


def test_a_task_group_cancels_in_the_order_of_its_tasks() -> None:
    async def main() -> list[int]:
        cancelled: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError

        async def run_all() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(wait(number))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await run_all()
        return cancelled

    assert simulate(main) == list(range(50))


def test_a_set_of_futures_has_the_same_order_in_every_run() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(50)]
        for number, future in enumerate(futures):
            future.set_result(number)
        done, _ = await asyncio.wait(futures)
        return [future.result() for future in done]

    assert simulate(main) == simulate(main)


def test_a_stopped_process_stands_still_while_time_goes_on() -> None:
    stage = Stage()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(stage.timeline.now)

    async def story() -> None:
        task = stage.here.create_task(tick())
        await asyncio.sleep(2.5)
        stage.here.suspend()
        await asyncio.sleep(10)
        stage.here.resume()
        await asyncio.sleep(1.2)
        assert not task.done()

    stage.play(story)
    assert ticks == [1.0, 2.0, 12.5, 13.5]


def test_what_arrived_while_stopped_comes_before_or_behind_late_timers() -> None:
    def order(seed: int) -> str:
        stage = Stage(seed)
        seen: list[str] = []

        async def story() -> None:
            stage.here.call_soon(seen.append, "ready")
            stage.here.suspend()
            stage.here.call_at(1.0, seen.append, "timer")
            stage.story.call_at(2.0, stage.here.call_soon, seen.append, "arrived")
            await asyncio.sleep(3)
            stage.here.resume()
            await asyncio.sleep(1)

        stage.play(story)
        return " ".join(seen)

    assert {order(seed) for seed in SEEDS} == {"ready timer arrived", "ready arrived timer"}


def test_a_killed_process_runs_nothing_more() -> None:
    stage = Stage()
    ran: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ran.append("finally")

    async def story() -> None:
        task = stage.here.create_task(wait())
        await asyncio.sleep(1)
        stage.here.call_later(1, ran.append, "timer")
        stage.here.call_soon(ran.append, "callback")
        stage.here.kill()
        stage.here.call_soon(ran.append, "late callback")
        await asyncio.sleep(10)
        assert ran == []
        assert not task.done()

    stage.play(story)


def test_a_process_may_die_in_the_midst_of_its_callbacks() -> None:
    stage = Stage()
    ran: list[str] = []

    def die() -> None:
        stage.here.kill()
        stage.here.call_soon(ran.append, "asked for by the dead")

    async def story() -> None:
        stage.here.call_soon(ran.append, "before")
        stage.here.call_soon(die)
        stage.here.call_soon(ran.append, "after")
        stage.there.call_soon(ran.append, "elsewhere")
        await asyncio.sleep(1)

    stage.play(story)
    assert sorted(ran) == ["before", "elsewhere"]


def test_what_the_dead_left_is_unwound_when_the_loop_closes() -> None:
    stage = Stage()
    ran: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ran.append("finally")
            await asyncio.sleep(5)
            pytest.fail("nobody waits for that")

    async def story() -> None:
        stage.here.create_task(stubborn())
        await asyncio.sleep(1)
        stage.here.kill()

    stage.play(story)
    gc.collect()
    assert ran == ["finally"]


def test_ready_processes_take_turns_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> str:
        stage = Stage(seed)
        seen: list[str] = []

        async def story() -> None:
            stage.here.call_soon(seen.append, "here")
            stage.there.call_soon(seen.append, "there")
            await asyncio.sleep(1)

        stage.play(story)
        return " ".join(seen)

    assert {order(seed) for seed in SEEDS} == {"here there", "there here"}


def test_what_runs_as_in_a_thread_sees_no_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            as_in_a_thread(asyncio.get_running_loop)
        asyncio.get_running_loop()

    simulate(main)


def test_a_fingerprint_tells_histories_apart() -> None:
    def fingerprint(delay_s: float) -> bytes:
        stage = Stage()
        stage.play(lambda: asyncio.sleep(delay_s))
        return stage.timeline.fingerprint()

    assert fingerprint(1.0) == fingerprint(1.0)
    assert fingerprint(1.0) != fingerprint(1.5)
