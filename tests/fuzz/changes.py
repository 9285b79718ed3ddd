"""Changes that know what the bytes mean: of frames, half of them with the checksum put right.

A fuzzer that only flips bits never gets behind a checksum. These take bytes apart as far as they
can be understood, change one thing that a format says, and put it together again.
"""

import struct
import zlib
from random import Random

from tests.fuzz.frames import FRAME_BYTES, frame

SIZES = (0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 4095, 4096, 2**16, 2**31, 2**32 - 1)
LONG = (*SIZES, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 9, 2**64 - 1)


def any_bytes(raw: bytes, rng: Random) -> bytes:
    """Change some bytes without knowing what they are."""
    made = bytearray(raw)
    at = rng.randrange(len(made) + 1)
    match rng.randrange(5):
        case 0 if made:
            made[at % len(made)] ^= 1 << rng.randrange(8)
        case 1 if made:
            made[at % len(made)] = rng.randrange(256)
        case 2:
            del made[at:]
        case 3:
            made[at:at] = rng.randbytes(rng.randrange(1, 9))
        case _:
            del made[at : at + rng.randrange(1, 20)]
    return bytes(made)


def pieces_of(body: bytes) -> list[bytes]:
    """Cut bytes into frames by their lengths alone; the last piece is what is no frame."""
    pieces = []
    at = 0
    while at + FRAME_BYTES < len(body):
        size = FRAME_BYTES + int.from_bytes(body[at : at + 4], "big")
        if size == FRAME_BYTES or at + size > len(body):
            break
        pieces.append(body[at : at + size])
        at += size
    return [*pieces, body[at:]] if at < len(body) else pieces


def any_frames(body: bytes, rng: Random) -> bytes:
    """Change one frame, or the order of frames."""
    pieces = pieces_of(body) or [b""]
    at = rng.randrange(len(pieces))
    match rng.randrange(9):
        case 0:
            pieces[at] = any_bytes(pieces[at], rng)
        case 1:
            payload = any_bytes(pieces[at][FRAME_BYTES:], rng) or b"x"
            pieces[at] = (
                frame(payload) if rng.getrandbits(1) else pieces[at][:FRAME_BYTES] + payload
            )
        case 2:
            pieces.insert(at, frame(rng.randbytes(rng.choice((1, 8, 40, 500)))))
        case 3:
            pieces.insert(at, pieces[rng.randrange(len(pieces))])
        case 4:
            del pieces[at]
        case 5:
            length = rng.choice(SIZES) & 0xFFFFFFFF
            pieces[at] = struct.pack(">I", length) + pieces[at][4:]
        case 6:
            pieces.insert(at, bytes(rng.choice((1, 8, 16, 100, 600))))
        case 7:
            # A message that holds a frame: searching for the next good one must not stop there.
            pieces[at] = frame(rng.randbytes(rng.randrange(9)) + frame(pieces[at]) + b"end")
        case _:
            pieces = pieces[: at + 1]
            pieces[at] = pieces[at][: rng.randrange(len(pieces[at]) + 1)]
    return b"".join(pieces)


def any_number(raw: bytes, layout: str, rng: Random) -> bytes:
    """Change one number of a record; what the layout does not reach stays."""
    size = struct.calcsize(layout)
    numbers = list(struct.unpack(layout, raw[:size].ljust(size, b"\0")))
    at = rng.randrange(len(numbers))
    if isinstance(numbers[at], int):
        drawn = rng.choice((numbers[at] + rng.randrange(-2, 3), rng.choice(LONG)))
        field = [code for code in layout if code in "BHIQ"]
        bits = {"B": 8, "H": 16, "I": 32, "Q": 64}[
            field[sum(isinstance(n, int) for n in numbers[:at])]
        ]
        numbers[at] = drawn % (1 << bits)
    else:
        numbers[at] = any_bytes(numbers[at], rng)
    return struct.pack(layout, *numbers) + raw[size:]


def crc_put_right(copy: bytes) -> bytes:
    """Give a copy of a slot the checksum that it should have."""
    return copy[:120] + struct.pack(">I", zlib.crc32(copy[:120])) + copy[124:]
