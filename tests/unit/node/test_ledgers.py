"""A ledger's decisions: what gets in, what refuses it, and where each entry is at any moment."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Conflict, Fenced, Invalid, Sealed
from roost.node.ledgers import (
    ENTRY_MEMORY_BYTES,
    Add,
    Admission,
    Block,
    Ledger,
    Stored,
    memory_bytes,
)
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import encode_entry

NOBODY: Any = None


def add_of(
    entry: int,
    payload: bytes = b"x",
    *,
    epoch: int = 1,
    lac: int | None = None,
    recovery: bool = False,
) -> Add:
    lac = entry - 1 if lac is None else lac
    block = encode_entry(7, entry, payload)
    return Add(
        LedgerId(7), EntryId(entry), Epoch(epoch), EntryId(lac), block, recovery, NOBODY, entry
    )


def journaled(ledger: Ledger, *entries: int) -> Ledger:
    for entry in entries:
        assert ledger.admit(add_of(entry)) is Admission.FRESH
        ledger.admitted(add_of(entry))
    return ledger


def durable(ledger: Ledger, *entries: int) -> Ledger:
    journaled(ledger, *entries)
    for entry in entries:
        ledger.apply(add_of(entry), Position(100 * entry))
    return ledger


def flushed(ledger: Ledger, before: int = 1) -> Ledger:
    blocks = ledger.freeze()
    stored = ledger.stored
    ledger.flushed(
        Stored(
            log_end=(stored.log_end or 64) + sum(map(len, blocks.values())),
            entries=stored.entries + len(blocks),
            highest=max(stored.highest, *blocks),
            before=Position(before),
        )
    )
    return ledger


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(LedgerId(7))


def test_an_entry_is_readable_only_once_it_is_durable(ledger: Ledger) -> None:
    journaled(ledger, 0)

    before = (ledger.in_memory(EntryId(0)), ledger.highest, ledger.entries)
    ledger.apply(add_of(0), Position(40))

    assert before == (None, -1, 0)
    assert ledger.in_memory(EntryId(0)) == add_of(0).block
    assert (ledger.highest, ledger.entries, ledger.oldest) == (0, 1, 40)


def test_an_entry_that_is_under_way_or_there_is_a_repeat_of_itself(ledger: Ledger) -> None:
    journaled(ledger, 0)

    answers = [ledger.admit(add_of(0))]
    ledger.apply(add_of(0), Position(0))
    answers.append(ledger.admit(add_of(0)))
    ledger.freeze()
    answers.append(ledger.admit(add_of(0)))

    assert answers == [Admission.REPEAT] * 3


def test_an_id_gets_no_second_value_wherever_the_first_one_is(ledger: Ledger) -> None:
    second = add_of(0, b"other")
    journaled(ledger, 0)

    with pytest.raises(Conflict, match="ledger 7, entry 0 is stored here with other bytes"):
        ledger.admit(second)
    ledger.apply(add_of(0), Position(0))
    with pytest.raises(Conflict):
        ledger.admit(second)
    ledger.freeze()
    with pytest.raises(Conflict):
        ledger.admit(second)


def test_what_may_be_in_the_files_is_looked_for_there_first(ledger: Ledger) -> None:
    flushed(durable(ledger, 2, 5))

    answers = {entry: ledger.admit(add_of(entry)) for entry in (0, 2, 4, 5, 6, 9)}

    look, fresh = Admission.LOOK, Admission.FRESH
    assert answers == {0: look, 2: look, 4: look, 5: look, 6: fresh, 9: fresh}


def test_entries_come_in_any_order(ledger: Ledger) -> None:
    durable(ledger, 9, 3, 11, 0)

    assert ledger.admit(add_of(4)) is Admission.FRESH
    assert ledger.highest == 11
    assert ledger.entries == 4


def test_a_lac_by_itself_only_grows_and_is_its_writers(ledger: Ledger) -> None:
    durable(ledger, 0, 1)

    assert ledger.confirm(Epoch(1), EntryId(1))
    assert not ledger.confirm(Epoch(1), EntryId(0))
    with pytest.raises(Conflict):
        ledger.confirm(Epoch(2), EntryId(1))
    ledger.close(EntryId(1))
    with pytest.raises(Sealed):
        ledger.confirm(Epoch(1), EntryId(1))

    assert ledger.lac == 1


def test_a_ledger_belongs_to_the_epoch_of_its_first_add(ledger: Ledger) -> None:
    durable(ledger, 0)

    for epoch in (0, 2):
        for recovery in (False, True):
            with pytest.raises(Conflict, match=f"epoch 1 for ever; this add is of {epoch}"):
                ledger.admit(add_of(1, epoch=epoch, recovery=recovery))
    assert ledger.admit(add_of(1)) is Admission.FRESH


def test_a_lac_is_below_its_entry_unless_recovery_writes(ledger: Ledger) -> None:
    for lac in (3, 4, 100):
        with pytest.raises(Invalid, match=f"entry 3 came with LAC {lac}"):
            ledger.admit(add_of(3, lac=lac))
    assert ledger.admit(add_of(3, lac=100, recovery=True)) is Admission.FRESH
    assert ledger.admit(add_of(3, lac=-1)) is Admission.FRESH


def test_the_lac_only_rises_and_only_by_what_is_durable(ledger: Ledger) -> None:
    lacs = []
    for entry, lac in ((5, 4), (6, 2), (7, 6)):
        ledger.admitted(add_of(entry, lac=lac))
        lacs.append(ledger.lac)
        ledger.apply(add_of(entry, lac=lac), Position(0))
        lacs.append(ledger.lac)

    assert lacs == [-1, 4, 4, 4, 4, 6]


def test_behind_a_fence_only_recovery_writes(ledger: Ledger) -> None:
    durable(ledger, 0)
    ledger.fence(Epoch(4))

    for entry in (0, 1):
        with pytest.raises(Fenced, match="fenced by epoch 4: its writer must stop") as caught:
            ledger.admit(add_of(entry))
        assert (caught.value.ledger, caught.value.epoch) == (7, 4)
    assert ledger.admit(add_of(0, recovery=True)) is Admission.REPEAT
    assert ledger.admit(add_of(1, recovery=True)) is Admission.FRESH


def test_the_highest_epoch_that_fenced_is_remembered(ledger: Ledger) -> None:
    fenced = []
    for epoch in (3, 9, 4, 0):
        ledger.fence(Epoch(epoch))
        fenced.append(ledger.fenced)

    assert fenced == [3, 9, 9, 9]


def test_a_fence_by_epoch_zero_is_a_fence(ledger: Ledger) -> None:
    ledger.fence(Epoch(0))

    with pytest.raises(Fenced):
        ledger.admit(add_of(0))


def test_a_closed_ledger_takes_what_recovery_writes_up_to_its_last_entry(ledger: Ledger) -> None:
    durable(ledger, 0, 1)
    ledger.close(EntryId(3))

    with pytest.raises(Sealed, match=r"its last entry is 3$") as caught:
        ledger.admit(add_of(2))
    assert (caught.value.ledger, caught.value.last) == (7, 3)
    assert ledger.admit(add_of(3, recovery=True)) is Admission.FRESH
    with pytest.raises(Sealed, match="entry 4 is beyond it"):
        ledger.admit(add_of(4, recovery=True))


def test_a_ledger_may_be_closed_with_no_entry_at_all(ledger: Ledger) -> None:
    ledger.close(EntryId(-1))

    with pytest.raises(Sealed):
        ledger.admit(add_of(0))
    with pytest.raises(Sealed, match="beyond"):
        ledger.admit(add_of(0, recovery=True))


def test_the_last_entry_of_a_closed_ledger_never_changes(ledger: Ledger) -> None:
    ledger.close(EntryId(3))
    ledger.close(EntryId(3))

    for last in (-1, 2, 4):
        with pytest.raises(Conflict, match=f"closed with last entry 3; it cannot end at {last}"):
            ledger.close(EntryId(last))
    assert ledger.last == 3


def test_a_closed_ledger_can_still_be_fenced_and_says_so(ledger: Ledger) -> None:
    ledger.close(EntryId(3))
    ledger.fence(Epoch(2))

    with pytest.raises(Fenced):
        ledger.admit(add_of(1))
    with pytest.raises(Sealed):
        ledger.admit(add_of(4, recovery=True))


def test_a_flush_takes_everything_and_what_comes_meanwhile_waits_for_the_next(
    ledger: Ledger,
) -> None:
    durable(ledger, 1, 2)

    blocks = ledger.freeze()
    durable(ledger, 3)

    assert [*blocks] == [1, 2]
    assert [*ledger.memtable] == [3]
    assert (ledger.entries, ledger.unflushed_from) == (3, 100)
    assert ledger.in_memory(EntryId(1)) is not None
    flushed_to = Stored(log_end=200, entries=2, highest=EntryId(2), before=Position(250))
    ledger.flushed(flushed_to)
    assert (ledger.stored, ledger.entries, ledger.unflushed_from) == (flushed_to, 3, 300)
    assert ledger.in_memory(EntryId(1)) is None


def test_two_flushes_at_once_are_our_own_mistake(ledger: Ledger) -> None:
    durable(ledger, 1)
    ledger.freeze()

    with pytest.raises(AssertionError, match="two flushes"):
        ledger.freeze()


def test_what_could_not_be_flushed_is_as_if_nothing_had_been_tried(ledger: Ledger) -> None:
    durable(ledger, 1, 2)
    ledger.freeze()
    durable(ledger, 3)

    ledger.thaw()

    assert sorted(ledger.memtable) == [1, 2, 3]
    assert (ledger.oldest, ledger.unflushed_from, ledger.entries) == (100, 100, 3)
    assert not ledger.frozen
    assert [*ledger.freeze()] == [1, 2, 3]


def test_a_ledger_at_rest_holds_nothing_back(ledger: Ledger) -> None:
    assert ledger.unflushed_from is None

    flushed(durable(ledger, 1))

    assert ledger.unflushed_from is None


def test_what_is_replayed_is_there_and_its_id_is_taken(ledger: Ledger) -> None:
    ledger.replay(EntryId(4), EntryId(2), Position(50), add_of(4).block)

    assert (ledger.highest, ledger.lac, ledger.oldest) == (4, 2, 50)
    assert ledger.admit(add_of(4)) is Admission.REPEAT
    with pytest.raises(Conflict):
        ledger.admit(add_of(4, b"other"))


def test_what_the_files_hold_at_a_start_is_taken(ledger: Ledger) -> None:
    ledger.restore(Stored(log_end=100, entries=1, highest=EntryId(4)))

    assert ledger.highest == 4
    assert ledger.admit(add_of(4)) is Admission.LOOK
    assert ledger.admit(add_of(5)) is Admission.FRESH


def test_a_deleted_ledger_lets_go_of_its_memory(ledger: Ledger) -> None:
    durable(ledger, 1, 2)

    ledger.empty()

    assert not ledger.memtable
    assert ledger.oldest is None


def test_memory_counts_what_python_takes_for_each_entry() -> None:
    assert memory_bytes({}) == 0
    assert memory_bytes({EntryId(1): bytes(50), EntryId(2): bytes(28)}) == (
        78 + 2 * ENTRY_MEMORY_BYTES
    )


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 8), st.sampled_from([b"a", b"b"]), st.booleans()),
    st.tuples(st.sampled_from(["durable", "freeze", "thaw", "flushed", "fence"])),
    st.tuples(st.just("close"), st.integers(-1, 8)),
)


class Model:
    """A ledger beside what must be true of it."""

    def __init__(self) -> None:
        self.ledger = Ledger(LedgerId(7))
        self.values: dict[int, Block] = {}
        self.queue: list[Add] = []
        self.ended = False
        self.position = 0

    def add(self, entry: int, content: bytes, recovery: bool) -> None:
        add = add_of(entry, content, recovery=recovery)
        try:
            admission = self.ledger.admit(add)
        except Conflict:
            assert self.values[entry] != add.block
            return
        except (Fenced, Sealed):
            assert self.ended
            return
        assert recovery or not self.ended
        if admission is Admission.FRESH:
            assert entry not in self.values
            self.values[entry] = add.block
            self.ledger.admitted(add)
            self.queue.append(add)
        elif admission is Admission.REPEAT:
            assert self.values[entry] == add.block

    def durable(self) -> None:
        for add in self.queue:
            self.ledger.apply(add, Position(self.position))
            self.position += 100
        self.queue = []

    def freeze(self) -> None:
        if self.ledger.memtable and not self.ledger.frozen:
            self.ledger.freeze()

    def thaw(self) -> None:
        if self.ledger.frozen:
            self.ledger.thaw()

    def flushed(self) -> None:
        if frozen := self.ledger.frozen:
            stored = self.ledger.stored
            highest = max(stored.highest, *frozen)
            entries = stored.entries + len(frozen)
            self.ledger.flushed(Stored(log_end=1, entries=entries, highest=highest))

    def fence(self) -> None:
        self.ledger.fence(Epoch(1))
        self.ended = True

    def close(self, last: int) -> None:
        if self.ledger.last in (None, last):
            self.ledger.close(EntryId(last))
            self.ended = True

    def check(self) -> None:
        there = {*self.values} - {add.entry for add in self.queue}
        assert self.ledger.entries == len(there)
        assert self.ledger.highest == max(there, default=-1)
        for entry in there:
            assert self.ledger.in_memory(EntryId(entry)) in (None, self.values[entry])


@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_an_id_has_one_value_and_nothing_gets_behind_an_end(
    steps: list[tuple[Any, ...]],
) -> None:
    model = Model()
    for verb, *words in steps:
        getattr(model, verb)(*words)
        model.check()
