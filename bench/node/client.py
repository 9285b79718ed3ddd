"""What the client process does: turns against a node, through `NodeClient`, on uvloop.

Each turn is a function that `Beside` runs. It makes a connection of its own, does one thing for
so long or so often, and returns what it counted.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec
import uvloop

from bench.node.node import CLUSTER
from bench.node.programs import Failed
from roost.errors import RoostError
from roost.host.net import Address, AsyncioNet
from roost.node.client import NodeClient
from roost.rpc.client import Connection
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello, LedgerState, NodeStat
from roost.wire.sink import Sink

T = TypeVar("T")

EPOCH = Epoch(1)
_CONNECT_S = 30.0
_NEVER = 1 << 62


class Load(msgspec.Struct, frozen=True):
    """Which adds: of one size, over some ledgers in turn, with so many under way."""

    ledger: int
    """The first of the ledgers; none of them was written to before."""

    payload_bytes: int
    in_flight: int
    ledgers: int = 1


class Turn(msgspec.Struct, frozen=True):
    """What was done, how long it took, and how much of that the client's processor was busy."""

    done: int
    took_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        """How many a second."""
        return self.done / self.took_s


class Adding(Protocol):
    """As much of a `NodeClient` as a window needs."""

    def start_add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        payload: bytes | memoryview,
        *,
        epoch: Epoch,
        lac: EntryId,
        sink: Sink,
        tag: int,
    ) -> None:
        """Send an entry; `sink` hears by `tag` what became of it."""


class Window:
    """A sink that keeps so many adds under way: one that is stored makes room for the next.

    The adds go over the ledgers in turn, and each tells the LAC that its writer knows of by then.
    """

    def __init__(self, client: Adding, load: Load, adds: int = _NEVER) -> None:
        self.done = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_add = client.start_add
        self._first = load.ledger
        self._ledgers = load.ledgers
        self._payload = bytes(load.payload_bytes)
        self._next = 0
        self._before = adds
        self._fill = min(load.in_flight, adds)

    def start(self) -> None:
        """Fill the window."""
        for _ in range(self._fill):
            self._start_next(-1)

    def stop(self) -> None:
        """Start no more; it ends with what is under way."""
        self._before = min(self._before, self._next)

    def stored(self, tag: int) -> None:
        """Start the next in its place."""
        self.done += 1
        if self._next < self._before:
            self._start_next(tag)
        elif self.done == self._next and not self.ended.done():
            self.ended.set_result(None)

    def refused(self, tag: int, error: RoostError) -> None:  # noqa: ARG002 (it is a sink)
        """End at once: what is measured is a node that stores everything."""
        self.stop()
        if not self.ended.done():
            self.ended.set_exception(error)

    def settle(self) -> None:
        """Do nothing: room was used as soon as it was there."""

    def _start_next(self, upto: int) -> None:
        """Start one; all adds upto this one are stored."""
        tag = self._next
        self._next = tag + 1
        entry, turn = divmod(tag, self._ledgers)
        self._start_add(
            LedgerId(self._first + turn),
            EntryId(entry),
            self._payload,
            epoch=EPOCH,
            lac=EntryId((upto - turn) // self._ledgers if upto >= turn else NO_ENTRY),
            sink=self,
            tag=tag,
        )


def add_for(address: str, load: Load, turn_s: float) -> Turn:
    """Add for so long, and wait for all of it."""

    async def turn(client: NodeClient) -> Turn:
        window = Window(client, load)
        asyncio.get_running_loop().call_later(turn_s, window.stop)
        return await _timed(window)

    return _run(address, turn)


def add_many(address: str, load: Load, adds: int) -> Turn:
    """Add so often, and wait for all of it."""

    async def turn(client: NodeClient) -> Turn:
        return await _timed(Window(client, load, adds))

    return _run(address, turn)


def add_median_us(address: str, ledger: int, payload_bytes: int, turn_s: float) -> float:
    """Add one after the other for so long; tell how long one takes, in microseconds."""

    async def turn(client: NodeClient) -> float:
        payload, clock = bytes(payload_bytes), time.perf_counter
        entry, taken_s = 0, []
        gc.collect()
        end = clock() + turn_s
        while (began := clock()) < end:
            await client.add(
                LedgerId(ledger), EntryId(entry), payload, epoch=EPOCH, lac=EntryId(entry - 1)
            )
            taken_s.append(clock() - began)
            entry += 1
        return statistics.median(taken_s) * 1e6

    return _run(address, turn)


def read_for(address: str, ledger: int, entries: int, turn_s: float) -> Turn:
    """Read all entries of a ledger, again and again for so long."""

    async def turn(client: NodeClient) -> Turn:
        gc.collect()
        cpu_s, began = time.process_time(), time.perf_counter()
        done = 0
        while not done or time.perf_counter() < began + turn_s:
            await _read_all(client, ledger, entries)
            done += entries
        return Turn(done, time.perf_counter() - began, time.process_time() - cpu_s)

    return _run(address, turn)


def state(address: str, ledger: int) -> LedgerState:
    """Ask how a ledger is."""

    async def turn(client: NodeClient) -> LedgerState:
        return await client.state(LedgerId(ledger))

    return _run(address, turn)


def stat(address: str) -> NodeStat:
    """Ask how the node is; to be answered is to serve."""

    async def turn(client: NodeClient) -> NodeStat:
        return await client.stat()

    return _run(address, turn)


async def _read_all(client: NodeClient, ledger: int, entries: int) -> None:
    first = 0
    while first < entries:
        async for batch in client.read(LedgerId(ledger), EntryId(first), EntryId(entries - 1)):
            if batch.first != first or len(batch.found) != batch.before - first:
                raise Failed(f"ledger {ledger}: entries are missing in {first} to {batch.before}")
            first = batch.before


async def _timed(window: Window) -> Turn:
    gc.collect()
    cpu_s, began = time.process_time(), time.perf_counter()
    window.start()
    await window.ended
    return Turn(window.done, time.perf_counter() - began, time.process_time() - cpu_s)


def _run(address: str, turn: Callable[[NodeClient], Awaitable[T]]) -> T:
    """Run a turn on a connection of its own."""

    async def connected() -> T:
        hello = Hello(version=PROTOCOL_VERSION, cluster=CLUSTER, role="client", name="bench")
        connection = await Connection.open(
            AsyncioNet(), Address.parse(address), hello, timeout_s=_CONNECT_S
        )
        try:
            return await turn(NodeClient(connection))
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(connected())
