"""Masters as programs: they stand for election, lead, and make way."""

import asyncio

from roost.errors import Unavailable
from roost.host.log import Memory
from roost.host.net import Address
from roost.master.process import MasterProcess, ProcessSettings
from roost.metadata.layout import CLUSTER
from roost.metadata.masters import master_of
from roost.metadata.node_documents import CLUSTER_DOCUMENT, ClusterDocument
from roost.metadata.store import MetadataStore
from tests.unit.ledger.clusters import Cluster, play
from tests.unit.master.masters import QUICK, arrive, store


class Program:
    """One master, and its log."""

    def __init__(self, cluster: Cluster, name: str, *, http: Address | None = None) -> None:
        self.log = Memory()
        self.stop = asyncio.Event()
        self.failures = 0
        self._cluster = cluster
        self._name = name
        settings = ProcessSettings(http=http, name=name, ttl_s=5, master=QUICK)
        self.process = MasterProcess(settings, self.opening, seams=cluster.seams, log=self.log)
        self.running = asyncio.ensure_future(
            self.process.run(self.stop, serving=lambda _: self.log.event("standing"))
        )

    async def opening(self) -> MetadataStore:
        """Open the metadata, if it is there."""
        if self.failures:
            self.failures -= 1
            raise Unavailable("the metadata is not there yet")
        return store(self._cluster, self._name)

    async def end(self) -> None:
        """Tell it to stop, and wait."""
        self.stop.set()
        await self.running


async def known(cluster: Cluster) -> None:
    """Let the cluster be known."""
    await store(cluster).put(CLUSTER, CLUSTER_DOCUMENT.encode(ClusterDocument("test", 0.0)))
    await arrive(cluster)


async def leads(cluster: Cluster, name: str, within_s: float = 30.0) -> None:
    """Wait until a master is the elected one."""
    async with asyncio.timeout(within_s):
        found = None
        while found is None or found.name != name:
            await asyncio.sleep(0.1)
            found = await master_of(store(cluster))


def test_one_is_elected_and_the_next_one_follows_at_once_when_it_is_told_to_stop() -> None:
    async def program(cluster: Cluster) -> None:
        await known(cluster)
        first = Program(cluster, "first")
        await leads(cluster, "first")
        second = Program(cluster, "second")
        await asyncio.sleep(5.0)

        assert (first.log.names.count("elected"), second.log.names.count("elected")) == (1, 0)
        assert second.process.ills() == []
        assert not second.process.facts()["elected"]
        await first.end()
        await leads(cluster, "second", within_s=1.0)
        await asyncio.sleep(0.5)
        assert second.process.facts()["elected"]
        assert "roost_master_elected" in second.process.metrics()
        await second.end()

        assert await master_of(store(cluster)) is None

    play(program)


def test_a_master_that_is_cut_off_is_followed_and_stands_again() -> None:
    async def program(cluster: Cluster) -> None:
        await known(cluster)
        first = Program(cluster, "first")
        await leads(cluster, "first")
        second = Program(cluster, "second")

        cluster.metadata.cut("first")
        await leads(cluster, "second")
        cluster.metadata.heal("first")
        await asyncio.sleep(10.0)
        await second.end()
        await leads(cluster, "first")

        assert first.log.names.count("elected") == 2
        assert "deposed" in first.log.names
        await first.end()

    play(program)


def test_a_master_waits_for_its_metadata_and_for_a_cluster() -> None:
    async def program(cluster: Cluster) -> None:
        master = Program(cluster, "master", http=Address("program", 80))
        master.failures = 2

        await asyncio.sleep(0.5)
        assert master.process.ills() == ["the metadata is not reached yet"]
        await asyncio.sleep(3.0)
        assert master.process.ills() == ["no node has registered yet"]
        cluster.metadata.cut("master")
        await asyncio.sleep(8.0)
        cluster.metadata.heal("master")
        await known(cluster)
        await leads(cluster, "master")

        assert master.process.ills() == []
        assert master.process.http_address == Address("program", 80)
        assert master.log.names.count("no_metadata") >= 3
        await master.end()

    play(program)


def test_a_master_that_cannot_reach_the_metadata_any_more_says_so() -> None:
    async def program(cluster: Cluster) -> None:
        await known(cluster)
        master = Program(cluster, "master")
        await leads(cluster, "master")

        cluster.metadata.cut("master")
        await asyncio.sleep(20.0)
        ills = master.process.ills()
        cluster.metadata.heal("master")
        await leads(cluster, "master")

        assert ills != []
        assert "not_elected" in master.log.names
        await master.end()

    play(program)
