"""What can be asked of a node, and the telling of it: to the book before, and of the answer after.

Whoever gets no answer tells nothing: then both may be.
"""

from typing import Final

from roost.errors import NotFound
from roost.node.client import NodeClient
from roost.node.store import Store
from roost.node.views import Chunk
from roost.sim.ledger_book import LedgerBook
from roost.sim.ledger_page import Look
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import HEAD_BYTES, check_entry
from roost.wire.messages import Read

WHOLE: Final = 1 << 20


class Asks:
    """The questions of one connection."""

    def __init__(self, node: NodeClient, book: LedgerBook) -> None:
        self._node = node
        self._book = book

    async def read(self, read: Read) -> None:
        """Read a range."""
        look = self._book.looking(read.ledger, fence=read.fence)
        try:
            async for batch in self._node.read(
                read.ledger,
                read.first,
                read.upto,
                bytes_max=read.bytes_max,
                fence=read.fence,
                wait_s=read.wait_s,
                lac=read.lac,
            ):
                self._book.read(
                    look,
                    batch.first,
                    batch.before,
                    {entry: bytes(payload) for entry, payload in batch.found.items()},
                    batch.suspects,
                    lac=batch.lac,
                    last=batch.last,
                    fenced=batch.fenced,
                )
        except NotFound:
            self._book.not_found(look)

    async def state(self, ledger: LedgerId) -> None:
        """Ask how a ledger is."""
        look = self._book.looking(ledger)
        try:
            self._book.stated(look, await self._node.state(ledger))
        except NotFound:
            self._book.not_found(look)

    async def verify(self, ledger: LedgerId) -> None:
        """Have every entry checked."""
        look = self._book.looking(ledger)
        try:
            self._book.verified(look, await self._node.verify(ledger))
        except NotFound:
            self._book.not_found(look)

    async def listing(self) -> None:
        """Ask for all ledgers."""
        looks = {ledger: self._book.looking(ledger) for ledger in self._book.ledgers}
        async for state in self._node.ledgers():
            look = looks.pop(state.ledger, None)
            if look is not None:  # or it began when this was under way
                self._book.stated(look, state)
        for look in looks.values():
            self._book.not_found(look)

    async def fence(self, ledger: LedgerId, epoch: Epoch) -> None:
        """Have the writer refused."""
        look = self._book.looking(ledger, fence=epoch)
        try:
            state = await self._node.fence(ledger, epoch)
        except NotFound:
            self._book.not_found(look)
            return
        self._book.fenced(ledger, epoch)
        self._book.stated(look, state)

    async def close(self, ledger: LedgerId, last: EntryId) -> None:
        """Close a ledger."""
        look = self._book.looking(ledger)
        self._book.closing(ledger, last)
        try:
            state = await self._node.close_ledger(ledger, last)
        except NotFound:
            self._book.not_found(look)
            return
        self._book.closed(ledger, last)
        self._book.stated(look, state)

    async def delete(self, ledger: LedgerId) -> None:
        """Delete a ledger."""
        self._book.deleting(ledger)
        await self._node.delete(ledger)
        self._book.deleted(ledger)


async def audit(store: Store, book: LedgerBook) -> list[object]:
    """Look at all that a store has; what it says is given, to be compared with another time."""
    seen: list[object] = []
    for ledger in book.ledgers:
        look = book.looking(ledger)
        try:
            state = store.state(LedgerId(ledger))
            book.stated(look, state)
            seen.append((state.ledger, state.epoch, state.fenced, state.last, state.lac))
            seen.append((state.highest, state.entries, state.suspect))
            seen += await _read_all(store, book, look, highest=state.highest)
        except NotFound:
            book.not_found(look)
            seen.append((ledger, "not found"))
    listed = {state.ledger for state in store.page(None, 1000)}
    seen.append(sorted(listed))
    return seen


async def _read_all(store: Store, book: LedgerBook, look: Look, *, highest: int) -> list[object]:
    seen: list[object] = []
    ledger = LedgerId(look.page.ledger)
    first, upto = EntryId(0), EntryId(book.highest_tried(ledger) + 1)
    while first <= upto:
        chunk = await store.read(Read(ledger=ledger, first=first, upto=upto, bytes_max=WHOLE))
        found = _payloads(chunk)
        book.read(
            look,
            chunk.first,
            chunk.before,
            found,
            chunk.suspects,
            lac=chunk.lac,
            last=chunk.last,
            fenced=chunk.fenced,
        )
        seen.append((found, [entry for entry in chunk.suspects if entry <= highest]))
        first = chunk.before
    return seen


def _payloads(chunk: Chunk) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for piece in chunk.pieces:
        blocks, at = memoryview(piece.blocks), 0
        while at < len(blocks):
            size = HEAD_BYTES + int.from_bytes(blocks[at + 8 : at + 12], "little")
            found[check_entry(blocks[at : at + size]).entry] = bytes(
                blocks[at + HEAD_BYTES : at + size]
            )
            at += size
    return found
