"""A node as a process of its own, with entries in it, for the tests of the commands."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from roost.cli.machine import seams
from roost.cli.running import process_settings
from roost.config.reading import choose, node_config
from roost.host.log import Silence
from roost.host.net import Address, AsyncioNet
from roost.node.client import NodeClient
from roost.node.identity import take
from roost.node.process import NodeProcess
from roost.rpc.client import Connection
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello
from tests.unit.cli.commands import WAIT_S, Process, roost

SMALL: Final = {
    "listen": "127.0.0.1:0",
    "http": "127.0.0.1:0",
    "free_bytes_min": "0",
    "journal_segment_bytes": "1MiB",
    "payload_bytes_max": "64KiB",
}
SEVEN: Final = LedgerId(7)

Program = Callable[[NodeClient], Coroutine[Any, Any, None]]
"""Asks a node for something."""


def formatted(folder: Path) -> Path:
    """Make a node's folder."""
    ran = roost("node", "format", "--data", folder, "--cluster-id", "prod", "--node-id", "alice")
    assert ran.code == 0, ran.err
    return folder


def filled(folder: Path, *, killed: Path | None = None) -> Path:
    """Let a node run, get three entries, and stop; leave in `killed` what a kill would leave."""

    async def main() -> None:
        identity, lock = take(seams().disk, folder, holder="a test")
        process = await NodeProcess.start(
            process_settings(node_config(choose({**SMALL, "data": str(folder)}, {}))),
            identity,
            seams=seams(),
            log=Silence(),
        )
        await _ask(str(process.address), add_three)
        if killed is not None:
            shutil.copytree(folder, killed)
        await process.stop()
        lock.release()

    asyncio.run(main())
    return folder


def running(folder: Path, *options: str) -> Process:
    """Start a node."""
    small = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    return Process("node", "--data", folder, *small, *options)


def until(process: Process, event: str) -> dict[str, Any]:
    """Wait for an event of a process, and give its fields."""
    while line := process.error_line():
        fields: dict[str, Any] = msgspec.json.decode(line)
        if fields["event"] == event:
            return fields
    raise AssertionError(f"it ended without the event {event}")


def asking(listening: dict[str, Any], program: Program) -> None:
    """Talk to a node that listens."""
    asyncio.run(_ask(listening["address"], program))


async def _ask(address: str, program: Program) -> None:
    hello = Hello(version=PROTOCOL_VERSION, cluster="prod", role="client", name="test")
    connection = await Connection.open(AsyncioNet(), Address.parse(address), hello, timeout_s=10)
    async with asyncio.timeout(WAIT_S):
        await program(NodeClient(connection))
    await connection.close()


async def add_three(node: NodeClient) -> None:
    """Store three entries in ledger 7, and fence ledger 8."""
    for entry, payload in enumerate((b"one", b"two \xff", b"three")):
        await node.add(SEVEN, EntryId(entry), payload, epoch=Epoch(4), lac=EntryId(entry - 1))
    await node.fence(LedgerId(8), Epoch(5))
