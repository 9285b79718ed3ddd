"""Has nodes forget what nobody needs, node by node; `garbage` decides, ledger by ledger.

A sweep lists one node's ledgers, then reads their documents, and has the node delete what it may.
Once all nodes that a deleted ledger names were swept after it was seen to be deleted, its document
goes, too: what a node that was away then may bring back is found by its id.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from roost.errors import Conflict, NotFound, RoostError
from roost.ledger.records import Versioned
from roost.master.documents import GETS_MAX
from roost.master.garbage import Verdict, judge, with_barred
from roost.master.means import Means
from roost.metadata.ids import first_free
from roost.metadata.layout import ledger_key
from roost.metadata.ledgers import LedgerPhase
from roost.metadata.operations import ChangedAt, Delete
from roost.types import LedgerId, NodeId

LOOK_S: Final = 5.0


class CollectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How garbage is collected."""

    collect_s: float = 300.0
    """How long to wait between two rounds over all nodes."""

    tombstone_s: float = 600.0
    """How long the document of a deleted ledger stays at least: requests may still be under way
    that would make it anew."""


class Collector:
    """Collects garbage from nodes."""

    def __init__(self, means: Means, settings: CollectSettings) -> None:
        self._store: Final = means.store
        self._roster: Final = means.roster
        self._documents: Final = means.documents
        self._nodes: Final = means.nodes
        self._records: Final = means.records
        self._repairer: Final = means.repairer
        self._clock: Final = means.clock
        self._log: Final = means.log
        self._metrics: Final = means.metrics
        self._settings: Final = settings
        self._deleted: dict[LedgerId, tuple[float, set[NodeId]]] = {}
        """Ledgers that are deleted: since when that is known, and who was swept since."""

    async def collect(self) -> None:
        """Sweep all nodes that are there, and remove the documents that are not needed any more."""
        await self._roster.look(unless_within_s=LOOK_S)
        await self._note_deleted()
        for node in sorted(self._roster.live):
            # What is deleted while a node is swept may have been passed over already.
            known = [*self._deleted]
            try:
                await self.sweep(node)
            except RoostError as error:
                self._log.event("not_swept", level="warning", node=node, error=str(error))
                continue
            for ledger in known:
                self._deleted[ledger][1].add(node)
        await self._remove_tombstones()

    async def _note_deleted(self) -> None:
        found: dict[LedgerId, tuple[float, set[NodeId]]] = {}
        async for each in self._documents.all():
            if each.document.phase is LedgerPhase.DELETED:
                ledger = each.document.ledger
                found[ledger] = self._deleted.get(ledger, (self._clock.now(), set()))
        self._deleted = found

    async def sweep(self, node: NodeId) -> int:
        """Have one node forget what it may; tells how many ledgers it has forgotten."""
        ids_before = await first_free(self._store, "ledger")
        client = await self._nodes.connect(node)
        verdicts: list[tuple[LedgerId, Verdict, Versioned | None]] = []
        listed: list[LedgerId] = []
        async for state in client.ledgers():
            listed.append(state.ledger)
            if len(listed) == GETS_MAX:
                verdicts += await self._judge(node, listed, ids_before)
                listed = []
        if listed:
            verdicts += await self._judge(node, listed, ids_before)
        if any(verdict is Verdict.FOREIGN for _, verdict, _ in verdicts):
            self._log.event("metadata_foreign", level="error", node=node, ids_before=ids_before)
            return 0
        forgotten = 0
        for ledger, verdict, now in verdicts:
            forgotten += await self._carry_out(node, ledger, verdict, now)
        if forgotten:
            self._log.event("collected", node=node, ledgers=forgotten)
        return forgotten

    async def _judge(
        self, node: NodeId, listed: Sequence[LedgerId], ids_before: int
    ) -> list[tuple[LedgerId, Verdict, Versioned | None]]:
        """Decide about what a node has listed; what is read is read after that."""
        documents = await self._documents.some(listed)
        verdicts = [
            (
                ledger,
                judge(
                    None if now is None else now.document,
                    ledger=ledger,
                    node=node,
                    ids_before=ids_before,
                    nodes=self._roster.live,
                ),
                now,
            )
            for ledger, now in documents.items()
        ]
        return [each for each in verdicts if each[1] is not Verdict.KEEP]

    async def _carry_out(
        self,
        node: NodeId,
        ledger: LedgerId,
        verdict: Verdict,
        now: Versioned | None,
    ) -> bool:
        if verdict is Verdict.BAR:
            assert now is not None, "only a document can bar"
            if ledger in self._repairer.busy or not await self._bar(now, node):
                return False
        await self._nodes.ask(
            node, lambda client: client.delete(ledger), timeout_s=self._nodes.patience.call_s
        )
        self._metrics.collected += 1
        return True

    async def _bar(self, now: Versioned, node: NodeId) -> bool:
        """Have the document say that the node is never named again."""
        document = with_barred(now.document, node)
        if document is None:
            return False
        try:
            await self._records.change(now, document)
        except Conflict:
            return False  # it is not what was read: the next sweep reads it again
        self._metrics.barred += 1
        self._log.event("barred", ledger=document.ledger, node=node)
        return True

    async def _remove_tombstones(self) -> None:
        now = self._clock.now()
        for ledger, (since, swept) in [*self._deleted.items()]:
            if now - since >= self._settings.tombstone_s:
                await self._remove_tombstone(ledger, swept)

    async def _remove_tombstone(self, ledger: LedgerId, swept: set[NodeId]) -> None:
        try:
            was = await self._records.read(ledger)
        except NotFound:
            self._deleted.pop(ledger, None)
            return
        assert was.document.phase is LedgerPhase.DELETED, "what is deleted stays so"
        if {*was.document.nodes} & self._roster.known - swept:
            return  # somebody is away who is to be told
        key = ledger_key(ledger)
        await self._store.txn((ChangedAt(key, was.revision),), (Delete(key),))
        self._deleted.pop(ledger, None)
        self._metrics.tombstones_removed += 1
        self._log.event("tombstone_removed", ledger=ledger)
