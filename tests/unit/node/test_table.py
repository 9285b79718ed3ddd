"""A checkpoint says all of every ledger, and a damaged one says what of it still holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.node.ledgers import Ledger, Stored
from roost.node.table import (
    HEADER_BYTES,
    ROW_BYTES,
    Checkpoint,
    decode,
    encode_deleted,
    encode_header,
    encode_row,
)
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import ENTRY_ID_MAX, LEDGER_ID_MAX

BIG = (1 << 63) - 1

ledgers = st.builds(
    lambda number, epoch, fenced, last, lac, suspect, stored: made(
        number, epoch=epoch, fenced=fenced, last=last, lac=lac, suspect=suspect, stored=stored
    ),
    st.integers(0, LEDGER_ID_MAX),
    st.none() | st.integers(0, BIG),
    st.none() | st.integers(0, BIG),
    st.none() | st.integers(-1, ENTRY_ID_MAX),
    st.integers(-1, ENTRY_ID_MAX),
    st.booleans(),
    st.builds(
        Stored,
        log_end=st.integers(0, BIG),
        entries=st.integers(0, ENTRY_ID_MAX),
        highest=st.integers(-1, ENTRY_ID_MAX),
        before=st.integers(0, BIG),
        at=st.integers(0, 1 << 42).map(float),
    ),
)


def made(
    number: int,
    *,
    epoch: int | None = None,
    fenced: int | None = None,
    last: int | None = None,
    lac: int = -1,
    suspect: bool = False,
    stored: Stored | None = None,
) -> Ledger:
    ledger = Ledger(LedgerId(number))
    ledger.epoch = None if epoch is None else Epoch(epoch)
    ledger.fenced = None if fenced is None else Epoch(fenced)
    ledger.last = None if last is None else EntryId(last)
    ledger.lac = EntryId(lac)
    ledger.suspect = suspect
    ledger.restore(stored or Stored())
    return ledger


def facts(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.id,
        ledger.epoch,
        ledger.fenced,
        ledger.last,
        ledger.lac,
        ledger.suspect,
        ledger.stored,
        ledger.highest,
    )


def a_file(*rows: bytes, replay_from: int = 5, forgetful: bool = False) -> bytes:
    header = encode_header(replay_from=Position(replay_from), forgetful=forgetful, rows=len(rows))
    return b"".join([header, *rows])


def numbers(checkpoint: Checkpoint) -> list[int]:
    return [ledger.id for ledger in checkpoint.ledgers]


THREE = a_file(encode_row(made(1)), encode_deleted(LedgerId(2)), encode_row(made(3)))


@given(st.lists(ledgers, max_size=5), st.sets(st.integers(0, LEDGER_ID_MAX), max_size=5))
def test_all_that_is_written_is_read(several: list[Ledger], deleted: set[int]) -> None:
    rows = [*map(encode_row, several), *(encode_deleted(LedgerId(n)) for n in deleted)]

    read = decode(a_file(*rows, replay_from=BIG, forgetful=False))

    assert [*map(facts, read.ledgers)] == [*map(facts, several)]
    assert read.deleted == deleted
    assert (read.replay_from, read.forgetful, read.problem) == (BIG, False, "")


def test_the_layout_is_as_documented() -> None:
    row = encode_row(
        made(
            1,
            epoch=2,
            fenced=3,
            last=4,
            lac=5,
            suspect=True,
            stored=Stored(log_end=6, entries=7, highest=EntryId(8), before=Position(9), at=10.5),
        )
    )

    words = [int.from_bytes(row[at : at + 8], "little") for at in range(0, 80, 8)]
    assert words == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10500]
    assert row[80:84] == b"\1\0\0\0"
    assert (len(row), len(encode_header(replay_from=Position(0), forgetful=True, rows=0))) == (
        88,
        32,
    )


def test_an_open_ledger_is_not_one_that_was_closed_empty() -> None:
    read = decode(a_file(encode_row(made(1)), encode_row(made(2, last=-1))))

    assert [ledger.last for ledger in read.ledgers] == [None, -1]


def test_a_forgetful_node_stays_forgetful() -> None:
    assert decode(a_file(forgetful=True)).forgetful
    assert not decode(a_file()).forgetful


def test_a_damaged_row_costs_no_other_ledger_anything() -> None:
    for bit in range(8 * ROW_BYTES):
        harmed = bytearray(THREE)
        harmed[HEADER_BYTES + bit // 8] ^= 1 << bit % 8

        read = decode(bytes(harmed))

        assert (numbers(read), read.deleted) == ([3], {2})
        assert read.forgetful
        assert "1 of its 3 rows" in read.problem
        assert read.replay_from == 5


def test_a_damaged_header_leaves_the_rows_and_has_everything_replayed() -> None:
    for bit in range(8 * HEADER_BYTES):
        harmed = bytearray(THREE)
        harmed[bit // 8] ^= 1 << bit % 8

        read = decode(bytes(harmed))

        assert (numbers(read), read.deleted) == ([1, 3], {2})
        assert (read.replay_from, read.forgetful) == (0, True)
        assert read.problem


def test_a_file_that_was_cut_says_so_wherever_that_is() -> None:
    for size in range(len(THREE)):
        read = decode(THREE[:size])

        assert read.forgetful
        assert read.problem
        assert len(read.ledgers) + len(read.deleted) == max(0, size - HEADER_BYTES) // ROW_BYTES


@pytest.mark.parametrize("file", [b"", b"ROOSTCP1", b"\0" * 500, b"ROOSTCP2" + THREE[8:]])
def test_what_is_no_checkpoint_knows_nothing(file: bytes) -> None:
    read = decode(file[:40])

    assert (read.ledgers, read.deleted, read.replay_from) == ([], set(), 0)
    assert read.forgetful
    assert read.problem


@given(st.binary(max_size=400))
def test_any_bytes_are_answered(file: bytes) -> None:
    read = decode(file)

    assert read.forgetful == bool(read.problem)
