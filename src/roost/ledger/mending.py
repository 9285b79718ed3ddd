"""Looks through the copies of a closed ledger, and mends those that do not hold.

Its nodes read all that they have, and compute every checksum; a copy is mended where it is, as
`copies` says. The metadata does not change, and whoever does this may die at any moment.
"""

import asyncio
from typing import Final

from roost.errors import Invalid, RoostError
from roost.host.log import Log
from roost.ledger.copies import Copy, fetches, wanted_entries
from roost.ledger.nodes import Nodes
from roost.ledger.records import Records
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import LedgerId, NodeId
from roost.wire.messages import Place


class Mender:
    """Looks through ledgers, and mends copies."""

    def __init__(self, *, nodes: Nodes, records: Records, log: Log) -> None:
        self._nodes: Final = nodes
        self._records: Final = records
        self._log: Final = log

    async def verify(self, ledger: LedgerId) -> list[Copy]:
        """Have every copy of a closed ledger read and checked."""
        document = await self._closed(ledger)
        return await asyncio.gather(*(self._verify(document, node) for node in document.holders))

    async def mend(self, ledger: LedgerId) -> list[Copy]:
        """Mend what does not hold, and tell how all copies are then."""
        document = await self._closed(ledger)
        copies = await self.verify(ledger)
        for number, copy in enumerate(copies):
            # One that was just mended is the next one's source, so one goes after the other.
            if not (copy.whole or copy.error) and await self._mend(document, copy.node):
                copies[number] = await self._verify(document, copy.node)
        return copies

    async def _closed(self, ledger: LedgerId) -> LedgerDocument:
        document = (await self._records.read(ledger)).document
        if document.phase is not LedgerPhase.CLOSED:
            raise Invalid(
                f"ledger {ledger} is {document.phase.value}: only of a closed one it is known what "
                "its copies should have"
            )
        return document

    async def _verify(self, document: LedgerDocument, node: NodeId) -> Copy:
        wanted = wanted_entries(document, node)
        try:
            async with asyncio.timeout(self._nodes.patience.copy_s):
                client = await self._nodes.connect(node)
                report = await client.verify(document.ledger)
        except (RoostError, TimeoutError) as error:
            return Copy(node, wanted, error=str(error) or "no answer in time")
        return Copy(node, wanted, report.entries, report.bytes, report.bad_total)

    async def _mend(self, document: LedgerDocument, node: NodeId) -> bool:
        for fetch in fetches(document, node):
            known = map(self._nodes.directory.address, fetch.sources)
            place = Place(
                ledger=document.ledger,
                epoch=document.epoch,
                first=fetch.first,
                upto=fetch.upto,
                sources=[str(address) for address in known if address is not None],
            )
            try:
                async with asyncio.timeout(self._nodes.patience.copy_s):
                    placed = await (await self._nodes.connect(node)).place(place)
            except (RoostError, TimeoutError) as error:
                told = {"ledger": document.ledger, "node": node, "error": str(error)}
                self._log.event("not_mended", level="warning", **told)
                return False
            self._log.event("mended", ledger=document.ledger, node=node, entries=placed.entries)
        return True
