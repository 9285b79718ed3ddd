"""Bodies: what was said is what is heard, and what cannot be is refused where it comes in."""

import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import Invalid
from roost.wire.entry import ENTRY_ID_MAX
from roost.wire.frame import BODY_BYTES_MAX
from roost.wire.messages import (
    KINDS,
    LEDGERS_MAX,
    SUSPECTS_MAX,
    Body,
    Entries,
    Hello,
    LedgerState,
    List,
    NodeStat,
    Read,
    State,
    decode,
    decode_add,
    encode,
    encode_add,
)
from tests.unit.wire.bodies import EXAMPLES, LARGEST, STATE

NAMES = [type(message).__name__ for message in EXAMPLES]


def packed(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


def test_there_is_an_example_of_each_body() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(Body))


@pytest.mark.parametrize("message", EXAMPLES, ids=NAMES)
def test_a_body_comes_out_as_it_went_in(message: Any) -> None:
    assert decode(encode(message), type(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=NAMES)
def test_a_body_with_fields_of_tomorrow_is_read_as_far_as_it_is_known(message: Any) -> None:
    fields = msgspec.msgpack.decode(encode(message))

    assert decode(packed(*fields, "of tomorrow"), type(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=NAMES)
@given(at=st.integers(0, 1000))
def test_a_body_that_is_cut_is_refused(message: Any, at: int) -> None:
    body = encode(message)

    with pytest.raises(Invalid, match=f"no {type(message).__name__}"):
        decode(body[: at % len(body)], type(message))


@pytest.mark.parametrize("message", EXAMPLES, ids=NAMES)
@given(raw=st.binary(max_size=100))
def test_any_bytes_are_a_body_or_invalid(message: Any, raw: bytes) -> None:
    try:
        read = decode(raw, type(message))
    except Invalid:
        return
    assert decode(encode(read), type(message)) == read


@pytest.mark.parametrize("message", LARGEST, ids=lambda message: type(message).__name__)
def test_the_largest_lists_fit_in_a_frame(message: Any) -> None:
    assert len(encode(message)) <= BODY_BYTES_MAX
    assert decode(encode(message), type(message)) == message


WRONG: dict[str, tuple[type, bytes]] = {
    "a ledger below 0": (State, packed(-1)),
    "a ledger beyond 2^63": (State, packed(1 << 63)),
    "a ledger that is no integer": (State, packed(1.5)),
    "no ledger": (State, packed()),
    "bytes behind": (State, packed(1) + b"\0"),
    "no array": (State, msgspec.msgpack.encode({"ledger": 1})),
    "an entry beyond what there can be": (Read, packed(1, 0, ENTRY_ID_MAX + 1, 0)),
    "a wait that is no number": (Read, packed(1, 0, 0, 0, None, math.nan)),
    "a wait without end": (Read, packed(1, 0, 0, 0, None, math.inf)),
    "a wait backwards": (Read, packed(1, 0, 0, 0, None, -0.1)),
    "a LAC below -1": (Read, packed(1, 0, 0, 0, None, 0.0, -2)),
    "more bytes than anybody may want": (Read, packed(1, 0, 0, 1 << 32)),
    "too many suspects": (Entries, packed(0, 1, 0, None, None, [0] * (SUSPECTS_MAX + 1))),
    "a list of nothing": (List, packed(-1, 0)),
    "a list of everything": (List, packed(-1, LEDGERS_MAX + 1)),
    "a name without end": (Hello, packed(1, "c" * 256, "client", "me")),
    "a name that is no text": (Hello, b"\x94\x01\xa1\xff\xa1c\xa1c"),
    "a counter below 0": (
        NodeStat,
        packed(*["x"] * 2, bytes(16), *["x"] * 4, 0, *[0] * 7, {"a": -1}),
    ),
    "a state within a state": (LedgerState, packed(*[[]] * 11)),
}


@pytest.mark.parametrize(("kind", "body"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused(kind: type, body: bytes) -> None:
    with pytest.raises(Invalid, match=f"no {kind.__name__}"):
        decode(body, kind)


def test_an_add_has_an_epoch_and_a_lac() -> None:
    assert decode_add(encode_add(3, -1)) == (3, -1)
    assert decode_add(encode_add(2**63 - 1, ENTRY_ID_MAX)) == (2**63 - 1, ENTRY_ID_MAX)


@pytest.mark.parametrize(
    "body",
    [b"", bytes(15), bytes(17), encode_add(2**63, 0), encode_add(0, -2), encode_add(0, 2**36)],
)
def test_an_add_that_cannot_be_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match="an ADD"):
        decode_add(body)


def test_kinds_differ_and_have_names() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert encode(STATE)[0] == 0x90 | len(STATE.__struct_fields__)
