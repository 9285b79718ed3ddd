"""Names and headers of segment files, as in `docs/formats/channel.md`.

    plain       0  u32 segment   4  u64 begin   12  zero                              64  frames
    compressed  0  u32 segment   4  u64 begin   12  u64 end   20  u8 method   21  zero   64  stream

All big endian. The promise: what `encode` writes, `decode` gives back, and `decode` raises
`ValueError` for everything that this file's table does not allow.
"""

import re
import struct

import msgspec

HEADER_BYTES = 64
FRAME_BYTES = 8
SEGMENT_MAX = 2**32 - 1
MAKING = ".ing"

_PLAIN = struct.Struct(">IQ52x")
_PACKED = struct.Struct(">IQQB43x")
_NAME = re.compile(r"segment\.(0|[1-9][0-9]{0,9})(\.z)?(\.ing)?")


class Header(msgspec.Struct, frozen=True):
    """What a segment's first 64 bytes say; `end` and `method` only of a compressed one."""

    segment: int
    begin: int
    end: int | None = None
    method: int | None = None


class Name(msgspec.Struct, frozen=True):
    """A segment file's name, taken apart."""

    segment: int
    packed: bool
    making: bool


def plain_name(segment: int) -> str:
    """Name the plain form of a segment."""
    return f"segment.{segment}"


def packed_name(segment: int) -> str:
    """Name the compressed form of a segment."""
    return f"segment.{segment}.z"


def parse_name(name: str) -> Name | None:
    """Take a file name apart; None for a file that is not a segment."""
    found = _NAME.fullmatch(name)
    if found is None or int(found[1]) > SEGMENT_MAX:
        return None
    return Name(segment=int(found[1]), packed=found[2] is not None, making=found[3] is not None)


def encode_header(header: Header) -> bytes:
    """Write a header; with a method it is that of a compressed segment."""
    if header.method is None:
        return _PLAIN.pack(header.segment, header.begin)
    assert header.end is not None, "a compressed segment knows its end"
    return _PACKED.pack(header.segment, header.begin, header.end, header.method)


def decode_header(raw: bytes, *, packed: bool) -> Header:
    """Read a header; ValueError says what is wrong with it."""
    if len(raw) != HEADER_BYTES:
        raise ValueError(f"the header has {len(raw)} of {HEADER_BYTES} bytes")
    if not packed:
        segment, begin = _PLAIN.unpack(raw)
        header = Header(segment=segment, begin=begin)
    else:
        segment, begin, end, method = _PACKED.unpack(raw)
        if end < begin:
            raise ValueError(f"the header ends at {end}, before it begins at {begin}")
        header = Header(segment=segment, begin=begin, end=end, method=method)
    if encode_header(header) != raw:
        raise ValueError("the header's unused bytes are not zero")
    return header
