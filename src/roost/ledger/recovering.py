"""Ends ledgers whose writers are gone: carries out what `recover` decides, until one try succeeds.

A try begins by a change of the document, which orders recoverers among each other and stops the
writer's changes of its ensemble, and ends by another, on just that version. Whatever happens
between, a crash or a faster recoverer, nothing was decided, and the next try begins anew.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from roost.errors import Conflict, NotFound, RoostError, Unavailable, Unknown
from roost.host.clock import Clock
from roost.host.log import Log
from roost.host.random import Rng
from roost.ledger.ending import tell_nodes_closed
from roost.ledger.nodes import Nodes
from roost.ledger.records import Records, Versioned
from roost.ledger.recover import (
    CloseAt,
    Decision,
    Effect,
    Fence,
    FindSpares,
    Read,
    RecoverSettings,
    Recovery,
    Undecided,
    WriteBack,
)
from roost.metadata.ledgers import LedgerDocument, LedgerPhase, RecoveryNote
from roost.node.client import NodeClient
from roost.types import EntryId, Epoch, LedgerId, NodeId

READ_BYTES: Final = 4 << 20
PAUSE_FIRST_S: Final = 0.1
PAUSE_MOST_S: Final = 2.0


class Recoverer:
    """Ends ledgers."""

    def __init__(
        self,
        *,
        nodes: Nodes,
        records: Records,
        clock: Clock,
        rng: Rng,
        log: Log,
        settings: RecoverSettings,
    ) -> None:
        self._nodes: Final = nodes
        self._records: Final = records
        self._clock: Final = clock
        self._rng: Final = rng
        self._log: Final = log
        self._settings: Final = settings

    async def recover(
        self, ledger: LedgerId, *, epoch: Epoch, timeout_s: float, accept_loss: bool = False
    ) -> LedgerDocument:
        """See that a ledger is closed, by whomever, and give its document.

        `epoch` is who does it, for the errors of the old writer. `Unavailable` says why it could
        not be decided in time; `accept_loss` ends it all the same, and is somebody's decision.
        """
        deadline = self._clock.now() + timeout_s
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                document = await self._try(ledger, epoch, accept_loss=accept_loss)
            except (Conflict, Unavailable, Unknown) as error:
                left_s = deadline - self._clock.now()
                if left_s <= 0:
                    raise Unavailable(
                        f"ledger {ledger} could not be closed within {timeout_s:g} s: {error}"
                    ) from error
                await asyncio.sleep(min(pause_s * (0.5 + self._rng.random()), left_s))
                pause_s = min(2 * pause_s, PAUSE_MOST_S)
                continue
            return document

    async def _try(self, ledger: LedgerId, epoch: Epoch, *, accept_loss: bool) -> LedgerDocument:
        was = await self._records.read(ledger)
        if was.document.phase is LedgerPhase.CLOSED:
            return was.document
        if was.document.phase is LedgerPhase.DELETED:
            raise NotFound(f"ledger {ledger} was deleted")
        by = self._rng.randbytes(8).hex()
        begun = await self._records.change(was, was.document.in_recovery(by))
        self._log.event("recovery_begun", ledger=ledger, by=by)
        attempt = _Attempt(begun, epoch, nodes=self._nodes, settings=self._settings, log=self._log)
        close = await attempt.run(accept_loss=accept_loss)
        for decision in attempt.disputed:
            self._log.event("decided", ledger=ledger, decision=str(decision))
        note = RecoveryNote(by, close.base, close.reason, close.given_up)
        found = msgspec.structs.replace(begun.document, fragments=close.fragments, recovery=note)
        document = found.closed(close.last, length=None, laggards=close.laggards)
        closed = await self._records.change(begun, document)
        self._log.event(
            "recovered", ledger=ledger, base=close.base, last=close.last, why=close.reason
        )
        await tell_nodes_closed(self._nodes, closed.document)
        return closed.document


class _Attempt:
    """One try: what its nodes are asked, and what they answer."""

    def __init__(
        self,
        begun: Versioned,
        epoch: Epoch,
        *,
        nodes: Nodes,
        settings: RecoverSettings,
        log: Log,
    ) -> None:
        self._document: Final = begun.document
        self._epoch: Final = epoch
        self._nodes: Final = nodes
        self._log: Final = log
        self._recovery: Final = Recovery(begun.document, settings)
        self._done: Final[asyncio.Future[CloseAt]] = asyncio.get_running_loop().create_future()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._copiers: Final[dict[NodeId, _Copier]] = {}
        self._accept_loss = False

    async def run(self, *, accept_loss: bool) -> CloseAt:
        """Find the end; `Unavailable` if that cannot be told."""
        self._accept_loss = accept_loss
        try:
            self._perform(self._recovery.start())
            return await self._done
        finally:
            self._done.cancel()  # who is still heard says nothing any more
            for task in [*self._tasks]:
                task.cancel()

    @property
    def disputed(self) -> Sequence[Decision]:
        """List what was decided though not all nodes had said the same by then."""
        return [each for each in self._recovery.decisions if not each.unanimous]

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Fence(nodes):
                    for node in nodes:
                        self._spawn(self._fence(node))
                case Read():
                    self._spawn(self._read(effect))
                case WriteBack():
                    for node in effect.nodes:
                        self._write_back(node, effect)
                case FindSpares(count, excluded):
                    self._spawn(self._find_spares(count, excluded))
                case CloseAt():
                    self._settle(effect)
                case Undecided(why):
                    self._on_undecided(why)

    def _settle(self, result: CloseAt | RoostError) -> None:
        if self._done.done():
            return
        if isinstance(result, CloseAt):
            self._done.set_result(result)
        else:
            self._done.set_exception(result)

    def _on_undecided(self, why: str) -> None:
        if self._accept_loss:
            self._accept_loss = False
            self._perform(self._recovery.accept_loss())
            return
        self._settle(Unavailable(why))

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

    def _said(self, event: str, node: NodeId, error: Exception) -> None:
        self._log.event(
            event,
            level="warning",
            ledger=self._document.ledger,
            node=node,
            error=str(error) or "no answer in time",
        )

    # Asking

    async def _fence(self, node: NodeId) -> None:
        try:
            async with asyncio.timeout(self._nodes.patience.call_s):
                client = await self._nodes.connect(node)
                state = await client.fence(self._document.ledger, self._epoch)
        except (RoostError, TimeoutError) as error:
            self._said("not_fenced", node, error)
            self._perform(self._recovery.on_failed(node))
            return
        self._perform(self._recovery.on_fenced(node, state.lac))

    async def _read(self, read: Read) -> None:
        client: NodeClient | None = None
        try:
            async with asyncio.timeout(self._nodes.patience.call_s):
                client = await self._nodes.connect(read.node)
                await self._read_from(client, read)
        except (RoostError, TimeoutError) as error:
            if client is not None and isinstance(error, TimeoutError):
                self._nodes.drop(client)
            self._said("not_read", read.node, error)
            self._perform(self._recovery.on_failed(read.node))
            return
        self._perform(self._recovery.on_read_end(read.node))

    async def _read_from(self, client: NodeClient, read: Read) -> None:
        reading = client.read(
            self._document.ledger,
            read.first,
            read.upto,
            bytes_max=READ_BYTES,
            fence=self._epoch,
        )
        async with aclosing(reading) as batches:
            async for batch in batches:
                self._perform(
                    self._recovery.on_batch(
                        read.node, batch.first, batch.before, batch.found, batch.suspects
                    )
                )

    def _write_back(self, node: NodeId, back: WriteBack) -> None:
        copier = self._copiers.get(node)
        if copier is None:
            copier = self._copiers[node] = _Copier(self, node, self._document, self._nodes)
            self._spawn(copier.run())
        copier.send(back)

    def on_stored(self, node: NodeId, entry: EntryId) -> None:
        """Hear that a node has an entry that was written back."""
        if not self._done.done():
            self._perform(self._recovery.on_stored(node, entry))

    def on_refused(self, node: NodeId, error: RoostError | TimeoutError) -> None:
        """Hear that it takes no more of them."""
        if not self._done.done():
            self._said("not_written_back", node, error)
            self._perform(self._recovery.on_refused(node))

    async def _find_spares(self, count: int, excluded: tuple[NodeId, ...]) -> None:
        spares = await self._nodes.find(
            count, excluded=excluded, zones_taken=self._nodes.zones({*excluded})
        )
        self._perform(self._recovery.on_spares(spares))


class _Copier:
    """Sends one node what is written back to it, and hears what becomes of that.

    There may be very many entries: none of them has a task or a timer of its own.
    """

    def __init__(
        self, attempt: _Attempt, node: NodeId, document: LedgerDocument, nodes: Nodes
    ) -> None:
        self._attempt: Final = attempt
        self._node: Final = node
        self._document: Final = document
        self._nodes: Final = nodes
        self._client: NodeClient | None = None
        self._waiting: Final[list[WriteBack]] = []
        self._owed = 0
        self._answered = 0
        self._failed = False

    def send(self, back: WriteBack) -> None:
        """Send an entry, once the node is connected."""
        self._owed += 1
        if self._client is None:
            self._waiting.append(back)
        else:
            self._add(self._client, back)

    async def run(self) -> None:
        """Connect, and watch that answers come; returns once none is to be expected any more."""
        patience = self._nodes.patience
        try:
            async with asyncio.timeout(patience.call_s):
                client = await self._nodes.connect(self._node)
        except (RoostError, TimeoutError) as error:
            self._fail(error)
            return
        self._client = client
        while self._waiting:
            self._add(client, self._waiting.pop(0))
        while not self._failed:
            answered, owed = self._answered, self._owed
            await asyncio.sleep(patience.call_s)
            if owed > answered == self._answered:
                self._fail(TimeoutError())

    def _add(self, client: NodeClient, back: WriteBack) -> None:
        try:
            client.start_add(
                self._document.ledger,
                back.entry,
                back.payload,
                epoch=self._document.epoch,
                lac=back.lac,
                sink=self,
                tag=back.entry,
                recovery=True,
            )
        except RoostError as error:
            # Not from here: somebody may be in the middle of what is to be done.
            asyncio.get_running_loop().call_soon(self._fail, error)

    def _fail(self, error: RoostError | TimeoutError) -> None:
        if not self._failed:
            self._failed = True
            self._attempt.on_refused(self._node, error)

    def stored(self, tag: int) -> None:
        """Hear that an entry is durable there."""
        self._answered += 1
        self._attempt.on_stored(self._node, EntryId(tag))

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (one is enough)
        """Hear that it was refused, or that nobody knows."""
        self._fail(error)

    def settle(self) -> None:
        """Nothing to do: nothing is gathered."""
