"""Frames: what was put in comes out, and nothing that was changed on the way passes."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Invalid
from roost.wire.frame import (
    BODY_BYTES_MAX,
    HEAD_BYTES,
    BadFrame,
    Frame,
    decode_frame,
    encode_frame,
    encode_head,
    frame_bytes,
)

frames = st.builds(
    Frame,
    kind=st.integers(0, 255),
    flags=st.integers(0, 255),
    request=st.integers(0, 2**32 - 1),
    body=st.binary(max_size=300),
    blob=st.binary(max_size=300),
)


def whole(frame: Frame) -> bytes:
    return encode_frame(frame.kind, frame.request, frame.body, bytes(frame.blob), flags=frame.flags)


@given(frames)
def test_a_frame_comes_out_as_it_went_in(frame: Frame) -> None:
    assert decode_frame(whole(frame)) == frame


def test_a_frame_is_laid_out_as_its_table_says() -> None:
    frame = encode_frame(2, 0x01020304, b"body", b"blob", flags=1)

    checked = struct.pack("<BBHI", 2, 1, 4, 0x01020304) + b"body"
    assert frame == struct.pack("<II", 20, zlib.crc32(checked)) + checked + b"blob"


def test_the_blob_need_not_be_there_to_make_the_head() -> None:
    assert encode_head(2, 7, b"body", 4, 1) + b"blob" == encode_frame(2, 7, b"body", b"blob", 1)


def test_a_blob_is_not_copied() -> None:
    raw = bytearray(encode_frame(2, 7, b"body", b"blob"))

    frame = decode_frame(raw)
    raw[-4:] = b"BLOB"

    assert frame.blob == b"BLOB"


@given(frames, st.data())
def test_no_changed_bit_of_head_or_body_passes(frame: Frame, drawn: st.DataObject) -> None:
    raw = bytearray(whole(frame))
    at = drawn.draw(st.integers(0, HEAD_BYTES + len(frame.body) - 1), label="at")
    raw[at] ^= 1 << drawn.draw(st.integers(0, 7), label="bit")

    with pytest.raises(BadFrame):
        decode_frame(raw)


@given(frames, st.integers(1, 20))
def test_what_is_cut_or_has_more_behind_it_is_not_one_frame(frame: Frame, size: int) -> None:
    raw = whole(frame)

    with pytest.raises(BadFrame):
        decode_frame(raw[:-size])
    with pytest.raises(BadFrame):
        decode_frame(raw + bytes(size))


@pytest.mark.parametrize("length", [0, 11, 2**31, 2**32 - 1])
def test_lengths_are_refused_by_the_head_alone(length: int) -> None:
    head = struct.pack("<I", length) + encode_head(2, 7)[4:]

    with pytest.raises(BadFrame):
        frame_bytes(head, 4096)


def test_a_frame_may_be_just_as_long_as_is_allowed() -> None:
    head = encode_head(2, 7, b"", 4096 - HEAD_BYTES)

    assert frame_bytes(head, 4096) == 4096
    with pytest.raises(BadFrame, match="4096 bytes: at most 4095"):
        frame_bytes(head, 4095)


def test_a_body_that_does_not_fit_is_refused_before_it_is_sent() -> None:
    assert len(encode_head(9, 1, bytes(BODY_BYTES_MAX))) == HEAD_BYTES + BODY_BYTES_MAX
    with pytest.raises(Invalid, match="at most 65535"):
        encode_head(9, 1, bytes(BODY_BYTES_MAX + 1))


def test_a_body_that_reaches_beyond_its_frame_is_refused() -> None:
    head = bytearray(encode_head(9, 1, b"body"))
    head[10:12] = (5).to_bytes(2, "little")

    with pytest.raises(BadFrame, match="does not fit"):
        frame_bytes(bytes(head[:HEAD_BYTES]), 4096)
