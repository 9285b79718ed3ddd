"""Real nodes: processes that `roost node` runs, asked over real sockets, stopped and killed.

What a node says goes to a file, never to a pipe that somebody would have to drain.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import uvloop

from roost.host.net import Address, AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.random import Rng
from roost.node.client import NodeClient
from roost.node.identity import format_node
from roost.rpc.client import Connection
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello
from tests.unit.node.lives import Told

T = TypeVar("T")

WAIT_S: Final = 60.0
ROOST: Final = Path(sys.executable).with_name("roost")
EPOCH: Final = Epoch(1)
SEVEN: Final = LedgerId(7)
HELLO: Final = Hello(version=PROTOCOL_VERSION, cluster="prod", role="client", name="tester")


def formatted(folder: Path, rng: Rng, node: str = "alice") -> Path:
    """Make a node's folder."""
    disk = PosixDisk(guarded=False)
    format_node(disk, folder, cluster="prod", node=node, rng=rng, wall=0.0)
    return folder


class NodeProgram:
    """One life of `roost node`."""

    def __init__(self, data: Path, *options: str, within: Sequence[str] = ()) -> None:
        self.data: Final = data
        self._said: Final = data.with_name(f"{data.name}.said")
        self._said.write_bytes(b"")
        with self._said.open("ab") as said:
            self.process: Final = subprocess.Popen(
                [
                    *(*within, str(ROOST), "node", "--data", str(data)),
                    *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
                    *("--log-format", "json", "--free-bytes-min", "1MiB", *options),
                ],
                stderr=said,
                stdout=said,
            )

    def events(self) -> list[dict[str, Any]]:
        """Give what it said so far."""
        lines = self._said.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def told(self, name: str) -> dict[str, Any]:
        """Give what it said of one event, which there must be."""
        found = [event for event in self.events() if event["event"] == name]
        assert found, self._said.read_text()
        return found[0]

    async def address(self) -> Address:
        """Wait until it listens."""
        async with asyncio.timeout(WAIT_S):
            while not any(event["event"] == "listening" for event in self.events()):
                assert self.process.poll() is None, self._said.read_text()
                await asyncio.sleep(0.005)
        return Address.parse(self.told("listening")["address"])

    async def client(self) -> NodeClient:
        """Connect to it."""
        address = await self.address()
        return NodeClient(await Connection.open(AsyncioNet(), address, HELLO, timeout_s=WAIT_S))

    def signal(self, number: signal.Signals) -> None:
        """Stop it where it is, or let it go on."""
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """End it in good order."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)


@contextmanager
def a_node(data: Path, *options: str) -> Iterator[NodeProgram]:
    """Have a node run, and be gone afterwards whatever happens."""
    program = NodeProgram(data, *options)
    try:
        yield program
    finally:
        program.kill()


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a story to its end, within a limit that nothing reaches."""

    async def limited() -> T:
        async with asyncio.timeout(2 * WAIT_S):
            return await story()

    return uvloop.run(limited())


async def add_many(
    client: NodeClient,
    entries: range,
    payload: Callable[[int], bytes],
    *,
    ledger: LedgerId = SEVEN,
    under_way: int = 4096,
) -> None:
    """Add entries, thousands under way at once; each must be stored."""
    told = Told()
    for count, entry in enumerate(entries):
        client.start_add(
            ledger,
            EntryId(entry),
            payload(entry),
            epoch=EPOCH,
            lac=EntryId(max(-1, entry - under_way - 1)),
            sink=told,
            tag=entry,
        )
        if count % 256 == 255:
            await client.connection.drained()
            await told.wait(count + 1 - under_way)
    await told.wait(len(entries))
    assert not told.errors, next(iter(told.errors.items()))


async def check_all(
    client: NodeClient, entries: range, payload: Callable[[int], bytes], *, ledger: LedgerId = SEVEN
) -> None:
    """Read entries: all there, whole, with their own ids."""
    wanted = entries.start
    while wanted < entries.stop:
        # An answer has so many bytes at most.
        async for batch in client.read(ledger, EntryId(wanted), EntryId(entries.stop - 1)):
            assert batch.first == wanted
            for entry, found in batch.found.items():
                assert entry == wanted, f"entry {wanted} is not there"
                assert found == payload(entry)
                wanted += 1
            assert batch.before == wanted


def segments(data: Path) -> list[Path]:
    """List the segments of a node's journal."""
    return sorted((data / "journal").glob("*.journal"))


class Recovered(msgspec.Struct):
    """What a node said of its recovery."""

    ledgers: int
    replayed: int


def recovered(program: NodeProgram) -> Recovered:
    """Tell what a recovery found."""
    return msgspec.convert(program.told("recovered"), Recovered)
