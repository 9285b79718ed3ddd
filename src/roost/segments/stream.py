"""What `scan` tells of a view, told of frames that come as a stream and are not kept.

Pure. Offsets count the stream's bytes. The promise: whatever the stream holds, and however much of
it there is, no more than two of the largest messages are in memory at once.
"""

from collections.abc import Iterable, Iterator

from roost.segments.format import FRAME_BYTES
from roost.segments.kernel import crc32, resume
from roost.segments.scan import next_good


def frame_end_in(chunks: Iterable[bytes], at: int) -> int:
    """Tell where the frame at `at` ends if it is good, however long it is; -1 if it is not."""
    head, length, missing, crc = b"", 0, 0, 0
    for chunk in _behind(chunks, at):
        content = chunk
        if not length:
            head += chunk
            if len(head) < FRAME_BYTES:
                continue
            length = missing = int.from_bytes(head[:4], "big")
            content = head[FRAME_BYTES:]
        crc = crc32(content[:missing], crc)
        missing -= min(missing, len(content))
        if not missing:
            good = length and crc == int.from_bytes(head[4:FRAME_BYTES], "big")
            return at + FRAME_BYTES + length if good else -1
    return -1


def next_good_in(chunks: Iterable[bytes], at: int, bytes_max: int) -> int:
    """Find the first good frame behind the bad one at `at`, as `next_good` does; -1 without one.

    What is further away than two of the largest messages tells nothing of the bad one any more:
    there, the first good frame counts.
    """
    size_max = FRAME_BYTES + bytes_max
    held, begin = bytearray(), at
    for chunk in _behind(chunks, at):
        held += chunk
        while len(held) >= 2 * size_max:
            found = _search(held, bytes_max, behind_bad=begin == at)
            # A frame that begins earlier may be cut off here.
            if found >= 0 and (begin == at or found <= size_max):
                return begin + found
            del held[:size_max]
            begin += size_max
    found = _search(held, bytes_max, behind_bad=begin == at)
    return begin + found if found >= 0 else -1


def _search(held: bytearray, bytes_max: int, *, behind_bad: bool) -> int:
    view = memoryview(held).toreadonly()
    if behind_bad:
        return next_good(view, 0, len(held), bytes_max) if held else -1
    return resume(view, 0, len(held), bytes_max)


def boundary_in(chunks: Iterable[bytes], target: int) -> int:
    """Hop from frame to frame by lengths alone; the last boundary at or before `target`."""
    at, held, begin = 0, b"", 0
    for chunk in chunks:
        held += chunk
        while 0 <= at - begin <= len(held) - FRAME_BYTES:
            length = int.from_bytes(held[at - begin : at - begin + 4], "big")
            if length == 0 or at + FRAME_BYTES + length > target:
                return at
            at += FRAME_BYTES + length
        passed = min(at - begin, len(held))
        held, begin = held[passed:], begin + passed
    return at


def _behind(chunks: Iterable[bytes], at: int) -> Iterator[bytes]:
    """Pass over what comes before the offset `at`."""
    for chunk in chunks:
        if at < len(chunk):
            yield chunk[at:]
        at = max(0, at - len(chunk))
