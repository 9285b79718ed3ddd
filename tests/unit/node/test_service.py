"""A node over the network: each request, each error, and what a client checks of the answers."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from roost.errors import (
    Conflict,
    Denied,
    Fenced,
    Invalid,
    NotFound,
    RoostError,
    Sealed,
    Unavailable,
    Unknown,
)
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.node.client import NodeClient, Outcome
from roost.node.index import RUN_BYTES_MAX
from roost.node.reading import Piece
from roost.node.service import cut
from roost.node.views import Chunk
from roost.rpc.client import Connection
from roost.rpc.receive import BUFFER_BYTES
from roost.types import EntryId, Epoch, LedgerId
from roost.wire import messages
from roost.wire.entry import ENTRY_ID_MAX, encode_entry
from roost.wire.frame import HELLO_BYTES_MAX
from roost.wire.messages import LEDGERS_MAX, encode
from tests.unit.node.lives import (
    EAGER,
    FOLDER,
    SETTINGS,
    Machine,
    Told,
    flushed,
    once,
    payload,
)
from tests.unit.node.nodes import EIGHT, HELLO, SEVEN, Program, Stage, running, stage

__all__ = ["stage"]

ONE = Epoch(1)


async def error_of(coroutine: object) -> RoostError:
    """Give what refused something."""
    try:
        await coroutine  # type: ignore[misc]  # whatever can be awaited
    except RoostError as error:
        return error
    raise AssertionError("it was not refused")


def test_what_was_asked_on_a_connection_that_ends_at_once_is_given_up(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            asked = [
                node.client.connection.call(
                    messages.FENCE, encode(messages.Fence(ledger=LedgerId(each), epoch=ONE))
                )
                for each in range(20)
            ]
            asked.append(node.client.connection.call(messages.HELLO))  # which ends it

            for each in asked:
                assert isinstance(await error_of(each), Unavailable)

    stage(program)


def test_everything_that_can_be_asked_is_answered(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            client = node.client
            await node.add(0, 1, 2)
            await node.add(0, ledger=EIGHT)

            assert await node.there() == {entry: payload(entry) for entry in range(3)}
            state = await client.state(SEVEN)
            assert (state.highest, state.entries, state.lac, state.epoch) == (2, 3, -1, 1)
            assert (await client.fence(SEVEN, Epoch(4))).fenced == 4
            assert (await client.close_ledger(SEVEN, EntryId(2))).last == 2
            assert [state.ledger async for state in client.ledgers()] == [7, 8]
            await client.delete(EIGHT)
            assert [state.ledger async for state in client.ledgers()] == [7]
            report = await client.verify(SEVEN)
            assert (report.entries, report.complete) == (3, True)
            stat = await client.stat()
            assert (stat.node, stat.cluster, stat.ledgers) == ("alice", "prod", 1)
            assert (stat.health, stat.readonly, stat.sync) == ("", "", "always")
            assert stat.counters["node_adds"] == 4
            batch = await client.read_one(SEVEN, EntryId(1))
            assert ({*batch.found}, batch.lac, batch.last, batch.fenced) == ({1}, -1, 2, 4)

    stage(program)


def test_every_refusal_arrives_as_what_it_is(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            client = node.client
            await node.add(0, 1)
            await client.add(EIGHT, EntryId(0), b"", epoch=ONE)
            await client.fence(SEVEN, Epoch(4))
            await client.close_ledger(EIGHT, EntryId(0))

            fenced = await error_of(client.add(SEVEN, EntryId(2), b"", epoch=ONE))
            sealed = await error_of(client.add(EIGHT, EntryId(2), b"", epoch=ONE))
            others = [
                client.add(SEVEN, EntryId(0), b"other", epoch=ONE, recovery=True),
                client.add(SEVEN, EntryId(3), b"", epoch=Epoch(2), recovery=True),
                client.close_ledger(EIGHT, EntryId(5)),
                client.add(LedgerId(9), EntryId(0), bytes(3001), epoch=ONE),
                client.add(LedgerId(9), EntryId(0), b"", epoch=ONE, lac=EntryId(0)),
                client.state(LedgerId(9)),
                client.verify(LedgerId(9)),
                client.read_one(LedgerId(9), EntryId(0)),
                client.read_one(LedgerId(9), EntryId(-1)),
                client.state(LedgerId(-1)),
            ]
            kinds = [type(await error_of(other)) for other in others]

            assert isinstance(fenced, Fenced)
            assert (fenced.ledger, fenced.epoch) == (7, 4)
            assert isinstance(sealed, Sealed)
            assert (sealed.ledger, sealed.last) == (8, 0)
            assert kinds == [
                *[Conflict, Conflict, Conflict],
                *[Invalid, Invalid],
                *[NotFound, NotFound, NotFound],
                *[Invalid, Invalid],
            ]

    stage(program)


def test_many_adds_are_under_way_at_once_and_each_is_answered(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder, settings=EAGER) as node:
            told = Told()
            for entry in range(200):
                node.client.start_add(
                    SEVEN,
                    EntryId(entry),
                    payload(entry, 100),
                    epoch=ONE,
                    lac=EntryId(-1),
                    sink=told,
                    tag=entry,
                )
                if entry % 20 == 19:
                    await told.wait(entry + 1)
            await told.wait(200)

            assert not told.errors
            assert len(await node.there()) == 200

    stage(program)


def test_an_entry_travels_as_the_block_that_its_client_made(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            block = encode_entry(7, 3, b"three")
            told = Told()
            node.client.start_add_block(
                block, epoch=ONE, lac=EntryId(-1), sink=told, tag=0, recovery=True
            )
            await told.wait(1)

            assert bytes((await node.client.read_one(SEVEN, EntryId(3))).found[EntryId(3)]) == (
                b"three"
            )

    stage(program)


@pytest.mark.parametrize("at", [0, 2, 3, 4, 8, 12, 20, 27, 28, 30])
def test_a_block_that_does_not_hold_is_refused_and_nothing_else(at: int) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            told = Told()
            block = bytearray(encode_entry(7, 3, b"three"))
            block[at] ^= 0x10
            node.client.start_add_block(bytes(block), epoch=ONE, lac=EntryId(-1), sink=told, tag=0)
            await told.wait(1)
            await node.add(0)

            assert isinstance(told.errors[0], Invalid)
            assert [*await node.there()] == [0]

    stage_of_one(program)


def stage_of_one(program: Program) -> None:
    """Play in one simulated world."""
    once(lambda seams: program(seams, FOLDER))


def a_chunk(suspects: list[int], *pieces: tuple[int, int, int]) -> Chunk:
    """Make a chunk of the ids [5, 100) with pieces of so many entries and so many bytes."""
    return Chunk(
        first=EntryId(5),
        before=EntryId(100),
        pieces=[Piece(EntryId(first), count, bytes(size)) for first, count, size in pieces],
        suspects=[EntryId(entry) for entry in suspects],
        lac=EntryId(4),
        last=None,
        fenced=None,
    )


def test_a_chunk_is_sent_in_frames_that_a_receiver_has_memory_for_at_once() -> None:
    third = RUN_BYTES_MAX // 3
    pieces = [(7, 1, third), (9, 2, third), (11, 1, third), (20, 9, third), (40, 1, 10 * third)]
    chunk = a_chunk([6, 8, 12, 20, 99], *pieces)

    frames = [*cut(chunk)]

    assert [piece for frame in frames for piece in frame.pieces] == chunk.pieces
    assert [(frame.first, frame.before) for frame in frames] == [(5, 20), (20, 40), (40, 100)]
    assert [frame.suspects for frame in frames] == [[6, 8, 12], [20], [99]]
    assert RUN_BYTES_MAX + HELLO_BYTES_MAX <= BUFFER_BYTES


def test_a_chunk_without_entries_is_one_frame() -> None:
    chunk = a_chunk([7])

    assert [*cut(chunk)] == [chunk]


def test_a_long_range_comes_in_pieces_and_no_more_than_was_asked_for(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            await node.add(*range(40), size=1000)
            await flushed(node.store)
            await node.add(*range(40, 60), size=1000)

            sizes = []
            for bytes_max in (0, 1000, 10_000, 1 << 20):
                found = 0
                reading = node.client.read(SEVEN, EntryId(0), EntryId(99), bytes_max=bytes_max)
                async for batch in reading:
                    found += len(batch.found)
                sizes.append(found)

            assert sizes == [1, 1, 9, 60]

    stage(program)


def test_a_read_that_is_left_early_is_given_up_by_both(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            await node.add(0)
            waiting = node.client.read(EIGHT, EntryId(0), EntryId(9), wait_s=300)

            async with aclosing(waiting) as batches:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(batches)
            await node.add(1)
            await node.client.stat()
            await node.client.stat()

            assert not node.store._views.watched  # noqa: SLF001 (nobody waits there any more)

    stage(program)


def test_a_wait_over_the_network_ends_with_what_came(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            await node.add(0)

            async def waits() -> list[int]:
                reading = node.client.read(SEVEN, EntryId(1), EntryId(5), wait_s=60)
                return [entry async for batch in reading for entry in batch.found]

            waiting = asyncio.ensure_future(waits())
            await node.client.stat()
            await node.add(1)

            assert await waiting == [1]

    stage(program)


def test_a_lac_that_comes_by_itself_wakes_who_waits_for_one(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            await node.add(0)

            async def waits() -> list[int]:
                reading = node.client.read(
                    SEVEN, EntryId(0), EntryId(5), wait_s=60, lac=EntryId(-1)
                )
                return [batch.lac async for batch in reading]

            waiting = asyncio.ensure_future(waits())
            await node.client.stat()
            await node.client.confirm(SEVEN, ONE, EntryId(0))

            assert await waiting == [0]
            await node.client.fence(SEVEN, Epoch(9))
            late = await error_of(node.client.confirm(SEVEN, ONE, EntryId(0)))
            assert isinstance(late, Fenced)

    stage(program)


def test_a_range_without_ids_is_refused(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            await node.add(0)
            with pytest.raises(Invalid, match="entries from 5 upto 4: there are none"):
                async for _ in node.client.read(SEVEN, EntryId(5), EntryId(4)):
                    pass
            place = messages.Place(
                ledger=SEVEN, epoch=ONE, first=EntryId(5), upto=EntryId(4), sources=["a:1"]
            )
            with pytest.raises(Invalid, match="there are none"):
                await node.client.place(place)

    stage(program)


def test_a_list_of_many_ledgers_comes_in_pages() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            for ledger in range(LEDGERS_MAX + 3):
                await node.store.fence(LedgerId(ledger), ONE)

            listed = [state.ledger async for state in node.client.ledgers()]

            assert listed == [*range(LEDGERS_MAX + 3)]

    stage_of_one(program)


def test_the_largest_ids_travel_like_any_other(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            ledger, epoch = LedgerId((1 << 63) - 1), Epoch((1 << 63) - 1)
            await node.client.add(ledger, EntryId(ENTRY_ID_MAX), b"x", epoch=epoch)

            reading = node.client.read(ledger, EntryId(ENTRY_ID_MAX - 2), EntryId(ENTRY_ID_MAX))
            batches = [batch async for batch in reading]
            fenced = await node.client.fence(ledger, epoch)

            assert [*batches[-1].found] == [ENTRY_ID_MAX]
            assert batches[-1].before == ENTRY_ID_MAX + 1
            assert (fenced.fenced, fenced.epoch, fenced.highest) == (epoch, epoch, ENTRY_ID_MAX)

    stage(program)


def test_an_add_beyond_the_largest_ids_is_refused(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            for ledger, entry in ((1 << 63, 0), (7, ENTRY_ID_MAX + 1)):
                error = await error_of(
                    node.client.add(LedgerId(ledger), EntryId(entry), b"", epoch=ONE)
                )
                assert isinstance(error, Invalid)
            assert [state async for state in node.client.ledgers()] == []

    stage(program)


def test_a_peer_of_another_cluster_is_sent_away(stage: Stage) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            assert node.process.address is not None
            stranger = msgspec.structs.replace(HELLO, cluster="test")
            with pytest.raises((Denied, Invalid), match="prod"):
                await Connection.open(seams.net, node.process.address, stranger, timeout_s=5)

    stage(program)


def test_adds_on_a_connection_that_is_lost_are_unknown_and_reads_may_be_asked_again() -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            adding = asyncio.ensure_future(
                error_of(node.client.add(SEVEN, EntryId(0), b"", epoch=ONE))
            )
            stating = asyncio.ensure_future(error_of(node.client.stat()))
            await asyncio.sleep(0)
            node.client.connection.abort()

            assert isinstance(await adding, Unknown)
            assert not isinstance(await stating, Unknown)

    stage_of_one(program)


def entries(first: int, before: int, suspects: list[int] | None = None) -> bytes:
    return encode(
        messages.Entries(
            first=EntryId(first),
            before=EntryId(before),
            lac=EntryId(-1),
            last=None,
            fenced=None,
            suspects=[EntryId(entry) for entry in suspects or []],
        )
    )


@pytest.mark.parametrize(
    "blob",
    [
        encode_entry(7, 0, b"x")[:-1],
        encode_entry(7, 0, b"x") + b"y",
        encode_entry(7, 0, b"x")[:-1] + b"y",
        encode_entry(8, 0, b"x"),
        encode_entry(7, 2, b"x"),
        b"\xff" * 40,
        b"\0" * 28,
    ],
    ids=["cut", "longer", "other bytes", "other ledger", "not asked for", "noise", "zeros"],
)
def test_what_a_node_sends_that_does_not_hold_is_not_taken(blob: bytes) -> None:
    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder) as node:
            service = node.process._server  # noqa: SLF001 (it answers what it likes here)
            assert service is not None
            handlers = service._offer.handlers  # noqa: SLF001 (the same)
            handlers[messages.READ] = lambda session, frame: session.reply(  # type: ignore[index]
                frame.request, messages.ENTRIES, entries(0, 2), [blob]
            )
            with pytest.raises(Unavailable, match="does not hold"):
                await node.client.read_one(SEVEN, EntryId(0))

    stage_of_one(program)


def test_an_outcome_is_told_once() -> None:
    async def program(_seams: Seams, _folder: Path) -> None:
        outcome = Outcome()
        outcome.stored(0)
        outcome.stored(0)
        outcome.refused(0, Invalid("late"))
        outcome.settle()
        await outcome.wait()

    stage_of_one(program)


def test_a_throttled_node_makes_its_clients_wait_and_refuses_nothing() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, limits=msgspec.structs.replace(EAGER.limits, memory_bytes_max=4000)
    )

    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder, settings=settings) as node:
            told = Told()
            for entry in range(60):
                node.client.start_add(
                    SEVEN,
                    EntryId(entry),
                    payload(entry, 900),
                    epoch=ONE,
                    lac=EntryId(-1),
                    sink=told,
                    tag=entry,
                )
                if entry % 4 == 3:
                    await told.wait(entry + 1)
            assert not told.errors
            assert node.store.metrics.throttled > 0

    stage_of_one(program)


def test_a_disk_that_syncs_slowly_makes_many_clients_wait_and_refuses_nothing() -> None:
    """While one sync lasts, they would fill more segments than are made ahead."""
    settings = msgspec.structs.replace(
        SETTINGS,
        journal=JournalSettings(segment_bytes=32768, reserve_bytes=1024, record_bytes_max=4096),
    )

    async def program(seams: Seams, folder: Path) -> None:
        async with running(seams, folder, settings=settings, held_bytes_max=4096) as node:
            seams.tasks._step_mean_s = 0.3  # type: ignore[attr-defined]  # noqa: SLF001
            assert node.process.address is not None
            tolds = [Told() for _ in range(20)]
            for ledger, told in enumerate(tolds):
                connection = await Connection.open(
                    seams.net, node.process.address, HELLO, timeout_s=60
                )
                for entry in range(40):
                    NodeClient(connection).start_add(
                        LedgerId(ledger),
                        EntryId(entry),
                        payload(entry, 200),
                        epoch=ONE,
                        lac=EntryId(-1),
                        sink=told,
                        tag=entry,
                    )
            for told in tolds:
                await told.wait(40)

            assert [told.errors for told in tolds] == [{}] * 20
            assert node.store.metrics.throttled > 0

    with Machine() as machine:
        machine.live(lambda seams: program(seams, FOLDER))
