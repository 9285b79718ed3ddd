"""An open journal: who hears what when, what a failure means, and what a full disk does not."""

import asyncio
import errno
from random import Random
from typing import Any

import pytest

from roost.errors import Closed, NoRoom, Unavailable
from roost.journal.chain import Opened
from roost.journal.plan import JournalSettings
from roost.journal.record import FENCE
from roost.journal.service import Journal
from roost.sim.faults import DiskFaults
from roost.types import Position
from tests.unit.journal.lives import (
    FOLDER,
    HEALTHY,
    SALVAGE,
    Life,
    Lives,
    add,
    play,
    read,
)


def names(lives: Lives) -> list[str]:
    return [name.removeprefix("0" * 15) for name in lives.disk.names(FOLDER)]


# Group commit


def test_what_is_gathered_is_written_when_it_hurries_and_not_before() -> None:
    async def act(life: Life, journal: Journal) -> None:
        journal.gather()
        for n in range(10):
            add(journal, n)
        await asyncio.sleep(1)
        assert life.stored == []

        journal.hurry()
        add(journal, 10)
        await life.until_told(11)

        assert life.stored == list(range(11))
        assert life.metrics.syncs == 2

    play(act)


def test_a_hurry_for_nothing_changes_nothing() -> None:
    async def act(life: Life, journal: Journal) -> None:
        journal.hurry()
        add(journal, 0)
        journal.hurry()
        journal.hurry()

        await life.until_told(1)

        assert life.stored == [0]
        assert life.metrics.syncs == 1

    play(act)


def test_what_is_appended_in_one_turn_shares_one_sync() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(10):
            add(journal, n)

        await life.until_told(10)

        assert life.stored == list(range(10))
        assert life.metrics.syncs == 1
        assert journal.durable_before == journal.tail == journal.stored_before == 1000
        assert journal.queued_bytes == 0

    play(act)


def test_what_comes_during_a_sync_is_the_next_group() -> None:
    async def act(life: Life, journal: Journal) -> None:
        groups: list[list[Any]] = []
        life.told = groups.append
        add(journal, "first")
        await asyncio.sleep(0)
        for n in range(3):
            add(journal, n)
        assert journal.queued_bytes == 400

        await life.until_told(4)

        assert groups == [["first"], [0, 1, 2]]
        assert life.metrics.syncs == 2

    play(act)


def test_nobody_hears_of_a_record_before_it_is_durable() -> None:
    async def act(life: Life, journal: Journal) -> None:
        def told(items: list[Any]) -> None:
            assert journal.durable_before == journal.stored_before == items[-1]

        life.told = told
        for n in range(200):
            add(journal, add_end(journal))
            if n % 7 == 0:
                await asyncio.sleep(0.0001)
        await life.until_told(200)

    def add_end(journal: Journal) -> int:
        return journal.tail + 100

    play(act)


def test_a_barrier_comes_back_behind_everything_before_it_and_writes_nothing() -> None:
    async def act(life: Life, journal: Journal) -> None:
        journal.barrier("alone")
        await life.until_told(1)
        assert life.metrics.syncs == 0

        add(journal, "a")
        journal.barrier("b")
        await asyncio.sleep(0)
        journal.barrier("c")
        add(journal, "d")
        journal.barrier("e")
        await life.until_told(6)

        assert life.stored == ["alone", "a", "b", "c", "d", "e"]
        assert journal.tail == 200

    play(act)


def test_a_barrier_behind_a_group_under_way_waits_for_it() -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "a")
        await asyncio.sleep(0)

        journal.barrier("b")
        await asyncio.sleep(0)

        assert life.stored == []
        await life.until_told(2)
        assert life.stored == ["a", "b"]

    play(act)


def test_what_is_appended_while_items_come_back_is_stored_too() -> None:
    async def act(life: Life, journal: Journal) -> None:
        def told(items: list[Any]) -> None:
            for item in items:
                if item < 20:
                    (add if item % 2 else lambda j, i: j.barrier(i))(journal, item + 1)

        life.told = told
        add(journal, 0)

        await life.until_told(21)

        assert life.stored == list(range(21))

    play(act)


def test_a_group_may_span_segments() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await asyncio.sleep(1)  # until the second segment is there
        for n in range(7):
            add(journal, n, 700)
        await life.until_told(7)

        assert life.metrics.syncs == 1
        assert life.metrics.rolls == 2
        assert life.metrics.records == 7
        assert life.metrics.synced_bytes == life.metrics.stored_bytes == 4900
        await journal.close()

    found = read(play(act).disk)
    assert [record.position for record in found.records] == list(range(0, 4900, 700))
    assert [(s.number, s.begin, s.end) for s in found.opened.segments] == [
        (1, 0, 3500),
        (2, 3500, 4900),
    ]


# Policies


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_without_a_sync_for_each_group_items_come_back_from_the_page_cache(sync: Any) -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "first")
        await life.until_told(1)
        add(journal, "second")
        await life.until_told(2)

        # The segment got its name with the first record, and that takes a sync.
        assert journal.durable_before == 100
        assert journal.stored_before == 200
        await asyncio.sleep(1)
        assert journal.durable_before == (200 if sync == "interval" else 100)
        add(journal, "third")
        await journal.close()
        assert life.stored == ["first", "second", "third"]

    lives = play(act, settings=replaced(sync=sync, interval_s=0.5))
    lives.disk.crash("none")
    assert len(read(lives.disk).records) == 3


def replaced(**changes: Any) -> JournalSettings:
    return JournalSettings(segment_bytes=4096, reserve_bytes=512, record_bytes_max=2048, **changes)


def test_records_say_durable_only_of_what_was_synced() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(5):
            add(journal, n)
            await life.until_told(n + 1)
        life.seams.disk.open(FOLDER / "gone", create=True).close()

    lives = play(act, settings=replaced(sync="never"))
    content = lives.disk.open(FOLDER / "0000000000000001.journal").read_at(64, 500)
    assert [content[at + 24] for at in range(0, 500, 100)] == [0, 100, 100, 100, 100]


# Failures


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_a_failed_write_or_sync_nothing_is_called_durable(operation: Any) -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "good")
        await life.until_told(1)
        lives[0].disk.fail_next(operation, ".journal.making", errno.EIO)
        add(journal, "under way")
        add(journal, "with it")
        await asyncio.sleep(0)
        add(journal, "waiting")
        journal.barrier("barrier")

        await life.until_told(5)

        assert life.stored == ["good"]
        assert life.lost == ["under way", "with it", "waiting", "barrier"]
        assert [error.errno for error in life.errors] == [errno.EIO]
        assert "writing to the disk failed" in journal.failure
        assert journal.durable_before == 100
        with pytest.raises(Unavailable, match="the journal takes nothing any more"):
            add(journal)
        with pytest.raises(Unavailable):
            journal.barrier("more")
        synced = life.metrics.syncs
        await asyncio.sleep(10)
        await journal.close()
        await journal.close()
        assert life.metrics.syncs == synced
        assert life.stored == ["good"]

    lives: list[Lives] = []
    # An open file keeps the name that it was opened by.
    play(act, before=lives.append)


def test_a_failed_sync_of_the_old_segment_fails_a_group_that_rolls() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(5):
            add(journal, n, 800)
        await life.until_told(5)
        lives[0].disk.fail_next("sync", "1.journal.making", errno.EIO)
        add(journal, 5, 800)

        await life.until_told(6)

        assert life.lost == [5]

    lives: list[Lives] = []
    after = play(act, before=lives.append)
    assert names(after)[0] == "1.journal"
    assert "2.journal" not in names(after)


@pytest.mark.parametrize("operation", ["sync", "rename", "sync_folder"])
def test_a_segment_whose_name_is_not_durable_makes_nothing_durable(operation: Any) -> None:
    async def act(life: Life, journal: Journal) -> None:
        lives[0].disk.fail_next(
            operation, "journal" if operation == "sync_folder" else "1.journal.making", errno.EIO
        )
        add(journal, "first")

        await life.until_told(1)

        assert life.lost == ["first"]
        assert journal.failure

    lives: list[Lives] = []
    play(act, before=lives.append)


def test_an_error_while_the_next_segment_is_made_fails_what_waits() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await asyncio.sleep(1)
        lives[0].disk.fail_next("allocate", "3.journal.making", errno.EIO)
        for n in range(9):
            add(journal, n, 800)

        await life.until_told(9)

        assert life.stored + life.lost == list(range(9))
        assert life.lost
        assert journal.failure
        await journal.close()

    lives: list[Lives] = []
    play(act, before=lives.append)


def test_whenever_a_failure_comes_every_item_comes_back_once() -> None:
    for seed in range(60):

        async def work(life: Life, seed: int = seed) -> None:
            rng, count = Random(seed), 0
            journal = await life.open((await life.recover()).opened)
            await asyncio.sleep(1)
            lives.disk.fail_next("allocate", "3.journal.making", errno.EIO)
            while True:
                try:
                    add(journal, count, rng.choice((200, 1500)))
                except (NoRoom, Unavailable):
                    if journal.failure:
                        break
                else:
                    count += 1
                await asyncio.sleep(rng.random() * 0.0001)
            await life.until_told(count)
            assert life.stored + life.lost == list(range(count))
            await journal.close()

        with Lives(seed) as lives:
            assert lives.live(work)


# A full disk


def test_a_full_disk_refuses_adds_and_is_no_failure() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await asyncio.sleep(1)
        stored = 0
        while not journal.why_no_room:
            add(journal, stored, 1000)
            stored += 1
            await life.until_told(stored)
            await asyncio.sleep(0.1)
        assert "no space for its next segment" in journal.why_no_room
        while True:
            try:
                add(journal, stored, 1000)
            except NoRoom:
                break
            stored += 1
        add(journal, stored, 76, kind=FENCE)
        await life.until_told(stored + 1)
        assert life.lost == []
        assert journal.failure == ""
        assert life.metrics.full > 0

        lives[0].disk.faults = HEALTHY
        await asyncio.sleep(2)
        assert journal.why_no_room == ""
        add(journal, "again", 1000)
        await life.until_told(stored + 2)
        await journal.close()

    lives: list[Lives] = []
    tight = DiskFaults(file_bytes_max=16 << 10, capacity_bytes=24 << 10)
    after = play(act, before=lives.append, faults=tight)
    assert read(after.disk).damages == []


def test_a_disk_without_room_for_a_first_segment_is_told_and_waited_for() -> None:
    async def act(life: Life, journal: Journal) -> None:
        assert "no space for its next segment" in journal.why_no_room
        with pytest.raises(NoRoom):
            add(journal, kind=FENCE)
        assert life.seams.disk.names(FOLDER) == []

        lives[0].disk.faults = HEALTHY
        await asyncio.sleep(1.5)

        add(journal, "now")
        await life.until_told(1)
        assert life.stored == ["now"]

    lives: list[Lives] = []
    play(act, before=lives.append, faults=DiskFaults(file_bytes_max=16 << 10, capacity_bytes=4096))


def test_what_is_removed_makes_room_at_once() -> None:
    async def act(life: Life, journal: Journal) -> None:
        stored = 0
        while not journal.why_no_room:
            add(journal, stored, 1000)
            stored += 1
            await life.until_told(stored)
            await asyncio.sleep(0.01)
        assert len(life.seams.disk.names(FOLDER)) > 2

        journal.trim(journal.durable_before)
        await asyncio.sleep(0.5)

        assert journal.why_no_room == ""
        assert life.metrics.trimmed_segments > 0

    play(act, faults=DiskFaults(file_bytes_max=16 << 10, capacity_bytes=32 << 10))


# Segments that nobody needs


def test_only_segments_that_lie_wholly_before_a_position_are_removed() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(4):
            for _ in range(4):
                add(journal, n, 1000)
            await life.until_told(4 * (n + 1))
        kept = journal.kept_bytes
        assert not journal.could_trim(Position(3999))
        for before, left in ((3999, 4), (4000, 3), (11_999, 2), (16_000, 1), (1 << 40, 1)):
            journal.trim(Position(before))
            await asyncio.sleep(1)
            names = [n for n in life.seams.disk.names(FOLDER) if n.endswith(".journal")]
            assert len(names) == left
        assert life.metrics.trimmed_segments == 3
        assert journal.kept_bytes == kept - 3 * 4064
        await journal.close()

    lives = play(act)
    assert names(lives) == ["4.journal"]
    assert not read(lives.disk, replay_from=16_000).missing


def test_kept_bytes_are_what_the_files_take() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(30):
            add(journal, n, 300 + n)
            await life.until_told(n + 1)
        journal.trim(Position(5000))
        await asyncio.sleep(1)
        sizes = [
            life.seams.disk.open(FOLDER / name).size() for name in life.seams.disk.names(FOLDER)
        ]
        assert journal.kept_bytes == sum(sizes)

    play(act)


def test_what_cannot_be_removed_is_tried_again() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(8):
            add(journal, n, 1000)
            await life.until_told(n + 1)
        lives[0].disk.fail_next("unlink", "1.journal", errno.EIO)
        journal.trim(Position(4000))
        await asyncio.sleep(1)
        assert life.metrics.failed_trims == 1
        assert life.metrics.trimmed_segments == 0
        assert journal.failure == ""

        journal.trim(Position(0))
        await asyncio.sleep(1)

        assert life.metrics.trimmed_segments == 1

    lives: list[Lives] = []
    play(act, before=lives.append)


def test_a_damaged_segment_goes_to_salvage_instead() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(9):
            add(journal, n, 1000)
            await life.until_told(n + 1)
        await journal.close()

    async def later(life: Life) -> None:
        found = await life.recover()
        assert len(found.damages) == 1
        journal = await life.open(found.opened)
        add(journal, "new")
        await life.until_told(1)
        journal.trim(journal.tail)
        await asyncio.sleep(1)
        await journal.close()
        assert life.metrics.trimmed_segments == 3
        assert life.metrics.salvaged_bytes == 4064

    with Lives(1) as lives:

        async def first(life: Life) -> None:
            await act(life, await life.open(Opened()))

        lives.disk.make_folder(FOLDER)
        assert lives.live(first)
        lives.disk.rot(FOLDER / "0000000000000002.journal", 1500, 3)
        assert lives.live(later)

        assert names(lives) == ["4.journal"]
        assert lives.disk.names(SALVAGE) == ["0000000000000002.journal"]


# The end


def test_closing_writes_what_waits_and_cuts_the_last_segment() -> None:
    async def act(life: Life, journal: Journal) -> None:
        await asyncio.sleep(1)  # until the second segment is there
        for n in range(5):
            add(journal, n, 900)
        await journal.close()

        assert life.stored == list(range(5))
        for call in (lambda: add(journal), lambda: journal.barrier(1)):
            with pytest.raises(Closed, match="the journal was closed"):
                call()
        journal.trim(Position(4000))
        await asyncio.sleep(1)

    lives = play(act)
    assert names(lives) == ["1.journal", "2.journal"]
    sizes = [lives.disk.open(FOLDER / name).size() for name in lives.disk.names(FOLDER)]
    assert sizes == [64 + 3600, 64 + 900]
    lives.disk.crash("none")
    assert len(read(lives.disk).records) == 5


def test_a_journal_that_took_nothing_leaves_nothing() -> None:
    async def act(_life: Life, journal: Journal) -> None:
        await journal.close()

    assert names(play(act)) == []


def test_two_who_close_at_once_both_come_back() -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "a")
        await asyncio.gather(journal.close(), journal.close())
        assert life.stored == ["a"]

    play(act)


def test_a_failure_while_closing_ends_it_all_the_same() -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "a")
        await life.until_told(1)
        lives[0].disk.fail_next("truncate", "1.journal.making", errno.EIO)
        await journal.close()
        assert journal.failure
        assert life.stored == ["a"]

    lives: list[Lives] = []
    assert len(read(play(act, before=lives.append).disk).records) == 1


def test_a_failure_of_what_waits_at_the_end_is_told() -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "a")
        await life.until_told(1)
        lives[0].disk.fail_next("sync", "1.journal.making", errno.EIO)
        add(journal, "b")
        await journal.close()
        assert life.lost == ["b"]

    lives: list[Lives] = []
    play(act, before=lives.append)


def test_the_next_life_goes_on_behind_the_last_in_a_segment_of_its_own() -> None:
    async def act(life: Life, journal: Journal) -> None:
        add(journal, "a")
        await journal.close()
        again = await life.open((await life.recover()).opened)
        assert add(again, "b") == 100
        await again.close()

    lives = play(act)
    assert names(lives) == ["1.journal", "2.journal"]
    assert [record.position for record in read(lives.disk).records] == [0, 100]


def test_a_close_waits_for_segments_that_are_removed_and_removes_what_came_to_it_since() -> None:
    async def act(life: Life, journal: Journal) -> None:
        for n in range(9):
            add(journal, n, 1500)
            await life.until_told(n + 1)
        journal.trim(Position(3000))
        journal.trim(journal.tail)

        await journal.close()

        assert life.metrics.failed_trims == 0

    lives = play(act)
    assert names(lives) == ["5.journal"]
