"""Real clusters: an etcd, nodes that register there, and what is appended and read back.

An entry holds many records, each of which says its number: what was acknowledged can be told from
what is read, record by record.
"""

import asyncio
import os
import random
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from roost.errors import RoostError, Throttled, Unavailable
from roost.host.log import Memory
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks, system_rng
from roost.ledger.append import AppendSettings
from roost.ledger.nodes import Patience
from roost.ledger.opening import Cluster
from roost.ledger.reading import LedgerReader, Piece
from roost.ledger.writer import LedgerWriter
from roost.metadata.ledgers import LedgerDocument
from roost.types import EntryId, LedgerId
from tests.cluster.nodes import WAIT_S, NodeProgram, formatted
from tests.etcds import EtcdProgram

T = TypeVar("T")

NAMES: Final = ("alice", "bob", "carol", "dave", "erin")
RECORDS: Final = 100
"""In each entry."""

UNDER_WAY: Final = 64
"""Entries that are not acknowledged yet."""

HASTY: Final = AppendSettings(node_timeout_s=0.4, spare_retry_s=0.5, append_timeout_s=60.0)
SHORT: Final = Patience(connect_s=0.5, call_s=1.0, tell_s=0.5)


class RealCluster:
    """An etcd and its nodes, each of which may be killed and started again."""

    def __init__(self, folder: Path, nodes: int, *options: str) -> None:
        self.folder: Final = folder
        self.etcd: Final = EtcdProgram(folder).start()
        self.url: Final = f"etcd://{self.etcd.endpoint}/test"
        self.names: Final = NAMES[:nodes]
        self.nodes: Final[dict[str, NodeProgram]] = {}
        self._options: Final = options
        for number, name in enumerate(self.names):
            formatted(folder / name, random.Random(number), name)
            self.start(name)

    def start(self, name: str) -> None:
        """Begin a life of a node."""
        self.nodes[name] = NodeProgram(self.folder / name, "--cluster", self.url, *self._options)

    async def up(self, *names: str) -> None:
        """Wait until nodes are registered; all of them, if none is named."""
        for name in names or self.names:
            await registered(self.nodes[name])

    def end(self) -> None:
        """Kill everything."""
        for node in self.nodes.values():
            node.kill()
        self.etcd.stop()


async def registered(node: NodeProgram) -> None:
    """Wait until a node is registered."""
    async with asyncio.timeout(WAIT_S):
        while not any(event["event"] == "registered" for event in node.events()):
            assert node.process.poll() is None, node.events()
            await asyncio.sleep(0.02)


@contextmanager
def a_cluster(folder: Path, nodes: int, *options: str) -> Iterator[RealCluster]:
    """Have a cluster run, and be gone afterwards whatever happens."""
    cluster = RealCluster(folder, nodes, *options)
    try:
        yield cluster
    finally:
        cluster.end()


async def opened(url: str, log: Memory | None = None) -> Cluster:
    """Open a cluster as its clients do, with little patience."""
    seams = Seams(
        clock=SystemClock(),
        disk=PosixDisk(guarded=False),
        net=AsyncioNet(),
        rng=system_rng(),
        tasks=ThreadTasks(),
    )
    return await Cluster.open(
        url, seams=seams, name="tester", log=log, timeout_s=WAIT_S, appending=HASTY, patience=SHORT
    )


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a story to its end, within a limit that nothing reaches."""

    async def limited() -> T:
        async with asyncio.timeout(2 * WAIT_S):
            return await story()

    return uvloop.run(limited())


# What is appended


def payload(entry: int, size: int = 16) -> bytes:
    """Make an entry: records, each with its number, and no two alike."""
    first = entry * RECORDS
    return b"".join(struct.pack(f">Q{size - 8}x", first + number) for number in range(RECORDS))


def numbers(entry: bytes | memoryview) -> list[int]:
    """Read the numbers of an entry's records."""
    width = len(entry) // RECORDS
    return [int.from_bytes(entry[at : at + 8], "big") for at in range(0, len(entry), width)]


class Load:
    """Appends entry after entry, some under way at once, and notes which were acknowledged."""

    def __init__(
        self, writer: LedgerWriter, under_way: int = UNDER_WAY, noted: Path | None = None
    ) -> None:
        self.acked = -1
        """The last entry that was acknowledged; entries are in order."""
        self.unknown: list[str] = []
        self.stop: Final = asyncio.Event()
        self._writer: Final = writer
        self._room: Final = asyncio.Semaphore(under_way)
        self._under_way: Final = under_way
        self._next = 0
        self._noted: Final = (
            None if noted is None else os.open(noted, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        )
        self._note(writer.ledger)

    async def run(self) -> None:
        """Append until told to stop, or nothing is taken any more; wait for what is under way."""
        while not self.stop.is_set() and self._writer.stopped is None:
            await self._room.acquire()
            try:
                future = self._writer.append(payload(self._next))
            except (Unavailable, Throttled):
                self._room.release()
                await asyncio.sleep(0.02)
                continue
            except RoostError:
                self._room.release()
                break
            self._next += 1
            future.add_done_callback(self._on_done)
        for _ in range(self._under_way):
            await self._room.acquire()

    def _on_done(self, future: "asyncio.Future[EntryId]") -> None:
        self._room.release()
        if (error := future.exception()) is not None:
            self.unknown.append(str(error))
            return
        assert future.result() == self.acked + 1, "acknowledged out of order"
        self.acked = future.result()
        self._note(self.acked)

    def _note(self, number: int) -> None:
        if self._noted is not None:
            os.write(self._noted, b"%d\n" % number)


async def check(cluster: Cluster, ledger: LedgerId, acked: int) -> int:
    """Read a closed ledger: nothing lost, doubled or reordered; gives how many were acked."""
    document = await cluster.ledgers.describe(ledger)
    assert document.last is not None, "it is closed"
    assert document.last >= acked, f"entries {document.last + 1} to {acked} are lost"
    reader = await cluster.ledgers.open(ledger)
    first, wanted = EntryId(0), 0
    while first <= document.last:
        piece = await patiently(reader, first)
        assert piece.first * RECORDS == wanted
        for each in piece.payloads:
            found = numbers(each)
            assert found == [*range(wanted, wanted + RECORDS)], f"entry {wanted // RECORDS}"
            wanted += RECORDS
        first = piece.before
    assert wanted == (document.last + 1) * RECORDS
    return (acked + 1) * RECORDS


async def patiently(reader: LedgerReader, first: EntryId) -> Piece:
    """Read on; a node that was away is left alone for a while after it is back."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await reader.read(first)
            except Unavailable:
                await asyncio.sleep(0.2)


async def check_copies(cluster: Cluster, document: LedgerDocument) -> None:
    """Look at each copy by itself: what any node has of an entry is that entry."""
    assert document.last is not None
    for node in document.holders:
        client = await cluster.ledgers.nodes.connect(node)
        first = 0
        while first <= document.last:
            async for batch in client.read(document.ledger, EntryId(first), document.last):
                for entry, found in batch.found.items():
                    assert found == payload(entry), f"entry {entry} on {node}"
                first = batch.before


def ensemble(writer: LedgerWriter) -> Sequence[str]:
    """Name the nodes that a ledger is written to now."""
    return writer.document.fragments[-1].nodes
