"""Bugs that the simulator found in the node, each with the story that showed it."""

import asyncio
import errno

import pytest

from roost.errors import Fenced, Sealed
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.node.layout import CHECKPOINT
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import (
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
