"""A journal on a real disk, with a real thread, under the event loops that there are."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks, system_rng
from roost.journal.chain import Opened
from roost.journal.plan import JournalSettings
from roost.journal.record import ADD
from roost.journal.service import Journal
from roost.wire.entry import encode_entry
from tests.unit.journal.lives import UUID, read

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
SIZES = (0, 100, 5000, 300_000)


async def use(folder: Path) -> dict[int, bytes]:
    """Append in bursts over many segments, let go of some, and give what is left."""
    stored: list[int] = []
    seams = Seams(
        clock=SystemClock(),
        disk=PosixDisk(guarded=False),
        net=AsyncioNet(),
        rng=system_rng(),
        tasks=ThreadTasks(),
    )
    worker = seams.tasks.worker("journal")
    blocks: dict[int, bytes] = {}
    changed = asyncio.Event()

    def durable(items: list[Any]) -> None:
        stored.extend(items)
        changed.set()

    def failed(items: list[Any], error: OSError) -> None:
        raise AssertionError(f"{items} failed: {error}")

    journal = Journal(
        seams,
        worker,
        folder,
        Opened(),
        settings=JournalSettings(segment_bytes=2 << 20, record_bytes_max=512 << 10),
        uuid=UUID,
        durable=durable,
        failed=failed,
    )
    await journal.start()
    for burst in range(60):
        for n in range(1 + burst % 4):
            block = encode_entry(7, len(blocks), bytes([burst]) * SIZES[(burst + n) % 4])
            at = journal.append(ADD, 1, 0, memoryview(block), journal.tail)
            blocks[at] = block
        while len(stored) < len(blocks):
            changed.clear()
            await changed.wait()
    assert stored == sorted(blocks)
    journal.trim(journal.durable_before)
    await journal.close()
    worker.stop()
    assert journal.metrics.trimmed_segments == journal.metrics.rolls - 1
    return blocks


@pytest.mark.parametrize("make_loop", [*LOOPS.values()], ids=[*LOOPS])
def test_what_a_real_journal_called_durable_is_read_back(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        blocks = runner.run(use(folder))

    (last,) = folder.iterdir()
    begin = int.from_bytes(last.read_bytes()[32:40], "little")
    found = read(PosixDisk(guarded=False), folder=folder, replay_from=begin)

    assert begin > 0
    wanted = {position: block for position, block in blocks.items() if position >= begin}
    assert {record.position: record.block for record in found.records} == wanted
    assert found.findings == []
