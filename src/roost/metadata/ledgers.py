"""A ledger's document: how it is replicated, which nodes have which of its entries, how it ended.

    OPEN  --recovery begins-->  IN_RECOVERY  --its end is found-->  CLOSED  -->  DELETED
      └────────────────── its writer closes it ──────────────────────┘

Every change is a compare-and-set on the version that was read, and nothing else orders writers and
recoverers. Fragments stand in the order of their first entries, the first one begins with entry 0,
and each lasts until the next one begins: which node has an entry follows from the fragment that it
is in, and from the arithmetic of `roost.ledger.quorum`.
"""

from bisect import bisect_right
from enum import Enum
from typing import Final

import msgspec

from roost.metadata.documents import Kind
from roost.types import EntryId, Epoch, LedgerId, NodeId


class Quorum(msgspec.Struct, frozen=True):
    """How a ledger is replicated; fixed when it is made."""

    ensemble: int = 3
    """E: how many nodes it is spread over at a time."""

    write: int = 3
    """Qw: how many of them each entry goes to."""

    ack: int = 2
    """Qa: how many must have it before it is acknowledged."""

    read: int = 1
    """Qr: how many copies a reader compares; one is enough, since every copy is checked."""


class LedgerPhase(Enum):
    """Where a ledger is in its life."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"
    DELETED = "deleted"


class Fragment(msgspec.Struct, frozen=True):
    """From which entry on the ensemble is which."""

    first: EntryId
    nodes: tuple[NodeId, ...]
    """By slot."""


class RecoveryNote(msgspec.Struct, frozen=True):
    """How a ledger was ended for a writer that was gone."""

    by: str
    """Who did it, as a name that no other try has."""

    base: EntryId | None = None
    """The entry up to which all was known to be confirmed; None while it is not known."""

    reason: str = ""
    """Why the ledger ends where it does."""

    given_up: tuple[EntryId, ...] = ()
    """Entries that may have been acknowledged, and were given up by somebody's decision."""


class LedgerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the metadata says of one ledger."""

    ledger: LedgerId
    epoch: Epoch
    """The one epoch whose adds its nodes take; fixed when it is made."""

    quorum: Quorum
    phase: LedgerPhase = LedgerPhase.OPEN
    fragments: tuple[Fragment, ...]
    last: EntryId | None = None
    """The last entry, once it is closed; -1 of one without any."""

    length: int | None = None
    """The bytes of all its payloads, if who closed it knew."""

    laggards: tuple[NodeId, ...] = ()
    """Nodes that are named for entries which they may not have."""

    recovery: RecoveryNote | None = None
    barred: tuple[NodeId, ...] = ()
    """Nodes that were told, or may be told at any time, to forget it: never name one again."""

    def fragment_of(self, entry: int) -> Fragment:
        """Find the fragment that an entry is in."""
        return self.fragments[bisect_right(self.fragments, entry, key=lambda each: each.first) - 1]

    def upto_of(self, index: int) -> EntryId | None:
        """Tell the last entry of a fragment, by its place in the list; None while it grows."""
        if index + 1 < len(self.fragments):
            return EntryId(self.fragments[index + 1].first - 1)
        return self.last

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Name every node of any fragment, each once."""
        return tuple(dict.fromkeys(node for each in self.fragments for node in each.nodes))

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """Name every node that is named for an entry, each once; of a closed ledger."""
        assert self.last is not None, "a ledger that is open has no last entry"
        named = (each.nodes for each in self.fragments if each.first <= self.last)
        return tuple(dict.fromkeys(node for nodes in named for node in nodes))

    def with_fragments(
        self, fragments: tuple[Fragment, ...], laggards: tuple[NodeId, ...]
    ) -> "LedgerDocument":
        """Say that its writer goes on with another ensemble."""
        return msgspec.structs.replace(self, fragments=fragments, laggards=laggards)

    def closed(
        self, last: EntryId, *, length: int | None, laggards: tuple[NodeId, ...]
    ) -> "LedgerDocument":
        """Say that it is closed."""
        closed = msgspec.structs.replace(
            self, phase=LedgerPhase.CLOSED, last=last, length=length, laggards=laggards
        )
        return closed.tidied()

    def tidied(self) -> "LedgerDocument":
        """Forget laggards that are named for nothing."""
        left = tuple(each for each in self.laggards if each in self.holders)
        return msgspec.structs.replace(self, laggards=left)

    def in_recovery(self, by: str) -> "LedgerDocument":
        """Say that somebody ends it for its writer."""
        return msgspec.structs.replace(
            self, phase=LedgerPhase.IN_RECOVERY, recovery=RecoveryNote(by)
        )

    def deleted(self) -> "LedgerDocument":
        """Say that it is deleted, and remember which nodes have to be told."""
        return msgspec.structs.replace(self, phase=LedgerPhase.DELETED)

    def check(self) -> None:
        """Assert what holds of every document (L4)."""
        firsts = [each.first for each in self.fragments]
        assert firsts, "a ledger has fragments"
        assert firsts[0] == 0, "the first fragment begins with entry 0"
        assert firsts == sorted(set(firsts)), "each fragment begins behind the one before"
        for each in self.fragments:
            assert len(each.nodes) == self.quorum.ensemble, "each slot has a node"
            assert len(set(each.nodes)) == len(each.nodes), "no node has two slots"
            assert not set(each.nodes) & set(self.barred), "who may forget it is not named"
        assert (self.last is not None) == (self.phase is LedgerPhase.CLOSED) or (
            self.phase is LedgerPhase.DELETED
        ), "a ledger has a last entry once it is closed"


LEDGER: Final = Kind("ledger", LedgerDocument)
