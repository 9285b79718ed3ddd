"""Names and headers of a journal's segment files, as in `docs/formats/journal.md`.

All integers are little endian.

    offset  bytes
    0       4      magic, "RoJo"
    4       1      version, 1
    5       3      zero
    8       16     uuid of the node
    24      8      number of the segment, from 1
    32      8      begin: the position of its first record
    40      8      nonce: with it the checksums of this segment's records begin
    48      8      synced before: a position that was durable when the segment was made
    56      4      zero
    60      4      CRC-32 of bytes 0 to 59
    64             records

A segment is made under a name of its own, and renamed once it is durable with its first records:
so a header that is torn belongs to no segment that anybody was told of.
"""

import re
from struct import Struct
from typing import Final

import msgspec

from roost.types import Position
from roost.wire.checksum import crc32

MAGIC: Final = b"RoJo"
VERSION: Final = 1
HEADER_BYTES: Final = 64
UUID_BYTES: Final = 16
MAKING: Final = ".making"
SALVAGE_NAME: Final = "salvage"
"""The folder beside that of the journal that keeps what recovery cut, and damaged segments."""
NUMBER_MAX: Final = 10**16 - 1
"""What the digits in a name can say."""
POSITION_MAX: Final = Position(1 << 62)
"""What no position ever reaches; there is room for more in 64 bits."""
SEGMENT_BYTES_MAX: Final = 1 << 30
"""What a segment file may hold at most, so that it can be read at once."""

_HEADER: Final = Struct("<4sB3s16sQQQQ4s")
_CRC: Final = Struct("<I")
_NAME: Final = re.compile(r"([0-9]{16})\.journal(\.making)?")


class BadHeader(ValueError):
    """These bytes are not the header of a segment; the text says why."""


class Header(msgspec.Struct, frozen=True):
    """What stands before a segment's records."""

    uuid: bytes
    number: int
    begin: Position
    nonce: int
    synced_before: Position

    @property
    def seed(self) -> int:
        """The value that the checksums of this segment's records begin with."""
        return self.nonce & 0xFFFFFFFF


class Name(msgspec.Struct, frozen=True):
    """A segment file's name, taken apart."""

    number: int
    making: bool


def segment_name(number: int) -> str:
    """Name a segment."""
    return f"{number:016d}.journal"


def making_name(number: int) -> str:
    """Name a segment that is being made."""
    return segment_name(number) + MAKING


def parse_name(name: str) -> Name | None:
    """Take a file name apart; None for a file that is not a segment."""
    found = _NAME.fullmatch(name)
    if found is None or int(found[1]) == 0:
        return None
    return Name(number=int(found[1]), making=found[2] is not None)


def encode_header(header: Header) -> bytes:
    """Write a header."""
    assert len(header.uuid) == UUID_BYTES, "a uuid has 16 bytes"
    front = _HEADER.pack(
        MAGIC,
        VERSION,
        bytes(3),
        header.uuid,
        header.number,
        header.begin,
        header.nonce,
        header.synced_before,
        bytes(4),
    )
    return front + _CRC.pack(crc32(front))


def decode_header(raw: bytes) -> Header:
    """Read a header."""
    if len(raw) != HEADER_BYTES:
        raise BadHeader(f"the header has {len(raw)} of {HEADER_BYTES} bytes")
    front = raw[: _HEADER.size]
    if crc32(front) != _CRC.unpack_from(raw, _HEADER.size)[0]:
        raise BadHeader("the checksum of the header does not hold")
    magic, version, zero, uuid, number, begin, nonce, synced_before, zeros = _HEADER.unpack(front)
    if magic != MAGIC or version != VERSION or any(zero) or any(zeros):
        raise BadHeader(f"magic {magic!r}, version {version}: no segment begins like that")
    if not 0 < number <= NUMBER_MAX or begin > POSITION_MAX or synced_before > begin:
        raise BadHeader(
            f"segment {number} from {begin}, synced before {synced_before}: beyond what is possible"
        )
    return Header(
        uuid=uuid,
        number=number,
        begin=Position(begin),
        nonce=nonce,
        synced_before=Position(synced_before),
    )
