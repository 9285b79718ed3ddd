"""A plain segment of any bytes, alone in its folder, with any bound.

The oracle computes, from the document alone, what recovery has to keep and where the channel goes
on, and compares: every good frame is served at its position and nothing else, the bytes below the
bound stay as they are, and what is cut lies in `salvage/`.
"""

import struct
from random import Random

from tests.fuzz.changes import any_bytes, any_frames, any_number
from tests.fuzz.folders import MESSAGE_BYTES_MAX, Outcome, disk_of, files_of, use
from tests.fuzz.frames import HEADER_BYTES, chain, check_served, frame, plain_header
from tests.fuzz.slots import BOUNDED, bound_file, on_the_brink

# The way to open it; which number its name has; the bound, from the segment's begin, or a flag
# that says that there is none; the segment's begin, and whether its header is as it should be.
SETTINGS = ">BIHQ"
FOREIGN, BAD_HEADER = 8, 16


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    body = b"".join(frame(b"%d" % n * (1 + n * n % 50)) for n in range(1, 20))
    return [
        struct.pack(SETTINGS, way | flags, number, bound, begin) + body + bytes(zeros)
        for way, flags in ((0, 0), (6, FOREIGN))
        for number, begin in ((0, 0), (7, 123_456))
        for bound, zeros in ((0, 0), (len(body) // 2, 700), (len(body), 0), (60_000, 0))
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change the settings, the frames, or anything."""
    size = struct.calcsize(SETTINGS)
    match rng.randrange(6):
        case 0:
            return any_number(raw, SETTINGS, rng)
        case 1:
            return any_bytes(raw, rng)
        case _:
            return raw[:size].ljust(size, b"\0") + any_frames(raw[size:], rng)


def check(raw: bytes) -> None:
    """Play one input."""
    size = struct.calcsize(SETTINGS)
    way, number, bound, begin = struct.unpack(SETTINGS, raw[:size].ljust(size, b"\0"))
    content = raw[size:]
    if on_the_brink(begin):
        return
    name = f"segment.{number}"
    stored = content if way & BAD_HEADER else plain_header(number, begin) + content
    limit = None if way & FOREIGN else min(begin + bound, BOUNDED)
    disk = disk_of({name: stored} | ({} if limit is None else {"offset": bound_file(limit)}), way)
    outcome = use(disk, way)
    after = files_of(disk)
    begin = int.from_bytes(stored[4:12], "big")
    if outcome is None and name in after:
        assert after[name] == stored, "a folder that cannot be opened was changed"
    elif outcome is not None and stored[:HEADER_BYTES] == plain_header(number, begin):
        _check_content(name, stored, after, limit or 0, outcome)
        _check_tail(stored[HEADER_BYTES:], begin, limit, outcome)
    else:
        _check_strange(name, stored, after, outcome)


def _check_content(
    name: str, stored: bytes, after: dict[str, bytes], limit: int, outcome: Outcome
) -> None:
    """What is served is there; what is there stays, or lies in `salvage/`."""
    begin = int.from_bytes(stored[4:12], "big")
    for served in (outcome.served, outcome.again):
        messages = [(position - begin, payload) for position, payload in served]
        check_served(stored[HEADER_BYTES:], messages, payload_bytes_max=MESSAGE_BYTES_MAX)
    kept = after[name].removesuffix(frame(outcome.sent[1]))
    assert kept == stored[: len(kept)]
    assert len(kept) >= min(len(stored), HEADER_BYTES + max(0, limit - begin))
    lost = stored[len(kept) :].rstrip(b"\0")
    salvaged = [held for aside, held in after.items() if aside.startswith("salvage/")]
    assert salvaged == ([lost] if lost else []), "what was cut is not what was put aside"


def _check_tail(body: bytes, begin: int, limit: int | None, outcome: Outcome) -> None:
    """No position is used twice; nothing is cut below the bound, and nothing torn left above it."""
    whole, end = chain(body, payload_bytes_max=MESSAGE_BYTES_MAX)
    bound = 0 if limit is None else max(0, limit - begin)
    tail = outcome.sent[0] - begin
    assert tail >= max(end, bound)
    if limit is not None and end >= bound:
        assert tail == end
        assert len(outcome.served) == len(whole)


def _check_strange(
    name: str, stored: bytes, after: dict[str, bytes], outcome: Outcome | None
) -> None:
    """A file that is no segment: left as it is, or put aside where it is too short for one."""
    assert outcome is None or outcome.served == []
    if len(stored) > HEADER_BYTES:
        assert after[name] == stored
    elif stored.strip(b"\0"):
        assert stored in [held for kept, held in after.items() if kept.startswith("salvage/")]
