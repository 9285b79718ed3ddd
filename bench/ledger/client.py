"""What the client process does: turns against a cluster, through `Ledgers`, on uvloop.

Each turn is a function that `Beside` runs. It opens the cluster, does one thing for so long or so
often, and returns what it counted.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
import uvloop

from bench.node.client import Turn
from bench.node.programs import Failed
from roost.errors import RoostError
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks, system_rng
from roost.ledger.append import AppendSettings
from roost.ledger.opening import Cluster
from roost.ledger.writer import LedgerWriter
from roost.metadata.ledgers import LedgerPhase
from roost.node.client import NodeClient
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, NodeId

T = TypeVar("T")

EPOCH = Epoch(1)
NEXT_EPOCH = Epoch(2)
NODE_LEDGER_FIRST = 1 << 40
"""Ids of ledgers that are one node's alone, and that no metadata knows of."""

_LOOK_EACH = 64
STALL_S = 0.005
"""Gaps between acknowledgements that are shorter are none."""


class Times(msgspec.Struct, frozen=True):
    """What single appends took, in microseconds."""

    p50_us: float
    p99_us: float
    count: int


class Stalls(msgspec.Struct, frozen=True):
    """How a load fared: gaps between acknowledgements, and what was not acknowledged."""

    acknowledged: int
    gaps: tuple[tuple[float, float], ...]
    """When each began by the clock that all processes share, and how many seconds it took."""

    errors: tuple[str, ...]
    fragments: int


class Batches:
    """Concatenates records to entries, and keeps so many entries under way."""

    def __init__(
        self, writer: LedgerWriter, record: bytes, entry_bytes: int, under_way: int
    ) -> None:
        self.records = 0
        self._writer = writer
        self._record = record
        self._entry_bytes = entry_bytes
        self._room = asyncio.Semaphore(under_way)
        self._under_way = under_way

    async def run(self, turn_s: float) -> None:
        """Append for so long, and wait for all of it."""
        end = time.perf_counter() + turn_s
        while time.perf_counter() < end:
            await self._room.acquire()
            entry = self._fill()
            self._writer.append(entry).add_done_callback(self._on_done)
        for _ in range(self._under_way):
            await self._room.acquire()

    def _fill(self) -> bytes:
        """Take record by record, as they would come from somewhere, until an entry is full."""
        size, records, record = 0, [], self._record
        while size + len(record) <= self._entry_bytes:
            records.append(record)
            size += len(record)
        self.records += len(records)
        return b"".join(records)

    def _on_done(self, future: "asyncio.Future[EntryId]") -> None:
        future.result()
        self._room.release()


def append_records(
    url: str, record_bytes: int, entry_bytes: int, under_way: int, turn_s: float
) -> Turn:
    """Append records in entries for so long."""

    async def turn(cluster: Cluster) -> Turn:
        writer = await cluster.ledgers.create(epoch=EPOCH)
        await writer.write(b"begun")
        batches = Batches(writer, bytes(record_bytes), entry_bytes, under_way)
        gc.collect()
        cpu_s, began = time.process_time(), time.perf_counter()
        await batches.run(turn_s)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        await writer.close()
        return Turn(batches.records, took_s, cpu_s)

    return _run(url, turn)


def append_one_by_one(url: str, payload_bytes: int, turn_s: float) -> Times:
    """Append one after the other for so long."""

    async def turn(cluster: Cluster) -> Times:
        writer = await cluster.ledgers.create(epoch=EPOCH)
        payload = bytes(payload_bytes)

        async def append(_: int) -> None:
            await writer.append(payload)

        times = await _timed(append, turn_s)
        await writer.close()
        return times

    return _run(url, turn)


def add_one_by_one(url: str, ledger: int, payload_bytes: int, turn_s: float) -> Times:
    """Add to the first of the cluster's nodes, without the others."""

    async def turn(cluster: Cluster) -> Times:
        client = (await _clients(cluster))[0]
        payload = bytes(payload_bytes)

        async def add(entry: int) -> None:
            await client.add(
                LedgerId(NODE_LEDGER_FIRST + ledger),
                EntryId(entry),
                payload,
                epoch=EPOCH,
                lac=EntryId(entry - 1),
            )

        return await _timed(add, turn_s)

    return _run(url, turn)


def append_bytes(url: str, payload_bytes: int, entries: int, under_way: int) -> int:
    """Append so many entries, close the ledger, and give its id."""

    async def turn(cluster: Cluster) -> int:
        writer = await cluster.ledgers.create(epoch=EPOCH)
        payload, room = bytes(payload_bytes), asyncio.Semaphore(under_way)

        def on_done(future: "asyncio.Future[EntryId]") -> None:
            future.result()
            room.release()

        for _ in range(entries):
            await room.acquire()
            writer.append(payload).add_done_callback(on_done)
        await writer.close()
        return writer.ledger

    return _run(url, turn)


def append_until(url: str, payload_bytes: int, under_way: int, stop: Path) -> Stalls:
    """Append until a file is there, and note every gap between acknowledgements."""

    async def turn(cluster: Cluster) -> Stalls:
        writer = await cluster.ledgers.create(epoch=EPOCH)
        load = _Load(writer, bytes(payload_bytes), under_way)
        await load.run(stop)
        await writer.close()
        return Stalls(
            load.acknowledged,
            tuple(load.gaps),
            tuple(load.errors),
            len(writer.document.fragments),
        )

    return _run(url, turn)


def open_ensemble(url: str) -> tuple[str, ...]:
    """Name the nodes of the ledger that is written now."""

    async def turn(cluster: Cluster) -> tuple[str, ...]:
        async for document in cluster.ledgers.list_all():
            if document.phase is LedgerPhase.OPEN:
                return document.fragments[-1].nodes
        raise Failed("there is no open ledger")

    return _run(url, turn)


def leave_unconfirmed(url: str, payload_bytes: int, entries: int) -> int:
    """Leave a ledger as a writer does that dies before it could tell any LAC; give its id."""

    async def turn(cluster: Cluster) -> int:
        writer = await cluster.ledgers.create(epoch=EPOCH)
        await writer.abandon()
        clients = await _clients(cluster, writer.document.nodes)
        await asyncio.gather(
            *(_add_all(client, writer.ledger, bytes(payload_bytes), entries) for client in clients)
        )
        return writer.ledger

    return _run(url, turn)


def recover(url: str, ledger: int, entries: int) -> Turn:
    """Recover a ledger, all entries of which have to be there then."""

    async def turn(cluster: Cluster) -> Turn:
        gc.collect()
        cpu_s, began = time.process_time(), time.perf_counter()
        document = await cluster.ledgers.recover(LedgerId(ledger), epoch=NEXT_EPOCH)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        if document.last != entries - 1:
            raise Failed(f"of {entries} entries those up to {document.last} were recovered")
        return Turn(entries, took_s, cpu_s)

    return _run(url, turn)


def repair(url: str, ledger: int, gone: str) -> float:
    """Repair a closed ledger that has lost a node; seconds until nothing is left to do."""

    async def turn(cluster: Cluster) -> float:
        began = time.perf_counter()
        whole = await cluster.ledgers.repair(LedgerId(ledger), gone=[NodeId(gone)])
        took_s = time.perf_counter() - began
        if not whole:
            raise Failed(f"ledger {ledger} could not be repaired")
        return took_s

    return _run(url, turn)


def read_one_copy(url: str, ledger: int) -> float:
    """Read all of a ledger from one of its nodes; seconds."""

    async def turn(cluster: Cluster) -> float:
        document = await cluster.ledgers.describe(LedgerId(ledger))
        last = document.last
        if last is None:
            raise Failed(f"ledger {ledger} is open")
        (client,) = await _clients(cluster, document.fragments[-1].nodes[:1])
        first, began = 0, time.perf_counter()
        while first <= last:
            async for batch in client.read(LedgerId(ledger), EntryId(first), last):
                if batch.first != first or len(batch.found) != batch.before - first:
                    raise Failed(f"ledger {ledger}: entries are missing from {first} on")
                first = batch.before
        return time.perf_counter() - began

    return _run(url, turn)


def nodes_of(url: str, ledger: int) -> tuple[str, ...]:
    """Name the nodes of a ledger."""

    async def turn(cluster: Cluster) -> tuple[str, ...]:
        return (await cluster.ledgers.describe(LedgerId(ledger))).nodes

    return _run(url, turn)


class _Load:
    """Keeps some appends under way, and notes when each is acknowledged."""

    def __init__(self, writer: LedgerWriter, payload: bytes, under_way: int) -> None:
        self.acknowledged = 0
        self.gaps: list[tuple[float, float]] = []
        self.errors: list[str] = []
        self._writer = writer
        self._payload = payload
        self._under_way = under_way
        self._room = asyncio.Semaphore(under_way)
        self._latest = 0.0
        self._looks = 0

    async def run(self, stop: Path) -> None:
        """Append until told to stop, and wait for all of it."""
        self._latest = time.monotonic()
        while not self._told(stop):
            await self._room.acquire()
            try:
                self._writer.append(self._payload).add_done_callback(self._on_done)
            except RoostError as error:
                self.errors.append(str(error))
                self._room.release()
                await asyncio.sleep(0.01)
        for _ in range(self._under_way):
            await self._room.acquire()

    def _told(self, stop: Path) -> bool:
        """Look for the file, now and then."""
        self._looks += 1
        return self._looks % _LOOK_EACH == 0 and stop.exists()

    def _on_done(self, future: "asyncio.Future[EntryId]") -> None:
        now = time.monotonic()
        if now - self._latest > STALL_S:
            self.gaps.append((self._latest, now - self._latest))
        self._latest = now
        self._room.release()
        if (error := future.exception()) is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))


async def _timed(work: Callable[[int], Awaitable[None]], turn_s: float) -> Times:
    clock = time.perf_counter
    await work(0)  # the first one makes what the others find
    gc.collect()
    taken_s: list[float] = []
    end = clock() + turn_s
    while (began := clock()) < end:
        await work(len(taken_s) + 1)
        taken_s.append(clock() - began)
    taken_s.sort()
    count = len(taken_s)
    return Times(taken_s[count // 2] * 1e6, taken_s[count * 99 // 100] * 1e6, count)


class _Adds:
    """A sink that waits until all is stored."""

    def __init__(self, count: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def stored(self, tag: int) -> None:  # noqa: ARG002 (it is a sink)
        """Count."""
        self._left -= 1
        if not self._left:
            self.ended.set_result(None)

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (it is a sink)
        """End at once."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def settle(self) -> None:
        """Nothing to do."""


async def _add_all(client: NodeClient, ledger: LedgerId, payload: bytes, entries: int) -> None:
    adds = _Adds(entries)
    for entry in range(entries):
        client.start_add(
            ledger, EntryId(entry), payload, epoch=EPOCH, lac=NO_ENTRY, sink=adds, tag=entry
        )
        if entry % 256 == 255:
            await client.connection.drained()
    await adds.ended


async def _clients(cluster: Cluster, nodes: Sequence[str] = ()) -> list[NodeClient]:
    """Connect to nodes: those of these names, or all that are registered."""
    registered = sorted(each.candidate.node for each in cluster.directory.nodes())
    wanted = [NodeId(name) for name in nodes] or registered
    return [await cluster.ledgers.nodes.connect(node) for node in wanted]


def _run(url: str, turn: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run a turn on connections of its own."""

    async def opened() -> T:
        seams = Seams(
            clock=SystemClock(),
            disk=PosixDisk(guarded=False),
            net=AsyncioNet(),
            rng=system_rng(),
            tasks=ThreadTasks(),
        )
        appending = AppendSettings(append_timeout_s=60.0)
        async with await Cluster.open(
            url, seams=seams, name="bench", timeout_s=30.0, appending=appending
        ) as cluster:
            return await turn(cluster)

    return _runner().run(opened())


@cache
def _runner() -> asyncio.Runner:
    """Give the one loop of this process: gRPC takes notice of the first one alone."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
