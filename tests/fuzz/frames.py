"""Frames and headers as `docs/formats/channel.md` has them: a second hand, for the oracles.

It shares no code with Roost, and is as plain and slow as can be.
"""

import struct
import zlib

HEADER_BYTES = 64
FRAME_BYTES = 8


def frame(payload: bytes) -> bytes:
    """Write one frame."""
    return struct.pack(">II", len(payload), zlib.crc32(payload)) + payload


def good(body: bytes, at: int, *, payload_bytes_max: int) -> bytes | None:
    """Give the message whose frame stands at an offset, if one does."""
    if at + FRAME_BYTES > len(body):
        return None
    length, crc = struct.unpack_from(">II", body, at)
    payload = body[at + FRAME_BYTES : at + FRAME_BYTES + length]
    if not 1 <= length <= payload_bytes_max or len(payload) < length:
        return None
    return payload if zlib.crc32(payload) == crc else None


def chain(body: bytes, *, payload_bytes_max: int) -> tuple[list[tuple[int, bytes]], int]:
    """Give the good frames that follow one another from the begin on, and where they end."""
    found = []
    at = 0
    while (payload := good(body, at, payload_bytes_max=payload_bytes_max)) is not None:
        found.append((at, payload))
        at += FRAME_BYTES + len(payload)
    return found, at


def check_served(body: bytes, served: list[tuple[int, bytes]], *, payload_bytes_max: int) -> None:
    """Check messages that were served of a segment, whose offsets count from its first frame.

    All that is whole from the begin on comes first. Of what follows the first damage, each one
    stands where it is said to, and none is left out that follows a good one.
    """
    expected, at = chain(body, payload_bytes_max=payload_bytes_max)
    assert served[: len(expected)] == expected
    for begin, payload in served[len(expected) :]:
        assert begin >= at, "a message inside another one was served"
        passed = good(body, at, payload_bytes_max=payload_bytes_max)
        assert begin == at or passed is None, "a good message was passed over"
        assert good(body, begin, payload_bytes_max=payload_bytes_max) == payload
        at = begin + FRAME_BYTES + len(payload)


def plain_header(number: int, begin: int) -> bytes:
    """Write the header of a plain segment."""
    return struct.pack(">IQ52x", number, begin)


def packed_header(number: int, begin: int, end: int, method: int) -> bytes:
    """Write the header of a compressed segment."""
    return struct.pack(">IQQB43x", number, begin, end, method)
