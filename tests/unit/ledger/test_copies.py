"""What copies should have, and from whom it is fetched."""

from roost.ledger.copies import Copy, Fetch, fetches, wanted_entries
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId

A, B, C, D = (NodeId(name) for name in "abcd")
CLOSED = LedgerDocument(
    ledger=LedgerId(7),
    epoch=Epoch(1),
    quorum=Quorum(3, 2, 2),
    phase=LedgerPhase.CLOSED,
    fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(6), (A, D, C))),
    last=EntryId(8),
    laggards=(A,),
)


def test_a_node_is_to_have_what_its_slots_have_in_each_fragment() -> None:
    assert {node: wanted_entries(CLOSED, node) for node in (A, B, C, D)} == {A: 6, B: 4, C: 6, D: 2}


def test_a_copy_is_fetched_fragment_by_fragment_and_from_laggards_last() -> None:
    assert fetches(CLOSED, C) == [
        Fetch(EntryId(0), EntryId(5), (B, A)),
        Fetch(EntryId(6), EntryId(8), (D, A)),
    ]
    assert fetches(CLOSED, D) == [Fetch(EntryId(6), EntryId(8), (C, A))]


def test_a_copy_is_whole_if_it_was_read_and_lacks_nothing_and_holds() -> None:
    assert Copy(A, 6, entries=6).whole
    assert Copy(A, 6, entries=7).whole
    assert not Copy(A, 6, entries=5).whole
    assert not Copy(A, 6, entries=6, bad=1).whole
    assert not Copy(A, 6, error="silent").whole
