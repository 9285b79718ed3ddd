"""Reads everything again, on all nodes, and has copied again what is missing or spoilt.

A round goes over all closed ledgers, in the order of their ids, at a rate that nobody feels. Where
it stands is kept in the metadata, so that a master that is elected goes on where the last one was.
"""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec

from roost.errors import NotFound, RoostError
from roost.ledger.throttle import Throttle
from roost.master.means import Means
from roost.master.scrub import (
    Scrubbed,
    Span,
    is_proven,
    named_spans,
    spans_of,
    wanted,
)
from roost.metadata.layout import SCRUB
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.metadata.masters import SCRUB_PLACE, ScrubPlace
from roost.node.client import NodeClient
from roost.types import EntryId, LedgerId, NodeId
from roost.wire.messages import SOURCES_MAX, LedgerState, Place, VerifyReport

LOOK_S: Final = 5.0
PIECE_ENTRIES: Final = 4096
BAD_MAX: Final = 10_000
"""How many bad entries of a replica are dealt with at a time; the next round finds the others."""


class ScrubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How everything is read again."""

    round_s: float = 7 * 86_400.0
    """How long a round and the pause behind it take together; 0 for no rounds at all."""

    look_s: float = 60.0
    """How often to look whether the next round is due, or to try again."""

    keep_s: float = 30.0
    """How often to note where the round stands."""


class Scrubber:
    """Finds what is bad on disks before it is needed."""

    def __init__(self, means: Means, throttle: Throttle, settings: ScrubSettings) -> None:
        self._store: Final = means.store
        self._roster: Final = means.roster
        self._documents: Final = means.documents
        self._nodes: Final = means.nodes
        self._records: Final = means.records
        self._repairer: Final = means.repairer
        self._clock: Final = means.clock
        self._log: Final = means.log
        self._metrics: Final = means.metrics
        self._throttle: Final = throttle
        self._settings: Final = settings

    async def place(self) -> ScrubPlace:
        """Tell how far it is."""
        item = await self._store.get(SCRUB)
        return SCRUB_PLACE.decode(SCRUB, item.value) if item else ScrubPlace()

    async def round(self) -> None:
        """Begin a round if one is due, or go on with the one that was begun; go to its end."""
        place, wall = await self.place(), self._clock.wall()
        if place.began_at <= place.ended_at:
            if wall < place.began_at + self._settings.round_s:
                return
            place = ScrubPlace(began_at=wall, ended_at=place.ended_at)
        await self._roster.look(unless_within_s=LOOK_S)
        keep_at = self._clock.now() + self._settings.keep_s
        async for each in self._documents.all(LedgerId(place.after) if place.after >= 0 else None):
            place = self._added(place, await self.scrub(each.document.ledger), each.document)
            if self._clock.now() >= keep_at:
                keep_at = self._clock.now() + self._settings.keep_s
                await self._keep(place)
        ended = msgspec.structs.replace(place, after=-1, ended_at=max(wall, self._clock.wall()))
        await self._keep(ended)
        self._log.event("scrubbed", **msgspec.structs.asdict(ended))

    async def _keep(self, place: ScrubPlace) -> None:
        await self._store.put(SCRUB, SCRUB_PLACE.encode(place))

    def _added(
        self, place: ScrubPlace, found: Sequence[Scrubbed], document: LedgerDocument
    ) -> ScrubPlace:
        return msgspec.structs.replace(
            place,
            after=document.ledger,
            ledgers=place.ledgers + bool(found),
            bytes=place.bytes + sum(each.bytes for each in found),
            bad=place.bad + sum(each.bad for each in found),
            repaired=place.repaired + sum(each.repaired for each in found),
        )

    # One ledger

    async def scrub(self, ledger: LedgerId) -> list[Scrubbed]:
        """Read a closed ledger on each of its nodes that is there, and put right what is bad."""
        try:
            document = (await self._records.read(ledger)).document
        except NotFound:
            return []
        if document.phase is not LedgerPhase.CLOSED or document.last == -1:
            return []
        found: list[Scrubbed] = []
        for node in document.holders:
            # Who is away cannot be asked, and of a laggard it is known what it lacks.
            if node in document.laggards or node not in self._roster.live:
                continue
            try:
                found.append(await self._scrub_replica(document, node))
            except RoostError as error:
                self._log.event(
                    "not_scrubbed", level="warning", ledger=ledger, node=node, error=str(error)
                )
        metrics = self._metrics
        metrics.scrubbed_ledgers += bool(found)
        metrics.scrubbed_bytes += sum(each.bytes for each in found)
        metrics.bad_entries += sum(each.bad for each in found)
        metrics.repaired_entries += sum(each.repaired for each in found)
        return found

    async def _scrub_replica(self, document: LedgerDocument, node: NodeId) -> Scrubbed:
        bad, read_bytes = await self._bad(document, node)
        left: Sequence[EntryId] = bad
        if bad:
            self._log.event(
                "replica_bad",
                level="error",
                ledger=document.ledger,
                node=node,
                first=min(bad),
                count=len(bad),
            )
            left = await self._put_right(document, node, bad)
        return Scrubbed(
            ledger=document.ledger,
            node=node,
            bytes=read_bytes,
            bad=len(bad),
            repaired=len(bad) - len(left),
        )

    async def _bad(self, document: LedgerDocument, node: NodeId) -> tuple[list[EntryId], int]:
        """List what a node lacks or has spoilt; and how many bytes it has read for that."""
        try:
            report, state = await self._nodes.ask(
                node, partial(_account, document.ledger), timeout_s=self._nodes.patience.copy_s
            )
        except NotFound:
            spans = named_spans(document, node)
            return [entry for slot, span in spans for entry in wanted(document, slot, span)], 0
        await self._throttle.pay(report.bytes)
        if is_proven(document, report, state):
            return [], report.bytes
        bad: set[EntryId] = set()
        for slot, span in named_spans(document, node):
            for first in range(span.first, span.upto + 1, PIECE_ENTRIES):
                if len(bad) < BAD_MAX:
                    piece = Span(EntryId(first), EntryId(min(span.upto, first + PIECE_ENTRIES - 1)))
                    bad |= await self._lacking(document, node, slot, piece)
        return sorted(bad), report.bytes

    async def _lacking(
        self, document: LedgerDocument, node: NodeId, slot: int, span: Span
    ) -> set[EntryId]:
        """Read entries one by one, and list those that a node is to have, and cannot give."""
        lacking = {*wanted(document, slot, span)}
        found = await self._nodes.ask(
            node, partial(_found, document.ledger, span), timeout_s=self._nodes.patience.copy_s
        )
        return lacking - found

    async def _put_right(
        self, document: LedgerDocument, node: NodeId, bad: Sequence[EntryId]
    ) -> Sequence[EntryId]:
        """Have a node copy what is bad again; tells what is still bad then."""
        within = [span for _, span in named_spans(document, node)]
        for span in spans_of(bad, within):
            try:
                await self._copy(document, node, span)
            except RoostError as error:
                self._log.event(
                    "not_put_right", level="warning", ledger=document.ledger, error=str(error)
                )
        left, _ = await self._bad(document, node)
        if left:
            # It cannot be helped: another node takes its place, if the entries are anywhere.
            await self._repairer.repair(document.ledger, gone={node})
        self._log.event("put_right", ledger=document.ledger, node=node, left=len(left))
        return left

    async def _copy(self, document: LedgerDocument, node: NodeId, span: Span) -> None:
        others = [each for each in document.fragment_of(span.first).nodes if each != node]
        others.sort(key=lambda each: each in document.laggards)
        addresses = [self._roster.address(each) for each in others]
        sources = [str(address) for address in addresses if address is not None]
        if sources:
            place = Place(
                ledger=document.ledger,
                epoch=document.epoch,
                first=span.first,
                upto=span.upto,
                sources=sources[:SOURCES_MAX],
            )
            placed = await self._nodes.ask(
                node, lambda client: client.place(place), timeout_s=self._nodes.patience.copy_s
            )
            await self._throttle.pay(placed.bytes)


async def _account(ledger: LedgerId, client: NodeClient) -> tuple[VerifyReport, LedgerState]:
    return await client.verify(ledger), await client.state(ledger)


async def _found(ledger: LedgerId, span: Span, client: NodeClient) -> set[EntryId]:
    found: set[EntryId] = set()
    async with aclosing(client.read(ledger, span.first, span.upto)) as batches:
        async for batch in batches:
            found.update(batch.found)
    return found
