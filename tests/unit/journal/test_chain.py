"""Segments in their places: what belongs where, what is not needed, and what is missing."""

from roost.journal.chain import Chain, Seen, follow
from roost.journal.header import HEADER_BYTES, Header
from roost.types import Position
from tests.unit.journal.lives import UUID


def good(number: int, begin: int, size: int = 100) -> Seen:
    header = Header(
        uuid=UUID,
        number=number,
        begin=Position(begin),
        nonce=0,
        synced_before=Position(begin),
    )
    return Seen(number, HEADER_BYTES + size, header)


def bad(number: int, size: int = 100) -> Seen:
    return Seen(number, HEADER_BYTES + size, None, "corrupt", "its header is torn")


def places(chain: Chain) -> list[tuple[int, int, int, bool]]:
    return [(link.seen.number, link.begin, link.stop, link.needed) for link in chain.links]


def test_each_segment_stops_where_the_next_one_begins() -> None:
    chain = follow([good(1, 0, 5000), good(2, 90), good(3, 190, 70)], replay_from=Position(0))

    assert places(chain) == [(1, 0, 90, True), (2, 90, 190, True), (3, 190, 260, True)]
    assert chain.missing == ()


def test_what_lies_before_the_position_asked_for_is_not_needed() -> None:
    seen = [good(4, 300), good(5, 400), good(6, 500)]

    for replay_from, needed in ((399, [4, 5, 6]), (400, [5, 6]), (499, [5, 6]), (500, [6])):
        chain = follow(seen, replay_from=Position(replay_from))

        assert [link.seen.number for link in chain.links if link.needed] == needed
        assert chain.missing == ()


def test_a_gap_in_the_numbers_counts_where_it_is_needed() -> None:
    seen = [good(1, 0), good(3, 200), good(5, 400)]

    assert len(follow(seen, replay_from=Position(0)).missing) == 2
    assert follow(seen, replay_from=Position(250)).missing == (
        "what was between segments 3 and 5 is gone",
    )
    assert follow(seen, replay_from=Position(400)).missing == ()


def test_a_journal_that_begins_too_late_misses_something() -> None:
    chain = follow([good(3, 200)], replay_from=Position(199))

    assert chain.missing == ("records from 199 on stood before segment 3",)
    assert [link.needed for link in chain.links] == [True]


def test_an_empty_folder_misses_something_unless_it_is_new() -> None:
    assert follow([], replay_from=Position(0)).missing == ()
    assert follow([], replay_from=Position(1)).missing == (
        "no segment is left, and records up to 1 were in some",
    )


def test_a_segment_without_a_header_keeps_its_place_between_its_neighbours() -> None:
    chain = follow([good(1, 0), bad(2), good(3, 200)], replay_from=Position(0))

    assert places(chain) == [(1, 0, 200, True), (2, 200, 200, True), (3, 200, 300, True)]
    assert chain.missing == ()


def test_segments_without_headers_at_the_end_take_what_their_files_may_hold() -> None:
    chain = follow([good(1, 0), bad(2), bad(3, 50)], replay_from=Position(0))

    assert places(chain) == [(1, 0, 100, True), (2, 100, 200, True), (3, 200, 250, True)]


def test_segments_without_headers_alone_are_needed() -> None:
    chain = follow([bad(1), bad(2, -64)], replay_from=Position(0))

    assert places(chain) == [(1, 0, 100, True), (2, 100, 100, True)]


def test_a_segment_without_a_header_before_what_is_needed_is_not_needed() -> None:
    chain = follow([bad(1), good(2, 100)], replay_from=Position(150))

    assert places(chain) == [(1, 0, 100, False), (2, 100, 200, True)]


def test_a_header_by_which_positions_would_run_backwards_does_not_count() -> None:
    chain = follow([good(1, 0), good(2, 500), good(3, 200), good(4, 600)], replay_from=Position(0))

    assert places(chain) == [
        (1, 0, 500, True),
        (2, 500, 600, True),
        (3, 600, 600, True),
        (4, 600, 700, True),
    ]
    assert chain.links[2].seen.header is None
    assert "begins at 200, before one before it" in chain.links[2].seen.text


def test_what_a_file_claims_to_hold_has_an_end() -> None:
    (link,) = follow([bad(1, 1 << 60)], replay_from=Position(0)).links

    assert link.stop == (1 << 30) - HEADER_BYTES
