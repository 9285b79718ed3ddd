"""What one end of a connection sends: gathered, and handed to the transport once a loop turn.

A write costs a system call, whatever is in it; so everything that is sent in one turn of the loop
goes out together. Small pieces are joined, since that is cheaper than a list of them in any loop;
large ones are handed on as they are, and nobody may change them afterwards.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

LARGE_BYTES: Final = 8 << 10
"""From this size on a piece is not copied any more (uvloop, 100 B to 1 MiB, on two machines)."""


ENOUGH_BYTES: Final = 32 << 10
"""So much is not held back until the turn ends: the other side may begin with it meanwhile."""


class Output:
    """Gathers what is to be sent on one connection."""

    def __init__(
        self, *, output_bytes_max: int, about_to: Callable[[], None] | None = None
    ) -> None:
        self.pieces: list[bytes | memoryview] = []
        """What goes out with this turn. Whoever appends calls `soon` too."""

        self.paused = False
        """Whether the transport holds as much as it should."""

        self._output_bytes_max = output_bytes_max
        # Called before what is gathered goes out, for whoever gathers in a shorter way.
        self._about_to = about_to
        self._transport: asyncio.Transport | None = None
        self._large = False
        self._gathered_bytes = 0
        self._scheduled = False
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self, transport: asyncio.Transport) -> None:
        """Send there from now on."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        transport.set_write_buffer_limits(high=self._output_bytes_max)

    def end(self) -> None:
        """Send no more: everything is dropped, and nobody waits."""
        self._transport = None
        self.pieces.clear()
        self._wake()

    def add(self, head: bytes, blob: Sequence[bytes | memoryview], blob_bytes: int) -> None:
        """Send a frame."""
        pieces = self.pieces
        pieces.append(head)
        if blob:
            pieces.extend(blob)
            self._gathered_bytes += blob_bytes
            if blob_bytes >= LARGE_BYTES:
                self._large = True
            if self._gathered_bytes >= ENOUGH_BYTES and self._transport is not None:
                self.flush()
                return
        if not self._scheduled:
            self.soon()

    def gather(self) -> None:
        """Hold back what comes now: whoever says so calls `flush` before this turn ends."""
        self._scheduled = True

    def soon(self) -> None:
        """See that what is gathered goes out with this turn."""
        if not self._scheduled and self._transport is not None:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand over what is gathered."""
        if self._about_to is not None:
            self._about_to()
        self._scheduled = False
        pieces = self.pieces
        transport = self._transport
        if transport is None:
            pieces.clear()
        elif pieces:
            if self._large:
                transport.writelines(joined(pieces))
            else:
                transport.write(b"".join(pieces))
            pieces.clear()
        self._large = False
        self._gathered_bytes = 0

    def pause(self) -> None:
        """Hear from the transport that it holds enough."""
        self.paused = True

    def resume(self) -> None:
        """Hear from the transport that it has sent most of it."""
        self.paused = False
        self._wake()

    async def drained(self) -> None:
        """Wait until there is room for more; returns at once when the connection is lost."""
        if self._gathered_bytes >= self._output_bytes_max:
            self.flush()
        while self.paused and self._transport is not None:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


def joined(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Join what is small between what is large."""
    made: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < LARGE_BYTES:
            small.append(piece)
            continue
        if small:
            made.append(b"".join(small))
            small = []
        made.append(piece)
    if small:
        made.append(b"".join(small))
    return made
