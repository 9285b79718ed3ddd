"""A storage node is killed in the middle of its adds, restarted, and fenced."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from roost.errors import Fenced, RoostError
from roost.host.net import Address, AsyncioNet
from roost.node.client import NodeClient
from roost.rpc.client import Connection
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello

LEDGER, EPOCH = LedgerId(7), Epoch(1)
ENOUGH = 20_000
IN_FLIGHT = 500
ROOST = [str(Path(sys.executable).with_name("roost")), "node"]


def play(folder: Path) -> Iterator[str]:
    """Add entries to a real node over loopback, kill it, and see what it still has."""
    made = [*ROOST, "format", "--data", str(folder), "--cluster-id", "demo", "--node-id", "alice"]
    subprocess.run(made, check=True, capture_output=True)
    with running(folder) as (process, address):
        acknowledged = asyncio.run(add_until_killed(process, address))
    yield f"the node was killed; entries 0 to {acknowledged:,} were acknowledged, each after a sync"
    with running(folder) as (process, address):
        yield from asyncio.run(look(address, acknowledged))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    yield "SIGTERM: it brought everything into files, and has nothing to recover"


@contextmanager
def running(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", Address]]:
    """Start a node, and wait until it says where it listens."""
    command = [*ROOST, "--data", str(folder), "--listen", "127.0.0.1:0", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            events = map(json.loads, process.stderr)
            said = next(event for event in events if event["event"] == "listening")
            yield process, Address.parse(said["address"])
        finally:
            process.kill()


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[NodeClient]:
    """Say hello to a node."""
    hello = Hello(version=PROTOCOL_VERSION, cluster="demo", role="client", name="demo")
    connection = await Connection.open(AsyncioNet(), address, hello, timeout_s=10)
    try:
        yield NodeClient(connection)
    finally:
        await connection.close()


class Writer:
    """Keeps some adds under way, and counts those that were acknowledged in order."""

    def __init__(self, client: NodeClient, process: "subprocess.Popen[str]") -> None:
        self.acknowledged = -1
        self.ended = asyncio.Event()
        self._client = client
        self._process = process
        self._next = 0

    def more(self) -> None:
        """Send as many as may be under way."""
        lost = self._client.connection.lost
        while self._next - self.acknowledged <= IN_FLIGHT and not lost.is_set():
            entry = EntryId(self._next)
            self._next += 1
            self._client.start_add(
                LEDGER,
                entry,
                b"event-%d" % entry,
                epoch=EPOCH,
                lac=EntryId(self.acknowledged),
                sink=self,
                tag=entry,
            )

    def stored(self, tag: int) -> None:
        """Note an acknowledgement, and go on; kill the node when there are enough."""
        self.acknowledged = tag
        if tag == ENOUGH:
            self._process.send_signal(signal.SIGKILL)
        self.more()

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (it is a sink)
        """Hear that the connection is gone."""
        self.ended.set()

    def settle(self) -> None:
        """Nothing waits for that."""


async def add_until_killed(process: "subprocess.Popen[str]", address: Address) -> int:
    """Tell the last entry that was acknowledged."""
    async with connected(address) as client:
        writer = Writer(client, process)
        writer.more()
        await writer.ended.wait()
        return writer.acknowledged


async def look(address: Address, acknowledged: int) -> list[str]:
    """Read all entries back, and try to write behind a fence."""
    async with connected(address) as client:
        state = await client.state(LEDGER)
        there = 0
        async for batch in client.read(LEDGER, EntryId(0), state.highest):
            for entry, payload in batch.found.items():
                assert payload == b"event-%d" % entry
                there += 1
        assert there == state.highest + 1 > acknowledged
        lines = [f"after a restart entries 0 to {state.highest:,} are there, byte for byte"]
        await client.fence(LEDGER, Epoch(2))
        try:
            await client.add(LEDGER, EntryId(state.highest + 1), b"late", epoch=EPOCH)
        except Fenced as error:
            lines.append(f"epoch 2 fenced it; its writer hears: {error}")
        return lines
