"""The wire's kernel and its plain twin on the same bytes: the same answers, or the same errors."""

import struct
from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType

from roost.wire import _kernel, plain
from roost.wire.entry import encode_entry
from roost.wire.frame import HEAD_BYTES, encode_frame
from roost.wire.messages import ADD, ADDED, ENTRIES, encode_add
from tests.fuzz.changes import SIZES, any_bytes, any_number

# What is asked; then three numbers of any size; then the bytes.
SETTINGS = "<BQQQ"
SIZE = struct.calcsize(SETTINGS)
LEDGER = 7
BLOCK_HEAD = "<HBBIIQQ"
FRAME_HEAD = "<IIBBHI"
SLOT = "<QII"


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    blocks = [encode_entry(LEDGER, entry, b"%d" % entry * (entry % 40)) for entry in range(3, 30)]
    frames = [encode_frame(ADD, n, encode_add(n, n - 1), block) for n, block in enumerate(blocks)]
    frames += [
        encode_frame(ADDED, 9, b"body"),
        encode_frame(ENTRIES, 2**32 - 1, b"", b"".join(blocks)),
    ]
    bodies = [
        b"".join(frames),
        encode_add(3, -1) + blocks[5],
        b"".join(blocks),
        b"".join(struct.pack(SLOT, 64 + 30 * n, 30, n) for n in range(9)),
    ]
    return [
        struct.pack(SETTINGS, asked, *numbers) + body
        for asked in range(len(QUESTIONS))
        for body in bodies
        for numbers in ((LEDGER, 3, 30), (0, 500, 1 << 20), (16, 1 << 63, 10))
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change what is asked, or a field somewhere, half of the times with its checksum put right."""
    settings, body = raw[:SIZE].ljust(SIZE, b"\0"), raw[SIZE:]
    match rng.randrange(6):
        case 0:
            return any_number(raw, SETTINGS, rng)
        case 1:
            return any_bytes(raw, rng)
        case 2:
            payload = rng.randbytes(rng.choice((0, 1, 36, 100, 600)))
            at = rng.choice(_blocks_in(body) or [0])
            return (
                settings + body[:at] + encode_entry(LEDGER, rng.randrange(40), payload) + body[at:]
            )
        case 3:
            layout = rng.choice((BLOCK_HEAD, FRAME_HEAD, SLOT))
            at = rng.choice(_blocks_in(body) or [0])
            return settings + body[:at] + any_number(body[at:], layout, rng)
        case 4:
            size = rng.choice(SIZES) % 1000
            made = encode_frame(rng.randrange(256), size, rng.randbytes(size % 99), body[:size])
            return settings + made + body
        case _:
            return settings + body[rng.randrange(HEAD_BYTES) :]


def _blocks_in(body: bytes) -> list[int]:
    """Find where blocks begin, by their first bytes alone."""
    return [at for at in range(len(body)) if body[at : at + 3] == b"\x7a\xe2\x01"]


def _frames(module: ModuleType, body: bytes, first: int, second: int, third: int) -> object:
    found = module.Frames(body, first, second)
    taken = [next(iter(found), None), found.at]
    found.frame_bytes_max = third
    return taken, [*found], found.at


def _read_add(module: ModuleType, body: bytes, first: int, *_: int) -> object:
    start = first % 30
    return [
        module.read_add(body[:16], kind(body[16 + start :]))
        for kind in (bytes, bytearray, memoryview)
    ]


def _holds(module: ModuleType, body: bytes, *numbers: int) -> object:
    return module.holds(body, *numbers)


def _payloads(module: ModuleType, body: bytes, *numbers: int) -> object:
    found = module.payloads(memoryview(body), *numbers)
    return found if found is None else [*found.items()]


def _encode_add(module: ModuleType, body: bytes, first: int, second: int, third: int) -> object:
    signed = second - (1 << 63)
    return [
        module.encode_add(third, first % 257, first, signed, second, third, body, limit)
        for limit in (0, 100, second)
    ]


def _record_head(module: ModuleType, body: bytes, first: int, second: int, third: int) -> object:
    signed = third - (1 << 63)
    return module.record_head(first, second, third, signed, -signed, memoryview(body), second)


def _slots(module: ModuleType, body: bytes, first: int, second: int, third: int) -> object:
    lengths = (28 + second % 90, 28 + third % 90, 27 + first % 100)
    return module.slots([body[:length] for length in lengths], first)


def _adjacent(module: ModuleType, body: bytes, first: int, second: int, _: int) -> object:
    return module.adjacent(body, first, second)


Question = Callable[..., object]
QUESTIONS: tuple[Question, ...] = (
    _frames,
    _read_add,
    _holds,
    _payloads,
    _encode_add,
    _record_head,
    _slots,
    _adjacent,
)
ERRORS = (ValueError, OverflowError, TypeError, BufferError)


def check(raw: bytes) -> None:
    """Play one input."""
    asked, *numbers = struct.unpack(SETTINGS, raw[:SIZE].ljust(SIZE, b"\0"))
    question = QUESTIONS[asked % len(QUESTIONS)]
    answers = [_answer(partial(question, made, raw[SIZE:], *numbers)) for made in (_kernel, plain)]
    assert answers[0] == answers[1]


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except ERRORS as error:
        return type(error)
