"""Tells what the bytes of a segment are: good frames, damage, or a torn tail.

Pure: it looks at bytes and answers; cutting, moving and reporting is the caller's. The two
promises it keeps: a good frame is never given up because something before it is bad, and bytes
below the durable bound are never called a tail.
"""

from typing import Final

import msgspec

from roost.segments.format import FRAME_BYTES, HEADER_BYTES
from roost.segments.kernel import boundary, crc32, resume, scan

_PIECE_BYTES: Final = 1 << 20


class Damage(msgspec.Struct, frozen=True):
    """A range of file offsets that holds no good frame and must not be served or cut."""

    start: int
    stop: int


class Survey(msgspec.Struct, frozen=True):
    """What a segment turned out to be; all numbers are file offsets.

    `end` is where the next frame goes. Bytes from `end` before `torn_stop` are a torn tail with
    something in it; where they are equal, what follows `end` is zeros or nothing.
    """

    end: int
    damages: tuple[Damage, ...]
    torn_stop: int

    @property
    def torn_bytes(self) -> int:
        """Tell how much of the tail is worth keeping aside."""
        return self.torn_stop - self.end


def nonzero_stop(view: memoryview, start: int, stop: int) -> int:
    """Find the offset after the last byte in the range that is not zero; `start` if none is."""
    while stop > start:
        piece = max(start, stop - _PIECE_BYTES)
        kept = bytes(view[piece:stop]).rstrip(b"\0")
        if kept:
            return piece + len(kept)
        stop = piece
    return start


def survey(
    view: memoryview, *, stop: int, bound: int, message_bytes_max: int, foreign: bool
) -> Survey:
    """Look at the frames of one segment file, up to the file offset `stop`.

    `bound` is the file offset below which everything was durable. In a `foreign` folder, which
    names no bound, good frames behind a bad one make it damage rather than a tail.
    """
    damages: list[Damage] = []
    at = HEADER_BYTES
    while True:
        at, _ = scan(view, at, stop)
        if at == stop:
            return Survey(end=at, damages=tuple(damages), torn_stop=at)
        again = -1
        if at < bound or foreign:
            again = next_good(view, at, stop, message_bytes_max)
        if again < 0 and at < bound <= stop:
            again = bound
        if again < 0:
            if at < bound:
                damages.append(Damage(start=at, stop=stop))
                return Survey(end=stop, damages=tuple(damages), torn_stop=stop)
            return Survey(end=at, damages=tuple(damages), torn_stop=nonzero_stop(view, at, stop))
        damages.append(Damage(start=at, stop=again))
        at = again


def next_good(view: memoryview, at: int, stop: int, bytes_max: int) -> int:
    """Find the first good frame behind the bad one at `at`; -1 if none is before `stop`.

    A message may hold what looks like frames, and they must not come to light when it is damaged.
    So a frame that the search finds counts if the bad one's checksum holds up to there: then only
    its length was wrong. If none does, lengths are followed, as long as they lead anywhere. Only
    where they do not, the first frame that was found must do.
    """
    led = _led_by_lengths(view, at, stop)
    if led == at:
        return -1
    limit = stop if led is None else led
    wanted = int.from_bytes(view[at + 4 : at + FRAME_BYTES], "big")
    first, checked, crc = -1, at + FRAME_BYTES, 0
    found = resume(view, at + 1, limit, bytes_max)
    while found >= 0:
        first = found if first < 0 else first
        if found > checked:
            crc, checked = crc32(view[checked:found], crc), found
            if crc == wanted:
                return found
        found = resume(view, found + 1, limit, bytes_max)
    if led is None:
        return first
    return led if led < stop and _holds_frame(view, led, stop) else -1


def _led_by_lengths(view: memoryview, at: int, stop: int) -> int | None:
    """Follow lengths from a bad frame to a good one, or to where frames end."""
    while at < stop:
        length = int.from_bytes(view[at : at + 4], "big")
        if length == 0 or at + FRAME_BYTES + length > stop:
            return at if nonzero_stop(view, at, stop) == at else None
        at += FRAME_BYTES + length
        if _holds_frame(view, at, stop):
            break
    return at


def frame_boundary(view: memoryview, *, stop: int, target: int) -> int:
    """Find the frame boundary at or before the file offset `target`.

    Hops from frame to frame. Where damage breaks the chain, a good frame that stands exactly at
    `target` is a boundary too.
    """
    found = boundary(view, HEADER_BYTES, stop, target)
    if found == target or _holds_frame(view, found, stop):
        return found
    return target if _holds_frame(view, target, stop) else found


def _holds_frame(view: memoryview, at: int, stop: int) -> bool:
    """Tell whether a good frame stands at `at`."""
    after = at + FRAME_BYTES + int.from_bytes(view[at : at + 4], "big")
    return after <= stop and scan(view, at, after)[1] == 1
