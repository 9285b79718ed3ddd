"""A small cluster for tests: real nodes and clients, on simulated machines and metadata."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from roost.errors import NotFound
from roost.host.log import Memory
from roost.host.net import Address
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.ledger.append import AppendSettings
from roost.ledger.client import Ledgers
from roost.ledger.nodes import FixedNodes, KnownNode, Patience
from roost.ledger.placement import Candidate
from roost.node.identity import format_node, load_identity, take
from roost.node.process import NodeProcess, ProcessSettings
from roost.node.store import NodeSettings, Store
from roost.sim.metadata import SimMetadata
from roost.sim.world import Process, World
from roost.types import Epoch, LedgerId, NodeId

FOLDER: Final = Path("/node")
PORT: Final = 7000
ONE: Final = Epoch(1)
TWO: Final = Epoch(2)
SETTINGS: Final = NodeSettings(
    journal=JournalSettings(segment_bytes=60_000, reserve_bytes=4_000, record_bytes_max=20_000)
)
APPENDING: Final = AppendSettings(
    append_timeout_s=3.0, node_timeout_s=0.5, spare_retry_s=0.5, lac_push_s=0.01, linger_s=0.2
)
PATIENCE: Final = Patience(connect_s=0.3, call_s=1.0, tell_s=0.3, copy_s=5.0)


class Node:
    """One node; `main` is its process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process
        self.store: Store

    async def main(self, seams: Seams) -> None:
        """Serve until the end."""
        try:
            load_identity(seams.disk, FOLDER)
        except NotFound:
            wall = seams.clock.wall()
            format_node(
                seams.disk, FOLDER, cluster="test", node=self.name, rng=seams.rng, wall=wall
            )
        identity, _lock = take(seams.disk, FOLDER, holder="the node")
        settings = ProcessSettings(
            data=FOLDER, listen=Address(self.name, PORT), store=SETTINGS, payload_bytes_max=10_000
        )
        process = await NodeProcess.start(settings, identity, seams=seams, log=Memory())
        assert process.store is not None
        self.store = process.store
        await asyncio.Event().wait()

    def holds(self, ledger: LedgerId) -> list[int]:
        """Name the entries of a ledger that are here."""
        found = self.store.known.ledgers.get(ledger)
        return [] if found is None else sorted({*found.frozen, *found.memtable})


class Cluster:
    """Nodes, and a program that uses them."""

    def __init__(self, world: World, nodes: int) -> None:
        self.world = world
        self.metadata = SimMetadata(world)
        self.nodes = {name: Node(name) for name in (f"node-{n}" for n in range(nodes))}
        self.clients: list[Ledgers] = []
        self.logs: list[Memory] = []
        self.error: BaseException | None = None
        self.seams: Seams

    def client(self, appending: AppendSettings = APPENDING, ack_min: int = 1) -> Ledgers:
        """Make a client, in the process of the program."""
        seams, name = self.seams, f"client-{len(self.clients)}"
        known = [
            KnownNode(Candidate(NodeId(node), 1 << 30), Address(node, PORT)) for node in self.nodes
        ]
        log = Memory()
        made = Ledgers(
            self.metadata.handle(name, seams.clock),
            FixedNodes(known),
            net=seams.net,
            clock=seams.clock,
            rng=seams.rng,
            cluster="test",
            name=name,
            log=log,
            appending=appending,
            patience=PATIENCE,
            change_timeout_s=5.0,
            ack_min=ack_min,
        )
        self.clients.append(made)
        self.logs.append(log)
        return made

    def kill(self, *names: str) -> None:
        """Kill nodes."""
        for name in names:
            self.nodes[name].process.kill()

    def restart(self, *names: str) -> None:
        """Start nodes again."""
        for name in names:
            self.nodes[name].process.restart()


Program = Callable[[Cluster], Awaitable[None]]


def play(program: Program, *, nodes: int = 4, seed: int = 7) -> None:
    """Run a program on a cluster whose nodes are up."""
    with World(seed) as world:
        cluster = Cluster(world, nodes)
        ended = asyncio.Event()

        async def main(seams: Seams) -> None:
            cluster.seams = seams
            try:
                async with asyncio.timeout(600):
                    await program(cluster)
            except BaseException as error:  # noqa: BLE001 (it is raised outside)
                cluster.error = error
            ended.set()

        async def story() -> None:
            for name, node in cluster.nodes.items():
                node.process = world.host(name).start("node", node.main)
            await asyncio.sleep(0.1)
            world.host("program").start("program", main)
            await ended.wait()

        world.run(story)
        if cluster.error is not None:
            raise cluster.error
