"""Each kind of anomaly is flagged, whatever went before; and what is right raises no alarm."""

from collections.abc import Callable

import pytest

from roost.errors import Conflict, Fenced, Invalid, NotFound, RoostError, Sealed, Unavailable
from roost.sim.checkers import Violation
from roost.sim.ledger_book import LedgerBook
from tests.unit.sim.histories import PAYLOAD_BYTES_MAX, SEVEN, Correct

HISTORIES = 100

Anomaly = Callable[[Correct], None]


def an_acked_entry_is_absent(node: Correct) -> None:
    node.add(25)
    node.read(without=25)


def a_read_entry_is_absent(node: Correct) -> None:
    node.take(node.send(25))
    node.read()
    node.read(without=25)


def an_acked_entry_is_suspect(node: Correct) -> None:
    node.add(25)
    node.read(suspects=(25,), without=25)


def an_acked_entry_is_not_counted(node: Correct) -> None:
    node.add(25)
    node.read()
    node.verify(lost=1)


def an_acked_entry_is_said_to_be_bad(node: Correct) -> None:
    node.add(25)
    node.verify(bad_total=1)


def a_ledger_is_gone(node: Correct) -> None:
    node.add(25)
    node.book.not_found(node.book.looking(SEVEN))


def a_ledger_is_suspect(node: Correct) -> None:
    node.state(suspect=True)


def a_good_folder_is_said_to_be_damaged(node: Correct) -> None:
    node.book.damage("an entry log")


def an_add_behind_a_fence_is_acked(node: Correct) -> None:
    node.fence()
    node.add(25)


def an_add_behind_a_close_is_acked(node: Correct) -> None:
    node.close()
    node.add(25)


def a_write_back_beyond_the_end_is_acked(node: Correct) -> None:
    node.close()
    node.add(31, recovery=True)


def an_entry_absent_behind_a_fence_is_acked(node: Correct) -> None:
    attempt = node.send(25)
    node.read(fence=3)
    node.take(attempt)
    node.book.added(attempt)


def an_acked_entry_is_absent_for_a_read_that_began_before(node: Correct) -> None:
    attempt = node.send(25)
    look = node.book.looking(SEVEN, fence=node.fenced or 3)
    node.take(attempt)
    node.book.added(attempt)
    node.book.read(look, 25, 26, {}, [], lac=node.lac, last=node.last, fenced=node.fenced or 3)


def an_entry_absent_behind_a_fence_appears(node: Correct) -> None:
    attempt = node.send(25)
    node.read(fence=3)
    node.take(attempt)
    node.read()


def a_fence_is_forgotten(node: Correct) -> None:
    node.fence()
    node.state(fenced=None)


def a_fence_was_shown_and_is_gone(node: Correct) -> None:
    node.book.fencing(SEVEN, 9)
    node.read(fenced=9)
    node.read(fenced=None)


def a_fence_by_nobody_is_shown(node: Correct) -> None:
    node.state(fenced=77)


def a_close_is_forgotten(node: Correct) -> None:
    node.close()
    node.read(last=None)


def a_ledger_ends_elsewhere(node: Correct) -> None:
    node.close()
    node.book.closing(SEVEN, 29)
    node.read(last=29)


def a_ledger_ends_where_nobody_said(node: Correct) -> None:
    node.read(last=5)


def two_values_are_acked(node: Correct) -> None:
    node.add(25)
    node.add(25, 1)


def another_value_is_read(node: Correct) -> None:
    node.add(25)
    node.send(25, 1)
    node.read(found={25: node.payload(25, 1)})


def bytes_that_nobody_sent_are_read(node: Correct) -> None:
    node.read(found={25: b"nobody's"})


def a_refused_add_is_read(node: Correct) -> None:
    node.book.not_added(node.send(25), Unavailable("not now"))
    node.read(found={25: node.payload(25)})


def an_add_that_is_there_is_refused(node: Correct) -> None:
    attempt = node.send(25)
    node.take(attempt)
    node.read()
    node.book.not_added(attempt, Unavailable("not now"))


def adds_of_two_epochs_are_acked(node: Correct) -> None:
    node.add(25)
    node.add(26, epoch=2)


def the_epoch_changes(node: Correct) -> None:
    node.add(25)
    node.state(epoch=2)


def an_add_with_its_own_lac_is_acked(node: Correct) -> None:
    node.add(25, lac=25)


def the_lac_runs_back(node: Correct) -> None:
    node.add(25, lac=24)
    node.read(lac=23)


def a_lac_that_nobody_sent_is_shown(node: Correct) -> None:
    node.state(lac=38)


def the_highest_entry_runs_back(node: Correct) -> None:
    node.add(25)
    node.state(highest=24)


def a_highest_entry_that_nobody_added_is_shown(node: Correct) -> None:
    node.state(highest=39)


def a_deleted_ledger_is_there(node: Correct) -> None:
    node.delete()
    node.state()


def a_deleted_ledger_takes_adds(node: Correct) -> None:
    node.delete()
    node.add(25)


def a_fence_that_nobody_asked_for_refuses(node: Correct) -> None:
    node.book.not_added(node.send(25), Fenced("it is fenced", ledger=SEVEN, epoch=1))


def other_bytes_that_nobody_sent_refuse(node: Correct) -> None:
    node.book.not_added(node.send(25), Conflict("other bytes"))


ANOMALIES: list[tuple[Anomaly, str]] = [
    (an_acked_entry_is_absent, "never absent"),
    (a_read_entry_is_absent, "never absent"),
    (an_acked_entry_is_suspect, "never absent"),
    (an_acked_entry_is_not_counted, "never absent"),
    (an_acked_entry_is_said_to_be_bad, "never absent"),
    (a_ledger_is_gone, "acked is there"),
    (a_ledger_is_suspect, "never absent"),
    (a_good_folder_is_said_to_be_damaged, "never absent"),
    (an_add_behind_a_fence_is_acked, "a fence holds"),
    (an_add_behind_a_close_is_acked, "a fence holds"),
    (a_write_back_beyond_the_end_is_acked, "a fence holds"),
    (an_entry_absent_behind_a_fence_is_acked, "a fence holds"),
    (an_acked_entry_is_absent_for_a_read_that_began_before, "a fence holds"),
    (an_entry_absent_behind_a_fence_appears, "a fence holds"),
    (a_fence_is_forgotten, "a fence holds"),
    (a_fence_was_shown_and_is_gone, "a fence holds"),
    (a_fence_by_nobody_is_shown, "a fence holds"),
    (a_close_is_forgotten, "a fence holds"),
    (a_ledger_ends_elsewhere, "one value"),
    (a_ledger_ends_where_nobody_said, "one value"),
    (two_values_are_acked, "one value"),
    (another_value_is_read, "one value"),
    (bytes_that_nobody_sent_are_read, "refused stays refused"),
    (a_refused_add_is_read, "refused stays refused"),
    (an_add_that_is_there_is_refused, "refused stays refused"),
    (adds_of_two_epochs_are_acked, "one value"),
    (the_epoch_changes, "one value"),
    (an_add_with_its_own_lac_is_acked, "refused for a reason"),
    (the_lac_runs_back, "nothing runs back"),
    (a_lac_that_nobody_sent_is_shown, "nothing runs back"),
    (the_highest_entry_runs_back, "nothing runs back"),
    (a_highest_entry_that_nobody_added_is_shown, "refused stays refused"),
    (a_deleted_ledger_is_there, "deleted for good"),
    (a_deleted_ledger_takes_adds, "deleted for good"),
    (a_fence_that_nobody_asked_for_refuses, "refused for a reason"),
    (other_bytes_that_nobody_sent_refuse, "refused for a reason"),
]


@pytest.mark.parametrize(
    ("anomaly", "promise"),
    [pytest.param(*pair, id=pair[0].__name__) for pair in ANOMALIES],
)
def test_an_anomaly_is_flagged_whatever_went_before(anomaly: Anomaly, promise: str) -> None:
    said = set()
    for seed in range(HISTORIES):
        node = Correct(seed)
        node.play(seed % 30, ends=False)
        with pytest.raises(Violation) as caught:
            anomaly(node)
        said.add(str(caught.value).partition(":")[0])

    assert said == {promise}


def test_histories_in_which_all_is_right_raise_no_alarm() -> None:
    for seed in range(1000):
        Correct(seed).play(40)


def test_an_add_that_was_under_way_may_be_acked_behind_a_fence() -> None:
    node = Correct(0)
    attempt = node.send(3)
    node.take(attempt)
    node.fence()

    node.book.added(attempt)

    assert node.book.acked == 1


def test_an_unanswered_add_may_be_there_or_not() -> None:
    node = Correct(0)
    lost, late = node.send(3), node.send(4)
    node.take(late)

    node.read()

    assert lost.entry not in node.entries
    assert node.book.found == 1


def test_the_same_bytes_may_be_refused_later_though_they_are_there() -> None:
    node = Correct(0)
    node.add(3)
    node.fence()

    node.book.not_added(node.send(3), Fenced("it is fenced", ledger=SEVEN, epoch=3))
    node.read()

    assert node.book.refused == 1


def test_entries_beyond_the_end_of_a_closed_ledger_are_not_missed() -> None:
    node = Correct(0)
    node.add(3)
    node.add(4)
    node.close(3)

    node.read(without=4, fence=5)

    assert node.book.found == 1


def test_while_a_deletion_is_under_way_a_ledger_is_there_or_not() -> None:
    node = Correct(0)
    node.add(3)
    node.book.deleting(SEVEN)
    look = node.book.looking(SEVEN)

    node.read()
    node.book.not_found(look)

    with pytest.raises(Violation, match="deleted for good"):
        node.read()


def test_a_ledger_that_never_was_is_not_missed() -> None:
    book = LedgerBook(payload_bytes_max=PAYLOAD_BYTES_MAX)

    book.not_found(book.looking(SEVEN))

    assert book.ledgers == [SEVEN]


def test_what_was_harmed_may_be_suspect_and_is_still_never_absent() -> None:
    node = Correct(0)
    node.add(3)
    node.book.harmed()

    node.read(suspects=(3,), without=3)
    node.state(suspect=True, fenced=None, lac=-1)

    with pytest.raises(Violation, match=r"never absent: 7/3 .* is gone"):
        node.read(without=3)


@pytest.mark.parametrize(
    ("error", "because"),
    [
        pytest.param(Fenced("", ledger=SEVEN, epoch=3), Correct.fence, id="a fence"),
        pytest.param(Sealed("", ledger=SEVEN, last=30), Correct.close, id="a close"),
        pytest.param(NotFound(""), Correct.delete, id="a deletion"),
        pytest.param(Conflict(""), lambda node: node.add(3, 1), id="other bytes"),
        pytest.param(Conflict(""), lambda node: node.add(4, epoch=2), id="another epoch"),
        pytest.param(Invalid(""), None, id="its LAC"),
    ],
)
def test_a_refusal_names_what_really_happened(
    error: RoostError, because: Callable[[Correct], object] | None
) -> None:
    refused = []
    for happened in (False, True):
        node = Correct(0)
        if happened and because is not None:
            because(node)
        attempt = node.send(3, lac=3 if happened and because is None else -1)
        try:
            node.book.not_added(attempt, error)
        except Violation as violation:
            refused.append(str(violation))

    assert len(refused) == 1
    assert refused[0].startswith("refused for a reason: add of 7/3")


# A loss of power under a node that does not sync at once


def read(book: LedgerBook, found: dict[int, bytes], suspects: list[int], before: int = 4) -> None:
    book.read(book.looking(SEVEN), 0, before, found, suspects, lac=-1, last=None, fenced=None)


def outlived(*, kept: int = 0) -> LedgerBook:
    """Acknowledge three entries, one after the other, and lose power."""
    book = LedgerBook(payload_bytes_max=PAYLOAD_BYTES_MAX)
    for entry in range(3):
        attempt = book.adding(SEVEN, entry, b"%d" % entry, epoch=1, lac=-1, recovery=False)
        book.added(attempt)
    book.lost_power(kept=kept)
    return book


def test_what_was_not_synced_may_be_gone_from_the_end_on() -> None:
    read(outlived(), {0: b"0"}, [1, 2, 3])
    read(outlived(), {}, [0, 1, 2, 3])
    read(outlived(), {0: b"0", 1: b"1", 2: b"2"}, [3])


def test_what_is_gone_and_called_absent_is_flagged() -> None:
    with pytest.raises(Violation, match="never absent"):
        read(outlived(), {0: b"0"}, [1, 3])
    book = outlived()
    look = book.looking(SEVEN)
    with pytest.raises(Violation, match="never absent"):
        book.not_found(look)


def test_what_is_gone_before_something_that_is_there_is_flagged() -> None:
    with pytest.raises(Violation, match="takes the end"):
        read(outlived(), {0: b"0", 2: b"2"}, [1, 3])


def test_what_had_been_synced_must_be_there() -> None:
    with pytest.raises(Violation, match="never absent"):
        read(outlived(kept=4), {}, [2, 3])
    read(outlived(kept=4), {0: b"0", 1: b"1"}, [2, 3])


def test_a_fence_that_was_answered_keeps_what_came_before_it() -> None:
    book = LedgerBook(payload_bytes_max=PAYLOAD_BYTES_MAX)
    book.added(book.adding(SEVEN, 0, b"0", epoch=1, lac=-1, recovery=False))
    look = book.looking(SEVEN, fence=3)
    book.fenced(SEVEN, 3)
    book.lost_power(kept=0)

    assert book.surely_has(SEVEN) == {0: b"0"}
    assert look.fences


def test_what_was_lost_may_be_written_again_and_stays() -> None:
    book = outlived()
    read(book, {0: b"0"}, [1, 2, 3])
    book.added(book.adding(SEVEN, 2, b"2", epoch=1, lac=-1, recovery=True))

    with pytest.raises(Violation, match="never absent"):
        read(book, {0: b"0"}, [1])
    read(book, {0: b"0", 2: b"2"}, [1, 3])


def test_what_was_said_before_the_power_went_and_is_heard_later_counts_for_nothing() -> None:
    book = LedgerBook(payload_bytes_max=PAYLOAD_BYTES_MAX)
    attempt = book.adding(SEVEN, 0, b"0", epoch=1, lac=-1, recovery=False)
    look = book.looking(SEVEN)
    book.lost_power(kept=0)

    book.added(attempt)
    book.read(look, 0, 1, {0: b"0"}, [], lac=-1, last=None, fenced=None)

    assert book.surely_has(SEVEN) == {}
