"""What waits is ended when its owner is closed: the way in to everything that may take long."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from roost.errors import Closed
from roost.metadata.answers import unanswered

T = TypeVar("T")


class Gate:
    """Lets calls through until it is closed; then they end, those too that are under way.

    What lies behind another gate is closed with that one.
    """

    def __init__(self, behind: "Gate | None" = None) -> None:
        self._tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self._inner: Final[dict[Gate, None]] = {}
        self._behind: Final = behind
        self._closed = behind is not None and behind.is_closed
        if behind is not None and not self._closed:
            behind.adopt(self)

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
        for gate in list(self._inner):
            gate.close()
        if self._behind is not None:
            self._behind.forget(self)

    # What gates say to each other.

    def adopt(self, inner: "Gate") -> None:
        """Close another one, too."""
        self._inner[inner] = None

    def forget(self, inner: "Gate") -> None:
        """Hear that it is closed."""
        self._inner.pop(inner, None)


def closed() -> Closed:
    """Say that nothing is asked any more."""
    return Closed("the metadata store was closed")
