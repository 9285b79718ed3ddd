"""A store that fails, that is full, and that ends: what was acknowledged is there all the same."""

import asyncio
import errno

import msgspec
import pytest

from roost.errors import (
    Closed,
    NoRoom,
    Sealed,
    Unavailable,
    Unknown,
)
from roost.host.log import Memory
from roost.host.metrics import NodeMetrics
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.node.store import SPACE_LOOK_S
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    SETTINGS,
    Machine,
    Told,
    add,
    add_all,
    an_add,
    eased,
    flushed,
    once,
    opened,
    payload,
    read_all,
    refusal,
)

SEVEN, EIGHT = LedgerId(7), LedgerId(8)


# What fails


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_a_failed_write_or_sync_of_the_journal_a_node_only_reads(operation: str) -> None:
    async def first(seams: Seams) -> int:
        log = Memory()
        store = await opened(seams, log=log)
        await add_all(store, 7, range(3))
        # A segment is opened under the name that it has while it is made.
        machine.disk.fail_next(operation, ".making", errno.EIO)  # type: ignore[arg-type]
        told = Told()
        for entry in range(3, 6):
            store.add(an_add(7, entry, sink=told, tag=entry))
        fence = asyncio.ensure_future(store.fence(SEVEN, Epoch(1)))
        await told.wait(3)

        assert {type(error) for error in told.errors.values()} == {Unknown}
        assert await refusal(fence) == "Unknown"
        assert store.failure.startswith("the journal failed: ")
        for late in (
            add(store, 7, 6),
            add(store, 7, 0),
            store.fence(SEVEN, Epoch(2)),
            store.close_ledger(SEVEN, EntryId(2)),
            store.delete(SEVEN),
        ):
            assert await refusal(late) == "Unavailable"
        assert [*(await read_all(store, 7, 0, 5)).payloads] == [0, 1, 2]
        assert log.names.count("failed") == 1
        await asyncio.sleep(3 * SPACE_LOOK_S)
        assert await refusal(add(store, 7, 6)) == "Unavailable"
        await store.stop()
        return len(log.events)

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert {*range(3)} <= {*(await read_all(store, 7, 0, 5)).payloads}
        assert await refusal(add(store, 8, 0)) == "done"

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("sync", "7.log"),
        ("sync", "7.index"),
        ("write", "7.log"),
        ("sync", "checkpoint.making"),
        ("rename", "checkpoint.making"),
        ("sync_folder", "/node"),
        ("sync_folder", "/ledgers"),
    ],
)
def test_after_a_failed_flush_or_checkpoint_a_node_only_reads(operation: str, name: str) -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        machine.disk.fail_next(operation, name, errno.EIO)  # type: ignore[arg-type]
        for entry in range(1000):
            if await refusal(add(store, 7, entry, payload(entry, 900))) == "Unavailable":
                break
            acknowledged.append(entry)
        assert store.failure
        seen = await read_all(store, 7, 0, acknowledged[-1])
        assert [*seen.payloads] == acknowledged
        await store.stop()

    async def second(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        seen = await read_all(store, 7, 0, acknowledged[-1])
        assert [*seen.payloads] == acknowledged
        await store.stop()

    acknowledged: list[int] = []
    with Machine() as machine:
        machine.live(first)
        machine.live(second)
        machine.crash("none")
        machine.live(second)


def test_a_failure_that_comes_with_a_full_disk_is_not_tried_again() -> None:
    """Two flushes at once: one has no room, the other one's sync fails, which counts more."""

    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 8, range(3))
        await add_all(store, 7, range(3))
        machine.disk.fail_next("write", "8.log", errno.ENOSPC)
        machine.disk.fail_next("sync", "7.log", errno.EIO)

        with pytest.raises(OSError, match="EIO"):
            await flushed(store)

    with Machine() as machine:
        machine.live(program)


def test_what_cannot_be_removed_does_not_undo_a_deletion() -> None:
    async def program(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        await add(store, 7, 0)
        await flushed(store)
        machine.disk.fail_next("unlink", "7.log", errno.EIO)

        await store.delete(SEVEN)

        assert await refusal(add(store, 7, 0)) == "NotFound"
        await store.stop()

    async def second(seams: Seams) -> None:
        await opened(seams)
        assert seams.disk.names(FOLDER / "ledgers") == []

    with Machine() as machine:
        machine.live(program)
        machine.live(second)


def test_closing_and_deleting_at_once_harms_nobody() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        await flushed(store)

        both = [store.close_ledger(SEVEN, EntryId(0)), store.delete(SEVEN)]
        if seams.rng.random() < 0.5:
            both.reverse()
        await asyncio.gather(*both, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert store.failure == ""
        assert await refusal(add(store, 8, 0)) == "done"
        await store.stop()

    for seed in range(20):
        once(program, seed=seed)


# Room


def test_below_the_watermark_adds_are_refused_and_all_else_goes_on() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, limits=msgspec.structs.replace(SETTINGS.limits, free_bytes_min=100_000)
    )

    async def program(seams: Seams) -> None:
        store = await opened(seams, settings)
        await add_all(store, 7, range(3))
        await add(store, 8, 0)
        healthy = machine.disk.faults
        used = healthy.capacity_bytes - machine.disk.free_bytes(FOLDER)
        full = msgspec.structs.replace(healthy, capacity_bytes=used + 90_000)
        machine.disk.faults = full
        await asyncio.sleep(2 * SPACE_LOOK_S)

        with pytest.raises(NoRoom, match=r"100000 are kept free: .* Nothing was written"):
            await add(store, 7, 3)
        assert "kept free" in store.why_refused
        assert (await store.fence(SEVEN, Epoch(2))).fenced == 2
        assert (await store.close_ledger(SEVEN, EntryId(2))).last == 2
        assert [*(await read_all(store, 7, 0, 3)).payloads] == [0, 1, 2]
        await store.delete(SEVEN)
        machine.disk.faults = healthy
        await asyncio.sleep(2 * SPACE_LOOK_S)

        assert await refusal(add(store, 8, 1)) == "done"
        assert store.why_refused == ""
        await store.stop()

    with Machine() as machine:
        machine.live(program)


def test_a_disk_without_any_room_keeps_everything_and_goes_on_once_there_is_some() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        healthy = machine.disk.faults
        used = healthy.capacity_bytes - machine.disk.free_bytes(FOLDER)
        machine.disk.faults = msgspec.structs.replace(healthy, capacity_bytes=used + 20_000)
        acknowledged = []
        for entry in range(1000):
            try:
                await add(store, 7, entry, payload(entry, 900))
            except NoRoom:
                break
            acknowledged.append(entry)
        else:
            raise AssertionError("this is no small disk")

        assert [*(await read_all(store, 7, 0, 1000)).payloads] == acknowledged
        assert store.failure == ""
        await asyncio.sleep(5)
        assert store.failure == ""
        machine.disk.faults = healthy
        await asyncio.sleep(5)
        await add_all(store, 7, range(len(acknowledged), len(acknowledged) + 50), size=900)
        seen = await read_all(store, 7, 0, 1000)
        assert [*seen.payloads] == [*range(len(acknowledged) + 50)]
        assert store.upkeep.why_full == store.journal.why_no_room == ""
        await store.stop()

    with Machine() as machine:
        machine.live(program)


def test_a_ledger_that_is_deleted_for_room_while_its_flush_finds_none_holds_nothing_back() -> None:
    for seed in range(30):
        deleted_while_full(seed)


def deleted_while_full(seed: int) -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(3))
        machine.disk.fail_next("write", "7.index", errno.ENOSPC)
        deletion = asyncio.ensure_future(store.delete(SEVEN))
        await asyncio.sleep(seams.rng.random() * 2e-4)
        flush = asyncio.ensure_future(flushed(store))

        await deletion
        await asyncio.gather(flush, return_exceptions=True)
        await add(store, 8, 0)
        await flushed(store)

        assert store.memory_bytes == 0
        await store.stop()

    async def second(seams: Seams) -> None:
        log = Memory()
        await opened(seams, log=log)
        assert dict(log.events)["recovered"]["replayed"] == 0

    with Machine(seed) as machine:
        machine.live(program)
        machine.live(second)


def test_too_much_under_way_is_said_once_and_taken_back_once() -> None:
    settings = msgspec.structs.replace(
        EAGER, limits=msgspec.structs.replace(EAGER.limits, memory_bytes_max=4000)
    )

    async def program(seams: Seams) -> None:
        store = await opened(seams, settings, metrics=metrics)
        heard: list[bool] = []
        store.on_pressure = lambda: heard.append(bool(store.why_slow))
        told = Told()
        for entry in range(6):
            store.add(an_add(7, entry, payload(entry, 900), sink=told, tag=entry))
        await told.wait(6)
        await asyncio.sleep(1)

        assert heard == [True, False]
        assert metrics.throttled == 1
        assert not told.errors

    metrics = NodeMetrics()
    once(program)


@pytest.mark.parametrize("segments", [1, 2, 3, 6])
def test_a_small_journal_slows_writers_down_and_never_stops_them(segments: int) -> None:
    size = SETTINGS.journal.file_bytes
    settings = msgspec.structs.replace(
        SETTINGS,
        limits=msgspec.structs.replace(SETTINGS.limits, journal_bytes_max=segments * size),
    )

    async def program(seams: Seams) -> None:
        store = await opened(seams, settings)
        for entry in range(100):
            await eased(store)
            await add(store, 7, entry, payload(entry, 900))
        assert store.journal.kept_bytes <= (segments + 2) * size
        await store.stop()

    once(program)


# The end


def test_a_stopped_store_has_everything_in_files_and_nothing_to_replay() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(100))
        await store.fence(EIGHT, Epoch(1))
        await store.stop()
        assert await refusal(add(store, 7, 100)) == "Closed"

    async def second(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        assert dict(log.events)["recovered"]["replayed"] == 0
        assert len((await read_all(store, 7, 0, 200)).payloads) == 100
        assert store.state(EIGHT).fenced == 1

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        machine.live(second)


def test_everything_that_was_asked_before_a_stop_is_answered() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        await add_all(store, 7, [0, 9])
        await flushed(store)
        told = Told()
        for entry in (10, 5, 0, 11):
            store.add(an_add(7, entry, sink=told, tag=entry))
        controls = [
            asyncio.ensure_future(refusal(store.fence(EIGHT, Epoch(1)))),
            asyncio.ensure_future(refusal(store.delete(LedgerId(9)))),
        ]
        await asyncio.sleep(seams.rng.random() * 1e-4)

        await store.stop()
        late = Told()
        store.add(an_add(7, 12, sink=late))
        await told.wait(4)

        assert {type(error) for error in told.errors.values()} <= {Closed}
        assert {await control for control in controls} <= {"done", "Closed"}
        assert isinstance(late.errors[0], Closed)

    for seed in range(20):
        once(program, seed=seed)


def test_a_store_takes_nothing_while_it_stops() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        await add_all(store, 7, range(100))
        told = Told()
        stopping = asyncio.ensure_future(store.stop())
        tag = 0
        while not stopping.done():
            await asyncio.sleep(1e-4)
            store.add(an_add(7, 100 + tag, sink=told, tag=tag))
            tag += 1
        await stopping
        await told.wait(tag)

        assert {*told.errors} == {*range(tag)}

    for seed in range(5):
        once(program, seed=seed)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("sync", ".journal.making"),
        ("write", ".journal.making"),
        ("write", "7.log"),
        ("sync", "7.index"),
        ("sync", "checkpoint.making"),
        ("truncate", ".journal.making"),
    ],
)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_stop_ends_whatever_fails_and_the_next_start_has_everything(
    operation: str, name: str, code: int
) -> None:
    async def first(seams: Seams) -> list[int]:
        store = await opened(seams)
        await add_all(store, 7, range(10))
        told = Told()
        store.add(an_add(7, 10, sink=told, tag=10))
        machine.disk.fail_next(operation, name, code)  # type: ignore[arg-type]  # its words
        await store.stop()
        await told.wait(1)
        return [*range(10 if told.errors else 11)]

    async def second(seams: Seams) -> list[int]:
        store = await opened(seams)
        seen = await read_all(store, 7, 0, 10)
        await store.stop()
        return [*seen.payloads]

    with Machine() as machine:
        acknowledged = machine.live(first)
        assert {*acknowledged} <= {*machine.live(second)}
        machine.crash("none")
        assert {*acknowledged} <= {*machine.live(second)}


def test_a_journal_that_does_not_sync_each_time_still_loses_nothing_to_a_kill() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams, settings)
        await add_all(store, 7, range(50))

    async def second(seams: Seams) -> None:
        store = await opened(seams, settings)
        assert len((await read_all(store, 7, 0, 60)).payloads) == 50
        await store.stop()

    journal = SETTINGS.journal
    for sync in ("interval", "never"):
        settings = msgspec.structs.replace(
            SETTINGS,
            journal=JournalSettings(
                segment_bytes=journal.segment_bytes,
                reserve_bytes=journal.reserve_bytes,
                record_bytes_max=journal.record_bytes_max,
                sync=sync,
            ),
        )
        with Machine() as machine:
            machine.live(first)
            machine.live(second)


def test_a_sealed_ledger_says_so_with_its_last_entry() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await store.close_ledger(SEVEN, EntryId(4))

        with pytest.raises(Sealed) as caught:
            await add(store, 7, 5)

        assert (caught.value.ledger, caught.value.last) == (7, 4)

    once(program)


def test_a_store_whose_recovery_fails_can_be_opened_again() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(10))

    async def second(seams: Seams) -> None:
        machine.disk.fail_next("open", "checkpoint", errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            await opened(seams)
        store = await opened(seams)
        assert len((await read_all(store, 7, 0, 20)).payloads) == 10

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_what_is_asked_of_a_stopped_store_is_refused_and_makes_no_ledger() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await store.stop()
        for late in (store.fence(SEVEN, Epoch(1)), store.close_ledger(SEVEN, EntryId(0))):
            with pytest.raises((Closed, Unavailable)):
                await late
        assert store.page(None, 9) == []

    once(program)


@pytest.mark.parametrize("entries", [1, 4], ids=["a late sync", "the next segment"])
def test_a_journal_that_fails_while_nobody_waits_for_it_is_a_failure_of_the_node(
    entries: int,
) -> None:
    journal = JournalSettings(
        segment_bytes=8192, reserve_bytes=1024, record_bytes_max=4096, sync="interval"
    )

    async def program(seams: Seams) -> None:
        store = await opened(seams, msgspec.structs.replace(SETTINGS, journal=journal))
        machine.disk.fail_next("allocate", ".making", errno.ENOSPC)
        machine.disk.fail_next("allocate", ".making", errno.EIO)
        await add_all(store, 7, range(entries), size=1500)
        assert not store.failure
        if entries == 1:
            machine.disk.fail_next("sync", ".making", errno.EIO)
        await asyncio.sleep(5)

        assert store.failure.startswith("the journal failed: ")
        assert await refusal(add(store, 7, 9)) == "Unavailable"
        await store.stop()

    with Machine() as machine:
        machine.live(program)
