"""Callbacks in line, futures and tasks: what asyncio makes for each step, lean and with an order.

Futures and tasks hash by a number, so that sets of them (those of a TaskGroup, of `asyncio.wait`)
are gone through in the same order in every run; by default it would hang on addresses in memory.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class SimHandle(events.Handle):
    """A callback in line; one is built for every step, so it holds what a step needs."""

    __slots__ = ()
    # What asyncio's handle keeps for its debug mode is the same for all of these.
    _source_traceback = None
    _repr = None
    _callback: Any
    _args: Any
    _context: Context
    _loop: Any

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        """Take it out of line."""
        self._cancelled = True
        self._callback = self._args = None


class SimTimer(events.TimerHandle):
    """A callback with a deadline."""

    __slots__ = ()
    _source_traceback = None
    _repr = None
    _callback: Any
    _args: Any
    _context: Context
    _loop: Any

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        """Let it never run; its place in the heap is cleared later."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            self._loop._timer_handle_cancelled(self)


class SimFuture(asyncio.Future[T]):
    """A future; it gets its number when somebody wants its hash, which is seldom."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = self.get_loop().timeline.next_number()  # type: ignore[attr-defined]  # its own loop
        return self._number


class SimTask(asyncio.Task[T]):
    """A task; asyncio puts each into a set at once."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        number: int,
        name: str | None = None,
        **options: Any,
    ) -> None:
        self._number = number
        super().__init__(coro, name=name or f"task-{number}", **options)

    def __hash__(self) -> int:
        return self._number
