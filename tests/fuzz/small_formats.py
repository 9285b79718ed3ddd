"""Headers, slots and names: what is read is what would be written, and all else is refused."""

import struct
from random import Random

from roost.channel.cursors import FILE_BYTES, decode_copy, decode_marks, encode_copy
from roost.segments.format import (
    decode_header,
    encode_header,
    packed_name,
    parse_name,
    plain_name,
)
from tests.fuzz.changes import any_bytes, any_number, crc_put_right
from tests.fuzz.frames import packed_header, plain_header
from tests.fuzz.slots import CHANNEL, PREFIX, RECEIVER, copy_of

PLAIN, PACKED, COPY, NAME, FILE = range(5)
HALVES = (0, FILE_BYTES // 2)
LAYOUTS = {PLAIN: ">IQ52s", PACKED: ">IQQB43s", COPY: PREFIX}


def seeds() -> list[bytes]:
    """Make inputs to begin with: a byte says what the rest is."""
    channel = copy_of(kind=CHANNEL, name=b"interval", number=3, sequence=9, position=2**40)
    receiver = copy_of(kind=RECEIVER, name="\N{SNOWMAN}".encode(), number=1, sequence=1, position=0)
    names = (b"segment.0", b"segment.12.z", b"segment.4294967295.z.ing", b"offset", b"segment.01")
    return [
        bytes((PLAIN,)) + plain_header(7, 2**33),
        bytes((PACKED,)) + packed_header(2**32 - 1, 10, 2**63, 2),
        bytes((COPY, 0)) + channel,
        bytes((COPY, 9)) + receiver,
        *(bytes((NAME,)) + name for name in names),
        bytes((FILE,)) + channel + receiver,
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change a number or anything; put half of the checksums right."""
    kind = raw[0] % 5 if raw else NAME
    layout = LAYOUTS.get(kind)
    skipped = 2 if kind == COPY else 1
    if layout is None or rng.randrange(4) == 0:
        return any_bytes(raw, rng)
    changed = any_number(raw[skipped:], layout, rng)
    if kind == COPY and rng.getrandbits(1):
        changed = crc_put_right(changed.ljust(128, b"\0"))
    return raw[:skipped] + changed


def check(raw: bytes) -> None:
    """Play one input."""
    content = raw[1:]
    match raw[0] % 5 if raw else NAME:
        case 0:
            _check_header(content, packed=False)
        case 1:
            _check_header(content, packed=True)
        case 2:
            _check_copy(content[0] if content else 0, content[1:])
        case 3:
            _check_name(content)
        case _:
            _check_file(content.ljust(FILE_BYTES, b"\0"))


def _check_header(raw: bytes, *, packed: bool) -> None:
    try:
        header = decode_header(raw, packed=packed)
    except ValueError:
        return
    assert encode_header(header) == raw
    assert packed == (header.method is not None)


def _check_copy(slot: int, raw: bytes) -> None:
    mark = decode_copy(slot, raw)
    if mark is not None:
        assert mark.slot == slot
        assert raw[:16] + raw[104:120] == encode_copy(mark)[:16] + encode_copy(mark)[104:120]
        assert decode_copy(slot, encode_copy(mark)) == mark


def _check_file(raw: bytes) -> None:
    for slot, mark in decode_marks(raw).items():
        first, second = (decode_copy(slot, raw[128 * slot + half :][:128]) for half in HALVES)
        assert mark in (first, second)
        assert mark.sequence == max(copy.sequence for copy in (first, second) if copy is not None)


def _check_name(raw: bytes) -> None:
    text = raw.decode(errors="surrogateescape")
    name = parse_name(text)
    if name is None:
        return
    written = packed_name(name.segment) if name.packed else plain_name(name.segment)
    assert written + (".ing" if name.making else "") == text
    assert struct.pack(">I", name.segment)
