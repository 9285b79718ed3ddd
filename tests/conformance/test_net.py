"""What every network does: the contract of `roost.host.net`, for both kinds of protocols.

A stage runs an asyncio program on the network that it belongs to: the machine's own over loopback,
or a simulated one with delays, mishaps and small windows. What a network loses is tested on the
simulated one alone.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from roost.errors import Invalid
from roost.host.net import Address, AsyncioNet, Net
from roost.host.seams import Seams
from roost.sim.medium import NetFaults
from roost.sim.world import World

Program = Callable[[Net], Coroutine[Any, Any, None]]

ANY_PORT = Address("127.0.0.1", 0)
LONG_S = 30.0
BIG = 3_000_000


def on_the_machine(program: Program) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG_S):
            await program(AsyncioNet())

    asyncio.run(main())


def simulated(faults: NetFaults) -> Callable[[Program], None]:
    def run(program: Program) -> None:
        for seed in range(5):
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


STAGES: dict[str, Callable[[Program], None]] = {
    "asyncio": on_the_machine,
    "sim": simulated(NetFaults()),
    "sim, rough": simulated(
        NetFaults(delays_long=0.02, splits=0.5, lingers=0.5, loses=0.001, window_bytes=4096)
    ),
}


@pytest.fixture(params=[*STAGES.values()], ids=[*STAGES])
def run(request: pytest.FixtureRequest) -> Callable[[Program], None]:
    stage: Callable[[Program], None] = request.param
    return stage


class Notes:
    """What a protocol has seen, and events to wait for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received = bytearray()
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.error: Exception | None = None
        self.some = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.keep_open = False
        self.transport: asyncio.Transport

    async def until_received(self, size: int) -> bytes:
        """Wait until so much was received."""
        while len(self.received) < size:
            self.some.clear()
            await self.some.wait()
        return bytes(self.received)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.calls.append("made")

    def received_some(self, piece: bytes | memoryview) -> None:
        if not self.received:
            self.calls.append("received")
        assert not self.lost.is_set(), "bytes came on a lost connection"
        self.received += piece
        self.some.set()

    def eof_received(self) -> bool:
        self.calls.append("end")
        self.ended.set()
        return self.keep_open

    def pause_writing(self) -> None:
        self.room.clear()
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.room.set()
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.error = exc
        self.lost.set()


class Plain(Notes, asyncio.Protocol):
    """Is handed bytes."""

    def data_received(self, data: bytes) -> None:
        self.received_some(data)


class Buffered(Notes, asyncio.BufferedProtocol):
    """Has its bytes put into a buffer of its own, a small one."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray(1000)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received_some(memoryview(self._buffer)[:nbytes])


KINDS: dict[str, Callable[[], Plain | Buffered]] = {"plain": Plain, "buffered": Buffered}


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
def kind(request: pytest.FixtureRequest) -> Callable[[], Plain | Buffered]:
    make: Callable[[], Plain | Buffered] = request.param
    return make


class Pair(msgspec.Struct, frozen=True):
    """Both ends of one connection."""

    client: Plain | Buffered
    server: Plain | Buffered


async def connected(net: Net, kind: Callable[[], Plain | Buffered]) -> Pair:
    """Listen, connect, and wait until both sides have begun."""
    accepted: asyncio.Queue[Plain | Buffered] = asyncio.Queue()

    class Accepting(kind):  # type: ignore[misc, valid-type]  # the kind is the test's parameter
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.put_nowait(self)

    listener = await net.listen(Accepting, ANY_PORT)
    client = kind()
    transport = await net.connect(lambda: client, listener.address)
    assert client.transport is transport
    pair = Pair(client, await accepted.get())
    listener.close()
    return pair


def text(size: int) -> bytes:
    return Random(size).randbytes(size)


def test_bytes_arrive_whole_and_in_order(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        for begin in range(0, 100_000, 7919):
            pair.client.transport.write(text(100_000)[begin : begin + 7919])
        assert await pair.server.until_received(100_000) == text(100_000)
        pair.server.transport.write(b"well")
        assert await pair.client.until_received(4) == b"well"
        pair.client.transport.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


def test_calls_come_in_order(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.client.transport.write(b"text")
        pair.client.transport.close()
        await pair.server.lost.wait()
        await pair.client.lost.wait()
        assert pair.client.calls == ["made", "lost"]
        assert pair.server.calls == ["made", "received", "end", "lost"]
        assert pair.server.received == b"text"
        assert pair.server.error is None
        assert pair.client.error is None

    run(program)


def test_a_writer_is_paused_while_nobody_reads_and_resumed_then(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.server.transport.pause_reading()
        transport = pair.client.transport
        while pair.client.room.is_set():
            transport.write(text(BIG))
        assert transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]

        pair.server.transport.resume_reading()
        await pair.client.room.wait()
        size = transport.get_write_buffer_size()
        assert size <= transport.get_write_buffer_limits()[0]
        assert pair.client.calls == ["made", "pause", "resume"]
        transport.close()
        await pair.server.lost.wait()
        assert len(pair.server.received) % BIG == 0
        assert pair.server.received[:BIG] == text(BIG)

    run(program)


def test_closing_sends_what_was_written(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.client.transport.write(text(BIG))
        pair.client.transport.close()
        pair.client.transport.write(b"ignored")
        assert pair.client.transport.is_closing()
        await pair.server.lost.wait()
        assert pair.server.received == text(BIG)
        await pair.client.lost.wait()

    run(program)


def test_aborting_is_prompt_and_may_cut_what_was_written(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        written = b""
        while pair.client.room.is_set():
            pair.client.transport.write(text(BIG))
            written += text(BIG)
        pair.client.transport.abort()
        assert pair.client.transport.get_write_buffer_size() == 0
        await pair.client.lost.wait()
        await pair.server.lost.wait()
        size = len(pair.server.received)
        assert size < len(written)
        assert pair.server.received == written[:size]

    run(program)


def test_a_connection_is_lost_once(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        for end in (pair.client, pair.server):
            end.transport.close()
            end.transport.abort()
            end.transport.close()
            await end.lost.wait()
        pair.client.transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
        assert pair.client.calls == ["made", "lost"]
        assert pair.server.calls == ["made", "lost"]

    run(program)


def test_one_side_may_end_and_go_on_to_read(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.server.keep_open = True
        pair.client.transport.write(b"question")
        assert pair.client.transport.can_write_eof()
        pair.client.transport.write_eof()
        with pytest.raises(RuntimeError):
            pair.client.transport.write(b"more")
        await pair.server.ended.wait()
        assert pair.server.received == b"question"
        pair.server.transport.write(b"answer")
        assert await pair.client.until_received(6) == b"answer"
        pair.server.transport.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


def test_nothing_is_read_while_reading_is_paused(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.client.transport.pause_reading()
        assert not pair.client.transport.is_reading()
        pair.server.transport.write(b"later")
        pair.client.transport.write(b"now")
        assert await pair.server.until_received(3) == b"now"
        assert not pair.client.received
        pair.client.transport.resume_reading()
        assert await pair.client.until_received(5) == b"later"
        pair.client.transport.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


def test_a_written_buffer_may_be_used_again_at_once(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        buffer = bytearray(b"first ")
        pair.client.transport.write(buffer)
        buffer[:] = b"second"
        pair.client.transport.write(memoryview(buffer))
        pair.client.transport.writelines([b" and", b" third"])
        assert await pair.server.until_received(22) == b"first second and third"
        pair.client.transport.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


def test_who_writes_to_a_closed_peer_learns_of_it(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.client.keep_open = True
        pair.server.transport.close()
        await pair.server.lost.wait()
        await pair.client.ended.wait()
        while not pair.client.lost.is_set():
            pair.client.transport.write(b"is anybody there?")
            with suppress(TimeoutError):
                await asyncio.wait_for(pair.client.lost.wait(), 0.001)
        assert isinstance(pair.client.error, ConnectionResetError | BrokenPipeError)

    run(program)


def test_both_sides_know_the_other(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        client, server = pair.client.transport, pair.server.transport
        assert client.get_extra_info("peername")[1] == server.get_extra_info("sockname")[1]
        assert server.get_extra_info("peername")[1] == client.get_extra_info("sockname")[1]
        client.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


def test_nobody_there_is_a_refusal(run: Any) -> None:
    async def program(net: Net) -> None:
        listener = await net.listen(Plain, ANY_PORT)
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await net.connect(Plain, listener.address)

    run(program)


def test_a_port_is_taken_once(run: Any) -> None:
    async def program(net: Net) -> None:
        listener = await net.listen(Plain, ANY_PORT)
        assert listener.address.port > 0
        with pytest.raises(OSError, match=r".") as caught:
            await net.listen(Plain, listener.address)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()

    run(program)


def test_connections_outlive_their_listener(run: Any, kind: Any) -> None:
    async def program(net: Net) -> None:
        pair = await connected(net, kind)
        pair.client.transport.write(b"still here")
        assert await pair.server.until_received(10) == b"still here"
        pair.client.transport.close()
        await pair.client.lost.wait()
        await pair.server.lost.wait()

    run(program)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("localhost:80", Address("localhost", 80)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("node-1.example.org:65535", Address("node-1.example.org", 65535)),
        ("[::1]:4000", Address("::1", 4000)),
    ],
)
def test_addresses_read_as_they_are_written(written: str, address: Address) -> None:
    assert Address.parse(written) == address
    assert str(address) == written


NOT_ADDRESSES = [
    "",
    "host",
    ":80",
    "host:",
    "host:http",
    "host:-1",
    "host:65536",
    "::1:80",
    "a b:80",
    "host:80 ",
    "host:٣",
    "[::1]",
    "[host:80",
    "host:80:80",
    "host:9999999999999",
]


@pytest.mark.parametrize("text", NOT_ADDRESSES)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="address"):
        Address.parse(text)
