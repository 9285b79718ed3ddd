"""One real node over real sockets: the stories of whoever kept ledgers in a log before us.

Numbers are those of the originals: 100,000 appends at once, a million entries, two journals of
half a million each.
"""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from roost.errors import NotFound, RoostError, Sealed
from roost.node.client import NodeClient
from roost.types import EntryId, Epoch, LedgerId
from tests.cluster.nodes import (
    EPOCH,
    SEVEN,
    a_node,
    add_many,
    check_all,
    formatted,
    recovered,
    run,
    segments,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return formatted(tmp_path / "alice", random.Random(1))


def payload(entry: int) -> bytes:
    return b"entry %d" % entry


def test_a_node_that_is_told_to_end_does_so_and_leaves_nothing_to_replay(data: Path) -> None:
    async def first() -> None:
        with a_node(data) as node:
            client = await node.client()
            await add_many(client, range(1000), payload)
            assert node.stop() == 0
            assert "stopped" in [event["event"] for event in node.events()]

    async def second() -> None:
        with a_node(data) as node:
            client = await node.client()
            assert recovered(node).replayed == 0
            await check_all(client, range(1000), payload)
            assert node.stop() == 0

    run(first)
    run(second)


def test_ids_above_ten_keep_their_order(data: Path) -> None:
    async def story() -> None:
        for life in range(3):
            with a_node(data) as node:
                client = await node.client()
                await add_many(client, range(life * 5, life * 5 + 5), payload)
                await check_all(client, range(life * 5 + 5), payload)
                assert (await client.state(SEVEN)).highest == life * 5 + 4
                node.kill() if life == 1 else node.stop()

    run(story)


def test_a_deleted_ledger_is_not_made_again_and_does_not_come_back(data: Path) -> None:
    async def gone(client: NodeClient) -> None:
        for recovery in (False, True):
            with pytest.raises(NotFound, match="never used again"):
                await client.add(SEVEN, EntryId(0), b"new", epoch=EPOCH, recovery=recovery)
        with pytest.raises(NotFound):
            await client.read_one(SEVEN, EntryId(0))

    async def story() -> None:
        with a_node(data) as node:
            client = await node.client()
            await add_many(client, range(100), payload)
            await add_many(client, range(100), payload, ledger=LedgerId(8))
            await client.delete(SEVEN)
            await gone(client)
            node.kill()
        with a_node(data) as node:
            client = await node.client()
            await gone(client)
            await check_all(client, range(100), payload, ledger=LedgerId(8))
            assert node.stop() == 0
        with a_node(data) as node:
            await gone(await node.client())
            assert [path.stem for path in (data / "ledgers").iterdir()] == ["8", "8"]

    run(story)


def test_a_ledger_at_rest_beside_a_busy_one_loses_nothing_to_a_trim_and_a_kill(data: Path) -> None:
    small = [*("--journal-segment-bytes", "1MiB", "--journal-bytes-max", "3MiB")]
    small += ["--payload-bytes-max", "64KiB", "--memory-bytes-max", "64MiB"]

    async def story() -> None:
        with a_node(data, *small) as node:
            client = await node.client()
            await add_many(client, range(3), payload, ledger=LedgerId(1))
            await add_many(client, range(40_000), payload)
            assert segments(data)[0].name > "0000000000000001.journal"
            node.kill()
        with a_node(data, *small) as node:
            client = await node.client()
            await check_all(client, range(3), payload, ledger=LedgerId(1))
            await check_all(client, range(40_000), payload)

    run(story)


@pytest.mark.slow
def test_a_torn_tail_of_the_journal_loses_nothing_that_was_acknowledged(
    data: Path, tmp_path: Path
) -> None:
    async def first() -> None:
        with a_node(data) as node:
            await add_many(await node.client(), range(50), payload)
            node.kill()

    run(first)
    (journal,) = segments(data)
    content = journal.read_bytes()
    end = len(content.rstrip(b"\0")) + 1
    rng = random.Random(2)
    torn = [content[:end] + rng.randbytes(5000), content[:end] + content[64:end]]

    async def again(copy: Path) -> None:
        with a_node(copy) as node:
            client = await node.client()
            await check_all(client, range(50), payload)
            await add_many(client, range(50, 60), payload)
            node.kill()
        with a_node(copy) as node:
            await check_all(await node.client(), range(60), payload)

    for number, bytes_there in enumerate(torn):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(data, copy)
        segments(copy)[0].write_bytes(bytes_there)
        run(lambda copy=copy: again(copy))  # type: ignore[misc]  # mypy asks for no default


def test_a_busy_writer_that_is_cut_off_in_the_middle_leaves_no_hole(data: Path) -> None:
    async def story() -> None:
        with a_node(data) as node:
            client = await node.client()
            rng = random.Random(3)
            first = 0
            for _ in range(5):
                writer = await node.client()
                adding = asyncio.ensure_future(
                    add_many(writer, range(first, first + 20_000), payload)
                )
                await asyncio.sleep(rng.random() * 0.1)
                writer.connection.abort()
                ended = await asyncio.gather(adding, return_exceptions=True)
                assert isinstance(ended[0], AssertionError | RoostError | None)
                try:
                    highest = (await client.state(SEVEN)).highest
                except NotFound:
                    continue
                await check_all(client, range(highest + 1), payload)
                first = highest + 1
            node.kill()
        assert first > 0
        with a_node(data) as node:
            await check_all(await node.client(), range(first), payload)

    run(story)


def test_a_second_process_does_not_touch_the_folder_of_the_first(data: Path) -> None:
    async def story() -> None:
        with a_node(data) as node:
            client = await node.client()
            await add_many(client, range(10), payload)
            with a_node(data) as second:
                assert second.process.wait(60) != 0
            await add_many(client, range(10, 20), payload)
            await check_all(client, range(20), payload)
            assert node.stop() == 0

    run(story)


# The originals' numbers


@pytest.mark.slow
def test_a_hundred_thousand_appends_at_once_are_all_there_and_go_on_after_a_restart(
    data: Path,
) -> None:
    count = 100_000

    async def first() -> None:
        with a_node(data) as node:
            client = await node.client()
            await add_many(client, range(count), payload, under_way=count)
            await check_all(client, range(count), payload)
            assert (await client.state(SEVEN)).entries == count
            assert node.stop() == 0

    async def second() -> None:
        with a_node(data) as node:
            client = await node.client()
            assert (await client.state(SEVEN)).highest == count - 1
            await add_many(client, range(count, count + 100), payload)
            await check_all(client, range(count + 100), payload)
            assert (await client.state(SEVEN)).entries == count + 100
            assert [state.ledger async for state in client.ledgers()] == [7]
            await client.delete(SEVEN)
            assert [state async for state in client.ledgers()] == []
            assert node.stop() == 0

    run(first)
    run(second)


@pytest.mark.slow
def test_a_million_entries_with_readers_at_the_tail_and_behind_and_one_segment_in_the_end(
    data: Path,
) -> None:
    count = 1_000_000

    async def story() -> None:
        with a_node(data, "--journal-bytes-max", "256MiB", "--memory-bytes-max", "64MiB") as node:
            client, tail, behind = [await node.client() for _ in range(3)]
            following = asyncio.ensure_future(follows(tail, count))
            await add_many(client, range(count), payload, under_way=16_384)
            await check_all(behind, range(count), payload)
            assert await following == count

            missing = await client.read_one(SEVEN, EntryId(count + 5))
            assert (missing.found, missing.suspects) == ({}, [])
            await client.close_ledger(SEVEN, EntryId(count - 1))
            with pytest.raises(Sealed):
                await client.add(SEVEN, EntryId(count), b"late", epoch=EPOCH)
            report = await client.verify(SEVEN)
            assert (report.entries, report.complete) == (count, True)
            assert node.stop() == 0
        assert len(segments(data)) == 1

    run(story)


async def follows(client: NodeClient, count: int) -> int:
    """Read at the tail as it grows, each entry once and in order."""
    wanted = 0
    while wanted < count:
        reading = client.read(SEVEN, EntryId(wanted), EntryId(wanted + 20_000), wait_s=30)
        async for batch in reading:
            for entry, found in batch.found.items():
                assert entry == wanted
                assert found == payload(entry)
                wanted += 1
            if not batch.found:
                break
    return wanted


@pytest.mark.slow
def test_two_journals_of_half_a_million_each_are_replayed_with_no_index(data: Path) -> None:
    count = 500_000
    large = ("--journal-bytes-max", "2GiB", "--memory-bytes-max", "2GiB")

    async def fill(ledger: LedgerId) -> None:
        with a_node(data, *large) as node:
            client = await node.client()
            await add_many(client, range(count), payload, ledger=ledger, under_way=16_384)
            node.kill()

    async def look() -> None:
        with a_node(data) as node:
            client = await node.client()
            assert recovered(node).replayed == 2 * count
            for ledger in (LedgerId(1), LedgerId(2)):
                await check_all(client, range(count), payload, ledger=ledger)
            assert node.stop() == 0

    run(lambda: fill(LedgerId(1)))
    run(lambda: fill(LedgerId(2)))
    assert not any((data / "ledgers").iterdir())
    run(look)


@pytest.mark.slow
def test_a_storm_of_kills_loses_nothing_that_was_acknowledged_and_changes_no_id(data: Path) -> None:
    rng = random.Random(4)
    acknowledged: dict[LedgerId, int] = {LedgerId(ledger): 0 for ledger in range(1, 5)}
    small = [*("--journal-segment-bytes", "1MiB", "--journal-bytes-max", "8MiB")]
    small += ["--payload-bytes-max", "64KiB", "--memory-bytes-max", "1MiB"]

    async def round_of_it() -> None:
        with a_node(data, *small) as node:
            clients = [await node.client() for _ in acknowledged]
            writers = [
                asyncio.ensure_future(writes(client, ledger, acknowledged))
                for client, ledger in zip(clients, acknowledged, strict=True)
            ]
            for client, ledger in zip(clients, acknowledged, strict=True):
                await check_all(client, range(acknowledged[ledger]), stormy, ledger=ledger)
            await asyncio.sleep(rng.random() ** 2 * 0.3)
            node.kill()
            await asyncio.gather(*writers)

    for _ in range(20):
        run(round_of_it)
    assert sum(acknowledged.values()) > 5000, "that was no storm"


def stormy(entry: int) -> bytes:
    return (b"%d " % entry) * (1 + entry * 7 % 40)


async def writes(client: NodeClient, ledger: LedgerId, acknowledged: dict[LedgerId, int]) -> None:
    """Append from what is there on, some under way at once, until the node is gone."""
    next_entry = acknowledged[ledger]
    adds: list[asyncio.Future[None]] = []
    while True:
        while len(adds) < 50:
            adds.append(
                asyncio.ensure_future(
                    client.add(ledger, EntryId(next_entry), stormy(next_entry), epoch=EPOCH)
                )
            )
            next_entry += 1
        try:
            await adds.pop(0)
        except RoostError:
            await asyncio.gather(*adds, return_exceptions=True)
            return
        acknowledged[ledger] += 1


def test_a_fence_that_was_answered_outlives_a_kill(data: Path) -> None:
    async def story() -> None:
        for life in range(1, 4):
            with a_node(data) as node:
                client = await node.client()
                state = await client.fence(SEVEN, Epoch(life))
                assert state.fenced == life
                node.kill()

    run(story)
