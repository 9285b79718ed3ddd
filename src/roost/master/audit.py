"""Finds, in the documents of all ledgers, what lacks a copy, and says what is most urgent.

Pure. A ledger is as safe as its worst entry: what counts is how many nodes are left that have all
that they are named for, in the worst of its write sets. Whoever has the fewest comes first, and
what only moves away from a node that is well comes last.

Ledgers that are open are counted and left alone. Their writers replace what fails as they write;
where the writer is gone, whoever owns the ledger recovers it, since only the owner knows that.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection
from enum import IntEnum
from typing import Final

import msgspec

from roost.ledger.quorum import stripe_masks
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import LedgerId, NodeId

NEEDS_MAX: Final = 1000
"""How many are kept of one look; the next look finds the others."""


class Why(IntEnum):
    """What is the matter with a ledger, the worst first."""

    LOST = 0
    """A node is gone."""
    LAGGING = 1
    """A node is named for entries that it may not have."""
    LEAVING = 2
    """A node is to be emptied."""


class Need(msgspec.Struct, frozen=True, order=True):
    """One ledger that something is to be done about; the most urgent is the least."""

    copies: int
    """How many nodes are left of the worst write set."""

    why: Why
    ledger: LedgerId


class Survey:
    """One look at all ledgers."""

    def __init__(
        self,
        *,
        gone: Callable[[tuple[NodeId, ...]], Collection[NodeId]],
        draining: Collection[NodeId],
        resting: Collection[LedgerId] = (),
    ) -> None:
        self.ledgers = 0
        self.under_replicated = 0
        self.waiting = 0
        """Open ledgers with a node that is gone."""
        self.gone: Final[set[NodeId]] = set()
        """Nodes that are named, and gone."""
        self.draining: Final[Counter[NodeId]] = Counter(dict.fromkeys(draining, 0))
        """Of each node that is to be emptied, how many ledgers name it."""
        self.draining_open = 0
        """Of these ledgers, how many are open."""
        self.needs: Final[list[Need]] = []
        """The most urgent, in that order."""
        self._gone: Final = gone
        self._resting: Final = resting

    def on_document(self, document: LedgerDocument) -> None:
        """Look at one ledger."""
        if document.phase is LedgerPhase.DELETED:
            return
        self.ledgers += 1
        closed = document.phase is LedgerPhase.CLOSED
        named = document.holders if closed else document.nodes
        leaving = [node for node in named if node in self.draining]
        self.draining.update(leaving)
        self.draining_open += bool(leaving) and not closed
        gone = self._gone(named)
        self.gone.update(gone)
        if not closed:
            self.waiting += bool(gone)
        elif (need := need_of(document, gone=gone, leaving=self.draining.keys())) is not None:
            self.under_replicated += need.why is not Why.LEAVING
            if document.ledger not in self._resting:
                insort(self.needs, need)
                del self.needs[NEEDS_MAX:]


def need_of(
    document: LedgerDocument, *, gone: Collection[NodeId], leaving: Collection[NodeId]
) -> Need | None:
    """Tell what a closed ledger needs; None if it is whole."""
    named = {*document.holders}
    laggards = named & {*document.laggards}
    if named & {*gone}:
        why = Why.LOST
    elif laggards:
        why = Why.LAGGING
    elif named & {*leaving}:
        why = Why.LEAVING
    else:
        return None
    return Need(_copies(document, {*gone, *laggards}), why, document.ledger)


def _copies(document: LedgerDocument, without: Collection[NodeId]) -> int:
    """Count the nodes that are left of the worst write set of any fragment."""
    masks = stripe_masks(document.quorum)
    copies = document.quorum.write
    for fragment in document.fragments:
        assert document.last is not None, "it is closed"
        if fragment.first <= document.last:
            left = sum(1 << slot for slot, node in enumerate(fragment.nodes) if node not in without)
            copies = min(copies, *((mask & left).bit_count() for mask in masks))
    return copies
