"""Choosing nodes: by room and by zone, at random, and not those that have just failed."""

from collections import Counter
from random import Random

from roost.ledger.placement import CALM_S, BackOff, Candidate, choose
from roost.types import NodeId

A, B, C, D = (NodeId(name) for name in "abcd")


def of(node: NodeId, free_bytes: int = 100, zone: str = "", *, writable: bool = True) -> Candidate:
    return Candidate(node, free_bytes, zone=zone, writable=writable)


def test_as_many_are_chosen_as_there_are_and_none_twice() -> None:
    chosen = choose([of(A), of(B), of(C)], 5, rng=Random(1))

    assert sorted(chosen) == [A, B, C]


def test_who_is_excluded_or_takes_nothing_is_not_chosen() -> None:
    candidates = [of(A), of(B, writable=False), of(C, free_bytes=5), of(D)]

    assert choose(candidates, 4, rng=Random(1), excluded={A}, free_bytes_min=10) == [D]


def test_room_is_a_weight_and_not_a_rank() -> None:
    candidates = [of(A, 100), of(B, 300), of(C, 600)]
    rng = Random(7)

    drawn = Counter(choose(candidates, 1, rng=rng)[0] for _ in range(3000))

    assert 200 < drawn[A] < 400
    assert 750 < drawn[B] < 1050
    assert 1600 < drawn[C] < 2000


def test_zones_are_not_shared_as_long_as_there_are_enough() -> None:
    candidates = [of(A, 1, "x"), of(B, 10_000, "y"), of(C, 10_000, "y"), of(D, 10_000, "y")]

    for seed in range(20):
        assert A in choose(candidates, 2, rng=Random(seed))
        chosen = choose(candidates, 1, rng=Random(seed), zones_taken={"y"})
        assert chosen == [A]
    assert len(choose(candidates, 4, rng=Random(1))) == 4


def test_nodes_without_room_are_drawn_as_well() -> None:
    assert sorted(choose([of(A, 0), of(B, 0)], 2, rng=Random(3))) == [A, B]


def test_who_fails_is_left_alone_for_longer_each_time() -> None:
    back_off = BackOff(first_s=1.0, most_s=4.0)

    waits = []
    now = 0.0
    for _ in range(5):
        back_off.failed(A, now)
        waits.append(back_off.until(A) - now)
        now = back_off.until(A)

    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_one_failure_after_another_in_one_pause_counts_once() -> None:
    back_off = BackOff(first_s=1.0)

    back_off.failed(A, 0.0)
    back_off.failed(A, 0.5)

    assert back_off.until(A) == 1.0
    assert back_off.resting(0.5) == {A}
    assert back_off.resting(1.0) == set()


def test_who_works_or_was_calm_for_long_begins_anew() -> None:
    back_off = BackOff(first_s=1.0)
    for now in (0.0, 1.0, 3.0):
        back_off.failed(A, now)
        back_off.failed(B, now)

    back_off.worked(A)
    back_off.failed(A, 7.0)
    back_off.failed(B, 8.0 + CALM_S)

    assert back_off.until(A) == 8.0
    assert back_off.until(B) == 9.0 + CALM_S
    assert back_off.until(C) == 0.0
