"""All ledgers of a node: which there are, which were, and what a checkpoint says of them."""

import pytest

from roost.errors import NotFound
from roost.node.known import Known
from roost.node.ledgers import Ledger, Stored
from roost.node.table import Checkpoint, decode
from roost.types import EntryId, Epoch, LedgerId, Position

SEVEN = LedgerId(7)


def new(*, forgetful: bool = False) -> Known:
    return Known(
        Checkpoint(
            replay_from=Position(0), forgetful=forgetful, ledgers=[], deleted=set(), problem=""
        )
    )


def written(known: Known, replay_from: int = 0) -> Checkpoint:
    return decode(b"".join(known.checkpoint(Position(replay_from))))


@pytest.fixture
def known() -> Known:
    return new()


def test_a_ledger_is_made_when_it_is_first_written_to(known: Known) -> None:
    with pytest.raises(NotFound, match="ledger 7 is not on this node"):
        known.find(SEVEN)

    made = known.find_or_make(SEVEN)

    assert known.find(SEVEN) is made is known.find_or_make(SEVEN)
    assert not made.suspect


def test_a_deleted_ledger_is_never_made_again(known: Known) -> None:
    known.find_or_make(SEVEN)

    known.delete(SEVEN)

    for ask in (known.find, known.find_or_make):
        with pytest.raises(NotFound, match="ledger 7 was deleted here; its id is never used again"):
            ask(SEVEN)


def test_a_node_that_may_have_forgotten_trusts_no_new_ledger() -> None:
    assert new(forgetful=True).find_or_make(SEVEN).suspect


def test_distrust_is_of_all_and_lasts(known: Known) -> None:
    there = known.find_or_make(SEVEN)
    written(known)

    known.distrust()

    read = written(known)
    assert there.suspect
    assert read.forgetful
    assert [ledger.suspect for ledger in read.ledgers] == [True]
    assert known.find_or_make(LedgerId(8)).suspect


def test_distrust_of_one_ledger_is_of_no_other(known: Known) -> None:
    known.find_or_make(LedgerId(8))
    written(known)

    known.distrust_one(known.find_or_make(SEVEN))

    read = written(known)
    assert {ledger.id: ledger.suspect for ledger in read.ledgers} == {7: True, 8: False}
    assert not read.forgetful


def test_a_checkpoint_says_what_is_known_now_of_who_was_touched(known: Known) -> None:
    ledger = known.find_or_make(SEVEN)
    written(known)
    ledger.fence(Epoch(4))
    ledger.flushed(Stored(log_end=100, entries=1, highest=EntryId(0), before=Position(9)))

    untouched = written(known, 3)
    known.touch(SEVEN)
    touched = written(known, 4)

    assert (untouched.replay_from, untouched.ledgers[0].fenced) == (3, None)
    assert (touched.replay_from, touched.ledgers[0].fenced) == (4, 4)
    assert touched.ledgers[0].stored == ledger.stored


def test_what_was_read_from_a_checkpoint_is_in_the_next_one(known: Known) -> None:
    known.find_or_make(SEVEN).close(EntryId(2))
    known.find_or_make(LedgerId(8))
    known.delete(LedgerId(8))

    again = written(Known(written(known)))

    assert [(ledger.id, ledger.last) for ledger in again.ledgers] == [(7, 2)]
    assert again.deleted == {8}
    assert not again.problem


def test_a_ledger_that_only_its_files_tell_of_is_in_the_next_checkpoint(known: Known) -> None:
    known.page(None, 9)
    known.adopt(Ledger(SEVEN))

    assert [ledger.id for ledger in written(known).ledgers] == [7]
    assert [ledger.id for ledger in known.page(None, 9)] == [7]


def test_pages_follow_the_ids_as_numbers(known: Known) -> None:
    for number in (10, 9, 2, 100, 11, 0):
        known.find_or_make(LedgerId(number))

    pages = [known.page(None, 3), known.page(LedgerId(9), 3), known.page(LedgerId(11), 3)]
    known.delete(LedgerId(9))
    known.find_or_make(LedgerId(3))

    assert [[ledger.id for ledger in page] for page in pages] == [[0, 2, 9], [10, 11, 100], [100]]
    assert [ledger.id for ledger in known.page(LedgerId(0), 9)] == [2, 3, 10, 11, 100]
    assert known.page(LedgerId(100), 9) == []
