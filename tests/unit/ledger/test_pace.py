"""Copies that keep to a rate, however many there are."""

from roost.ledger.pace import PIECE_BYTES, PIECE_ENTRIES_FIRST, PIECE_ENTRIES_MAX, Pace


def test_what_was_spent_is_waited_for_by_all_together() -> None:
    pace = Pace(100.0)

    assert pace.wait_s(50, now=10.0) == 0.5
    assert pace.wait_s(100, now=10.0) == 1.5
    assert pace.wait_s(100, now=11.0) == 1.5
    assert pace.wait_s(0, now=100.0) == 0.0


def test_without_a_rate_nobody_waits() -> None:
    assert Pace().wait_s(1 << 40, now=0.0) == 0.0


def test_pieces_have_a_size_that_follows_from_the_entries() -> None:
    assert Pace().piece_entries(0, 0) == PIECE_ENTRIES_FIRST
    assert Pace().piece_entries(10, 10 << 20) == PIECE_BYTES >> 20
    assert Pace().piece_entries(10, 10 << 24) == 1
    assert Pace().piece_entries(10, 0) == PIECE_ENTRIES_MAX
    assert Pace(1000.0).piece_entries(10, 1000) == 10
