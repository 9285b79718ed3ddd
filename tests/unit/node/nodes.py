"""Whole nodes for tests: over loopback on a real machine, and on a simulated one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest
import uvloop

from roost.host.log import Memory
from roost.host.net import Address, AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks
from roost.node.client import NodeClient
from roost.node.identity import Identity
from roost.node.process import NodeProcess, ProcessSettings
from roost.node.store import NodeSettings, Store
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello
from tests.unit.node.lives import FOLDER, SETTINGS, Machine, payload

Program = Callable[[Seams, Path], Coroutine[Any, Any, None]]
Stage = Callable[[Program], None]

LONG_S: Final = 60.0
SEVEN: Final = LedgerId(7)
EIGHT: Final = LedgerId(8)
HELLO: Final = Hello(version=PROTOCOL_VERSION, cluster="prod", role="client", name="tester")


class Node(msgspec.Struct, frozen=True):
    """A node that runs, and somebody who asks it."""

    process: NodeProcess
    client: NodeClient
    log: Memory

    @property
    def store(self) -> Store:
        """What it serves."""
        assert self.process.store is not None
        return self.process.store

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.process.address)

    async def add(self, *entries: int, ledger: LedgerId = SEVEN, size: int = 20) -> None:
        """Add entries, one after the other."""
        for entry in entries:
            await self.client.add(ledger, EntryId(entry), payload(entry, size), epoch=Epoch(1))

    async def there(self, ledger: LedgerId = SEVEN, upto: int = 200) -> dict[int, bytes]:
        """Read a ledger."""
        found: dict[int, bytes] = {}
        async for batch in self.client.read(ledger, EntryId(0), EntryId(upto)):
            found |= {entry: bytes(content) for entry, content in batch.found.items()}
        return found


@asynccontextmanager
async def running(
    seams: Seams,
    folder: Path,
    name: str = "alice",
    *,
    settings: NodeSettings = SETTINGS,
    cluster: str = "prod",
    payload_bytes_max: int = 3000,
    held_bytes_max: int = 1 << 20,
) -> AsyncIterator[Node]:
    """Have a node of a name run."""
    data = folder / name
    seams.disk.make_folder(data)
    log = Memory()
    process = await NodeProcess.start(
        ProcessSettings(
            data=data,
            listen=Address("127.0.0.1", 0),
            store=settings,
            payload_bytes_max=payload_bytes_max,
            limits=Limits(held_bytes_max=held_bytes_max),
            drain_s=1.0,
        ),
        Identity(cluster, name, name.encode().ljust(16)[:16]),
        seams=seams,
        log=log,
    )
    assert process.address is not None
    hello = msgspec.structs.replace(HELLO, cluster=cluster)
    connection = await Connection.open(seams.net, process.address, hello, timeout_s=5.0)
    try:
        yield Node(process=process, client=NodeClient(connection), log=log)
    finally:
        await connection.close()
        await process.stop()


@pytest.fixture(params=["sim", "asyncio", "uvloop"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Somewhere to run a program: in one simulated world or another, or for real."""

    def simulated(program: Program) -> None:
        for seed in range(3):
            with Machine(seed) as machine:
                machine.live(lambda seams: program(seams, FOLDER))

    def real(program: Program) -> None:
        seams = Seams(
            SystemClock(), PosixDisk(guarded=False), AsyncioNet(), Random(1), ThreadTasks()
        )

        async def limited() -> None:
            async with asyncio.timeout(LONG_S):
                await program(seams, tmp_path)

        (asyncio.run if request.param == "asyncio" else uvloop.run)(limited())

    return simulated if request.param == "sim" else real
