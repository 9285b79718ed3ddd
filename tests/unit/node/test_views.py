"""What readers see: memory and files as one, in pieces, and what comes next when they wait."""

import asyncio
import errno

import pytest

from roost.errors import NotFound
from roost.host.log import Memory
from roost.host.metrics import NodeMetrics
from roost.host.seams import Seams
from roost.node.reading import SLOTS_MAX
from roost.node.store import Store
from roost.node.views import CHUNK_BYTES_MAX, Chunk
from roost.types import EntryId, Epoch, LedgerId
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    Machine,
    Told,
    a_read,
    add,
    add_all,
    an_add,
    flushed,
    found,
    once,
    opened,
    payload,
    read_all,
)

SEVEN = LedgerId(7)


async def mixed(seams: Seams) -> Store:
    """Have entries of one ledger in files, in memory, in both orders, and some nowhere."""
    store = await opened(seams)
    await add_all(store, 7, [0, 1, 4, 5, 10])
    await flushed(store)
    await add_all(store, 7, [2, 6, 11, 12, 15])
    return store


MIXED = [0, 1, 2, 4, 5, 6, 10, 11, 12, 15]


def test_any_range_is_told_whole_from_memory_and_files() -> None:
    async def program(seams: Seams) -> None:
        store = await mixed(seams)
        for first in range(18):
            for upto in range(first, 18):
                for bytes_max in (0, 100, 1 << 20):
                    seen = await read_all(store, 7, first, upto, bytes_max=bytes_max)
                    wanted = [entry for entry in MIXED if first <= entry <= upto]
                    assert seen.payloads == {entry: payload(entry) for entry in wanted}
                    assert len(seen.absent) == upto - first + 1 - len(wanted)
                    assert seen.suspects == []

    once(program)


def test_a_piece_has_as_many_bytes_as_were_asked_for_and_one_entry_at_least() -> None:
    async def program(seams: Seams) -> None:
        store = await mixed(seams)
        for bytes_max, entries in ((0, 1), (1, 1), (48, 1), (96, 2), (144, 3)):
            for first in (10, 0):
                chunk = await store.read(a_read(7, first, 17, bytes_max=bytes_max))
                assert chunk.entries <= entries
                assert chunk.entries >= 1

    once(program)


def test_what_is_in_memory_between_what_is_in_files_does_not_make_a_piece_too_long() -> None:
    """Two entries in files, and many long ones between them that came later, as recovery's do."""

    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 60], size=1000)
        await flushed(store)
        await add_all(store, 7, range(1, 60), size=1000)

        chunk = await store.read(a_read(7, 0, 60, bytes_max=5000))
        seen = await read_all(store, 7, 0, 60, bytes_max=5000)

        assert 1 <= chunk.entries <= 5
        assert [*seen.payloads] == [*range(61)]

    once(program)


def test_a_piece_is_never_longer_than_a_frame_takes() -> None:
    assert CHUNK_BYTES_MAX <= 8 << 20


def test_a_read_goes_on_while_what_it_reads_is_flushed() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams, EAGER)
        told = Told()
        reads = []

        async def reader() -> None:
            while True:
                upto = store.known.ledgers[SEVEN].highest
                seen = await read_all(store, 7, 0, upto, bytes_max=2000)
                assert [*seen.payloads] == [*range(upto + 1)]
                assert not seen.absent
                reads.append(upto)
                await asyncio.sleep(1e-5)

        await add(store, 7, 0, payload(0, 300))
        tasks = [asyncio.ensure_future(reader()) for _ in range(3)]
        for entry in range(1, 120):
            store.add(an_add(7, entry, payload(entry, 300), sink=told, tag=entry))
            await told.wait(entry)
        await asyncio.wait(tasks, timeout=0.01)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert store.metrics.flushes > 3
        assert len({*reads}) > 3
        await store.stop()

    for seed in range(5):
        once(program, seed=seed)


def test_nothing_is_read_before_it_is_durable() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        told = Told()
        store.add(an_add(7, 1, sink=told))

        at_once = await store.read(a_read(7, 0, 1))
        await told.wait(1)
        then = await store.read(a_read(7, 0, 1))

        assert ([*found(at_once)], [*found(then)]) == ([0], [0, 1])

    once(program)


def test_an_end_is_not_shown_before_it_is_durable() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        ending = [
            asyncio.ensure_future(store.fence(SEVEN, Epoch(2))),
            asyncio.ensure_future(store.close_ledger(SEVEN, EntryId(0))),
        ]
        await asyncio.sleep(0)

        before = await store.read(a_read(7, 0, 0))
        await asyncio.gather(*ending)
        after = await store.read(a_read(7, 0, 0))

        assert (before.fenced, before.last) == (None, None)
        assert (after.fenced, after.last) == (2, 0)

    once(program)


def test_a_read_that_fences_sees_everything_that_came_before_and_nothing_comes_behind() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        told = Told()
        for entry in range(5):
            store.add(an_add(7, entry, sink=told, tag=entry))

        chunk = await store.read(a_read(7, 0, 9, fence=3))
        store.add(an_add(7, 5, sink=told, tag=5))
        await told.wait(6)

        assert [*found(chunk)] == [0, 1, 2, 3, 4]
        assert (chunk.fenced, chunk.before) == (3, 10)
        assert [*told.errors] == [5]

    once(program)


def test_a_ledger_that_was_never_here_is_fenced_by_a_read() -> None:
    async def program(seams: Seams) -> Chunk:
        return await (await opened(seams)).read(a_read(7, 0, 9, fence=3))

    chunk = once(program)

    assert (chunk.fenced, chunk.before, chunk.pieces, chunk.suspects) == (3, 10, [], [])


def test_an_unknown_ledger_is_not_found() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        with pytest.raises(NotFound, match="ledger 7 is not on this node"):
            await store.read(a_read(7, 0, 9))
        assert store.page(None, 9) == []

    once(program)


def test_what_is_behind_the_end_of_a_closed_ledger_is_absent_whatever_is_there() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(6))
        await store.close_ledger(SEVEN, EntryId(3))

        for _ in range(2):
            seen = await read_all(store, 7, 0, 9)
            assert ([*seen.payloads], seen.absent) == ([0, 1, 2, 3], [*range(4, 10)])
            assert (await read_all(store, 7, 5, 9)).absent == [*range(5, 10)]
            await flushed(store)

    once(program)


def test_a_long_range_of_nothing_is_answered_at_once() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)

        chunk = await store.read(a_read(7, 1, (1 << 36) - 1))

        assert (chunk.before, chunk.entries) == (1 << 36, 0)

    once(program)


def test_a_suspect_ledger_calls_nothing_absent_and_says_so_in_pieces() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 2])
        store.known.distrust_one(store.known.ledgers[SEVEN])

        chunk = await store.read(a_read(7, 0, 1 << 30))
        await store.close_ledger(SEVEN, EntryId(4))
        closed = await read_all(store, 7, 0, 9)

        assert len(chunk.suspects) == chunk.before - 2 <= SLOTS_MAX
        assert ([*closed.payloads], closed.suspects) == ([0, 2], [1, 3, 4])
        assert closed.absent == [*range(5, 10)]

    once(program)


# Waiting


async def later(delay_s: float, act: object) -> None:
    await asyncio.sleep(delay_s)
    await act  # type: ignore[misc]  # whatever can be awaited


def test_who_waits_for_an_entry_gets_it_when_it_comes() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        adding = asyncio.ensure_future(later(3, add(store, 7, 1)))
        began = seams.clock.now()

        chunk = await store.read(a_read(7, 1, 9, wait_s=60))

        assert [*found(chunk)] == [1]
        assert 3 <= seams.clock.now() - began < 4
        await adding

    once(program)


def test_many_who_wait_for_a_ledger_that_is_not_here_yet_all_hear_of_it() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        reads = [store.read(a_read(7, 0, 9, wait_s=60)) for _ in range(5)]
        adding = asyncio.ensure_future(later(1, add(store, 7, 0)))

        chunks = await asyncio.gather(*reads)
        await adding

        assert [[*found(chunk)] for chunk in chunks] == [[0]] * 5

    once(program)


def test_what_is_there_is_not_waited_for() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 2])
        began = seams.clock.now()

        chunks = [await store.read(a_read(7, first, 9, wait_s=60)) for first in (0, 1, 2)]

        assert [[*found(chunk)] for chunk in chunks] == [[0, 2], [2], [2]]
        assert seams.clock.now() == began

    once(program)


def test_who_waits_for_a_lac_is_not_woken_by_an_entry_that_does_not_raise_it() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        adding = asyncio.ensure_future(later(1, add(store, 7, 2, lac=-1)))
        raising = asyncio.ensure_future(later(2, add(store, 7, 3, lac=2)))
        began = seams.clock.now()

        chunk = await store.read(a_read(7, 0, 9, wait_s=60, lac=-1))

        assert (chunk.lac, [*found(chunk)]) == (2, [0, 2, 3])
        assert seams.clock.now() - began >= 2
        await asyncio.gather(adding, raising)

    once(program)


@pytest.mark.parametrize("lac", [None, 5])
def test_a_wait_that_runs_out_says_what_there_is(lac: int | None) -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add(store, 7, 0)
        began = seams.clock.now()

        chunk = await store.read(a_read(7, 1, 9, wait_s=5, lac=lac))

        assert (chunk.before, chunk.entries) == (10, 0)
        assert 5 <= seams.clock.now() - began < 5.1
        with pytest.raises(NotFound):
            await store.read(a_read(8, 1, 9, wait_s=1, lac=lac))
        assert not store._views.watched  # noqa: SLF001 (what nobody waits for takes no memory)

    once(program)


@pytest.mark.parametrize("lac", [None, 5])
def test_the_end_of_a_ledger_ends_all_waiting(lac: int | None) -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        for ledger in (7, 8):
            await add(store, ledger, 0)
        ends = [
            asyncio.ensure_future(later(1, store.close_ledger(SEVEN, EntryId(0)))),
            asyncio.ensure_future(later(1, store.delete(LedgerId(8)))),
        ]
        began = seams.clock.now()

        closed = await store.read(a_read(7, 1, 9, wait_s=60, lac=lac))
        with pytest.raises(NotFound, match="deleted"):
            await store.read(a_read(8, 1, 9, wait_s=60, lac=lac))

        assert (closed.last, closed.before) == (0, 10)
        assert seams.clock.now() - began < 2
        with pytest.raises(NotFound, match="deleted"):
            await store.read(a_read(8, 1, 9, wait_s=60, lac=lac))
        await asyncio.gather(*ends)

    once(program)


def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        reads = [
            asyncio.ensure_future(store.read(a_read(ledger, 0, 9, wait_s=60)))
            for ledger in (7, 7, 8)
        ]
        await asyncio.sleep(1)
        for read in reads[1:]:
            read.cancel()
        await asyncio.sleep(1)

        assert [*store._views.watched] == [7]  # noqa: SLF001 (nobody waits for 8)
        await add(store, 7, 0)
        assert [*found(await reads[0])] == [0]

    once(program)


# Damage


def test_damage_is_counted_logged_and_answered_as_suspect() -> None:
    async def program(seams: Seams) -> None:
        log, metrics = Memory(), NodeMetrics()
        store = await opened(seams, log=log, metrics=metrics)
        await add_all(store, 7, range(5))
        await flushed(store)
        machine.disk.rot(FOLDER / "ledgers/7.log", 64 + 48 + 30, 0)

        seen = await read_all(store, 7, 0, 4)
        report = await store.verify(SEVEN)

        assert ([*seen.payloads], seen.suspects) == ([0, 2, 3, 4], [1])
        assert metrics.corrupt_reads == 2
        name, fields = log.events[-1]
        assert (name, fields["ledger"], fields["first"]) == ("entries_suspect", 7, 1)
        assert (report.entries, report.bad, report.bad_total, report.complete) == (4, [1], 1, False)

    with Machine() as machine:
        machine.live(program)


def test_recovery_may_write_again_what_cannot_be_read_and_nobody_else_may() -> None:
    async def first(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(5))
        await flushed(store)
        machine.disk.rot(FOLDER / "ledgers/7.log", 64 + 48 + 30, 0)

        told = Told()
        store.add(an_add(7, 1, sink=told))
        await told.wait(1)
        assert "only recovery may write it again" in str(told.errors[0])
        await add(store, 7, 1, recovery=True)

        for _ in range(2):
            assert [*(await read_all(store, 7, 0, 4)).payloads] == [*range(5)]
            assert (await store.verify(SEVEN)).complete
            await flushed(store)
        assert store.state(SEVEN).entries == 5
        await store.stop()

    async def second(seams: Seams) -> None:
        store = await opened(seams)
        assert [*(await read_all(store, 7, 0, 4)).payloads] == [*range(5)]
        assert store.state(SEVEN).entries == 5

    with Machine() as machine:
        machine.live(first)
        machine.live(second)


def test_verify_reads_everything_in_memory_and_in_files() -> None:
    async def program(seams: Seams) -> None:
        store = await mixed(seams)

        report = await store.verify(SEVEN)

        assert (report.entries, report.bytes, report.bad_total) == (10, 480, 0)
        assert report.complete

    once(program)


def test_a_read_error_is_not_an_absence() -> None:
    async def program(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, range(5))
        await flushed(store)
        for operation, name in (("read", "7.log"), ("read", "7.index"), ("open", "7.log")):
            for _ in range(6):
                machine.disk.fail_next(operation, name, errno.EIO)  # type: ignore[arg-type]
            seen = await read_all(store, 7, 0, 4)
            assert seen.absent == []

    with Machine() as machine:
        machine.live(program)
