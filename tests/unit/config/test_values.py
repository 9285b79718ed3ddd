"""Values are read as people write them, and written so that they are read again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.config.values import (
    A_PATH,
    A_SWITCH,
    AN_ADDRESS,
    AN_ADDRESS_OR_OFF,
    GIB,
    KIB,
    MIB,
    TIB,
    Kind,
    a_count,
    a_size,
    one_of,
    seconds,
    shown,
)
from roost.host.net import Address

SIZE = a_size(0, 1 << 62)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SIZE, "1048576", MIB),
        (SIZE, 1048576, MIB),
        (SIZE, "64MiB", 64 * MIB),
        (SIZE, " 64 mib ", 64 * MIB),
        (SIZE, "1.5GiB", GIB + GIB // 2),
        (SIZE, "0.1KiB", 102),
        (SIZE, "3TB", 3 * 10**12),
        (SIZE, "10B", 10),
        (SIZE, "10 kB", 10_000),
        (a_count(1, 5), "5", 5),
        (a_count(1, 5), 1, 1),
        (seconds(0.5, 10), "0.5", 0.5),
        (seconds(0.5, 10), 10, 10.0),
        (one_of("a", "b"), "b", "b"),
        (A_SWITCH, "true", True),
        (A_SWITCH, "0", False),
        (A_SWITCH, False, False),
        (A_PATH, "/srv", Path("/srv")),
        (A_PATH, Path("here"), Path("here")),
        (AN_ADDRESS, "[::1]:0", Address("::1", 0)),
        (AN_ADDRESS_OR_OFF, "off", None),
        (AN_ADDRESS_OR_OFF, "localhost:80", Address("localhost", 80)),
    ],
)
def test_a_value_is_read_as_it_is_meant(kind: Kind, text: object, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SIZE, ""),
        (SIZE, "64M"),  # a million, or 2 ** 20?
        (SIZE, "MiB"),
        (SIZE, "-1"),
        (SIZE, "1.MiB"),
        (SIZE, "1e6"),
        (SIZE, "9" * 5000),
        (SIZE, True),
        (SIZE, [1]),
        (a_size(10, 20), 9),
        (a_size(10, 20), "21"),
        (a_count(1, 5), "0"),
        (a_count(1, 5), "6"),
        (a_count(1, 5), 2.0),
        (a_count(1, 5), "9" * 5000),
        (a_count(1, 5), True),
        (seconds(0, 10), "nan"),
        (seconds(0, 10), "inf"),
        (seconds(0, 10), -0.1),
        (seconds(0, 10), "1 s"),
        (one_of("a", "b"), "c"),
        (one_of("a", "b"), 1),
        (A_SWITCH, "yes"),
        (A_PATH, ""),
        (A_PATH, "a\0b"),
        (A_PATH, 1),
        (AN_ADDRESS, "off"),
        (AN_ADDRESS, 80),
        (AN_ADDRESS, "localhost"),
        (AN_ADDRESS, "localhost:99999"),
    ],
)
def test_what_is_not_allowed_is_refused(kind: Kind, text: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        kind.parse(text)


@given(st.integers(0, 1 << 62))
def test_a_size_that_is_shown_is_read_as_the_same(size: int) -> None:
    assert SIZE.parse(shown(size)) == size
    assert SIZE.parse(shown(size * KIB % (1 << 62))) == size * KIB % (1 << 62)


def test_values_are_shown_as_one_would_give_them() -> None:
    values = (0, 1000, 64 * MIB, 3 * TIB, 0.01, 10.0, True, None, Address("::1", 4), Path("/a"))

    assert [shown(value) for value in values] == [
        *("0", "1000", "64MiB", "3TiB", "0.01", "10", "true", "off", "[::1]:4", "/a"),
    ]


def test_a_kind_says_what_is_allowed() -> None:
    told = [kind.allowed for kind in (a_size(KIB, GIB), a_count(1, 5), one_of("a", "b", "c"))]

    assert told == [
        "a size from 1KiB to 1GiB, as in 1048576, 64MiB or 1.5GiB",
        "a whole number from 1 to 5",
        "a, b or c",
    ]
