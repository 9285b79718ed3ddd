"""The receiving end for asyncio tasks: as `receiver`, but waiting suspends the task.

The promise: cancelling a receive loses nothing. A message is handed out in the same step in which
the call returns, or it is given back.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, TypeVar

from roost.channel.handle import BATCH_BYTES_MAX, Handle, check_count
from roost.channel.readings import Taken
from roost.errors import Closed

T = TypeVar("T")


class AsyncReceiver(Generic[T]):
    """Receives from a channel in asyncio tasks; any number of them may share one, and compete."""

    __slots__ = ("_handle", "_machine", "_readings", "_standing")

    def __init__(self, handle: Handle[T]) -> None:
        self._handle: Final = handle
        self._machine: Final = handle.machine
        self._readings: Final = handle.machine.readings
        self._standing: Final = handle.machine.standing

    @property
    def name(self) -> str:
        """The receiver's name; handles of the same name share one position."""
        return self._handle.name

    @property
    def id(self) -> int:
        """The receiver's number, unlike that of any other receiver of this channel."""
        return self._handle.id

    @property
    def position(self) -> int:
        """The position of the first message that is not acknowledged."""
        return self._handle.position

    @property
    def unack_count(self) -> int:
        """How many messages were received and not acknowledged."""
        return self._handle.unacknowledged

    async def recv(self, timeout: float | None = None) -> T:
        """Receive the next message, waiting for it; `TimeoutError` if none comes in time."""
        return (await self._wait_for(1, BATCH_BYTES_MAX, timeout))[0]

    async def try_recv(self, default: Any = None) -> T | Any:
        """Receive the next message if it is there; otherwise answer `default`."""
        messages = await self._kept(self._handle.take(1, BATCH_BYTES_MAX))
        return messages[0] if messages else default

    async def recv_many(
        self, count_max: int, timeout: float | None = None, *, bytes_max: int = BATCH_BYTES_MAX
    ) -> list[T]:
        """Receive what is there, up to `count_max` messages, waiting for the first."""
        check_count(count_max)
        return await self._wait_for(count_max, max(1, bytes_max), timeout)

    async def _wait_for(self, count_max: int, bytes_max: int, timeout: float | None) -> list[T]:
        async with asyncio.timeout(timeout):
            while True:
                turn = self._machine.arrivals.turn
                messages = await self._kept(self._handle.take(count_max, bytes_max))
                if messages:
                    return messages
                self._standing.check_arriving()
                await self._machine.arrivals.wait_async(self._handle.awaited, turn=turn)

    async def _kept(self, taken: Taken) -> list[T]:
        """Wait until the position is as durable as the mode promises, or give all back."""
        if taken.kept:
            try:
                await self._wait_kept(taken.kept)
            except asyncio.CancelledError:
                # Durably, since the position that passes these messages may be durable by now.
                await self._wait_kept(self._handle.give_back(taken))
                raise
            except BaseException:
                self._handle.give_back(taken)
                raise
        elif taken.payloads:
            self._readings.after_receive()
        messages = self._handle.received(taken)
        if taken.deliveries:
            self._handle.arrived(taken)
        return messages

    async def _wait_kept(self, kept: int) -> None:
        marks = self._readings.marks
        while marks.group.durable < kept:
            self._standing.check_settling("the position")
            if not marks.group.busy:
                marks.request()
            await self._readings.kept.wait_async(kept)

    async def __aiter__(self) -> AsyncIterator[T]:
        """Receive for ever, until the channel or this handle is closed."""
        while True:
            try:
                message = await self.recv()
            except Closed:
                return
            yield message

    def peek(self, default: Any = None) -> T | Any:
        """Look at the next message without receiving it; `default` if there is none."""
        seen = self._handle.peek(1)
        return seen[0] if seen else default

    def peek_many(self, count_max: int) -> list[T]:
        """Look at the next messages without receiving them."""
        return self._handle.peek(count_max)

    async def ack(self, count: int = 1) -> None:
        """Acknowledge the `count` oldest messages received: they do not come again."""
        kept = self._handle.acknowledge(count)
        if kept:
            await self._wait_kept(kept)
        else:
            self._readings.after_receive()

    def skip_corrupt(self) -> int:
        """Go on behind the damage at the position; answer how many bytes are passed over."""
        return self._handle.skip()

    def close(self) -> None:
        """Let go of this handle. What was not acknowledged comes again to the next one."""
        self._handle.close()
