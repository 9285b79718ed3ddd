"""Bugs that were found in the node, each with the story that showed it."""

import asyncio
import errno

import msgspec
import pytest

from roost.errors import Fenced, NoRoom, Sealed
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.node.layout import CHECKPOINT
from roost.node.store import Store
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    Machine,
    Told,
    a_read,
    add,
    add_all,
    an_add,
    flushed,
    once,
    opened,
    payload,
    read_all,
)

SEVEN = LedgerId(7)
EIGHT = LedgerId(8)


def test_a_fence_and_a_close_are_shown_once_they_are_durable_and_hold_before() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(3))
        await add_all(store, 8, range(3))
        asked = asyncio.gather(store.fence(SEVEN, Epoch(4)), store.close_ledger(EIGHT, EntryId(2)))
        await asyncio.sleep(0)

        early: list[int | None] = [store.state(SEVEN).fenced, store.state(EIGHT).last]
        early += [(await store.read(a_read(7, 0, 0))).fenced]
        early += [(await store.read(a_read(8, 0, 0))).last]
        with pytest.raises(Fenced, match="fenced by epoch 4"):
            await add(store, 7, 3)
        with pytest.raises(Sealed, match="its last entry is 2"):
            await add(store, 8, 3)
        assert early == [None, None, None, None]

        fenced, closed = await asked
        assert (fenced.fenced, closed.last) == (4, 2)

    once(program)


def test_the_epoch_of_an_add_that_may_still_vanish_is_not_shown() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        told = Told()
        store.add(an_add(7, 0, epoch=5, sink=told))

        assert [state.epoch for state in store.page(None, 9)] in ([], [None])
        await told.wait(1)
        assert store.state(SEVEN).epoch == 5

    once(program)


def test_the_files_of_a_ledger_that_only_they_tell_of_are_made_durable() -> None:
    async def begins_a_flush(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(3))
        machine.disk.fail_next("write", "7.log", errno.ENOSPC)
        with pytest.raises(OSError, match="ENOSPC"):
            await flushed(store)

    async def adopts(seams: Seams) -> list[str]:
        log = Memory()
        store = await opened(seams, log=log)
        await store.stop()
        return log.names

    async def looks(seams: Seams) -> dict[int, bytes]:
        return (await read_all(await opened(seams), 7, 0, 2)).payloads

    with Machine() as machine:
        machine.live(begins_a_flush)
        machine.disk.rot(FOLDER / CHECKPOINT, 8, 0)
        said = machine.live(adopts)
        machine.crash("none")

        assert machine.live(looks) == {entry: payload(entry) for entry in range(3)}
        assert {"checkpoint_damaged", "ledger_adopted"} <= {*said}


class Settled(Told):
    """A sink that passes on only what was settled, as a connection does."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_on: list[int] = []

    def settle(self) -> None:
        self.passed_on = [*self.tags]


def test_an_add_behind_the_deletion_of_its_ledger_is_passed_on_to_who_asked() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        told = Settled()
        deleting = asyncio.ensure_future(store.delete(SEVEN))
        await asyncio.sleep(0)
        store.add(an_add(7, 1, sink=told))

        await deleting
        await told.wait(1)

        assert told.passed_on == told.tags
        await store.stop()

    once(program)


def test_a_node_that_finds_no_room_for_its_flushes_can_be_given_some_by_a_deletion() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        await add_all(store, 8, range(60), size=900)
        await flushed(store)
        healthy = machine.disk.faults
        used = healthy.capacity_bytes - machine.disk.free_bytes(FOLDER)
        machine.disk.faults = msgspec.structs.replace(healthy, capacity_bytes=used + 20_000)
        entry = await added_until_refused(store)
        await asyncio.sleep(5)

        assert store.why_slow == "", "whoever is not read from cannot delete"
        await store.delete(EIGHT)
        await asyncio.sleep(5)
        await add(store, 7, entry, payload(entry, 900))

        assert len((await read_all(store, 7, 0, 1000)).payloads) == entry + 1
        await store.stop()

    with Machine() as machine:
        machine.live(program)


async def added_until_refused(store: Store) -> int:
    """Add entries until there is no room, and tell the one that was refused."""
    for entry in range(1000):
        try:
            await add(store, 7, entry, payload(entry, 900))
        except NoRoom:
            return entry
    raise AssertionError("this is no small disk")
