"""One flipped bit anywhere in a node's folder: no other bytes are served, nothing acked is absent.

A folder is filled once, by one life that ended well and one that was killed; each of a thousand
copies of it gets one flipped bit, and is opened and read whole.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from roost.host.net import AsyncioNet
from roost.host.seams import Seams
from roost.host.system import SystemClock
from roost.journal.plan import JournalSettings
from roost.node.store import Store
from roost.sim.loop import SimLoop
from roost.sim.tasks import SimTasks
from roost.sim.timeline import Timeline
from roost.types import EntryId, LedgerId
from tests.unit.channel.disks import quick
from tests.unit.node.lives import SETTINGS, add_all, flushed, opened, payload, read_all

T = TypeVar("T")

FLIPS = 1000
HELD = {
    LedgerId(1): [*range(40)],
    LedgerId(2): [0, 1, 2, 50, 51, 7, 8, 100],
    LedgerId(3): [*range(60)],
}
BROAD = msgspec.structs.replace(
    SETTINGS,
    journal=JournalSettings(segment_bytes=16384, reserve_bytes=1024, record_bytes_max=4096),
)


def life(folder: Path, program: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run a store on the real disk, and end as a killed process does."""
    loop = SimLoop(Timeline(Random(1)))
    tasks = SimTasks(loop, Random(2))
    seams = Seams(SystemClock(), quick(), AsyncioNet(), Random(3), tasks)

    before = descriptors()

    async def main() -> T:
        return await program(await opened(seams, BROAD, folder=folder))

    try:
        return loop.run_until_complete(main())
    finally:
        for task in loop.tasks():
            task.cancel()
        loop.run_until_complete(_turn())
        tasks.bury()
        loop.close()
        for descriptor in descriptors() - before:  # as the end of a process closes them
            os.close(descriptor)


def descriptors() -> set[int]:
    listed = [*Path("/proc/self/fd").iterdir()]
    return {int(path.name) for path in listed if path.exists()}


async def _turn() -> None:
    """Let what was cancelled end."""


async def fill(store: Store) -> None:
    for ledger, entries in HELD.items():
        await add_all(store, ledger, entries[: len(entries) // 2])
    await flushed(store)
    await store.close_ledger(LedgerId(3), EntryId(59))
    await store.stop()


async def go_on(store: Store) -> None:
    for ledger, entries in HELD.items():
        await add_all(store, ledger, entries[len(entries) // 2 :], recovery=ledger == 3)
    # The last group before a kill is told from a torn tail by nothing: it is not looked at.
    await add_all(store, 99, [0])


async def look(store: Store) -> Counter[str]:
    """Read everything, and count how it is told."""
    told: Counter[str] = Counter()
    for ledger, entries in HELD.items():
        seen = await read_all(store, ledger, 0, 120)
        told["wrong"] += sum(found != payload(entry) for entry, found in seen.payloads.items())
        told["absent"] += len({*entries} & {*seen.absent})
        told["found"] += len({*entries} & seen.payloads.keys())
        told["suspect"] += len({*entries} & {*seen.suspects})
        told["made up"] += len(seen.payloads.keys() - {*entries})
    return told


@pytest.mark.slow
def test_one_flipped_bit_never_makes_a_node_lie(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    life(folder, fill)
    life(folder, go_on)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    kinds = ["journal", "log", "index", "checkpoint"]
    rng = Random("flips")
    told: Counter[str] = Counter()
    for number in range(FLIPS):
        kind = kinds[number % len(kinds)]
        path = rng.choice([path for path in files if path.name.endswith(kind)])
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        flip(copy / path.relative_to(folder), rng)

        told += life(copy, look)

        shutil.rmtree(copy)
        assert not told["wrong"] + told["absent"] + told["made up"], f"flip {number}, {path}"
    assert told["found"] + told["suspect"] == FLIPS * sum(map(len, HELD.values()))
    assert 0 < told["suspect"] < told["found"]


def flip(path: Path, rng: Random) -> None:
    """Flip a bit of what the file holds."""
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content.rstrip(b"\0")))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
