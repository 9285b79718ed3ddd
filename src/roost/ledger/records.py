"""Ledgers' documents in the metadata store: made, read, and changed by compare-and-set.

The promise: whoever is told that a change was made, made it, and whoever is told that it was not,
made none that could still happen. An answer that was lost is no answer: the same change is sent
again, on the same revision, until the store says what has become of it.
"""

import asyncio
from typing import Final

import msgspec

from roost.errors import Conflict, NotFound, Retryable, RoostError, Unavailable, Unknown
from roost.host.clock import Clock
from roost.metadata.ids import take_ids
from roost.metadata.layout import LEDGERS, ledger_key
from roost.metadata.ledgers import LEDGER, LedgerDocument
from roost.metadata.operations import Absent, ChangedAt, Compare, Get, Item, Put, Revision
from roost.metadata.store import MetadataStore
from roost.types import LedgerId

PAUSE_S: Final = 0.05
CALL_S: Final = 2.0


class Versioned(msgspec.Struct, frozen=True):
    """A document as it was read or written."""

    document: LedgerDocument
    revision: Revision


class Records:
    """The documents of all ledgers."""

    def __init__(self, store: MetadataStore, *, clock: Clock, timeout_s: float = 30.0) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._timeout_s: Final = timeout_s

    async def new_id(self) -> LedgerId:
        """Draw an id that no ledger ever had: numbers may be left out, and none comes twice."""
        deadline = self._clock.now() + self._timeout_s
        while True:
            try:
                return LedgerId(await take_ids(self._store, "ledger", timeout_s=CALL_S))
            except Retryable as error:
                await self._pause(deadline, error)

    async def create(self, document: LedgerDocument) -> Versioned:
        """Put down a new ledger."""
        return await self._settle(Absent(ledger_key(document.ledger)), document)

    async def read(self, ledger: LedgerId) -> Versioned:
        """Read a ledger's document, as it is now."""
        deadline = self._clock.now() + self._timeout_s
        while True:
            try:
                item = await self._store.get(ledger_key(ledger), timeout_s=CALL_S)
            except Unavailable as error:
                await self._pause(deadline, error)
                continue
            if item is None:
                raise NotFound(f"there is no ledger {ledger}")
            return _versioned(item)

    async def change(self, was: Versioned, now: LedgerDocument) -> Versioned:
        """Change a document that nobody else has changed; `Conflict` if somebody has.

        `Unknown` if the store gives no answer for too long.
        """
        return await self._settle(ChangedAt(ledger_key(now.ledger), was.revision), now)

    async def _settle(self, compare: Compare, now: LedgerDocument) -> Versioned:
        now.check()
        key = ledger_key(now.ledger)
        put, get = Put(key, LEDGER.encode(now)), Get(key)
        deadline = self._clock.now() + self._timeout_s
        doubtful = False
        while True:
            try:
                outcome = await self._store.txn((compare,), (put,), (get,), timeout_s=CALL_S)
            except (Unavailable, Unknown) as error:
                doubtful = doubtful or isinstance(error, Unknown)
                await self._pause(deadline, error, doubtful=doubtful)
                continue
            if outcome.succeeded:
                return Versioned(now, outcome.revision)
            (item,) = outcome.got
            # What stands there may be ours, put by the try whose answer was lost.
            if doubtful and item is not None and item.value == put.value:
                return _versioned(item)
            raise Conflict(f"ledger {now.ledger}: somebody else has changed its document")

    async def _pause(self, deadline: float, error: RoostError, *, doubtful: bool = False) -> None:
        if self._clock.now() >= deadline:
            if doubtful and not isinstance(error, Unknown):
                raise Unknown(f"a change may or may not have been made: {error}") from error
            raise error
        await asyncio.sleep(PAUSE_S)

    async def page(self, after: LedgerId | None, limit: int) -> list[Versioned]:
        """List ledgers' documents, in the order of their ids; fewer than `limit` are the last."""
        found: list[Versioned] = []
        behind = "" if after is None else ledger_key(after)
        more = True
        while more and len(found) < limit:
            page = await self._store.range(
                LEDGERS, after=behind, limit=limit - len(found), timeout_s=CALL_S
            )
            found += map(_versioned, page.items)
            more = page.more and bool(page.items)
            behind = page.items[-1].key if page.items else behind
        return found


def _versioned(item: Item) -> Versioned:
    return Versioned(LEDGER.decode(item.key, item.value), item.changed)
