"""Protocol Buffers' wire format, as much of it as etcd's interface needs.

Pure. A message is its fields by their numbers; who encodes or decodes knows what they mean. That is
some sixty lines, and no generated code that would have to fit a certain version of a runtime.

    field    varint: number << 3 | kind     then, by its kind
    0        varint: a whole number; a negative one as 64 bits, two's complement
    1        8 bytes, passed over
    2        varint: length; then so many bytes: text, bytes, or a message
    5        4 bytes, passed over
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from roost.errors import Invalid

Value = int | bytes
Fields = Mapping[int, Sequence[Value]]
"""The values of each field that was there, in order."""

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


def encode(fields: Iterable[tuple[int, Value | None]]) -> bytes:
    """Make a message; None and 0 are left out, which means the same, and empty bytes are not."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, bytes):
            _add_varint(out, number << 3 | _BYTES)
            _add_varint(out, len(value))
            out += value
        elif value:
            _add_varint(out, number << 3 | _VARINT)
            _add_varint(out, value & _MASK)
    return bytes(out)


def decode(message: bytes) -> Fields:
    """Take a message apart; `Invalid` if it is none."""
    fields: dict[int, list[Value]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            found, place = _varint(message, place)
            fields.setdefault(number, []).append(found - (found & _SIGN) * 2)
            continue
        size, place = _size(message, place, kind)
        if place + size > len(message):
            raise Invalid(f"field {number} of a message has {size} bytes, which do not fit in")
        if kind == _BYTES:
            fields.setdefault(number, []).append(message[place : place + size])
        place += size
    return fields


def number_of(fields: Fields, field: int) -> int:
    """Read a whole number; 0 if it is not there."""
    found = fields.get(field, (0,))[-1]
    if isinstance(found, bytes):
        raise Invalid(f"field {field} of a message is no number")
    return found


def bytes_of(fields: Fields, field: int) -> bytes:
    """Read bytes; none if they are not there."""
    found = fields.get(field, (b"",))[-1]
    if isinstance(found, int):
        raise Invalid(f"field {field} of a message is a number")
    return found


def all_of(fields: Fields, field: int) -> list[Fields]:
    """Read all messages of a field."""
    return [decode(each) for each in fields.get(field, ()) if isinstance(each, bytes)]


def one_of(fields: Fields, field: int) -> Fields:
    """Read the message of a field; an empty one if it is not there."""
    return decode(bytes_of(fields, field))


def _size(message: bytes, place: int, kind: int) -> tuple[int, int]:
    if kind == _BYTES:
        return _varint(message, place)
    if kind in (_EIGHT, _FOUR):
        return (8 if kind == _EIGHT else 4), place
    raise Invalid(f"a message has a field of kind {kind}, which there is not")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    found = 0
    for count in range(_VARINT_BYTES_MAX):
        if place + count >= len(message):
            break
        byte = message[place + count]
        found |= (byte & 0x7F) << 7 * count
        if not byte & 0x80:
            return found & _MASK, place + count + 1
    raise Invalid(f"a message of {len(message)} bytes breaks off in a number")


def _add_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:  # noqa: PLR2004  the seven bits that a byte has for it
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
