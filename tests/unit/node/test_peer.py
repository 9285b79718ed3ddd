"""Copying from other nodes: resumable, from the next source where one lacks something."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from random import Random

import pytest
import uvloop

from roost.errors import Conflict, Invalid, NotFound, Unavailable
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks
from roost.node.peer import PIECE_ENTRIES
from roost.node.store import NodeSettings
from roost.types import EntryId, Epoch
from roost.wire.entry import PAYLOAD_BYTES_MAX
from roost.wire.messages import BAD_ENTRIES_MAX, READ_BYTES_MAX, Place, Placed
from tests.unit.node.lives import FOLDER, flushed, once, payload
from tests.unit.node.nodes import SEVEN, Node, Program, Stage, running, stage

__all__ = ["stage"]

NOBODY = "127.0.0.1:1"


def simulated(program: Program, seeds: int = 3) -> None:
    for seed in range(seeds):
        once(lambda seams: program(seams, FOLDER), seed=seed)


async def placed(
    target: Node, *sources: Node | str, first: int = 0, upto: int = 9, epoch: int = 1
) -> Placed:
    """Have a node copy entries of ledger 7."""
    addresses = [each if isinstance(each, str) else each.address for each in sources]
    return await target.client.place(
        Place(
            ledger=SEVEN,
            epoch=Epoch(epoch),
            first=EntryId(first),
            upto=EntryId(upto),
            sources=addresses,
        )
    )


def test_entries_are_copied_and_durable_and_may_be_asked_for_again(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(10))

            first = await placed(bob, alice)
            again = await placed(bob, alice)

            assert (first.entries, first.missing_total) == (10, 0)
            assert first.bytes == 10 * 20
            assert again.missing_total == 0
            assert await bob.there() == await alice.there()
            assert bob.store.state(SEVEN).entries == 10

    stage(program)


def test_a_copy_survives_the_one_who_made_it(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice:
            await alice.add(*range(10))
            async with running(seams, folder, "bob") as bob:
                await placed(bob, alice)
        async with running(seams, folder, "bob") as bob:
            assert await bob.there() == {entry: payload(entry) for entry in range(10)}

    stage(program)


def test_what_one_source_lacks_is_asked_of_the_next() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with AsyncExitStack() as stack:
            alice, bob, carol = [
                await stack.enter_async_context(running(seams, folder, name))
                for name in ("alice", "bob", "carol")
            ]
            await alice.add(0, 1, 2, 7)
            await bob.add(2, 3, 4, 8)

            told = await placed(carol, alice, bob)

            assert [*await carol.there()] == [0, 1, 2, 3, 4, 7, 8]
            assert (told.entries, told.missing, told.missing_total) == (7, [5, 6, 9], 3)

    simulated(program)


def test_a_source_that_cannot_be_reached_or_never_had_the_ledger_is_passed_over() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with AsyncExitStack() as stack:
            alice, bob, carol = [
                await stack.enter_async_context(running(seams, folder, name))
                for name in ("alice", "bob", "carol")
            ]
            stranger = await stack.enter_async_context(
                running(seams, folder, "mallory", cluster="other")
            )
            await bob.add(*range(10))

            told = await placed(carol, NOBODY, alice, stranger, bob)

            assert (told.entries, told.missing_total) == (10, 0)
            assert carol.log.names.count("source_failed") == 3

    simulated(program)


def test_what_no_source_has_is_missing_and_counted() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(0, 3)

            told = await placed(bob, alice, NOBODY, upto=BAD_ENTRIES_MAX + 10)

            assert told.missing[:3] == [1, 2, 4]
            assert (len(told.missing), told.missing_total) == (
                BAD_ENTRIES_MAX,
                BAD_ENTRIES_MAX + 9,
            )
            assert (await placed(bob, NOBODY)).missing_total == 10

    simulated(program)


def test_what_is_damaged_at_one_source_comes_from_the_next() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with AsyncExitStack() as stack:
            alice, bob, carol = [
                await stack.enter_async_context(running(seams, folder, name))
                for name in ("alice", "bob", "carol")
            ]
            await alice.add(*range(10))
            await bob.add(*range(10))
            await flushed(alice.store)
            file = seams.disk.open(folder / "alice/ledgers/7.log")
            file.write_at(64 + 3 * 48 + 30, b"\xff")

            told = await placed(carol, alice, bob)

            assert (told.entries, told.missing_total) == (10, 0)
            assert await carol.there() == {entry: payload(entry) for entry in range(10)}

    simulated(program)


def test_a_copy_of_more_than_one_piece_is_whole() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            wanted = [0, PIECE_ENTRIES - 1, PIECE_ENTRIES, 3 * PIECE_ENTRIES]
            await alice.add(*wanted)

            told = await placed(bob, alice, upto=3 * PIECE_ENTRIES)

            assert [*await bob.there(upto=4 * PIECE_ENTRIES)] == wanted
            assert told.missing_total == 3 * PIECE_ENTRIES + 1 - 4

    simulated(program, 1)


def test_a_copy_that_was_interrupted_goes_on_where_it_was() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(40))
            copying = asyncio.ensure_future(placed(bob, alice, upto=39))
            await asyncio.sleep(seams.rng.random() * 0.01)
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

            told = await placed(bob, alice, upto=39)

            assert told.missing_total == 0
            assert [*await bob.there()] == [*range(40)]
            assert bob.store.state(SEVEN).entries == 40

    simulated(program, 10)


def test_a_source_that_ends_in_the_middle_is_followed_by_the_next() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder, "bob") as bob, running(seams, folder, "carol") as carol:
            await bob.add(*range(60))
            async with running(seams, folder, "alice") as alice:
                await alice.add(*range(60))
                copying = asyncio.ensure_future(placed(carol, alice, bob, upto=59))
                await asyncio.sleep(seams.rng.random() * 0.01)
            told = await copying

            assert told.missing_total == 0
            assert [*await carol.there()] == [*range(60)]

    simulated(program, 10)


def test_a_fenced_replica_is_mended_and_what_contradicts_is_refused() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(10))
            await bob.client.fence(SEVEN, Epoch(5))
            assert (await placed(bob, alice, upto=5)).missing_total == 0
            await bob.client.add(SEVEN, EntryId(7), b"other", epoch=Epoch(1), recovery=True)

            with pytest.raises(Conflict, match="entry 7 is stored here with other bytes"):
                await placed(bob, alice)
            with pytest.raises(Conflict, match="epoch"):
                await placed(bob, alice, epoch=2)
            await bob.client.delete(SEVEN)
            with pytest.raises(NotFound, match="deleted here"):
                await placed(bob, alice)

    simulated(program)


def test_an_address_that_is_none_is_refused_before_anything_is_copied() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(0)

            with pytest.raises(Invalid, match="give host:port"):
                await placed(bob, alice, "nowhere")

    simulated(program)


def test_a_node_that_only_reads_copies_nothing_and_says_so() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(3))
            bob.store._fail("a test", OSError(5, "EIO"))  # noqa: SLF001 (as its disk would)

            told = await asyncio.gather(placed(bob, alice), return_exceptions=True)

            assert "only reads" in str(told[0]), told

    simulated(program)


def test_a_copy_waits_while_writers_have_to_wait() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(10))
            bob.store.why_slow = "too much is in memory"

            copy = asyncio.ensure_future(placed(bob, alice))
            await asyncio.sleep(0.01)
            assert not copy.done()
            assert bob.store.page(None, 9) == []
            bob.store._look_at_pressure()  # noqa: SLF001 (as after a flush)

            assert (await copy).missing_total == 0
            assert len(await bob.there()) == 10

    simulated(program)


def test_a_copy_that_waits_ends_when_the_node_fails() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as alice, running(seams, folder, "bob") as bob:
            await alice.add(*range(10))
            bob.store.why_slow = "too much is in memory"
            copies = [asyncio.ensure_future(placed(bob, alice)) for _ in range(2)]
            await asyncio.sleep(0.01)

            bob.store._fail("a flush", OSError("broken"))  # noqa: SLF001 (as its upkeep does)

            for copy in copies:
                with pytest.raises(Unavailable, match="only reads"):
                    await copy

    simulated(program)


def test_a_copy_goes_on_behind_an_answer_that_was_full(tmp_path: Path) -> None:
    size = PAYLOAD_BYTES_MAX
    count = READ_BYTES_MAX // size + 2

    def roomy(seams: Seams, folder: Path, name: str) -> AbstractAsyncContextManager[Node]:
        longest = PAYLOAD_BYTES_MAX
        return running(
            seams,
            folder,
            name,
            settings=NodeSettings(),
            payload_bytes_max=longest,
            held_bytes_max=4 * longest,
        )

    async def program(seams: Seams, folder: Path) -> None:
        async with roomy(seams, folder, "alice") as alice, roomy(seams, folder, "bob") as bob:
            await alice.add(*range(count), size=size)

            told = await placed(bob, alice, upto=count - 1)

            assert (told.entries, told.missing_total) == (count, 0)

    # A simulated disk is too small for that.
    disk, net, tasks = PosixDisk(guarded=False), AsyncioNet(), ThreadTasks()
    seams = Seams(SystemClock(), disk, net, Random(1), tasks)
    uvloop.run(program(seams, tmp_path))
