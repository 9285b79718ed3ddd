"""Repairs closed ledgers: carries out what `repair` plans, one job after the other.

A job is done when the new node has answered that its copy is durable, and only then the metadata
learns of it. Whoever repairs may die at any moment, and two may repair the same ledger at once:
a copy that nobody came to name is garbage, and the second change of a document finds another
version than it read.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from roost.errors import Conflict, RoostError
from roost.host.log import Log
from roost.host.random import Rng
from roost.ledger.nodes import Nodes
from roost.ledger.records import Records, Versioned
from roost.ledger.repair import (
    Job,
    is_complete,
    is_copied,
    plan,
    with_copy,
    without_laggard,
)
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import LedgerId, NodeId
from roost.wire.messages import Place, Placed


class Repairer:
    """Repairs ledgers."""

    def __init__(self, *, nodes: Nodes, records: Records, rng: Rng, log: Log) -> None:
        self._nodes: Final = nodes
        self._records: Final = records
        self._rng: Final = rng
        self._log: Final = log

    async def repair(self, ledger: LedgerId, *, gone: Collection[NodeId] = ()) -> bool:
        """Give a closed ledger what it lacks; tells whether nothing is left to do.

        `gone` are nodes that are not to be waited for any more.
        """
        now = await self._records.read(ledger)
        if now.document.phase is not LedgerPhase.CLOSED:
            return now.document.phase is LedgerPhase.DELETED
        try:
            now = await self._strike_off(now)
            now = await self._copy_all(now, gone)
        except Conflict:
            return False  # somebody else repairs it, too
        left = {*now.document.laggards, *gone} & {*now.document.holders}
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
            async with asyncio.timeout(self._nodes.patience.call_s):
                state = await (await self._nodes.connect(node)).state(document.ledger)
        except (RoostError, TimeoutError):
            return False
        return is_complete(document, state)

    async def _copy_all(self, now: Versioned, gone: Collection[NodeId]) -> Versioned:
        candidates = [each.candidate for each in self._nodes.directory.nodes()]
        jobs = plan(now.document, gone=gone, candidates=candidates, rng=self._rng)
        failed = {job.new for job in jobs if not job.sources}
        for job in jobs:
            placed = await self._copy(job)
            if placed is None or not is_copied(now.document, job, placed):
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

    async def _copy(self, job: Job) -> Placed | None:
        addresses = [self._nodes.directory.address(node) for node in job.sources]
        sources = [str(address) for address in addresses if address is not None]
        if not sources:
            return None
        place = Place(
            ledger=job.ledger, epoch=job.epoch, first=job.first, upto=job.upto, sources=sources
        )
        try:
            async with asyncio.timeout(self._nodes.patience.copy_s):
                client = await self._nodes.connect(job.new)
                placed = await client.place(place)
                await client.close_ledger(job.ledger, job.last)
        except (RoostError, TimeoutError) as error:
            self._log.event(
                "copy_failed", level="warning", ledger=job.ledger, to=job.new, error=str(error)
            )
            return None
        self._log.event(
            "copied", ledger=job.ledger, to=job.new, entries=placed.entries, bytes=placed.bytes
        )
        return placed
