"""Peers that do not keep to the protocol: each is told why, is cut off, and harms nobody else."""

import asyncio
import struct
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from roost.errors import Denied, Invalid, RoostError, Unavailable
from roost.host.net import Net
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.rpc.receive import Receiver
from roost.rpc.session import Session
from roost.wire.errors import decode_error, encode_error
from roost.wire.frame import FRAME_BYTES_MAX, HEAD_BYTES, HELLO_BYTES_MAX, Frame, encode_frame
from roost.wire.messages import (
    ADD,
    ADDED,
    ADDED_BODY,
    CANCEL,
    DONE,
    ENTRIES,
    ERROR,
    FENCE,
    HELLO,
    MORE,
    READ,
    STATE,
    WELCOME,
    Welcome,
    decode,
    encode,
)
from tests.unit.rpc import stage
from tests.unit.rpc.stage import (
    ANY_PORT,
    BODY,
    LONG_S,
    House,
    Outcomes,
    Raw,
    Stage,
    block,
    each_stage,
    echo,
    for_ever,
    raises,
    raw_to,
    welcome_of,
)

GREETING = encode_frame(HELLO, 0, encode(stage.HELLO))
WELCOMING = encode_frame(WELCOME, 0, encode(welcome_of(Limits())))
LARGE = encode_frame(STATE, 1, b"", bytes(100_000))


def changed(frame: bytes, at: int) -> bytes:
    raw = bytearray(frame)
    raw[at] ^= 1
    return bytes(raw)


def frames_of(raw: bytes) -> list[Frame]:
    """Take apart what was heard."""
    receiver = Receiver(FRAME_BYTES_MAX)
    frames: list[Frame] = []
    while raw:
        room = receiver.room()
        size = min(len(room), len(raw))
        room[:size] = raw[:size]
        receiver.took(size)
        frames += receiver.frames()
        raw = raw[size:]
    return frames


def keep(session: Session, frame: Frame) -> None:
    """Leave it under way."""


STRANGERS: dict[str, tuple[bytes, type[RoostError], str]] = {
    "no frame": (b"GET / HTTP/1.1\r\nHost: roost\r\n\r\n", Invalid, "at most 4096"),
    "a frame that is too long": (
        struct.pack("<I", HELLO_BYTES_MAX - 3) + bytes(HEAD_BYTES - 4),
        Invalid,
        "4097 bytes: at most 4096",
    ),
    "a frame that was changed": (changed(GREETING, 9), Invalid, "checksum"),
    "a request": (encode_frame(STATE, 1), Invalid, "begin with HELLO"),
    "a request of no id": (encode_frame(ADD, 0), Invalid, "begin with HELLO"),
    "a HELLO of another id": (encode_frame(HELLO, 1, GREETING[16:]), Invalid, "begin with HELLO"),
    "a HELLO of nothing": (encode_frame(HELLO, 0), Invalid, "no Hello"),
    "another cluster": (
        encode_frame(HELLO, 0, encode(replace(stage.HELLO, cluster="other"))),
        Denied,
        "not of 'other'",
    ),
    "another version": (
        encode_frame(HELLO, 0, encode(replace(stage.HELLO, version=9))),
        Invalid,
        "version 9",
    ),
}


@each_stage
@pytest.mark.parametrize(("said", "kind", "reason"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_told_why_and_cut_off(
    run: Stage, said: bytes, kind: type[RoostError], reason: str
) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        raw = await raw_to(net, house.address)

        raw.transport.write(said + GREETING)
        await raw.lost.wait()

        (frame,) = frames_of(bytes(raw.heard))
        error = decode_error(frame.body)
        assert (frame.kind, frame.request, type(error)) == (ERROR, 0, kind)
        assert reason in str(error)
        assert house.log.names[0] == "session_refused"
        await house.log.until("session_ended")
        await house.close()

    run(program)


@each_stage
def test_who_says_nothing_is_cut_off(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {}, limits=Limits(hello_s=0.05)).opened()
        raw = await raw_to(net, house.address)

        raw.transport.write(GREETING[:-1])
        await raw.lost.wait()

        (frame,) = frames_of(bytes(raw.heard))
        assert "no HELLO within 0.05 s" in str(decode_error(frame.body))
        await house.log.until("session_ended")
        await house.close()

    run(program)


@each_stage
def test_who_was_turned_away_and_stays_is_cut_off(run: Stage) -> None:
    class Stubborn(Raw):
        def eof_received(self) -> bool:
            return True

    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        raw = Stubborn()
        await net.connect(lambda: raw, house.address)

        raw.transport.write(encode_frame(STATE, 1) + GREETING + encode_frame(STATE, 2))
        await house.log.until("session_ended")

        assert len(frames_of(bytes(raw.heard))) == 1
        raw.transport.abort()
        await house.close()

    run(program)


@each_stage
def test_a_peer_that_was_made_welcome_may_come_byte_by_byte(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        raw = await raw_to(net, house.address)

        for byte in GREETING + encode_frame(STATE, 1, b"body", b"blob"):
            raw.transport.write(bytes((byte,)))
            await asyncio.sleep(0)
        await raw.until_heard(len(WELCOMING) + HEAD_BYTES + 8)

        welcome, answer = frames_of(bytes(raw.heard))
        assert decode(welcome.body, Welcome).node == "node-1"
        assert answer == (DONE, 0, 1, b"body", b"blob")
        raw.transport.close()
        await raw.lost.wait()
        await house.log.until("session_ended")
        await house.close()

    run(program)


@each_stage
def test_requests_need_not_wait_for_the_welcome(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        raw = await raw_to(net, house.address)

        raw.transport.write(GREETING + LARGE)
        await raw.until_heard(len(WELCOMING) + len(LARGE))

        assert [f.kind for f in frames_of(bytes(raw.heard))] == [WELCOME, DONE]
        raw.transport.abort()
        await house.log.until("session_ended")
        await house.close()

    run(program)


@each_stage
def test_runs_of_adds_are_answered_together(run: Stage) -> None:
    async def program(net: Net) -> None:
        def on_state(session: Session, frame: Frame) -> None:
            for tag in (1, 2, 3, 5, 6, 4, 9):
                session.stored(tag)
            session.reply(frame.request, DONE)
            session.stored(10)
            session.stored(11)

        house = await House(net, {ADD: keep, STATE: on_state}).opened()
        raw = await raw_to(net, house.address)

        adds = b"".join(encode_frame(ADD, n, BODY, block(n)) for n in (1, 2, 3, 4, 5, 6, 9, 10, 11))
        raw.transport.write(GREETING + adds + encode_frame(STATE, 12))
        await raw.until_heard(len(WELCOMING) + 5 * 20 + 16)

        runs = [
            (frame.request, *ADDED_BODY.unpack(frame.body)) if frame.kind == ADDED else "DONE"
            for frame in frames_of(bytes(raw.heard))[1:]
        ]
        assert runs == [(1, 3), (5, 2), (4, 1), (9, 1), "DONE", (10, 2)]
        raw.transport.abort()
        await house.log.until("session_ended")
        await house.close()

    run(program)


VIOLATIONS: dict[str, tuple[bytes, str]] = {
    "a frame that is too long": (
        struct.pack("<I", FRAME_BYTES_MAX - 3) + bytes(HEAD_BYTES - 4),
        f"at most {FRAME_BYTES_MAX}",
    ),
    "a frame that was changed": (changed(encode_frame(STATE, 2, b"body"), 16), "checksum"),
    "a large frame that was changed": (changed(LARGE, 12), "checksum"),
    "another HELLO": (GREETING, "no place here"),
    "the id 0": (encode_frame(STATE, 0), "id 0"),
    "an id that is under way": (encode_frame(STATE, 1), "id 1"),
    "an unknown request whose id is under way": (encode_frame(99, 1), "no place here"),
}


@each_stage
@pytest.mark.parametrize(("said", "reason"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_who_breaks_the_protocol_is_told_why_and_cut_off(
    run: Stage, said: bytes, reason: str
) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {ADD: keep, STATE: echo}).opened()
        other = await house.connect()
        raw = await raw_to(net, house.address)

        raw.transport.write(GREETING + encode_frame(ADD, 1, BODY, block(1)) + said)
        raw.transport.write(encode_frame(STATE, 3))
        await raw.lost.wait()

        _, frame = frames_of(bytes(raw.heard))
        error = decode_error(frame.body)
        assert (frame.kind, frame.request, type(error)) == (ERROR, 0, Invalid)
        assert reason in str(error)
        assert (await other.call(STATE, b"well")).body == b"well"
        await house.log.until("session_ended")
        await house.close(other)

    run(program)


@each_stage
def test_giving_up_what_is_not_under_way_does_nothing(run: Stage) -> None:
    async def program(net: Net) -> None:
        house = await House(net, {STATE: echo}).opened()
        raw = await raw_to(net, house.address)

        for request in (0, 1, 2**32 - 1):
            raw.transport.write(encode_frame(CANCEL, request))
        raw.transport.write(GREETING)
        await raw.lost.wait()  # before the HELLO it has no place
        raw = await raw_to(net, house.address)
        raw.transport.write(GREETING + encode_frame(CANCEL, 0) + encode_frame(CANCEL, 1))
        raw.transport.write(encode_frame(STATE, 1))
        await raw.until_heard(len(WELCOMING) + HEAD_BYTES)

        assert [frame.kind for frame in frames_of(bytes(raw.heard))] == [WELCOME, DONE]
        raw.transport.abort()
        await house.log.until("session_ended", 2)
        await house.close()

    run(program)


@each_stage
def test_an_id_is_free_once_its_request_was_answered(run: Stage) -> None:
    async def program(net: Net) -> None:
        first_ends = asyncio.Event()

        async def first(session: Session, frame: Frame) -> None:
            session.reply(frame.request, DONE, b"first")
            await first_ends.wait()  # there is something left to do

        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, first(session, frame))

        def on_state(session: Session, frame: Frame) -> None:
            first_ends.set()
            session.reply(frame.request, DONE)

        def on_fence(session: Session, frame: Frame) -> None:
            session.reply(1, DONE, b"second")
            session.reply(frame.request, DONE)

        handlers = {READ: on_read, ADD: keep, STATE: on_state, FENCE: on_fence}
        house = await House(net, handlers).opened()
        raw = await raw_to(net, house.address)

        raw.transport.write(GREETING + encode_frame(READ, 1))
        size = len(await raw.until_heard(len(WELCOMING) + HEAD_BYTES + 5))
        raw.transport.write(encode_frame(ADD, 1, BODY, block(1)) + encode_frame(STATE, 2))
        size = len(await raw.until_heard(size + HEAD_BYTES))
        raw.transport.write(encode_frame(FENCE, 3))
        await raw.until_heard(size + 2 * HEAD_BYTES + 6)

        heard = [(frame.request, frame.body) for frame in frames_of(bytes(raw.heard))[1:]]
        assert heard == [(1, b"first"), (2, b""), (1, b"second"), (3, b"")]
        raw.transport.abort()
        await house.log.until("session_ended")
        await house.close()
        assert house.log.names == ["session_ended"]

    run(program)


@each_stage
def test_a_request_that_is_given_up_is_answered_all_the_same(run: Stage) -> None:
    async def program(net: Net) -> None:
        def on_read(session: Session, frame: Frame) -> None:
            session.spawn(frame.request, for_ever())

        house = await House(net, {READ: on_read}).opened()
        raw = await raw_to(net, house.address)

        raw.transport.write(GREETING + encode_frame(READ, 1) + encode_frame(CANCEL, 1))
        await raw.until(lambda: len(raw.heard) > len(WELCOMING) + HEAD_BYTES)

        frame = frames_of(bytes(raw.heard))[-1]
        assert (frame.kind, frame.request) == (ERROR, 1)
        assert "given up" in str(decode_error(frame.body))
        raw.transport.abort()
        await house.log.until("session_ended")
        await house.close()

    run(program)


class Liar(Raw):
    """A server that answers each of its client's frames as it was told to."""

    def __init__(self, answers: dict[int, Callable[[int], bytes]]) -> None:
        super().__init__()
        self._answers = answers
        self._receiver = Receiver(FRAME_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self._receiver.room()[: len(data)] = data
        self._receiver.took(len(data))
        for frame in self._receiver.frames():
            if answer := self._answers.get(frame.kind):
                self.transport.write(answer(frame.request))


async def lied_to(
    net: Net, answers: dict[int, Callable[[int], bytes]], limits: Limits | None = None
) -> Connection:
    welcoming = {HELLO: lambda _request: WELCOMING}
    listener = await net.listen(lambda: Liar({**welcoming, **answers}), ANY_PORT)
    try:
        return await Connection.open(
            net, listener.address, stage.HELLO, timeout_s=LONG_S, limits=limits or Limits()
        )
    finally:
        listener.close()


def added(first: int, count: int) -> bytes:
    return encode_frame(ADDED, first, ADDED_BODY.pack(count))


LIES: dict[str, bytes] = {
    "no adds": added(2, 0),
    "more adds than there are": added(2, 4),
    "adds that are not under way": added(4, 3),
    "an add that was answered before": added(2, 1) + added(2, 1),
    "adds beyond the highest id": added(2**32 - 1, 2),
    "an ADDED of another form": encode_frame(ADDED, 2, b"\1\0\0"),
    "an answer to nothing": encode_frame(DONE, 99),
    "a call answered as an add": added(1, 1),
    "an add answered as a call": encode_frame(DONE, 2),
    "more of what has one answer": encode_frame(ENTRIES, 1, flags=MORE),
    "another WELCOME": WELCOMING,
    "a request": encode_frame(STATE, 1),
    "an error of nothing": encode_frame(ERROR, 99, encode_error(Invalid("what"))),
    "an error that is none": encode_frame(ERROR, 1, b"what"),
    "a frame that was changed": changed(added(2, 1), 16),
    "a frame that is too long": struct.pack("<I", FRAME_BYTES_MAX) + bytes(12),
    "the end of it all": encode_frame(ERROR, 0, encode_error(Unavailable("full"))),
}


@each_stage
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_server_that_lies_counts_as_lost(run: Stage, lie: bytes) -> None:
    async def program(net: Net) -> None:
        connection = await lied_to(net, {READ: lambda _request: lie + added(2, 3)})
        outcomes = Outcomes()
        call = connection.call(STATE)
        for tag in range(3):
            connection.add(BODY, [block(tag)], outcomes, tag)
        reading = connection.call(READ)

        await connection.lost.wait()

        stored = [(0, "stored")] if lie.startswith(added(2, 1)) else []
        unknown = [(tag, "Unknown") for tag in range(len(stored), 3)]
        assert outcomes.heard == stored + unknown
        await raises(Unavailable, call)
        await raises(Unavailable, reading)

    run(program)


GREETINGS: dict[str, tuple[bytes, type[RoostError], str]] = {
    "silence, and the end": (b"", Unavailable, "no more"),
    "an answer": (encode_frame(DONE, 0), Unavailable, "broke the protocol"),
    "a WELCOME of nothing": (encode_frame(WELCOME, 0), Unavailable, "broke the protocol"),
    "a WELCOME of another id": (
        encode_frame(WELCOME, 1, WELCOMING[16:]),
        Unavailable,
        "broke the protocol",
    ),
    "a frame that is too long": (
        encode_frame(WELCOME, 0, b"", bytes(HELLO_BYTES_MAX)),
        Unavailable,
        "at most 4096",
    ),
    "another cluster": (
        encode_frame(WELCOME, 0, encode(replace(welcome_of(Limits()), cluster="other"))),
        Denied,
        "belongs to cluster 'other'",
    ),
    "another version": (
        encode_frame(WELCOME, 0, encode(replace(welcome_of(Limits()), version=2))),
        Invalid,
        "version 2",
    ),
    "a refusal": (encode_frame(ERROR, 0, encode_error(Denied("not you"))), Denied, "not you"),
    "a refusal that is none": (encode_frame(ERROR, 0, b"what"), Unavailable, "broke the protocol"),
}


@each_stage
@pytest.mark.parametrize(("said", "kind", "reason"), GREETINGS.values(), ids=GREETINGS)
def test_nobody_talks_to_a_server_that_does_not_welcome_them(
    run: Stage, said: bytes, kind: type[RoostError], reason: str
) -> None:
    class Rude(Raw):
        def data_received(self, _data: bytes) -> None:
            self.transport.write(said)
            self.transport.close()

    async def program(net: Net) -> None:
        listener = await net.listen(Rude, ANY_PORT)

        opening = Connection.open(net, listener.address, stage.HELLO, timeout_s=LONG_S)
        assert reason in await raises(kind, opening)
        listener.close()

    run(program)


@each_stage
def test_a_server_may_not_send_what_nobody_has_asked_for_without_end(run: Stage) -> None:
    async def program(net: Net) -> None:
        def much(request: int) -> bytes:
            return b"".join(
                encode_frame(ENTRIES, request, b"", bytes(100), MORE) for _ in range(90)
            )

        connection = await lied_to(net, {READ: much}, limits=Limits(stream_bytes_max=10_000))

        stream = connection.stream(READ)
        await connection.lost.wait()

        for _ in range(10_000 // 356 + 1):
            await anext(stream)
        assert "nobody has read" in await raises(Unavailable, anext(stream))

    run(program)


@each_stage
def test_nothing_comes_behind_the_last_frame_of_a_stream(run: Stage) -> None:
    async def program(net: Net) -> None:
        last = encode_frame(ENTRIES, 1, b"last")
        connection = await lied_to(net, {READ: lambda _request: last + last})

        stream = connection.stream(READ)
        await connection.lost.wait()

        assert [frame.body async for frame in stream] == [b"last"]

    run(program)


@each_stage
def test_frames_of_a_stream_that_was_left_are_dropped(run: Stage) -> None:
    async def program(net: Net) -> None:
        more = encode_frame(ENTRIES, 1, b"", bytes(100), MORE)
        connection = await lied_to(
            net,
            {
                READ: lambda _request: more,
                CANCEL: lambda request: more * 90 + encode_frame(ENTRIES, request),
                STATE: lambda request: encode_frame(DONE, request),
            },
            limits=Limits(stream_bytes_max=10_000),
        )

        with connection.stream(READ) as stream:
            await anext(stream)

        assert (await connection.call(STATE)).kind == DONE
        await connection.close()

    run(program)
