"""A storage node as its clients see it.

One connection, used by any number of tasks at once. Adds are pipelined: `start_add` costs no future
and no task, and its sink hears the outcome; `add` is the same for who has just one. What comes back
is checked from its first to its last byte: the checksum of an entry is that of the client who made
it. A connection that was lost is not made again here, since only the caller knows what that means
for what was under way.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec

from roost.errors import RoostError, Unavailable
from roost.rpc.client import Connection
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId
from roost.wire import messages
from roost.wire.entry import BadEntry, check_at
from roost.wire.frame import Frame
from roost.wire.kernel import payloads
from roost.wire.messages import (
    LEDGERS_MAX,
    READ_BYTES_MAX,
    RECOVERY,
    Entries,
    LedgerState,
    NodeStat,
    Placed,
    VerifyReport,
    decode,
    encode,
    encode_add,
)
from roost.wire.sink import Sink

T = TypeVar("T")


class Batch(msgspec.Struct, frozen=True):
    """What a node has of the ids [first, before): found, suspect, or else absent."""

    first: EntryId
    before: EntryId
    found: dict[EntryId, memoryview]
    """The payloads of the entries that are there and whole."""

    suspects: list[EntryId]
    lac: EntryId
    last: EntryId | None
    fenced: Epoch | None


class NodeClient:
    """The requests of one connection to a node."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Final = connection

    # Adding

    def start_add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        payload: bytes | memoryview,
        *,
        epoch: Epoch,
        lac: EntryId,
        sink: Sink,
        tag: int,
        recovery: bool = False,
    ) -> None:
        """Send an entry; `sink` hears by `tag` what became of it. The payload must not change."""
        flags = RECOVERY if recovery else 0
        self.connection.add_entry(flags, epoch, lac, ledger, entry, payload, sink, tag)

    def start_add_block(
        self,
        block: bytes | memoryview,
        *,
        epoch: Epoch,
        lac: EntryId,
        sink: Sink,
        tag: int,
        recovery: bool = False,
    ) -> None:
        """Send an entry in the form in which another node had it."""
        flags = RECOVERY if recovery else 0
        self.connection.add(encode_add(epoch, lac), (block,), sink, tag, flags)

    async def add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        payload: bytes | memoryview,
        *,
        epoch: Epoch,
        lac: EntryId = NO_ENTRY,
        recovery: bool = False,
    ) -> None:
        """Store one entry; it is durable when this returns."""
        outcome = Outcome()
        self.start_add(
            ledger,
            entry,
            payload,
            epoch=epoch,
            lac=lac,
            sink=outcome,
            tag=0,
            recovery=recovery,
        )
        await outcome.wait()

    # Reading

    async def read(
        self,
        ledger: LedgerId,
        first: EntryId,
        upto: EntryId,
        *,
        bytes_max: int = READ_BYTES_MAX,
        fence: Epoch | None = None,
        wait_s: float = 0.0,
        lac: EntryId | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Read what a node has of [first, upto], piece by piece, each checked.

        Who leaves early closes it (`contextlib.aclosing`), and the node sends no more.
        """
        read = messages.Read(
            ledger=ledger,
            first=first,
            upto=upto,
            bytes_max=bytes_max,
            fence=fence,
            wait_s=wait_s,
            lac=lac,
        )
        with self.connection.stream(messages.READ, encode(read)) as frames:
            async for frame in frames:
                yield _batch(ledger, frame)

    async def read_one(
        self, ledger: LedgerId, entry: EntryId, *, fence: Epoch | None = None
    ) -> Batch:
        """Read one entry."""
        async with aclosing(self.read(ledger, entry, entry, fence=fence)) as batches:
            async for batch in batches:
                return batch
        raise Unavailable(f"the node answered nothing about entry {entry} of ledger {ledger}")

    # Everything else

    async def state(self, ledger: LedgerId) -> LedgerState:
        """Ask how a ledger is."""
        body = encode(messages.State(ledger=ledger))
        return await self._ask(messages.STATE, body, LedgerState)

    async def fence(self, ledger: LedgerId, epoch: Epoch) -> LedgerState:
        """Have a ledger's writer refused for good."""
        body = encode(messages.Fence(ledger=ledger, epoch=epoch))
        return await self._ask(messages.FENCE, body, LedgerState)

    async def close_ledger(self, ledger: LedgerId, last: EntryId) -> LedgerState:
        """Close a ledger for good."""
        body = encode(messages.Close(ledger=ledger, last=last))
        return await self._ask(messages.CLOSE, body, LedgerState)

    async def delete(self, ledger: LedgerId) -> None:
        """Delete a ledger."""
        await self.connection.call(messages.DELETE, encode(messages.Delete(ledger=ledger)))

    async def confirm(self, ledger: LedgerId, epoch: Epoch, lac: EntryId) -> None:
        """Tell up to where all is durable, when there is no entry to say it with."""
        body = encode(messages.Confirm(ledger=ledger, epoch=epoch, lac=lac))
        await self.connection.call(messages.CONFIRM, body)

    async def place(self, place: messages.Place) -> Placed:
        """Have a node copy entries from others."""
        return await self._ask(messages.PLACE, encode(place), Placed)

    async def ledgers(self) -> AsyncIterator[LedgerState]:
        """List all ledgers, in the order of their ids."""
        after = LedgerId(-1)
        while True:
            body = encode(messages.List(after=after, limit=LEDGERS_MAX))
            page = await self._ask(messages.LIST, body, messages.Ledgers)
            for state in page.states:
                yield state
            if len(page.states) < LEDGERS_MAX:
                return
            after = page.states[-1].ledger

    async def stat(self) -> NodeStat:
        """Ask how the node is."""
        return await self._ask(messages.STAT, b"", NodeStat)

    async def verify(self, ledger: LedgerId) -> VerifyReport:
        """Have every entry of a ledger checked."""
        body = encode(messages.Verify(ledger=ledger))
        return await self._ask(messages.VERIFY, body, VerifyReport)

    async def _ask(self, kind: int, body: bytes, answer: type[T]) -> T:
        frame = await self.connection.call(kind, body)
        return decode(frame.body, answer)


class Outcome:
    """A sink for one add, to be waited for."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stored(self, tag: int) -> None:  # noqa: ARG002 (it is a sink)
        """Note that the add is durable."""
        if not self._done.done():
            self._done.set_result(None)

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (it is a sink)
        """Note why it is not."""
        if not self._done.done():
            self._done.set_exception(error)

    def settle(self) -> None:
        """Nothing to do: there is only one."""

    async def wait(self) -> None:
        """Wait for either."""
        await self._done


def _batch(ledger: LedgerId, frame: Frame) -> Batch:
    """Take the entries out of an answer, each checked."""
    entries = decode(frame.body, Entries)
    found = payloads(frame.blob, ledger, entries.first, entries.before)
    if found is None:
        error = _what_is_wrong(ledger, entries, frame.blob)
        raise Unavailable(
            f"what the node sent of ledger {ledger} does not hold: {error}; ask another replica"
        )
    return Batch(
        first=entries.first,
        before=entries.before,
        found=found,
        suspects=entries.suspects,
        lac=entries.lac,
        last=entries.last,
        fenced=entries.fenced,
    )


def _what_is_wrong(ledger: LedgerId, entries: Entries, blob: bytes | memoryview) -> str:
    """Say which block of an answer is not good, or does not belong there."""
    at = 0
    try:
        while True:
            of_ledger, entry, at = check_at(blob, at)
            if of_ledger != ledger or not entries.first <= entry < entries.before:
                return f"entry {entry} of ledger {of_ledger} was not asked for"
    except BadEntry as error:
        return str(error)
