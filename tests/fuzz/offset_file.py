"""A file `offset` of any bytes beside three good segments, one of them compressed.

Whatever it says, no message is lost or cut by it: a new receiver sees them all, and a receiver that
the file names goes on at a message, and skips none from there on. The segments stay as they are.
"""

import struct
from collections.abc import Set as AbstractSet
from itertools import accumulate
from random import Random

from roost import FileChannel, RoostError
from roost.sim.disk import SimDisk
from tests.fuzz.changes import any_bytes, any_number, crc_put_right
from tests.fuzz.folders import (
    FRAME_BYTES,
    Served,
    disk_of,
    files_of,
    opened,
    read_all,
)
from tests.fuzz.frames import frame, packed_header, plain_header
from tests.fuzz.packed_segment import packed
from tests.fuzz.slots import CHANNEL, PREFIX, RECEIVER, SLOT_BYTES, copy_of, file_of

# An input is the way to open the folder, how much of the file there is in units of 257 bytes, and
# the copies: each behind its slot and half.
COPY_BYTES = 2 + SLOT_BYTES

MESSAGES = [b"%d:" % n + b"m" * (n * 37 % 300) for n in range(40)]
BEGINS = [0, *accumulate(FRAME_BYTES + len(message) for message in MESSAGES)]
END = BEGINS.pop()
ALL: Served = list(zip(BEGINS, MESSAGES, strict=True))


def _segments() -> dict[str, bytes]:
    bodies = [b"".join(map(frame, MESSAGES[at : at + 15])) for at in (0, 15, 30)]
    first, second = len(bodies[0]), len(bodies[0]) + len(bodies[1])
    return {
        "segment.0.z": packed_header(0, 0, first, 0) + packed("snappy", bodies[0]),
        "segment.1": plain_header(1, first) + bodies[1],
        "segment.2": plain_header(2, second) + bodies[2],
    }


SEGMENTS = _segments()
ENDS = {"segment.0.z": BEGINS[15], "segment.1": BEGINS[30], "segment.2": END}


def entry(slot: int, copy: bytes) -> bytes:
    """Write one copy of an input, at the half where its sequence belongs."""
    return bytes((slot, copy[111] & 1)) + copy


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    found = []
    for way, bound in ((0, END), (6, BEGINS[20]), (5, 0), (2, END + 1000)):
        channel = copy_of(kind=CHANNEL, name=b"fsync", number=0, sequence=4, position=bound)
        copies = [entry(0, channel)]
        for slot, at in ((1, BEGINS[3]), (2, BEGINS[17] + 5), (200, END), (3, END + 77)):
            for sequence in (6, 7):
                name = b"receiver %d" % slot
                copy = copy_of(
                    kind=RECEIVER, name=name, number=slot, sequence=sequence, position=at
                )
                copies.append(entry(slot, copy))
        found.append(bytes((way, 255)) + b"".join(copies))
    return found


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change a field of a copy, mostly with its checksum put right, or anything."""
    copies = [raw[at : at + COPY_BYTES] for at in range(2, len(raw), COPY_BYTES)] or [b""]
    at = rng.randrange(len(copies))
    place, copy = copies[at][:2], copies[at][2:].ljust(SLOT_BYTES, b"\0")
    match rng.randrange(8):
        case 0:
            return any_bytes(raw, rng)
        case 1:
            copies[at] = rng.randbytes(2) + copy
        case 2:
            copies.insert(at, bytes((rng.randrange(256), rng.randrange(2))) + copy)
        case 3:
            moved = struct.pack(">Q", rng.choice((*BEGINS, END)) + rng.choice((0, 0, 3)))
            copies[at] = place + crc_put_right(copy[:112] + moved + copy[120:])
        case _:
            changed = any_number(copy, PREFIX, rng)
            copies[at] = place + (crc_put_right(changed) if rng.getrandbits(1) else changed)
    return raw[:2].ljust(2, b"\0") + b"".join(copies)


def offset_of(raw: bytes) -> bytes:
    """Make the file of an input."""
    copies = {
        (raw[at], raw[at + 1] & 1): raw[at + 2 : at + COPY_BYTES]
        for at in range(2, len(raw) - 1, COPY_BYTES)
    }
    whole = file_of(copies)
    return whole[: raw[1] * 257 + 1] if len(raw) > 1 and raw[1] < 255 else whole


def check(raw: bytes) -> None:
    """Play one input."""
    way = raw[0] if raw else 0
    disk = disk_of(SEGMENTS | {"offset": offset_of(raw)}, way)
    try:
        channel = opened(disk, way)
    except RoostError:
        _check_unchanged(disk, gone=set())
        return
    with channel:
        tail = _read(channel)
        lowest = min((receiver.position for receiver in channel.receivers()), default=0)
    with opened(disk, way) as channel:
        assert channel.stat().tail == tail
    _check_unchanged(disk, gone={name for name, end in ENDS.items() if end <= lowest})


def _read(channel: FileChannel[bytes]) -> int:
    """Read with a new receiver, and with each that the file names."""
    stat = channel.stat()
    assert stat.head == 0
    assert stat.tail >= END
    names = {receiver.name for receiver in stat.receivers}
    fresh = next(f"fresh {n}" for n in range(1000) if f"fresh {n}" not in names)
    try:
        new = channel.rx(fresh)
    except RoostError:
        assert len(stat.receivers) == 255
    else:
        assert read_all(new) == ALL
    for receiver in stat.receivers:
        assert receiver.position <= stat.tail
        try:
            known = channel.rx(receiver.name)
        except RoostError:
            continue  # its name is none that this program would give
        begin = known.position
        assert begin <= receiver.position or begin in {stat.tail, *BEGINS}
        assert read_all(known) == [message for message in ALL if message[0] >= begin]
    return stat.tail


def _check_unchanged(disk: SimDisk, *, gone: AbstractSet[str]) -> None:
    files = files_of(disk)
    for name, content in SEGMENTS.items():
        assert name in files or name in gone, f"{name} was collected"
        assert files.get(name, content) == content, f"{name} was changed"
