"""Errors travel: each class has a code of its own, and who does not know it can still act on it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost.errors
from roost.errors import (
    Corrupt,
    Fenced,
    Invalid,
    Missing,
    NoRoom,
    Retryable,
    RoostError,
    Sealed,
    Trimmed,
)
from roost.wire.errors import ATTRIBUTES, BRANCH, CODES, TEXT_BYTES_MAX, decode_error, encode_error
from roost.wire.frame import HELLO_BYTES_MAX, encode_frame
from roost.wire.messages import ERROR

CLASSES = [
    value
    for value in vars(roost.errors).values()
    if isinstance(value, type) and issubclass(value, RoostError)
]
VALUES = {int: 7, str: "segment.1"}

each_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def example(kind: type[RoostError], message: str = "what happened") -> RoostError:
    return kind(message, **{name: VALUES[of] for name, of in ATTRIBUTES.get(kind, {}).items()})


@each_class
def test_every_class_has_one_code(kind: type[RoostError]) -> None:
    assert [*CODES.values()].count(kind) == 1


@each_class
def test_an_error_comes_out_as_it_went_in(kind: type[RoostError]) -> None:
    error = decode_error(encode_error(example(kind)))

    assert type(error) is kind
    assert str(error) == "what happened"
    assert vars(error) == vars(example(kind))


@each_class
def test_what_travels_is_what_a_class_is_made_of(kind: type[RoostError]) -> None:
    made_of = dict(getattr(kind.__init__, "__annotations__", {}))
    made_of.pop("message", None)
    made_of.pop("return", None)

    assert made_of == ATTRIBUTES.get(kind, {})


@each_class
def test_codes_stand_in_their_branch(kind: type[RoostError]) -> None:
    (code,) = (code for code, of in CODES.items() if of is kind)
    root = CODES.get(code // BRANCH * BRANCH, RoostError)

    assert issubclass(kind, root)
    assert root is RoostError or root.__base__ is RoostError


def sent(code: int, message: str = "m", **fields: object) -> bytes:
    return msgspec.msgpack.encode((code, message, fields))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (199, Retryable),
        (399, RoostError),  # a Fenced would need its ledger
        (699, Missing),
        (2, RoostError),
        (1000, RoostError),
        (65535, RoostError),
    ],
)
def test_an_unknown_code_is_taken_for_its_branch(code: int, kind: type[RoostError]) -> None:
    error = decode_error(sent(code, "from tomorrow"))

    assert type(error) is kind
    assert str(error) == "from tomorrow"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (sent(101, ledger=1), Retryable),
        (sent(101, ledger=1, last="2"), Retryable),
        (sent(300), RoostError),
        (sent(602, head="0"), Missing),
        (sent(700, file=1, offset=2), RoostError),
    ],
)
def test_an_error_without_its_attributes_is_taken_for_its_parent(
    body: bytes, kind: type[RoostError]
) -> None:
    assert type(decode_error(body)) is kind


def test_attributes_of_tomorrow_are_passed_over() -> None:
    error = decode_error(sent(300, ledger=1, epoch=2, leader="node-3"))

    assert isinstance(error, Fenced)
    assert (error.ledger, error.epoch) == (1, 2)


def test_a_class_of_somebody_elses_travels_as_the_nearest_that_is_known() -> None:
    class Busy(NoRoom):
        """It is ours."""

    assert type(decode_error(encode_error(Busy("busy")))) is NoRoom


def test_an_error_fits_in_a_frame_of_the_handshake() -> None:
    long = "\N{SNOWMAN}" * 5000
    body = encode_error(Corrupt(long, file=long, offset=1))

    error = decode_error(body)

    assert len(encode_frame(ERROR, 0, body)) <= HELLO_BYTES_MAX
    assert str(error) == long[: TEXT_BYTES_MAX // 3]


def test_a_name_that_is_no_text_travels_as_it_can_be_shown() -> None:
    error = decode_error(encode_error(Corrupt("in \udcff", file="\udcff", offset=1)))

    assert isinstance(error, Corrupt)
    assert (str(error), error.file) == ("in \\udcff", "\\udcff")


def test_the_last_entry_of_an_empty_ledger_travels() -> None:
    error = decode_error(encode_error(Sealed("empty", ledger=2**63 - 1, last=-1)))

    assert isinstance(error, Sealed)
    assert (error.ledger, error.last) == (2**63 - 1, -1)


@given(st.binary(max_size=100))
def test_any_bytes_are_an_error_or_invalid(raw: bytes) -> None:
    try:
        error = decode_error(raw)
    except Invalid:
        return
    assert isinstance(error, RoostError)


def test_trimmed_says_where_what_is_left_begins() -> None:
    error = decode_error(encode_error(Trimmed("gone", head=12)))

    assert isinstance(error, Trimmed)
    assert error.head == 12
