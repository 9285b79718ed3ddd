"""Looks through the copies of a closed ledger, and mends those that do not hold.

Its nodes read all that they have, and compute every checksum. A copy is mended where it is: its
node fetches all of its entries from the others, takes those that it lacks or cannot vouch for, and
passes over the rest. The metadata does not change, and who does this may die at any moment.
"""

import asyncio
from typing import Final

import msgspec

from roost.errors import Invalid, RoostError
from roost.host.log import Log
from roost.ledger.nodes import Nodes
from roost.ledger.quorum import named_entries
from roost.ledger.records import Records
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import LedgerId, NodeId
from roost.wire.messages import Place


class Copy(msgspec.Struct, frozen=True):
    """What one node has of a ledger, by its own account after it has read everything."""

    node: NodeId
    wanted: int
    """How many entries it is named for."""

    entries: int = 0
    bytes: int = 0
    bad: int = 0
    """How many do not hold."""

    error: str = ""
    """Why it could not be asked."""

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return not self.error and not self.bad and self.entries >= self.wanted


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
        wanted = _wanted(document, node)
        try:
            async with asyncio.timeout(self._nodes.patience.copy_s):
                client = await self._nodes.connect(node)
                report = await client.verify(document.ledger)
        except (RoostError, TimeoutError) as error:
            return Copy(node, wanted, error=str(error) or "no answer in time")
        return Copy(node, wanted, report.entries, report.bytes, report.bad_total)

    async def _mend(self, document: LedgerDocument, node: NodeId) -> bool:
        assert document.last is not None, "it is closed"
        for index, fragment in enumerate(document.fragments):
            upto = document.upto_of(index)
            if node not in fragment.nodes or upto is None or upto < fragment.first:
                continue
            others = [each for each in fragment.nodes if each != node]
            # Who is not behind is asked first.
            others.sort(key=lambda each: each in document.laggards)
            known = map(self._nodes.directory.address, others)
            place = Place(
                ledger=document.ledger,
                epoch=document.epoch,
                first=fragment.first,
                upto=upto,
                sources=[str(address) for address in known if address is not None],
            )
            try:
                async with asyncio.timeout(self._nodes.patience.copy_s):
                    placed = await (await self._nodes.connect(node)).place(place)
            except (RoostError, TimeoutError) as error:
                self._log.event(
                    "not_mended",
                    level="warning",
                    ledger=document.ledger,
                    node=node,
                    error=str(error),
                )
                return False
            self._log.event("mended", ledger=document.ledger, node=node, entries=placed.entries)
        return True


def _wanted(document: LedgerDocument, node: NodeId) -> int:
    """Count the entries that a node is named for."""
    wanted = 0
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        if node in fragment.nodes and upto is not None:
            slot = fragment.nodes.index(node)
            wanted += named_entries(slot, fragment.first, upto, document.quorum)
    return wanted
