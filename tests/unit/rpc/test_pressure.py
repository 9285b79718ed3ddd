"""Back-pressure: whoever is slow makes others wait, and memory stay what it was."""

import asyncio

from roost.errors import Throttled
from roost.host.net import Net
from roost.rpc.limits import Limits
from roost.rpc.session import Session
from roost.wire.frame import FRAME_BYTES_MAX, Frame, encode_frame
from roost.wire.messages import ADD, DONE, ENTRIES, HELLO, MORE, READ, STATE, encode
from tests.unit.rpc import stage
from tests.unit.rpc.stage import (
    BODY,
    House,
    Outcomes,
    Stage,
    block,
    each_stage,
    each_wide_stage,
    echo,
    raises,
    raw_to,
)

GREETING = encode_frame(HELLO, 0, encode(stage.HELLO))


async def turns(count: int) -> None:
    """Let everything that is ready happen, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class Slow:
    """Takes adds, and stores them one by one when it is told to."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Session, int]] = []
        self.most = 0
        self.some = asyncio.Event()

    def on_add(self, session: Session, frame: Frame) -> None:
        self.under_way.append((session, frame.request))
        self.most = max(self.most, len(self.under_way))
        self.some.set()

    async def until(self, count: int) -> None:
        while len(self.under_way) < count:
            self.some.clear()
            await self.some.wait()

    async def store(self, count: int) -> None:
        for _ in range(count):
            await self.until(1)
            session, tag = self.under_way.pop(0)
            session.stored(tag)
            session.settle()


@each_stage
def test_adds_beyond_the_limit_wait_until_others_are_stored(run: Stage) -> None:
    async def program(net: Net) -> None:
        slow = Slow()
        house = await House(net, {ADD: slow.on_add}, limits=Limits(held_bytes_max=100_000)).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        async def write() -> None:
            for tag in range(100):
                connection.add(BODY, [block(tag, bytes(9_600))], outcomes, tag)
                await connection.drained()

        writing = asyncio.ensure_future(write())
        await slow.until(11)
        await turns(50)
        await slow.store(100)
        await writing
        await outcomes.until(100)

        assert outcomes.tags == [*range(100)]
        assert slow.most == 11  # the one that passes the limit is the last
        await house.close(connection)

    run(program)


@each_stage
def test_a_single_request_above_the_limit_gets_through(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}, limits=Limits(held_bytes_max=1000)).opened()
        connection = await house.connect()

        for _ in range(3):
            answer = await connection.call(STATE, b"", [bytes(5000)])
            assert len(answer.blob) == 5000

        await house.close(connection)

    run(program)


@each_wide_stage
def test_a_peer_that_does_not_read_its_answers_is_not_read_from(run: Stage) -> None:
    async def program(net: Net) -> None:
        asked: list[int] = []

        def on_state(session: Session, frame: Frame) -> None:
            asked.append(frame.request)
            session.reply(frame.request, DONE, b"", [bytes(200_000)])

        house = await House(net, {STATE: on_state}).opened()
        raw = await raw_to(net, house.address)
        raw.transport.write(GREETING)
        await raw.until(lambda: len(raw.heard) > 0)
        raw.transport.pause_reading()
        size = len(raw.heard)

        for request in range(1, 200):
            raw.transport.write(encode_frame(STATE, request))
            await turns(5)
        seen = len(asked)
        raw.transport.resume_reading()
        await raw.until_heard(size + 199 * 200_016)

        assert asked == [*range(1, 200)]
        assert seen < 150
        raw.transport.abort()
        await house.close()

    run(program)


@each_wide_stage
def test_a_task_waits_for_its_slow_reader(run: Stage) -> None:
    async def program(net: Net) -> None:
        sent: list[int] = []
        begun = asyncio.Event()

        async def read(session: Session, frame: Frame) -> None:
            for number in range(100):
                sent.append(number)
                begun.set()
                session.reply(frame.request, ENTRIES, b"", [bytes(500_000)], MORE)
                await session.drained()
            session.reply(frame.request, ENTRIES)

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, read(session, frame))

        house = await House(net, {READ: on_read}).opened()
        raw = await raw_to(net, house.address)
        raw.transport.write(GREETING)
        await raw.until(lambda: len(raw.heard) > 0)
        size = len(raw.heard)
        raw.transport.pause_reading()
        raw.transport.write(encode_frame(READ, 1))

        await begun.wait()
        await turns(300)
        seen = len(sent)
        raw.transport.resume_reading()
        await raw.until_heard(size + 100 * 500_016 + 16)

        assert seen < 60
        raw.transport.abort()
        await house.close()

    run(program)


@each_wide_stage
def test_a_client_waits_for_a_server_that_does_not_read(run: Stage) -> None:
    async def program(net: Net) -> None:
        slow = Slow()
        house = await House(net, {ADD: slow.on_add, STATE: echo}).opened()
        connection = await house.connect()
        await connection.call(STATE)
        house.server.throttle(on=True)
        outcomes = Outcomes()

        async def write() -> None:
            for tag in range(60):
                connection.add(BODY, [block(tag, bytes(1_000_000))], outcomes, tag)
                await connection.drained()

        writing = asyncio.ensure_future(write())
        await asyncio.wait([writing], timeout=0.2)
        assert not writing.done()
        assert not slow.under_way
        house.server.throttle(on=False)
        await slow.store(60)
        await writing
        await outcomes.until(60)

        assert outcomes.heard == [(tag, "stored") for tag in range(60)]
        await house.close(connection)

    run(program)


@each_stage
def test_who_comes_while_all_are_throttled_is_made_welcome_and_waits(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        house.server.throttle(on=True)

        connection = await house.connect()
        call = connection.call(STATE, b"later")
        await turns(50)
        assert not call.done()
        house.server.throttle(on=False)

        assert (await call).body == b"later"
        await house.close(connection)

    run(program)


@each_stage
def test_a_server_takes_as_many_connections_as_it_may(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}, limits=Limits(connections_max=2)).opened()
        first, second = await house.connect(), await house.connect()

        assert "takes no more" in await raises(Throttled, house.connect())
        await second.close()
        await house.log.until("session_ended", 2)
        third = await house.connect()

        assert (await first.call(STATE, b"1")).body == b"1"
        assert (await third.call(STATE, b"3")).body == b"3"
        await house.close(first, third)

    run(program)


@each_wide_stage
def test_the_longest_frame_passes_both_ways(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()
        blob = bytes(range(256)) * (FRAME_BYTES_MAX // 256)
        blob = blob[: FRAME_BYTES_MAX - 16]

        assert (await connection.call(STATE, b"", [blob])).blob == blob

        await house.close(connection)

    run(program)
