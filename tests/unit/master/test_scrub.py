"""What of a replica is bad, as far as its own account proves anything."""

import msgspec

from roost.master.scrub import Span, is_proven, named_spans, spans_of, wanted
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, NodeId
from roost.wire.messages import LedgerState, VerifyReport

A, B, C, D = (NodeId(name) for name in "abcd")
DOCUMENT = LedgerDocument(
    ledger=LedgerId(7),
    epoch=Epoch(1),
    quorum=Quorum(3, 2, 2),
    fragments=(
        Fragment(EntryId(0), (A, B, C)),
        Fragment(EntryId(5), (A, D, C)),
        Fragment(EntryId(9), (B, D, C)),
    ),
    phase=LedgerPhase.CLOSED,
    last=EntryId(8),
)
STATE = LedgerState(
    ledger=LedgerId(7),
    epoch=Epoch(1),
    fenced=None,
    last=EntryId(8),
    lac=NO_ENTRY,
    highest=EntryId(8),
    entries=9,
    bytes=90,
    flushed_before=0,
    flushed_at=0.0,
    suspect=False,
)
REPORT = VerifyReport(ledger=LedgerId(7), entries=9, bytes=90, bad=[], bad_total=0, complete=True)


def span(first: int, upto: int) -> Span:
    return Span(EntryId(first), EntryId(upto))


def test_a_count_proves_a_replica_that_has_every_entry_and_no_other() -> None:
    replace = msgspec.structs.replace

    assert is_proven(DOCUMENT, REPORT, STATE)
    assert not is_proven(DOCUMENT, replace(REPORT, entries=8), replace(STATE, entries=8))
    assert not is_proven(DOCUMENT, replace(REPORT, bad_total=1, entries=8), STATE)
    assert not is_proven(DOCUMENT, replace(REPORT, complete=False), STATE)
    assert not is_proven(DOCUMENT, REPORT, replace(STATE, highest=EntryId(9)))
    assert not is_proven(DOCUMENT, REPORT, replace(STATE, suspect=True))


def test_a_node_is_named_for_its_slots_in_the_fragments_up_to_the_end() -> None:
    assert [*named_spans(DOCUMENT, A)] == [(0, span(0, 4)), (0, span(5, 8))]
    assert [*named_spans(DOCUMENT, B)] == [(1, span(0, 4))]
    assert [*named_spans(DOCUMENT, D)] == [(1, span(5, 8))]
    assert [*wanted(DOCUMENT, 0, span(0, 4))] == [0, 2, 3]
    assert [*wanted(DOCUMENT, 1, span(5, 8))] == [6, 7]


def test_bad_entries_that_are_near_are_copied_together_but_not_across_fragments() -> None:
    within = [span(0, 99), span(100, 300)]
    bad = [EntryId(each) for each in (3, 4, 10, 90, 99, 100, 250, 400)]

    assert spans_of(bad, within) == [
        span(3, 10),
        span(90, 99),
        span(100, 100),
        span(250, 250),
    ]
    assert spans_of([], within) == []
