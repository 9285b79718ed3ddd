"""Simulated workers: jobs whose every step has an instant of its own.

A real worker is a thread: between two steps of a job, and before the first, anything may happen.
Here each step waits for a random time, mostly short, and meanwhile the rest of the world goes on.
A step sees no event loop, as in a thread, so that what it does to one goes through
`call_soon_threadsafe`. Workers end with their process: a job that is in between two steps then
stays there.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from heapq import heappop, heappush

from roost.errors import Closed
from roost.host.random import Rng
from roost.host.tasks import Worker
from roost.sim.handles import SimHandle
from roost.sim.loop import SimLoop, as_in_a_thread, unwind

# The machine is busy elsewhere with this chance; then a step waits much longer than the mean.
BUSY = 0.02
BUSY_FACTOR = 200


class SimTasks:
    """The workers of one simulated process."""

    def __init__(self, loop: SimLoop, rng: Rng, *, step_mean_s: float = 50e-6) -> None:
        self._loop = loop
        self._rng = rng
        self._step_mean_s = step_mean_s
        self._workers: list[_SimWorker] = []

    def worker(self, name: str) -> Worker:
        """Make a worker of its own."""
        worker = _SimWorker(name, self._loop, self.pause_s)
        self._workers.append(worker)
        return worker

    def pause_s(self) -> float:
        """Draw how long a step waits."""
        mean_s = self._step_mean_s * (BUSY_FACTOR if self._rng.random() < BUSY else 1)
        return self._rng.random() * 2 * mean_s

    def bury(self) -> None:
        """Close what never came to its end, once nobody can see it any more."""
        for worker in self._workers:
            worker.bury()


class _SimWorker:
    """One worker: the job that it is at, and those that wait."""

    def __init__(self, name: str, loop: SimLoop, pause_s: Callable[[], float]) -> None:
        self._name = name
        self._loop = loop
        self._pause_s = pause_s
        # Due time, order of arrival, job.
        self._jobs: list[tuple[float, int, Iterator[None]]] = []
        self._arrivals = itertools.count()
        self._job: Iterator[None] | None = None
        self._stepping = False
        self._stopping = False
        # When it will look next for something to do; a thread's context is empty.
        self._look_at = math.inf
        self._look = SimHandle(self._on_look, (), loop, Context())

    def start(self, steps: Iterator[None], *, delay_s: float = 0.0) -> None:
        if self._stopping:
            if delay_s > 0:
                return
            raise Closed(f"worker {self._name} was stopped; it takes no more jobs")
        heappush(self._jobs, (self._loop.time() + delay_s, next(self._arrivals), steps))
        self._look_again()

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            now = self._loop.time()
            self._jobs = sorted(job for job in self._jobs if job[0] <= now)
        if not self._stepping:
            while self._take():
                self._step()

    def bury(self) -> None:
        """Close what never came to its end."""
        for job in (self._job, *(job for _, _, job in self._jobs)):
            unwind(job)

    def _look_again(self) -> None:
        """See to it that there is a look when there is something to do."""
        if self._job is None and not self._jobs:
            return
        now = self._loop.time()
        due = now if self._job is not None else max(now, self._jobs[0][0])
        if due < self._look_at:
            self._look_at = due + self._pause_s()
            self._loop.timeline.at(self._look_at, self._look)

    def _on_look(self) -> None:
        now = self._loop.time()
        if now < self._look_at:
            # Something that is due earlier came in after this look was agreed on.
            return
        self._look_at = math.inf
        if self._take():
            self._step()
        self._look_again()

    def _take(self) -> bool:
        """Have a job at hand, if one is due."""
        if self._job is None and self._jobs and self._jobs[0][0] <= self._loop.time():
            self._job = heappop(self._jobs)[2]
        return self._job is not None

    def _step(self) -> None:
        job = self._job
        assert job is not None, "a job was taken"
        self._stepping = True
        try:
            as_in_a_thread(partial(next, job))
        except StopIteration:
            self._job = None
        except BaseException as error:  # noqa: BLE001 (a defect must not end the jobs behind it)
            self._job = None
            self._loop.call_exception_handler(
                {"message": f"a job of worker {self._name} failed", "exception": error}
            )
        finally:
            self._stepping = False
