"""Masters at work: real nodes, clients and masters, on simulated machines and metadata."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from roost.errors import Conflict, NotFound
from roost.ledger.client import Ledgers
from roost.ledger.nodes import RegisteredNodes
from roost.ledger.repair import Job, with_copy
from roost.master.emptying import Left, forget_empty_node, left_on
from roost.metadata.drains import draining, mark_draining, unmark_draining
from roost.metadata.election import campaign
from roost.metadata.ids import take_ids
from roost.metadata.layout import MASTER, ledger_key
from roost.metadata.ledgers import LEDGER, LedgerDocument, LedgerPhase, Quorum
from roost.metadata.masters import MASTER_REPORT, MasterReport, master_of
from roost.types import EntryId, LedgerId, NodeId
from tests.unit.ledger.clusters import ONE, TWO, Cluster, play
from tests.unit.master.masters import QUICK, arrive, leave, master, store, written


async def until(there: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not there():  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.1)


async def whole(ledgers: Ledgers, ledger: LedgerId, entries: int) -> None:
    """Check that all of a ledger can be read."""
    reader = await ledgers.open(ledger)
    found = [bytes(each) async for piece in reader.read_all() for each in piece.payloads]
    assert found == [b"entry %d" % number for number in range(entries)]


async def stopped(*working: "asyncio.Future[None]") -> None:
    """Stop masters."""
    for each in working:
        each.cancel()
    await asyncio.wait(working)


def documents(cluster: Cluster) -> list[LedgerDocument]:
    """Look at all documents that there are."""
    page = cluster.metadata.versions.page("ledgers/", limit=1000)
    return [LEDGER.decode(item.key, item.value) for item in page.items]


# Auditing


def test_a_node_that_is_gone_is_replaced_after_the_grace_time_and_not_before() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        writer = await written(ledgers, 6)
        document = await writer.close()
        lost = document.nodes[1]
        (spare,) = {*cluster.nodes} - {*document.nodes}
        made, log, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())
        await until(lambda: metrics.audits > 1)
        cluster.kill(lost)
        await leave(cluster, lost)

        await asyncio.sleep(4.0)
        early = documents(cluster)
        await until(lambda: metrics.under_replicated == 0 and metrics.copies == 1)
        await until(lambda: lost not in documents(cluster)[0].nodes)

        assert early == [document]
        assert documents(cluster)[0].fragments[0].nodes[1] == spare
        assert cluster.nodes[spare].holds(writer.ledger) == [*range(6)]
        assert "copied" in log.names
        await whole(ledgers, writer.ledger, 6)
        await stopped(working)

    play(program)


def test_a_node_that_comes_back_in_time_costs_nothing() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        writer = await written(cluster.client(), 6)
        document = await writer.close()
        made, log, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())
        await until(lambda: metrics.audits > 1)

        for _ in range(3):
            await leave(cluster, document.nodes[0])
            await asyncio.sleep(4.0)
            await arrive(cluster, document.nodes[0])
            await asyncio.sleep(2.0)

        assert documents(cluster) == [document]
        assert not {"copied", "copy_failed"} & {*log.names}
        await stopped(working)

    play(program)


def test_laggards_are_given_what_they_lack_and_open_ledgers_are_left_alone() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        opened, writer = await written(ledgers, 3), await written(ledgers, 3)
        lagging = writer.document.nodes[2]
        cluster.kill(lagging)
        for number in range(3, 6):
            await writer.write(b"entry %d" % number)
        before = await writer.close()
        cluster.restart(lagging)
        made, _, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())

        await until(lambda: metrics.audits > 3 and metrics.under_replicated == 0)

        (mended,) = [each for each in documents(cluster) if each.ledger == before.ledger]
        assert mended.laggards == ()
        for node in mended.fragments[0].nodes:
            assert {*cluster.nodes[node].holds(before.ledger)} >= {0, 1, 2}
        (still,) = [each for each in documents(cluster) if each.ledger == opened.ledger]
        assert still.phase is LedgerPhase.OPEN
        await opened.abandon()
        await stopped(working)

    play(program, nodes=3)


def test_what_nobody_can_replace_now_rests_and_holds_up_nobody() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        writer = await written(ledgers, 2)
        document = await writer.close()
        made, _, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())
        await until(lambda: metrics.audits > 1)
        cluster.kill(document.nodes[0])
        await leave(cluster, document.nodes[0])

        await until(lambda: metrics.under_replicated == 1)
        await asyncio.sleep(10.0)
        cluster.restart(document.nodes[0])
        await arrive(cluster, document.nodes[0])
        await until(lambda: metrics.under_replicated == 0)

        assert documents(cluster) == [document]
        await stopped(working)

    play(program, nodes=3)


def test_a_document_that_cannot_be_read_stops_nobody() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        await store(cluster).put(ledger_key(LedgerId(77)), b"{}")
        document = await (await written(ledgers, 2)).close()
        made, log, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())
        await until(lambda: metrics.audits > 1)
        cluster.kill(document.nodes[0])
        await leave(cluster, document.nodes[0])

        await until(lambda: metrics.copies == 1)

        assert "document_unreadable" in log.names
        assert metrics.unreadable > 0
        with pytest.raises(Conflict, match="cannot be read"):
            await left_on(store(cluster), NodeId("node-0"))
        await stopped(working)

    play(program)


# Emptying a node


def test_a_node_that_is_to_be_emptied_gives_what_it_has_and_gets_nothing() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        handle = store(cluster)
        ledgers = cluster.client()
        closed = [await (await written(ledgers, 5)).close() for _ in range(6)]
        node = closed[0].nodes[0]
        # Nobody else has it: what leaves is copied from.
        others = [each for each in closed[0].nodes if each != node]
        made, _, metrics = master(cluster)
        working = asyncio.ensure_future(made.work())
        await mark_draining(handle, node, wall=1.0)
        await mark_draining(handle, node, wall=2.0)
        cluster.kill(*others)

        left = 99
        async with asyncio.timeout(120):
            while left:
                await asyncio.sleep(1.0)
                left = (await left_on(handle, node)).ledgers
                if metrics.audits == 5:
                    cluster.restart(*others)

        assert all(node not in each.nodes for each in documents(cluster))
        assert await draining(handle) == {node}
        for each in closed:
            await whole(ledgers, each.ledger, 5)
        await stopped(working)

    play(program, nodes=6)


def test_writers_choose_no_node_that_is_to_be_emptied() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        handle = store(cluster)
        await mark_draining(handle, "node-1", wall=1.0)
        nodes = await RegisteredNodes.open(handle)
        following = asyncio.ensure_future(nodes.run())

        def writable() -> set[str]:
            return {each.candidate.node for each in nodes.nodes() if each.candidate.writable}

        assert writable() == {"node-0", "node-2", "node-3"}
        await mark_draining(handle, "node-2", wall=1.0)
        await unmark_draining(handle, "node-1")
        await until(lambda: writable() == {"node-0", "node-1", "node-3"})
        await stopped(following)

    play(program)


def test_an_empty_node_can_be_forgotten_once_it_is_stopped() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        handle = store(cluster)
        writer = await written(cluster.client(), 5)
        (node, *_), other = writer.document.nodes, NodeId("node-3")

        assert await left_on(handle, node) == Left(1, 1)
        await mark_draining(handle, node, wall=1.0)
        with pytest.raises(Conflict, match="still name"):
            await forget_empty_node(handle, node)
        spare = next(NodeId(each) for each in cluster.nodes if each not in writer.document.nodes)
        with pytest.raises(Conflict, match="stop it first"):
            await forget_empty_node(handle, spare)
        await leave(cluster, spare)
        with pytest.raises(Conflict, match="decommission it first"):
            await forget_empty_node(handle, spare)
        await mark_draining(handle, spare, wall=1.0)
        await forget_empty_node(handle, spare)

        with pytest.raises(NotFound):
            await forget_empty_node(handle, spare)
        with pytest.raises(NotFound):
            await mark_draining(handle, spare, wall=1.0)
        assert await unmark_draining(handle, node)
        assert not await unmark_draining(handle, node)
        assert other in cluster.nodes
        await writer.abandon()

    play(program)


# Collecting


def test_deleted_ledgers_are_collected_also_from_nodes_that_were_away() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        kept = await (await written(ledgers, 3)).close()
        opened = await written(ledgers, 3)
        gone = await (await written(ledgers, 3)).close()
        away = gone.nodes[0]
        cluster.kill(away)
        await leave(cluster, away)
        await ledgers.delete(gone.ledger)
        made, _, metrics = master(cluster, settings=msgspec.structs.replace(QUICK, grace_s=1e6))
        working = asyncio.ensure_future(made.work())

        await asyncio.sleep(20.0)
        assert any(each.ledger == gone.ledger for each in documents(cluster))
        cluster.restart(away)
        await arrive(cluster, away)
        await until(lambda: metrics.tombstones_removed == 1)

        assert [each.ledger for each in documents(cluster)] == [kept.ledger, opened.ledger]
        for name, node in cluster.nodes.items():
            assert node.holds(gone.ledger) == []
            if name in kept.nodes:
                assert node.holds(kept.ledger) == [0, 1, 2]
        await opened.write(b"entry 3")
        await opened.close()
        await whole(ledgers, opened.ledger, 4)
        await stopped(working)

    play(program)


def test_what_lost_its_document_is_collected_by_its_id() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        gone = await (await written(ledgers, 3)).close()
        await store(cluster).delete(ledger_key(gone.ledger))
        made, _, _ = master(cluster)

        await made.collector.collect()

        assert all(node.holds(gone.ledger) == [] for node in cluster.nodes.values())

    play(program)


def test_under_another_metadata_nothing_is_deleted() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        closed = [await (await written(ledgers, 3)).close() for _ in range(3)]
        handle = store(cluster)
        for each in closed:
            await handle.delete(ledger_key(each.ledger))
        await handle.delete("ids/ledger")
        await take_ids(handle, "ledger")
        made, log, metrics = master(cluster)

        await made.collector.collect()

        assert metrics.collected == 0
        assert "metadata_foreign" in log.names
        assert cluster.nodes[closed[0].nodes[0]].holds(closed[0].ledger) == [0, 1, 2]

    play(program, nodes=3)


def test_a_copy_that_was_left_behind_is_collected_and_its_node_never_named_again() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        before = await (await written(ledgers, 3)).close()
        back = before.nodes[0]
        cluster.kill(back)
        assert await ledgers.repair(before.ledger, gone={back})
        cluster.restart(back)
        made, _, metrics = master(cluster)

        await asyncio.sleep(1.0)
        await made.collector.collect()

        (document,) = documents(cluster)
        assert document.barred == (back,)
        assert (metrics.barred, metrics.collected) == (1, 1)
        assert cluster.nodes[back].holds(before.ledger) == []
        await ledgers.repair(before.ledger, gone={document.nodes[0]})
        assert back not in documents(cluster)[0].nodes
        await whole(ledgers, before.ledger, 3)

    play(program, nodes=6)


def test_a_repair_that_read_before_the_bar_cannot_name_the_node() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        before = await (await written(ledgers, 3)).close()
        back = before.nodes[0]
        cluster.kill(back)
        assert await ledgers.repair(before.ledger, gone={back})
        cluster.restart(back)
        await asyncio.sleep(1.0)
        made, _, _ = master(cluster)
        await made.roster.look()
        read = await ledgers.records.read(before.ledger)
        old = read.document.nodes[1]
        first, last = EntryId(0), EntryId(2)
        job = Job(before.ledger, ONE, first, last, 1, old, back, last, (read.document.nodes[2],))
        named = with_copy(read.document, job)
        assert named is not None

        assert await made.collector.sweep(back) == 1

        with pytest.raises(Conflict):
            await ledgers.records.change(read, named)
        assert documents(cluster)[0].barred == (back,)
        assert with_copy(documents(cluster)[0], job) is None

    play(program, nodes=6)


def test_a_node_that_was_named_again_after_it_was_read_is_not_barred() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        before = await (await written(ledgers, 3)).close()
        back = before.nodes[0]
        cluster.kill(back)
        assert await ledgers.repair(before.ledger, gone={back})
        cluster.restart(back)
        await asyncio.sleep(1.0)
        made, _, metrics = master(cluster)
        await made.roster.look()
        read = await ledgers.records.read(before.ledger)
        named = msgspec.structs.replace(read.document, fragments=before.fragments)
        await ledgers.records.change(read, named)

        assert await made.collector.sweep(back) == 0
        assert metrics.barred == 0
        assert cluster.nodes[back].holds(before.ledger) == [0, 1, 2]

    play(program, nodes=6)


# Scrubbing


def test_what_a_node_has_lost_is_found_and_copied_again() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        full = await (await written(ledgers, 8)).close()
        striped = await (await written(ledgers, 8, Quorum(3, 2, 2))).close()
        bad, worse = cluster.nodes[full.nodes[0]], cluster.nodes[striped.nodes[1]]
        for entry in (2, 3):
            del bad.store.known.ledgers[full.ledger].memtable[EntryId(entry)]
        del worse.store.known.ledgers[striped.ledger].memtable[EntryId(1)]
        made, log, metrics = master(cluster)

        await made.scrubber.round()

        assert (metrics.bad_entries, metrics.repaired_entries) == (3, 3)
        assert bad.holds(full.ledger) == [*range(8)]
        assert 1 in worse.holds(striped.ledger)
        assert "replica_bad" in log.names
        place = await made.scrubber.place()
        assert (place.ledgers, place.bad, place.repaired, place.after) == (2, 3, 3, -1)
        metrics.bad_entries = 0
        await made.scrubber.round()
        assert metrics.scrubbed_ledgers == 2, "the next round is not due"
        await asyncio.sleep(11.0)
        await made.scrubber.round()
        assert (metrics.scrubbed_ledgers, metrics.bad_entries) == (4, 0)

    play(program)


def test_a_node_that_cannot_be_put_right_is_replaced() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        document = await (await written(ledgers, 4)).close()
        bad = document.nodes[0]
        made, log, metrics = master(cluster)
        await made.roster.look()
        client = await ledgers.nodes.connect(bad)
        await client.delete(document.ledger)

        (found, *_) = await made.scrubber.scrub(document.ledger)

        assert (found.bad, found.repaired) == (4, 0)
        assert bad not in documents(cluster)[0].nodes
        assert "not_put_right" in log.names
        await whole(ledgers, document.ledger, 4)
        assert metrics.bad_entries == 4
        assert await made.scrubber.scrub(LedgerId(99)) == []

    play(program)


# Elections


def test_a_master_that_loses_its_election_stops_at_once() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        handle = store(cluster, "first")
        lease = await handle.grant(15)
        first = MasterReport(name="first", reported_at=0.0)
        leadership = await campaign(handle, MASTER, MASTER_REPORT.encode(first), lease)
        made, log, metrics = master(cluster, "first")
        leading = asyncio.ensure_future(made.lead(leadership, lease, first))
        await until(lambda: metrics.audits > 1)
        told = await master_of(store(cluster))
        assert told is not None
        assert (told.name, told.audits > 0) == ("first", True)

        cluster.metadata.cut("first")
        await leading
        audits = metrics.audits
        await asyncio.sleep(30.0)

        assert lease.lost
        assert metrics.audits == audits
        assert await master_of(store(cluster)) is None
        assert "not_reported" in log.names

    play(program)


def test_a_master_that_was_deposed_hears_of_it_when_it_reports() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        handle = store(cluster, "first")
        lease = await handle.grant(60)
        first = MasterReport(name="first", reported_at=0.0)
        leadership = await campaign(handle, MASTER, MASTER_REPORT.encode(first), lease)
        made, log, _ = master(cluster, "first")
        leading = asyncio.ensure_future(made.lead(leadership, lease, first))
        await asyncio.sleep(1.0)

        await store(cluster).delete(MASTER)
        await leading

        assert "not_elected_any_more" in log.names

    play(program)


def test_masters_that_both_believe_to_be_elected_do_no_harm() -> None:
    async def program(cluster: Cluster) -> None:
        await arrive(cluster)
        ledgers = cluster.client()
        closed = [await (await written(ledgers, 5)).close() for _ in range(8)]
        opened = await written(ledgers, 3)
        dead = await written(ledgers, 3)
        await ledgers.delete(closed.pop().ledger)
        masters = [master(cluster, f"master-{number}") for number in range(3)]
        working = [asyncio.ensure_future(made.work()) for made, _, _ in masters]
        await until(lambda: all(metrics.audits > 1 for _, _, metrics in masters))
        lost = closed[0].nodes[0]
        cluster.kill(lost)
        await leave(cluster, lost)

        await until(
            lambda: all(
                lost not in each.nodes
                for each in documents(cluster)
                if each.phase is LedgerPhase.CLOSED
            )
        )
        await asyncio.sleep(20.0)

        for each in documents(cluster):
            each.check()
        for each in closed:
            (now,) = [one for one in documents(cluster) if one.ledger == each.ledger]
            for node in now.holders:
                assert cluster.nodes[node].holds(each.ledger) == [*range(5)]
            await whole(ledgers, each.ledger, 5)
        await opened.write(b"entry 3")
        await opened.close()
        await whole(ledgers, opened.ledger, 4)
        await ledgers.recover(dead.ledger, epoch=TWO)
        await whole(ledgers, dead.ledger, 3)
        await stopped(*working)

    play(program, nodes=7)
