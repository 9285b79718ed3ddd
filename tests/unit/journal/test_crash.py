"""The power goes at every single operation, and nothing that was durable is lost by it.

Each test plays the same life again and again, and ends it one operation later each time. What was
not synced survives in part, sectors torn in the middle included.
"""

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from msgspec.structs import replace

from roost.journal.record import CLOSE, DELETE, FENCE
from roost.types import Position
from tests.unit.journal.lives import TORN, Life, Lives, Model, Work, read

# What a failed sync left clean and unstored may read as before at any time.
LYING = replace(TORN, evicts=0.3)
ROUGH = replace(LYING, sync_fails=0.03, write_fails=0.03)


def one_life(model: Model, *, rounds: int = 24, trim: bool = False) -> Work:
    """Recover, append through several segments in groups of several records, and close."""

    async def work(life: Life) -> None:
        found = await life.recover(model.unneeded_before)
        model.check(found)
        life.told = model.on_stored
        journal = await life.open(found.opened)
        told = 0
        for number in range(rounds):
            for size in (10, 900, 77)[: 1 + number % 3]:
                model.append(journal, size)
                told += 1
            if number % 4 == 2:
                model.append(journal, 0, (FENCE, CLOSE, DELETE)[number % 3])
                journal.barrier("barrier")
                told += 2
            await life.until_told(told)
            assert life.lost == []
            if trim and number % 5 == 4:
                # As a checkpoint does, which is durable before anything is removed for it.
                model.unneeded_before = journal.durable_before
                journal.trim(Position(model.unneeded_before))
        await journal.close()

    return work


def rough_life(lives: Lives, model: Model) -> Work:
    """Recover, and append on a disk that fails now and then; the process ends with the first."""

    async def work(life: Life) -> None:
        lives.disk.faults = LYING
        found = await life.recover()
        model.check(found)
        life.told = model.on_stored
        journal = await life.open(found.opened)
        lives.disk.faults = ROUGH
        for number in range(40):
            for size in (10, 700)[: 1 + number % 2]:
                if journal.failure or journal.why_no_room:
                    return
                model.append(journal, size)
            while journal.queued_bytes and not life.lost:
                await life.until_told(len(life.stored) + len(life.lost) + 1)

    return work


def check_twice(lives: Lives, model: Model) -> None:
    """Recover, and once more: the second time nothing is left to do."""
    found = read(lives.disk, replay_from=model.unneeded_before)
    model.check(found)
    again = read(lives.disk, replay_from=model.unneeded_before)
    assert again.records == found.records
    assert again.findings == []
    assert again.opened == found.opened


def crashes() -> Iterator[tuple[Lives, Model, int]]:
    """Give one machine for each number of operations."""
    for operations in count(1):
        with Lives(operations, TORN) as lives:
            lives.disk.lose_power_after(operations)
            yield lives, Model(), operations


@pytest.mark.parametrize("trim", [False, True])
def test_a_crash_at_any_operation_of_a_life_loses_nothing_durable(trim: bool) -> None:
    for lives, model, operations in crashes():
        finished = lives.live(one_life(model, trim=trim))
        lives.crash()

        check_twice(lives, model)
        assert lives.live(one_life(model, trim=trim))
        lives.crash("none")
        check_twice(lives, model)

        if finished:
            assert operations > 100
            return


def test_a_crash_at_any_operation_of_a_recovery_loses_nothing_durable() -> None:
    for lives, model, operations in crashes():
        lives.disk.lose_power_after(Random(operations).randrange(20, 120))
        lives.live(one_life(model))
        lives.crash()

        in_recovery = 1 + operations % 40
        lives.disk.lose_power_after(in_recovery)
        lives.live(one_life(model, rounds=0))
        lives.crash()
        check_twice(lives, model)
        assert lives.live(one_life(model, trim=True))
        check_twice(lives, model)

        if operations == 120:
            return


def test_a_process_killed_at_any_operation_loses_nothing_durable() -> None:
    for lives, model, _ in crashes():
        finished = lives.live(one_life(model, trim=True))
        lives.crash("all")

        check_twice(lives, model)

        if finished:
            return


def test_lives_that_all_end_in_a_crash_add_up() -> None:
    for seed in range(12):
        model, rng = Model(), Random(seed)
        with Lives(seed, TORN) as lives:
            for _ in range(8):
                lives.disk.lose_power_after(rng.randrange(1, 150))
                lives.live(one_life(model, trim=bool(rng.getrandbits(1))))
                lives.crash()
            check_twice(lives, model)


def test_what_a_failing_disk_made_durable_stays_so() -> None:
    for seed in range(40):
        model, rng = Model(), Random(seed)
        with Lives(seed, LYING) as lives:
            for _ in range(6):
                assert lives.live(rough_life(lives, model))
                if rng.getrandbits(1):
                    lives.crash()
            lives.disk.faults = LYING
            check_twice(lives, model)
