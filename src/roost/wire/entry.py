"""The block of an entry: the same bytes on the wire, in a journal and in an entry log.

A client makes it once, with a checksum that travels to the disk and back to whoever reads, and
nobody in between takes it apart. All integers are little endian.

    offset  bytes
    0       2      magic, never zero, so that zeros are no block
    2       1      version
    3       1      zero
    4       4      CRC-32 of everything behind this field
    8       4      bytes of the payload
    12      8      ledger
    20      8      entry
    28             payload

The checksum covers what makes an entry what it is: ledger, entry and payload. What only travels
with it (epoch, LAC, who sent it) stands elsewhere, so that an entry which recovery writes back is
the same one.
"""

from struct import Struct
from typing import Final

import msgspec

from roost.types import EntryId, LedgerId
from roost.wire.checksum import crc32

MAGIC: Final = 0xE27A
VERSION: Final = 1
HEAD: Final = Struct("<HBBIIQQ")
HEAD_BYTES: Final = HEAD.size
CHECKED_FROM: Final = 8
PAYLOAD_BYTES_MAX: Final = 16 << 20
ENTRY_ID_MAX: Final = (1 << 36) - 1
LEDGER_ID_MAX: Final = (1 << 63) - 1

_CHECKED: Final = Struct("<IQQ")
_UNPACK: Final = HEAD.unpack_from


class BadEntry(ValueError):
    """These bytes are not the block of an entry; the text says why."""


class Head(msgspec.Struct, frozen=True):
    """What stands before the payload of an entry."""

    ledger: LedgerId
    entry: EntryId
    length: int
    crc: int

    @property
    def block_bytes(self) -> int:
        """Tell how long the whole block is."""
        return HEAD_BYTES + self.length


def encode_head(ledger: int, entry: int, payload: bytes | bytearray | memoryview) -> bytes:
    """Make what stands before a payload, which need not be copied for it."""
    length = len(payload)
    crc = crc32(payload, crc32(_CHECKED.pack(length, ledger, entry)))
    return HEAD.pack(MAGIC, VERSION, 0, crc, length, ledger, entry)


def encode_entry(ledger: int, entry: int, payload: bytes | memoryview) -> bytes:
    """Make the whole block."""
    return b"".join((encode_head(ledger, entry, payload), payload))


def decode_head(buffer: bytes | bytearray | memoryview, at: int = 0) -> Head:
    """Read the head of the block at an offset; nothing behind the head is looked at."""
    if at + HEAD_BYTES > len(buffer):
        raise BadEntry(f"an entry begins with {HEAD_BYTES} bytes, and {len(buffer) - at} are there")
    magic, version, zero, crc, length, ledger, entry = HEAD.unpack_from(buffer, at)
    if magic != MAGIC or version != VERSION or zero:
        raise BadEntry(f"magic {magic:#06x}, version {version}: no entry begins like that")
    if length > PAYLOAD_BYTES_MAX or ledger > LEDGER_ID_MAX or entry > ENTRY_ID_MAX:
        raise BadEntry(f"ledger {ledger}, entry {entry}, {length} bytes: beyond what is allowed")
    return Head(ledger=ledger, entry=entry, length=length, crc=crc)


def check_at(buffer: bytes | bytearray | memoryview, at: int) -> tuple[LedgerId, EntryId, int]:
    """Check the block at an offset, to its last byte; give ledger, entry, and where it ends.

    It is on the way of every add and of every read, and quicker than its neighbours for that.
    """
    size = len(buffer)
    if at + HEAD_BYTES <= size:
        magic, version, zero, crc, length, ledger, entry = _UNPACK(buffer, at)
        after = at + HEAD_BYTES + length
        if (
            magic == MAGIC
            and version == VERSION
            and not zero
            and after <= size
            and length <= PAYLOAD_BYTES_MAX
            and ledger <= LEDGER_ID_MAX
            and entry <= ENTRY_ID_MAX
            and crc32(buffer[at + CHECKED_FROM : after]) == crc
        ):
            return ledger, entry, after
    raise _what_is_wrong(memoryview(buffer)[at:])


def check_entry(block: bytes | bytearray | memoryview) -> Head:
    """Check a block that is there by itself, from its first to its last byte."""
    if check_at(block, 0)[2] != len(block):
        raise _what_is_wrong(block)
    return decode_head(block)


def _what_is_wrong(block: bytes | bytearray | memoryview) -> BadEntry:
    head = decode_head(block)
    if head.block_bytes != len(block):
        return BadEntry(f"an entry of {head.block_bytes} bytes in a block of {len(block)}")
    return BadEntry(f"ledger {head.ledger}, entry {head.entry}: the checksum does not hold")


def payload_of(block: bytes | memoryview) -> memoryview:
    """Give the payload of a block, without a copy."""
    return memoryview(block)[HEAD_BYTES:]
