"""The housekeeping: what is flushed when, and what the journal may forget, in that order."""

import asyncio
import errno
from contextlib import suppress

import msgspec
import pytest

from roost.errors import RoostError
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.journal.header import parse_name
from roost.journal.record import DELETE
from roost.node.store import NodeSettings, Store
from roost.node.upkeep import RETRY_S
from roost.types import EntryId, LedgerId
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    SEGMENT_BYTES,
    SETTINGS,
    Machine,
    PowerWent,
    add,
    add_all,
    eased,
    flushed,
    once,
    opened,
    payload,
    read_all,
)

TIGHT = msgspec.structs.replace(
    SETTINGS,
    limits=msgspec.structs.replace(SETTINGS.limits, journal_bytes_max=8 * SEGMENT_BYTES),
)
"""Flushes for the journal's sake alone."""


def segments(seams: Seams) -> list[int]:
    """List the journal's segments."""
    names = (parse_name(name) for name in seams.disk.names(FOLDER / "journal"))
    return [name.number for name in names if name and not name.making]


async def filled(
    seams: Seams, settings: NodeSettings, *, log: Memory | None = None, entries: int = 150
) -> Store:
    """Let one ledger rest after its first entry while another one is busy."""
    store = await opened(seams, settings, log=log)
    await add(store, 1, 0)
    for entry in range(entries):
        await eased(store)
        await add(store, 2, entry, payload(entry, 900))
    return store


def test_a_ledger_at_rest_never_holds_the_journal_back() -> None:
    async def program(seams: Seams) -> int:
        store = await filled(seams, TIGHT)
        assert len(segments(seams)) <= 8
        assert segments(seams)[0] > 5
        assert store.state(LedgerId(1)).flushed_before > 0
        return store.journal.tail

    async def second(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, TIGHT, log=log)
        recovered = dict(log.events)["recovered"]
        assert tail - recovered["replay_from"] <= 8 * SEGMENT_BYTES  # type: ignore[operator]
        assert (await read_all(store, 1, 0, 0)).payloads == {0: payload(0)}
        assert len((await read_all(store, 2, 0, 149)).payloads) == 150

    with Machine() as machine:
        tail = machine.live(program)
        machine.crash("none")
        machine.live(second)


def test_while_there_is_room_nothing_is_flushed() -> None:
    async def program(seams: Seams) -> None:
        store = await filled(seams, SETTINGS, entries=50)
        await asyncio.sleep(60)

        assert (store.metrics.flushes, store.metrics.checkpoints) == (0, 0)
        assert segments(seams)[0] == 1
        assert store.state(LedgerId(1)).flushed_before == 0

    once(program)


def test_the_memory_stays_within_its_limit() -> None:
    async def program(seams: Seams) -> None:
        store = await filled(seams, EAGER)
        assert store.memory_bytes <= 2 * EAGER.limits.memory_bytes_max
        await asyncio.sleep(1)
        assert store.memory_bytes <= EAGER.limits.memory_bytes_max
        assert store.metrics.flushes > 10

    once(program)


def test_all_but_the_last_segment_goes_with_the_last_flush() -> None:
    async def program(seams: Seams) -> None:
        store = await filled(seams, SETTINGS)
        assert len(segments(seams)) > 10

        await flushed(store)
        await asyncio.sleep(1)

        assert len(segments(seams)) == 1
        assert store.journal.kept_bytes <= 2 * SETTINGS.journal.file_bytes
        await store.stop()

    once(program)


def test_segments_go_only_after_the_checkpoint_and_that_only_after_the_files() -> None:
    """The trace of the disk tells the order; a crash in between is what `test_recovery` tries."""
    said: list[str] = []

    async def program(seams: Seams) -> None:
        machine.world.detail = said.append  # type: ignore[assignment, method-assign]
        store = await filled(seams, EAGER)
        await store.stop()

    with Machine() as machine:
        machine.live(program)

    order = [line.split(" disk ")[-1] for line in said]
    trims = [at for at, line in enumerate(order) if line.startswith("unlink") and ".jour" in line]
    assert len(trims) > 3
    for trim in trims:
        if order[trim].endswith(".making"):
            continue
        before = order[:trim]
        renamed = last(before, "rename /node/checkpoint.making")
        assert last(before, "sync_folder /node") > renamed
        assert last(before[:renamed], "sync /node/checkpoint.making") > 0
        assert last(before[:renamed], "sync /node/ledgers/2.index") > 0


def last(lines: list[str], beginning: str) -> int:
    return max(at for at, line in enumerate(lines) if line.startswith(beginning))


def test_a_full_disk_is_tried_again_and_said_until_then() -> None:
    async def program(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, EAGER, log=log)
        await add(store, 2, 0, payload(0, 900))
        for _ in range(3):
            machine.disk.fail_next("write", "2.log", errno.ENOSPC)
        for entry in range(1, 8):
            with suppress(RoostError):
                await add(store, 2, entry, payload(entry, 900))
        await asyncio.sleep(RETRY_S)
        assert "cannot be flushed" in store.upkeep.why_full
        assert [*(await read_all(store, 2, 0, 9)).payloads] == [*range(8)]

        await asyncio.sleep(4 * RETRY_S)

        assert store.upkeep.why_full == store.failure == ""
        assert log.names.count("flush_without_room") == 3
        assert store.metrics.flushes > 0
        await store.stop()

    with Machine() as machine:
        machine.live(program)


def test_a_checkpoint_without_room_is_tried_again_and_nothing_is_trimmed_before() -> None:
    async def program(seams: Seams) -> None:
        for operation in ("open", "write", "sync", "rename"):
            machine.disk.fail_next(
                operation,
                "checkpoint.making",
                errno.ENOSPC,
            )
        store = await opened(seams, SETTINGS)
        await add_all(store, 2, range(20), size=900)
        for _ in range(4):
            with suppress(OSError):
                await flushed(store)
            assert segments(seams)[0] == 1

        await flushed(store)
        await asyncio.sleep(1)

        assert segments(seams)[0] > 1

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert len((await read_all(store, 2, 0, 30)).payloads) == 20

    with Machine() as machine:
        machine.live(opened_once)
        machine.live(program)
        machine.crash("none")
        machine.live(second)


async def opened_once(seams: Seams) -> None:
    await opened(seams)


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    async def program(seams: Seams) -> None:
        store = await filled(seams, TIGHT, entries=40)
        machine.host.clock.step(-10_000_000)
        for entry in range(40, 120):
            await add(store, 2, entry, payload(entry, 900))
        assert segments(seams)[0] > 3
        await store.stop()

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert len((await read_all(store, 2, 0, 200)).payloads) == 120

    with Machine() as machine:
        machine.live(program)
        machine.live(second)


def test_a_closed_ledger_is_cut_by_its_last_flush_or_at_once() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        for ledger in (1, 2):
            for start in (0, 10):
                await add_all(store, ledger, range(start, start + 10))
                await flushed(store)
        await add(store, 2, 20)
        for ledger, end in ((1, 19), (2, 20)):
            await store.close_ledger(LedgerId(ledger), EntryId(end))
        await flushed(store)
        await asyncio.sleep(1)

        for ledger in (1, 2):
            file = seams.disk.open(FOLDER / f"ledgers/{ledger}.log", writable=False)
            assert file.size() == store.state(LedgerId(ledger)).bytes

    once(program)


def test_many_ledgers_are_flushed_at_once_and_each_is_whole() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        for entry in range(5):
            for ledger in range(20):
                await add(store, ledger, entry, payload(entry, 100))
        await store.stop()

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        for ledger in range(20):
            assert [*(await read_all(store, ledger, 0, 9)).payloads] == [*range(5)]

    with Machine() as machine:
        machine.live(program)
        machine.crash("none")
        machine.live(second)


def test_a_flush_that_begins_when_its_ledger_has_just_been_deleted_does_nothing() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        ledger = store.known.ledgers[LedgerId(7)]

        flush = asyncio.ensure_future(store.upkeep._flush_one(ledger))  # noqa: SLF001 (as it does)
        # In the turn of the loop between the two.
        store._let_hold(DELETE, ledger, -1)  # noqa: SLF001 (the same)
        await flush
        await store.stop()

        assert store.memory_bytes == 0
        assert seams.disk.names(FOLDER / "ledgers") == []

    once(program)


def test_a_cut_that_fails_is_a_failure_of_the_node() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        for start in (0, 10):
            await add_all(store, 7, range(start, start + 10))
            await flushed(store)
        machine.disk.fail_next("sync", "7.log", errno.EIO)
        await store.close_ledger(LedgerId(7), EntryId(19))
        await asyncio.sleep(1)

        assert store.failure.startswith("cutting an entry log failed")
        await store.stop()

    with Machine() as machine:
        machine.live(program)


def test_room_that_cannot_be_told_is_noted_and_stops_nothing() -> None:
    async def program(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        machine.disk.fail_next("free_bytes", "/node", errno.EIO)
        await asyncio.sleep(2)
        await add(store, 7, 0)

        assert log.names.count("free_bytes_unknown") == 1
        await store.stop()

    with Machine() as machine:
        machine.live(program)


# Many at once

TOGETHER = msgspec.structs.replace(SETTINGS, together_min=2)


async def a_few(store: Store) -> None:
    """Add to four ledgers, which two workers have, one of them to be closed."""
    for ledger in (1, 2, 3, 4):
        await add_all(store, ledger, [0, 1, 9])
    await store.close_ledger(LedgerId(3), EntryId(9))


async def all_there(store: Store) -> None:
    for ledger in (1, 2, 3, 4):
        seen = await read_all(store, ledger, 0, 9)
        assert seen.payloads == {entry: payload(entry) for entry in (0, 1, 9)}
        assert (await store.verify(LedgerId(ledger))).complete


def test_many_ledgers_share_their_syncs_and_nothing_is_left_to_recover() -> None:
    async def first(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, TOGETHER, log=log)
        await a_few(store)
        await flushed(store)
        assert store.memory_bytes == 0
        await all_there(store)
        await add_all(store, 2, [5])
        await add_all(store, 4, [5])
        await store.stop()
        assert not store.failure

    async def second(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        assert dict(log.events)["recovered"]["replayed"] == 0
        assert (await read_all(store, 2, 5, 5)).payloads == {5: payload(5)}
        await add_all(store, 2, [6])

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_whenever_the_power_goes_in_a_flush_of_many_everything_is_there() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, TOGETHER)
        await a_few(store)
        machine.disk.lose_power_after(operation)
        await flushed(store)
        machine.disk.halt()

    async def second(seams: Seams) -> None:
        await all_there(await opened(seams))

    for operation in range(1, 60):
        with Machine(operation) as machine:
            with suppress(PowerWent):
                machine.live(first)
            machine.crash()
            machine.live(second)


def test_after_a_failed_sweep_all_of_it_is_in_the_journal_and_the_node_only_reads() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, TOGETHER)
        await a_few(store)
        machine.disk.fail_next("sweep", "node", errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            await flushed(store)
        await all_there(store)

    async def second(seams: Seams) -> None:
        await all_there(await opened(seams))

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


@pytest.mark.parametrize("seed", range(10))
def test_a_ledger_that_is_deleted_in_a_flush_of_many_leaves_no_files(seed: int) -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, TOGETHER)
        await a_few(store)
        flush = asyncio.ensure_future(flushed(store))
        await asyncio.sleep(seams.rng.random() * 1e-3)
        await store.delete(LedgerId(2))
        await flush
        await store.stop()
        names = seams.disk.names(FOLDER / "ledgers")
        assert [name for name in names if name.startswith("2.")] == []
        assert len(names) == 6

    with Machine(seed) as machine:
        machine.live(program)
