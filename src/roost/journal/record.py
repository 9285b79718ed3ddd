"""The record of a journal: a head of 48 bytes, and the block of an entry as it came.

All integers are little endian.

    offset  bytes
    0       4      magic, never zero, so that zeros are no record
    4       4      CRC-32 of bytes 8 to 75, beginning with the low half of the segment's nonce
    8       1      kind: 1 add, 2 fence, 3 close, 4 delete
    9       1      flags: 1 = a write-back of recovery
    10      2      zero
    12      4      bytes of the block behind the head
    16      8      position of this record
    24      8      synced before: everything below this position was durable when it was made
    32      8      epoch, signed
    40      8      LAC of an add, last entry of a close, signed; -1 for none
    48             block of an entry, as in `roost.wire.entry`; its first 28 bytes are its head

The head's checksum covers the head of the block, and with it the checksum of the payload: ledger,
entry, length and payload are bound to this record, and it to its segment and place. Bytes that an
earlier file left on the disk, and a copy of a record inside of a payload, are never taken for one.
"""

from typing import Final

import msgspec

from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import HEAD_BYTES as BLOCK_HEAD_BYTES
from roost.wire.kernel import record_head

ADD: Final = 1
FENCE: Final = 2
CLOSE: Final = 3
DELETE: Final = 4
KINDS: Final = {ADD: "add", FENCE: "fence", CLOSE: "close", DELETE: "delete"}
RECOVERY: Final = 1

MAGIC: Final = 0x6A526F7E
MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")
HEAD_BYTES: Final = 48
HEADS_BYTES: Final = HEAD_BYTES + BLOCK_HEAD_BYTES
CHECKED_FROM: Final = 8


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; `block` is a copy of its own."""

    kind: int
    recovery: bool
    position: Position
    ledger: LedgerId
    entry: EntryId
    epoch: Epoch
    lac: EntryId
    block: bytes


encode_head: Final = record_head
"""`encode_head(what, position, synced_before, epoch, lac, block, seed) -> bytes`

Make the head that stands before a block; `what` is the kind, plus 256 for a write-back.
"""
