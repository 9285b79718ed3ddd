"""Reads a range of one fragment: whom to ask, whom to ask next, and what to believe.

Sans-IO. The promises: nothing is read beyond what is confirmed, which `Horizon` knows; entries come
in order and without a gap; and what comes is what was written, since each copy carries the checksum
of who wrote it. So one copy is enough. That a node lacks a confirmed entry, or cannot read it, is
its fault, to be told to whoever repairs, and the next replica is asked.

Entries of a striped ledger are on different nodes: as many nodes are asked at once as it takes to
have every entry of the range from one of them. A range is answered once its first entries are
there, as many as came; whoever wants the rest asks again. With a read quorum above one, so many
copies of each entry are asked for and compared.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from roost.ledger.quorum import stripe_masks
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import NO_ENTRY, EntryId, NodeId


class Ask(msgspec.Struct, frozen=True):
    """Read a range of a node; answer with `on_batch`es and `on_read_end`, or with `on_failed`."""

    node: NodeId
    first: EntryId
    upto: EntryId


class Ill(Enum):
    """What is wrong with a copy."""

    ABSENT = "absent"
    UNREADABLE = "unreadable"
    DIFFERENT = "different"


class Fault(msgspec.Struct, frozen=True):
    """Tell whoever repairs that a node does not have what it should have."""

    node: NodeId
    entry: EntryId
    ill: Ill


class Done(msgspec.Struct, frozen=True):
    """Give the reader these entries, from the first one on."""

    payloads: tuple[bytes | memoryview, ...]


class Failed(msgspec.Struct, frozen=True):
    """Tell the reader that nobody who answers has the first entry."""

    entry: EntryId
    why: str


Effect = Ask | Fault | Done | Failed


class RangeRead:
    """One read of entries that are all in one fragment."""

    def __init__(
        self,
        document: LedgerDocument,
        first: EntryId,
        upto: EntryId,
        *,
        order: Sequence[NodeId],
    ) -> None:
        fragment = document.fragment_of(first)
        assert first <= upto, "a range has entries"
        assert document.fragment_of(upto) is fragment, "a range is in one fragment"
        self._quorum: Final = document.quorum
        self._nodes: Final = fragment.nodes
        self._first: Final = first
        self._upto: Final = upto
        ranks = {node: rank for rank, node in enumerate(order)}
        self._order: Final = sorted(
            range(len(self._nodes)), key=lambda slot: ranks.get(self._nodes[slot], len(ranks))
        )
        masks = stripe_masks(self._quorum)
        self._masks: Final = masks
        self._found: dict[EntryId, bytes | memoryview] = {}
        self._copies: dict[EntryId, dict[int, bytes | memoryview]] = {}
        self._lacking: dict[EntryId, int] = {}
        """The slots that do not have an entry, for those of which that is known."""
        self._silent = 0
        self._asked = 0
        self._hedged = False
        self._over = False

    @property
    def over(self) -> bool:
        """Whether it was answered."""
        return self._over

    def start(self) -> Sequence[Effect]:
        """Begin."""
        return self._ask()

    def on_slow(self) -> Sequence[Effect]:
        """Note that those who were asked take longer than usual: ask others, too."""
        if self._over or self._hedged:
            return []
        self._hedged = True
        if self._prefix():
            return self._finish()
        return self._ask_those(self._cover(self._asked))

    def on_batch(
        self,
        node: NodeId,
        first: EntryId,
        before: EntryId,
        found: Mapping[EntryId, bytes | memoryview],
        unsure: Iterable[EntryId],
    ) -> Sequence[Effect]:
        """Note what a node has of the entries [first, before)."""
        if self._over:
            return []
        slot = self._nodes.index(node)
        doubtful = {*unsure}
        effects: list[Effect] = []
        for number in range(max(first, self._first), min(before, self._upto + 1)):
            entry = EntryId(number)
            if not self._masks[entry % self._quorum.ensemble] >> slot & 1:
                continue
            payload = found.get(entry)
            if payload is None:
                ill = Ill.UNREADABLE if entry in doubtful else Ill.ABSENT
                effects.append(self._lacks(slot, entry, ill))
            elif self._quorum.read == 1:
                self._found.setdefault(entry, payload)
            else:
                effects += self._compare(slot, entry, payload)
        return effects

    def _lacks(self, slot: int, entry: EntryId, ill: Ill) -> Fault:
        self._lacking[entry] = self._lacking.get(entry, 0) | 1 << slot
        return Fault(self._nodes[slot], entry, ill)

    def _compare(self, slot: int, entry: EntryId, payload: bytes | memoryview) -> Iterable[Effect]:
        copies = self._copies.setdefault(entry, {})
        copies[slot] = payload
        same = [each for each in copies.values() if each == payload]
        if len(same) >= self._quorum.read:
            self._found.setdefault(entry, payload)
        if len(same) < len(copies):
            yield self._lacks(slot, entry, Ill.DIFFERENT)

    def on_read_end(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node has said what it was asked for."""
        return self._ended(node)

    def on_failed(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node cannot be asked."""
        self._silent |= 1 << self._nodes.index(node)
        return self._ended(node)

    def _ended(self, node: NodeId) -> Sequence[Effect]:
        self._asked &= ~(1 << self._nodes.index(node))
        if self._over or (self._asked and not (self._hedged and self._prefix())):
            return []
        return self._finish() if self._prefix() else self._ask()

    # How it works

    def _prefix(self) -> bool:
        return self._first in self._found

    def _finish(self) -> Sequence[Effect]:
        self._over = True
        payloads = []
        entry = self._first
        while (payload := self._found.get(entry)) is not None:
            payloads.append(payload)
            entry = EntryId(entry + 1)
        return [Done(tuple(payloads))]

    def _ask(self) -> Sequence[Effect]:
        asks = self._ask_those(self._cover(0))
        if asks or self._asked:
            return asks
        self._over = True
        lacking = self._lacking.get(self._first, 0)
        ill = [self._nodes[slot] for slot in self._order if lacking >> slot & 1]
        gone = [self._nodes[slot] for slot in self._order if self._silent >> slot & 1]
        return [
            Failed(
                self._first,
                f"entry {self._first}: not whole on {', '.join(ill) or 'any node'}, and no answer "
                f"from {', '.join(gone) or 'no other'}",
            )
        ]

    def _cover(self, besides: int) -> list[int]:
        """Choose slots so that what is not there yet is on enough of them; none if hope is gone.

        First of all the first entry: from those that can have it and have not said anything of it.
        """
        usable = [slot for slot in self._order if not (self._silent | besides) >> slot & 1]
        head = self._masks[self._first % self._quorum.ensemble] & ~self._said(self._first)
        wanted = self._quorum.read - self._agreeing(self._first)
        chosen = [slot for slot in usable if head >> slot & 1][:wanted]
        if not chosen:
            return []
        short = dict.fromkeys(self._stripes_missing(), self._quorum.read)
        for slot in [*chosen, *(each for each in usable if each not in chosen)]:
            useful = [each for each, few in short.items() if few and self._masks[each] >> slot & 1]
            for stripe in useful:
                short[stripe] -= 1
            if useful and slot not in chosen:
                chosen.append(slot)
        return chosen

    def _said(self, entry: EntryId) -> int:
        """Tell which slots have said all of an entry that they can."""
        return self._lacking.get(entry, 0) | sum(1 << slot for slot in self._copies.get(entry, ()))

    def _agreeing(self, entry: EntryId) -> int:
        """Count the copies of an entry that are the same, at best."""
        copies = [*self._copies.get(entry, {}).values()]
        return max((copies.count(each) for each in copies), default=0)

    def _stripes_missing(self) -> set[int]:
        """Tell which stripes have entries, behind the first, that are not there yet."""
        size = self._quorum.ensemble
        stripes: set[int] = set()
        for number in range(self._first + 1, self._upto + 1):
            if EntryId(number) not in self._found:
                stripes.add(number % size)
                if len(stripes) == size:
                    break
        return stripes

    def _ask_those(self, slots: Iterable[int]) -> list[Effect]:
        asks: list[Effect] = []
        for slot in slots:
            self._asked |= 1 << slot
            asks.append(Ask(self._nodes[slot], self._first, self._upto))
        return asks


class Horizon:
    """How far a ledger may be read: what is beyond may still vanish (L5)."""

    def __init__(self) -> None:
        self.upto: EntryId = NO_ENTRY
        """The last entry that may be read now."""
        self.closed = False
        """Whether there will be no more."""

    def on_document(self, document: LedgerDocument) -> None:
        """Learn from the metadata."""
        if document.phase is LedgerPhase.CLOSED and document.last is not None:
            self.upto, self.closed = document.last, True

    def on_lac(self, lac: EntryId) -> None:
        """Learn what LAC a node knows."""
        if not self.closed:
            self.upto = max(self.upto, lac)


class Latencies:
    """How long reads took lately, to tell what is slow."""

    def __init__(self, *, kept: int = 256, at_least_s: float = 0.005, first_s: float = 0.1) -> None:
        self._times: deque[float] = deque(maxlen=kept)
        self._at_least_s: Final = at_least_s
        self._first_s: Final = first_s

    def note(self, took_s: float) -> None:
        """Note how long one took."""
        self._times.append(took_s)

    def slow_after_s(self) -> float:
        """Tell after which time a read takes longer than 99 of 100 did."""
        if len(self._times) < 20:  # noqa: PLR2004 (of fewer nobody can tell)
            return self._first_s
        return max(self._at_least_s, sorted(self._times)[-1 - len(self._times) // 100])
