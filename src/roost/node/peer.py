"""Copies entries from other nodes: how a replica is made or mended.

Each entry is written as recovery writes: journaled, and durable before it counts. What is here
already, with the same bytes, costs no more than a look, so a copy that was interrupted is simply
asked for again. An entry that one source lacks, or cannot vouch for, is asked of the next one.
While writers have to wait, so does a copy.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from roost.errors import RoostError
from roost.host.log import Log
from roost.host.net import Address, Net
from roost.node.client import Batch, NodeClient
from roost.node.identity import Identity
from roost.node.ledgers import Add
from roost.node.store import Store
from roost.rpc.client import Connection
from roost.types import NO_ENTRY, EntryId, LedgerId
from roost.wire.entry import encode_entry
from roost.wire.messages import BAD_ENTRIES_MAX, PROTOCOL_VERSION, Hello, Place, Placed

CONNECT_S: Final = 10.0
PIECE_ENTRIES: Final = 1024
"""How many ids are asked for at a time; as many are under way at most."""

BATCHES_UNDER_WAY: Final = 8
"""How many of a source's pieces, each of a MiB or one entry, wait for the disk at once."""


class Peers:
    """The other nodes, as far as this one copies from them."""

    def __init__(self, store: Store, identity: Identity, net: Net, log: Log) -> None:
        self._store: Final = store
        self._identity: Final = identity
        self._net: Final = net
        self._log: Final = log

    async def place(self, place: Place) -> Placed:
        """Copy what is asked for; tells what no source has."""
        copy = _Copy(self._store, place)
        for source in place.sources:
            if not copy.wanted_total:
                break
            address = Address.parse(source)
            try:
                await self._copy_from(address, copy)
            except _SourceFailed as error:
                self._log.event(
                    "source_failed",
                    level="warning",
                    ledger=place.ledger,
                    source=source,
                    error=str(error),
                )
        return copy.placed()

    async def _copy_from(self, address: Address, copy: "_Copy") -> None:
        hello = Hello(
            version=PROTOCOL_VERSION,
            cluster=self._identity.cluster,
            role="node",
            name=self._identity.node,
        )
        try:
            connection = await Connection.open(self._net, address, hello, timeout_s=CONNECT_S)
        except RoostError as error:
            raise _SourceFailed(str(error)) from error
        try:
            await copy.copy_from(NodeClient(connection))
        finally:
            await connection.close()


class _Copy:
    """One copy that is under way: what is still wanted, as spans of ids."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store: Final = store
        self._place: Final = place
        self._wanted = [(place.first, EntryId(place.upto + 1))]
        self._entries = 0
        self._bytes = 0

    @property
    def wanted_total(self) -> int:
        """Count the ids that are still wanted."""
        return sum(before - first for first, before in self._wanted)

    def placed(self) -> Placed:
        """Tell what was copied."""
        missing = [
            EntryId(entry) for first, before in self._wanted for entry in _some(first, before)
        ]
        return Placed(
            ledger=self._place.ledger,
            entries=self._entries,
            bytes=self._bytes,
            missing=missing[:BAD_ENTRIES_MAX],
            missing_total=self.wanted_total,
        )

    async def copy_from(self, source: NodeClient) -> None:
        """Copy as much of what is wanted as a source has."""
        spans, self._wanted = self._wanted, []
        try:
            while spans:
                first, before = spans.pop(0)
                stop = EntryId(min(before, first + PIECE_ENTRIES))
                if stop < before:
                    spans.insert(0, (stop, before))
                missing = {EntryId(entry) for entry in range(first, stop)}
                try:
                    await self._copy_piece(source, first, stop, missing)
                finally:
                    self._wanted += _spans(missing)
        finally:
            self._wanted = _joined([*self._wanted, *spans])

    async def _copy_piece(
        self, source: NodeClient, first: EntryId, before: EntryId, missing: set[EntryId]
    ) -> None:
        ledger = self._place.ledger
        while first < before:
            asked_from = first
            adding: deque[tuple[Batch, _Group]] = deque()
            # An answer has so many bytes at most: what comes behind them is asked for again.
            async with aclosing(_reading(source, ledger, first, before)) as batches:
                async for batch in batches:
                    # While some batches are on their way to the disk, and share its syncs, more
                    # are fetched.
                    await self._store.eased()
                    adding.append((batch, self._start(batch)))
                    if len(adding) > BATCHES_UNDER_WAY:
                        await self._finish(*adding.popleft(), missing)
                    first = batch.before
            for each in adding:
                await self._finish(*each, missing)
            if first <= asked_from:
                raise _SourceFailed(f"it says nothing of entry {first}")

    def _start(self, batch: Batch) -> "_Group":
        ledger = self._place.ledger
        group = _Group(len(batch.found))
        for entry, payload in batch.found.items():
            self._store.add(
                Add(
                    ledger=ledger,
                    entry=entry,
                    epoch=self._place.epoch,
                    lac=NO_ENTRY,
                    block=encode_entry(ledger, entry, payload),
                    recovery=True,
                    sink=group,
                    tag=entry,
                )
            )
        return group

    async def _finish(self, batch: Batch, group: "_Group", missing: set[EntryId]) -> None:
        await group.wait()
        missing.difference_update(batch.found)
        self._entries += len(batch.found)
        self._bytes += sum(map(len, batch.found.values()))


class _SourceFailed(Exception):
    """A source cannot be asked, or refuses to answer: another one may do better."""


async def _reading(
    source: NodeClient, ledger: LedgerId, first: EntryId, before: EntryId
) -> AsyncGenerator[Batch, None]:
    """Read from a source; what it has against it says nothing about this node."""
    async with aclosing(source.read(ledger, first, EntryId(before - 1))) as batches:
        while True:
            try:
                batch = await anext(batches)
            except StopAsyncIteration:
                return
            except RoostError as error:
                raise _SourceFailed(str(error)) from error
            yield batch


class _Group:
    """A sink for adds that are waited for together."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._error: RoostError | None = None
        self._done = asyncio.Event()
        self._look()

    def stored(self, tag: int) -> None:  # noqa: ARG002 (it is a sink)
        self._left -= 1
        self._look()

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (it is a sink)
        self._left -= 1
        self._error = self._error or error
        self._look()

    def settle(self) -> None:
        pass

    def _look(self) -> None:
        if not self._left:
            self._done.set()

    async def wait(self) -> None:
        """Wait for all; raises the first error."""
        await self._done.wait()
        if self._error is not None:
            raise self._error


def _some(first: EntryId, before: EntryId) -> Iterable[int]:
    return range(first, min(before, first + BAD_ENTRIES_MAX))


def _spans(entries: Iterable[EntryId]) -> list[tuple[EntryId, EntryId]]:
    return _joined([(entry, EntryId(entry + 1)) for entry in entries])


def _joined(spans: list[tuple[EntryId, EntryId]]) -> list[tuple[EntryId, EntryId]]:
    """Put spans in order, and make one of those that touch."""
    joined: list[tuple[EntryId, EntryId]] = []
    for first, before in sorted(spans):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], before)
        else:
            joined.append((first, before))
    return joined
