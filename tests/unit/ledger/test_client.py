"""Ledgers from end to end, on nodes that come and go."""

import asyncio

import msgspec
import pytest

from roost.errors import (
    Closed,
    Fenced,
    Invalid,
    NoRoom,
    NotFound,
    RoostError,
    Throttled,
    Unavailable,
    Unknown,
)
from roost.host.net import Address
from roost.ledger.client import Ledgers
from roost.ledger.nodes import RegisteredNodes
from roost.ledger.writer import LedgerWriter
from roost.metadata.layout import live_key
from roost.metadata.ledgers import LedgerPhase, Quorum
from roost.metadata.node_documents import NODE_REPORT, NodeReport
from roost.metadata.operations import Put
from roost.types import NO_ENTRY, EntryId, LedgerId, NodeId
from tests.unit.ledger.clusters import APPENDING, ONE, TWO, Cluster, play


async def written(ledgers: Ledgers, count: int, quorum: Quorum = Quorum()) -> LedgerWriter:  # noqa: B008 (frozen)
    """Make a ledger with some entries, and keep its writer."""
    writer = await ledgers.create(epoch=ONE, quorum=quorum)
    await asyncio.gather(*(writer.append(b"entry %d" % n) for n in range(count)))
    return writer


async def repaired(ledgers: Ledgers, ledger: LedgerId) -> None:
    """Repair a ledger until nothing is left to do."""
    for _ in range(100):
        if await ledgers.repair(ledger):
            return
        await asyncio.sleep(0.2)
    raise AssertionError("it is not repaired")


async def read_all(ledgers: Ledgers, ledger: LedgerId) -> list[bytes]:
    reader = await ledgers.open(ledger)
    return [bytes(each) async for piece in reader.read_all() for each in piece.payloads]


def payloads(count: int) -> list[bytes]:
    return [b"entry %d" % n for n in range(count)]


def test_what_is_written_is_read_after_it_was_closed() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await ledgers.create(epoch=ONE)
        futures = [writer.append(payload) for payload in payloads(50)]

        assert [await future for future in futures] == [*range(50)]
        document = await writer.close()
        assert (document.phase, document.last) == (LedgerPhase.CLOSED, 49)
        assert document.length == sum(map(len, payloads(50)))
        assert document.laggards == ()
        assert await read_all(cluster.client(), writer.ledger) == payloads(50)
        assert isinstance(writer.stopped, Closed)

    play(program)


@pytest.mark.parametrize("quorum", [Quorum(4, 2, 2), Quorum(4, 3, 2), Quorum(3, 3, 2, 2)], ids=str)
def test_striped_ledgers_and_compared_ones_are_read_in_order(quorum: Quorum) -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 30, quorum)
        await writer.close()

        assert await read_all(ledgers, writer.ledger) == payloads(30)

    play(program)


def test_an_open_ledger_is_read_up_to_what_is_confirmed_and_followed() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 3)
        reader = await cluster.client().open(writer.ledger)

        assert await reader.wait(NO_ENTRY, timeout_s=10)
        while reader.upto < 2:
            assert await reader.wait(reader.upto, timeout_s=10)
        piece = await reader.read(EntryId(0))
        waiting = asyncio.ensure_future(reader.wait(EntryId(2), timeout_s=60))
        await writer.write(b"entry 3")

        assert [bytes(each) for each in piece.payloads] == payloads(3)
        assert await waiting
        assert not await reader.wait(EntryId(3), timeout_s=0.5)
        assert (await reader.read(EntryId(4))).payloads == ()
        closing = asyncio.ensure_future(reader.wait(EntryId(3), timeout_s=60))
        await writer.close()
        assert await closing
        assert reader.closed

    play(program)


def test_a_node_that_fails_is_replaced_and_nothing_is_lost() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 5)
        gone = writer.document.fragments[0].nodes[0]

        cluster.kill(gone)
        entries = [await writer.write(b"entry %d" % n) for n in range(5, 10)]
        document = await writer.close()

        assert entries == [*range(5, 10)]
        assert gone not in document.fragments[-1].nodes
        assert document.fragments[-1].first == 5
        assert await read_all(ledgers, writer.ledger) == payloads(10)

    play(program)


def test_below_the_ack_quorum_nothing_is_taken_and_all_resumes_by_itself() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 2)
        cluster.kill("node-0", "node-1")

        pending = writer.append(b"entry 2")
        await asyncio.sleep(1.5)
        with pytest.raises(Unavailable):
            writer.append(b"too much")
        cluster.restart("node-0", "node-1")

        assert await pending == 2
        while True:
            try:
                assert await writer.write(b"entry 3") > 2
                break
            except Unavailable:
                await asyncio.sleep(0.1)
        await writer.close()

    play(program, nodes=3)


def test_an_appender_that_waited_too_long_is_told_that_nobody_knows() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 2)
        cluster.kill("node-0", "node-1")

        with pytest.raises(Unknown):
            await writer.append(b"entry 2")
        with pytest.raises(Closed):
            await writer.close(timeout_s=1.0)
        assert (await ledgers.describe(writer.ledger)).phase is LedgerPhase.OPEN

    play(program, nodes=3)


def test_only_so_much_is_under_way() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client(msgspec.structs.replace(APPENDING, pending_max=3))
        writer = await ledgers.create(epoch=ONE)

        futures = [writer.append(b"x") for _ in range(3)]
        with pytest.raises(Throttled):
            writer.append(b"x")
        await writer.room()
        futures.append(writer.append(b"x"))

        assert [await each for each in futures] == [0, 1, 2, 3]
        await writer.abandon()

    play(program)


def test_a_takeover_stops_the_writer_and_keeps_what_it_acknowledged() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers, other = cluster.client(), cluster.client()
        writer = await written(ledgers, 20)

        document = await other.recover(writer.ledger, epoch=TWO)
        again = await other.recover(writer.ledger, epoch=TWO)
        late = writer.append(b"late")

        with pytest.raises(Unknown):
            await late
        await writer.wait_stopped()
        with pytest.raises(Fenced):
            writer.append(b"later")
        with pytest.raises(Fenced):
            await writer.close()
        assert document == again
        assert document.last == 19
        assert document.recovery is not None
        assert await read_all(other, writer.ledger) == payloads(20)

    play(program)


def test_a_writer_that_was_overtaken_while_idle_cannot_close() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers, other = cluster.client(), cluster.client()
        writer = await written(ledgers, 3)

        await other.recover(writer.ledger, epoch=TWO)

        with pytest.raises(Fenced):
            await writer.close()

    play(program)


def test_a_writer_that_was_overtaken_gets_no_other_ensemble() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers, other = cluster.client(), cluster.client()
        writer = await written(ledgers, 3)
        gone, *left = writer.document.nodes
        cluster.kill(gone)
        now = await other.records.read(writer.ledger)
        await other.records.change(now, now.document.in_recovery("somebody"))

        with pytest.raises(Unknown):
            await writer.append(b"entry 3")
        with pytest.raises(Fenced, match="the ensemble cannot be changed"):
            writer.append(b"entry 4")
        assert len(left) == 2

    play(program)


def test_a_ledger_whose_metadata_is_away_cannot_be_closed_and_is_not() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers, other = cluster.client(), cluster.client()
        writer = await written(ledgers, 3)
        cluster.metadata.cut("client-0")

        with pytest.raises(Closed, match="could not be closed"):
            await writer.close()

        assert (await other.recover(writer.ledger, epoch=TWO)).last == 2

    play(program)


def test_a_reader_follows_the_ledger_to_other_nodes() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 3)
        reader = await cluster.client().open(writer.ledger)
        old = writer.document.nodes
        cluster.kill(*old[:2])
        for number in range(3, 6):
            await writer.write(b"entry %d" % number)
        cluster.restart(*old[:2])
        cluster.kill(old[2])

        found: list[bytes] = []
        while len(found) < 5:
            await reader.wait(EntryId(len(found) - 1), timeout_s=30)
            async for piece in reader.read_all(EntryId(len(found))):
                found += map(bytes, piece.payloads)
        await writer.abandon()

        assert found == payloads(6)[: len(found)]

    play(program, nodes=6)


def test_a_node_that_stands_still_is_not_waited_for() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 10)
        document = await writer.close()
        reader = await ledgers.open(writer.ledger)
        cluster.nodes[document.nodes[0]].process.pause()

        for _ in range(10):
            piece = await reader.read(EntryId(0))
            assert [bytes(each) for each in piece.payloads] == payloads(10)
        assert ledgers.nodes.connected(document.nodes[1]) is not None

    play(program)


def test_what_is_on_one_node_only_is_kept_and_copied() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 4)
        first, second, third = writer.document.fragments[0].nodes
        cluster.kill(second, third)
        writer.append(b"entry 4")
        await asyncio.sleep(0.05)
        await writer.abandon()
        cluster.restart(second, third)

        document = await ledgers.recover(writer.ledger, epoch=TWO)

        assert first in cluster.nodes
        assert document.last == 4
        assert await read_all(ledgers, writer.ledger) == payloads(5)
        await repaired(ledgers, writer.ledger)
        assert (await ledgers.describe(writer.ledger)).laggards == ()
        for index, fragment in enumerate(document.fragments):
            upto = document.upto_of(index)
            assert upto is not None
            for node in fragment.nodes:
                held = cluster.nodes[node].holds(writer.ledger)
                assert {*range(fragment.first, upto + 1)} <= {*held}

    play(program)


def test_a_lost_node_is_replaced_by_repair() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 6)
        document = await writer.close()
        lost = document.fragments[0].nodes[1]
        (spare,) = {*cluster.nodes} - {*document.nodes}
        cluster.kill(lost)

        assert await ledgers.repair(writer.ledger, gone={lost})

        repaired = await ledgers.describe(writer.ledger)
        assert repaired.fragments[0].nodes[1] == spare
        assert cluster.nodes[spare].holds(writer.ledger) == [*range(6)]
        assert await read_all(ledgers, writer.ledger) == payloads(6)

    play(program)


def test_repair_that_finds_no_source_leaves_everything_as_it_is() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 6)
        document = await writer.close()
        cluster.kill(*document.nodes)

        assert not await ledgers.repair(writer.ledger, gone={document.nodes[0]})
        assert await ledgers.describe(writer.ledger) == document

    play(program)


def test_an_open_ledger_is_not_repaired() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 6)

        assert not await ledgers.repair(writer.ledger)
        await writer.abandon()

    play(program)


def test_too_few_nodes_decide_nothing_until_somebody_accepts_the_loss() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 6)
        await writer.abandon()
        cluster.kill(*writer.document.nodes[:2])

        with pytest.raises(Unavailable, match="could not be closed"):
            await ledgers.recover(writer.ledger, epoch=TWO, timeout_s=3.0)
        document = await ledgers.recover(writer.ledger, epoch=TWO, timeout_s=10.0, accept_loss=True)

        assert document.last == 5
        assert document.recovery is not None
        assert document.recovery.given_up == (6,)
        assert await read_all(ledgers, writer.ledger) == payloads(6)

    play(program, nodes=5)


def test_a_deleted_ledger_is_gone_for_everybody() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        kept, gone = await written(ledgers, 2), await written(ledgers, 2)
        await kept.close()
        (away,) = [*{*cluster.nodes} & {*gone.document.nodes}][:1]
        cluster.kill(away)

        missed = await ledgers.delete(gone.ledger)
        cluster.restart(away)
        again: list[NodeId] = [NodeId(away)]
        while again:
            await asyncio.sleep(0.2)
            again = await ledgers.delete(gone.ledger)

        assert missed == [away]
        for failing in (
            ledgers.open(gone.ledger),
            ledgers.recover(gone.ledger, epoch=TWO),
            ledgers.describe(LedgerId(99)),
        ):
            with pytest.raises(NotFound):
                await failing
        assert [each.ledger async for each in ledgers.list_all()] == [kept.ledger]
        late = gone.append(b"late")
        with pytest.raises(Unknown):
            await late
        assert await ledgers.repair(gone.ledger)

    play(program)


def test_what_cannot_be_made_is_refused() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client(ack_min=2)

        with pytest.raises(Invalid):
            await ledgers.create(epoch=ONE, quorum=Quorum(3, 3, 1))
        with pytest.raises(NoRoom):
            await ledgers.create(epoch=ONE, quorum=Quorum(9, 3, 2))
        careless = cluster.client()
        writer = await careless.create(epoch=ONE, quorum=Quorum(3, 3, 1))
        await writer.close()
        assert "quorum_unwise" in cluster.logs[-1].names

    play(program)


def test_a_writer_that_is_overtaken_writes_nothing_more() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await written(cluster.client(), 2)

        writer.overtake("the lease is lost")

        with pytest.raises(Fenced, match="the lease is lost"):
            writer.append(b"x")
        with pytest.raises(Fenced):
            await writer.write(b"x")

    play(program)


def test_a_copy_that_rots_away_is_read_elsewhere_and_reported() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 3)
        document = await writer.close()
        for node in document.nodes[:2]:
            ledger = cluster.nodes[node].store.known.ledgers[writer.ledger]
            ledger.memtable.pop(EntryId(1), None)
            ledger.frozen.pop(EntryId(1), None)

        reader = await ledgers.open(writer.ledger)
        found = [bytes(each) async for piece in reader.read_all() for each in piece.payloads]

        assert found == payloads(3)
        assert {fault.entry for fault in reader.faults} <= {1}

    play(program)


def test_nobody_has_it_and_the_reader_is_told() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await written(ledgers, 3)
        await writer.close()
        reader = await ledgers.open_recovered(writer.ledger, epoch=TWO)
        cluster.kill(*cluster.nodes)

        with pytest.raises(Unavailable, match="entry 0"):
            await reader.read(EntryId(0))

    play(program)


def test_a_closed_client_connects_no_more() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        await (await written(ledgers, 1)).close()

        await ledgers.close()

        with pytest.raises(RoostError):
            await ledgers.nodes.connect(NodeId("node-0"))

    play(program)


def test_registered_nodes_are_followed() -> None:
    def report(node: str, readonly: str = "") -> NodeReport:
        return NodeReport(
            node=node,
            address=f"{node}:7000",
            zone="z",
            roost="1",
            health="",
            readonly=readonly,
            free_bytes=5,
            ledgers=0,
            added_bytes_per_s=0.0,
            read_bytes_per_s=0.0,
            reported_at=0.0,
        )

    async def program(cluster: Cluster) -> None:
        store = cluster.metadata.handle("other")
        await store.txn((), (Put(live_key("a"), NODE_REPORT.encode(report("a"))),))
        nodes = await RegisteredNodes.open(store)
        following = asyncio.ensure_future(nodes.run())
        full = NODE_REPORT.encode(report("b", "the disk is full"))
        await store.txn((), (Put(live_key("b"), full),))
        await store.delete(live_key("a"))
        await asyncio.sleep(1.0)
        following.cancel()

        (known,) = nodes.nodes()
        assert known.candidate.node == "b"
        assert not known.candidate.writable
        assert nodes.address(NodeId("a")) == Address("a", 7000)
        assert nodes.address(NodeId("c")) is None

    play(program)
