"""A node's store: what is acknowledged is there for good, and what was refused is not."""

import asyncio
import errno
from contextlib import suppress

import pytest

from roost.errors import (
    Conflict,
    Fenced,
    Invalid,
    NotFound,
    Unknown,
)
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.node.store import Store
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import ENTRY_ID_MAX, LEDGER_ID_MAX
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    Machine,
    PowerWent,
    Told,
    add,
    add_all,
    an_add,
    flushed,
    once,
    opened,
    payload,
    read_all,
    refusal,
)

SEVEN, EIGHT = LedgerId(7), LedgerId(8)


def test_an_add_is_answered_only_once_a_loss_of_power_cannot_take_it_back() -> None:
    told = [answered_and_there(operation) for operation in range(1, 40)]

    assert {len(tags) for tags in told} == {0, 1, 2, 3}


def answered_and_there(operation: int) -> list[int]:
    """Add until the power goes, see that what was answered is there, and tell what that was."""
    answered: list[int] = []

    async def first(seams: Seams) -> None:
        store = await opened(seams)
        machine.disk.lose_power_after(operation)
        for entry in range(3):
            await add(store, 7, entry)
            answered.append(entry)

    async def second(seams: Seams) -> list[int]:
        store = await opened(seams)
        if SEVEN not in store.known.ledgers:
            return []
        return [*(await read_all(store, 7, 0, 5)).payloads]

    with Machine(operation) as machine:
        with suppress(PowerWent):
            machine.live(first)
        machine.crash("none")
        there = machine.live(second)
    assert {*answered} <= {*there}
    return answered


def test_what_was_added_is_read_from_memory_and_from_files() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(30))
        wanted = {entry: payload(entry) for entry in range(30)}

        in_memory = await read_all(store, 7, 0, 35)
        await flushed(store)
        in_files = await read_all(store, 7, 0, 35)

        assert in_memory.payloads == in_files.payloads == wanted
        assert in_memory.absent == in_files.absent == [*range(30, 36)]
        await store.stop()

    once(program)


def test_the_outcomes_of_adds_come_in_the_order_of_the_adds() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        told = Told()
        for tag, entry in enumerate((0, 1, 1, 2, 0, 3)):
            store.add(an_add(7, entry, sink=told, tag=tag))
        await told.wait(6)

        assert told.tags == [0, 1, 2, 3, 4, 5]
        assert not told.errors
        assert (store.metrics.adds, store.metrics.duplicate_adds) == (4, 2)

    once(program)


def test_a_repeat_is_answered_no_sooner_than_the_first() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        first, second = Told(), Told()
        machine.disk.fail_next("sync", ".journal.making", errno.EIO)
        store.add(an_add(7, 0, sink=first))
        store.add(an_add(7, 0, sink=second))
        await second.wait(1)

        assert isinstance(first.errors[0], Unknown)
        assert isinstance(second.errors[0], Unknown)

    with Machine() as machine:
        machine.live(program)


@pytest.mark.parametrize("settled", [False, True])
def test_the_same_add_again_is_fine_and_another_value_is_refused(settled: bool) -> None:
    async def program(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        await add(store, 7, 0)
        if settled:
            await flushed(store)

        await add(store, 7, 0)
        with pytest.raises(Conflict, match="stored here with other bytes"):
            await add(store, 7, 0, b"other")
        with pytest.raises(Conflict):
            await add(store, 7, 0, b"other", recovery=True)

        assert (await read_all(store, 7, 0, 0)).payloads == {0: payload(0)}
        assert store.state(SEVEN).entries == 1
        assert log.names.count("conflict") == 2
        metrics = store.metrics
        assert (metrics.conflicts, metrics.refused_adds, metrics.duplicate_adds) == (2, 2, 1)

    once(program)


def test_a_hole_below_what_is_in_files_is_filled() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 2, 9])
        await flushed(store)

        await add_all(store, 7, [5, 1])

        assert [*(await read_all(store, 7, 0, 9)).payloads] == [0, 1, 2, 5, 9]
        assert store.state(SEVEN).entries == 5

    once(program)


def test_two_values_that_race_for_one_hole_get_it_once() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 9])
        await flushed(store)
        told = Told()
        for tag, content in enumerate((b"a", b"b", b"a")):
            store.add(an_add(7, 5, content, sink=told, tag=tag))
        await told.wait(3)

        there = (await read_all(store, 7, 5, 5)).payloads[5]
        stored = [tag for tag in range(3) if tag not in told.errors]
        assert stored == ([1] if there == b"b" else [0, 2])
        assert all(isinstance(error, Conflict) for error in told.errors.values())

    for seed in range(10):
        once(program, seed=seed)


def test_a_look_into_the_files_that_races_with_a_flush_sees_what_the_flush_stored() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 9])
        await flushed(store)
        await add(store, 7, 5, b"first")
        told = Told()

        flush = asyncio.ensure_future(flushed(store))
        for tag in range(20):
            store.add(an_add(7, 5, b"second", sink=told, tag=tag))
            await asyncio.sleep(seams.rng.random() * 1e-4)
        await flush
        await told.wait(20)

        assert len(told.errors) == 20
        assert (await read_all(store, 7, 5, 5)).payloads == {5: b"first"}

    for seed in range(10):
        once(program, seed=seed)


def test_an_add_that_looks_into_the_files_is_refused_by_a_fence_that_came_meanwhile() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 9])
        await flushed(store)
        told = Told()
        store.add(an_add(7, 5, sink=told))

        await store.fence(SEVEN, Epoch(2))
        await told.wait(1)

        absent = (await read_all(store, 7, 5, 5)).absent
        assert isinstance(told.errors.get(0), Fenced) == (absent == [5])

    for seed in range(10):
        once(program, seed=seed)


def test_behind_a_fence_that_was_answered_no_ordinary_add_is_ever_acknowledged() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        told = Told()
        for entry in range(5):
            store.add(an_add(7, entry, sink=told, tag=entry))

        state = await store.fence(SEVEN, Epoch(2))
        before = [*told.tags]
        for entry in range(5, 8):
            store.add(an_add(7, entry, sink=told, tag=entry))

        # What was before the fence in the queue is there by then, and nothing else ever is.
        assert before == [0, 1, 2, 3, 4]
        assert (state.fenced, state.highest, state.entries) == (2, 4, 5)
        assert [*told.errors] == [5, 6, 7]
        assert {type(error) for error in told.errors.values()} == {Fenced}
        assert await refusal(add(store, 7, 5, recovery=True)) == "done"

    once(program)


def test_a_fence_or_a_close_that_is_under_way_refuses_what_comes_behind_it() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        await add(store, 8, 0)
        ending = [
            asyncio.ensure_future(store.fence(SEVEN, Epoch(2))),
            asyncio.ensure_future(store.close_ledger(EIGHT, EntryId(0))),
        ]
        await asyncio.sleep(0)
        told = Told()
        store.add(an_add(7, 1, sink=told, tag=7))
        store.add(an_add(8, 1, sink=told, tag=8))

        # Their turn has not come yet, and what stands behind them is decided already.
        refused = [type(told.errors[tag]).__name__ for tag in (7, 8)]
        with pytest.raises(Conflict):
            await store.close_ledger(EIGHT, EntryId(1))
        states = await asyncio.gather(*ending)

        assert refused == ["Fenced", "Sealed"]
        assert [state.entries for state in states] == [1, 1]

    once(program)


def test_a_fence_survives_a_loss_of_power_though_the_ledger_was_never_here() -> None:
    async def first(seams: Seams) -> None:
        await (await opened(seams)).fence(SEVEN, Epoch(3))

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert store.state(SEVEN).fenced == 3
        assert await refusal(add(store, 7, 0)) == "Fenced"

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_a_fence_by_a_lower_epoch_is_answered_behind_all_that_came_before() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await store.fence(SEVEN, Epoch(5))
        told = Told()
        store.add(an_add(7, 0, recovery=True, sink=told))

        state = await store.fence(SEVEN, Epoch(4))

        assert told.tags == [0]
        assert (state.fenced, state.highest) == (5, 0)
        assert (await store.fence(SEVEN, Epoch(9))).fenced == 9

    once(program)


def test_a_closed_ledger_stays_closed_where_it_was_closed() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(3))
        assert (await store.close_ledger(SEVEN, EntryId(2))).last == 2
        assert (await store.close_ledger(SEVEN, EntryId(2))).last == 2
        assert await refusal(store.close_ledger(SEVEN, EntryId(1))) == "Conflict"

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert store.state(SEVEN).last == 2
        assert await refusal(add(store, 7, 3)) == "Sealed"
        assert await refusal(add(store, 7, 3, recovery=True)) == "Sealed"
        assert await refusal(add(store, 7, 2, recovery=True)) == "done"
        assert await refusal(store.close_ledger(SEVEN, EntryId(1))) == "Conflict"

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_a_ledger_can_be_closed_before_it_has_its_entries() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await store.close_ledger(SEVEN, EntryId(2))

        await add_all(store, 7, [2, 0], recovery=True)

        seen = await read_all(store, 7, 0, 9)
        assert ([*seen.payloads], seen.absent) == ([0, 2], [1, *range(3, 10)])

    once(program)


def test_closing_gives_back_what_was_reserved_for_the_log() -> None:
    async def program(seams: Seams) -> int:
        store = await opened(seams)
        for start in (0, 10):
            await add_all(store, 7, range(start, start + 10))
            await flushed(store)
        await store.close_ledger(SEVEN, EntryId(19))
        await store.stop()
        return store.state(SEVEN).bytes

    with Machine() as machine:
        log_end = machine.live(program)
        assert machine.disk.open(FOLDER / "ledgers/7.log").size() == log_end


def test_a_deleted_ledger_is_gone_for_good_and_so_is_its_id() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(3))
        await flushed(store)
        await add_all(store, 7, range(3, 6))
        await add(store, 8, 0)

        await store.delete(SEVEN)

        await store.delete(SEVEN)
        await gone(store)
        await asyncio.sleep(1)
        assert machine.disk.names(FOLDER / "ledgers") == []

    async def gone(store: Store) -> None:
        for recovery in (False, True):
            assert await refusal(add(store, 7, 0, recovery=recovery)) == "NotFound"
        assert await refusal(read_all(store, 7, 0, 0)) == "NotFound"
        assert await refusal(store.fence(SEVEN, Epoch(1))) == "NotFound"
        assert await refusal(store.close_ledger(SEVEN, EntryId(1))) == "NotFound"
        assert await refusal(store.verify(SEVEN)) == "NotFound"
        assert [state.ledger for state in store.page(None, 9)] == [8]

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        await gone(store)
        await store.delete(SEVEN)
        await store.stop()

    with Machine() as machine:
        machine.live(first)
        for _ in range(3):
            machine.crash("none")
            machine.live(second)


def test_a_ledger_that_was_never_here_can_be_deleted_and_does_not_come_later() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)

        await store.delete(SEVEN)

        assert await refusal(add(store, 7, 0)) == "NotFound"

    once(program)


def test_adds_that_race_with_a_deletion_are_answered_and_leave_nothing() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        told = Told()
        await add_all(store, 7, range(10), size=200)
        deletion = asyncio.ensure_future(store.delete(SEVEN))
        for entry in range(10, 30):
            store.add(an_add(7, entry, payload(entry, 200), sink=told, tag=entry))
            await asyncio.sleep(seams.rng.random() * 1e-4)
        await deletion
        await told.wait(20)
        await flushed(store)

        assert {type(error) for error in told.errors.values()} <= {NotFound}
        assert store.memory_bytes == 0
        await store.stop()  # the files may still have been there
        assert seams.disk.names(FOLDER / "ledgers") == []

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert (store.page(None, 9), store.known.deleted) == ([], {7})
        await store.stop()

    for seed in range(20):
        with Machine(seed) as machine:
            machine.live(program)
            machine.live(second)


def test_what_the_journal_has_of_a_ledger_behind_its_deletion_stays_gone() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        told = Told()
        deletion = asyncio.ensure_future(store.delete(SEVEN))
        await asyncio.sleep(0)
        store.add(an_add(7, 1, sink=told))
        fence = asyncio.ensure_future(refusal(store.fence(SEVEN, Epoch(3))))
        await deletion
        await told.wait(1)
        await fence

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert (store.page(None, 9), store.known.deleted) == ([], {7})

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_deletion_is_what_it_was_even_if_nobody_waited_for_it() -> None:
    """The one who asked may be gone; the journal has it, and so must the memory."""

    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        deletion = asyncio.ensure_future(store.delete(SEVEN))
        await asyncio.sleep(0)
        deletion.cancel()
        await add(store, 8, 0)

        late = await refusal(add(store, 7, 1))

        assert (late, SEVEN in store.known.ledgers) == ("NotFound", False)

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert await refusal(add(store, 7, 1)) == "NotFound"

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_a_checkpoint_never_passes_a_deletion_that_it_does_not_tell() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        await flushed(store)

        # It begins when the deletion has become durable, and before who asked for it wakes up.
        told = AtOnce(store)
        store.add(an_add(8, 0, sink=told))
        await store.delete(SEVEN)
        assert told.checkpoint is not None
        await told.checkpoint

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert await refusal(read_all(store, 7, 0, 0)) == "NotFound"

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_a_ledger_is_of_one_epoch_for_ever() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0, epoch=4)
        assert await refusal(add(store, 7, 1, epoch=5)) == "Conflict"
        assert await refusal(add(store, 7, 1, epoch=5, recovery=True)) == "Conflict"

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert store.state(SEVEN).epoch == 4
        assert await refusal(add(store, 7, 1, epoch=5)) == "Conflict"
        assert await refusal(add(store, 7, 1, epoch=4)) == "done"

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_what_is_refused_makes_no_ledger() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)

        with pytest.raises(Invalid, match="LAC"):
            await add(store, 7, 0, lac=5)

        assert store.page(None, 9) == []

    once(program)


def test_ids_and_sizes_may_be_as_large_as_they_can() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, LEDGER_ID_MAX, 0, b"")
        await add(store, 8, ENTRY_ID_MAX, b"x", epoch=(1 << 63) - 1)

        assert (await read_all(store, LEDGER_ID_MAX, 0, 0)).payloads == {0: b""}
        seen = await read_all(store, 8, ENTRY_ID_MAX - 3, ENTRY_ID_MAX)
        assert seen.payloads == {ENTRY_ID_MAX: b"x"}
        assert [state.ledger for state in store.page(None, 9)] == [8, LEDGER_ID_MAX]

    once(program)


def test_pages_of_ledgers_follow_the_ids() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        for ledger in (12, 2, 10, 9, 0):
            await add(store, ledger, 0)

        pages = [store.page(None, 2), store.page(LedgerId(2), 2), store.page(LedgerId(10), 9)]

        assert [[state.ledger for state in page] for page in pages] == [[0, 2], [9, 10], [12]]

    once(program)


class AtOnce(Told):
    """A sink that begins a checkpoint when it hears."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.checkpoint: asyncio.Future[None] | None = None

    def stored(self, tag: int) -> None:
        self.checkpoint = asyncio.ensure_future(self.store.upkeep.checkpoint())
        super().stored(tag)
