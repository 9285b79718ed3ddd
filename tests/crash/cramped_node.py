"""What a node's store does on a small file system: run by `test_node_full_disk`, inside of one.

    python -m tests.crash.cramped_node SCENARIO FOLDER

The folder lies on a file system of eight mebibytes. What does not hold ends the process with a
traceback.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from roost.errors import NoRoom
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks
from roost.journal.plan import JournalSettings
from roost.node.space import Limits
from roost.node.store import NodeSettings, Store
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import Told, an_add, opened, payload, read_all

SIZE = 1000
SEVEN, EIGHT = LedgerId(7), LedgerId(8)
WAIT_S = 60.0


def settings(*, free_bytes_min: int) -> NodeSettings:
    """Let a node fit into some mebibytes."""
    return NodeSettings(
        journal=JournalSettings(
            segment_bytes=512 << 10, reserve_bytes=16 << 10, record_bytes_max=8 << 10, retry_s=0.05
        ),
        limits=Limits(
            memory_bytes_max=4 << 20, journal_bytes_max=4 << 20, free_bytes_min=free_bytes_min
        ),
    )


class Cramped:
    """A store on the small file system, and what was acknowledged."""

    def __init__(self, folder: Path, *, free_bytes_min: int = 0) -> None:
        self.folder = folder
        self.settings = settings(free_bytes_min=free_bytes_min)
        self.seams = Seams(
            SystemClock(), PosixDisk(guarded=False), AsyncioNet(), Random(1), ThreadTasks()
        )
        self.there: dict[int, int] = {7: 0, 8: 0}

    async def opened(self) -> Store:
        """Open the store."""
        return await opened(self.seams, self.settings, folder=self.folder)

    async def add(self, store: Store, ledger: int) -> bool:
        """Add the next entry; False if there is no room for it."""
        told = Told()
        entry = self.there[ledger]
        store.add(an_add(ledger, entry, payload(entry, SIZE), sink=told))
        await told.wait(1)
        if told.errors:
            assert isinstance(told.errors[0], NoRoom), told.errors[0]
            return False
        self.there[ledger] += 1
        return True

    async def fill(self, store: Store, ledger: int) -> None:
        """Add until there is no room."""
        for _ in range(20_000):
            if not await self.add(store, ledger):
                return
        raise AssertionError("this is no small file system")

    async def check(self, store: Store) -> None:
        """See that everything that was acknowledged is there, and nothing else."""
        for ledger, count in self.there.items():
            if count:
                seen = await read_all(store, ledger, 0, count + 10)
                assert seen.payloads == {entry: payload(entry, SIZE) for entry in range(count)}
                assert seen.suspects == []

    async def adds_again(self, store: Store, ledger: int) -> None:
        """Wait until there is room, and add some more."""
        async with asyncio.timeout(WAIT_S):
            while not await self.add(store, ledger):  # noqa: ASYNC110 (a disk tells nobody)
                await asyncio.sleep(0.02)
        for _ in range(100):
            if not await self.add(store, ledger):
                return


async def goes_on_when_there_is_room(folder: Path) -> None:
    """Fill it, look, end ledgers, and go on once somebody made room."""
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(3 << 20))
    cramped = Cramped(folder)
    store = await cramped.opened()
    await cramped.add(store, 8)
    await cramped.fill(store, 7)
    for _ in range(3):
        await cramped.check(store)
        assert not await cramped.add(store, 7)
        assert store.failure == ""
    assert (await store.fence(EIGHT, Epoch(2))).fenced == 2
    assert (await store.close_ledger(EIGHT, EntryId(0))).last == 0

    ballast.unlink()

    await cramped.adds_again(store, 7)
    await cramped.check(store)
    await store.stop()
    store = await cramped.opened()
    await cramped.check(store)
    assert (store.state(EIGHT).fenced, store.state(EIGHT).last) == (2, 0)
    await store.stop()


async def makes_room_by_deleting(folder: Path) -> None:
    """Fill it with one ledger, delete that, and fill it with another; several times."""
    cramped = Cramped(folder)
    store = await cramped.opened()
    for turn in range(3):
        ledger = 70 + turn
        cramped.there[ledger] = 0
        await cramped.fill(store, ledger)
        await cramped.check(store)
        await store.delete(LedgerId(ledger))
        del cramped.there[ledger]
        await cramped.adds_again(store, 7)
    await cramped.check(store)
    await store.stop()
    await cramped.check(await cramped.opened())


async def opens_without_room(folder: Path) -> None:
    """Start on a disk without a free byte: everything is read, and nothing is broken."""
    cramped = Cramped(folder)
    store = await cramped.opened()
    await cramped.fill(store, 7)
    await store.stop()
    rest = (folder.parent / "rest").open("wb", buffering=0)
    try:
        while rest.write(bytes(512)):
            pass
    except OSError:
        pass

    for _ in range(3):
        store = await cramped.opened()
        await cramped.check(store)
        await store.stop()
    (folder.parent / "rest").unlink()
    store = await cramped.opened()
    await cramped.check(store)
    await store.stop()


async def keeps_what_is_to_be_left(folder: Path) -> None:
    """Refuse adds while there is some room left, and tell why."""
    cramped = Cramped(folder, free_bytes_min=3 << 20)
    store = await cramped.opened()
    await cramped.fill(store, 7)
    assert "kept free" in store.why_refused or store.journal.why_no_room
    await cramped.check(store)
    await store.delete(SEVEN)
    del cramped.there[7]
    await cramped.adds_again(store, 8)
    await store.stop()


SCENARIOS: dict[str, Callable[[Path], Coroutine[Any, Any, None]]] = {
    function.__name__: function
    for function in (
        goes_on_when_there_is_room,
        makes_room_by_deleting,
        opens_without_room,
        keeps_what_is_to_be_left,
    )
}

if __name__ == "__main__":
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2])))
