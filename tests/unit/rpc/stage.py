"""Where the tests of connections play: real loops over loopback, and simulated networks.

One program is both ends. On each stage it runs to its end, within a limit that nothing reaches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
import uvloop

from roost.errors import RoostError
from roost.host.net import Address, AsyncioNet, Net
from roost.host.seams import Seams
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.rpc.server import Server
from roost.rpc.session import Authorize, Handler, Peer, Session
from roost.sim.medium import NetFaults
from roost.sim.world import World
from roost.types import EntryId, LedgerId
from roost.wire.entry import encode_entry
from roost.wire.frame import Frame
from roost.wire.messages import DONE, Hello, Welcome, encode_add

Program = Callable[[Net], Coroutine[Any, Any, None]]
Stage = Callable[[Program], None]

ANY_PORT = Address("127.0.0.1", 0)
LONG_S = 60.0
SEEDS = 3
HELLO = Hello(version=1, cluster="test", role="client", name="tester")
BODY = encode_add(1, -1)


async def _limited(program: Program) -> None:
    async with asyncio.timeout(LONG_S):
        await program(AsyncioNet())


def on_asyncio(program: Program) -> None:
    asyncio.run(_limited(program))


def on_uvloop(program: Program) -> None:
    uvloop.run(_limited(program))


def simulated(faults: NetFaults) -> Stage:
    def run(program: Program) -> None:
        for seed in range(SEEDS):
            with World(seed) as world:
                world.network.misbehave(faults)

                async def main(seams: Seams) -> None:
                    await program(seams.net)

                async def story(world: World = world, main: Any = main) -> None:
                    process = world.host("here").start("program", main)
                    async with asyncio.timeout(3600):
                        await process.ended.wait()

                world.run(story)

    return run


STAGES: dict[str, Stage] = {
    "asyncio": on_asyncio,
    "uvloop": on_uvloop,
    "sim": simulated(NetFaults()),
    "sim, rough": simulated(
        NetFaults(delays_long=0.02, splits=0.5, lingers=0.5, loses=0.001, window_bytes=4096)
    ),
}

# What is rough has a narrow way, too: megabytes take hours there.
WIDE = {name: stage for name, stage in STAGES.items() if name != "sim, rough"}

each_wide_stage = pytest.mark.parametrize("run", WIDE.values(), ids=WIDE)
each_stage = pytest.mark.parametrize("run", STAGES.values(), ids=STAGES)


class Outcomes:
    """A sink that keeps what it hears, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []
        """Tags, with 'stored' or the name of the error's class."""

        self.errors: list[RoostError] = []
        self._wanted = 0
        self._enough = asyncio.Event()

    @property
    def tags(self) -> list[int]:
        return [tag for tag, _ in self.heard]

    def stored(self, tag: int) -> None:
        self._hear(tag, "stored")

    def refused(self, tag: int, error: RoostError) -> None:
        self.errors.append(error)
        self._hear(tag, type(error).__name__)

    def settle(self) -> None:
        """Nothing is held back."""

    async def until(self, count: int) -> None:
        """Wait until so much was heard."""
        self._wanted = count
        self._enough.clear()
        if len(self.heard) < count:
            await self._enough.wait()

    def _hear(self, tag: int, outcome: str) -> None:
        self.heard.append((tag, outcome))
        if len(self.heard) == self._wanted:
            self._enough.set()


def allow(_peer: Peer, _operation: int, _request: Frame) -> None:
    """Let everybody do everything."""


def welcome_of(limits: Limits) -> Welcome:
    return Welcome(
        version=1,
        cluster="test",
        node="node-1",
        uuid=bytes(16),
        frame_bytes_max=limits.frame_bytes_max,
    )


class Diary:
    """A log that keeps everything, and can be waited for."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self._news = asyncio.Event()

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))
        self._news.set()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    async def until(self, name: str, count: int = 1) -> None:
        """Wait until that has happened so often."""
        while self.names.count(name) < count:
            self._news.clear()
            await self._news.wait()


class House:
    """A server with its log, and connections to it."""

    def __init__(
        self,
        net: Net,
        handlers: Mapping[int, Handler],
        *,
        limits: Limits | None = None,
        authorize: Authorize = allow,
        after_read: Callable[[], None] = lambda: None,
    ) -> None:
        self.net = net
        self.log = Diary()
        self.limits = limits or Limits()
        self.address = ANY_PORT
        self.server = Server(
            net,
            welcome=welcome_of(self.limits),
            handlers=handlers,
            authorize=authorize,
            limits=self.limits,
            log=self.log,
            after_read=after_read,
        )

    async def opened(self) -> "House":
        self.address = await self.server.start(ANY_PORT)
        return self

    async def connect(self, hello: Hello = HELLO, limits: Limits | None = None) -> Connection:
        return await Connection.open(
            self.net, self.address, hello, timeout_s=LONG_S, limits=limits or self.limits
        )

    async def close(self, *connections: Connection) -> None:
        for connection in connections:
            await connection.close()
        await self.server.stop(LONG_S)
        assert self.server.connections == 0


def block(entry: int, payload: bytes = b"payload") -> bytes:
    return encode_entry(LedgerId(7), EntryId(entry), payload)


class Raw(asyncio.Protocol):
    """An end of a connection that says what it wants to, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.news = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set()
        self.news.set()

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until that is so."""
        while not enough():
            self.news.clear()
            await self.news.wait()

    async def until_heard(self, size: int) -> bytes:
        """Wait until so much was heard."""
        await self.until(lambda: len(self.heard) >= size)
        return bytes(self.heard)


async def raw_to(net: Net, address: Address) -> Raw:
    """Connect without a word."""
    raw = Raw()
    await net.connect(lambda: raw, address)
    return raw


async def raises(kind: type[BaseException], awaited: Awaitable[object]) -> str:
    """See that it fails so, and tell why."""
    with pytest.raises(kind) as caught:
        await awaited
    assert type(caught.value) is kind
    return str(caught.value)


def echo(session: Session, frame: Frame) -> None:
    """Answer with what was asked."""
    session.reply(frame.request, DONE, frame.body, [frame.blob])


class Shelf:
    """Keeps what is added, and stores it all when it is told to."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.waiting: list[tuple[Session, int]] = []
        self.some = asyncio.Event()

    def on_add(self, session: Session, frame: Frame) -> None:
        self.frames.append(frame)
        self.waiting.append((session, frame.request))
        self.some.set()

    async def until(self, count: int) -> None:
        while len(self.frames) < count:
            self.some.clear()
            await self.some.wait()

    def store(self) -> None:
        waiting, self.waiting = self.waiting, []
        for session, tag in waiting:
            session.stored(tag)
        for session, _ in waiting:
            session.settle()


def add(
    connection: Connection, outcomes: Outcomes, tag: int, blob: Sequence[bytes | memoryview] = ()
) -> None:
    connection.add(BODY, blob or [block(tag)], outcomes, tag)


async def for_ever() -> None:
    """Wait for nothing."""
    await asyncio.get_running_loop().create_future()
