"""Segments and records built from `docs/formats/journal.md` alone, not by the code under test."""

import struct
import zlib

from tests.unit.journal.lives import UUID

NONCE = 0x1122334455667788
HEAD_BYTES = 48
BLOCK_HEAD_BYTES = 28


def header(
    number: int = 1,
    begin: int = 0,
    *,
    nonce: int = NONCE,
    synced_before: int | None = None,
    uuid: bytes = UUID,
) -> bytes:
    """Write the header of a segment."""
    synced = begin if synced_before is None else synced_before
    front = struct.pack("<4sB3x16sQQQQ4x", b"RoJo", 1, uuid, number, begin, nonce, synced)
    return front + struct.pack("<I", zlib.crc32(front))


def block(ledger: int, entry: int, payload: bytes) -> bytes:
    """Write the block of an entry."""
    behind = struct.pack("<IQQ", len(payload), ledger, entry) + payload
    return struct.pack("<HBBI", 0xE27A, 1, 0, zlib.crc32(behind)) + behind


def record(
    position: int,
    body: bytes,
    *,
    kind: int = 1,
    flags: int = 0,
    synced_before: int = 0,
    epoch: int = 0,
    lac: int = -1,
    nonce: int = NONCE,
) -> bytes:
    """Write a record around a block."""
    rest = struct.pack("<BBHIQQqq", kind, flags, 0, len(body), position, synced_before, epoch, lac)
    crc = zlib.crc32(rest + body[:BLOCK_HEAD_BYTES], nonce & 0xFFFFFFFF)
    return struct.pack("<II", 0x6A526F7E, crc) + rest + body


def add(position: int, entry: int, payload: bytes, *, synced_before: int = 0) -> bytes:
    """Write the record of an add to ledger 7."""
    return record(position, block(7, entry, payload), synced_before=synced_before)


def adds(*payloads: bytes, begin: int = 0, synced_before: int = 0) -> bytes:
    """Write records of adds one behind the other, as one group that was written together."""
    made = b""
    for entry, payload in enumerate(payloads):
        made += add(begin + len(made), entry, payload, synced_before=synced_before)
    return made
