"""An event loop on a thread of its own, and calls into it that wait.

The promise: no call waits longer than it was told to, whatever the loop is doing; a call that gives
up cancels what it had begun; and once the loop is closed nothing of it is left.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from roost.errors import Closed

T = TypeVar("T")

END_S: Final = 10.0
"""How long what is cancelled may take to end."""


class LoopThread:
    """The loop and its thread; any number of threads may call."""

    def __init__(self, name: str) -> None:
        self._loop: Final = uvloop.new_event_loop()
        self._closing: Final = threading.Lock()
        self._closed = False
        # A daemon, so that who forgets to close does not keep the process from ending.
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name=name, daemon=True
        )
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it takes nothing any more."""
        return self._closed

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Have something done there, and give what it returns; `TimeoutError` if it is late."""
        assert threading.current_thread() is not self._thread, "the loop cannot wait for itself"
        if self._closed:
            raise Closed("the cluster was closed here")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            # Out of time, or interrupted: nobody will take what comes of it.
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        future = asyncio.run_coroutine_threadsafe(_end_all(), self._loop)
        try:
            future.result(2 * END_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)
            if not self._thread.is_alive():
                self._loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
