"""A task that waits for a worker's job: what it returns, what it raises, who does not wait."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from random import Random
from threading import Event
from typing import Any

import msgspec
import pytest

from roost.errors import Closed
from roost.host.jobs import begin
from roost.host.system import ThreadTasks
from roost.host.tasks import Tasks
from roost.sim.loop import SimLoop
from roost.sim.tasks import SimTasks
from roost.sim.timeline import Timeline

LONG_S = 30.0
Story = Callable[[Tasks], Awaitable[None]]


class Stage(msgspec.Struct, frozen=True):
    """An event loop, workers, and how to end."""

    loop: asyncio.AbstractEventLoop
    tasks: Tasks

    def play(self, story: Story) -> None:
        """Run a story to its end, in good time."""

        async def limited() -> None:
            async with asyncio.timeout(LONG_S):
                await story(self.tasks)

        self.loop.run_until_complete(limited())


def threads() -> Stage:
    return Stage(asyncio.new_event_loop(), ThreadTasks())


def simulated() -> Stage:
    loop = SimLoop(Timeline(Random(7)))
    return Stage(loop, SimTasks(loop, Random(8)))


@pytest.fixture(params=[threads, simulated], ids=["threads", "sim"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    make: Callable[[], Stage] = request.param
    stage = make()
    yield stage
    stage.loop.close()


def job(result: Any = None, *, steps: int = 3) -> Generator[None, None, Any]:
    for _ in range(steps):
        yield
    return result


def failing(error: BaseException) -> Generator[None, None, None]:
    yield
    raise error


def test_a_job_gives_what_it_returns(stage: Stage) -> None:
    async def story(tasks: Tasks) -> None:
        worker = tasks.worker("worker")

        results = await asyncio.gather(*(begin(worker, job(n, steps=n)) for n in range(5)))

        assert results == [0, 1, 2, 3, 4]
        worker.stop()

    stage.play(story)


def test_a_job_raises_what_it_raises(stage: Stage) -> None:
    async def story(tasks: Tasks) -> None:
        worker = tasks.worker("worker")

        with pytest.raises(OSError, match="broken"):
            await begin(worker, failing(OSError("broken")))

        assert await begin(worker, job("after")) == "after"
        worker.stop()

    stage.play(story)


def test_jobs_of_one_worker_follow_each_other(stage: Stage) -> None:
    async def story(tasks: Tasks) -> None:
        worker = tasks.worker("worker")
        done: list[int] = []

        def noted(number: int) -> Generator[None, None, None]:
            yield
            done.append(number)
            yield

        await asyncio.gather(*(begin(worker, noted(number)) for number in range(10)))

        assert done == [*range(10)]
        worker.stop()

    stage.play(story)


def test_a_job_that_nobody_waits_for_any_more_is_done_all_the_same(stage: Stage) -> None:
    async def story(tasks: Tasks) -> None:
        worker = tasks.worker("worker")
        done: list[int] = []

        def noted() -> Generator[None, None, None]:
            yield
            done.append(1)

        for work in (noted(), failing(OSError("nobody hears of it"))):
            begin(worker, work).cancel()
        await begin(worker, job())

        assert done == [1]
        worker.stop()

    stage.play(story)


def test_a_stopped_worker_begins_nothing(stage: Stage) -> None:
    async def story(tasks: Tasks) -> None:
        worker = tasks.worker("worker")
        worker.stop()

        with pytest.raises(Closed, match="worker"):
            begin(worker, job())

    stage.play(story)


def test_a_job_may_end_after_its_event_loop() -> None:
    begun, may_end, ended = Event(), Event(), Event()

    def late() -> Generator[None, None, None]:
        begun.set()
        assert may_end.wait(LONG_S)
        yield

    def last() -> Generator[None, None, None]:
        yield
        ended.set()

    worker = ThreadTasks().worker("worker")

    async def story() -> None:
        begin(worker, late())
        assert begun.wait(LONG_S)

    asyncio.run(story())
    may_end.set()
    worker.start(last())

    assert ended.wait(LONG_S)
    worker.stop()
