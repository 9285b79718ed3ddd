"""What every worker does: the contract of `roost.host.tasks`.

A test never sleeps: it waits for an event, and `until` lets time pass until that has happened.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from threading import Event

import msgspec
import pytest

from roost.errors import Closed
from roost.host.clock import Clock
from roost.host.system import SystemClock, ThreadTasks
from roost.host.tasks import Tasks, Worker
from roost.sim.clock import SimClock
from roost.sim.loop import SimLoop
from roost.sim.tasks import SimTasks
from roost.sim.timeline import Timeline

LONG_S = 30.0


class Stage(msgspec.Struct, frozen=True):
    """Workers, the clock that they live by, how to wait for what they do, and how to end."""

    tasks: Tasks
    clock: Clock
    until: Callable[[Event], None]
    close: Callable[[], None] = lambda: None


def threads() -> Stage:
    def until(event: Event) -> None:
        assert event.wait(LONG_S), "the workers did nothing for very long"

    return Stage(ThreadTasks(), SystemClock(), until)


def simulated() -> Stage:
    loop = SimLoop(Timeline(Random(7)))

    def until(event: Event) -> None:
        while not event.is_set():
            assert loop.time() < LONG_S, "the workers did nothing for very long"
            loop.run_until_complete(asyncio.sleep(0.001))

    tasks = SimTasks(loop, Random(8))
    return Stage(tasks, SimClock(loop.timeline), until, loop.close)


STAGES: dict[str, Callable[[], Stage]] = {"threads": threads, "sim": simulated}


@pytest.fixture(params=[*STAGES.values()], ids=[*STAGES])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    make: Callable[[], Stage] = request.param
    stage = make()
    yield stage
    stage.close()


@pytest.fixture
def worker(stage: Stage) -> Iterator[Worker]:
    worker = stage.tasks.worker("worker")
    yield worker
    worker.stop()


def job(action: Callable[[], object]) -> Iterator[None]:
    """Do one thing between two steps."""
    yield
    action()
    yield


def test_a_job_runs_to_its_end(stage: Stage, worker: Worker) -> None:
    done = Event()
    steps: list[int] = []

    def run() -> Iterator[None]:
        for step in range(3):
            steps.append(step)
            yield
        done.set()

    worker.start(run())

    stage.until(done)
    assert steps == [0, 1, 2]


def test_jobs_follow_each_other_whole_and_in_order(stage: Stage, worker: Worker) -> None:
    done = Event()
    steps: list[str] = []

    def run(name: str) -> Iterator[None]:
        for step in range(3):
            steps.append(f"{name}{step}")
            yield

    worker.start(run("a"))
    worker.start(run("b"))
    worker.start(job(done.set))

    stage.until(done)
    assert steps == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_job_without_steps_is_a_job(stage: Stage, worker: Worker) -> None:
    done = Event()

    worker.start(iter(()))
    worker.start(job(done.set))

    stage.until(done)


def test_a_delayed_job_does_not_hold_back_the_ones_behind_it(stage: Stage, worker: Worker) -> None:
    early, late = Event(), Event()

    worker.start(job(late.set), delay_s=10 * LONG_S)
    worker.start(job(early.set))

    stage.until(early)
    assert not late.is_set()


def test_a_delayed_job_runs_once_its_time_has_come(stage: Stage, worker: Worker) -> None:
    order: list[str] = []
    done = Event()

    worker.start(job(done.set), delay_s=0.02)
    worker.start(job(lambda: order.append("second")), delay_s=0.01)
    worker.start(job(lambda: order.append("first")))

    stage.until(done)
    assert order == ["first", "second"]


def test_a_delayed_job_is_never_early(stage: Stage, worker: Worker) -> None:
    done = Event()
    times: list[float] = []

    before = stage.clock.now()
    worker.start(job(lambda: times.append(stage.clock.now())), delay_s=0.05)
    worker.start(job(done.set), delay_s=0.06)

    stage.until(done)
    assert times[0] >= before + 0.05


def test_a_job_can_start_another(stage: Stage, worker: Worker) -> None:
    done = Event()

    worker.start(job(lambda: worker.start(job(done.set))))

    stage.until(done)


def test_workers_do_not_wait_for_each_other(stage: Stage, worker: Worker) -> None:
    blocked, done = Event(), Event()

    def run() -> Iterator[None]:
        other.start(job(blocked.set))
        while not blocked.is_set():
            yield
        done.set()

    other = stage.tasks.worker("other")
    worker.start(run())

    stage.until(done)
    other.stop()


def test_stopping_runs_what_is_ready(stage: Stage) -> None:
    worker = stage.tasks.worker("worker")
    done: list[int] = []
    for number in range(10):
        worker.start(job(partial(done.append, number)))

    worker.stop()

    assert done == list(range(10))


def test_stopping_drops_what_is_delayed(stage: Stage) -> None:
    worker = stage.tasks.worker("worker")
    done = Event()
    worker.start(job(done.set), delay_s=10 * LONG_S)

    worker.stop()

    assert not done.is_set()


def test_stopping_is_done_once(stage: Stage) -> None:
    idle, busy = stage.tasks.worker("idle"), stage.tasks.worker("busy")
    busy.start(job(lambda: None))

    for worker in (idle, busy):
        worker.stop()
        worker.stop()


def test_a_stopped_worker_refuses_a_job(stage: Stage) -> None:
    worker = stage.tasks.worker("worker")
    worker.stop()

    with pytest.raises(Closed, match="worker"):
        worker.start(job(lambda: None))


def test_a_job_that_repeats_itself_ends_with_its_worker(stage: Stage) -> None:
    worker = stage.tasks.worker("worker")
    started = Event()

    def tick() -> Iterator[None]:
        started.set()
        yield
        worker.start(tick(), delay_s=0.001)

    worker.start(tick())
    stage.until(started)

    worker.stop()

    worker.start(tick(), delay_s=0.001)


def test_a_job_can_stop_its_own_worker(stage: Stage) -> None:
    worker = stage.tasks.worker("worker")
    stopped, behind = Event(), Event()

    def run() -> Iterator[None]:
        yield
        worker.start(job(behind.set))
        worker.stop()
        stopped.set()

    worker.start(run())

    stage.until(stopped)
    stage.until(behind)
    worker.stop()
