"""Copies that are looked through and mended, ledgers that are claimed, nodes that are asked."""

import asyncio

import pytest

from roost.errors import Conflict, Invalid, RoostError, Unavailable
from roost.ledger.copies import Copy
from roost.ledger.writer import LedgerWriter
from roost.metadata.ledgers import LedgerPhase, Quorum
from roost.types import EntryId, LedgerId, NodeId
from tests.unit.ledger.clusters import ONE, TWO, Cluster, play


async def closed(cluster: Cluster, count: int) -> LedgerWriter:
    """Make a ledger with some entries, and close it."""
    ledgers = cluster.client()
    writer = await ledgers.create(epoch=ONE)
    await asyncio.gather(*(writer.append(b"entry %d" % n) for n in range(count)))
    await writer.close()
    return writer


def lose(cluster: Cluster, node: NodeId, ledger: LedgerId, *entries: int) -> None:
    """Have a node forget entries, as if it had never had them."""
    held = cluster.nodes[node].store.known.ledgers[ledger]
    for entry in entries:
        held.memtable.pop(EntryId(entry), None)
        held.frozen.pop(EntryId(entry), None)


def by_node(copies: list[Copy]) -> dict[NodeId, Copy]:
    return {each.node: each for each in copies}


def test_a_copy_that_lacks_entries_is_found_and_mended_from_the_others() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await closed(cluster, 10)
        ledgers, node = cluster.client(), writer.document.nodes[1]
        lose(cluster, node, writer.ledger, 3, 4, 9)

        before = by_node(await ledgers.verify(writer.ledger))
        mended = await ledgers.mend(writer.ledger)

        assert (before[node].entries, before[node].wanted, before[node].whole) == (7, 10, False)
        assert [each.whole for each in before.values()].count(True) == 2
        assert all(each.whole for each in mended)
        assert cluster.nodes[node].holds(writer.ledger) == [*range(10)]
        assert all(each.whole for each in await ledgers.verify(writer.ledger))

    play(program)


def test_a_node_that_is_away_is_told_of_and_keeps_nobody_from_being_mended() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await closed(cluster, 10)
        ledgers = cluster.client()
        gone, other, _ = writer.document.nodes
        lose(cluster, other, writer.ledger, 5)
        cluster.kill(gone)

        copies = by_node(await ledgers.mend(writer.ledger))

        assert copies[gone].error
        assert not copies[gone].whole
        assert copies[other].whole

    play(program)


def test_what_nobody_has_is_not_mended_and_that_is_told() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await closed(cluster, 10)
        for node in writer.document.nodes:
            lose(cluster, node, writer.ledger, 5)

        copies = await cluster.client().mend(writer.ledger)

        assert [each.whole for each in copies] == [False] * 3

    play(program)


def test_a_node_that_fails_while_it_is_mended_is_told_of() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await closed(cluster, 10)
        ledgers, node = cluster.client(), writer.document.nodes[0]
        lose(cluster, node, writer.ledger, 5)
        store = cluster.nodes[node].store
        # It still reads, and adds nothing any more: from then on as after a failed sync.
        store.known.ledgers[writer.ledger].epoch = TWO

        copies = by_node(await ledgers.mend(writer.ledger))

        assert not copies[node].whole
        assert "not_mended" in cluster.logs[-1].names

    play(program)


def test_an_open_ledger_has_no_copies_to_compare() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await ledgers.create(epoch=ONE)
        for look in (ledgers.verify, ledgers.mend):
            with pytest.raises(Invalid, match="only of a closed one"):
                await look(writer.ledger)

    play(program)


# Claims


def test_a_ledger_that_nobody_has_written_to_is_claimed_and_written() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        made = await ledgers.create(epoch=ONE)
        await made.abandon()

        writer = await cluster.client().claim(made.ledger)
        await writer.write(b"one")
        document = await writer.close()

        assert (document.phase, document.last) == (LedgerPhase.CLOSED, 0)

    play(program)


@pytest.mark.parametrize("how", ["written", "fenced", "closed"])
def test_a_ledger_that_somebody_has_written_to_or_ended_cannot_be_claimed(how: str) -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await ledgers.create(epoch=ONE)
        if how == "written":
            await writer.write(b"one")
        elif how == "fenced":
            client = await ledgers.nodes.connect(writer.document.nodes[2])
            await client.fence(writer.ledger, TWO)
        else:
            await writer.close()

        with pytest.raises(Invalid, match="a ledger has one writer"):
            await cluster.client().claim(writer.ledger)

    play(program)


def test_of_two_who_claim_a_ledger_at_once_one_at_most_closes_it() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        made = await ledgers.create(epoch=ONE)
        await made.abandon()

        async def claim_and_close() -> bool:
            try:
                writer = await cluster.client().claim(made.ledger)
            except (Conflict, Invalid):
                return False
            try:
                await writer.write(b"the same")
                await writer.close()
            except RoostError:
                return False
            return True

        ended = await asyncio.gather(claim_and_close(), claim_and_close())

        assert ended.count(True) <= 1

    play(program)


# Asking


def test_nodes_say_what_they_have_of_an_entry() -> None:
    async def program(cluster: Cluster) -> None:
        writer = await closed(cluster, 3)
        ledgers = cluster.client()
        first, second, third = writer.document.nodes
        lose(cluster, first, writer.ledger, 1)
        cluster.kill(third)

        said = await ledgers.ask(writer.ledger, EntryId(1))

        assert (said[first], said[second]) == ("absent", "found")
        assert said[third].startswith("silent (")

    play(program)


def test_a_node_that_never_heard_of_a_ledger_has_nothing_of_it() -> None:
    async def program(cluster: Cluster) -> None:
        ledgers = cluster.client()
        writer = await ledgers.create(epoch=ONE, quorum=Quorum(2, 2, 2))
        assert {*(await ledgers.ask(writer.ledger, EntryId(0))).values()} == {"absent"}

    play(program)


# Recoveries that write back


def test_a_node_that_falls_silent_while_it_is_written_to_gives_its_place_to_another() -> None:
    told: list[str] = []

    async def program(cluster: Cluster, delay_s: float) -> None:
        ledgers = cluster.client()
        writer = await ledgers.create(epoch=ONE)
        await writer.abandon()
        first, second, third = writer.document.nodes
        # On two nodes: what only one had, two others may say they never had, and that would be all.
        for holder in (first, third):
            client = await ledgers.nodes.connect(holder)
            for entry in range(100):
                await client.add(writer.ledger, EntryId(entry), b"%d" % entry, epoch=ONE)
        recoverer = cluster.client()
        for node in writer.document.nodes:
            await recoverer.nodes.connect(node)
        recovering = asyncio.ensure_future(recoverer.recover(writer.ledger, epoch=TWO, timeout_s=5))
        await asyncio.sleep(delay_s)
        cluster.nodes[second].process.pause()
        cluster.nodes[third].process.pause()

        try:
            document = await recovering
        except Unavailable:
            told.append("too early")  # nobody knows, and it ends all the same
            return
        assert document.last == 99
        silent = "not_written_back" in cluster.logs[1].names
        told.append("silent" if silent else "too late")

    for step in range(60):
        play(lambda cluster, delay_s=step / 4000: program(cluster, delay_s), nodes=6)  # type: ignore[misc]
    assert {*told} == {"too early", "silent", "too late"}
