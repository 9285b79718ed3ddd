"""The machine's own clock, chance and threads: the real side of three seams.

Together with `posix` (its disk) and `net` (its network) this is all that Roost ever uses of the
machine it runs on.
"""

import contextlib
import ctypes
import heapq
import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from roost.errors import Closed
from roost.host.random import Rng
from roost.host.tasks import Worker

# The parameters of glibc's `mallopt`, from malloc.h, and the highest value that the second takes.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_MAX: Final = 32 << 20
_INT_MAX: Final = (1 << 31) - 1


class SystemClock:
    """The clock of the machine that we run on."""

    def now(self) -> float:
        """Tell the seconds since some fixed moment; never less than it told before."""
        return time.monotonic()

    def wall(self) -> float:
        """Tell the seconds since the epoch, as far as this machine knows."""
        return time.time()

    def boot(self) -> str:
        """Name this run of the machine; another name each time where the kernel does not tell."""
        try:
            with Path("/proc/sys/kernel/random/boot_id").open(encoding="ascii") as file:
                return file.read(64).strip()
        except (OSError, ValueError):
            return f"unknown {system_rng().getrandbits(128):032x}"


def system_rng() -> Rng:
    """Draw from the operating system, each time anew.

    A generator that is only seeded there would repeat itself in both halves of a fork, and two
    processes would give the same "unique" names.
    """
    return random.SystemRandom()


def keep_memory(size: int) -> bool:
    """Keep up to so many freed bytes for what comes, where the C library can; tells whether it can.

    What is given back to the system has to be cleared, page by page, when it is needed again: for
    entries of a MiB that was a fifth of all that a node computes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not every C library has it
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, min(size, _INT_MAX))
    return bool(kept and mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX))


def this_process() -> str:
    """Say which process this is, for whoever finds a lock of ours."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class ThreadTasks:
    """Workers that are threads."""

    def worker(self, name: str) -> Worker:
        """Make a worker; its thread, named `name`, begins with its first job."""
        return _ThreadWorker(name)


class _ThreadWorker:
    """One daemon thread and the jobs that wait for it; an idle one only waits for the next.

    Jobs come through a queue that wakes the thread in one step: with a condition, the way to a
    sync and back took 20 µs longer. The steps of a job follow each other without a pause: the
    system's scheduler already puts anything else between them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # Due time, order of arrival (it breaks ties, so jobs are never compared), job; the end has
        # its place among them.
        self._arrived: SimpleQueue[tuple[float, int, Iterator[None] | None]] = SimpleQueue()
        self._arrivals = itertools.count()
        # Only the thread uses it: the same, by due time.
        self._jobs: list[tuple[float, int, Iterator[None] | None]] = []
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self, steps: Iterator[None], *, delay_s: float = 0.0) -> None:
        with self._lock:
            if self._stopping:
                if delay_s > 0:
                    return
                raise Closed(f"worker {self._name} was stopped; it takes no more jobs")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._put(steps, delay_s)

    def stop(self) -> None:
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._put(None, 0.0)
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _put(self, steps: Iterator[None] | None, delay_s: float) -> None:
        self._arrived.put((time.monotonic() + delay_s, next(self._arrivals), steps))

    def _run(self) -> None:
        while self._run_one():
            pass
        self._jobs.clear()

    def _run_one(self) -> bool:
        # A call of its own, so that a waiting thread keeps no finished job (and what it refers
        # to) alive.
        steps = self._take()
        if steps is None:
            return False
        try:
            for _ in steps:
                pass
        except BaseException as error:  # noqa: BLE001 (a defect must not end the jobs behind it)
            threading.excepthook(
                threading.ExceptHookArgs(
                    (type(error), error, error.__traceback__, threading.current_thread())
                )
            )
        return True

    def _take(self) -> Iterator[None] | None:
        """Wait for the next job that is due; None at the end, and what is still delayed is gone."""
        while True:
            # All that has arrived, so that what is due first goes first.
            while not self._arrived.empty():
                heapq.heappush(self._jobs, self._arrived.get())
            wait_s: float | None = None
            if self._jobs:
                wait_s = self._jobs[0][0] - time.monotonic()
                if wait_s <= 0:
                    return heapq.heappop(self._jobs)[2]
                wait_s = min(wait_s, threading.TIMEOUT_MAX)
            with contextlib.suppress(Empty):
                heapq.heappush(self._jobs, self._arrived.get(timeout=wait_s))
