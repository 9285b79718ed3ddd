"""Replicated ledgers, for one process: make, write, read, end, repair and delete them.

    ledgers = Ledgers(store, directory, net=..., clock=..., rng=..., cluster="prod", name="me")
    writer = await ledgers.create(epoch=Epoch(1))
    entry = await writer.append(b"hello")          # durable on two nodes of three
    await writer.close()
    reader = await ledgers.open(writer.ledger)
    async for piece in reader.read_all(): ...

A ledger has one writer for ever, the one that made it. To go on where another process has written,
recover its ledger, which stops that writer for good, and make a new one.
"""

from collections.abc import AsyncIterator, Collection
from typing import Final

from roost.errors import Conflict, Invalid, NoRoom, NotFound
from roost.host.clock import Clock
from roost.host.log import Log, Silence
from roost.host.net import Net
from roost.host.random import Rng
from roost.ledger.append import AppendSettings
from roost.ledger.asking import ask_all, is_written
from roost.ledger.copies import Copy
from roost.ledger.ending import tell_nodes_deleted
from roost.ledger.mending import Mender
from roost.ledger.nodes import PATIENT, Directory, Nodes, Patience
from roost.ledger.pace import Pace
from roost.ledger.quorum import check_quorum
from roost.ledger.reading import LedgerReader
from roost.ledger.records import Records, Versioned
from roost.ledger.recover import RecoverSettings
from roost.ledger.recovering import Recoverer
from roost.ledger.repairing import Repairer
from roost.ledger.throttle import Throttle
from roost.ledger.writer import LedgerWriter
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.metadata.store import MetadataStore
from roost.types import EntryId, Epoch, LedgerId, NodeId

LIST_PAGE: Final = 256
DEFAULT_QUORUM: Final = Quorum()
DEFAULT_APPEND: Final = AppendSettings()
DEFAULT_RECOVER: Final = RecoverSettings()


class Ledgers:
    """All ledgers of a cluster."""

    def __init__(
        self,
        store: MetadataStore,
        directory: Directory,
        *,
        net: Net,
        clock: Clock,
        rng: Rng,
        cluster: str,
        name: str,
        log: Log | None = None,
        appending: AppendSettings = DEFAULT_APPEND,
        recovering: RecoverSettings = DEFAULT_RECOVER,
        patience: Patience = PATIENT,
        change_timeout_s: float = 30.0,
        ack_min: int = 1,
    ) -> None:
        self.nodes: Final = Nodes(
            directory,
            net=net,
            clock=clock,
            rng=rng,
            cluster=cluster,
            name=name,
            patience=patience,
        )
        self.records: Final = Records(store, clock=clock, timeout_s=change_timeout_s)
        self._clock: Final = clock
        self._rng: Final = rng
        self._log: Final = log or Silence()
        self._appending: Final = appending
        self._ack_min: Final = ack_min
        self._recoverer: Final = Recoverer(
            nodes=self.nodes,
            records=self.records,
            clock=clock,
            rng=rng,
            log=self._log,
            settings=recovering,
        )
        self._mender: Final = Mender(nodes=self.nodes, records=self.records, log=self._log)
        self._repairer: Final = Repairer(
            nodes=self.nodes,
            records=self.records,
            rng=rng,
            log=self._log,
            throttle=Throttle(Pace(), clock),
        )

    # Writing

    async def create(self, *, epoch: Epoch, quorum: Quorum = DEFAULT_QUORUM) -> LedgerWriter:
        """Make a ledger on nodes that can be reached, and be its writer."""
        for warning in check_quorum(quorum, ack_min=self._ack_min):
            self._log.event("quorum_unwise", level="warning", warning=warning)
        ensemble = await self.nodes.find(quorum.ensemble, excluded=())
        if len(ensemble) < quorum.ensemble:
            raise NoRoom(
                f"an ensemble of {quorum.ensemble} nodes: {len(ensemble)} that take adds can be "
                f"reached ({', '.join(ensemble) or 'none'})"
            )
        document = LedgerDocument(
            ledger=await self.records.new_id(),
            epoch=epoch,
            quorum=quorum,
            fragments=(Fragment(EntryId(0), tuple(ensemble)),),
        )
        return await self.open_writer(await self.records.create(document))

    async def open_writer(self, made: Versioned) -> LedgerWriter:
        """Write to a ledger that was made just now, and that nobody else has written to."""
        writer = LedgerWriter(
            made,
            nodes=self.nodes,
            records=self.records,
            clock=self._clock,
            settings=self._appending,
            log=self._log,
        )
        await writer.start()
        return writer

    async def claim(self, ledger: LedgerId) -> LedgerWriter:
        """Be the writer of a ledger that was made, and that nobody has written to.

        Of two who do this at once, one cannot close the ledger, and is told so.
        """
        now = await self.records.read(ledger)
        document = now.document
        if document.phase is not LedgerPhase.OPEN or len(document.fragments) > 1:
            raise _written(document)
        if await is_written(self.nodes, document):
            raise _written(document)
        return await self.open_writer(await self.records.change(now, document))

    async def recover(
        self,
        ledger: LedgerId,
        *,
        epoch: Epoch,
        timeout_s: float = 60.0,
        accept_loss: bool = False,
    ) -> LedgerDocument:
        """Stop a ledger's writer for good, and close the ledger; give its document.

        With `accept_loss`, it is closed even if too few nodes are left to know what was
        acknowledged: at what can be read, and the document says what was given up.
        """
        return await self._recoverer.recover(
            ledger, epoch=epoch, timeout_s=timeout_s, accept_loss=accept_loss
        )

    # Reading

    async def open(self, ledger: LedgerId) -> LedgerReader:
        """Read a ledger, up to what is confirmed; that changes nothing about it."""
        reader = LedgerReader(
            await self.describe(ledger),
            nodes=self.nodes,
            records=self.records,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        await reader.refresh()
        return reader

    async def open_recovered(
        self, ledger: LedgerId, *, epoch: Epoch, timeout_s: float = 60.0
    ) -> LedgerReader:
        """Recover a ledger if it is open, and read it, to its end."""
        await self.recover(ledger, epoch=epoch, timeout_s=timeout_s)
        return await self.open(ledger)

    # Everything else

    async def describe(self, ledger: LedgerId) -> LedgerDocument:
        """Give a ledger's document; `NotFound` if there is none, or it was deleted."""
        document = (await self.records.read(ledger)).document
        if document.phase is LedgerPhase.DELETED:
            raise NotFound(f"ledger {ledger} was deleted")
        return document

    async def ask(self, ledger: LedgerId, entry: EntryId) -> dict[NodeId, str]:
        """Tell what each node of an entry's write set has of it, or says, right now."""
        return await ask_all(self.nodes, await self.describe(ledger), entry)

    async def list_all(self) -> AsyncIterator[LedgerDocument]:
        """List all ledgers, in the order of their ids."""
        after: LedgerId | None = None
        while True:
            page = await self.records.page(after, LIST_PAGE)
            for each in page:
                if each.document.phase is not LedgerPhase.DELETED:
                    yield each.document
            if len(page) < LIST_PAGE:
                return
            after = page[-1].document.ledger

    async def delete(self, ledger: LedgerId) -> list[NodeId]:
        """Delete a ledger for good; names the nodes that could not be told.

        Its document stays, as a tombstone, until all of them were: ask again then.
        """
        while True:
            now = await self.records.read(ledger)
            if now.document.phase is LedgerPhase.DELETED:
                break
            try:
                now = await self.records.change(now, now.document.deleted())
            except Conflict:
                continue
            break
        return await tell_nodes_deleted(self.nodes, now.document)

    async def repair(self, ledger: LedgerId, *, gone: Collection[NodeId] = ()) -> bool:
        """Give a closed ledger the copies that it lacks; tells whether nothing is left to do."""
        return await self._repairer.repair(ledger, gone=gone)

    async def verify(self, ledger: LedgerId) -> list[Copy]:
        """Have every copy of a closed ledger read, and every checksum computed."""
        return await self._mender.verify(ledger)

    async def mend(self, ledger: LedgerId) -> list[Copy]:
        """Mend the copies of a closed ledger that do not hold; tells how all are then."""
        return await self._mender.mend(ledger)

    async def close(self) -> None:
        """End all connections; writers end before."""
        await self.nodes.close()


def _written(document: LedgerDocument) -> Invalid:
    return Invalid(
        f"ledger {document.ledger} is {document.phase.value}, and somebody has written to it or "
        "may have: a ledger has one writer. Recover it if it is open, and make a new one."
    )
