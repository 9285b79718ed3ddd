"""What a closed ledger needs, and how its document learns that it has it."""

from random import Random

import msgspec

from roost.ledger.placement import Candidate
from roost.ledger.repair import (
    Job,
    is_complete,
    is_copied,
    plan,
    with_copy,
    without_laggard,
)
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId
from roost.wire.messages import LedgerState, Placed

A, B, C, D, E = (NodeId(name) for name in "abcde")
CLOSED = LedgerDocument(
    ledger=LedgerId(7),
    epoch=Epoch(1),
    quorum=Quorum(),
    fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(5), (A, B, D))),
    phase=LedgerPhase.CLOSED,
    last=EntryId(8),
)
CANDIDATES = [Candidate(node, 100) for node in (A, B, C, D, E)]


def jobs(
    document: LedgerDocument = CLOSED,
    gone: set[NodeId] | None = None,
    candidates: list[Candidate] | None = None,
) -> list[Job]:
    return plan(
        document,
        gone=gone or set(),
        candidates=CANDIDATES if candidates is None else candidates,
        rng=Random(1),
    )


def job(first: int = 5, upto: int = 8, slot: int = 2, old: NodeId = D, new: NodeId = E) -> Job:
    return Job(
        ledger=LedgerId(7),
        epoch=Epoch(1),
        first=EntryId(first),
        upto=EntryId(upto),
        slot=slot,
        old=old,
        new=new,
        last=EntryId(8),
        sources=(A, B),
    )


def placed(*missing: int, total: int | None = None) -> Placed:
    return Placed(
        ledger=LedgerId(7),
        entries=4,
        bytes=40,
        missing=[EntryId(each) for each in missing],
        missing_total=len(missing) if total is None else total,
    )


def test_a_whole_ledger_needs_nothing_and_an_open_one_gets_nothing() -> None:
    opened = msgspec.structs.replace(CLOSED, phase=LedgerPhase.OPEN, last=None)

    assert jobs() == []
    assert jobs(opened, gone={A}) == []


def test_a_lost_node_is_replaced_in_each_fragment_by_one_that_is_not_in_it() -> None:
    found = jobs(gone={A})

    assert [(each.first, each.upto, each.slot, each.old) for each in found] == [
        (0, 4, 0, A),
        (5, 8, 0, A),
    ]
    assert found[0].new in {D, E}
    assert found[1].new in {C, E}
    assert found[0].sources == (B, C)


def test_a_laggard_fetches_what_it_is_named_for_and_is_asked_last() -> None:
    found = jobs(msgspec.structs.replace(CLOSED, laggards=(B, D)))

    assert [(each.first, each.old, each.new) for each in found] == [
        (0, B, B),
        (5, B, B),
        (5, D, D),
    ]
    assert found[2].sources == (A, B)


def test_nobody_is_there_to_replace_it() -> None:
    assert jobs(gone={A}, candidates=[Candidate(B, 100), Candidate(C, 100)])[:1] != []
    assert jobs(gone={A}, candidates=[]) == []


def test_a_fragment_without_entries_needs_no_copies() -> None:
    empty = msgspec.structs.replace(
        CLOSED, fragments=(*CLOSED.fragments, Fragment(EntryId(9), (B, C, E)))
    )

    assert [each.first for each in jobs(empty, gone={D})] == [5]
    assert jobs(msgspec.structs.replace(empty, last=EntryId(8)), gone={E}) == []


def test_a_copy_counts_if_nothing_is_missing_that_its_slot_is_to_have() -> None:
    striped = msgspec.structs.replace(CLOSED, quorum=Quorum(3, 2, 2))

    assert is_copied(CLOSED, job(), placed())
    assert not is_copied(CLOSED, job(), placed(6))
    assert is_copied(striped, job(), placed(6))  # it goes to the slots 0 and 1
    assert not is_copied(striped, job(), placed(7))
    assert not is_copied(striped, job(), placed(6, total=2000))


def test_the_document_takes_a_copy_only_where_it_is_what_was_read() -> None:
    taken = with_copy(CLOSED, job())

    assert taken is not None
    assert taken.fragments[1].nodes == (A, B, E)
    assert taken.fragments[0] == CLOSED.fragments[0]
    assert with_copy(CLOSED, job(old=C)) is None
    assert with_copy(CLOSED, job(new=A)) is None
    assert with_copy(CLOSED, job(first=4)) is None
    assert with_copy(CLOSED, job(upto=7)) is None
    assert with_copy(msgspec.structs.replace(CLOSED, phase=LedgerPhase.DELETED), job()) is None


def test_who_is_named_no_more_is_no_laggard() -> None:
    lagging = msgspec.structs.replace(CLOSED, laggards=(B, D))

    replaced = with_copy(lagging, job())
    struck = without_laggard(lagging, B)

    assert replaced is not None
    assert replaced.laggards == (B,)
    assert struck is not None
    assert struck.laggards == (D,)
    assert without_laggard(CLOSED, B) is None


def test_who_is_named_for_nothing_is_no_laggard() -> None:
    opened = msgspec.structs.replace(
        CLOSED,
        fragments=(*CLOSED.fragments, Fragment(EntryId(9), (A, B, E))),
        phase=LedgerPhase.OPEN,
        last=None,
    )

    closed = opened.closed(EntryId(8), length=None, laggards=(D, E))

    assert closed.laggards == (D,)
    assert E not in closed.holders


def test_a_nodes_own_account_proves_something_only_if_it_counts_everything() -> None:
    def state(entries: int, highest: int, *, suspect: bool = False) -> LedgerState:
        return LedgerState(
            ledger=LedgerId(7),
            epoch=Epoch(1),
            fenced=None,
            last=None,
            lac=EntryId(3),
            highest=EntryId(highest),
            entries=entries,
            bytes=0,
            flushed_before=0,
            flushed_at=0.0,
            suspect=suspect,
        )

    assert is_complete(CLOSED, state(9, 8))
    assert not is_complete(CLOSED, state(8, 8))
    assert not is_complete(CLOSED, state(9, 9))
    assert not is_complete(CLOSED, state(9, 8, suspect=True))
