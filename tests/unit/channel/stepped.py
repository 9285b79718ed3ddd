"""Workers and a clock that move only when a test says so, one step of one job at a time.

They keep the contract of `roost.host.tasks` in a single thread, and end in two ways: `stop` is that
of a program which closes, `abandon` that of one which is gone in the middle of whatever it did.
"""

import heapq
import itertools
from collections.abc import Generator, Iterator
from contextlib import suppress

from roost.errors import Closed
from roost.host.tasks import Worker
from roost.sim.drive import PowerLoss


class SteppedClock:
    """A clock that somebody turns."""

    def __init__(self) -> None:
        self._now = 1000.0

    def now(self) -> float:
        """Tell the seconds that were turned, and some."""
        return self._now

    def wall(self) -> float:
        """Tell the same as `now`."""
        return self._now

    def boot(self) -> str:
        """Name the one run of this machine."""
        return "run 0"

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class SteppedTasks:
    """Makes workers, and lets them work."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self._workers: dict[str, SteppedWorker] = {}

    def worker(self, name: str) -> Worker:
        """Make a worker; each has its own name here."""
        assert name not in self._workers, "two workers of one name"
        self._workers[name] = SteppedWorker(name, self._clock)
        return self._workers[name]

    def names(self) -> list[str]:
        """Name the workers, for who wants to choose one."""
        return sorted(self._workers)

    def step(self, name: str) -> bool:
        """Do one step of one worker's job at hand; False if it has none."""
        return self._workers[name].step()

    def finish(self, name: str) -> None:
        """Do all that one worker can do now."""
        while self.step(name):
            pass

    def abandon(self) -> None:
        """Drop all jobs where they stand; the disk must be halted, so that nothing comes of it."""
        for worker in self._workers.values():
            worker.abandon()


class SteppedWorker:
    """One worker's jobs, in the order in which they are due."""

    def __init__(self, name: str, clock: SteppedClock) -> None:
        self._name = name
        self._clock = clock
        self._order = itertools.count()
        self._jobs: list[tuple[float, int, Iterator[None]]] = []
        self._job: Iterator[None] | None = None
        self._stopped = False
        self._stepping = False

    def start(self, steps: Iterator[None], *, delay_s: float = 0.0) -> None:
        """Take a job."""
        if self._stopped:
            if delay_s > 0:
                return
            raise Closed(f"worker {self._name} was stopped")
        heapq.heappush(self._jobs, (self._clock.now() + delay_s, next(self._order), steps))

    def step(self) -> bool:
        """Do one step of the job at hand, or of the next one that is due; False if none is."""
        if self._job is None:
            if not self._jobs or self._jobs[0][0] > self._clock.now():
                return False
            self._job = heapq.heappop(self._jobs)[2]
        self._stepping = True
        try:
            next(self._job)
        except StopIteration:
            self._job = None
        finally:
            self._stepping = False
        return True

    def stop(self) -> None:
        """Do what is due, and drop the rest."""
        if not self._stopped:
            self._stopped = True
            now = self._clock.now()
            self._jobs = sorted(job for job in self._jobs if job[0] <= now)
        while not self._stepping and self.step():
            pass

    def abandon(self) -> None:
        """Drop everything, the job at hand in the middle."""
        for job in [self._job, *(job for _, _, job in self._jobs)]:
            if isinstance(job, Generator):
                with suppress(PowerLoss):
                    job.close()
        self._job = None
        self._jobs.clear()
