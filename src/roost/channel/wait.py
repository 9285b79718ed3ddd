"""Waiting for a position to be reached, from threads and from asyncio tasks alike.

A waiter registers, looks once more whether what it waits for has come, and only then sleeps;
who moves the position moves it first and wakes after. So no wake-up is lost, though neither
side holds the channel's lock. Who wakes everybody, because something else than the position has
changed, raises `turn`: a waiter that read it before it looked goes and looks again.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_Entry = tuple[int, "threading.Lock | asyncio.Future[None]"]


class Waiters:
    """Those who wait until `reached()` has come to their position, or until all are woken.

    The queue is nearly in order, since positions only grow. A waiter that stands behind one of
    a higher position is woken with that one at the latest: what is written gets synced.
    """

    def __init__(self, reached: Callable[[], int]) -> None:
        self._reached: Final = reached
        self._guard: Final = threading.Lock()
        self.queue: Final[deque[_Entry]] = deque()
        self.turn = 0
        self._over = False

    def wait(self, upto: int, timeout_s: float | None, *, turn: int | None = None) -> bool:
        """Block this thread until `upto` is reached, all are woken, or the time is over."""
        lock = threading.Lock()
        lock.acquire()
        entry: _Entry = (upto, lock)
        self.queue.append(entry)
        try:
            if self._ready(upto, turn):
                return True
            return lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, 1e6))
        finally:
            self._forget(entry)

    async def wait_async(self, upto: int, *, turn: int | None = None) -> None:
        """Suspend this task until `upto` is reached or all are woken."""
        future = asyncio.get_running_loop().create_future()
        entry: _Entry = (upto, future)
        self.queue.append(entry)
        if self._ready(upto, turn):
            self._forget(entry)
            return
        try:
            await future
        except asyncio.CancelledError:
            self._forget(entry)
            raise

    def _ready(self, upto: int, turn: int | None) -> bool:
        return self._over or turn not in (None, self.turn) or self._reached() >= upto

    def _forget(self, entry: _Entry) -> None:
        with self._guard:
            if entry in self.queue:
                self.queue.remove(entry)

    def wake(self) -> None:
        """Wake those whose position has been reached."""
        reached = self._reached()
        ready: list[_Entry] = []
        with self._guard:
            while self.queue and self.queue[0][0] <= reached:
                ready.append(self.queue.popleft())
        _release(ready)

    def finish(self) -> None:
        """Wake everybody for good: the channel failed or was closed."""
        self._over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake everybody, to look again."""
        with self._guard:
            self.turn += 1
            ready = list(self.queue)
            self.queue.clear()
        _release(ready)


def _release(ready: list[_Entry]) -> None:
    tasks: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, waiter in ready:
        if isinstance(waiter, asyncio.Future):
            tasks.setdefault(waiter.get_loop(), []).append(waiter)
        else:
            waiter.release()
    for loop, futures in tasks.items():
        if loop is _loop_of_this_thread():
            _resolve(futures)
        else:
            with suppress(RuntimeError):  # the loop was closed, and its tasks with it
                loop.call_soon_threadsafe(_resolve, futures)


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
