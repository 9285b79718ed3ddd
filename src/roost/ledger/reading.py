"""Reads a ledger, open or closed: carries out what `read` decides, and waits for what comes next.

A reader sees entries in order and without a gap, and never one that may still vanish: of an open
ledger up to the highest LAC that any node has told, of a closed one up to its end.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from roost.errors import NotFound, RoostError, Unavailable
from roost.host.clock import Clock
from roost.host.log import Log
from roost.host.random import Rng
from roost.ledger.nodes import Nodes
from roost.ledger.read import (
    Ask,
    Done,
    Effect,
    Failed,
    Fault,
    Horizon,
    Latencies,
    RangeRead,
)
from roost.ledger.records import Records
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.node.client import NodeClient
from roost.types import EntryId, LedgerId, NodeId

FIRST: Final = EntryId(0)
FAULTS_MAX: Final = 1000
READ_BYTES: Final = 4 << 20
READ_ENTRIES: Final = 4096
PAUSE_S: Final = 0.05
POLL_S: Final = 5.0
"""How long one node is asked for news before the metadata is looked at, and another node asked."""


class Piece(msgspec.Struct, frozen=True):
    """Some entries, in order, the first of which has the id `first`."""

    first: EntryId
    payloads: tuple[bytes | memoryview, ...]

    @property
    def before(self) -> EntryId:
        """The id behind the last one."""
        return EntryId(self.first + len(self.payloads))


class LedgerReader:
    """One ledger, for who reads it."""

    def __init__(
        self,
        document: LedgerDocument,
        *,
        nodes: Nodes,
        records: Records,
        clock: Clock,
        rng: Rng,
        log: Log,
    ) -> None:
        self.ledger: Final[LedgerId] = document.ledger
        self.document = document
        """The ledger's document, as of the last look."""
        self.faults: Final[list[Fault]] = []
        """What nodes turned out not to have; the newest `FAULTS_MAX`."""
        self._nodes: Final = nodes
        self._records: Final = records
        self._clock: Final = clock
        self._rng: Final = rng
        self._log: Final = log
        self._horizon: Final = Horizon()
        self._latencies: Final = Latencies()
        self._looked_at = clock.now()
        self._horizon.on_document(document)

    @property
    def upto(self) -> EntryId:
        """The last entry that may be read, as far as is known."""
        return self._horizon.upto

    @property
    def closed(self) -> bool:
        """Whether it has an end, as far as is known."""
        return self._horizon.closed

    async def refresh(self) -> None:
        """Look at the metadata, and ask the nodes of the last fragment for their LAC."""
        await self._look()
        if not self._horizon.closed:
            await asyncio.gather(*map(self._ask_lac, self.document.fragments[-1].nodes))

    async def _look(self) -> None:
        self.document = (await self._records.read(self.ledger)).document
        self._looked_at = self._clock.now()
        if self.document.phase is LedgerPhase.DELETED:
            raise NotFound(f"ledger {self.ledger} was deleted")
        self._horizon.on_document(self.document)

    async def _ask_lac(self, node: NodeId) -> None:
        try:
            async with asyncio.timeout(self._nodes.patience.call_s):
                state = await (await self._nodes.connect(node)).state(self.ledger)
        except (RoostError, TimeoutError):
            return
        self._horizon.on_lac(state.lac)

    async def read(
        self, first: EntryId, *, bytes_max: int = READ_BYTES, timeout_s: float = 30.0
    ) -> Piece:
        """Read what may be read from `first` on, as much as comes at once: none if nothing may.

        `Unavailable` if no node that answers has the first entry whole.
        """
        if first > self._horizon.upto:
            return Piece(first, ())
        upto = min(self._horizon.upto, first + READ_ENTRIES - 1)
        fragments = self.document.fragments
        index = fragments.index(self.document.fragment_of(first))
        if index + 1 < len(fragments):
            upto = min(upto, fragments[index + 1].first - 1)
        order = [*fragments[index].nodes]
        self._rng.shuffle(order)
        order.sort(key=lambda node: self._nodes.connected(node) is None)
        machine = RangeRead(self.document, first, EntryId(upto), order=order)
        try:
            async with asyncio.timeout(timeout_s):
                return Piece(first, await _Reading(self, machine, bytes_max).run())
        except Unavailable:
            # The ensemble may be another by now.
            if self._horizon.closed:
                raise
            before = self.document
            await self._look()
            if self.document == before:
                raise
            return Piece(first, ())

    async def read_all(
        self, first: EntryId = FIRST, *, timeout_s: float = 30.0
    ) -> AsyncIterator[Piece]:
        """Read from `first` to the last entry that may be read now."""
        while first <= self._horizon.upto:
            piece = await self.read(first, timeout_s=timeout_s)
            first = piece.before
            yield piece

    async def wait(self, known: EntryId, *, timeout_s: float) -> bool:
        """Wait until more than `known` may be read, or the ledger is closed; tells whether."""
        deadline = self._clock.now() + timeout_s
        turn = self._rng.randrange(len(self.document.fragments[-1].nodes))
        while self._horizon.upto <= known and not self._horizon.closed:
            left_s = deadline - self._clock.now()
            if left_s <= 0:
                return False
            nodes = self.document.fragments[-1].nodes
            turn = (turn + 1) % len(nodes)
            asked = await self._poll(nodes[turn], known, min(left_s, POLL_S))
            if not asked:
                await asyncio.sleep(min(left_s, PAUSE_S))
            # Who is there and has no news for so long may have been replaced.
            if self._horizon.upto <= known and (asked or self._looked_ago() > POLL_S):
                await self._look()
        return True

    def _looked_ago(self) -> float:
        return self._clock.now() - self._looked_at

    async def _poll(self, node: NodeId, known: EntryId, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s + self._nodes.patience.call_s):
                client = await self._nodes.connect(node)
                reading = client.read(
                    self.ledger,
                    EntryId(known + 1),
                    EntryId(known + 1),
                    bytes_max=0,
                    wait_s=wait_s,
                    lac=known,
                )
                async with aclosing(reading) as batches:
                    async for batch in batches:
                        self._horizon.on_lac(batch.lac)
        except (RoostError, TimeoutError):
            return False
        return True

    # What one read needs

    async def ask(self, ask: Ask, bytes_max: int, take: "_Reading") -> None:
        """Ask a node for a range, and hand on what it says."""
        begin = self._clock.now()
        client: NodeClient | None = None
        try:
            async with asyncio.timeout(self._nodes.patience.call_s):
                client = await self._nodes.connect(ask.node)
                reading = client.read(self.ledger, ask.first, ask.upto, bytes_max=bytes_max)
                async with aclosing(reading) as batches:
                    async for batch in batches:
                        self._horizon.on_lac(batch.lac)
                        take.on_batch(ask.node, batch.first, batch.before, batch)
        except NotFound:
            take.on_nothing(ask)
        except (RoostError, TimeoutError) as error:
            if client is not None and isinstance(error, TimeoutError):
                self._nodes.drop(client)
            take.on_failed(ask.node)
            return
        self._latencies.note(self._clock.now() - begin)
        take.on_end(ask.node)

    def slow_after_s(self) -> float:
        """Tell after which time others are asked, too."""
        return self._latencies.slow_after_s()

    def fault(self, fault: Fault) -> None:
        """Note that a node does not have what it should have."""
        self._log.event(
            "copy_missing",
            level="warning",
            ledger=self.ledger,
            node=fault.node,
            entry=fault.entry,
            ill=fault.ill.value,
        )
        self.faults.append(fault)
        del self.faults[:-FAULTS_MAX]


class _Reading:
    """One read that is under way."""

    def __init__(self, reader: LedgerReader, machine: RangeRead, bytes_max: int) -> None:
        self._reader: Final = reader
        self._machine: Final = machine
        self._bytes_max: Final = bytes_max
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._done: Final[asyncio.Future[tuple[bytes | memoryview, ...]]] = (
            asyncio.get_running_loop().create_future()
        )

    async def run(self) -> tuple[bytes | memoryview, ...]:
        """Read; `Unavailable` if nobody has the first entry."""
        try:
            self._perform(self._machine.start())
            try:
                async with asyncio.timeout(self._reader.slow_after_s()):
                    return await asyncio.shield(self._done)
            except TimeoutError:
                self._perform(self._machine.on_slow())
            return await self._done
        finally:
            self._done.cancel()
            for task in [*self._tasks]:
                task.cancel()

    def on_batch(self, node: NodeId, first: EntryId, before: EntryId, batch: Any) -> None:
        """Hear what a node has."""
        self._perform(self._machine.on_batch(node, first, before, batch.found, batch.suspects))

    def on_nothing(self, ask: Ask) -> None:
        """Hear that a node does not know the ledger."""
        before = EntryId(ask.upto + 1)
        self._perform(self._machine.on_batch(ask.node, ask.first, before, {}, ()))

    def on_end(self, node: NodeId) -> None:
        """Hear that this was all."""
        self._perform(self._machine.on_read_end(node))

    def on_failed(self, node: NodeId) -> None:
        """Hear that a node cannot be asked."""
        self._perform(self._machine.on_failed(node))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Ask():
                    self._spawn(self._reader.ask(effect, self._bytes_max, self))
                case Fault():
                    self._reader.fault(effect)
                case Done(payloads):
                    self._settle(payloads)
                case Failed(_, why):
                    self._settle(Unavailable(f"ledger {self._reader.ledger}: {why}"))

    def _settle(self, result: tuple[bytes | memoryview, ...] | RoostError) -> None:
        if self._done.done():
            return
        if isinstance(result, RoostError):
            self._done.set_exception(result)
        else:
            self._done.set_result(result)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._done.done():
            return
        if (error := task.exception()) is not None:
            self._done.set_exception(error)
