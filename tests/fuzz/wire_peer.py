"""Either end of a connection, facing a peer that sends anything, before or after the handshake.

A server answers, refuses, or cuts the peer off: no handler fails but as it means to, no request has
two last answers, what it holds for the peer is bounded. A client makes of any answers either those
that its requests can have, or a lost connection, and each add is heard of exactly once.
"""

import asyncio
from contextlib import suppress
from random import Random

from roost.errors import Fenced, RoostError
from roost.host.log import Memory
from roost.host.net import Address
from roost.host.seams import Seams
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.rpc.receive import BUFFER_BYTES, GROWTH, Receiver
from roost.rpc.server import Server
from roost.rpc.session import REQUEST_BYTES, Peer, Session
from roost.sim.medium import NetFaults
from roost.sim.world import World
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import encode_entry
from roost.wire.errors import decode_error, encode_error
from roost.wire.frame import BadFrame, Frame, encode_frame
from roost.wire.messages import (
    ADD,
    ADDED,
    ADDED_BODY,
    CANCEL,
    CLOSE,
    DELETE,
    DONE,
    ENTRIES,
    ERROR,
    FENCE,
    HELLO,
    MORE,
    READ,
    STATE,
    WELCOME,
    Fence,
    Hello,
    Read,
    State,
    Welcome,
    decode,
    encode,
    encode_add,
)
from tests.fuzz.changes import any_bytes

SERVER, WELCOMED, CUT = 1, 2, 4
LIMITS = Limits(
    frame_bytes_max=6000, held_bytes_max=8000, tasks_max=3, output_bytes_max=4000, hello_s=1.0
)
PORT = Address("127.0.0.1", 4000)
GREETING = encode_frame(HELLO, 0, encode(Hello(1, "test", "client", "fuzz")))
WELCOMING_BODY = encode(Welcome(1, "test", "node", bytes(16), LIMITS.frame_bytes_max))
WELCOMING = encode_frame(WELCOME, 0, WELCOMING_BODY)
BLOCK = encode_entry(LedgerId(7), EntryId(1), b"payload")
PATIENCE_S = 60.0
KNOWN = (HELLO, ADD, READ, STATE, FENCE, CLOSE, DELETE, CANCEL)

ASKED = (
    GREETING,
    *(encode_frame(ADD, request, encode_add(1, 0), BLOCK) for request in (1, 2, 3, 5)),
    encode_frame(STATE, 6, encode(State(LedgerId(7)))),
    encode_frame(READ, 7, encode(Read(LedgerId(7), EntryId(0), EntryId(20), 1000))),
    encode_frame(FENCE, 8, encode(Fence(LedgerId(7), Epoch(2)))),
    encode_frame(CLOSE, 9),
    encode_frame(CANCEL, 9),
    encode_frame(DELETE, 10),
    encode_frame(ADD, 11, encode_add(1, 0), bytes(3000)),
    encode_frame(99, 12),
)
ANSWERED = (
    WELCOMING,
    encode_frame(ADDED, 1, ADDED_BODY.pack(1)),
    encode_frame(ADDED, 2, ADDED_BODY.pack(2)),
    encode_frame(DONE, 4, b"body"),
    encode_frame(ENTRIES, 5, b"", BLOCK, flags=MORE),
    encode_frame(ENTRIES, 5),
    encode_frame(ERROR, 2, encode_error(Fenced("fenced", ledger=7, epoch=3))),
    encode_frame(ERROR, 0, encode_error(RoostError("over"))),
)


def seeds() -> list[bytes]:
    """Make inputs to begin with: a byte says which end is meant, and what has been said already."""
    return [
        bytes((SERVER, 0)) + b"".join(ASKED),
        bytes((SERVER | WELCOMED, 1)) + b"".join(ASKED[1:]),
        bytes((SERVER | CUT, 2)) + ASKED[0] + ASKED[1] * 2,
        bytes((SERVER | WELCOMED | CUT, 3)) + b"".join(ASKED[:0:-1]),
        bytes((WELCOMED, 4)) + b"".join(ANSWERED[2:6]),
        bytes((WELCOMED | CUT, 5)) + b"".join((*ANSWERED[1:6], ANSWERED[7])),
        bytes((0, 6)) + WELCOMING,
        bytes((WELCOMED, 7)) + ANSWERED[6] + ANSWERED[3],
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change anything, or one frame whose checksum is then put right."""
    if rng.randrange(4) == 0 or len(raw) < 2:
        return any_bytes(raw, rng)
    frames = _frames_in(raw[2:])
    if not frames or rng.randrange(3) == 0:
        frames.insert(rng.randrange(len(frames) + 1), rng.choice(ASKED + ANSWERED))
    at = rng.randrange(len(frames))
    match rng.randrange(5):
        case 0:
            frames.insert(at, frames[rng.randrange(len(frames))])
        case 1:
            del frames[at]
        case 2:
            frames[at] = any_bytes(frames[at], rng)
        case _:
            frames[at] = _changed(frames[at], rng)
    return raw[:2] + b"".join(frames)


def check(raw: bytes) -> None:
    """Play one input."""
    way, seed = raw[:2].ljust(2, b"\0")
    content = raw[2:]
    _check_receiver(content, Random(seed))
    world = World(seed)
    with world:
        if way & CUT:
            world.network.misbehave(NetFaults(splits=0.8, window_bytes=700))
        main = _Server(content, way) if way & SERVER else _Client(content, way)

        async def story() -> None:
            process = world.host("here").start("program", main.run)
            async with asyncio.timeout(PATIENCE_S):
                await process.ended.wait()

        world.run(story)
    main.judge()


class _Server:
    """A server that does a little of everything, and a peer that says what it was given."""

    def __init__(self, content: bytes, way: int) -> None:
        self._content = (GREETING if way & WELCOMED else b"") + content
        self._log = Memory()
        self._asked: dict[int, int] = {}
        self._kept: dict[tuple[Session, int], int] = {}
        self._heard = bytearray()

    async def run(self, seams: Seams) -> None:
        server = Server(
            seams.net,
            welcome=decode(WELCOMING_BODY, Welcome),
            handlers={
                ADD: self._on_add,
                STATE: _on_state,
                READ: _on_read,
                FENCE: _on_fence,
                CLOSE: _on_close,
                DELETE: self._on_delete,
            },
            authorize=self._authorize,
            limits=LIMITS,
            log=self._log,
        )
        await server.start(PORT)
        peer = _Speaker(self._content, self._heard)
        await seams.net.connect(lambda: peer, PORT)
        await asyncio.sleep(2.0)
        peer.transport.abort()
        await server.stop(1.0)
        assert server.connections == 0

    def judge(self) -> None:
        """See that all was answered as it should have been."""
        assert "request_failed" not in self._log.names, self._log.events
        answers: dict[int, int] = {}
        for frame in _parsed(bytes(self._heard)):
            if frame.kind == ADDED:
                (count,) = ADDED_BODY.unpack(frame.body)
                answered = range(frame.request, frame.request + count)
            else:
                answered = range(frame.request, frame.request + (not frame.flags & MORE))
            if frame.kind == ERROR:
                assert isinstance(decode_error(frame.body), RoostError)
            for request in answered:
                answers[request] = answers.get(request, 0) + 1
        unknown = sum(frame.kind not in KNOWN for frame in _lenient(self._content))
        for request, count in answers.items():
            asked = self._asked.get(request, 0) + unknown
            assert request == 0 or count <= asked, f"request {request} was answered {count} times"

    def _authorize(self, peer: Peer, _operation: int, request: Frame) -> None:
        assert peer.role in ("client", "node", "admin")
        self._asked[request.request] = self._asked.get(request.request, 0) + 1

    def _on_add(self, session: Session, frame: Frame) -> None:
        if frame.request % 2:
            session.stored(frame.request)
        else:
            self._kept[session, frame.request] = len(frame.blob) + REQUEST_BYTES
            held = sum(self._kept.values())
            assert held <= LIMITS.held_bytes_max + LIMITS.frame_bytes_max + REQUEST_BYTES

    def _on_delete(self, session: Session, frame: Frame) -> None:
        for _, tag in self._kept:
            session.stored(tag)
        session.settle()
        self._kept.clear()
        session.reply(frame.request, DONE)


def _on_state(session: Session, frame: Frame) -> None:
    session.reply(frame.request, DONE, encode(decode(frame.body, State)))


def _on_fence(_session: Session, frame: Frame) -> None:
    fence = decode(frame.body, Fence)
    raise Fenced("it was fenced", ledger=fence.ledger, epoch=fence.epoch)


def _on_close(session: Session, frame: Frame) -> None:
    async def wait() -> None:
        await asyncio.sleep(0.5)
        session.reply(frame.request, DONE)

    session.spawn(frame.request, wait())


def _on_read(session: Session, frame: Frame) -> None:
    asked = decode(frame.body, Read)

    async def read() -> None:
        for _ in range(min(20, asked.upto)):
            session.reply(frame.request, ENTRIES, b"", [BLOCK], MORE)
            await session.drained()
        session.reply(frame.request, ENTRIES)

    session.spawn(frame.request, read())


class _Client:
    """A client that asks for a little of everything, and a server that says what it was given."""

    def __init__(self, content: bytes, way: int) -> None:
        self._welcoming = WELCOMING if way & WELCOMED else content
        self._content = content
        self._heard: list[int] = []
        self._opened = False

    async def run(self, seams: Seams) -> None:
        listener = await seams.net.listen(lambda: _Answering(self._welcoming, self._content), PORT)
        hello = Hello(1, "test", "client", "fuzz")
        try:
            connection = await Connection.open(
                seams.net, listener.address, hello, timeout_s=2.0, limits=LIMITS
            )
        except RoostError:
            return
        self._opened = True
        for tag in range(3):
            try:
                connection.add(encode_add(1, 0), [BLOCK], self, tag)
            except RoostError:
                self._heard.append(tag)
        await self._ask(connection)
        await connection.close()
        assert connection.lost.is_set()

    async def _ask(self, connection: Connection) -> None:
        try:
            call, stream = connection.call(STATE), connection.stream(READ)
        except RoostError:
            return
        with suppress(RoostError):
            assert (await call).kind in (DONE, ENTRIES)
        with suppress(RoostError), stream:
            async for frame in stream:
                assert frame.kind in (DONE, ENTRIES)

    def judge(self) -> None:
        """See that each add was heard of once."""
        assert sorted(self._heard) == ([0, 1, 2] if self._opened else [])

    def stored(self, tag: int) -> None:
        self._heard.append(tag)

    def refused(self, tag: int, error: RoostError) -> None:
        assert isinstance(error, RoostError)
        self._heard.append(tag)

    def settle(self) -> None:
        pass


class _Speaker(asyncio.Protocol):
    """Says what it has to say, and keeps what it hears."""

    def __init__(self, content: bytes, heard: bytearray) -> None:
        self._content = content
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._content)

    def data_received(self, data: bytes) -> None:
        self._heard += data


class _Answering(asyncio.Protocol):
    """Answers the first thing it hears, then the next, and ends."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, _data: bytes) -> None:
        if self._answers:
            self._transport.write(self._answers.pop(0))
        if not self._answers:
            self._transport.close()


def _check_receiver(content: bytes, rng: Random) -> None:
    """See that what comes out depends on the bytes alone, and takes no more memory than they."""
    whole = _parsed(content, len(content) + 1)
    assert _parsed(content, 1 + rng.randrange(300)) == whole


def _parsed(content: bytes, piece_bytes: int = 500) -> list[Frame]:
    """Collect frames as far as they are frames."""
    receiver = Receiver(LIMITS.frame_bytes_max)
    frames: list[Frame] = []
    there = 0
    try:
        while there < len(content):
            room = receiver.room()
            assert 0 < len(room) <= max(BUFFER_BYTES, GROWTH * there)
            piece = content[there : there + min(piece_bytes, len(room))]
            room[: len(piece)] = piece
            receiver.took(len(piece))
            frames.extend(f._replace(blob=bytes(f.blob)) for f in receiver.frames())
            there += len(piece)
    except BadFrame:
        pass
    return frames


def _lenient(content: bytes) -> list[Frame]:
    """Take apart bytes by their lengths alone."""
    return [Frame(raw[8], raw[9], 0, b"", b"") for raw in _frames_in(content) if len(raw) > 9]


def _frames_in(content: bytes) -> list[bytes]:
    """Cut bytes into frames by their lengths; the last piece is what is none."""
    pieces = []
    while content:
        size = 4 + int.from_bytes(content[:4], "little")
        pieces.append(content[:size])
        content = content[size:]
    return pieces


def _changed(raw: bytes, rng: Random) -> bytes:
    """Change one part of a frame, and put its checksum right."""
    raw = raw.ljust(16, b"\0")
    kind, flags = raw[8], raw[9]
    body_bytes = int.from_bytes(raw[10:12], "little")
    request = int.from_bytes(raw[12:16], "little")
    body, blob = raw[16 : 16 + body_bytes], raw[16 + body_bytes :]
    match rng.randrange(5):
        case 0:
            kind = rng.choice((*range(14), 65, 66, 67, 68, 99, 127))
        case 1:
            flags = rng.choice((0, 1, 255))
        case 2:
            request = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 2**32 - 1))
        case 3:
            body = any_bytes(body, rng)
        case _:
            blob = any_bytes(blob, rng) * rng.choice((1, 1, 3, 50))
    return encode_frame(kind, request, body[:1000], blob[:4000], flags)
