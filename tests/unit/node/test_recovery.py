"""Putting a node together: whatever stopped it, and whatever was lost of its folder meanwhile."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from roost.errors import Corrupt, Fenced
from roost.host.log import Memory
from roost.host.seams import Seams
from roost.host.system import SystemClock
from roost.journal.record import ADD as ADD_KIND
from roost.journal.record import HEAD_BYTES, MAGIC_BYTES
from roost.node.known import Known
from roost.node.layout import CHECKPOINT_BYTES_MAX
from roost.node.recovery import Recovered, Recovery
from roost.node.space import Limits
from roost.node.store import Store
from roost.node.table import HEADER_BYTES, ROW_BYTES
from roost.node.unsynced import Unsynced
from roost.sim.disk import SimDisk
from roost.sim.drive import PowerLoss
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.disks import finish
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    SETTINGS,
    UUID,
    Machine,
    PowerWent,
    Seen,
    add,
    add_all,
    flushed,
    opened,
    payload,
    read_all,
)

SEVEN = LedgerId(7)
CHECKPOINT = FOLDER / "checkpoint"


async def busy_life(seams: Seams) -> None:
    """Leave a folder with something of everything in it: files, a journal, what was ended."""
    store = await opened(seams)
    await add_all(store, 7, range(20))
    await add_all(store, 8, [0, 5, 9])
    await add_all(store, 11, range(5))
    await flushed(store)
    await add_all(store, 7, range(20, 30))
    await add_all(store, 8, [3, 12])
    await add_all(store, 9, range(4))
    await store.fence(LedgerId(8), Epoch(3))
    await store.close_ledger(LedgerId(9), EntryId(3))
    await store.delete(LedgerId(11))
    await add_all(store, 8, [4], recovery=True)
    await store.fence(LedgerId(10), Epoch(6))


HELD = {7: [*range(30)], 8: [0, 3, 4, 5, 9, 12], 9: [*range(4)], 10: []}


async def whole(store: Store) -> None:
    """See that all of a busy life is there."""
    assert {state.ledger: state.entries for state in store.page(None, 99)} == {
        ledger: len(entries) for ledger, entries in HELD.items()
    }
    for ledger, entries in HELD.items():
        seen = await read_all(store, ledger, 0, 40)
        assert seen.payloads == {entry: payload(entry) for entry in entries}
        assert seen.suspects == []
    states = {state.ledger: (state.fenced, state.last) for state in store.page(None, 99)}
    assert states == {7: (None, None), 8: (3, None), 9: (None, 3), 10: (6, None)}
    assert LedgerId(11) in store.known.deleted


async def looks(seams: Seams) -> None:
    await whole(await opened(seams))


async def looks_and_stops(seams: Seams) -> None:
    store = await opened(seams)
    await whole(store)
    await store.stop()


def recovery(disk: SimDisk, *, memory_bytes_max: int = 1 << 20) -> Recovery:
    return Recovery(
        disk,
        FOLDER,
        uuid=UUID,
        unsynced=Unsynced(disk, FOLDER, SystemClock()),
        limits=Limits(memory_bytes_max=memory_bytes_max),
        files_max=4,
        log=Memory(),
    )


def told(recovered: Recovered) -> object:
    """Say what a recovery found, in values that can be compared."""
    known = recovered.known
    ledgers = sorted(known.ledgers.values(), key=lambda ledger: ledger.id)
    return (
        [
            (
                *(ledger.id, ledger.epoch, ledger.fenced, ledger.last, ledger.lac),
                *(ledger.suspect, ledger.entries, ledger.highest),
            )
            for ledger in ledgers
        ],
        sorted(known.deleted),
        known.forgetful,
        recovered.opened.begin,
    )


@pytest.mark.parametrize("power", [False, True])
def test_everything_is_there_however_a_node_was_stopped(power: bool) -> None:
    with Machine() as machine:
        machine.live(busy_life)
        for life in (looks, looks, looks_and_stops, looks_and_stops):
            if power:
                machine.crash("none")
            machine.live(life)


def test_a_node_that_was_never_used_begins_empty_and_remembers_nothing_of_it() -> None:
    async def program(seams: Seams) -> bool:
        store = await opened(seams)
        assert store.page(None, 9) == []
        return store.known.forgetful

    with Machine() as machine:
        assert not any(machine.live(program) for _ in range(3))
        machine.crash("none")
        assert not machine.live(program)


def test_a_first_start_may_be_interrupted_anywhere() -> None:
    for operation in range(1, 40):
        with Machine(operation) as machine:
            machine.disk.lose_power_after(operation)
            with suppress(PowerWent):
                machine.live(opened_and_stopped)
            machine.crash()

            assert not machine.live(opened_and_stopped)


async def opened_and_stopped(seams: Seams) -> bool:
    store = await opened(seams)
    await store.stop()
    return store.known.forgetful


@pytest.mark.parametrize("memory_bytes_max", [1 << 20, 3000])
def test_a_recovery_that_is_interrupted_anywhere_and_run_again_finds_the_same(
    memory_bytes_max: int,
) -> None:
    with Machine() as machine:
        machine.live(busy_life)
        machine.crash("none")
        wanted = told(finish(recovery(machine.disk).run()))
    interrupted = 0
    for operation in range(1, 200, 3):
        with Machine() as machine:
            machine.live(busy_life)
            machine.crash("none")
            machine.disk.lose_power_after(operation)
            with suppress(PowerLoss):
                finish(recovery(machine.disk, memory_bytes_max=memory_bytes_max).run())
                break
            interrupted += 1
            machine.crash()

            found = finish(recovery(machine.disk, memory_bytes_max=memory_bytes_max).run())

            assert told(found) == wanted
            machine.disk.kill()
            machine.live(looks_and_stops)
    assert interrupted > 5


def test_what_was_there_is_there_whenever_the_power_goes_in_a_busy_life() -> None:
    """Flushes, checkpoints and trims all the time, and the power may go before any operation."""
    for seed in range(60):
        storm(seed)


def storm(seed: int) -> None:
    rng = Random(seed)
    acknowledged: dict[int, set[int]] = {7: set(), 8: set(), 9: set()}
    ended: set[int] = set()
    with Machine(seed) as machine:
        for _ in range(3):
            machine.disk.lose_power_after(rng.randrange(1, 250))
            with suppress(PowerWent):
                machine.live(lambda seams: writes(seams, acknowledged, ended))
            machine.crash()
        machine.live(lambda seams: has(seams, acknowledged, ended))
        machine.crash("none")
        machine.live(lambda seams: has(seams, acknowledged, ended))


async def writes(seams: Seams, acknowledged: dict[int, set[int]], ended: set[int]) -> None:
    store = await opened(seams, EAGER)
    await check(store, acknowledged, ended)
    await asyncio.gather(*(writer(seams, store, acknowledged, ended) for _ in range(4)))


async def writer(
    seams: Seams, store: Store, acknowledged: dict[int, set[int]], ended: set[int]
) -> None:
    """Add beside others who do the same, so that there is always more under way."""
    while True:
        ledger = seams.rng.choice((7, 8, 9))
        there = acknowledged[ledger]
        entry = max(0, max(there, default=0) + seams.rng.randrange(-3, 5))
        if seams.rng.random() < 0.03 and ledger != 9:
            await store.fence(LedgerId(ledger), Epoch(2))
            ended.add(ledger)
        try:
            await add(store, ledger, entry, payload(entry, 300), recovery=ledger in ended)
        except Fenced:
            continue
        there.add(entry)


async def has(seams: Seams, acknowledged: dict[int, set[int]], ended: set[int]) -> None:
    store = await opened(seams, EAGER)
    await check(store, acknowledged, ended)
    await store.stop()


async def check(store: Store, acknowledged: dict[int, set[int]], ended: set[int]) -> None:
    assert not store.known.forgetful
    for ledger, entries in acknowledged.items():
        if entries:
            seen = await read_all(store, ledger, 0, max(entries) + 5)
            assert seen.suspects == []
            assert seen.payloads.items() >= {e: payload(e, 300) for e in entries}.items()
            assert all(text == payload(e, 300) for e, text in seen.payloads.items())
            # More may be there, whose answers the power took.
            entries.update(seen.payloads)
            assert store.state(LedgerId(ledger)).entries == len(entries)
    for ledger in ended:
        assert store.state(LedgerId(ledger)).fenced == 2
    ended |= {state.ledger for state in store.page(None, 9) if state.fenced is not None}


# What is lost


def harmed(machine: Machine, change: Callable[[bytes], bytes], path: Path = CHECKPOINT) -> None:
    """Change a file behind everybody's back."""
    file = machine.disk.open(path)
    content = change(file.read_at(0, file.size()))
    file.truncate(0)
    file.write_at(0, content)
    file.sync()
    file.close()
    machine.disk.kill()


def flip(at: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return change


async def never_lies(seams: Seams) -> dict[int, Seen]:
    """Read everything there may be: nothing is called absent that was there, nothing is other."""
    store = await opened(seams)
    answers: dict[int, Seen] = {}
    for ledger, entries in HELD.items():
        seen = await read_all(store, ledger, 0, 40)
        assert all(text == payload(entry) for entry, text in seen.payloads.items())
        assert not {*entries} & {*seen.absent}
        answers[ledger] = seen
    await store.stop()
    return answers


def rows_of(machine: Machine) -> list[int]:
    file = machine.disk.open(CHECKPOINT)
    content = file.read_at(0, file.size())
    machine.disk.kill()
    starts = range(HEADER_BYTES, len(content), ROW_BYTES)
    return [int.from_bytes(content[at : at + 8], "little") for at in starts]


def test_a_damaged_row_makes_its_ledger_suspect_and_costs_no_entry() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        rows = rows_of(machine)
    for number, ledger in enumerate(rows):
        with Machine() as machine:
            machine.live(busy_life)
            harmed(machine, flip(HEADER_BYTES + number * ROW_BYTES + 3))

            for _ in range(2):
                answers = machine.live(never_lies)

                for held, entries in HELD.items():
                    assert [*answers[held].payloads] == entries, f"row of {ledger}"
                    assert ledger != held or answers[held].suspects
                machine.crash("none")


@pytest.mark.parametrize(
    "change",
    [flip(0), flip(20), lambda _: b"", lambda content: content[:50]],
    ids=["magic", "replay from", "empty", "cut"],
)
def test_a_damaged_checkpoint_costs_no_entry(change: Callable[[bytes], bytes]) -> None:
    with Machine() as machine:
        machine.live(busy_life)
        harmed(machine, change)

        for _ in range(2):
            answers = machine.live(never_lies)
            assert {held: [*seen.payloads] for held, seen in answers.items()} == HELD
            machine.crash("none")


def test_a_missing_checkpoint_costs_no_entry_and_is_noted() -> None:
    async def again(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        assert "checkpoint_missing" in log.names
        assert "ledger_adopted" in log.names
        # Nobody knows whether they were fenced.
        assert store.state(SEVEN).fenced == 0
        assert store.known.forgetful
        assert all(state.suspect for state in store.page(None, 9))

    with Machine() as machine:
        machine.live(busy_life)
        machine.disk.unlink(CHECKPOINT)
        machine.live(again)
        answers = machine.live(never_lies)
        assert {held: [*seen.payloads] for held, seen in answers.items()} == HELD
        machine.crash("none")
        machine.live(never_lies)


def test_a_forgetful_node_calls_no_ledger_absent() -> None:
    async def again(seams: Seams) -> None:
        store = await opened(seams)
        seen = await read_all(store, 99, 3, 6)
        assert (seen.suspects, seen.absent) == ([3, 4, 5, 6], [])

    with Machine() as machine:
        machine.live(busy_life)
        machine.disk.unlink(CHECKPOINT)
        machine.live(again)


def test_a_new_ledger_of_a_node_that_once_forgot_is_no_orphan_of_the_next_crash() -> None:
    async def first(seams: Seams) -> None:
        await (await opened(seams)).stop()

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 50, range(5))
        await store.upkeep._flush(store._backlog.everything())  # noqa: SLF001 (no checkpoint)

    async def third(seams: Seams) -> None:
        store = await opened(seams)
        state = store.state(LedgerId(50))
        assert (state.fenced, state.suspect, state.entries) == (None, True, 5)
        await add(store, 50, 5)
        assert [*(await read_all(store, 50, 0, 5)).payloads] == [*range(6)]

    with Machine() as machine:
        machine.live(busy_life)
        machine.disk.unlink(CHECKPOINT)
        machine.live(first)
        machine.live(second)
        machine.live(third)


def test_a_checkpoint_longer_than_any_is_not_read() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        file = machine.disk.open(CHECKPOINT)
        machine.disk.kill()
        assert file is not None
    disk = LongDisk(CHECKPOINT_BYTES_MAX + 1)

    with pytest.raises(Corrupt, match="no checkpoint is that long"):
        finish(recovery(disk).run())


class LongDisk(SimDisk):
    """A disk on which the checkpoint claims to be of any size."""

    def __init__(self, size: int) -> None:
        super().__init__(Random(0))
        self._claim = size
        self.make_folder(FOLDER)
        self.open(CHECKPOINT, create=True)

    def open(self, path: Path, *, create: bool = False, writable: bool = True):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Open a file that lies about its size."""
        file = super().open(path, create=create, writable=writable)
        if path == CHECKPOINT:
            file.size = lambda: self._claim  # type: ignore[method-assign]
        return file


def test_what_a_torn_write_left_of_the_next_checkpoint_is_removed() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        file = machine.disk.open(FOLDER / "checkpoint.making", create=True)
        file.write_at(0, b"torn")
        machine.disk.kill()
        machine.live(looks)
        assert "checkpoint.making" not in machine.disk.names(FOLDER)


def test_what_deleted_ledgers_left_is_removed_and_what_is_not_ours_stays() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        for name in ("11.log", "11.index", "notes.txt", "011.log"):
            machine.disk.open(FOLDER / "ledgers" / name, create=True)
        machine.disk.kill()

        machine.live(looks)

        names = machine.disk.names(FOLDER / "ledgers")
        assert {"notes.txt", "011.log"} <= {*names}
        assert not {"11.log", "11.index"} & {*names}


def journal_of(machine: Machine) -> tuple[Path, bytes]:
    path = FOLDER / "journal" / machine.disk.names(FOLDER / "journal")[0]
    file = machine.disk.open(path)
    content = file.read_at(0, file.size())
    machine.disk.kill()
    return path, content


def records_at(content: bytes) -> list[int]:
    found, at = [], content.find(MAGIC_BYTES)
    while at >= 0:
        found.append(at)
        at = content.find(MAGIC_BYTES, at + 1)
    return found


def test_a_damaged_payload_in_the_journal_makes_its_ledger_suspect_and_no_other() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        path, content = journal_of(machine)
        # The first record behind the checkpoint is entry 20 of ledger 7.
        at = next(
            at
            for at in records_at(content)
            if content[at + 8] == ADD_KIND
            and content[at + HEAD_BYTES + 12] == 7
            and content[at + HEAD_BYTES + 20] == 20
        )
        harmed(machine, flip(at + HEAD_BYTES + 30), path)

        answers = machine.live(never_lies)

        assert answers[7].suspects[0] == 20
        assert 20 not in answers[7].payloads
        assert len(answers[7].payloads) == 29
        assert answers[8].suspects == answers[9].suspects == []


def test_damage_of_which_nobody_can_tell_the_ledger_makes_all_suspect() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        path, content = journal_of(machine)
        at = records_at(content)[-8]
        harmed(machine, flip(at + 20), path)

        answers = machine.live(never_lies)

        assert answers[8].absent == []
        assert 39 in answers[7].suspects


def test_a_journal_that_is_gone_makes_all_suspect() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        for name in machine.disk.names(FOLDER / "journal"):
            machine.disk.unlink(FOLDER / "journal" / name)

        for _ in range(2):
            answers = machine.live(never_lies)

            assert [*answers[7].payloads] == [*range(20)]
            assert {*range(20, 30)} <= {*answers[7].suspects}


def test_two_values_of_one_entry_are_noted_and_the_first_stays() -> None:
    """Nothing that this node writes holds two; a journal that was put together by hand may."""

    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0, b"first")
        store.known.ledgers[SEVEN].memtable.clear()
        store.known.ledgers[SEVEN]._newest = EntryId(-1)  # noqa: SLF001 (what no node does)
        await add(store, 7, 0, b"other")

    async def second(seams: Seams) -> None:
        log = Memory()
        store = await opened(seams, log=log)
        assert "two_values" in log.names
        assert (await read_all(store, 7, 0, 0)).payloads == {0: b"first"}
        assert store.state(SEVEN).suspect

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_more_than_fits_in_memory_is_replayed_all_the_same() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(150))
        await add_all(store, 8, range(0, 100, 3))
        await store.close_ledger(SEVEN, EntryId(149))

    with Machine() as machine:
        machine.live(first)
        machine.crash("none")
        for _ in range(2):
            recovered = finish(recovery(machine.disk, memory_bytes_max=5000).run())
            assert recovered.backlog.memory_bytes <= 5000
            ledgers = recovered.known.ledgers
            assert ledgers[SEVEN].stored.entries > 100
            assert (ledgers[SEVEN].entries, ledgers[LedgerId(8)].entries) == (150, 34)
            machine.disk.kill()

        async def second(seams: Seams) -> None:
            store = await opened(seams)
            assert [*(await read_all(store, 7, 0, 149)).payloads] == [*range(150)]
            assert [*(await read_all(store, 8, 0, 99)).payloads] == [*range(0, 100, 3)]

        machine.live(second)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_in_a_recovery_is_raised_and_the_next_one_finds_the_same(code: int) -> None:
    with Machine() as machine:
        machine.live(busy_life)
        for operation, name in (
            ("open", "checkpoint"),
            ("names", "/ledgers"),
            ("make_folder", "/journal"),
            ("sync_folder", "/node"),
        ):
            machine.disk.fail_next(operation, name, code)  # type: ignore[arg-type]  # its words
            with pytest.raises(OSError, match=errno.errorcode[code]):
                finish(recovery(machine.disk).run())
            machine.disk.kill()
        machine.live(looks)


def test_a_deletion_behind_a_recreation_attempt_is_never_undone_by_replay() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(5))
        await flushed(store)
        await add_all(store, 7, range(5, 8))
        await store.delete(SEVEN)
        with suppress(Exception):
            await add(store, 7, 0, b"again")

    async def second(seams: Seams) -> None:
        store = await opened(seams, SETTINGS)
        assert SEVEN in store.known.deleted
        assert store.page(None, 9) == []
        await asyncio.sleep(0)

    with Machine() as machine:
        machine.live(first)
        machine.live(second)
        machine.crash()
        machine.live(second)


def test_known_ledgers_of_a_recovery_are_those_of_its_checkpoint_and_journal() -> None:
    with Machine() as machine:
        machine.live(busy_life)
        known: Known = finish(recovery(machine.disk).run()).known

        assert sorted(known.ledgers) == [7, 8, 9, 10]
        assert known.deleted == {11}
