"""Walks of the kernel and its twin over whole segments, where the bytes may be anything.

A scan ends behind the last good frame, a boundary is found by lengths alone, and a search finds
good frames again behind damage, in time that does not depend on what the damage claims.
"""

import struct
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.segments import _kernel, plain
from tests.unit.segments.kernels import MIB, cursor, framed, implementations

GOLDEN = Path(__file__).parents[2] / "golden" / "filechannel"


@implementations
@pytest.mark.parametrize(
    "path",
    sorted(GOLDEN.glob("*/segment.[0-9]")),
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_segments_of_the_published_original_are_frames_to_their_end(
    made: ModuleType, path: Path
) -> None:
    whole = path.read_bytes()

    end, count = made.scan(whole, 64, len(whole))
    taken = cursor(made, whole[64:]).take(count + 1, len(whole))

    assert end == len(whole)
    assert len(taken) == count > 0
    assert made.frames(taken) == whole[64:]


@implementations
def test_a_scan_ends_behind_the_last_good_frame(made: ModuleType) -> None:
    good = framed(b"a", b"b" * 100)

    assert made.scan(b"head" + good, 4, 4 + len(good)) == (4 + len(good), 2)
    assert made.scan(b"head" + good + bytes(50), 4, 4 + len(good) + 50) == (4 + len(good), 2)
    assert made.scan(good, 0, len(good) - 1) == (9, 1)
    assert made.scan(good + framed(b"c")[:-1] + b"d", 0, len(good) + 9) == (len(good), 2)
    assert made.scan(good, 9, 9) == (9, 0)
    assert made.scan(b"", 0, 0) == (0, 0)


@implementations
@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (6, 5), (0, 11), (11, 11)])
def test_a_walk_stays_within_its_view(made: ModuleType, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        made.scan(bytes(10), start, stop)
    with pytest.raises(ValueError, match="no range"):
        made.boundary(bytes(10), start, stop, start)
    with pytest.raises(ValueError, match="no range"):
        made.resume(bytes(10), start, stop, 5)


@implementations
def test_a_walk_lets_go_of_its_view(made: ModuleType) -> None:
    view = bytearray(framed(b"a"))

    made.scan(view, 0, 9)
    made.boundary(view, 0, 9, 5)
    made.resume(view, 0, 9, 5)
    with pytest.raises(ValueError, match="no range"):
        made.scan(view, 0, 10)

    view.append(1)


@implementations
def test_a_boundary_is_found_by_lengths_alone(made: ModuleType) -> None:
    whole = framed(b"a", b"bc", b"def").replace(b"bc", b"xx") + bytes(9)
    found = [made.boundary(whole, 0, len(whole), target) for target in range(len(whole) + 5)]

    assert found == [0] * 9 + [9] * 10 + [19] * 11 + [30] * (len(whole) + 5 - 30)
    assert made.boundary(whole, 9, 20, 30) == 19
    with pytest.raises(ValueError, match="before the start"):
        made.boundary(whole, 9, 20, 8)


@implementations
def test_good_frames_are_found_again_behind_damage(made: ModuleType) -> None:
    damage = b"\0\0\0\3" * 5
    good = framed(b"message", b"another")
    whole = damage + good

    assert made.resume(whole, 0, len(whole), 100) == 20
    assert made.resume(whole, 20, len(whole), 100) == 20
    assert made.resume(whole, 21, len(whole), 100) == 35
    assert made.resume(whole, 36, len(whole), 100) == -1
    assert made.resume(whole, 0, len(whole), 7) == 20
    assert made.resume(whole, 0, len(whole), 6) == -1
    assert made.resume(whole, 0, 34, 100) == -1
    assert made.resume(whole, 50, 50, 100) == -1


@pytest.mark.parametrize("size", [4095, 4096, 4097, 70_000, MIB + 1])
@pytest.mark.parametrize("before", [0, 1, 255, 256, 257, 5000])
def test_a_long_frame_is_found_behind_damage(size: int, before: int) -> None:
    # Every other byte of the damage claims a length of some KiB, as columns of numbers do.
    damage = (b"\0\0\x10\x20" * 1250)[:before]
    payload = bytes(n * n % 253 for n in range(5000)) * (size // 5000 + 1)
    whole = damage + framed(payload[:size]) + bytes(6000)

    for made in (_kernel, plain):
        assert made.resume(whole, 0, len(whole), size) == before
    spoilt = whole.replace(payload[size - 40 : size] + bytes(6000), bytes(6040))
    assert _kernel.resume(spoilt, 0, len(spoilt), size) == -1


def test_a_search_through_crafted_lengths_ends() -> None:
    # Each fourth offset claims 1 MiB: summing up every claim anew would be 2 TB.
    whole = b"\0\x10\0\0" * (2 * MIB)

    assert _kernel.resume(whole, 0, len(whole), MIB) == -1


pieces = st.one_of(
    st.binary(min_size=1, max_size=80).map(framed),
    st.binary(max_size=20),
    st.integers(0, 60).map(lambda size: struct.pack(">I", size)),
    st.just(bytes(8)),
)


@given(st.lists(pieces, max_size=12).map(b"".join), st.lists(st.integers(0, 10**6), min_size=3))
def test_walks_of_the_two_agree_over_anything(whole: bytes, marks: list[int]) -> None:
    start, stop, target = sorted(mark % (len(whole) + 1) for mark in marks[:3])

    assert _kernel.scan(whole, start, stop) == plain.scan(whole, start, stop)
    assert _kernel.boundary(whole, start, stop, target) == plain.boundary(
        whole, start, stop, target
    )
    for bytes_max in (10, 1000):
        found = plain.resume(whole, start, stop, bytes_max)
        assert _kernel.resume(whole, start, stop, bytes_max) == found
