"""The kernel and its plain twin on the same bytes: the same answers, or the same errors."""

import struct
from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType

from roost.segments import _kernel, plain
from tests.fuzz.changes import any_bytes, any_frames, any_number
from tests.fuzz.frames import frame

# What is asked; where to start and stop, and what else there is to say; then the bytes.
SETTINGS = ">BHHH"
SIZE = struct.calcsize(SETTINGS)


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    body = b"".join(frame(b"%d" % n * (1 + n * n % 50)) for n in range(1, 20))
    nested = frame(frame(b"inner") * 3) + body
    return [
        struct.pack(SETTINGS, asked, start, 65_535, extra) + content
        for asked in range(len(QUESTIONS))
        for content in (body, nested[:-3], bytes(40) + body)
        for start, extra in ((0, 0), (0, 300), (9, 1000))
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change what is asked, the frames, or anything."""
    match rng.randrange(5):
        case 0:
            return any_number(raw, SETTINGS, rng)
        case 1:
            return any_bytes(raw, rng)
        case _:
            return raw[:SIZE].ljust(SIZE, b"\0") + any_frames(raw[SIZE:], rng)


def _scan(module: ModuleType, body: bytes, start: int, stop: int, _: int) -> object:
    return module.scan(body, start, stop)


def _boundary(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    return module.boundary(body, start, stop, extra)


def _resume(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    return module.resume(body, start, stop, extra)


def _frames(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    payloads = [body[start:stop], body[:extra], body]
    return module.crc32(body, start), module.frames(payloads)


def _next(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    cursor, slot, copies = _reader(module, body, start, stop, begin=extra % 100)
    said = [cursor.next() for _ in range(30)]
    return said, cursor.position, slot.sequence, bytes(copies)


def _take(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    cursor, slot, copies = _reader(module, body, start, stop, begin=start % 7)
    said = [cursor.take(count, extra) for count in (0, 1, 3, 100)]
    return said, cursor.position, slot.sequence, bytes(copies)


def _reader(
    module: ModuleType, body: bytes, start: int, stop: int, *, begin: int
) -> tuple[plain.Cursor, plain.Slot, bytearray]:
    ends = module.Ends()
    ends.visible = stop
    copies = bytearray(256)
    view = memoryview(copies)
    slot = module.Slot(b"p" * 104, view[:128], view[128:], sequence=start, position=stop)
    cursor = module.Cursor(ends, position=start, slot=slot)
    cursor.open_window(memoryview(body), begin)
    return cursor, slot, copies


def _append(module: ModuleType, body: bytes, start: int, stop: int, extra: int) -> object:
    ends = module.Ends()
    ends.written = start
    room = bytearray(stop % 4096)
    appender = module.Appender(ends, publish=bool(extra & 1))
    appender.open_window(memoryview(room), extra % 50)
    sizes = (extra % 300, 1, start % 90, 0, len(body))
    said = [appender.append(body[:size]) for size in sizes]
    return said, ends.written, ends.visible, bytes(room)


Question = Callable[[ModuleType, bytes, int, int, int], object]
QUESTIONS: tuple[Question, ...] = (_scan, _boundary, _resume, _frames, _next, _take, _append)
ERRORS = (ValueError, OverflowError, TypeError, BufferError)


def check(raw: bytes) -> None:
    """Play one input."""
    asked, start, stop, extra = struct.unpack(SETTINGS, raw[:SIZE].ljust(SIZE, b"\0"))
    question = QUESTIONS[asked % len(QUESTIONS)]
    body = raw[SIZE:]
    stop = len(body) if stop == 65_535 else stop
    answers = [
        _answer(partial(question, module, body, start, stop, extra)) for module in (_kernel, plain)
    ]
    assert answers[0] == answers[1]


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except ERRORS as error:
        return type(error)
