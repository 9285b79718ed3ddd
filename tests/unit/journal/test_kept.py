"""Segments on the disk: what they take, and which of them nobody needs any more."""

from roost.journal.chain import Segment
from roost.journal.header import Header
from roost.journal.kept import Kept
from roost.journal.plan import Part
from roost.types import Position
from tests.unit.journal.lives import UUID

FILE_BYTES = 1000


def segment(number: int, begin: int, end: int) -> Segment:
    return Segment(
        number=number, begin=Position(begin), end=Position(end), file_bytes=64 + end - begin
    )


def part(number: int, begin: int, end: int, *, first: bool = True) -> Part:
    header = Header(
        uuid=UUID, number=number, begin=Position(begin), nonce=0, synced_before=Position(begin)
    )
    return Part(
        number=number,
        header=header if first else None,
        offset=0,
        begin=Position(begin),
        end=Position(end),
        pieces=[],
    )


def kept_of(*segments: Segment) -> Kept:
    return Kept(segments, file_bytes=FILE_BYTES)


def numbers(segments: list[Segment]) -> list[int]:
    return [each.number for each in segments]


def test_a_segment_takes_its_whole_file_until_the_next_one_begins() -> None:
    kept = kept_of(segment(1, 0, 300))
    sizes = [kept.bytes]
    kept.on_made()
    sizes.append(kept.bytes)
    kept.on_written(part(2, 300, 400))
    kept.on_written(part(2, 400, 500, first=False))
    kept.on_made()
    sizes.append(kept.bytes)
    kept.on_written(part(3, 500, 600))
    sizes.append(kept.bytes)

    assert sizes == [364, 364 + FILE_BYTES, 364 + 2 * FILE_BYTES, 364 + 264 + FILE_BYTES]


def test_the_last_segment_is_never_given_to_be_removed() -> None:
    kept = kept_of(segment(1, 0, 300), segment(2, 300, 500))
    kept.want_from(Position(1 << 40))

    assert numbers(kept.take_unneeded()) == [1]
    assert not kept.has_unneeded(Position(1 << 40))


def test_only_what_lies_wholly_before_a_position_is_given() -> None:
    kept = kept_of(segment(1, 0, 300), segment(2, 300, 500), segment(3, 500, 600))
    for position, expected in ((299, []), (499, [1]), (300, []), (500, [2])):
        kept.want_from(Position(position))

        gone = kept.take_unneeded()

        assert numbers(gone) == expected
        kept.on_removed(gone)
    assert kept.bytes == 164


def test_while_some_are_being_removed_no_others_are_given() -> None:
    kept = kept_of(segment(1, 0, 300), segment(2, 300, 500), segment(3, 500, 600))
    kept.want_from(Position(300))
    gone = kept.take_unneeded()
    kept.want_from(Position(500))

    assert kept.take_unneeded() == []
    kept.on_removed(gone)
    assert numbers(kept.take_unneeded()) == [2]


def test_what_could_not_be_removed_is_given_again_in_order() -> None:
    kept = kept_of(segment(1, 0, 300), segment(2, 300, 500), segment(3, 500, 600))
    kept.want_from(Position(500))
    before = kept.bytes
    kept.on_not_removed(kept.take_unneeded())

    assert kept.bytes == before
    assert numbers(kept.take_unneeded()) == [1, 2]
