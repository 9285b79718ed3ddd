"""Checks what happened to replicated ledgers against what was promised.

A `ReplicaBook` is told what writers were answered, what readers saw, how each document changed, and
may look at what each node durably holds at any moment; it raises `Violation` at the first thing
that must never be. It knows the arithmetic of quorums, and nothing of how clients work. The checks,
by the names of docs/protocols/ledger.md:

- *acked is durable* (L1): an entry that was acknowledged, or once read, is at or before the end of
  its ledger for ever, and is read there with the same bytes.
- *acked in order*: the entries of a ledger are acknowledged by their ids, without a gap.
- *one value* (L2): no two nodes, and no two readers, have other bytes under one id.
- *enough copies* (L3): when a ledger is closed, each entry is on Qa nodes of its write set.
- *fragments grow* (L4): they begin one behind the other, the first with entry 0; what is named for
  confirmed entries changes by repair alone.
- *nothing that may vanish* (L5): nobody reads beyond what the writer had confirmed or the end.
- *closed once* (L6): phases only go on, and the end of a ledger never moves.
- *named is there* (P1): once a ledger is closed, each named node that is no laggard holds all that
  it is named for, but for nodes that were lost with their disks.
- *refused stays refused*: what was refused for certain never appears.
"""

from collections.abc import Callable, Mapping

from roost.errors import Unknown
from roost.ledger.quorum import write_set
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.sim.checkers import Violation
from roost.types import NO_ENTRY, EntryId, LedgerId, NodeId

Holding = Callable[[NodeId, LedgerId], Mapping[EntryId, bytes] | None]
"""Gives what a node durably holds of a ledger; None of a node whose disk is lost."""

_ORDER = [
    LedgerPhase.OPEN,
    LedgerPhase.IN_RECOVERY,
    LedgerPhase.CLOSED,
    LedgerPhase.DELETED,
]


class Page:
    """What is known of one ledger."""

    def __init__(self, lac: Callable[[], EntryId]) -> None:
        self.lac = lac
        """Tells what its writer has confirmed."""
        self.sent: list[bytes] = []
        """What was let in, by entry."""
        self.settled = NO_ENTRY
        """The last entry whose writer was told anything of it."""
        self.acked = NO_ENTRY
        self.read = NO_ENTRY
        self.document: LedgerDocument | None = None


class ReplicaBook:
    """All that is known of a cluster's ledgers."""

    def __init__(self, holding: Holding) -> None:
        self.pages: dict[LedgerId, Page] = {}
        self.acked = 0
        self.unknown = 0
        self.refused = 0
        self.found = 0
        self._holding = holding
        self._refused: set[bytes] = set()

    # Writing

    def opened(self, ledger: LedgerId, lac: Callable[[], EntryId]) -> None:
        """Note that a ledger has its writer."""
        self.pages[ledger] = Page(lac)

    def sent(self, ledger: LedgerId, payload: bytes) -> EntryId:
        """Note that an entry was let in; gives the id that it must have."""
        page = self.pages[ledger]
        page.sent.append(payload)
        return EntryId(len(page.sent) - 1)

    def not_sent(self, payload: bytes) -> None:
        """Note that an entry was refused for certain."""
        self.refused += 1
        self._refused.add(payload)

    def answered(self, ledger: LedgerId, entry: EntryId, outcome: int | BaseException) -> None:
        """Note what became of an entry that was let in."""
        page = self.pages[ledger]
        page.settled, before = entry, page.settled
        if entry != before + 1:
            raise Violation(f"acked in order: {ledger}/{entry} was answered behind {before}")
        if isinstance(outcome, BaseException):
            if not isinstance(outcome, Unknown):
                raise Violation(f"refused stays refused: {ledger}/{entry} was let in: {outcome!r}")
            self.unknown += 1
            return
        self.acked += 1
        if outcome != entry:
            raise Violation(f"acked in order: {ledger}/{entry} was acknowledged as {outcome}")
        page.acked = entry
        document = page.document
        if document is not None and document.last is not None and entry > document.last:
            raise Violation(
                f"acked is durable: {ledger}/{entry} was acknowledged, and the ledger ends at "
                f"{document.last}"
            )

    # Reading

    def read(self, ledger: LedgerId, entry: EntryId, payload: bytes) -> None:
        """Note that somebody was given an entry."""
        page = self.pages[ledger]
        self.found += 1
        self._check_value(ledger, entry, payload, "was read")
        last = None if page.document is None else page.document.last
        if entry > max(page.lac(), NO_ENTRY if last is None else last):
            raise Violation(
                f"nothing that may vanish: {ledger}/{entry} was read; confirmed is {page.lac()}, "
                f"and the end is {last}"
            )
        page.read = max(page.read, entry)

    def _check_value(self, ledger: LedgerId, entry: EntryId, payload: bytes, how: str) -> None:
        sent = self.pages[ledger].sent
        if payload in self._refused or entry >= len(sent):
            raise Violation(f"refused stays refused: {ledger}/{entry} {payload[:20]!r} {how}")
        if sent[entry] != payload:
            raise Violation(
                f"one value: {ledger}/{entry} {how} as {payload[:20]!r}, and was sent as "
                f"{sent[entry][:20]!r}"
            )

    # The metadata

    def changed(self, document: LedgerDocument) -> None:
        """Note a document as it stands now; each change is told, in order."""
        page = self.pages.get(document.ledger)
        if page is None:
            page = self.pages[document.ledger] = Page(lambda: NO_ENTRY)
        before, page.document = page.document, document
        self._check_fragments(document)
        if before is not None:
            self._check_change(before, document)
        if document.phase is LedgerPhase.CLOSED:
            self._check_closed(page, document)
            if before is None or before.phase is not LedgerPhase.CLOSED:
                self._check_copies(document)
            self._check_named(document)

    def _check_fragments(self, document: LedgerDocument) -> None:
        firsts = [each.first for each in document.fragments]
        if firsts != sorted(set(firsts)) or firsts[:1] != [0]:
            raise Violation(f"fragments grow: {document.ledger}: they begin at {firsts}")
        for each in document.fragments:
            if len({*each.nodes}) != document.quorum.ensemble:
                raise Violation(f"fragments grow: {document.ledger}: {each}")

    def _check_change(self, before: LedgerDocument, after: LedgerDocument) -> None:
        name = f"ledger {after.ledger}"
        step = _ORDER.index(after.phase) - _ORDER.index(before.phase)
        if step < 0:
            raise Violation(f"closed once: {name} was {before.phase}, and is {after.phase}")
        if before.last is not None and after.last != before.last:
            raise Violation(f"closed once: {name} ended at {before.last}, ends at {after.last}")
        if before.last is not None and (before.recovery, before.length) != (
            after.recovery,
            after.length,
        ):
            raise Violation(f"closed once: {name} was closed, and closed again")
        if after.epoch != before.epoch or after.quorum != before.quorum:
            raise Violation(f"one value: {name} is of another epoch or quorum")
        closed = before.phase is LedgerPhase.CLOSED
        settled = before.fragments[:-1]
        if not closed and after.fragments[: len(settled)] != settled:
            raise Violation(f"fragments grow: {name}: from {before.fragments} to {after.fragments}")

    def _check_closed(self, page: Page, document: LedgerDocument) -> None:
        last = document.last
        name = f"ledger {document.ledger}"
        if last is None:
            raise Violation(f"closed once: {name} has no end")
        if last >= len(page.sent):
            raise Violation(f"refused stays refused: {name} ends at {last}: nobody sent that")
        if page.acked > last:
            raise Violation(
                f"acked is durable: {name} ends at {last}, and {page.acked} was acknowledged"
            )
        if page.read > last:
            raise Violation(
                f"nothing that may vanish: {name} ends at {last}, and {page.read} was read"
            )

    def _check_copies(self, document: LedgerDocument) -> None:
        """Count copies at the instant of the close; a disk that is lost had them."""
        for fragment, entries in _spans(document):
            held = [self._holding(node, document.ledger) for node in fragment]
            for entry in entries:
                slots = write_set(entry, document.quorum)
                copies = sum((of := held[slot]) is None or entry in of for slot in slots)
                if copies < document.quorum.ack:
                    raise Violation(
                        f"enough copies: {document.ledger}/{entry} is on {copies} of its nodes "
                        "as the ledger is closed"
                    )

    def _check_named(self, document: LedgerDocument) -> None:
        for fragment, entries in _spans(document):
            for slot, node in enumerate(fragment):
                held = self._holding(node, document.ledger)
                if held is None or node in document.laggards:
                    continue
                for entry in entries:
                    if slot in write_set(entry, document.quorum) and entry not in held:
                        raise Violation(
                            f"named is there: {node} is named for {document.ledger}/{entry}, and "
                            "does not hold it"
                        )

    # The end

    def named(self) -> None:
        """Look once more at what closed ledgers name: nothing of it may have been dropped since."""
        for page in self.pages.values():
            if page.document is not None and page.document.phase is LedgerPhase.CLOSED:
                self._check_named(page.document)

    def replicas(self, nodes: list[NodeId]) -> None:
        """Look at all that all nodes hold."""
        for ledger in self.pages:
            for node in nodes:
                for entry, payload in (self._holding(node, ledger) or {}).items():
                    self._check_value(ledger, entry, payload, f"is held by {node}")

    def whole(self, ledger: LedgerId, payloads: list[bytes]) -> None:
        """Note all that a closed ledger gives, from its first entry to its last."""
        page = self.pages[ledger]
        assert page.document is not None, "it was told"
        if len(payloads) - 1 != page.document.last:
            raise Violation(
                f"acked is durable: ledger {ledger} ends at {page.document.last}, and "
                f"{len(payloads)} entries can be read"
            )
        for entry, payload in enumerate(payloads):
            self._check_value(ledger, EntryId(entry), payload, "is there at the end")


def _spans(document: LedgerDocument) -> list[tuple[tuple[NodeId, ...], range]]:
    """Give of each fragment its nodes, and the entries that it has."""
    spans = []
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        assert upto is not None, "a closed ledger ends"
        last = document.last
        assert last is not None, "and says where"
        spans.append((fragment.nodes, range(fragment.first, min(upto, last) + 1)))
    return spans
