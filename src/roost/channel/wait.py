"""Waiting for a position to be reached, from threads and from asyncio tasks alike.

A waiter registers, looks once more whether what it waits for has come, and only then sleeps;
who moves the position moves it first and wakes after. So no wake-up is lost, though neither
side holds the channel's lock. Who wakes everybody, because something else than the position has
changed, raises `turn`: a waiter that read it before it looked goes and looks again.

Threads wake one another: whoever is woken wakes the next, and then goes on. Were all of them woken
at once, they would fight for the interpreter's lock: 64 senders that share their syncs get through
1.9 times as much this way, for half the processor time. Two are woken to begin with, so that one
comes up while the other runs: a fifth more again.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_Entry = tuple[int, "threading.Lock | asyncio.Future[None]"]
_ALL: Final = 1 << 64  # no position is so high
_WOKEN_AT_ONCE: Final = 2


class Waiters:
    """Those who wait until `reached()` has come to their position, or until all are woken.

    The queue is nearly in order, since positions only grow. A waiter that stands behind one of
    a higher position is woken with that one at the latest: what is written gets synced.
    """

    def __init__(self, reached: Callable[[], int]) -> None:
        self._reached: Final = reached
        self._guard: Final = threading.Lock()
        self.queue: Final[deque[_Entry]] = deque()
        self._rising: Final[deque[threading.Lock]] = deque()
        self.turn = 0
        self._over = False

    @property
    def rising(self) -> bool:
        """Whether threads that are to go on have not been woken yet: others will wake them."""
        return bool(self._rising)

    def wait(self, upto: int, timeout_s: float | None, *, turn: int | None = None) -> bool:
        """Block this thread until `upto` is reached, all are woken, or the time is over."""
        lock = threading.Lock()
        lock.acquire()
        entry: _Entry = (upto, lock)
        self.queue.append(entry)
        woken = False
        try:
            if self._come(upto, turn):
                return True
            woken = lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, 1e6))
            return woken
        finally:
            if not woken:
                self._forget(entry)
            # However it ends: a thread that gave up may still stand in line, to be woken in vain.
            self._wake_next()

    async def wait_async(self, upto: int, *, turn: int | None = None) -> None:
        """Suspend this task until `upto` is reached or all are woken."""
        future = self.join(upto, turn=turn)
        try:
            await future
        except asyncio.CancelledError:
            self.leave(upto, future)
            raise

    def join(self, upto: int, *, turn: int | None = None) -> "asyncio.Future[None]":
        """Give this task what it may await in place of `wait_async`, saving a coroutine."""
        future = asyncio.get_running_loop().create_future()
        self.queue.append((upto, future))
        if self._come(upto, turn):
            self.leave(upto, future)
            future.set_result(None)
        return future

    def leave(self, upto: int, future: "asyncio.Future[None]") -> None:
        """Wait no longer, after a cancellation."""
        self._forget((upto, future))

    def _come(self, upto: int, turn: int | None) -> bool:
        return self._reached() >= upto or self._over or turn not in (None, self.turn)

    def _forget(self, entry: _Entry) -> None:
        with self._guard:
            if entry in self.queue:
                self.queue.remove(entry)

    def wake(self) -> None:
        """Wake those whose position has been reached."""
        reached = self._reached()
        with self._guard:
            futures = self._take_out(reached)
        self._wake_first()
        _resolve_all(futures)

    def finish(self) -> None:
        """Wake everybody for good: the channel failed or was closed."""
        self._over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake everybody, to look again."""
        with self._guard:
            self.turn += 1
            futures = self._take_out(_ALL)
        self._wake_first()
        _resolve_all(futures)

    def _take_out(self, upto: int) -> "list[asyncio.Future[None]]":
        """Line up the threads who wait for no more than that, and give the futures of the tasks."""
        queue, future = self.queue, asyncio.Future
        futures: list[asyncio.Future[None]] = []
        while queue and queue[0][0] <= upto:
            waiter = queue.popleft()[1]
            if isinstance(waiter, future):
                futures.append(waiter)
            else:
                self._rising.append(waiter)
        return futures

    def _wake_first(self) -> None:
        for _ in range(_WOKEN_AT_ONCE):
            self._wake_next()

    def _wake_next(self) -> None:
        if self._rising:
            with suppress(IndexError):  # another thread was quicker
                self._rising.popleft().release()


def _resolve_all(futures: "list[asyncio.Future[None]]") -> None:
    """Resolve futures, each in the thread of its loop."""
    tasks: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures:
        tasks.setdefault(future.get_loop(), []).append(future)
    for loop, waiting in tasks.items():
        if loop is _loop_of_this_thread():
            _resolve(waiting)
        else:
            with suppress(RuntimeError):  # the loop was closed, and its tasks with it
                loop.call_soon_threadsafe(_resolve, waiting)


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
