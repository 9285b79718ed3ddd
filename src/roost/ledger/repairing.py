"""Repairs closed ledgers: carries out what `repair` plans, one job after the other.

A job is done when the new node has answered that its copy is durable, and only then the metadata
learns of it. Whoever repairs may die at any moment, and two may repair the same ledger at once:
a copy that nobody came to name is garbage, and the second change of a document finds another
version than it read.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from roost.errors import Conflict, RoostError
from roost.host.log import Log
from roost.host.random import Rng
from roost.ledger.nodes import Nodes
from roost.ledger.quorum import named_entries
from roost.ledger.records import Records, Versioned
from roost.ledger.repair import (
    Job,
    is_complete,
    is_copied,
    plan,
    with_copy,
    without_laggard,
)
from roost.ledger.throttle import Throttle
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.node.client import NodeClient
from roost.types import EntryId, LedgerId, NodeId
from roost.wire.messages import SOURCES_MAX, Place, Placed


@dataclass(slots=True)
class RepairFigures:
    """What a repairer has done."""

    running: int = 0
    """Copies that are under way now."""

    copies: int = 0
    failed: int = 0
    entries: int = 0
    bytes: int = 0


class Repairer:
    """Repairs ledgers."""

    def __init__(
        self,
        *,
        nodes: Nodes,
        records: Records,
        rng: Rng,
        log: Log,
        throttle: Throttle,
    ) -> None:
        self.figures: Final = RepairFigures()
        self.busy: Final[set[LedgerId]] = set()
        """What is repaired now: who is to be named next may have it already."""

        self._nodes: Final = nodes
        self._records: Final = records
        self._rng: Final = rng
        self._log: Final = log
        self._throttle: Final = throttle

    async def repair(
        self,
        ledger: LedgerId,
        *,
        gone: Collection[NodeId] = (),
        leaving: Collection[NodeId] = (),
    ) -> bool:
        """Give a closed ledger what it lacks; tells whether nothing is left to do.

        `gone` are nodes that are not to be waited for any more. Those that are `leaving` are
        replaced as well, and can be copied from.
        """
        if ledger in self.busy:
            return False
        self.busy.add(ledger)
        try:
            return await self._repair(ledger, gone, leaving)
        except Conflict:
            return False  # somebody else repairs it, too
        finally:
            self.busy.remove(ledger)

    async def _repair(
        self, ledger: LedgerId, gone: Collection[NodeId], leaving: Collection[NodeId]
    ) -> bool:
        now = await self._records.read(ledger)
        if now.document.phase is not LedgerPhase.CLOSED:
            return now.document.phase is LedgerPhase.DELETED
        now = await self._strike_off(now)
        now = await self._copy_all(now, gone, leaving)
        left = {*now.document.laggards, *gone, *leaving} & {*now.document.holders}
        return not left

    async def _strike_off(self, now: Versioned) -> Versioned:
        """Take those off the laggards whose own account proves that they lack nothing."""
        for node in now.document.laggards:
            if await self._is_complete(now.document, node):
                now = await self._without(now, node)
        return now

    async def _without(self, now: Versioned, node: NodeId) -> Versioned:
        document = without_laggard(now.document, node)
        return now if document is None else await self._records.change(now, document)

    async def _is_complete(self, document: LedgerDocument, node: NodeId) -> bool:
        try:
            state = await self._nodes.ask(
                node,
                lambda client: client.state(document.ledger),
                timeout_s=self._nodes.patience.call_s,
            )
        except RoostError:
            return False
        return is_complete(document, state)

    async def _copy_all(
        self, now: Versioned, gone: Collection[NodeId], leaving: Collection[NodeId]
    ) -> Versioned:
        candidates = [each.candidate for each in self._nodes.directory.nodes()]
        jobs = plan(
            now.document,
            gone=gone,
            leaving=leaving,
            candidates=candidates,
            rng=self._rng,
            free_bytes_min=now.document.length or 0,
        )
        failed = {job.new for job in jobs if not job.sources}
        for job in jobs:
            if not await self._copy(now.document, job):
                failed.add(job.new)
                continue
            if job.old != job.new:
                document = with_copy(now.document, job)
                if document is not None:
                    now = await self._records.change(now, document)
        for node in now.document.laggards:
            if node not in failed and node in {job.new for job in jobs}:
                now = await self._without(now, node)
        return now

    async def _copy(self, document: LedgerDocument, job: Job) -> bool:
        """Have a job's copy made; tells whether all of it is there, durably."""
        addresses = [self._nodes.directory.address(node) for node in job.sources]
        sources = [str(address) for address in addresses if address is not None]
        if not sources:
            return False
        figures = self.figures
        figures.running += 1
        try:
            whole = await self._copy_pieces(document, job, sources[:SOURCES_MAX])
        except RoostError as error:
            figures.failed += 1
            self._log.event(
                "copy_failed", level="warning", ledger=job.ledger, to=job.new, error=str(error)
            )
            return False
        finally:
            figures.running -= 1
        figures.copies += whole
        figures.failed += not whole
        self._log.event(
            "copied",
            level="info" if whole else "warning",
            ledger=job.ledger,
            first=job.first,
            upto=job.upto,
            to=job.new,
            instead_of=job.old,
            whole=whole,
        )
        return whole

    async def _copy_pieces(self, document: LedgerDocument, job: Job, sources: list[str]) -> bool:
        first, entries, copied_bytes = job.first, 0, 0
        while first <= job.upto:
            upto = EntryId(
                min(job.upto, first + self._throttle.pace.piece_entries(entries, copied_bytes) - 1)
            )
            place = Place(
                ledger=job.ledger, epoch=job.epoch, first=first, upto=upto, sources=sources
            )
            placed = await self._nodes.ask(
                job.new, partial(_placed, place), timeout_s=self._nodes.patience.copy_s
            )
            if not is_copied(document, job, placed):
                return False
            entries += placed.entries
            copied_bytes += placed.bytes
            self.figures.entries += placed.entries
            self.figures.bytes += placed.bytes
            first = EntryId(upto + 1)
            await self._throttle.pay(placed.bytes)
        state = await self._nodes.ask(
            job.new,
            lambda client: client.close_ledger(job.ledger, job.last),
            timeout_s=self._nodes.patience.call_s,
        )
        return state.entries >= named_entries(job.slot, job.first, job.upto, document.quorum)


async def _placed(place: Place, client: NodeClient) -> Placed:
    return await client.place(place)
