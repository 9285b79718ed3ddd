"""How connections end: what each side hears, and what a server that stops still does."""

import asyncio

import pytest

from roost.errors import Closed, NotFound, Unavailable
from roost.host.net import Net
from roost.rpc.session import Session
from roost.wire.frame import Frame
from roost.wire.messages import ADD, DELETE, ENTRIES, READ, STATE
from tests.unit.rpc.stage import (
    LONG_S,
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


@each_stage
def test_when_the_server_is_gone_adds_are_unknown_and_all_else_unavailable(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        ended: list[Session] = []

        def end(session: Session, _frame: Frame) -> None:
            ended.append(session)
            session.abort()

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, for_ever())

        house = await House(net, {ADD: shelf.on_add, READ: on_read, DELETE: end}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        for tag in range(3):
            add(connection, outcomes, tag)
        stream = connection.stream(READ)
        call = connection.call(READ)
        await shelf.until(3)

        await raises(Unavailable, connection.call(DELETE))

        assert outcomes.heard == [(tag, "Unknown") for tag in range(3)]
        assert "may or may not be stored" in str(outcomes.errors[0])
        await raises(Unavailable, call)
        await raises(Unavailable, anext(stream))
        with pytest.raises(Unavailable, match="is no more"):
            add(connection, outcomes, 4)
        with pytest.raises(Unavailable, match="is no more"):
            connection.call(STATE)
        await connection.drained()
        shelf.store()  # too late, and harmless
        ended[0].refused(1, NotFound("so is this"))
        await house.close(connection)

    run(program)


@each_stage
def test_tasks_end_with_their_connection(run: Stage) -> None:
    async def program(net: Net) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def read() -> None:
            begun.set()
            try:
                await for_ever()
            finally:
                ended.set()

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, read())

        house = await House(net, {READ: on_read}).opened()
        connection = await house.connect()
        call = connection.call(READ)
        await begun.wait()

        connection.abort()
        await ended.wait()

        await raises(Closed, call)
        await house.close()
        assert house.log.names == ["session_ended"]

    run(program)


@each_stage
def test_closing_sends_what_was_gathered(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add}).opened()
        connection = await house.connect()
        outcomes = Outcomes()

        add(connection, outcomes, 0)
        await connection.close()
        await shelf.until(1)

        assert shelf.frames[0].blob == block(0)
        assert outcomes.heard == [(0, "Unknown")]
        await house.close()

    run(program)


@each_stage
def test_nobody_waits_for_a_lost_connection_to_drain(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        connection = await house.connect()
        await connection.call(STATE)
        house.server.throttle(on=True)
        calls = [connection.call(STATE, b"", [bytes(10_000_000)]) for _ in range(3)]
        draining = asyncio.ensure_future(connection.drained())
        await asyncio.wait([draining], timeout=0.05)
        assert not draining.done()

        connection.abort()
        await draining

        for call in calls:
            await raises(Closed, call)
        await house.close()

    run(program)


@each_stage
def test_who_closes_hears_that_it_was_closed(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, for_ever())

        house = await House(net, {ADD: shelf.on_add, READ: on_read}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        add(connection, outcomes, 0)
        call = connection.call(READ)
        stream = connection.stream(READ)
        await shelf.until(1)

        await connection.close()
        await connection.close()
        connection.abort()

        assert outcomes.heard == [(0, "Unknown")]
        await raises(Closed, call)
        await raises(Closed, anext(stream))
        with pytest.raises(Closed, match="it was closed"):
            connection.call(READ)
        await house.close()

    run(program)


@each_stage
def test_a_server_that_stops_answers_what_is_under_way(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        answer = asyncio.Event()

        async def read(session: Session, frame: Frame) -> None:
            await answer.wait()
            session.reply(frame.request, ENTRIES, b"there", [bytes(400_000)])

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, read(session, frame))

        house = await House(net, {ADD: shelf.on_add, READ: on_read}).opened()
        connection, idle = await house.connect(), await house.connect()
        outcomes = Outcomes()
        call = connection.call(READ)
        add(connection, outcomes, 5)
        await shelf.until(1)

        stopping = asyncio.ensure_future(house.server.stop(LONG_S))
        await idle.lost.wait()
        assert not connection.lost.is_set()
        assert "cannot be reached" in await raises(Unavailable, house.connect())
        answer.set()
        shelf.store()
        await stopping

        assert len((await call).blob) == 400_000
        await connection.lost.wait()
        assert outcomes.heard == [(5, "stored")]
        assert "server_cut_off" not in house.log.names
        await connection.close()

    run(program)


@each_stage
def test_a_server_that_stops_takes_no_more_requests(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add, STATE: echo}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        add(connection, outcomes, 0)
        await shelf.until(1)

        stopping = asyncio.ensure_future(house.server.stop(LONG_S))
        await asyncio.sleep(0)
        add(connection, outcomes, 1)
        call = connection.call(STATE)
        await asyncio.wait([call], timeout=0.2)
        shelf.store()
        await stopping
        await outcomes.until(2)

        assert outcomes.heard == [(0, "stored"), (1, "Unknown")]
        await raises(Unavailable, call)
        assert len(shelf.frames) == 1

    run(program)


@each_stage
def test_who_comes_while_a_server_stops_does_not_hold_it_up(run: Stage) -> None:
    async def program(net: Net) -> None:
        for number in range(20):
            house = await House(net, {STATE: echo}).opened()
            opening = asyncio.ensure_future(house.connect())
            await asyncio.sleep(number * 0.0002)

            await house.server.stop(LONG_S)

            try:
                connection = await opening
            except Unavailable:
                continue
            await connection.lost.wait()
            assert "server_cut_off" not in house.log.names

    run(program)


@each_stage
def test_a_server_that_stops_waits_no_longer_than_it_was_told_to(run: Stage) -> None:
    async def program(net: Net) -> None:
        shelf = Shelf()
        house = await House(net, {ADD: shelf.on_add}).opened()
        connection = await house.connect()
        outcomes = Outcomes()
        add(connection, outcomes, 5)
        await shelf.until(1)

        await house.server.stop(0.05)

        await outcomes.until(1)
        assert outcomes.heard == [(5, "Unknown")]
        assert "server_cut_off" in house.log.names
        assert house.server.connections == 0
        shelf.store()
        await connection.close()

    run(program)
