"""The frame: what travels over a connection, in both directions.

All integers are little endian.

    offset  bytes
    0       4      length of everything behind this field
    4       4      CRC-32 of the bytes from offset 8 to the end of the body
    8       1      kind
    9       1      flags
    10      2      bytes of the body
    12      4      request
    16             body: what is asked or answered, by the kind (see `roost.wire.messages`)
                   blob: the rest, entry blocks that carry checksums of their own

Whoever receives a frame checks its length against a limit before anything else, and before there
is memory for it. The checksum leaves out the blob: an entry's own checksum is looked at where the
entry is used, and a second one over the same bytes would tell nobody anything new.
"""

from struct import Struct
from typing import Final, NamedTuple

from roost.errors import Invalid
from roost.wire.checksum import crc32
from roost.wire.entry import PAYLOAD_BYTES_MAX

HEAD: Final = Struct("<IIBBHI")
HEAD_BYTES: Final = HEAD.size
LENGTH_BYTES: Final = 4
CHECKED_FROM: Final = 8
BODY_BYTES_MAX: Final = (1 << 16) - 1
FRAME_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (64 << 10)
"""The longest frame, from its first byte to its last, once the handshake is done."""

HELLO_BYTES_MAX: Final = 4 << 10
"""The longest frame before that."""

REQUEST_MASK: Final = (1 << 32) - 1
"""Ids of requests are counted modulo 2^32."""

_FRONT: Final = Struct("<II")
_CHECKED: Final = Struct("<BBHI")
# What the length counts of the head.
_COUNTED_BYTES: Final = HEAD_BYTES - LENGTH_BYTES


class BadFrame(ValueError):
    """The peer does not keep to the protocol; the text says how. Nothing behind it can be read."""


class Frame(NamedTuple):
    """One frame as it was received; its head and body have been checked, its blob has not."""

    kind: int
    flags: int
    request: int
    body: bytes
    blob: bytes | memoryview


def encode_head(
    kind: int, request: int, body: bytes = b"", blob_bytes: int = 0, flags: int = 0
) -> bytes:
    """Make a frame as far as its blob, which follows as it is."""
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(
            f"a body of {len(body)} bytes (kind {kind}): at most {BODY_BYTES_MAX} fit in a frame"
        )
    checked = _CHECKED.pack(kind, flags, len(body), request) + body
    return _FRONT.pack(len(checked) + LENGTH_BYTES + blob_bytes, crc32(checked)) + checked


def encode_frame(
    kind: int, request: int, body: bytes = b"", blob: bytes = b"", flags: int = 0
) -> bytes:
    """Make a whole frame."""
    return encode_head(kind, request, body, len(blob), flags) + blob


def frame_bytes(head: bytes | memoryview, frame_bytes_max: int) -> int:
    """Tell how long the frame is that begins with this head; `BadFrame` if it must not be.

    Nothing but lengths is looked at, so that this can be asked before there is memory for it.
    """
    length, _, kind, _, body_bytes, _ = HEAD.unpack_from(head)
    if length > frame_bytes_max - LENGTH_BYTES:
        raise BadFrame(
            f"a frame of {length + LENGTH_BYTES} bytes: at most {frame_bytes_max} are allowed"
        )
    if length < _COUNTED_BYTES + body_bytes:
        raise BadFrame(f"a frame of kind {kind} whose body of {body_bytes} bytes does not fit in")
    whole: int = length + LENGTH_BYTES
    return whole


def decode_frame(whole: bytes | bytearray | memoryview) -> Frame:
    """Take apart a whole frame; the blob is not copied."""
    view = memoryview(whole)
    if len(view) < HEAD_BYTES or frame_bytes(view[:HEAD_BYTES], len(view)) != len(view):
        raise BadFrame(f"{len(view)} bytes are not one frame")
    _, crc, kind, flags, body_bytes, request = HEAD.unpack_from(view)
    blob_at = HEAD_BYTES + body_bytes
    if crc32(view[CHECKED_FROM:blob_at]) != crc:
        raise bad_checksum(kind, request)
    return Frame(kind, flags, request, bytes(view[HEAD_BYTES:blob_at]), view[blob_at:])


def bad_checksum(kind: int, request: int) -> BadFrame:
    """Say that a frame is not what was sent."""
    return BadFrame(f"the checksum of a frame does not hold (kind {kind}, request {request})")
