"""The hot path of a connection and of a node in plain Python: the twin of `roost.wire._kernel`.

It takes over where the kernel could not be compiled, slower, and says in the tests what the
kernel has to do: same names, same answers, same bytes. What is not simple is left alone: which of
many things is wrong with a frame or a block, and how that is said, is for whoever asked.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, final

from roost.types import EntryId, Epoch, LedgerId
from roost.wire.checksum import crc32
from roost.wire.entry import (
    ENTRY_ID_MAX,
    PAYLOAD_BYTES_MAX,
    BadEntry,
    check_at,
)
from roost.wire.entry import HEAD_BYTES as BLOCK_HEAD_BYTES
from roost.wire.entry import encode_head as encode_block_head
from roost.wire.frame import (
    CHECKED_FROM,
    HEAD,
    HEAD_BYTES,
    LENGTH_BYTES,
    Frame,
    encode_head,
)

Readable = bytes | bytearray | memoryview

_ADD: Final = 2
_ADD_BODY: Final = struct.Struct("<Qq")
_ADD_HEAD_BYTES: Final = HEAD_BYTES + _ADD_BODY.size + BLOCK_HEAD_BYTES
_RECORD_MAGIC: Final = 0x6A526F7E
_RECORD_FRONT: Final = struct.Struct("<II")
_RECORD_REST: Final = struct.Struct("<IIQQqq")
_SLOT: Final = struct.Struct("<QII")
_SLOT_OF_CRC: Final = struct.Struct("<QI4s").pack
_CRC_OF: Final = itemgetter(slice(4, 8))
_BLOCK_BYTES_MAX: Final = BLOCK_HEAD_BYTES + PAYLOAD_BYTES_MAX
_EPOCH_MAX: Final = (1 << 63) - 1
_INDEX_MAX: Final = (1 << 63) - 1
_UINT32_MAX: Final = (1 << 32) - 1
_UINT64_MAX: Final = (1 << 64) - 1
_BODY_AT: Final = HEAD_BYTES - CHECKED_FROM


@final
class Frames:
    """Gives the frames that stand in a chunk from an offset on, as long as all is well.

    `at` is where the next one begins: at the end of the chunk, or before a frame that is not all
    there, not whole, or longer than `frame_bytes_max`, which may be changed at any time.
    """

    def __init__(self, chunk: bytes, at: int, frame_bytes_max: int) -> None:
        if not 0 <= _index(at) <= len(chunk):
            raise ValueError(f"{at} is no offset in {len(chunk)} bytes")
        self.frame_bytes_max = _fitting(frame_bytes_max, _UINT64_MAX)
        self._chunk = chunk
        self._at = at

    @property
    def at(self) -> int:
        """Where the next frame begins."""
        return self._at

    def __iter__(self) -> Iterator[Frame]:
        unpack, make, chunk = HEAD.unpack_from, tuple.__new__, self._chunk
        size = len(chunk)
        while size - (at := self._at) >= HEAD_BYTES:
            length, crc, kind, flags, body_bytes, request = unpack(chunk, at)
            blob_at = at + HEAD_BYTES + body_bytes
            end = at + LENGTH_BYTES + length
            if end > size or end < blob_at or end - at > self.frame_bytes_max:
                return
            checked = chunk[at + CHECKED_FROM : blob_at]
            if crc32(checked) != crc:
                return
            self._at = end
            # Past the named tuple's own __new__, which takes as long as the rest of this loop.
            yield make(Frame, (kind, flags, request, checked[_BODY_AT:], chunk[blob_at:end]))


def blank(size: int) -> bytearray:
    """Give memory that is about to be written; what is in it means nothing."""
    return bytearray(size)


def read_add(body: bytes, blob: Readable) -> tuple[LedgerId, EntryId, Epoch, EntryId] | None:
    """Give ledger, entry, epoch and LAC of an ADD if all of it is good, its one block too."""
    if len(body) != _ADD_BODY.size:
        return None
    epoch, lac = _ADD_BODY.unpack(body)
    if epoch > _EPOCH_MAX or not -1 <= lac <= ENTRY_ID_MAX:
        return None
    try:
        ledger, entry, after = check_at(blob, 0)
    except BadEntry:
        return None
    return (ledger, entry, epoch, lac) if after == len(blob) else None


def holds(blocks: bytes, ledger: int, first: int, before: int) -> bool:
    """Tell whether these are the good blocks of all entries [first, before), and nothing else."""
    _are_fitting(ledger, first, before)
    view = memoryview(blocks)
    at, entry = 0, first
    try:
        while at < len(view) and entry < before:
            of_ledger, of_entry, at = check_at(view, at)
            if of_ledger != ledger or of_entry != entry:
                return False
            entry += 1
    except BadEntry:
        return False
    return at == len(view) and entry == before


def adjacent(slots: bytes, at: int, bytes_max: int) -> list[int]:
    """Give the lengths of the blocks from a slot on that stand one behind the other in their log.

    They end before a slot that can be none, and before there are more than `bytes_max` bytes; the
    first one is not looked at.
    """
    _are_fitting(bytes_max)
    if not 0 <= _index(at) <= len(slots) - _SLOT.size:
        raise ValueError(f"{at} is no slot in {len(slots)} bytes")
    end, size, _ = _SLOT.unpack_from(slots, at)
    sizes: list[int] = []
    while True:
        sizes.append(size)
        bytes_max -= size
        end = (end + size) & _UINT64_MAX
        at += _SLOT.size
        if at > len(slots) - _SLOT.size:
            return sizes
        offset, size, _ = _SLOT.unpack_from(slots, at)
        if offset != end or size > bytes_max or not BLOCK_HEAD_BYTES <= size <= _BLOCK_BYTES_MAX:
            return sizes


def payloads(
    blocks: Readable, ledger: int, first: int, before: int
) -> dict[EntryId, memoryview] | None:
    """Give the payloads of blocks by their entries, without a copy, if all of them are good.

    None if one is not, or is of another ledger, or of an entry that is not in [first, before).
    """
    _are_fitting(ledger, first, before)
    found: dict[EntryId, memoryview] = {}
    view = memoryview(blocks)
    at = 0
    try:
        while at < len(view):
            of_ledger, entry, after = check_at(view, at)
            if of_ledger != ledger or not first <= entry < before:
                return None
            found[entry] = view[at + BLOCK_HEAD_BYTES : after]
            at = after
    except BadEntry:
        return None
    return found


def encode_add(  # noqa: PLR0917 (by place, which is quicker than by name)
    request: int,
    flags: int,
    epoch: int,
    lac: int,
    ledger: int,
    entry: int,
    payload: Readable,
    short_bytes: int,
) -> bytes:
    """Make an ADD as far as its payload, and with that too if it has at most `short_bytes`."""
    _fitting(short_bytes, _UINT64_MAX)
    if len(payload) > _UINT32_MAX - _ADD_HEAD_BYTES:
        raise OverflowError(f"a payload of {len(payload)} bytes does not fit in a frame")
    try:
        body = _ADD_BODY.pack(epoch, lac)
        block_head = encode_block_head(ledger, entry, payload)
        blob_bytes = BLOCK_HEAD_BYTES + len(payload)
        head = encode_head(_ADD, request, body, blob_bytes, flags)
    except struct.error as error:
        raise OverflowError(f"a number of this ADD is too large: {error}") from error
    return b"".join(
        (head, block_head, payload) if len(payload) <= short_bytes else (head, block_head)
    )


def record_head(  # noqa: PLR0917 (by place, which is quicker than by name)
    what: int,
    position: int,
    synced_before: int,
    epoch: int,
    lac: int,
    block: Readable,
    seed: int,
) -> bytes:
    """Make the head of a record that stands before a block; `what` is kind, flags and zeros."""
    _fitting(seed, _UINT32_MAX)
    size = len(block)
    try:
        rest = _RECORD_REST.pack(what, size & _UINT32_MAX, position, synced_before, epoch, lac)
    except struct.error as error:
        raise OverflowError(f"a number of this record is too large: {error}") from error
    if not BLOCK_HEAD_BYTES <= size <= _UINT32_MAX:
        raise ValueError(f"{size} bytes are no block")
    crc = crc32(block[:BLOCK_HEAD_BYTES], crc32(rest, seed))
    return _RECORD_FRONT.pack(_RECORD_MAGIC, crc) + rest


def slots(blocks: Sequence[Readable], offset: int) -> bytes:
    """Make the slots of blocks that stand one behind the other from an offset of their log on."""
    _fitting(offset, _UINT64_MAX)
    sizes = [*map(len, blocks)]
    for size in {*sizes}:
        if not BLOCK_HEAD_BYTES <= size <= _BLOCK_BYTES_MAX:
            raise ValueError(f"{size} bytes are no block")
    offsets = (at & _UINT64_MAX for at in accumulate(sizes, initial=offset))
    # The CRC-32 stands in a block as it does in a slot.
    crcs = map(bytes, map(_CRC_OF, blocks))
    return b"".join(map(_SLOT_OF_CRC, offsets, sizes, crcs))


def _fitting(value: int, upto: int) -> int:
    """Refuse what has not that many bits, as the kernel does."""
    if not 0 <= value <= upto:
        raise OverflowError(f"{value} is too large, or negative")
    return value


def _index(value: int) -> int:
    """Refuse what no offset in memory has bits for, as the kernel does."""
    if not -_INDEX_MAX <= value <= _INDEX_MAX:
        raise OverflowError(f"{value} is too large for an offset")
    return value


def _are_fitting(*values: Any) -> None:
    for value in values:
        _fitting(value, _UINT64_MAX)
