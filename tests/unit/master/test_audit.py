"""What lacks a copy, and what is most urgent."""

from collections.abc import Collection

import msgspec

from roost.master.audit import NEEDS_MAX, Need, Survey, Why, need_of
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId

A, B, C, D, E = (NodeId(name) for name in "abcde")


def closed(ledger: int = 7, *nodes: NodeId, laggards: tuple[NodeId, ...] = ()) -> LedgerDocument:
    return LedgerDocument(
        ledger=LedgerId(ledger),
        epoch=Epoch(1),
        quorum=Quorum(),
        fragments=(Fragment(EntryId(0), nodes or (A, B, C)),),
        phase=LedgerPhase.CLOSED,
        last=EntryId(8),
        laggards=laggards,
    )


def opened(ledger: int, *nodes: NodeId) -> LedgerDocument:
    return msgspec.structs.replace(closed(ledger, *nodes), phase=LedgerPhase.OPEN, last=None)


def survey(
    *documents: LedgerDocument,
    gone: Collection[NodeId] = (),
    draining: Collection[NodeId] = (),
    resting: Collection[LedgerId] = (),
) -> Survey:
    found = Survey(gone=lambda nodes: {*nodes} & {*gone}, draining=draining, resting=resting)
    for each in documents:
        found.on_document(each)
    return found


def test_a_whole_ledger_needs_nothing() -> None:
    assert need_of(closed(), gone={D}, leaving={E}) is None


def test_who_has_the_fewest_copies_left_comes_first_and_moves_come_last() -> None:
    found = survey(
        closed(1, A, B, C),
        closed(2, C, D, E),
        closed(3, B, C, D, laggards=(D,)),
        closed(4, A, B, D, laggards=(D,)),
        closed(5, C, B, E),
        gone={A},
        draining={E},
    )

    assert found.needs == [
        Need(1, Why.LOST, LedgerId(4)),
        Need(2, Why.LOST, LedgerId(1)),
        Need(2, Why.LAGGING, LedgerId(3)),
        Need(3, Why.LEAVING, LedgerId(2)),
        Need(3, Why.LEAVING, LedgerId(5)),
    ]
    assert (found.ledgers, found.under_replicated, found.gone) == (5, 3, {A})
    assert found.draining == {E: 2}


def test_the_worst_write_set_of_any_fragment_counts() -> None:
    striped = LedgerDocument(
        ledger=LedgerId(1),
        epoch=Epoch(1),
        quorum=Quorum(4, 2, 2),
        fragments=(Fragment(EntryId(0), (A, B, C, D)), Fragment(EntryId(9), (E, B, C, D))),
        phase=LedgerPhase.CLOSED,
        last=EntryId(12),
    )

    def copies(*gone: NodeId) -> int:
        need = need_of(striped, gone=gone, leaving=())
        assert need is not None
        return need.copies

    assert copies(A) == 1
    assert copies(A, C) == 1
    assert copies(A, B) == 0
    # A fragment behind the end names nobody for anything.
    assert need_of(msgspec.structs.replace(striped, last=EntryId(8)), gone={E}, leaving=()) is None


def test_open_ledgers_are_counted_and_left_alone() -> None:
    found = survey(opened(1, A, B, C), opened(2, B, C, D), gone={A}, draining={D})

    assert found.needs == []
    assert (found.ledgers, found.waiting, found.under_replicated) == (2, 1, 0)
    assert (found.draining, found.draining_open) == ({D: 1}, 1)


def test_deleted_ledgers_do_not_count() -> None:
    found = survey(closed().deleted(), gone={A}, draining={B})

    assert (found.ledgers, found.needs, found.draining, found.gone) == (0, [], {B: 0}, set())


def test_what_rests_is_counted_and_not_listed() -> None:
    found = survey(closed(1), closed(2), gone={A}, resting={LedgerId(1)})

    assert found.under_replicated == 2
    assert [need.ledger for need in found.needs] == [2]


def test_only_the_most_urgent_are_kept() -> None:
    many = [closed(number) for number in range(NEEDS_MAX + 5)]

    found = survey(*many, closed(NEEDS_MAX + 5, A, B, D, laggards=(B,)), gone={A})

    assert len(found.needs) == NEEDS_MAX
    assert found.needs[0].ledger == NEEDS_MAX + 5
    assert found.under_replicated == NEEDS_MAX + 6
