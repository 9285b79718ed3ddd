"""Reads all ledgers' documents, page by page: none is kept, and one that is spoilt stops nobody."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from roost.errors import RoostError
from roost.host.log import Log
from roost.host.metrics import MasterMetrics
from roost.ledger.records import Versioned
from roost.metadata.layout import LEDGERS, ledger_key
from roost.metadata.ledgers import LEDGER
from roost.metadata.operations import OPERATIONS_MAX, Get, Item
from roost.metadata.store import MetadataStore
from roost.types import LedgerId

PAGE: Final = 256
GETS_MAX: Final = OPERATIONS_MAX


class Documents:
    """The documents of all ledgers, as they are when they are read."""

    def __init__(self, store: MetadataStore, log: Log, metrics: MasterMetrics) -> None:
        self._store: Final = store
        self._log: Final = log
        self._metrics: Final = metrics

    async def all(self, after: LedgerId | None = None) -> AsyncGenerator[Versioned, None]:
        """List the documents behind one, in the order of their ids."""
        behind = "" if after is None else ledger_key(after)
        more = True
        while more:
            page = await self._store.range(LEDGERS, after=behind, limit=PAGE)
            for item in page.items:
                behind = item.key
                try:
                    yield _versioned(item)
                except RoostError as error:
                    self._note(error)
            more = page.more and bool(page.items)

    async def some(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Versioned | None]:
        """Read some documents, all in one instant, as they are now; None where there is none.

        One that cannot be read is left out.
        """
        assert len(ledgers) <= GETS_MAX, "a transaction has so many operations at most"
        outcome = await self._store.txn((), [Get(ledger_key(ledger)) for ledger in ledgers])
        found: dict[LedgerId, Versioned | None] = {}
        for ledger, item in zip(ledgers, outcome.got, strict=True):
            try:
                found[ledger] = None if item is None else _versioned(item)
            except RoostError as error:
                self._note(error)
        return found

    def _note(self, error: RoostError) -> None:
        self._metrics.unreadable += 1
        self._log.event("document_unreadable", level="error", error=str(error))


def _versioned(item: Item) -> Versioned:
    return Versioned(LEDGER.decode(item.key, item.value), item.changed)
