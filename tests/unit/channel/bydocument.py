"""A second reader and writer of a channel's folder, made from `docs/formats/channel.md` alone.

It shares no code with Roost: struct, zlib and a compression library. What it reads from a folder
that Roost wrote is what the document promises to other programs; what it writes, Roost must read.
"""

import gzip
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import cramjam
import msgspec
import zstandard

HEADER_BYTES = 64
SLOT_BYTES = 128
HALF_BYTES = 32_768

METHODS: dict[int, str] = {0: "snappy", 1: "gzip", 2: "zstd"}


class Slot(msgspec.Struct, frozen=True):
    """One copy of a slot of the file `offset`."""

    kind: int
    name: str
    id: int
    sequence: int
    position: int


class Content(msgspec.Struct, frozen=True):
    """One segment file, taken apart."""

    number: int
    begin: int
    end: int
    method: str
    messages: list[tuple[int, bytes]]


def frame(payload: bytes) -> bytes:
    """Write one frame."""
    return struct.pack(">II", len(payload), zlib.crc32(payload)) + payload


def frames(*payloads: bytes) -> bytes:
    """Write frames one behind the other."""
    return b"".join(map(frame, payloads))


def plain_header(number: int, begin: int) -> bytes:
    """Write the header of a plain segment."""
    return struct.pack(">IQ", number, begin).ljust(HEADER_BYTES, b"\0")


def packed_header(number: int, begin: int, end: int, method: int) -> bytes:
    """Write the header of a compressed segment."""
    return struct.pack(">IQQB", number, begin, end, method).ljust(HEADER_BYTES, b"\0")


def pack(method: str, content: bytes) -> bytes:
    """Compress a segment's frames as one stream."""
    match method:
        case "snappy":
            return bytes(cramjam.snappy.compress(content))
        case "gzip":
            return gzip.compress(content, mtime=0)
        case _:
            return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def unpack(method: str, stream: bytes) -> bytes:
    """Decompress a segment's stream."""
    match method:
        case "snappy":
            return bytes(cramjam.snappy.decompress(stream))
        case "gzip":
            return gzip.decompress(stream)
        case _:
            return bytes(cramjam.zstd.decompress(stream))


def write_plain(folder: Path, number: int, begin: int, *payloads: bytes) -> int:
    """Write a plain segment file; the answer is where it ends."""
    folder.mkdir(exist_ok=True)
    body = frames(*payloads)
    (folder / f"segment.{number}").write_bytes(plain_header(number, begin) + body)
    return begin + len(body)


def write_packed(folder: Path, number: int, begin: int, method: str, *payloads: bytes) -> int:
    """Write a compressed segment file; the answer is where it ends."""
    folder.mkdir(exist_ok=True)
    body = frames(*payloads)
    byte = {name: byte for byte, name in METHODS.items()}[method]
    header = packed_header(number, begin, begin + len(body), byte)
    (folder / f"segment.{number}.z").write_bytes(header + pack(method, body))
    return begin + len(body)


def read_frames(body: bytes, begin: int) -> list[tuple[int, bytes]]:
    """Read frames up to the end, or to zeros that reach up to the end; all else is wrong."""
    messages, at = [], 0
    while at < len(body) and body[at:].strip(b"\0"):
        length, crc = struct.unpack_from(">II", body, at)
        payload = body[at + 8 : at + 8 + length]
        assert length == len(payload) > 0, f"a frame at {at} is cut short"
        assert crc == zlib.crc32(payload), f"the checksum at {at} does not hold"
        messages.append((begin + at, payload))
        at += 8 + length
    return messages


def read_segment(path: Path) -> Content:
    """Take one segment file apart, and check everything that the document says of it."""
    raw = path.read_bytes()
    header, rest = raw[:HEADER_BYTES], raw[HEADER_BYTES:]
    number, begin = struct.unpack_from(">IQ", header)
    if path.name.endswith(".z"):
        assert path.name == f"segment.{number}.z"
        end, method = struct.unpack_from(">QB", header, 12)
        assert header[21:] == bytes(43)
        body = unpack(METHODS[method], rest)
        assert len(body) == end - begin
        return Content(number, begin, end, METHODS[method], read_frames(body, begin))
    assert path.name == f"segment.{number}"
    assert header[12:] == bytes(52)
    messages = read_frames(rest, begin)
    end = messages[-1][0] + 8 + len(messages[-1][1]) if messages else begin
    return Content(number, begin, end, "plain", messages)


def segment_files(folder: Path) -> list[Path]:
    """List a folder's segment files in order."""
    found = [path for path in folder.iterdir() if path.name.startswith("segment.")]
    return sorted(found, key=lambda path: int(path.name.split(".")[1]))


def read_segments(folder: Path) -> list[Content]:
    """Take all segments of a folder apart; each begins where the one before it ends."""
    contents = [read_segment(path) for path in segment_files(folder)]
    for before, after in pairwise(contents):
        assert before.number + 1 == after.number
        assert before.end == after.begin
    return contents


def read_messages(folder: Path) -> list[bytes]:
    """Read all messages of a folder."""
    return [payload for content in read_segments(folder) for _, payload in content.messages]


def slot_copy(slot: Slot) -> bytes:
    """Write one copy of a slot."""
    name = slot.name.encode()
    body = struct.pack(
        ">4sBBHQ88sQQ",
        *(b"RoPs", 1, slot.kind, len(name), slot.id, name, slot.sequence, slot.position),
    )
    return body + struct.pack(">II", zlib.crc32(body), 0)


def write_offset(
    folder: Path, bound: int, mode: str = "fsync", incarnation: int = 0, **positions: int
) -> None:
    """Write `offset` with a bound and receivers, both copies of each slot."""
    raw = bytearray(2 * HALF_BYTES)
    slots = [Slot(1, mode, incarnation, 0, bound)]
    slots += [
        Slot(2, name, n, 0, position) for n, (name, position) in enumerate(positions.items(), 1)
    ]
    for number, slot in enumerate(slots):
        for half in (0, 1):
            at = SLOT_BYTES * number + HALF_BYTES * half
            raw[at : at + SLOT_BYTES] = slot_copy(msgspec.structs.replace(slot, sequence=8 + half))
    folder.mkdir(exist_ok=True)
    (folder / "offset").write_bytes(raw)


def read_copy(raw: bytes) -> Slot | None:
    """Read one copy of a slot; None if it is not whole."""
    magic, version, kind, size, number, name, sequence, position, crc, zero = struct.unpack(
        ">4sBBHQ88sQQII", raw
    )
    if crc != zlib.crc32(raw[:120]) or magic != b"RoPs":
        return None
    assert (version, zero) == (1, 0)
    assert name[size:] == bytes(88 - size)
    return Slot(kind, name[:size].decode(), number, sequence, position)


def read_slots(folder: Path) -> dict[int, Slot]:
    """Read `offset`: for each slot in use the valid copy with the higher sequence."""
    raw = (folder / "offset").read_bytes()
    assert len(raw) == 2 * HALF_BYTES
    slots = {}
    for number in range(256):
        copies = []
        for half in (0, 1):
            at = SLOT_BYTES * number + HALF_BYTES * half
            copy = read_copy(raw[at : at + SLOT_BYTES])
            if copy is not None:
                assert copy.sequence % 2 == half
                copies.append(copy)
        if copies:
            slots[number] = max(copies, key=lambda copy: copy.sequence)
    return slots


def read_positions(folder: Path) -> dict[str, int]:
    """Read where each receiver stands."""
    return {slot.name: slot.position for slot in read_slots(folder).values() if slot.kind == 2}


def read_bound(folder: Path) -> int:
    """Read the lower bound of the durable end."""
    return read_slots(folder)[0].position


def snapshot(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder but the lock, whose text names the present holder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
