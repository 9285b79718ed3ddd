"""Replicated ledgers on nodes, networks and metadata that fail: production code from end to end.

A few storage nodes serve over a network, on disks that forget what was not synced. Writers make
ledgers and fill them; others take them over, rightly or not, several at once; readers follow, and
somebody repairs. Meanwhile nodes are killed, lose power, stand still, are cut off from one client
and not from another, and sometimes lose their disks for good, fewer of them than a ledger can bear;
writers stand still for as long as it takes to make zombies of them; and the metadata loses requests
and answers. Then everything heals: each ledger must be closed, get back all of its copies, and be
read from its first entry to its last. `roost.sim.replica_book` knows what is promised.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roost.errors import NotFound
from roost.host.net import Address
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.node.identity import format_node, load_identity, take
from roost.node.process import NodeProcess, ProcessSettings
from roost.node.store import NodeSettings, Store
from roost.sim.faults import DiskFaults
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.play import Options, Report, play
from roost.sim.replica_book import ReplicaBook
from roost.sim.scenarios.ledger_clients import (
    CLUSTER,
    PORT,
    Bell,
    Healer,
    Mender,
    Reader,
    Taker,
    Work,
    Writer,
)
from roost.sim.scenarios.ledger_masters import Masters
from roost.sim.scenarios.ledger_plan import draw
from roost.sim.world import Process, World
from roost.types import EntryId, LedgerId, NodeId
from roost.wire.entry import payload_of

FOLDER: Final = Path("/node")
# When all faults are over, everything has to be done within this time.
LIVENESS_S: Final = 120.0
# How long a step of work on a disk takes that is not slow.
QUICK_S: Final = 50e-6
# No node flushes in such a short life: what it holds durably can be seen in its memory.
SETTINGS: Final = NodeSettings(
    journal=JournalSettings(segment_bytes=40_000, reserve_bytes=4_000, record_bytes_max=2_000)
)


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("ledger", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let one seed's cluster live, and heal."""
    told = Story(world)
    world.trace("plan", **msgspec.structs.asdict(told.plan))
    await told.play()
    book = told.book
    return {
        "acked": book.acked,
        "unknown": book.unknown,
        "refused": book.refused,
        "found": book.found,
        "ledgers": len(told.work.ledgers),
    }


class Node:
    """One storage node; `main` is its process."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.lost = False
        """Whether its disk is gone for good."""
        self.serves = Bell()
        """Rung when it takes requests for the first time."""
        self._world = world
        self._store: Store | None = None

    def holds(self, ledger: LedgerId) -> Mapping[EntryId, bytes] | None:
        """Give what it durably holds of a ledger, also while it is down; None if that is lost."""
        if self.lost:
            return None
        found = None if self._store is None else self._store.known.ledgers.get(ledger)
        if found is None:
            return {}
        assert not found.stored.entries, "nothing is flushed here"
        entries = {**found.frozen, **found.memtable}
        return {entry: bytes(payload_of(block)) for entry, block in entries.items()}

    async def main(self, seams: Seams) -> None:
        """Serve until the end."""
        try:
            load_identity(seams.disk, FOLDER)
        except NotFound:
            wall = seams.clock.wall()
            rng = seams.rng
            format_node(seams.disk, FOLDER, cluster=CLUSTER, node=self.name, rng=rng, wall=wall)
        identity, _lock = take(seams.disk, FOLDER, holder="the node")
        settings = ProcessSettings(
            data=FOLDER, listen=Address(self.name, PORT), store=SETTINGS, payload_bytes_max=1000
        )
        process = await NodeProcess.start(settings, identity, seams=seams, log=self)
        self._store = process.store
        self.serves.ring()
        await asyncio.Event().wait()

    def event(self, name: str, /, **fields: object) -> None:
        """Hear what the node says of itself."""
        if name == "request_failed":
            self._world.violate(f"{fields['error']}\n{fields['traceback']}")


class Story:
    """One seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("story")
        self.plan = plan = draw(world.rng("plan"))
        self._masters = Masters(world)
        names = [f"node-{number}" for number in range(plan.nodes + self._masters.nodes_more)]
        self._nodes = {NodeId(name): Node(world, name) for name in names}
        self.book = ReplicaBook(lambda node, ledger: self._nodes[node].holds(ledger))
        self._metadata = SimMetadata(world)
        self.work = Work(world, plan, self.book, self._metadata, names)
        self._writers = [Writer(self.work, f"writer-{n}") for n in range(plan.writers)]
        self._takers = [Taker(self.work, f"taker-{n}") for n in range(2)]
        self._processes: dict[str, Process] = {}
        self._masters.use(self.work, self._metadata, self.holders)

    def holders(self, ledger: LedgerId) -> list[str]:
        """Name the nodes that hold anything of a ledger."""
        return [name for name, node in self._nodes.items() if node.holds(ledger)]

    async def play(self) -> None:
        """Let it all happen."""
        plan, world = self.plan, self._world
        world.network.misbehave(plan.net)
        for number, (name, node) in enumerate(self._nodes.items()):
            world.step_mean_s = plan.step_mean_s if number < plan.slow else QUICK_S
            host = world.host(name, DiskFaults(file_bytes_max=64 << 10))
            self._processes[name] = host.start("node", node.main)
        self._metadata.faults = plan.metadata
        clients: list[Writer | Taker | Reader | Mender] = [*self._writers, *self._takers]
        clients += [Reader(self.work, "reader")] if plan.reads else []
        clients += [Mender(self.work, "mender")] if plan.mends else []
        for node in self._nodes.values():
            await node.serves.wait()
        for client in clients:
            self._processes[client.name] = world.host(client.name).start("client", client.main)
        self._masters.begin({name: self._processes[name] for name in self._nodes})
        await self._rage()
        await self._heal()

    # What happens

    async def _rage(self) -> None:
        plan, rng = self.plan, self._rng
        try:
            async with asyncio.timeout(1.0):
                await self.work.appended.wait()
        except TimeoutError:
            pass
        if not plan.troubles:
            await asyncio.sleep(plan.rage_s)
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(plan.trouble_count):
                await asyncio.sleep(plan.rage_s * rng.random() ** 2)
                (kind,) = rng.choices([*plan.troubles], [*plan.troubles.values()])
                group.create_task(self._trouble(kind))
            await asyncio.sleep(plan.rage_s)

    async def _trouble(self, kind: str) -> None:  # noqa: C901, PLR0912 (a table)
        rng, world = self._rng, self._world
        node = self._processes[rng.choice([*self._nodes])]
        writer = rng.choice(self._writers)
        writers = [each.name for each in self._writers]
        client = rng.choice([*writers, *(each.name for each in self._takers)])
        for_s = self.plan.lasts_s * rng.random() * 2
        world.count(kind)
        world.trace("trouble", kind=kind, node=node.host.name, client=client, for_s=for_s)
        match kind:
            case "kill a node":
                await self._killed(node, for_s)
            case "power of a node":
                await self._power(node, for_s)
            case "pause a node":
                await self._paused(node, for_s)
            case "cut a node off" | "cut one way":
                await self._cut(node.host.name, client, for_s, both=kind == "cut a node off")
            case "pause the writer":
                await self._paused(self._processes[writer.name], for_s)
            case "kill the writer":
                await self._killed(self._processes[writer.name], for_s)
            case "take over":
                rng.choice(self._takers).wanted.ring()
            case "kill the taker":
                await self._killed(self._processes[rng.choice(self._takers).name], for_s)
            case "lose the lease":
                writer.leaseless.ring()
            case "cut the metadata off":
                self._metadata.cut(client)
                await asyncio.sleep(for_s)
                self._metadata.heal(client)
            case "strand the writer":
                await self._strand(writer, for_s)
            case "leave few nodes":
                await self._leave_few(for_s)
            case "replace in a hurry":
                await self._hurry(writer, for_s)
            case _:
                self._lose_disk(node)

    async def _strand(self, writer: Writer, for_s: float) -> None:
        """Leave entries on some nodes only, and then let others find them there."""
        rng, network = self._rng, self._world.network
        names = [*self._nodes]
        stranded = rng.sample(names, rng.randrange(1, len(names)))
        for name in stranded:
            network.block(writer.name, name, both=rng.random() < 0.5)
        await asyncio.sleep(rng.random() ** 2 * 0.05)
        process = self._processes[writer.name]
        ends = rng.choice(["kill", "pause", "none"])
        if ends == "kill":
            process.kill()
        elif ends == "pause":
            process.pause()
        down = [self._processes[name] for name in names if rng.random() < 0.15]
        for each in down:
            each.kill()
        await self._take_over_twice()
        await asyncio.sleep(for_s)
        for name in stranded:
            network.unblock(writer.name, name)
        for each in [process, *down]:
            self._revive(each)

    async def _leave_few(self, for_s: float) -> None:
        """Kill all nodes but one or two, for a while."""
        processes = [self._processes[name] for name in self._nodes]
        left = self._rng.randrange(1, 3)
        for process in self._rng.sample(processes, len(processes) - left):
            process.kill()
        await asyncio.sleep(for_s)
        for process in processes:
            self._revive(process)

    async def _take_over_twice(self) -> None:
        """Have a ledger taken over, and by somebody else when that is half done."""
        rng = self._rng
        first, second = rng.sample(self._takers, 2)
        first.wanted.ring()
        await asyncio.sleep(rng.random() ** 2 * 0.05)
        if rng.random() < 0.6:
            self._processes[first.name].kill()
        if rng.random() < 0.7:
            second.wanted.ring()
            await asyncio.sleep(rng.random() ** 2 * 0.05)
        self._revive(self._processes[first.name])

    async def _hurry(self, writer: Writer, for_s: float) -> None:
        """Take nodes away from a writer, one by one, and then the writer, too."""
        rng, network = self._rng, self._world.network
        cut = rng.sample([*self._nodes], min(len(self._nodes), rng.randrange(1, 4)))
        for name in cut:
            if rng.random() < 0.5:
                self._processes[name].kill()
            else:
                network.block(writer.name, name, both=True)
            await asyncio.sleep(rng.random() ** 2 * 0.03)
        for name in cut[1:]:
            self._revive(self._processes[name])
        if rng.random() < 0.5:
            self._processes[writer.name].kill()
            await self._take_over_twice()
        await asyncio.sleep(for_s)
        for name in cut:
            network.unblock(writer.name, name)
            self._revive(self._processes[name])
        self._revive(self._processes[writer.name])

    async def _power(self, process: Process, for_s: float) -> None:
        """Take the power away, now or in the midst of an operation of the disk."""
        if self._rng.random() < 0.5:
            process.disk.lose_power_after(self._rng.randrange(1, 10))
            await asyncio.sleep(for_s)
        # It must not go later, when all is said to be well.
        process.host.crash()
        await asyncio.sleep(for_s)
        self._revive(process)

    def _revive(self, process: Process) -> None:
        node = self._nodes.get(NodeId(process.host.name))
        if node is not None and node.lost:
            return
        process.host.boot()
        process.resume()
        if not process.alive:
            process.restart()

    async def _paused(self, process: Process, for_s: float) -> None:
        process.pause()
        await asyncio.sleep(for_s)
        process.resume()

    async def _killed(self, process: Process, for_s: float) -> None:
        process.kill()
        await asyncio.sleep(for_s)
        self._revive(process)

    async def _cut(self, node: str, client: str, for_s: float, *, both: bool) -> None:
        ways = [node, client] if self._rng.random() < 0.5 else [client, node]
        self._world.network.block(*ways, both=both)
        await asyncio.sleep(for_s)
        self._world.network.unblock(*ways)

    def _lose_disk(self, process: Process) -> None:
        """Lose a node for good; never so many that what is acknowledged could be lost."""
        quorum, lost = self.plan.quorum, self.work.gone
        if len(lost) < min(quorum.ack - 1, len(self._nodes) - quorum.ensemble):
            node = NodeId(process.host.name)
            self._nodes[node].lost = True
            lost.add(node)
            process.kill()

    # The end

    async def _heal(self) -> None:
        """Make good what can be made good, and require that everything ends well."""
        world = self._world
        world.trace("heal")
        world.network.heal()
        self._metadata.faults = MetadataFaults()
        for process in self._processes.values():
            process.disk.faults = DiskFaults(file_bytes_max=64 << 10)
            process.disk.fail_none()
            self._revive(process)
        self.work.ended.ring()
        self._masters.heal()
        await self._all_whole("healer")
        if self._masters.there:
            await self._masters.churn()
            await self._all_whole("healer-2")
            await self._masters.finish()
        self.work.look()
        self.work.checked(self.book.named)
        self.work.checked(lambda: self.book.replicas([*self._nodes]))

    async def _all_whole(self, name: str) -> None:
        """Have all ledgers closed, repaired and read."""
        world = self._world
        healer = Healer(self.work, name)
        try:
            async with asyncio.timeout(LIVENESS_S):
                for writer in self._writers:
                    await writer.done.wait()
                world.host(name).start("client", healer.main)
                await healer.done.wait()
        except TimeoutError:
            world.violate(f"liveness: not all has ended: {healer.failure or 'a writer is busy'}")
        if healer.done.is_set() and healer.failure:
            world.violate(f"liveness: all is well, and yet {healer.failure}")
