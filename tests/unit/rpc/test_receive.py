"""Collecting frames: however the bytes are cut, the same frames come out, in bounded memory."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.rpc.receive import BUFFER_BYTES, GROWTH, LARGE_BYTES, Receiver
from roost.wire.frame import FRAME_BYTES_MAX, HEAD_BYTES, BadFrame, Frame, encode_frame

SMALL = [
    encode_frame(kind, request, bytes(range(request)), b"blob" * request, flags=request)
    for kind, request in ((1, 0), (2, 1), (66, 2), (127, 200))
]
LARGE = encode_frame(2, 9, b"body", Random(1).randbytes(3 * BUFFER_BYTES))
MEDIUM = encode_frame(2, 8, b"body", Random(2).randbytes(LARGE_BYTES + 5))


def fill(receiver: Receiver, piece: bytes) -> list[Frame]:
    """Bring all bytes in, as much at once as there is room for."""
    frames: list[Frame] = []
    while piece:
        room = receiver.room()
        size = min(len(room), len(piece))
        room[:size] = piece[:size]
        receiver.took(size)
        frames.extend(receiver.frames())
        piece = piece[size:]
    return frames


def cut_at(raw: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(at % (len(raw) + 1) for at in places), len(raw)]
    return [raw[a:b] for a, b in pairwise(bounds)]


def receive(pieces: list[bytes], frame_bytes_max: int = FRAME_BYTES_MAX) -> list[bytes]:
    receiver = Receiver(frame_bytes_max)
    frames = [frame for piece in pieces for frame in fill(receiver, piece)]
    return [encode_frame(f.kind, f.request, f.body, bytes(f.blob), f.flags) for f in frames]


def test_frames_that_are_cut_anywhere_come_out_whole() -> None:
    raw = b"".join(SMALL)

    for at in range(len(raw) + 1):
        assert receive([raw[:at], raw[at:]]) == SMALL


def test_frames_that_come_byte_by_byte_come_out_whole() -> None:
    raw = b"".join(SMALL)

    assert receive([raw[at : at + 1] for at in range(len(raw))]) == SMALL


@given(
    st.lists(st.sampled_from([*SMALL, MEDIUM, LARGE]), max_size=6),
    st.lists(st.integers(0, 2**32), max_size=8),
)
def test_small_and_large_frames_keep_their_order(frames: list[bytes], cuts: list[int]) -> None:
    assert receive(cut_at(b"".join(frames), cuts)) == frames


def test_a_large_frame_is_read_to_where_it_stays() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    fill(receiver, LARGE[: BUFFER_BYTES + 1])
    room = receiver.room()
    size = len(LARGE) - BUFFER_BYTES - 1
    room[:size] = LARGE[-size:]
    receiver.took(size)

    (frame,) = receiver.frames()

    assert isinstance(frame.blob, memoryview)
    assert frame.blob == LARGE[20:]
    assert frame.body == b"body"


def test_behind_a_large_frame_a_head_is_read_by_itself_and_the_rest_to_where_it_stays() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    fill(receiver, LARGE)

    assert len(receiver.room()) == HEAD_BYTES
    assert fill(receiver, MEDIUM[:HEAD_BYTES]) == []
    room = receiver.room()
    assert len(room) == len(MEDIUM) - HEAD_BYTES
    room[:] = MEDIUM[HEAD_BYTES:]
    receiver.took(len(room))
    (frame,) = receiver.frames()
    room[-3:] = b"end"

    assert frame.request == 8
    assert frame.blob[-3:] == b"end"


def test_what_is_small_behind_a_large_frame_is_read_together_again() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    fill(receiver, LARGE)

    frames = fill(receiver, SMALL[1][:HEAD_BYTES])

    assert len(receiver.room()) == BUFFER_BYTES
    frames += fill(receiver, SMALL[1][HEAD_BYTES:] + SMALL[2])
    assert [frame.request for frame in frames] == [1, 2]


def test_a_large_frame_that_came_at_once_with_others_is_handed_out() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    raw = SMALL[1] + MEDIUM + SMALL[2]
    receiver.room()[: len(raw)] = raw
    receiver.took(len(raw))

    assert [frame.request for frame in receiver.frames()] == [1, 8, 2]


@pytest.mark.parametrize("length", [8, FRAME_BYTES_MAX, 2**32 - 1])
def test_a_length_that_must_not_be_is_refused_behind_a_large_frame_too(length: int) -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    fill(receiver, LARGE)

    with pytest.raises(BadFrame, match=r"at most|does not fit"):
        fill(receiver, length.to_bytes(4, "little") + LARGE[4:HEAD_BYTES])


def test_memory_grows_with_what_arrives_and_not_with_what_is_claimed() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    raw = encode_frame(2, 1, b"", bytes(FRAME_BYTES_MAX - 16))

    frames: list[Frame] = []
    there = 0
    while there < len(raw):
        assert 0 < len(receiver.room()) <= max(BUFFER_BYTES, GROWTH * there)
        piece = raw[there : there + min(len(receiver.room()), 100_000)]
        frames = fill(receiver, piece)
        there += len(piece)

    assert len(frames[0].blob) == FRAME_BYTES_MAX - 16


def test_whoever_stops_in_the_middle_goes_on_there() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    raw = b"".join(SMALL)
    room = receiver.room()
    room[: len(raw)] = raw
    receiver.took(len(raw))

    kinds = []
    for _ in SMALL:
        for frame in receiver.frames():
            kinds.append(frame.kind)
            break

    assert kinds == [1, 2, 66, 127]
    assert list(receiver.frames()) == []


def test_what_comes_while_frames_are_left_stands_behind_them() -> None:
    receiver = Receiver(FRAME_BYTES_MAX)
    for piece in (SMALL[0] + SMALL[1] + SMALL[2][:5], SMALL[2][5:]):
        receiver.room()[: len(piece)] = piece
        receiver.took(len(piece))

    assert [frame.kind for frame in receiver.frames()] == [1, 2, 66]


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    receiver = Receiver(4096)

    assert len(receiver.room()) == 4096
    with pytest.raises(BadFrame, match="at most 4096 are allowed"):
        fill(receiver, LARGE[:16])


def test_a_frame_that_is_too_long_and_there_is_refused() -> None:
    with pytest.raises(BadFrame, match="at most 100 are allowed"):
        receive([encode_frame(1, 1, bytes(85))], 100)

    assert len(receive([encode_frame(1, 1, bytes(84))], 100)) == 1


def test_a_frame_that_is_too_long_is_refused_behind_others_that_nobody_took() -> None:
    receiver = Receiver(100)
    raw = encode_frame(1, 1, bytes(60)) + encode_frame(1, 2, bytes(85))
    for piece in (raw[:100], raw[100:]):
        receiver.room()[: len(piece)] = piece
        receiver.took(len(piece))

    frames = receiver.frames()

    assert next(frames).request == 1
    with pytest.raises(BadFrame, match="at most 100"):
        next(frames)


def test_longer_frames_may_come_once_that_is_said() -> None:
    receiver = Receiver(4096)
    frames = fill(receiver, SMALL[0])
    receiver.limit(FRAME_BYTES_MAX)

    frames += fill(receiver, LARGE)

    assert [frame.request for frame in frames] == [0, 9]


@pytest.mark.parametrize("frame", [SMALL[3], MEDIUM, LARGE], ids=["small", "medium", "large"])
@pytest.mark.parametrize("at", [5, 8, 9, 12, 17])
def test_a_changed_frame_is_refused(frame: bytes, at: int) -> None:
    raw = bytearray(frame)
    raw[at] ^= 4

    with pytest.raises(BadFrame, match="checksum"):
        receive([bytes(raw[:-1]), bytes(raw[-1:])])


@given(st.binary(max_size=200), st.lists(st.integers(0, 2**32), max_size=5))
def test_any_bytes_are_frames_or_refused_however_they_are_cut(raw: bytes, cuts: list[int]) -> None:
    outcomes = []
    for pieces in ([raw], cut_at(raw, cuts)):
        receiver = Receiver(4096)
        frames: list[Frame] = []
        try:
            for piece in pieces:
                frames += fill(receiver, piece)
        except BadFrame:
            outcomes.append((len(frames), "bad"))
        else:
            outcomes.append((len(frames), "good"))

    assert outcomes[0][1] == outcomes[1][1]
