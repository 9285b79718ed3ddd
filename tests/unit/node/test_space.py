"""When to flush whom, and when to slow down: positions and bytes, never clocks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.node.space import Backlog, Limits
from roost.types import LedgerId, Position

LIMITS = Limits(memory_bytes_max=400, journal_bytes_max=1000, queued_bytes_max=50)


def backlog(**begins: int) -> Backlog:
    made = Backlog(LIMITS)
    for name, position in begins.items():
        made.began(LedgerId(int(name[1:])), Position(position))
        made.memory_bytes += 100
    return made


def to_flush(of: Backlog, *, journal: int = 0, applied: int = 1000) -> list[LedgerId]:
    return of.to_flush(journal_bytes=journal, applied=Position(applied))


def test_nothing_is_flushed_while_there_is_room() -> None:
    assert to_flush(backlog(l1=0), journal=500) == []
    assert to_flush(backlog()) == []
    assert to_flush(backlog(), journal=2000) == []


def test_the_oldest_half_is_flushed_when_a_quarter_of_the_memory_is_taken() -> None:
    assert to_flush(backlog(l1=100, l2=550, l3=551)) == [1, 2]


def test_the_oldest_half_is_flushed_when_half_of_the_journal_is_taken() -> None:
    assert to_flush(backlog(l5=0, l1=900), journal=501) == [5]


def test_a_ledger_that_rests_is_flushed_like_any_other() -> None:
    made = backlog(l1=0)
    for position in range(100, 1000, 100):
        made.began(LedgerId(position), Position(position))

    assert LedgerId(1) in to_flush(made, journal=501)


def test_one_ledger_alone_is_flushed_even_if_it_has_just_begun() -> None:
    assert to_flush(backlog(l1=1000, l2=1000), journal=501, applied=1000) == [1, 2]
    assert to_flush(backlog(l1=999), journal=501, applied=1000) == [1]


def test_what_is_being_flushed_is_not_counted_twice() -> None:
    made = backlog(l1=0, l2=10)

    made.froze(LedgerId(1), 100)

    assert made.memory_bytes == 200
    assert to_flush(made) == []
    assert made.everything() == [2]


def test_replay_begins_at_the_oldest_entry_that_is_not_in_files() -> None:
    made = backlog(l1=30, l2=40)

    positions = [made.unflushed_from(Position(99))]
    made.froze(LedgerId(1), 100)
    positions.append(made.unflushed_from(Position(99)))
    made.began(LedgerId(1), Position(60))
    made.flushed(LedgerId(1), 100)
    positions.append(made.unflushed_from(Position(99)))
    made.froze(LedgerId(2), 100)
    made.flushed(LedgerId(2), 100)
    positions.append(made.unflushed_from(Position(99)))
    made.forget(LedgerId(1), 0)
    positions.append(made.unflushed_from(Position(99)))

    assert positions == [30, 30, 40, 60, 99]
    assert made.memory_bytes == 0


def test_what_could_not_be_flushed_is_first_in_line_again() -> None:
    made = backlog(l1=30, l2=40)
    made.froze(LedgerId(1), 100)
    made.began(LedgerId(1), Position(60))

    made.thawed(LedgerId(1), 100)

    assert made.everything() == [1, 2]
    assert made.unflushed_from(Position(99)) == 30
    assert (made.memory_bytes, made.flushing_bytes) == (200, 0)


def test_a_ledger_begins_once() -> None:
    with pytest.raises(AssertionError, match="begun already"):
        backlog(l1=30).began(LedgerId(1), Position(40))


def test_a_forgotten_ledger_may_have_had_nothing() -> None:
    made = backlog(l1=30)

    made.forget(LedgerId(2), 0)
    made.forget(LedgerId(1), 100)

    assert made.everything() == []
    assert made.memory_bytes == 0


def test_adds_wait_for_what_there_is_too_much_of() -> None:
    made = backlog()
    made.memory_bytes = 400

    fine = made.why_slow(journal_bytes=1000, queued_bytes=50)
    slow = [
        made.why_slow(journal_bytes=1001, queued_bytes=50),
        made.why_slow(journal_bytes=1000, queued_bytes=51),
    ]
    made.memory_bytes = 401
    slow.append(made.why_slow(journal_bytes=0, queued_bytes=0))

    assert fine == ""
    assert slow == [
        "the journal has 1001 bytes, waiting for flushes",
        "51 bytes wait for their sync",
        "401 bytes of entries are in memory, waiting to be flushed",
    ]


STEPS = st.tuples(
    st.sampled_from(["write", "froze", "flushed", "thawed", "forget"]), st.integers(0, 4)
)


@given(st.lists(STEPS, max_size=60))
def test_whatever_happens_replay_would_find_every_entry_that_is_only_in_memory(
    steps: list[tuple[str, int]],
) -> None:
    made = Backlog(LIMITS)
    live: dict[LedgerId, list[int]] = {}
    frozen: dict[LedgerId, list[int]] = {}
    applied = 0
    acts: dict[str, Any] = {"froze": made.froze, "flushed": made.flushed, "thawed": made.thawed}
    for act, number in steps:
        ledger = LedgerId(number)
        if act == "write":
            if ledger not in live:
                made.began(ledger, Position(applied))
                live[ledger] = []
            live[ledger].append(applied)
            applied += 10
            made.memory_bytes += 10
        elif act == "froze" and ledger in live and ledger not in frozen:
            frozen[ledger] = live.pop(ledger)
            acts[act](ledger, 10 * len(frozen[ledger]))
        elif act in ("flushed", "thawed") and ledger in frozen:
            positions = frozen.pop(ledger)
            acts[act](ledger, 10 * len(positions))
            if act == "thawed":
                live[ledger] = positions + live.get(ledger, [])
        elif act == "forget" and ledger in live:
            made.forget(ledger, 10 * len(live.pop(ledger)))
        kept = [position for each in (live, frozen) for some in each.values() for position in some]
        assert made.unflushed_from(Position(applied)) == min(kept, default=applied)
        assert made.memory_bytes == 10 * len(kept)
        assert made.everything() == sorted(live, key=lambda ledger: live[ledger][0])
