"""A node that acknowledges before it syncs: what a loss of power takes is not called absent."""

import errno
from typing import Literal

import msgspec
import pytest

from roost.errors import Fenced, NotFound, Unavailable, Unknown
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.sim.faults import Keep
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import (
    FOLDER,
    SETTINGS,
    Machine,
    add,
    add_all,
    flushed,
    opened,
    read_all,
)

SEVEN, EIGHT = LedgerId(7), LedgerId(8)
LOOSE = msgspec.structs.replace(
    SETTINGS, journal=msgspec.structs.replace(SETTINGS.journal, sync="never")
)
Policy = Literal["interval", "never"]
each_policy = pytest.mark.parametrize("policy", ["interval", "never"])


async def adds(seams: Seams) -> None:
    store = await opened(seams, LOOSE)
    await add_all(store, 7, range(5))


@each_policy
def test_a_crash_of_the_process_takes_nothing_and_makes_nothing_suspect(policy: Policy) -> None:
    journal = msgspec.structs.replace(SETTINGS.journal, sync=policy)
    settings = msgspec.structs.replace(SETTINGS, journal=journal)

    async def first(seams: Seams) -> None:
        await add_all(await opened(seams, settings), 7, range(5))

    async def second(seams: Seams) -> None:
        store = await opened(seams, settings)
        seen = await read_all(store, 7, 0, 9)
        assert ([*seen.payloads], seen.suspects) == ([0, 1, 2, 3, 4], [])
        assert not store.known.forgetful

    with Machine() as machine:
        machine.live(first)
        machine.live(second)
        machine.live(second)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_after_a_loss_of_power_nothing_is_called_absent(keep: Keep) -> None:
    async def second(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        seen = await read_all(store, 7, 0, 9)
        assert seen.absent == []
        assert [*seen.payloads, *seen.suspects] == [*range(10)]
        assert "power_lost" in log.names
        # Nor of a ledger of which nothing is left.
        assert (await read_all(store, 8, 0, 3)).suspects == [0, 1, 2, 3]
        assert (store.state(EIGHT).suspect, store.state(EIGHT).highest) == (True, -1)
        assert not (await store.verify(EIGHT)).complete

    with Machine() as machine:
        machine.live(adds)
        machine.crash(keep)
        machine.live(second)
        # And it is not forgotten again, though nothing is unsynced any more.
        machine.crash(keep)

        async def third(seams: Seams) -> None:
            store = await opened(seams)
            assert (await read_all(store, 8, 0, 3)).suspects == [0, 1, 2, 3]

        machine.live(third)


def test_after_a_clean_stop_a_loss_of_power_takes_nothing() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        assert "unsynced" in seams.disk.names(FOLDER)
        await add_all(store, 7, range(5))
        await store.stop()
        assert "unsynced" not in seams.disk.names(FOLDER)

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        seen = await read_all(store, 7, 0, 5)
        assert ([*seen.payloads], seen.absent) == ([0, 1, 2, 3, 4], [5])

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_a_node_that_syncs_again_needs_no_note() -> None:
    async def second(seams: Seams) -> None:
        await opened(seams)
        assert "unsynced" not in seams.disk.names(FOLDER)

    with Machine() as machine:
        machine.live(adds)
        machine.live(second)
        machine.crash("none")

        async def third(seams: Seams) -> None:
            seen = await read_all(await opened(seams), 7, 0, 5)
            assert ([*seen.payloads], seen.absent) == ([0, 1, 2, 3, 4], [5])

        machine.live(third)


@pytest.mark.parametrize("end", ["fence", "close", "delete"])
def test_whatever_the_policy_a_ledger_that_was_ended_stays_so(end: str) -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        await add_all(store, 7, range(5))
        if end == "fence":
            await store.fence(SEVEN, Epoch(3))
        elif end == "close":
            await store.close_ledger(SEVEN, EntryId(4))
        else:
            await store.delete(SEVEN)

    async def second(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        if end == "delete":
            with pytest.raises(NotFound):
                store.state(SEVEN)
            return
        state = store.state(SEVEN)
        assert (state.fenced, state.last) == ((3, None) if end == "fence" else (None, 4))
        # What came before it is durable with it.
        assert [*(await read_all(store, 7, 0, 4)).payloads] == [0, 1, 2, 3, 4]
        if end == "fence":
            with pytest.raises(Fenced):
                await add(store, 7, 5)

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_where_files_reach_farther_than_the_journal_no_position_is_given_twice() -> None:
    """What is added behind a lost tail must not be taken for what the files have already."""

    async def first(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        await add_all(store, 9, range(1))  # it keeps the checkpoint's replay from back
        await add_all(store, 7, range(9))
        ledger = store.known.ledgers[SEVEN]
        await store.upkeep._flush_one(ledger)  # noqa: SLF001 (just this one, as pressure would)
        await store.upkeep.checkpoint()

    async def second(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        assert [*(await read_all(store, 7, 0, 8)).payloads] == [*range(9)]
        await add_all(store, 7, range(9, 12))

    async def third(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        assert [*(await read_all(store, 7, 0, 11)).payloads] == [*range(12)]

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)
        machine.live(third)


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_where_that_cannot_be_noted_a_node_only_reads(
    operation: Literal["write", "rename"],
) -> None:
    async def second(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        assert "unsynced" in store.failure
        with pytest.raises(Unavailable):
            await add(store, 7, 5)
        assert [*(await read_all(store, 7, 0, 4)).payloads] == [*range(5)]
        await store.stop()

    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(5))
        await flushed(store)
        await store.stop()

    with Machine() as machine:
        machine.live(first)
        suffix = "unsynced.making" if operation == "write" else "unsynced"
        machine.disk.fail_next(operation, suffix, errno.EIO)
        machine.live(second)


def test_a_note_that_cannot_be_removed_is_left_to_the_next_start() -> None:
    async def first(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, LOOSE, log=log)
        await add_all(store, 7, range(5))
        machine.disk.fail_next("unlink", "unsynced", errno.EIO)
        await store.stop()
        assert "unsynced_left" in log.names

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert not store.known.forgetful
        assert "unsynced" not in seams.disk.names(FOLDER)

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_what_a_flush_had_stored_that_does_not_count_is_not_shown_to_vanish_later() -> None:
    """Its place in the log is written over by the next flush."""

    async def first(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        await add_all(store, 7, [9])
        await flushed(store)
        await add_all(store, 7, [3, 5])
        # The power goes between a flush and its checkpoint, and takes the end of the journal.
        await store.upkeep._flush_one(store.known.ledgers[SEVEN])  # noqa: SLF001

    async def second(seams: Seams) -> None:
        seen = await read_all(await opened(seams, LOOSE), 7, 0, 9)
        assert ([*seen.payloads], seen.absent) == ([9], [])
        assert seen.suspects == [*range(9)]

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


@pytest.mark.parametrize("noted", [True, False])
def test_after_a_failed_sync_nothing_is_called_absent_without_a_loss_of_power(
    noted: bool,
) -> None:
    async def first(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, LOOSE, log=log)
        await add_all(store, 7, range(5))
        machine.disk.fail_next("sync", ".journal.making", errno.EIO)
        if not noted:
            machine.disk.fail_next("write", "unsynced.making", errno.EIO)
        with pytest.raises(Unknown):
            await store.fence(SEVEN, Epoch(2))
        assert ("unsynced_not_doubted" in log.names) is not noted

    async def second(seams: Seams) -> None:
        store = await opened(seams, LOOSE)
        assert store.known.forgetful is noted

    with Machine() as machine:
        machine.live(first)
        machine.live(second)
