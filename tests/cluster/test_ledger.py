"""Replicated ledgers on real nodes and a real etcd, all of which are killed and stopped.

Whatever happens: of what was acknowledged nothing is lost, nothing comes twice, and nothing comes
in another order.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.errors import NotFound
from roost.host.log import Memory
from roost.ledger.opening import Cluster
from roost.metadata.ledgers import LedgerPhase
from roost.types import EntryId, Epoch, LedgerId, NodeId
from tests.cluster.ledgers import (
    UNDER_WAY,
    Load,
    RealCluster,
    a_cluster,
    check,
    check_copies,
    ensemble,
    opened,
    payload,
    registered,
    run,
)
from tests.cluster.nodes import WAIT_S, NodeProgram, formatted
from tests.etcds import EtcdProgram, free_ports

ONE, TWO = Epoch(1), Epoch(2)


async def until(load: Load, acked: int) -> None:
    """Wait until so much was acknowledged."""
    async with asyncio.timeout(WAIT_S):
        while load.acked < acked:
            assert not load.unknown, load.unknown[0]
            await asyncio.sleep(0.005)


@contextmanager
def a_writer(url: str, noted: Path, *within: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process write a ledger, and be gone afterwards."""
    command = [*within, sys.executable, "-m", "tests.cluster.ledger_writer", url, str(noted)]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


async def has_written(writer: "subprocess.Popen[bytes]", noted: Path) -> None:
    """Wait until some hundred entries were acknowledged to a process."""
    async with asyncio.timeout(WAIT_S):
        while len(lines(noted)) < 300:
            assert writer.poll() is None
            await asyncio.sleep(0.02)


def lines(noted: Path) -> list[int]:
    """Read what a writer noted: its ledger, and all that was acknowledged."""
    return [int(line) for line in noted.read_bytes().split()] if noted.exists() else []


def test_a_ledger_is_written_read_followed_and_deleted(tmp_path: Path) -> None:
    async def story(real: RealCluster) -> None:
        await real.up()
        async with await opened(real.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            reader = await cluster.ledgers.open(writer.ledger)
            for entry in range(10):
                assert await writer.write(payload(entry)) == entry
            assert await reader.wait(EntryId(-1), timeout_s=WAIT_S)
            closed = await writer.close()
            assert (closed.phase, closed.last) == (LedgerPhase.CLOSED, 9)
            await check(cluster, writer.ledger, 9)
            assert [each.whole for each in await cluster.ledgers.verify(writer.ledger)] == [
                True
            ] * 3
            assert await cluster.ledgers.delete(writer.ledger) == []
            with pytest.raises(NotFound):
                await cluster.ledgers.open(writer.ledger)

    with a_cluster(tmp_path, 3) as real:
        run(lambda: story(real))


@pytest.mark.slow
def test_nodes_that_are_killed_and_stopped_lose_nothing(tmp_path: Path) -> None:
    rng = random.Random(1)

    async def story(real: RealCluster) -> int:
        await real.up()
        async with await opened(real.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            load = Load(writer)
            loading = asyncio.ensure_future(load.run())
            for number in range(8):
                await until(load, load.acked + 300)
                name = rng.choice(ensemble(writer))
                node = real.nodes[name]
                if number % 2:
                    node.kill()
                    real.start(name)
                    await real.up(name)
                else:
                    node.signal(signal.SIGSTOP)
                    await until(load, load.acked + 300)  # it goes on without it
                    node.signal(signal.SIGCONT)
            load.stop.set()
            await loading
            assert not load.unknown
            document = await writer.close()
            assert len(document.fragments) > 4
            checked = await check(cluster, writer.ledger, load.acked)
            await check_copies(cluster, document)
            return checked

    with a_cluster(tmp_path, 5) as real:
        assert run(lambda: story(real)) >= 200_000


@pytest.mark.slow
def test_writers_that_are_killed_leave_ledgers_that_are_recovered_whole(tmp_path: Path) -> None:
    rng = random.Random(2)

    async def life(real: RealCluster, cluster: Cluster, number: int) -> int:
        noted = tmp_path / f"acked{number}"
        with a_writer(real.url, noted) as writer:
            await has_written(writer, noted)
            await asyncio.sleep(rng.random() * 0.3)
            if number == 2:  # a recovery stops a writer that is alive
                await cluster.ledgers.recover(LedgerId(lines(noted)[0]), epoch=TWO)
                assert await asyncio.to_thread(writer.wait, WAIT_S) == 0
        ledger, *acked = lines(noted)
        assert acked == [*range(len(acked))]
        if number == 3:
            real.nodes["alice"].kill()
        await cluster.ledgers.recover(LedgerId(ledger), epoch=TWO)
        return await check(cluster, LedgerId(ledger), acked[-1])

    async def story(real: RealCluster) -> int:
        await real.up()
        async with await opened(real.url) as cluster:
            return sum([await life(real, cluster, number) for number in range(4)])

    with a_cluster(tmp_path, 3) as real:
        assert run(lambda: story(real)) >= 100_000


@pytest.mark.slow
def test_a_writer_goes_on_while_its_etcd_is_gone(tmp_path: Path) -> None:
    async def story(real: RealCluster) -> int:
        await real.up()
        async with await opened(real.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            load = Load(writer)
            loading = asyncio.ensure_future(load.run())
            await until(load, 500)
            real.etcd.kill()
            await until(load, load.acked + 1000)  # nothing of an append is in the metadata
            real.nodes[ensemble(writer)[0]].kill()
            await asyncio.sleep(0.5)  # now something is, and waits
            held = load.acked
            real.etcd.start()
            await until(load, held + 1000)
            load.stop.set()
            await loading
            assert not load.unknown
            document = await writer.close()
            assert len(document.fragments) == 2
            return await check(cluster, writer.ledger, load.acked)

    with a_cluster(tmp_path, 4) as real:
        assert run(lambda: story(real)) >= 200_000


@pytest.mark.slow
def test_a_copy_that_is_damaged_in_a_thousand_places_is_never_served_and_is_mended(
    tmp_path: Path,
) -> None:
    entries = 2_000
    rng = random.Random(3)

    async def fill(real: RealCluster) -> LedgerId:
        await real.up()
        async with await opened(real.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            for entry in range(entries):
                await writer.room()
                writer.append(payload(entry))
            assert (await writer.close()).last == entries - 1
            return writer.ledger

    def damage(real: RealCluster, ledger: LedgerId) -> None:
        assert real.nodes["bob"].stop() == 0  # everything is in the ledger's files then
        (log,) = (real.folder / "bob" / "ledgers").glob(f"{ledger}.log")
        content = bytearray(log.read_bytes())
        for place in rng.sample(range(4096, len(content)), 1000):
            content[place] ^= 1 << rng.randrange(8)
        log.write_bytes(content)
        real.start("bob")

    async def look(real: RealCluster, ledger: LedgerId) -> None:
        await real.up("bob")
        log = Memory()
        async with await opened(real.url, log) as cluster:
            for _ in range(3):
                await check(cluster, ledger, entries - 1)
            document = await cluster.ledgers.describe(ledger)
            await check_copies(cluster, document)
            before = {each.node: each for each in await cluster.ledgers.verify(ledger)}
            assert 500 < before[NodeId("bob")].bad <= 1000
            assert before[NodeId("alice")].whole
            assert all(each.whole for each in await cluster.ledgers.mend(ledger))
            assert all(each.whole for each in await cluster.ledgers.verify(ledger))
            for name in ("alice", "carol"):
                real.nodes[name].kill()
            await check(cluster, ledger, entries - 1)

    with a_cluster(tmp_path, 3) as real:
        ledger = run(lambda: fill(real))
        damage(real, ledger)
        run(lambda: look(real, ledger))


@pytest.mark.slow
def test_a_node_that_never_comes_back_is_replaced_in_what_was_closed(tmp_path: Path) -> None:
    async def story(real: RealCluster) -> None:
        await real.up()
        async with await opened(real.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            for entry in range(500):
                await writer.write(payload(entry))
            document = await writer.close()
            gone, *others = document.nodes
            real.nodes[gone].kill()

            assert await cluster.ledgers.repair(writer.ledger, gone=[gone])

            repaired = await cluster.ledgers.describe(writer.ledger)
            assert gone not in repaired.nodes
            assert all(each.whole for each in await cluster.ledgers.verify(writer.ledger))
            for name in others:
                real.nodes[name].kill()
            await check(cluster, writer.ledger, 499)

    with a_cluster(tmp_path, 4) as real:
        run(lambda: story(real))


# Networks that are cut


IP = shutil.which("ip") or ""


def within(namespace: str) -> tuple[str, ...]:
    """Name what stands before a command that is to run in a namespace."""
    return (IP, "netns", "exec", namespace)


class Wires:
    """Nodes in network namespaces of their own, joined by one bridge; a wire may be cut."""

    def __init__(self, number: int) -> None:
        self._tag = f"rst{os.getpid() % 10_000}"
        self.bridge = f"10.77.{number}.1"
        self._number = number
        self._made: list[str] = []
        self._ip("link", "add", self._tag, "type", "bridge")
        self._ip("addr", "add", f"{self.bridge}/24", "dev", self._tag)
        self._ip("link", "set", self._tag, "up")

    def join(self, host: int) -> tuple[str, str]:
        """Make a namespace; gives its name and its address."""
        name, address = f"{self._tag}n{host}", f"10.77.{self._number}.{host}"
        outer, inner = f"{self._tag}o{host}", f"{self._tag}i{host}"
        self._ip("netns", "add", name)
        self._made.append(name)
        self._ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        self._ip("link", "set", outer, "master", self._tag, "up")
        self._ip("-n", name, "addr", "add", f"{address}/24", "dev", inner)
        self._ip("-n", name, "link", "set", inner, "up")
        self._ip("-n", name, "link", "set", "lo", "up")
        return name, address

    def cut(self, host: int) -> None:
        """Let nothing through any more: nobody is told."""
        self._ip("link", "set", f"{self._tag}o{host}", "down")

    def heal(self, host: int) -> None:
        """Let everything through again."""
        self._ip("link", "set", f"{self._tag}o{host}", "up")

    def remove(self) -> None:
        """Leave nothing behind."""
        for name in self._made:
            self._ip("netns", "del", name)
        self._ip("link", "del", self._tag)

    def _ip(self, *arguments: str) -> None:
        subprocess.run([IP, *arguments], check=True, capture_output=True, timeout=WAIT_S)


def no_namespaces() -> str:
    """Say why there can be no network namespaces here; nothing if there can."""
    if not IP:
        return "there is no program `ip` (iproute2)"
    name = f"rstprobe{os.getpid()}"
    try:
        for verb in ("add", "del"):
            command = [IP, "netns", verb, name]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_S)
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip() or "`ip netns add` failed"
    return ""


class Wired:
    """Nodes behind wires, and an etcd before them; clients may be on either side."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.wires = Wires(7)
        self._programs: list[NodeProgram] = []
        ports = free_ports(2)
        listen = ("--listen-client-urls", f"http://0.0.0.0:{ports[0]}")
        self._etcd = EtcdProgram(folder, ports=ports, options=listen).start()
        self.url = f"etcd://{self.wires.bridge}:{ports[0]}/test"
        self.hosts = {f"node{host}": host for host in range(2, 2 + nodes)}
        for name, host in self.hosts.items():
            namespace, address = self.wires.join(host)
            data = formatted(folder / name, random.Random(host), name)
            options = ("--listen", f"{address}:4710", "--http", "off", "--insecure")
            within = ("ip", "netns", "exec", namespace)
            self._programs.append(NodeProgram(data, *options, "--cluster", self.url, within=within))

    async def up(self) -> None:
        """Wait until all nodes are registered."""
        for each in self._programs:
            await registered(each)

    def end(self) -> None:
        """Leave nothing behind."""
        for each in self._programs:
            each.kill()
        self._etcd.stop()
        self.wires.remove()


@contextmanager
def wired(folder: Path, nodes: int) -> Iterator[Wired]:
    """Have nodes run behind wires, and be gone afterwards whatever happens."""
    found = Wired(folder, nodes)
    try:
        yield found
    finally:
        found.end()


@pytest.mark.slow
def test_networks_that_are_cut_lose_nothing_and_a_writer_behind_a_cut_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if why := no_namespaces():
        with capsys.disabled():
            sys.stderr.write(f"\nNO NETWORK WAS CUT: there can be no namespaces here: {why}\n")
        return

    async def nodes_are_cut_off(net: Wired) -> int:
        await net.up()
        async with await opened(net.url) as cluster:
            writer = await cluster.ledgers.create(epoch=ONE)
            load = Load(writer)
            loading = asyncio.ensure_future(load.run())
            await until(load, 300)
            for many in (1, 2, 3):
                cut = [net.hosts[name] for name in ensemble(writer)[:many]]
                for host in cut:
                    net.wires.cut(host)
                if many < 3:
                    await until(load, load.acked + 300)  # it goes on without them
                else:
                    # What one of them has acknowledged may still get its second copy on the
                    # node that is left; nothing that came later can.
                    held = load.acked + UNDER_WAY
                    await asyncio.sleep(1.5)
                    assert load.acked <= held, "nobody is left who could have it"
                for host in cut:
                    net.wires.heal(host)
                await until(load, load.acked + 300)
            load.stop.set()
            await loading
            assert not load.unknown
            await writer.close()
            return await check(cluster, writer.ledger, load.acked)

    async def a_writer_is_cut_off(net: Wired) -> int:
        noted, host = tmp_path / "acked", 9
        namespace, _ = net.wires.join(host)
        with a_writer(net.url, noted, *within(namespace)) as writer:
            await has_written(writer, noted)
            net.wires.cut(host)
            async with await opened(net.url) as cluster:
                ledger = LedgerId(lines(noted)[0])
                document = await cluster.ledgers.recover(ledger, epoch=TWO)
                net.wires.heal(host)
                # It finds out by itself, and what it acknowledged until then is there.
                assert await asyncio.to_thread(writer.wait, WAIT_S) == 0
                assert document == await cluster.ledgers.describe(ledger)
                return await check(cluster, ledger, lines(noted)[-1])

    async def story(net: Wired) -> int:
        return await nodes_are_cut_off(net) + await a_writer_is_cut_off(net)

    with wired(tmp_path, 4) as net:
        assert run(lambda: story(net)) >= 100_000
