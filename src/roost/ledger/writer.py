"""Writes one ledger: carries out what `append` decides, over connections that come and go.

`append` takes an entry at once, or refuses it at once, and gives a future of its id; futures come
true in the order of the ids. Nothing is sent twice by accident and nothing is taken back: what has
become of an entry when its writer ends, and was not confirmed, nobody here knows, and its future
says so by `Unknown`.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from roost.errors import Conflict, RoostError, Unknown
from roost.host.clock import Clock
from roost.host.log import Log
from roost.ledger.append import (
    Appender,
    AppendSettings,
    ChangeFragments,
    Close,
    Confirmed,
    Disconnect,
    Effect,
    FindSpares,
    Overdue,
    Stopped,
    TellLac,
    Write,
)
from roost.ledger.ending import tell_nodes_closed
from roost.ledger.nodes import Nodes
from roost.ledger.records import Records, Versioned
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.node.client import NodeClient
from roost.types import EntryId, LedgerId, NodeId

RECONNECT_S: Final = 0.25
LOOK_S: Final = 0.25
"""How long a deadline may be missed that came nearer meanwhile."""


class LedgerWriter:
    """The one writer of a ledger that was just made."""

    def __init__(
        self,
        made: Versioned,
        *,
        nodes: Nodes,
        records: Records,
        clock: Clock,
        settings: AppendSettings,
        log: Log,
    ) -> None:
        self.ledger: Final[LedgerId] = made.document.ledger
        self._versioned = made
        self._nodes: Final = nodes
        self._records: Final = records
        self._clock: Final = clock
        self._log: Final = log
        self._appender: Final = Appender(made.document, settings)
        self._links: Final[dict[NodeId, _Link]] = {}
        self._waiting: Final[deque[tuple[EntryId, asyncio.Future[EntryId]]]] = deque()
        self._effects: Final[deque[Effect]] = deque()
        self._performing = False
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._news: Final = asyncio.Event()
        self._room: Final = asyncio.Event()
        self._ended: Final = asyncio.Event()

    async def start(self) -> None:
        """Connect to the ensemble; what cannot be reached counts as failed from the start."""
        await asyncio.gather(*map(self._join, self._appender.nodes))
        self._spawn(self._keep_time())
        self._spawn(self._keep_connected())

    # What it is

    @property
    def document(self) -> LedgerDocument:
        """The ledger's document, as this writer knows it."""
        return self._versioned.document

    @property
    def lac(self) -> EntryId:
        """The entry up to which everything is confirmed."""
        return self._appender.lac

    @property
    def stopped(self) -> RoostError | None:
        """Why nothing is written any more, once that is so."""
        return self._appender.stopped

    async def wait_stopped(self) -> None:
        """Wait until nothing is written any more: whoever owns the ledger gives it up then."""
        await self._ended.wait()

    # Writing

    def append(self, payload: bytes | memoryview) -> "asyncio.Future[EntryId]":
        """Take an entry, which must not change any more; raises what refuses it.

        Its future gives the id once the entry is durable. `Unknown`: it may be in the ledger, and
        whoever recovers that will know.
        """
        entry, effects = self._appender.append(payload, self._clock.now())
        future: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        self._perform(effects)
        return future

    async def write(self, payload: bytes | memoryview, *, timeout_s: float = 60.0) -> EntryId:
        """Wait for room, append an entry, and wait until it is durable."""
        async with asyncio.timeout(timeout_s):
            await self.room()
            return await self.append(payload)

    async def room(self) -> None:
        """Wait until as much was confirmed as it takes for another entry to be let in."""
        while self._appender.full and self._appender.stopped is None:
            self._room.clear()
            await self._room.wait()

    async def close(self, *, timeout_s: float = 30.0) -> LedgerDocument:
        """Wait until all is confirmed, and close the ledger; raises if that cannot be.

        Then the ledger is open, and has to be recovered by whoever wants to read its end.
        """
        try:
            async with asyncio.timeout(timeout_s):
                self._perform(self._appender.close(self._clock.now()))
                await self._ended.wait()
        except TimeoutError:
            self._perform(self._appender.abandon("the ledger could not be closed in time"))
        finally:
            await self._end()
        if self.document.phase is not LedgerPhase.CLOSED:
            assert self._appender.stopped is not None, "it has ended"
            raise self._appender.stopped
        return self.document

    async def abandon(self, why: str = "the writer was abandoned") -> None:
        """Write no more, without closing; what is pending is unknown."""
        self._perform(self._appender.abandon(why))
        await self._end()

    def overtake(self, why: str) -> None:
        """Write no more, since somebody else owns what this ledger is for, or may soon."""
        self._perform(self._appender.on_overtaken(why))

    async def _end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What nodes answer

    def on_stored(self, node: NodeId, entry: EntryId) -> None:
        """Hear from a link that a node has an entry."""
        if effects := self._appender.on_stored(node, entry):
            self._perform(effects)

    def on_refused(self, link: "_Link", node: NodeId, entry: EntryId, error: RoostError) -> None:
        """Hear that it has not, or that nobody knows."""
        if self._links.get(node) is not link and isinstance(error, Unknown):
            return  # that connection was given up, and there may be another one
        self._perform(self._appender.on_refused(node, entry, error))

    # What is to be done

    def _perform(self, effects: Sequence[Effect]) -> None:
        """Carry out effects in order, also those that come of carrying one out."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._performing = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Write():
                self._send(effect)
            case Confirmed(upto):
                self._resolve(upto)
            case Overdue(upto):
                self._give_up_waiting(upto, "was not confirmed in time")
            case Disconnect(node):
                self._disconnect(node)
            case FindSpares(count, excluded):
                self._spawn(self._find_spares(count, excluded))
            case ChangeFragments():
                self._spawn(self._change(effect))
            case TellLac(lac, nodes):
                self._spawn(self._tell_lac(lac, nodes))
            case Close():
                self._spawn(self._close(effect))
            case Stopped(why):
                self._on_stopped(why)

    def _send(self, write: Write) -> None:
        document = self._versioned.document
        for node in write.nodes:
            link = self._links.get(node)
            try:
                if link is None:
                    self._effects.extend(self._appender.on_failed(node))
                    continue
                link.client.start_add(
                    self.ledger,
                    write.entry,
                    write.payload,
                    epoch=document.epoch,
                    lac=write.lac,
                    sink=link,
                    tag=write.entry,
                )
            except RoostError:
                self._effects.extend(self._appender.on_failed(node))

    def _resolve(self, upto: EntryId) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= upto:
            entry, future = waiting.popleft()
            if not future.done():
                future.set_result(entry)
        self._room.set()

    def _give_up_waiting(self, upto: EntryId, why: str) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= upto:
            entry, future = waiting.popleft()
            if not future.done():
                future.set_exception(
                    Unknown(
                        f"ledger {self.ledger}, entry {entry} {why}: it may or may not be there "
                        "once the ledger is closed"
                    )
                )

    def _disconnect(self, node: NodeId) -> None:
        if (link := self._links.pop(node, None)) is not None:
            self._nodes.drop(link.client)

    def _on_stopped(self, why: str) -> None:
        self._log.event("writer_stopped", ledger=self.ledger, why=why)
        if self._waiting:
            self._give_up_waiting(self._waiting[-1][0], f"was not confirmed ({why})")
        self._room.set()
        self._news.set()
        self._ended.set()

    # What takes its time

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        self._news.set()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": f"the writer of ledger {self.ledger} has a defect", "exception": error}
            )
            self._perform(self._appender.abandon(f"a defect: {error}"))

    async def _join(self, node: NodeId) -> bool:
        """Connect to a node of the ensemble."""
        try:
            client = await self._nodes.connect(node)
        except RoostError as error:
            self._log.event("node_unreachable", ledger=self.ledger, node=node, error=str(error))
            self._perform(self._appender.on_failed(node))
            return False
        self._links[node] = _Link(self, node, client)
        return True

    async def _find_spares(self, count: int, excluded: tuple[NodeId, ...]) -> None:
        zones = self._nodes.zones({*excluded} - {*self._appender.missing})
        spares = await self._nodes.find(count, excluded=excluded, zones_taken=zones)
        for node in spares:
            await self._join(node)
        self._perform(self._appender.on_spares(spares, self._clock.now()))

    async def _change(self, change: ChangeFragments) -> None:
        document = self._versioned.document
        document = document.with_fragments(change.fragments, change.laggards)
        try:
            self._versioned = await self._records.change(self._versioned, document)
        except RoostError as error:
            self._perform(self._appender.on_overtaken(f"the ensemble cannot be changed: {error}"))
            return
        self._log.event(
            "ensemble_changed",
            ledger=self.ledger,
            first=change.fragments[-1].first,
            nodes=change.fragments[-1].nodes,
        )
        self._perform(self._appender.on_changed(self._clock.now()))

    async def _tell_lac(self, lac: EntryId, nodes: tuple[NodeId, ...]) -> None:
        await asyncio.gather(*(self._tell_one(node, lac) for node in nodes))

    async def _tell_one(self, node: NodeId, lac: EntryId) -> None:
        link = self._links.get(node)
        if link is None:
            return
        try:
            async with asyncio.timeout(self._nodes.patience.tell_s):
                await link.client.confirm(self.ledger, self._versioned.document.epoch, lac)
        except (RoostError, TimeoutError) as error:
            # It is a hint, and the next one says more. Whether the node is well, adds will tell.
            self._log.event("lac_not_told", level="debug", node=node, error=str(error))

    async def _close(self, close: Close) -> None:
        document = self._versioned.document.closed(
            close.last, length=close.length, laggards=close.laggards
        )
        try:
            self._versioned = await self._records.change(self._versioned, document)
        except Conflict as error:
            self._perform(self._appender.on_overtaken(str(error)))
            return
        except RoostError as error:
            self._perform(self._appender.abandon(f"the ledger could not be closed: {error}"))
            return
        await tell_nodes_closed(self._nodes, document)
        self._perform(self._appender.on_closed())

    async def _keep_connected(self) -> None:
        """Connect again to nodes that were lost and keep their slots."""
        while self._appender.stopped is None:
            for node in self._appender.missing:
                if await self._join(node):
                    self._perform(self._appender.on_returned(node, self._clock.now()))
            await asyncio.sleep(RECONNECT_S)

    async def _keep_time(self) -> None:
        """Do what is due, when it is."""
        while self._appender.stopped is None:
            deadline = self._appender.deadline()
            wait_s = LOOK_S if deadline is None else min(deadline - self._clock.now(), LOOK_S)
            if wait_s > 0:
                self._news.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
            self._perform(self._appender.on_time(self._clock.now()))


class _Link:
    """One connection to a node, and who hears of the adds on it."""

    def __init__(self, writer: LedgerWriter, node: NodeId, client: NodeClient) -> None:
        self.client: Final = client
        self._writer: Final = writer
        self._node: Final = node

    def stored(self, tag: int) -> None:
        """Hear that an entry is durable there."""
        self._writer.on_stored(self._node, EntryId(tag))

    def refused(self, tag: int, error: RoostError) -> None:
        """Hear that it was refused, or that nobody knows."""
        self._writer.on_refused(self, self._node, EntryId(tag), error)

    def settle(self) -> None:
        """Nothing to do: nothing is gathered."""
