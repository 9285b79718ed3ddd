"""The file `offset`: where each receiver stands, in checksummed copies written in turn.

The table of bytes is in `docs/formats/channel.md`; one copy of a slot is

    0 'RoPs'  4 u8 version  5 u8 kind  6 u16 name length  8 u64 id  16 name (88)
    104 u64 sequence  112 u64 position  120 u32 crc32 of 0..119  124 zero

The promise: while one of a slot's two copies is whole, its last or its last but one position is
known; a torn copy is never taken for a position.
"""

import struct
from enum import IntEnum
from typing import Final

import msgspec

from roost.errors import Invalid
from roost.segments.kernel import crc32

SLOT_BYTES: Final = 128
SLOTS: Final = 256
HALF_BYTES: Final = SLOT_BYTES * SLOTS
FILE_BYTES: Final = 2 * HALF_BYTES
NAME_BYTES_MAX: Final = 88

_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">4sBBHQ88s")
_MOVING: Final = struct.Struct(">QQ")
_CHECK: Final = struct.Struct(">I4x")
_MAGIC: Final = b"RoPs"
_FREE: Final = (bytes(SLOT_BYTES), bytes(SLOT_BYTES))
_NUMBER_MAX: Final = 2**63 - 1  # nobody gets there; so what comes after it fits, too


class Kind(IntEnum):
    """What a slot is for."""

    CHANNEL = 1
    RECEIVER = 2


class Mark(msgspec.Struct, frozen=True):
    """One slot's content: who it is, and where it stands."""

    slot: int
    kind: Kind
    name: str
    id: int
    sequence: int
    position: int

    @property
    def prefix(self) -> bytes:
        """The part of a copy that stays the same while the position moves."""
        name = self.name.encode()
        return _PREFIX.pack(_MAGIC, _VERSION, self.kind, len(name), self.id, name)


def check_name(name: str) -> None:
    """Refuse a receiver's name that cannot be kept."""
    try:
        size = len(name.encode()) if isinstance(name, str) else 0
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= NAME_BYTES_MAX or "\0" in name:
        raise Invalid(
            f"receiver name {name!r}: 1 to {NAME_BYTES_MAX} bytes of UTF-8 without zero bytes"
        )


def encode_copy(mark: Mark) -> bytes:
    """Write one copy of a slot."""
    body = mark.prefix + _MOVING.pack(mark.sequence, mark.position)
    return body + _CHECK.pack(crc32(body))


def copy_offset(slot: int, sequence: int) -> int:
    """Say where in the file the copy of a sequence belongs."""
    return SLOT_BYTES * slot + HALF_BYTES * (sequence % 2)


def decode_copy(slot: int, raw: bytes) -> Mark | None:
    """Read one copy of a slot; None for one that is free or torn."""
    if len(raw) != SLOT_BYTES or _CHECK.unpack_from(raw, 120)[0] != crc32(raw[:120]):
        return None
    magic, version, kind, name_bytes, number, name = _PREFIX.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION or name_bytes > NAME_BYTES_MAX:
        return None
    if kind not in tuple(Kind) or (kind == Kind.CHANNEL) != (slot == 0):
        return None
    try:
        text = name[:name_bytes].decode()
    except UnicodeDecodeError:
        return None
    sequence, position = _MOVING.unpack_from(raw, 104)
    if max(number, sequence, position) > _NUMBER_MAX:
        return None
    return Mark(
        slot=slot, kind=Kind(kind), name=text, id=number, sequence=sequence, position=position
    )


def decode_marks(raw: bytes) -> dict[int, Mark]:
    """Read the whole file: for each slot in use the valid copy with the higher sequence."""
    return decode_slots(range(SLOTS), raw[:HALF_BYTES], raw[HALF_BYTES:])[0]


def decode_slots(slots: range, first: bytes, second: bytes) -> tuple[dict[int, Mark], list[int]]:
    """Read some slots from their part of each half; the list names those that no copy tells.

    There are such slots where the file is damaged, or where its owner wrote while it was read.
    """
    marks: dict[int, Mark] = {}
    untold: list[int] = []
    for at, slot in enumerate(slots):
        place = slice(SLOT_BYTES * at, SLOT_BYTES * (at + 1))
        raw = (first[place], second[place])
        if raw == _FREE:
            continue
        copies = [mark for copy in raw if (mark := decode_copy(slot, copy)) is not None]
        if copies:
            marks[slot] = max(copies, key=lambda mark: mark.sequence)
        elif any(copy.strip(b"\0") for copy in raw):
            untold.append(slot)
    return marks, untold


def free_slot(used: dict[int, Mark]) -> int:
    """Choose a slot for a new receiver."""
    for slot in range(1, SLOTS):
        if slot not in used:
            return slot
    raise Invalid(f"a channel keeps at most {SLOTS - 1} receivers; remove one first")
