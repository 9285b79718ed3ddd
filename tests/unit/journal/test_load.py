"""A journal at the two ends of its load: a record that comes alone, and more than a disk takes."""

import asyncio
import errno
from typing import Any

import msgspec
import pytest

from roost.errors import Unavailable
from roost.journal.service import Journal
from tests.unit.journal.lives import SMALL, Life, Lives, add, play

AHEAD = msgspec.structs.replace(SMALL, segment_bytes=8192, ahead_bytes=1000, quick_s=0.0)


async def one(life: Life, journal: Journal) -> None:
    """Have something stored, so that it is known how quick a sync is."""
    add(journal, "first")
    await life.until_told(1)


def test_a_record_that_comes_alone_is_stored_before_the_turn_ends() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await one(life, journal)
        journal.gather()
        add(journal, "alone")
        journal.hurry()

        assert life.stored[-1] == "alone"
        assert journal.durable_before == journal.tail

    play(act)


def test_what_comes_behind_one_that_came_alone_shares_a_sync() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await one(life, journal)
        groups: list[list[Any]] = []
        life.told = groups.append
        for n in range(5):  # as from five connections, one after the other
            journal.gather()
            add(journal, n)
            journal.hurry()

        await life.until_told(6)

        assert groups == [[0], [1, 2, 3, 4]]

    play(act)


def test_after_a_slow_sync_the_loop_waits_for_none() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await one(life, journal)
        journal.gather()
        add(journal, "alone")
        journal.hurry()
        assert life.stored == ["first"]

        await life.until_told(2)

        assert life.stored == ["first", "alone"]

    play(act, settings=msgspec.structs.replace(SMALL, quick_s=0.0))


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failure_of_what_came_alone_is_final(operation: Any) -> None:
    async def act(life: Life, journal: Journal) -> None:
        await one(life, journal)
        lives[0].disk.fail_next(operation, ".journal.making", errno.EIO)
        journal.gather()
        add(journal, "alone")
        journal.hurry()

        assert life.stored == ["first"]
        assert life.lost == ["alone"]
        with pytest.raises(Unavailable):
            add(journal)
        await journal.close()

    lives: list[Lives] = []
    play(act, before=lives.append)


def test_a_journal_is_closed_behind_what_came_alone_in_the_same_turn() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await one(life, journal)
        for n in range(2):
            journal.gather()
            add(journal, n)
            journal.hurry()

        await journal.close()

        assert life.stored == ["first", 0, 1]

    play(act)


def test_what_waits_is_handed_over_behind_a_group_that_is_written_once_it_is_much() -> None:
    async def act(life: Life, journal: Journal) -> None:
        groups: list[list[Any]] = []
        life.told = groups.append
        for n in range(7):
            journal.gather()
            add(journal, n, 500)
            journal.hurry()

        await life.until_told(7)

        assert groups == [[0], [1, 2], [3, 4, 5, 6]]
        assert journal.durable_before == journal.tail
        assert life.metrics.syncs == 3

    play(act, settings=AHEAD)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_behind_a_group_that_failed_nothing_is_written_that_was_handed_over(operation: Any) -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(2):
            add(journal, f"good {n}")
        await life.until_told(2)
        lives[0].disk.fail_next(operation, ".journal.making", errno.EIO)
        for n in range(4):
            journal.gather()
            add(journal, n, 500)
            journal.hurry()

        await life.until_told(6)

        assert life.lost == [0, 1, 2, 3]
        assert life.metrics.records == 2
        assert journal.stored_before == journal.durable_before == 200
        await journal.close()

    lives: list[Lives] = []
    play(act, settings=AHEAD, before=lives.append)


def test_nothing_more_is_handed_over_once_the_next_segment_could_not_be_made() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(2):
            add(journal, f"good {n}")
        await life.until_told(2)
        for n in range(2):
            add(journal, n, 600)
        await asyncio.sleep(0)
        add(journal, 2, 1200)
        journal._break(OSError(errno.EIO, "making a segment failed"))  # noqa: SLF001 (as it is told)
        journal.gather()
        journal.hurry()

        await life.until_told(5)

        assert life.lost == [0, 1, 2]
        await journal.close()

    play(act, settings=AHEAD)
