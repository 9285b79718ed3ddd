"""Who is gone: missed for longer than the grace time, while somebody was looking."""

from roost.master.absence import Absences
from roost.types import NodeId

A, B, C = (NodeId(name) for name in "abc")


def absences() -> Absences:
    return Absences(grace_s=10.0, gap_s_max=5.0)


def seen(who: Absences, *looks: tuple[float, set[NodeId]]) -> None:
    for now, live in looks:
        who.on_look(live, now)


def test_nobody_is_gone_before_anybody_has_looked() -> None:
    assert absences().gone([A]) == set()
    assert absences().missing([A]) == {A}


def test_a_node_is_gone_once_it_was_missed_for_longer_than_the_grace_time() -> None:
    who = absences()

    seen(who, (0, {A, B}), (4, {A}), (8, {A}), (11, {A}), (14, {A}))
    assert who.gone([A, B]) == set()
    seen(who, (14.5, {A}))

    assert who.gone([A, B]) == {B}
    assert who.missing([A, B]) == {B}


def test_a_node_that_comes_back_in_time_begins_anew() -> None:
    who = absences()

    seen(who, (0, {A}), (4, set()), (8, {A}), (12, set()), (16, set()), (20, set()))

    assert who.gone([A]) == set()
    seen(who, (22.5, set()))
    assert who.gone([A]) == {A}


def test_a_node_that_was_never_seen_is_missed_from_the_first_look_on() -> None:
    who = absences()

    seen(who, (100, {A}), (104, {A}), (108, {A}), (110, {A}))
    assert who.gone([C]) == set()
    seen(who, (111, {A}))

    assert who.gone([C]) == {C}


def test_while_nobody_looks_no_time_passes() -> None:
    who = absences()

    seen(who, (0, {A, B}), (4, {A}), (1000, {A}))
    assert who.gone([B, C]) == set()
    seen(who, (1004, {A}), (1008, {A}), (1011, {A}))

    assert who.gone([B, C]) == {B, C}
