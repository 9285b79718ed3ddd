"""Copies of slots of the file `offset`, written by a second hand."""

import struct
import zlib

SLOT_BYTES = 128
HALF_BYTES = 32_768
PREFIX = ">4sBBHQ88sQQ"
POSITION_MAX = 2**62
BOUNDED = POSITION_MAX - 2**20
"""A position from which a few messages stay below the highest that there may be."""

CHANNEL, RECEIVER = 1, 2


def on_the_brink(position: int) -> bool:
    """Tell whether a few messages more would reach beyond the highest position."""
    return BOUNDED < position <= POSITION_MAX


def copy_of(
    *, kind: int, name: bytes, number: int, sequence: int, position: int, version: int = 1
) -> bytes:
    """Write one copy, with its checksum."""
    body = struct.pack(PREFIX, b"RoPs", version, kind, len(name), number, name, sequence, position)
    return body + struct.pack(">II", zlib.crc32(body), 0)


def file_of(copies: dict[tuple[int, int], bytes]) -> bytes:
    """Put copies at their places, by slot and half."""
    raw = bytearray(2 * HALF_BYTES)
    for (slot, half), copy in copies.items():
        at = SLOT_BYTES * slot + HALF_BYTES * half
        raw[at : at + SLOT_BYTES] = copy[:SLOT_BYTES].ljust(SLOT_BYTES, b"\0")
    return bytes(raw)


def bound_file(position: int) -> bytes:
    """Write a file that says no more than the bound."""
    copy = copy_of(kind=CHANNEL, name=b"fsync", number=0, sequence=2, position=position)
    return file_of({(0, 0): copy})
