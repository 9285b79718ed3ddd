"""Frames that come as a stream: the same answers as of a view, in a little memory.

A stream may be cut into chunks anywhere, hold far more than fits into memory, and lie about every
length.
"""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise, repeat

from hypothesis import given
from hypothesis import strategies as st

from roost.segments.kernel import boundary, frame, scan
from roost.segments.scan import next_good
from roost.segments.stream import boundary_in, frame_end_in, next_good_in

MIB = 1 << 20

good = st.binary(min_size=1, max_size=40).map(frame)
bad = st.builds(
    lambda whole, at: whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :],
    good,
    st.integers(0, 8),
)
zeros = st.integers(1, 30).map(bytes)
bodies = st.lists(good | good | bad | zeros | st.binary(max_size=20), max_size=8).map(b"".join)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Draw a body, and the chunks that it comes in."""
    body = draw(bodies)
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6)))
    return body, [body[a:b] for a, b in pairwise([0, *cuts, len(body)])]


def megabytes_of_zeros(count: int, then: bytes = b"") -> Iterator[bytes]:
    yield from repeat(bytes(MIB), count)
    yield then


@given(streams(), st.integers(0, 300))
def test_the_end_of_a_frame_is_that_which_a_scan_finds(
    stream: tuple[bytes, list[bytes]], at: int
) -> None:
    body, chunks = stream
    at = min(at, len(body))
    stop = min(len(body), at + 8 + int.from_bytes(body[at : at + 4], "big"))
    end, count = scan(body, at, stop)

    assert frame_end_in(chunks, at) == (end if count else -1)


@given(streams(), st.integers(0, 300))
def test_the_boundary_is_that_which_lengths_lead_to(
    stream: tuple[bytes, list[bytes]], target: int
) -> None:
    body, chunks = stream

    found = boundary_in(chunks, min(target, len(body)))

    assert found == boundary(body, 0, len(body), min(target, len(body)))


@given(streams(), st.integers(0, 300))
def test_the_next_good_frame_is_that_which_a_view_shows(
    stream: tuple[bytes, list[bytes]], at: int
) -> None:
    body, chunks = stream
    at = min(at, len(body))
    expected = next_good(memoryview(body), at, len(body), MIB) if at < len(body) else -1

    assert next_good_in(chunks, at, MIB) == expected


@given(st.integers(0, 400), good, streams())
def test_behind_a_long_stretch_of_damage_the_first_good_frame_counts(
    zeros: int, first: bytes, stream: tuple[bytes, list[bytes]]
) -> None:
    damage = b"\xff\xff\xff\xff" + bytes(100 + zeros)
    chunks = [damage, first, *stream[1]]

    assert next_good_in(chunks, 0, 40) == len(damage)


def test_a_stream_of_any_size_is_searched_in_the_memory_of_two_messages() -> None:
    last = frame(b"last")

    tracemalloc.start()
    found = next_good_in(megabytes_of_zeros(64, last), 0, MIB)
    end = frame_end_in(megabytes_of_zeros(64, last), 64 * MIB)
    at = boundary_in(megabytes_of_zeros(64), 64 * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (found, end, at) == (64 * MIB, 64 * MIB + len(last), 0)
    assert peak < 8 * MIB


def test_a_frame_of_any_size_is_checked_without_being_kept() -> None:
    payload = bytes(range(256)) * (64 << 10)
    whole = frame(payload)

    tracemalloc.start()
    end = frame_end_in((whole[at : at + MIB] for at in range(0, len(whole), MIB)), 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert end == len(whole)
    assert peak < 8 * MIB
