"""Tells what of one replica is bad, from the node's own account and from what it can give.

Pure. A node that checks its copy finds what is spoilt, and cannot know what it should have had
besides. A count settles that where it is the whole ledger's; where a node is named for some entries
only, or has more than it is named for, its entries are looked at one by one.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from roost.ledger.quorum import write_set
from roost.metadata.ledgers import LedgerDocument
from roost.types import EntryId, LedgerId, NodeId
from roost.wire.messages import LedgerState, VerifyReport

SPAN_GAP_MAX: Final = 16
"""Bad entries that are so near to each other are copied together, with what lies between."""


class Span(msgspec.Struct, frozen=True, order=True):
    """Entries of one fragment to copy again, `upto` included."""

    first: EntryId
    upto: EntryId


class Scrubbed(msgspec.Struct, frozen=True):
    """What was found of one replica."""

    ledger: LedgerId
    node: NodeId
    bytes: int
    """How many it has read."""

    bad: int
    """Entries that were missing or spoilt."""

    repaired: int


def is_proven(document: LedgerDocument, report: VerifyReport, state: LedgerState) -> bool:
    """Tell whether a node has every entry, each of them good."""
    assert document.last is not None, "a closed ledger ends"
    return (
        report.complete
        and not report.bad_total
        and not state.suspect
        and state.highest <= document.last
        and report.entries == state.entries == document.last + 1
    )


def named_spans(document: LedgerDocument, node: NodeId) -> Iterator[tuple[int, Span]]:
    """Give the fragments that name a node, with the slot that it has in each."""
    assert document.last is not None, "a closed ledger ends"
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        assert upto is not None, "a closed ledger ends"
        if node in fragment.nodes and fragment.first <= (upto := min(upto, document.last)):
            yield fragment.nodes.index(node), Span(fragment.first, upto)


def wanted(document: LedgerDocument, slot: int, span: Span) -> Iterator[EntryId]:
    """List the entries of a span that a slot is to have."""
    for entry in range(span.first, span.upto + 1):
        if slot in write_set(entry, document.quorum):
            yield EntryId(entry)


def spans_of(bad: Iterable[EntryId], within: Collection[Span]) -> list[Span]:
    """Put bad entries together to spans, none of which goes beyond one of those given."""
    found: list[Span] = []
    for entry in sorted({*bad}):
        home = next((each for each in within if each.first <= entry <= each.upto), None)
        if home is None:
            continue  # it is named for none of it
        if found and found[-1].first >= home.first and entry - found[-1].upto <= SPAN_GAP_MAX:
            found[-1] = Span(found[-1].first, entry)
        else:
            found.append(Span(entry, entry))
    return found
