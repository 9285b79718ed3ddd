"""A compressed segment of any bytes, alone in its folder.

What of the stream can be decompressed is the truth that the oracle goes by: the stream's own
reader has tests of its own. Served is what stands there as a whole frame, and nothing else; the
file stays as it is. Streams that unpack to far more than they take cost no more memory than others.
"""

import struct
from random import Random

from roost.segments.compress import BadStream, Method, compressor, decompress
from tests.fuzz.changes import any_bytes, any_frames, any_number
from tests.fuzz.folders import MESSAGE_BYTES_MAX, disk_of, files_of, use
from tests.fuzz.frames import check_served, frame, packed_header
from tests.fuzz.slots import BOUNDED, bound_file, on_the_brink

# The way to open it; the method; which number its name has; the header's begin, and how many
# bytes it says that there are, with zero for as many as there are.
SETTINGS = ">BBIQQ"
METHODS: tuple[Method, ...] = ("snappy", "gzip", "zstd")
FOREIGN, BAD_HEADER = 8, 16
LOOKED_AT_MAX = 1 << 20
"""Streams that hold more are not compared with what they hold, but have to be survived."""


def packed(method: Method, body: bytes) -> bytes:
    """Compress a body."""
    stream = compressor(method)
    return stream.add(body) + stream.finish()


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    body = b"".join(frame(b"%d" % n * (1 + n * n % 50)) for n in range(1, 20))
    bodies = (body, frame(b"\0" * 60_000) * 3, bytes(300_000))
    return [
        struct.pack(SETTINGS, way, METHODS.index(method), 3, begin, 0) + packed(method, content)
        for method in METHODS
        for content in bodies
        for way, begin in ((0, 0), (6 | FOREIGN, 123_456))
    ]


def unpacked(method: Method, stream: bytes, *, size: int) -> tuple[bytes, bool]:
    """Decompress what can be decompressed, and tell whether that is all."""
    held = bytearray()
    try:
        for piece in decompress(method, [stream], size=size):
            held += piece
            if len(held) > LOOKED_AT_MAX:
                return bytes(held), False
    except BadStream:
        return bytes(held), False
    return bytes(held), True


def size_of(method: Method, stream: bytes) -> int:
    """Count what a stream unpacks to, as far as it does."""
    return len(unpacked(method, stream, size=LOOKED_AT_MAX)[0])


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change the settings, the stream, or the frames that are in it."""
    size = struct.calcsize(SETTINGS)
    settings, stream = raw[:size].ljust(size, b"\0"), raw[size:]
    method = METHODS[settings[1] % len(METHODS)]
    match rng.randrange(6):
        case 0:
            return any_number(raw, SETTINGS, rng)
        case 1:
            return settings + any_bytes(stream, rng)
        case 2:
            return any_bytes(raw, rng)
        case _:
            body, _ = unpacked(method, stream, size=LOOKED_AT_MAX)
            other = rng.choice(METHODS) if rng.randrange(8) == 0 else method
            changed = settings[:1] + bytes((METHODS.index(other),)) + settings[2:]
            return changed + packed(other, any_frames(body[:LOOKED_AT_MAX], rng))


def check(raw: bytes) -> None:
    """Play one input."""
    size = struct.calcsize(SETTINGS)
    way, byte, number, begin, claimed = struct.unpack(SETTINGS, raw[:size].ljust(size, b"\0"))
    stream = raw[size:]
    method = METHODS[byte % len(METHODS)]
    claimed = claimed or size_of(method, stream)
    end = (begin + claimed) % 2**64
    if on_the_brink(end):
        return
    name = f"segment.{number}.z"
    header = packed_header(number, begin, end, byte if way & BAD_HEADER else METHODS.index(method))
    stored = header + stream
    bound = {} if way & FOREIGN else {"offset": bound_file(min(end, BOUNDED))}
    disk = disk_of({name: stored} | bound, way)
    outcome = use(disk, way)
    assert files_of(disk)[name] == stored, "the file was changed"
    if outcome is None:
        return
    if end < begin or header[20] >= len(METHODS):
        assert outcome.served == []
        return
    assert outcome.sent[0] == end
    body, whole = unpacked(method, stream, size=claimed)
    if whole or len(body) <= LOOKED_AT_MAX:
        for served in (outcome.served, outcome.again):
            messages = [(position - begin, payload) for position, payload in served]
            check_served(body, messages, payload_bytes_max=MESSAGE_BYTES_MAX)
