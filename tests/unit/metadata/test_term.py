"""How long a lease is relied on."""

import pytest

from roost.metadata.term import LeaseTerm


@pytest.mark.parametrize(("ttl_s", "hold_s"), [(2, 1.0), (10, 9.0), (100, 90.0)])
def test_a_lease_is_lost_a_margin_before_the_store_can_let_it_go(
    ttl_s: float, hold_s: float
) -> None:
    term = LeaseTerm(ttl_s=ttl_s, sent_at=50.0)

    assert term.deadline == 50.0 + hold_s
    assert term.renew_at == pytest.approx(50.0 + hold_s / 3)
    assert not term.lost(term.deadline - 0.001)
    assert term.lost(term.deadline)


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    term = LeaseTerm(ttl_s=10, sent_at=0.0)

    term.on_answer(ttl_s=20, sent_at=4.0, now=8.0)

    assert (term.ttl_s, term.deadline) == (20, 22.0)


def test_what_was_lost_once_is_lost_for_ever() -> None:
    term = LeaseTerm(ttl_s=10, sent_at=0.0)

    term.on_answer(ttl_s=10, sent_at=8.0, now=9.5)

    assert term.deadline == 9.0
    assert term.lost(0.0)


def test_an_answer_without_time_means_that_it_is_gone() -> None:
    term = LeaseTerm(ttl_s=10, sent_at=0.0)

    term.on_answer(ttl_s=0, sent_at=3.0, now=3.1)

    assert term.lost(3.1)


def test_a_renewal_that_fails_is_tried_again_soon_and_never_behind_the_deadline() -> None:
    term = LeaseTerm(ttl_s=10, sent_at=0.0)

    term.on_failure(3.0)
    soon = term.renew_at
    term.on_failure(8.9)

    assert soon == pytest.approx(3.75)
    assert term.renew_at == term.deadline == 9.0


def test_what_was_given_up_is_lost() -> None:
    term = LeaseTerm(ttl_s=10, sent_at=0.0)

    term.on_revoked()

    assert term.lost(0.0)
