"""An asyncio event loop in virtual time: production code runs on it unchanged.

Each simulated process has a `SimLoop` of its own, as each real one has; all loops of a world
share one `Timeline`: the virtual time, the heap of what is due when, and the list of the loops
that have something to run. Whichever loop is asked to run drives all of them, so the others need
no thread and no turn of their own. A process that is stopped or killed is a loop that is left
out. Time stands still while callbacks run and jumps to the next due instant when none is left.

One seed gives one history. So what the seed may change must be what a program has no right to
rely on:

- *Within one loop, nothing that asyncio promises is reordered.* `call_soon` is first in, first
  out: futures, tasks, locks and queues rely on it. A timer with an earlier deadline runs before
  one with a later deadline.
- *Timers of the same deadline run in random order*: asyncio says that it is undefined.
- *Timers are late*: a loop looks at its timers on a grid of its own (`tick_s`), as a real one
  wakes with the resolution of its selector and only when the machine lets it. All timers that are
  due in one tick run together, in the order of their deadlines.
- *Loops that are ready at the same instant run in random order*, one batch at a time: processes
  run in parallel.
- *What comes from outside* (network, jobs of workers) arrives when its sender says, at random
  among equals, before the timers of the instant.
- *A process that was stopped* finds on its return what arrived meanwhile before its late timers,
  or behind them, or as it came: selectors differ.

Everything else is made to be the same each time: futures and tasks hash by a number, so that sets
of them have an order; garbage is collected at fixed steps, so that `__del__` runs when it did the
last time.

An exception that nobody handles, a deadlock (nothing is ready, no timer runs, the main task waits)
and a livelock (callbacks without end in one instant) fail the run at once.
"""

import asyncio
import gc
import math
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappush
from random import Random
from types import CoroutineType, GeneratorType
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from roost.sim.handles import SimFuture, SimHandle, SimTask, SimTimer
from roost.sim.timeline import Defect, Timeline

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# What typeshed does not show of it.
_BASE: Any = asyncio.BaseEventLoop


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process; whichever of them is run drives all."""

    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self, timeline: Timeline, *, name: str = "main", tick_s: float = 0.0) -> None:
        super().__init__()
        self.timeline = timeline
        self.name = name
        self._tick_s = tick_s
        self._phase_s = timeline.rng.random() * tick_s
        # Where this loop stands in line once it has something ready: among those that are awake,
        # or, while its process is stopped and after its death, where nobody is served.
        self._line: list[Any] = timeline.awake
        self._ready: list[SimHandle | SimTimer] = []
        self._batch: list[SimHandle | SimTimer] = []
        self._ready_when_stopped = 0
        self._remains: list[asyncio.Task[Any]] = []
        self._dead = False
        self.set_task_factory(_numbered_task)  # type: ignore[arg-type]  # it asks for the base
        timeline.loops.append(self)

    def time(self) -> float:
        """Tell the virtual time."""
        return self.timeline.now

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> SimHandle:
        """Stand in line: first in, first out."""
        handle = SimHandle(callback, args, self, copy_context() if context is None else context)
        ready = self._ready
        if not ready:
            self._line.append(self)
        ready.append(handle)
        return handle

    # There are no other threads: who asks to be safe from them gets it for nothing.
    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> SimTimer:
        """Run it once `delay` seconds have passed, and not much later."""
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> SimTimer:
        """Run it at the first tick of this loop at or after `when`."""
        self._check_closed()
        timer = SimTimer(when, callback, args, self, copy_context() if context is None else context)
        instant = max(when, self.timeline.now)
        if self._tick_s:
            ticks = math.ceil((instant - self._phase_s) / self._tick_s)
            instant = max(instant, self._phase_s + ticks * self._tick_s)
        heappush(self.timeline.due, (instant, when, self.timeline.rng.random(), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future whose hash is the same in every run."""
        return SimFuture(loop=self)

    def is_running(self) -> bool:
        """Tell whether this is the loop whose callback runs now."""
        return events._get_running_loop() is self

    def run_forever(self) -> None:
        """Drive all loops of the timeline until this one is asked to stop."""
        collects = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if collects:
                gc.enable()

    def _run_once(self) -> None:
        """Serve the loops batch by batch until this one is asked to stop.

        The price of each of these lines is paid for every callback of a simulation.
        """
        timeline = self.timeline
        due, awake = timeline.due, timeline.awake
        running: Any = self
        try:
            while not self._stopping:
                if not awake or due[0][0] <= timeline.now:
                    timeline.release()
                    if not awake:
                        continue
                loop: Any = awake.pop() if len(awake) == 1 else timeline.pick()
                if loop is not running:
                    events._set_running_loop(loop)
                    running = loop
                loop._batch = batch = loop._ready
                loop._ready = []
                for handle in batch:
                    if not handle._cancelled:
                        try:
                            handle._context.run(handle._callback, *handle._args)
                        except (SystemExit, KeyboardInterrupt):
                            raise
                        except BaseException as error:  # noqa: BLE001 (as asyncio does)
                            loop._escaped(handle, error)
                timeline.callbacks += len(batch)
                # What has run must not keep alive what it refers to.
                batch.clear()
                if timeline.callbacks >= timeline.check_at:
                    timeline.check()
        finally:
            events._set_running_loop(self)

    def suspend(self) -> None:
        """Stop the process as SIGSTOP does: things arrive, but nothing runs."""
        self._leave_line()
        self._ready_when_stopped = len(self._ready)

    def resume(self) -> None:
        """Let the process go on; it finds what arrived meanwhile before or behind its timers."""
        timeline = self.timeline
        self._line = timeline.awake
        if self._ready:
            timeline.awake.append(self)
        late = self._ready[self._ready_when_stopped :]
        match timeline.rng.randrange(3):
            case 0:
                late.sort(key=lambda handle: isinstance(handle, SimTimer))
            case 1:
                late.sort(key=lambda handle: not isinstance(handle, SimTimer))
            case _:
                pass
        self._ready[self._ready_when_stopped :] = late

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs again, no `finally`, no callback.

        If it is in the midst of a callback (the power went out under a write), that one unwinds,
        and whatever it asks of its loop is never done.
        """
        if self._dead:
            return
        self._dead = True
        self._leave_line()
        self._remains = self.tasks()
        self._ready.clear()
        self._batch.clear()

    def close(self) -> None:
        """End for good. What was suspended for ever is unwound here, unseen by the world.

        Python would do it at a time of its own choice, when coroutines are collected, and
        complain about those that wait again.
        """
        if self.is_closed():
            return
        self.kill()
        running = events._get_running_loop()
        events._set_running_loop(self)
        for task in self._remains:
            unwind(task.get_coro())
        events._set_running_loop(running)
        self._remains.clear()
        super().close()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """List the tasks that are not done, oldest first."""
        return sorted(asyncio.all_tasks(self), key=hash)

    def condition(self) -> str:
        """Say what keeps it from running, if anything does."""
        if self._dead:
            return " (dead)"
        return "" if self._line is self.timeline.awake else " (stopped)"

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run: an exception that nobody handles is a defect of the program."""
        if self._dead:
            return
        error = context.get("exception")
        failure = Defect(f"{self.name} at {self.time():.6f} s: {context['message']}: {error!r}")
        failure.__cause__ = error
        self.timeline.fail(failure)

    def run_in_executor(self, *_args: Any) -> NoReturn:  # type: ignore[override]  # no result
        """Refuse: a thread would run in its own time."""
        raise RuntimeError("no threads in the simulator: what blocks is a job for host.tasks")

    async def create_connection(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse: there is no network but the simulated one."""
        raise RuntimeError("no sockets in the simulator: connect with host.net")

    async def create_server(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse: there is no network but the simulated one."""
        raise RuntimeError("no sockets in the simulator: listen with host.net")

    def _timer_handle_cancelled(self, _timer: events.TimerHandle) -> None:
        self.timeline.note_cancelled()

    def _leave_line(self) -> None:
        if self in self.timeline.awake:
            self.timeline.awake.remove(self)
        self._line = []

    def _escaped(self, handle: events.Handle, error: BaseException) -> None:
        self.call_exception_handler({"message": f"exception in {handle!r}", "exception": error})

    # The hooks are those of the loop that drives, a generator belongs to the one that runs.
    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        _BASE._asyncgen_firstiter_hook(_running(self), agen)

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        loop = _running(self)
        if not loop._dead:
            _BASE._asyncgen_finalizer_hook(loop, agen)


def simulate(main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """Run one coroutine function on a loop of its own, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(Timeline(Random(seed)))) as runner:
        return runner.run(main())


def unwind(suspended: object) -> None:
    """Close a coroutine or a generator that will never go on, whatever it says to that."""
    while isinstance(suspended, CoroutineType | GeneratorType):
        try:
            suspended.close()
        except RuntimeError:
            # It waited again in a `finally`; the next time that wait is closed as well.
            continue
        except BaseException:  # noqa: BLE001 (the last words of a program that is dead)
            return
        return


def as_in_a_thread(call: Callable[[], T]) -> T:
    """Call something that sees no event loop, as a thread does not."""
    running = events._get_running_loop()
    events._set_running_loop(None)
    try:
        return call()
    finally:
        events._set_running_loop(running)


def _running(otherwise: SimLoop) -> SimLoop:
    loop = events._get_running_loop()
    return loop if isinstance(loop, SimLoop) else otherwise


def _numbered_task(loop: SimLoop, coro: Any, **options: Any) -> SimTask[Any]:
    return SimTask(coro, loop=loop, number=loop.timeline.next_number(), **options)
