"""Protocol Buffers' wire format: what is written is read, and hostile bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Invalid
from roost.metadata.protobuf import (
    all_of,
    bytes_of,
    decode,
    encode,
    number_of,
    one_of,
)

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1).filter(bool)
FIELDS = st.lists(st.tuples(st.integers(1, 1 << 20), NUMBERS | st.binary(max_size=300)))


@given(FIELDS)
def test_what_is_written_is_read(fields: list[tuple[int, int | bytes]]) -> None:
    found = decode(encode(fields))

    expected: dict[int, list[int | bytes]] = {}
    for number, value in fields:
        expected.setdefault(number, []).append(value)
    assert found == expected


@given(st.binary(max_size=40))
def test_whatever_comes_is_read_or_refused(message: bytes) -> None:
    try:
        found = decode(message)
    except Invalid:
        return
    assert isinstance(found, dict)


def test_the_bytes_are_those_of_the_format() -> None:
    assert encode([(1, 150), (2, b"testing"), (3, 0), (4, None), (5, b"")]).hex() == (
        "089601120774657374696e672a00"
    )
    assert encode([(1, -2)]).hex() == "08feffffffffffffffff01"


def test_fields_of_fixed_size_are_passed_over() -> None:
    assert decode(bytes.fromhex("09" + "00" * 8 + "15" + "00" * 4 + "0805")) == {1: [5]}


@pytest.mark.parametrize("text", ["08", "0aff01", "0a05aa", "0b", "08" + "ff" * 11, "0900", "80"])
def test_what_breaks_off_or_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="message"):
        decode(bytes.fromhex(text))


def test_what_is_not_there_is_nothing_and_what_is_of_another_kind_is_refused() -> None:
    fields = decode(encode([(1, 7), (2, b""), (3, encode([(1, 1)])), (3, encode([(1, 2)]))]))

    assert (number_of(fields, 9), bytes_of(fields, 9), one_of(fields, 9)) == (0, b"", {})
    assert [number_of(each, 1) for each in all_of(fields, 3)] == [1, 2]
    assert number_of(one_of(fields, 3), 1) == 2
    with pytest.raises(Invalid, match="is no number"):
        number_of(fields, 2)
    with pytest.raises(Invalid, match="is a number"):
        bytes_of(fields, 1)
