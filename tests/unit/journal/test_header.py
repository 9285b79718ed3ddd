"""Names and headers of segments: what is written is read back, and nothing else is read at all."""

import zlib

import pytest

from roost.journal.header import (
    BadHeader,
    Header,
    Name,
    decode_header,
    encode_header,
    making_name,
    parse_name,
    segment_name,
)
from roost.types import Position
from tests.unit.journal import bydocument
from tests.unit.journal.lives import UUID

HEADER = Header(
    uuid=UUID,
    number=3,
    begin=Position(1 << 40),
    nonce=bydocument.NONCE,
    synced_before=Position(1 << 39),
)


def test_a_header_is_what_the_document_says() -> None:
    written = bydocument.header(3, 1 << 40, synced_before=1 << 39)

    assert encode_header(HEADER) == written
    assert decode_header(written) == HEADER
    assert HEADER.seed == 0x55667788


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    raw = encode_header(HEADER)
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8

        with pytest.raises(BadHeader):
            decode_header(bytes(flipped))


@pytest.mark.parametrize(("at", "value"), [(0, b"X"), (4, b"\2"), (5, b"\1"), (59, b"\1")])
def test_a_header_of_another_kind_or_version_is_refused_though_its_checksum_holds(
    at: int, value: bytes
) -> None:
    front = bytearray(encode_header(HEADER)[:60])
    front[at : at + 1] = value
    raw = bytes(front) + zlib.crc32(front).to_bytes(4, "little")

    with pytest.raises(BadHeader, match="no segment begins like that"):
        decode_header(raw)


@pytest.mark.parametrize("size", [0, 1, 63, 65, 4096])
def test_a_header_of_another_length_is_none(size: int) -> None:
    with pytest.raises(BadHeader, match=f"has {size} of 64 bytes"):
        decode_header(encode_header(HEADER).ljust(size, b"\0")[:size])


@pytest.mark.parametrize(
    ("number", "begin", "synced_before"),
    [(0, 0, 0), (10**16, 0, 0), (1, (1 << 62) + 1, 0), (1, 10, 11), (1, 1 << 63, 1 << 63)],
)
def test_numbers_that_no_segment_has_are_refused(
    number: int, begin: int, synced_before: int
) -> None:
    raw = bydocument.header(number, begin, synced_before=synced_before)

    with pytest.raises(BadHeader, match="beyond what is possible"):
        decode_header(raw)


def test_names_are_made_and_taken_apart() -> None:
    assert segment_name(1) == "0000000000000001.journal"
    assert making_name(10**16 - 1) == "9999999999999999.journal.making"
    assert parse_name("0000000000000042.journal") == Name(number=42, making=False)
    assert parse_name("0000000000000042.journal.making") == Name(number=42, making=True)


@pytest.mark.parametrize(
    "name",
    [
        "0000000000000000.journal",
        "1.journal",
        "00000000000000001.journal",
        "0000000000000001.journal.at.64",
        "0000000000000001.journal~",
        "000000000000000x.journal",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_name(name) is None
