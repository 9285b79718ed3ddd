"""What the loops of one world share: the time, what is due when, and who is ready.

Time stands still while callbacks run, and jumps to the next due instant when none is left.
"""

import asyncio
import gc
import math
from array import array
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NoReturn, Protocol

from roost.host.random import Rng
from roost.sim.handles import SimHandle, SimTimer
from roost.sim.stuck import describe

# Callbacks between two looks at what is not looked at all the time: garbage, and whether time
# still moves. A livelock is noticed after at most twice as many.
CHECK_CALLBACKS = 100_000
# Cancelled timers stay in the heap until they are this many and half of it.
CANCELLED_MIN = 256


class Deadlock(Exception):
    """Nothing is ready and nothing is due, but the main task still waits."""


class Livelock(Exception):
    """Callbacks follow callbacks and time does not move."""


class Defect(Exception):
    """The program let an exception go that nobody handles; it is the cause of this one."""


class Loop(Protocol):
    """What the timeline knows of a loop: who runs in it, and the two lines that it is about."""

    name: str
    _ready: list[SimHandle | SimTimer]
    _line: list["Loop"]

    def is_closed(self) -> bool:
        """Tell whether it is gone."""

    def close(self) -> None:
        """End for good."""

    def condition(self) -> str:
        """Say what keeps it from running, if anything does."""

    def tasks(self) -> list[asyncio.Task[Any]]:
        """List the tasks that are not done."""


class Timeline:
    """What the loops of one world share: the time, what is due, who is ready."""

    def __init__(self, rng: Rng) -> None:
        self.now = 0.0
        self.callbacks = 0
        self.rng = rng
        self.loops: list[Loop] = []
        self.awake: list[Loop] = []
        # (instant, deadline, tie, handle); the last entry never comes due, so that there is
        # always a first one to look at.
        self.due: list[tuple[float, float, float, Any]] = [(math.inf, 0.0, 0.0, None)]
        self.check_at = CHECK_CALLBACKS
        self._checked_now = -1.0
        self._cancelled = 0
        self._numbers = count(1)
        self._instants = array("d")
        self._history = blake2b(digest_size=16)
        self._failure: BaseException | None = None

    def at(self, when: float, handle: SimHandle) -> None:
        """Let something arrive from outside at `when`; it comes before the timers of then."""
        heappush(self.due, (when, -1.0, self.rng.random(), handle))

    def release(self) -> None:
        """Hand what is due to its loops; if nothing is, let time jump to what comes next."""
        due = self.due
        now = due[0][0]
        if now > self.now:
            if now == math.inf:
                self._deadlocked()
            self.now = now
            self._instants.append(now)
        else:
            now = self.now
        while due[0][0] <= now:
            handle = heappop(due)[3]
            if handle._cancelled:
                continue
            loop = handle._loop
            ready = loop._ready
            if not ready:
                loop._line.append(loop)
            ready.append(handle)

    def pick(self) -> Loop:
        """Choose who runs next among those that are ready."""
        awake = self.awake
        chosen = int(self.rng.random() * len(awake))
        awake[chosen], awake[-1] = awake[-1], awake[chosen]
        return awake.pop()

    def check(self) -> None:
        """Look at what need not be looked at after each callback."""
        self._raise_failure()
        self.check_at = self.callbacks + CHECK_CALLBACKS
        self._record()
        if self.now == self._checked_now:
            raise Livelock(
                f"more than {CHECK_CALLBACKS} callbacks ran and it is still {self.now:.6f} s: "
                f"{self._waiting()}",
            )
        self._checked_now = self.now
        gc.collect()

    def fail(self, failure: BaseException) -> None:
        """End the run with this after the present batch; the first one counts."""
        if self._failure is None:
            self._failure = failure
            self.check_at = 0

    def settle(self) -> None:
        """Raise what nobody looked at: some of it shows only when it is collected."""
        gc.collect()
        self._raise_failure()

    def next_number(self) -> int:
        """Give out numbers in the order in which they are asked for."""
        return next(self._numbers)

    def note_cancelled(self) -> None:
        """Clear the heap of cancelled timers once they are the greater part of it.

        A timer that has run and is then cancelled (`asyncio.sleep` does that) counts as well: it
        is not worth a look whether it is still there.
        """
        self._cancelled += 1
        if self._cancelled > CANCELLED_MIN and self._cancelled * 2 > len(self.due):
            self.due[:] = [due for due in self.due if due[3] is None or not due[3]._cancelled]
            heapify(self.due)
            self._cancelled = 0

    def fingerprint(self) -> bytes:
        """Digest the instants at which anything happened, and how much did."""
        self._record()
        history = self._history.copy()
        history.update(self.callbacks.to_bytes(8, "big"))
        return history.digest()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _record(self) -> None:
        self._history.update(self._instants.tobytes())
        del self._instants[:]

    def _deadlocked(self) -> NoReturn:
        raise Deadlock(f"nothing can happen any more at {self.now:.6f} s: {self._waiting()}")

    def _waiting(self) -> str:
        lines = []
        for loop in self.loops:
            if not loop.is_closed():
                lines += describe(loop.name + loop.condition(), loop.tasks())
        return "\n  ".join([f"{len(lines)} tasks wait", *lines])
