"""The arithmetic of quorums, against what it stands for, counted out."""

import doctest
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Invalid
from roost.ledger import quorum as module
from roost.ledger.quorum import (
    check_quorum,
    covers,
    end_coverage,
    fence_coverage,
    named_entries,
    stripe_masks,
    write_set,
)
from roost.metadata.ledgers import Quorum


@st.composite
def quorums(draw: st.DrawFn) -> Quorum:
    size = draw(st.integers(1, 6))
    write = draw(st.integers(1, size))
    return Quorum(size, write, draw(st.integers(1, write)))


def test_the_examples_are_true() -> None:
    assert doctest.testmod(module).failed == 0


@given(quorums(), st.integers(0, 30))
def test_a_write_set_has_qw_slots_and_is_what_the_mask_says(quorum: Quorum, entry: int) -> None:
    slots = write_set(entry, quorum)

    assert len({*slots}) == quorum.write
    assert sum(1 << slot for slot in slots) == stripe_masks(quorum)[entry % quorum.ensemble]


@given(quorums())
def test_fences_cover_exactly_when_nothing_can_be_confirmed_any_more(quorum: Quorum) -> None:
    slots = range(quorum.ensemble)
    for fenced in chain.from_iterable(combinations(slots, n) for n in range(quorum.ensemble + 1)):
        can_confirm = any(
            set(acks) <= {*write_set(entry, quorum)} - {*fenced}
            for entry in slots
            for acks in combinations(slots, quorum.ack)
        )

        assert covers(fenced, quorum) == (not can_confirm)
        if len(fenced) >= fence_coverage(quorum):
            assert covers(fenced, quorum)


@given(quorums())
def test_so_many_negatives_end_a_ledger_as_leave_too_few_to_confirm(quorum: Quorum) -> None:
    left = quorum.write - end_coverage(quorum)

    assert left == quorum.ack - 1


@given(quorums(), st.integers(0, 20), st.integers(-2, 30))
def test_the_entries_of_a_slot_are_counted_right(quorum: Quorum, first: int, count: int) -> None:
    upto = first + count
    for slot in range(quorum.ensemble):
        counted = sum(slot in write_set(entry, quorum) for entry in range(first, upto + 1))

        assert named_entries(slot, first, upto, quorum) == counted


@pytest.mark.parametrize(
    "quorum",
    [
        Quorum(2, 3, 2),
        Quorum(3, 2, 3),
        Quorum(3, 3, 0),
        Quorum(65, 3, 2),
        Quorum(3, 3, 2, 0),
        Quorum(5, 5, 2, 3),
        Quorum(3, 3, 2, 4),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(quorum: Quorum) -> None:
    with pytest.raises(Invalid):
        check_quorum(quorum)


def test_the_default_is_sound_and_one_copy_is_warned_of() -> None:
    assert check_quorum(Quorum()) == []
    assert check_quorum(Quorum(3, 3, 2, 2)) == []
    assert len(check_quorum(Quorum(3, 3, 1))) == 1


def test_a_cluster_may_ask_for_more_copies() -> None:
    with pytest.raises(Invalid, match="at least 2"):
        check_quorum(Quorum(3, 3, 1), ack_min=2)
