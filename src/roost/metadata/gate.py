"""What waits is ended when its owner is closed: the way in to everything that may take long."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from roost.errors import Closed
from roost.metadata.answers import unanswered

T = TypeVar("T")


class Gate:
    """Lets calls through until it is closed; then they end, those too that are under way."""

    def __init__(self) -> None:
        self._tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed."""
        return self._closed

    async def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call, as long as it takes; who gives up waiting ends it."""
        if self._closed:
            call.close()
            raise closed()
        task = asyncio.get_running_loop().create_task(call)
        self._tasks[task] = None
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            del self._tasks[task]
        if task.cancelled():
            raise closed()
        return task.result()

    async def ask(
        self, call: Coroutine[Any, Any, T], what: str, timeout_s: float, *, changes: bool = False
    ) -> T:
        """Wait for an answer for so long, and say what it means if there is none."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.wait(call)
        except TimeoutError:
            raise unanswered(what, f"within {timeout_s:g} s", changes=changes) from None

    def close(self) -> None:
        """End everything with `Closed`. Closing twice does nothing."""
        self._closed = True
        for task in self._tasks:
            task.cancel()


def closed() -> Closed:
    """Say that nothing is asked any more."""
    return Closed("the metadata store was closed")
