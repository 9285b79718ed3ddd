"""Nodes that register, and those that follow them, on the simulated store."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from roost.errors import Conflict, Throttled, Unavailable
from roost.host.log import Memory
from roost.metadata.ids import TRIES_MAX, take_ids
from roost.metadata.layout import CLUSTER, counter_key, identity_key, live_key
from roost.metadata.node_documents import NODE_REPORT, NodeIdentity, NodeReport
from roost.metadata.nodes import LiveNodes, Registration, all_nodes, cluster_of, register
from roost.metadata.operations import Outcome, Revision
from roost.metadata.store import MetadataStore
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.world import World

ALICE = NodeIdentity("alice", "a" * 32, "alice:4710", 1.0)
LONG_S = 300.0


def report(node: str = "alice", free_bytes: int = 1) -> NodeReport:
    return NodeReport(
        node=node,
        address=f"{node}:4710",
        zone="z",
        roost="0.1",
        health="",
        readonly="",
        free_bytes=free_bytes,
        ledgers=0,
        added_bytes_per_s=0.0,
        read_bytes_per_s=0.0,
        reported_at=2.0,
    )


def play(
    story: Callable[[SimMetadata], Awaitable[None]], faults: MetadataFaults | None = None
) -> None:
    """Play a story in a world of its own."""
    with World(3) as world:
        store = SimMetadata(world, faults)

        async def main() -> None:
            async with asyncio.timeout(LONG_S):
                await story(store)

        world.run(main)


def registration(
    store: MetadataStore, identity: NodeIdentity = ALICE, log: Memory | None = None
) -> Registration:
    return Registration(
        store,
        cluster="prod",
        identity=identity,
        report=lambda: report(identity.node),
        log=log or Memory(),
    )


def test_the_first_node_makes_the_cluster_and_each_its_identity() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("here")
        assert await cluster_of(store) is None
        for name in ("alice", "bob"):
            identity = msgspec.structs.replace(ALICE, node=name)
            lease = await store.grant(10)
            await register(
                store, lease, cluster="prod", identity=identity, report=partial(report, name)
            )

        document = await cluster_of(store)
        nodes = await all_nodes(store)

        assert document is not None
        assert (document.cluster, document.created_at) == ("prod", 2.0)
        assert [(identity.node, told and told.node) for identity, told in nodes] == [
            ("alice", "alice"),
            ("bob", "bob"),
        ]
        created = await store.get(CLUSTER)
        assert created is not None
        assert created.version == 1

    play(story)


def test_a_second_life_of_a_node_takes_over_the_key_of_the_first() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("here")
        first, second = await store.grant(10), await store.grant(10)
        for lease in (first, second):
            await register(store, lease, cluster="prod", identity=ALICE, report=report)

        await first.revoke()

        item = await store.get(live_key("alice"))
        assert item is not None
        assert item.lease == second.id
        identity = await store.get(identity_key("alice"))
        assert identity is not None
        assert identity.version == 1

    play(story)


@pytest.mark.parametrize(
    ("identity", "cluster", "why"),
    [
        (msgspec.structs.replace(ALICE, uuid="b" * 32), "prod", "known with uuid a{32}, first see"),
        (ALICE, "test", "is that of cluster 'prod', and this node's folder was formatted for 'tes"),
    ],
)
def test_another_folder_and_another_cluster_are_refused(
    identity: NodeIdentity, cluster: str, why: str
) -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("here")
        lease = await store.grant(10)
        await register(store, lease, cluster="prod", identity=ALICE, report=report)

        with pytest.raises(Conflict, match=why):
            await register(store, lease, cluster=cluster, identity=identity, report=report)

    play(story)


def test_a_registration_outlives_what_happens_to_the_store_and_ends_when_told() -> None:
    log = Memory()

    async def story(sim: SimMetadata) -> None:
        store, stop = sim.handle("node"), asyncio.Event()
        kept = registration(store, log=log)
        running = asyncio.ensure_future(kept.run(stop))
        nodes = await LiveNodes.open(sim.handle("other"))
        await kept.registered.wait()

        sim.let_go()
        while "alice" in nodes.reports:
            await nodes.changes()
        while "alice" not in nodes.reports:
            await nodes.changes()
        sim.cut("node")
        while "alice" in nodes.reports:
            await nodes.changes()
        sim.heal("node")
        sim.compact()
        while "alice" not in nodes.reports:
            assert await nodes.changes() == {"alice"}
        stop.set()
        await running

        while nodes.reports:
            await nodes.changes()
        await nodes.close()
        assert (await all_nodes(sim.handle("third"))) == [(ALICE, None)]

    play(story)

    assert log.names.count("registered") == 3
    assert "lease_lost" in log.names


def test_a_refused_registration_ends_with_the_reason() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("here")
        lease = await store.grant(10)
        await register(store, lease, cluster="prod", identity=ALICE, report=report)
        other = msgspec.structs.replace(ALICE, uuid="b" * 32)

        with pytest.raises(Conflict, match="does not hold what that node holds"):
            await registration(store, other).run(asyncio.Event())

    play(story)


def test_a_report_that_cannot_be_read_is_told_apart_from_a_node_that_is_gone() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("here")
        await store.put(live_key("alice"), NODE_REPORT.encode(report()))
        nodes = await LiveNodes.open(store)
        newer = b'{"kind":"node_report","version":9}'

        await store.put(live_key("alice"), newer)
        while not nodes.unreadable:
            await nodes.changes()

        assert list(nodes.unreadable) == ["alice"]
        assert "version 9" in str(nodes.unreadable["alice"])
        assert not nodes.reports
        await store.put(live_key("alice"), NODE_REPORT.encode(report(free_bytes=7)))
        while nodes.unreadable:
            await nodes.changes()
        assert nodes.reports["alice"].free_bytes == 7

    play(story)


def test_ids_are_given_out_once_though_answers_are_lost() -> None:
    taken: list[int] = []

    async def story(sim: SimMetadata) -> None:
        async def take(name: str) -> None:
            store = sim.handle(name)
            for count in [1] * 20 + [5]:
                with suppress(Unavailable):
                    first = await take_ids(store, "ledger", count, timeout_s=0.5)
                    taken.extend(range(first, first + count))

        await asyncio.gather(take("a"), take("b"), take("c"))

    play(story, MetadataFaults(forgets=0.1))

    assert len(taken) == len(set(taken)) > 40


def test_whoever_is_never_quick_enough_for_an_id_gives_up() -> None:
    class Slow:
        """A store whose transactions come too late, always."""

        tries = 0

        async def get(self, key: str, **_: float) -> None:
            assert key == counter_key("ledger")

        async def txn(self, *_: object, **__: float) -> Outcome:
            self.tries += 1
            return Outcome(False, Revision(1))

    slow = Slow()

    with pytest.raises(Throttled, match="100 times before us"):
        asyncio.run(take_ids(slow, "ledger"))  # type: ignore[arg-type]  # as much of one as is asked

    assert slow.tries == TRIES_MAX
