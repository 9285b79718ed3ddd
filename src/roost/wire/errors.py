"""Errors on the wire: a code for each class of `roost.errors`, the message, and the attributes.

An ERROR's body is MessagePack, an array: code, message, attributes by name. Codes never change:

      1 RoostError
    100 Retryable  101 Sealed  102 Throttled  103 NoRoom  104 Unavailable
    200 Unknown    300 Fenced  400 Conflict   500 Invalid
    600 Missing    601 NotFound 602 Trimmed 603 Compacted
    700 Corrupt    800 Closed  900 Denied

The hundreds are the branches of the tree: a receiver that does not know a code takes it for the
class at the root of its branch, since that is what decides what to do next, and for a plain
`RoostError` if it does not know the branch. So does one that misses an attribute. An error is
never the reason for another: only bytes that are no such array at all are `Invalid`.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roost.errors import (
    Closed,
    Compacted,
    Conflict,
    Corrupt,
    Denied,
    Fenced,
    Invalid,
    Missing,
    NoRoom,
    NotFound,
    Retryable,
    RoostError,
    Sealed,
    Throttled,
    Trimmed,
    Unavailable,
    Unknown,
)
from roost.wire.messages import decode, encode

TEXT_BYTES_MAX: Final = 1024
"""How much of a text is kept; an ERROR then fits in a frame of the handshake."""

BRANCH: Final = 100

CODES: Final[dict[int, type[RoostError]]] = {
    1: RoostError,
    100: Retryable,
    101: Sealed,
    102: Throttled,
    103: NoRoom,
    104: Unavailable,
    200: Unknown,
    300: Fenced,
    400: Conflict,
    500: Invalid,
    600: Missing,
    601: NotFound,
    602: Trimmed,
    603: Compacted,
    700: Corrupt,
    800: Closed,
    900: Denied,
}

ATTRIBUTES: Final[dict[type[RoostError], dict[str, type[int | str]]]] = {
    Sealed: {"ledger": int, "last": int},
    Fenced: {"ledger": int, "epoch": int},
    Trimmed: {"head": int},
    Compacted: {"upto": int},
    Corrupt: {"file": str, "offset": int},
}
"""What an error of a class has besides its message."""

_CODE_OF: Final = {kind: code for code, kind in CODES.items()}


class ErrorBody(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels."""

    code: Annotated[int, Meta(ge=0, le=65535)]
    message: str
    fields: dict[str, int | str] = {}


def encode_error(error: RoostError) -> bytes:
    """Make the body of an ERROR; a class that has no code travels as the nearest that has."""
    kind = next(base for base in type(error).__mro__ if base in _CODE_OF)
    fields: dict[str, int | str] = {}
    for name, of in ATTRIBUTES.get(kind, {}).items():
        value = getattr(error, name)
        fields[name] = value if of is int else _short(str(value))
    return encode(ErrorBody(_CODE_OF[kind], _short(str(error)), fields))


def decode_error(body: bytes) -> RoostError:
    """Make the error again that a peer had."""
    sent = decode(body, ErrorBody)
    kind = CODES.get(sent.code) or CODES.get(sent.code // BRANCH * BRANCH, RoostError)
    wanted = ATTRIBUTES.get(kind, {})
    fields = {name: sent.fields.get(name) for name in wanted}
    if any(type(value) is not wanted[name] for name, value in fields.items()):
        (kind, *_), fields = kind.__bases__, {}
    made: RoostError = kind(sent.message, **fields)
    return made


def _short(text: str) -> str:
    """Cut a text to what travels; what is no text in UTF-8 is shown as it can be."""
    raw = text.encode(errors="backslashreplace")
    return raw[:TEXT_BYTES_MAX].decode(errors="ignore")
