"""What a served metadata store is asked and answers, as bytes; `roost.wire.messages` has the kinds.

Pure. A message is MessagePack, an array of its fields in their order, and travels as the blob of
its frame, since a body would be too short for it. A frame's checksum leaves out its blob, so the
body holds the blob's: `<I`, CRC-32. Every answer is a DONE, or an ERROR.

    asked            with            answered with
    TXN     32       Txn             Outcome
    RANGE   33       Range           Page
    WATCH   34       Look            Found
    GRANT   35       Grant           Granted
    RENEW   36       Renew           Left
    REVOKE  37       Revoke          nothing, and no checksum
"""

from collections.abc import Sequence
from struct import Struct
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from roost.errors import Invalid
from roost.metadata.operations import Compare, Event, LeaseId, Operation, Revision
from roost.wire.checksum import crc32
from roost.wire.frame import Frame
from roost.wire.messages import decode, encode

T = TypeVar("T")

WAIT_S_MAX: Final = 60.0

_BODY: Final = Struct("<I")


class Txn(msgspec.Struct, frozen=True, array_like=True):
    """Carry out a transaction."""

    compares: Sequence[Compare]
    then: Sequence[Operation]
    orelse: Sequence[Operation]


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Read a page."""

    prefix: str
    after: str
    limit: int
    revision: Revision | None


class Look(msgspec.Struct, frozen=True, array_like=True):
    """Say what happened to some keys from a revision on; wait for it, if it was nothing yet."""

    prefix: str
    first: Revision
    wait_s: Annotated[float, Meta(ge=0.0, le=WAIT_S_MAX)]


class Found(msgspec.Struct, frozen=True, array_like=True):
    """What happened, perhaps nothing, and where to go on."""

    events: Sequence[Event]
    first: Revision


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """Begin a lease."""

    ttl_s: int


class Granted(msgspec.Struct, frozen=True, array_like=True):
    """It has begun."""

    lease: LeaseId


class Renew(msgspec.Struct, frozen=True, array_like=True):
    """Begin a lease's time anew."""

    lease: LeaseId


class Left(msgspec.Struct, frozen=True, array_like=True):
    """What time it has; none is left of one that is gone."""

    ttl_s: Annotated[float, Meta(ge=0.0, le=1e9)]


class Revoke(msgspec.Struct, frozen=True, array_like=True):
    """End a lease."""

    lease: LeaseId


def pack(message: msgspec.Struct) -> tuple[bytes, bytes]:
    """Make the body and the blob of a message."""
    blob = encode(message)
    return _BODY.pack(crc32(blob)), blob


def unpack(frame: Frame, kind: type[T]) -> T:
    """Read the message of a frame, once its checksum holds."""
    if frame.body != _BODY.pack(crc32(frame.blob)):
        raise Invalid(f"the checksum of a {kind.__name__} of {len(frame.blob)} bytes does not hold")
    return decode(frame.blob, kind)
