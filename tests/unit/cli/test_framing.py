"""Messages are cut out of a pipe the same way, wherever the pipe cuts the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost import Invalid
from roost.cli.framing import delimited, delimiter_bytes, prefixed, raw, shown, with_prefix

messages = st.lists(st.binary(min_size=1, max_size=9).filter(lambda m: b"--" not in m + b"-"))


def cut(text: bytes, at: list[int]) -> list[bytes]:
    """Cut bytes as a pipe might."""
    bounds = [0, *sorted({n for n in at if n < len(text)}), len(text)]
    return [text[begin:end] for begin, end in pairwise(bounds)]


@given(messages, st.lists(st.integers(0, 200)))
def test_what_is_written_with_a_delimiter_is_cut_there_again(
    sent: list[bytes], at: list[int]
) -> None:
    written = b"".join(raw(b"--")(0, message) for message in sent)

    batches = delimited(cut(written, at), b"--", 100)

    assert [message for batch in batches for message in batch] == sent


@given(st.lists(st.binary(max_size=9)), st.lists(st.integers(0, 200)))
def test_what_is_written_with_a_length_is_cut_there_again(sent: list[bytes], at: list[int]) -> None:
    written = b"".join(with_prefix(0, message) for message in sent)

    batches = prefixed(cut(written, at), 100)

    assert [message for batch in batches for message in batch] == sent


def test_a_claimed_length_is_not_waited_for() -> None:
    batches = prefixed([b"\0\0\0\1a\xff\xff\xff\xff", b"never asked for"], 100)

    assert next(batches) == [b"a"]
    with pytest.raises(Invalid):
        next(batches)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\n", b"\n"),
        (r"\r\n", b"\r\n"),
        (r"\0", b"\0"),
        (r"\\0", b"\\0"),
        (r"\xFf;", b"\xff;"),
        (r"\q", b"\\q"),
        ("ü", "ü".encode()),
    ],
)
def test_a_delimiter_is_read_as_it_is_typed(typed: str, meant: bytes) -> None:
    assert delimiter_bytes(typed) == meant


def test_a_terminal_is_never_given_control_over_itself() -> None:
    told = [shown(payload) for payload in (b"\x1b]0;x\x07", "\u009b2J".encode(), b"\x9b")]

    assert all(text.isascii() and text.isprintable() for text in told)
