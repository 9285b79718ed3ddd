"""Requests and answers, over real loops and simulated networks alike."""

import asyncio

import pytest

from roost.errors import (
    Closed,
    Conflict,
    Denied,
    Fenced,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
)
from roost.host.net import Address, Net
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.rpc.session import Peer, Session
from roost.wire.frame import REQUEST_MASK, Frame
from roost.wire.messages import (
    ADD,
    DELETE,
    DONE,
    ENTRIES,
    FENCE,
    MORE,
    READ,
    RECOVERY,
    STATE,
    VERIFY,
)
from tests.unit.rpc.stage import (
    BODY,
    HELLO,
    STAGES,
    WIDE,
    House,
    Outcomes,
    Shelf,
    Stage,
    add,
    block,
    each_stage,
    echo,
    for_ever,
    raises,
)


def add_at_once(session: Session, frame: Frame) -> None:
    session.stored(frame.request)


@each_stage
def test_a_call_is_answered(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()

        answer = await connection.call(STATE, b"body", [b"a", memoryview(b"blob")])

        assert (answer.kind, answer.body, answer.blob) == (DONE, b"body", b"ablob")
        assert connection.welcome.node == "node-1"
        await house.close(connection)
        assert connection.lost.is_set()

    run(program)


@each_stage
def test_adds_are_answered_by_their_tags_and_in_their_order(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add, STATE: echo}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        for tag in range(1000):
            add(connection, outcomes, tag)
            if tag % 100 == 0:
                await connection.call(STATE)
        await shelf.until(1000)

        shelf.store()
        await outcomes.until(1000)

        assert outcomes.heard == [(tag, "stored") for tag in range(1000)]
        assert [frame.blob for frame in shelf.frames] == [block(tag) for tag in range(1000)]
        assert {frame.body for frame in shelf.frames} == {BODY}
        await house.close(connection)

    run(program)


@pytest.mark.parametrize(
    ("run", "sizes"),
    [
        *((stage, (0, 1, 70_000, 100, 300_000, 8_000, 1_500_000, 5)) for stage in WIDE.values()),
        (STAGES["sim, rough"], (0, 1, 9_000, 100, 70_000, 5)),
    ],
)
def test_requests_and_answers_of_any_size_pass(run: Stage, sizes: tuple[int, ...]) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()

        calls = [connection.call(STATE, b"", [bytes([n]) * size]) for n, size in enumerate(sizes)]

        for number, call in enumerate(calls):
            assert (await call).blob == bytes([number]) * sizes[number]
        await house.close(connection)

    run(program)


@each_stage
def test_the_end_of_each_read_is_told_behind_what_was_read(run: Stage) -> None:
    async def program(net: Net) -> None:
        heard: list[str] = []

        def on_add(session: Session, frame: Frame) -> None:
            heard.append("add")
            session.stored(frame.request)
            session.settle()

        house = await House(net, {ADD: on_add}, after_read=lambda: heard.append("read")).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        for tag in range(50):
            add(connection, outcomes, tag)
        await outcomes.until(50)
        await house.close(connection)

        assert outcomes.heard == [(tag, "stored") for tag in range(50)]
        assert heard.count("add") == 50
        assert heard[-1] == "read"

    run(program)


@each_stage
def test_a_flag_travels_with_an_add(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add}).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        connection.add(BODY, [block(0)], outcomes, 0, RECOVERY)
        connection.add(BODY, [block(1)], outcomes, 1)
        await shelf.until(2)

        assert [frame.flags for frame in shelf.frames] == [RECOVERY, 0]
        shelf.store()
        await outcomes.until(2)
        await house.close(connection)

    run(program)


@each_stage
def test_errors_of_handlers_reach_who_asked(run: Stage) -> None:
    def fence(_session: Session, _frame: Frame) -> None:
        raise Fenced("ledger 7 was fenced", ledger=7, epoch=4)

    async def look(_session: Session) -> None:
        raise NotFound("there is no ledger 7")

    def on_state(session: Session, frame: Frame) -> None:
        session.spawn(frame.request, look(session))

    def on_add(session: Session, frame: Frame) -> None:
        session.refused(frame.request, Conflict("there are other bytes"))

    async def program(net: Net) -> None:
        house = await House(net, {FENCE: fence, STATE: on_state, ADD: on_add}).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        add(connection, outcomes, 3)
        assert "was fenced" in await raises(Fenced, connection.call(FENCE))
        assert "no ledger 7" in await raises(NotFound, connection.call(STATE))

        assert outcomes.heard == [(3, "Conflict")]
        await house.close(connection)

    run(program)


@each_stage
def test_a_defect_of_a_handler_is_logged_and_ends_nothing_else(run: Stage) -> None:
    def fails(_session: Session, _frame: Frame) -> None:
        raise KeyError("what is this")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def silent() -> None:
        await asyncio.sleep(0)

    async def program(net: Net) -> None:
        house = await House(
            net,
            {
                FENCE: fails,
                READ: lambda session, frame: session.spawn(frame.request, fail()),
                VERIFY: lambda session, frame: session.spawn(frame.request, silent()),
                STATE: echo,
            },
        ).opened()
        connection = await house.connect()

        assert "KeyError; see its log" in await raises(Unavailable, connection.call(FENCE))
        assert "ZeroDivisionError" in await raises(Unavailable, connection.call(READ))
        assert "AssertionError" in await raises(Unavailable, connection.call(VERIFY))

        assert (await connection.call(STATE, b"well")).body == b"well"
        assert house.log.names == ["request_failed"] * 3
        assert "raise KeyError" in str(house.log.events[0][1]["traceback"])
        await house.close(connection)

    run(program)


@each_stage
def test_what_nobody_handles_is_invalid(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()

        assert "kind DELETE" in await raises(Invalid, connection.call(DELETE))
        assert "kind 99" in await raises(Invalid, connection.call(99))

        assert (await connection.call(STATE, b"well")).body == b"well"
        await house.close(connection)

    run(program)


@each_stage
def test_every_request_is_authorized(run: Stage) -> None:
    asked: list[tuple[str, int, bytes]] = []

    def authorize(peer: Peer, operation: int, request: Frame) -> None:
        asked.append((peer.name, operation, request.body))
        if request.body == b"no":
            raise Denied(f"{peer.role} {peer.name} may not")

    async def program(net: Net) -> None:
        asked.clear()
        house = await House(net, {STATE: echo, ADD: add_at_once}, authorize=authorize).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        assert "client tester may not" in await raises(Denied, connection.call(STATE, b"no"))
        await connection.call(STATE, b"yes")
        connection.add(b"no", [block(0)], outcomes, 0)
        connection.add(BODY, [block(1)], outcomes, 1)
        await outcomes.until(2)

        assert outcomes.heard == [(0, "Denied"), (1, "stored")]
        assert asked == [
            ("tester", STATE, b"no"),
            ("tester", STATE, b"yes"),
            ("tester", ADD, b"no"),
            ("tester", ADD, BODY),
        ]
        await house.close(connection)

    run(program)


@each_stage
def test_ids_of_requests_begin_again_and_pass_over_those_under_way(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add, STATE: echo}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        for tag in range(2):  # these are requests 1 and 2
            add(connection, outcomes, tag)
        connection._next = REQUEST_MASK - 1  # noqa: SLF001 (four thousand million adds later)

        for tag in range(2, 6):
            add(connection, outcomes, tag)
        await connection.call(STATE)
        await shelf.until(6)
        shelf.store()
        await outcomes.until(6)

        ids = [frame.request for frame in shelf.frames]
        assert ids == [1, 2, REQUEST_MASK - 1, REQUEST_MASK, 3, 4]
        assert outcomes.heard == [(tag, "stored") for tag in range(6)]
        await house.close(connection)

    run(program)


@each_stage
def test_a_stream_comes_in_several_frames(run: Stage) -> None:
    async def read(session: Session, frame: Frame) -> None:
        for number in range(20):
            session.reply(frame.request, ENTRIES, b"%d" % number, [bytes(50_000)], MORE)
            await session.drained()
        session.reply(frame.request, ENTRIES, b"last")

    def on_read(session: Session, frame: Frame) -> None:
        session.spawn(frame.request, read(session, frame))

    async def program(net: Net) -> None:
        house = await House(net, {READ: on_read, STATE: echo}).opened()
        connection = await house.connect()

        with connection.stream(READ) as frames:
            await connection.call(STATE)
            bodies = [frame.body async for frame in frames]

        assert bodies == [*(b"%d" % number for number in range(20)), b"last"]
        await house.close(connection)

    run(program)


@each_stage
def test_who_leaves_a_stream_gives_it_up(run: Stage) -> None:
    async def program(net: Net) -> None:
        given_up = asyncio.Event()

        async def read(session: Session, frame: Frame) -> None:
            session.reply(frame.request, ENTRIES, b"first", [b"blob"], MORE)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                given_up.set()

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, read(session, frame))

        house = await House(net, {READ: on_read, STATE: echo}).opened()
        connection = await house.connect()

        with connection.stream(READ) as frames:
            assert (await anext(frames)).body == b"first"
        await given_up.wait()

        await raises(StopAsyncIteration, anext(frames))
        assert (await connection.call(STATE, b"well")).body == b"well"
        await house.close(connection)
        assert house.log.names == ["session_ended"]

    run(program)


@each_stage
def test_giving_up_what_was_answered_does_nothing(run: Stage) -> None:
    def on_read(session: Session, frame: Frame) -> None:
        session.reply(frame.request, ENTRIES, b"all")

    async def program(net: Net) -> None:
        house = await House(net, {READ: on_read, STATE: echo}).opened()
        connection = await house.connect()

        for _ in range(3):
            with connection.stream(READ):
                pass

        assert (await connection.call(STATE, b"well")).body == b"well"
        await house.close(connection)

    run(program)


@each_stage
def test_an_answer_that_nobody_waits_for_any_more_is_dropped(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()

        connection.call(STATE, b"never mind").cancel()

        assert (await connection.call(STATE, b"well")).body == b"well"
        await house.close(connection)

    run(program)


@each_stage
def test_what_is_too_long_is_refused_before_it_is_sent(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(
            net, {ADD: add_at_once, STATE: echo}, limits=Limits(frame_bytes_max=1000)
        ).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        with pytest.raises(Invalid, match="takes at most 1000"):
            add(connection, outcomes, 0, [bytes(1000 - 16 - 16 + 1)])
        with pytest.raises(Invalid, match="takes at most 1000"):
            connection.call(STATE, b"", [bytes(1000)])
        add(connection, outcomes, 1, [bytes(1000 - 16 - 16)])
        await outcomes.until(1)

        assert outcomes.heard == [(1, "stored")]
        await house.close(connection)

    run(program)


@each_stage
def test_nobody_there_is_unavailable(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {}).opened()
        await house.close()

        assert "cannot be reached" in await raises(Unavailable, house.connect())

    run(program)


@each_stage
def test_somebody_who_says_nothing_is_unavailable(run: Stage) -> None:
    async def program(net: Net) -> None:
        accepted: list[asyncio.Protocol] = []

        def silent() -> asyncio.Protocol:
            accepted.append(asyncio.Protocol())
            return accepted[-1]

        listener = await net.listen(silent, Address("127.0.0.1", 0))

        opening = Connection.open(net, listener.address, HELLO, timeout_s=0.1)
        assert "did not answer within 0.1 s" in await raises(Unavailable, opening)
        listener.close()

    run(program)


@each_stage
def test_more_tasks_than_there_may_be_are_throttled(run: Stage) -> None:
    async def program(net: Net) -> None:
        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, for_ever())

        house = await House(net, {READ: on_read}, limits=Limits(tasks_max=2)).opened()
        connection = await house.connect()
        calls = [connection.call(READ) for _ in range(2)]

        assert "2 requests are under way" in await raises(Throttled, connection.call(READ))

        await connection.close()
        for call in calls:
            await raises(Closed, call)
        await house.close()

    run(program)
