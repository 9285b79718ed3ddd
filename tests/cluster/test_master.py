"""Real processes: a cluster that stays whole while nodes, and its master, are killed."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from roost.errors import Unavailable
from roost.host.log import Silence
from roost.host.net import Address, AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.random import Rng
from roost.host.system import SystemClock
from roost.ledger.client import Ledgers
from roost.ledger.nodes import RegisteredNodes
from roost.metadata.remote import RemoteStore
from roost.metadata.store import MetadataStore
from roost.node.identity import format_node
from roost.types import Epoch, NodeId
from tests.cluster.nodes import ROOST, WAIT_S, NodeProgram, run
from tests.metas import MetaProgram

GRACE: tuple[str, ...] = ("--grace-s", "2", "--collect-s", "2", "--tombstone-s", "1")


class MasterProgram:
    """One life of `roost master`."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.said = folder / f"{name}.said"
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [
                    *(str(ROOST), "master", "--cluster", url, "--http", "127.0.0.1:0"),
                    *("--log-format", "json", "--ttl-s", "3", *GRACE),
                ],
                stderr=said,
                stdout=said,
            )

    def events(self) -> list[str]:
        """Name what it said so far."""
        lines = self.said.read_bytes().split(b"\n")[:-1]
        return [json.loads(line)["event"] for line in lines if line.startswith(b"{")]


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[MetaProgram]:
    program = MetaProgram(tmp_path).start()
    yield program
    program.stop()


def formatted(folder: Path, name: str, rng: Rng) -> Path:
    format_node(PosixDisk(guarded=False), folder, cluster="prod", node=name, rng=rng, wall=0.0)
    return folder


def roost(*arguments: str) -> str:
    """Run a command, which must end well."""
    ran = subprocess.run(
        [str(ROOST), *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not there():  # noqa: ASYNC110 (a process has no event)
            await asyncio.sleep(0.1)


async def opened(store: MetadataStore) -> RegisteredNodes:
    """List the nodes as soon as the metadata is there."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await RegisteredNodes.open(store)
            except Unavailable:
                await asyncio.sleep(0.1)


async def shown(url: str, text: str) -> None:
    """Wait until the cluster's status says something."""
    status = ""
    async with asyncio.timeout(WAIT_S):
        while text not in status:
            status = await asyncio.to_thread(roost, "cluster", "status", "--cluster", url)


async def until_not_named(ledgers: Ledgers, node: NodeId) -> None:
    """Wait until no ledger names a node."""
    named = True
    async with asyncio.timeout(WAIT_S):
        while named:
            await asyncio.sleep(0.1)
            named = any([node in each.nodes async for each in ledgers.list_all()])


async def written(ledgers: Ledgers, ledgers_count: int) -> list[Any]:
    """Make closed ledgers."""
    made = []
    for _ in range(ledgers_count):
        writer = await ledgers.create(epoch=Epoch(1))
        for number in range(20):
            await writer.write(b"entry %d" % number)
        made.append(await writer.close())
    return made


class Programs:
    """All processes of one cluster."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.url = url
        self.nodes: dict[str, NodeProgram] = {}
        for seed, name in enumerate(("alice", "bob", "carol", "dan", "eve")):
            data = formatted(folder / name, name, Random(seed))
            self.nodes[name] = NodeProgram(data, "--cluster", url)
            stack.callback(self.nodes[name].kill)
        self.masters = [MasterProgram(folder, url, f"master-{number}") for number in range(2)]
        for each in self.masters:
            stack.callback(each.process.wait, WAIT_S)
            stack.callback(each.process.kill)

    async def lose(self, ledgers: Ledgers, lost: NodeId) -> MasterProgram:
        """Kill a node and the master at once, and wait until all is whole; gives the next one."""
        masters = self.masters
        await until(lambda: sum("elected" in each.events() for each in masters) == 1)
        first = next(each for each in masters if "elected" in each.events())
        second = next(each for each in masters if each is not first)
        self.nodes[lost].kill()
        first.process.kill()
        await until(lambda: "elected" in second.events())
        await until_not_named(ledgers, lost)
        await shown(self.url, "0 of 6 ledgers under-replicated")
        return second

    async def empty(self, node: NodeId, directory: RegisteredNodes) -> None:
        """Take a node out of the cluster."""
        cluster = ("--cluster", self.url)
        told = await asyncio.to_thread(roost, "node", "decommission", node, *cluster, "--wait")
        assert told == f"{node} is empty: nothing names it any more\n"
        await shown(self.url, "draining, 0 ledgers left")
        assert self.nodes[node].stop() == 0
        await until(lambda: node not in {each.candidate.node for each in directory.nodes()})
        told = await asyncio.to_thread(roost, "node", "forget", node, *cluster)
        assert told == f"{node} is forgotten\n"


def client(store: MetadataStore, directory: RegisteredNodes) -> Ledgers:
    return Ledgers(
        store,
        directory,
        net=AsyncioNet(),
        clock=SystemClock(),
        rng=Random(1),
        cluster="prod",
        name="tester",
        log=Silence(),
    )


@pytest.mark.slow
def test_a_cluster_stays_whole_while_nodes_and_its_master_are_killed(
    tmp_path: Path, meta: MetaProgram
) -> None:
    async def story() -> None:
        store = RemoteStore(
            AsyncioNet(), Address.parse(meta.address), clock=SystemClock(), name="tester"
        )
        directory = await opened(store)
        following = asyncio.ensure_future(directory.run())
        await until(lambda: len(directory.nodes()) == 5)
        ledgers = client(store, directory)
        closed = await written(ledgers, 6)

        master = await programs.lose(ledgers, closed[0].nodes[0])
        await ledgers.delete(closed.pop().ledger)
        await programs.empty(closed[0].nodes[1], directory)
        await until(lambda: "tombstone_removed" in master.events())

        for each in closed:
            reader = await ledgers.open(each.ledger)
            found = [bytes(one) async for piece in reader.read_all() for one in piece.payloads]
            assert found == [b"entry %d" % number for number in range(20)]
        master.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(master.process.wait, WAIT_S) == 0
        assert master.events()[-1] == "stopped"
        following.cancel()
        await ledgers.close()
        await store.close()

    with ExitStack() as stack:
        programs = Programs(tmp_path, f"meta://{meta.address}", stack)
        run(story)
