"""`roost inspect` shows what stands in a node's files, also where something is wrong with it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.cli import listing
from roost.journal.header import HEADER_BYTES as SEGMENT_HEADER_BYTES
from roost.journal.header import segment_name
from roost.node.files import HEADER_BYTES
from roost.wire.entry import encode_entry
from tests.unit.cli.commands import Ran, roost
from tests.unit.cli.nodes import filled, formatted


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two folders: of a node that was stopped, and of one that was killed."""
    folder = tmp_path_factory.mktemp("nodes")
    filled(formatted(folder / "stopped"), killed=folder / "killed")
    return folder


@pytest.fixture
def log(made: Path, tmp_path: Path) -> Path:
    """Copy the entry log of ledger 7, to be harmed."""
    (tmp_path / "7.log").write_bytes((made / "stopped" / "ledgers" / "7.log").read_bytes())
    return tmp_path / "7.log"


@pytest.fixture
def segment(made: Path, tmp_path: Path) -> Path:
    """Copy the only segment of a journal, to be harmed."""
    name = segment_name(1)
    (tmp_path / name).write_bytes((made / "killed" / "journal" / name).read_bytes())
    return tmp_path / name


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [msgspec.json.decode(line) for line in ran.out.splitlines()]


def harm(path: Path, offset: int, text: bytes) -> None:
    harmed = bytearray(path.read_bytes())
    harmed[offset : offset + len(text)] = text
    path.write_bytes(harmed)


# The journal


def test_the_records_of_a_journal_are_listed_in_order(made: Path) -> None:
    ran = roost("inspect", "journal", made / "killed")

    assert ran.code == 0
    lines = ran.out.decode().splitlines()
    assert lines[0] == (
        "add position=0 segment=1 ledger=7 entry=0 epoch=4 lac=-1 recovery=false bytes=3"
    )
    assert [line.split()[0] for line in lines] == ["add", "add", "add", "fence"]
    assert lines[3].endswith("ledger=8 entry=0 epoch=5 lac=-1 recovery=false bytes=0")


@pytest.mark.parametrize("path", ["", "journal", f"journal/{segment_name(1)}"])
def test_a_node_a_journal_and_a_segment_are_shown_alike(made: Path, path: str) -> None:
    ran = roost("inspect", "journal", made / "killed" / path, "--format", "json")

    assert [row["what"] for row in rows(ran)] == ["add", "add", "add", "fence"]


def test_a_listing_begins_and_ends_where_it_is_told_to(made: Path) -> None:
    everything = rows(roost("inspect", "journal", made / "killed", "--format", "json"))
    second = everything[1]["position"]

    options = ("--from", str(second), "--count", "2", "--format", "json", "--payload")
    some = rows(roost("inspect", "journal", made / "killed", *options))

    assert [row["position"] for row in some] == [row["position"] for row in everything[1:3]]
    assert [some[0]["base64"], some[1]["text"]] == ["dHdvIP8=", "three"]


def test_payloads_are_shown_on_one_line(made: Path) -> None:
    ran = roost("inspect", "journal", made / "killed", "--payload", "--count", "2")

    lines = ran.out.decode().splitlines()
    assert lines[0].endswith(' bytes=3 "one"')
    assert lines[1].endswith(" bytes=5 base64:dHdvIP8=")


def test_a_bad_record_is_shown_where_it_stands(segment: Path) -> None:
    second = rows(roost("inspect", "journal", segment, "--format", "json"))[1]["position"]
    harm(segment, SEGMENT_HEADER_BYTES + second, b"\0")

    shown = rows(roost("inspect", "journal", segment, "--format", "json"))

    assert [row["what"] for row in shown] == ["add", "bad", "add", "fence"]
    assert shown[1]["position"] == second
    assert shown[1]["bytes"] == shown[2]["position"] - second


def test_what_was_never_durable_is_shown_as_torn(segment: Path) -> None:
    everything = rows(roost("inspect", "journal", segment, "--format", "json"))
    last = everything[-1]["position"]
    harm(segment, SEGMENT_HEADER_BYTES + last, b"\0")

    shown = rows(roost("inspect", "journal", segment, "--format", "json"))

    assert shown[:-1] == everything[:-1]
    assert (shown[-1]["what"], shown[-1]["position"]) == ("torn", last)


def test_a_segment_without_a_good_header_is_one_bad_row(segment: Path) -> None:
    harm(segment, 8, b"\xff")

    (row,) = rows(roost("inspect", "journal", segment, "--format", "json"))

    assert (row["what"], row["file"], row["offset"]) == ("bad", segment.name, 0)
    assert "checksum" in row["why"]


def test_a_journal_that_was_trimmed_to_nothing_is_shown_as_nothing(made: Path) -> None:
    ran = roost("inspect", "journal", made / "stopped", "--from", "99999999")

    assert (ran.code, ran.out) == (0, b"")


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    ran = roost("inspect", "journal", tmp_path)

    assert ran.code == 1
    assert "holds no journal: give a node's folder" in ran.err


# Ledgers


def test_the_entries_of_a_log_are_listed(made: Path) -> None:
    ran = roost("inspect", "ledger", made / "stopped" / "ledgers" / "7.log", "--payload")

    lines = ran.out.decode().splitlines()
    assert ran.code == 0
    assert lines[0].startswith("entry offset=64 ledger=7 entry=0 bytes=3 crc32=")
    assert [line.rpartition(" ")[2] for line in lines] == ['"one"', "base64:dHdvIP8=", '"three"']


def test_the_slots_of_an_index_are_listed_with_what_they_point_at(made: Path) -> None:
    folder = made / "stopped" / "ledgers"
    entries = rows(roost("inspect", "ledger", folder / "7.log", "--format", "json"))

    slots = rows(roost("inspect", "ledger", folder / "7.index", "--format", "json"))

    assert [row["what"] for row in slots] == ["slot"] * 3
    for name in ("entry", "offset", "crc32"):
        assert [row[name] for row in slots] == [row[name] for row in entries]


@pytest.mark.parametrize("name", ["7.log", "7.index"])
def test_a_ledger_is_shown_from_an_entry_on(made: Path, name: str) -> None:
    path = made / "stopped" / "ledgers" / name

    shown = rows(roost("inspect", "ledger", path, "--from", "1", "-n", "1", "--format", "json"))

    assert [row["entry"] for row in shown] == [1]
    assert rows(roost("inspect", "ledger", path, "--from", "9", "--format", "json")) == []


def test_a_bad_payload_is_shown_and_the_next_entry_too(log: Path) -> None:
    harm(log, HEADER_BYTES + 28, b"O")

    shown = rows(roost("inspect", "ledger", log, "--format", "json"))

    assert [(row["what"], row["entry"]) for row in shown] == [
        ("bad", 0),
        ("entry", 1),
        ("entry", 2),
    ]
    assert "checksum" in shown[0]["why"]


def test_what_is_no_entry_is_passed_over(log: Path) -> None:
    harm(log, HEADER_BYTES, b"\xff\xff")

    shown = rows(roost("inspect", "ledger", log, "--format", "json"))

    assert [row["what"] for row in shown] == ["bad", "entry", "entry"]
    assert (shown[0]["offset"], shown[0]["bytes"]) == (64, 31)
    assert "no entry begins like that" in shown[0]["why"]


def test_entries_are_found_behind_more_than_one_piece_of_rubbish(log: Path) -> None:
    rubbish = (b"\x7a\xe2" + bytes(998)) * 2500
    block = encode_entry(7, 3, b"four")
    log.write_bytes(log.read_bytes() + rubbish + encode_entry(8, 4, b"foreign") + block)

    shown = rows(roost("inspect", "ledger", log, "--format", "json", "--payload"))

    assert [row["what"] for row in shown] == ["entry", "entry", "entry", "bad", "entry"]
    assert shown[3]["bytes"] == len(rubbish) + len(encode_entry(8, 4, b"foreign"))
    assert shown[4]["text"] == "four"
    assert len(rubbish) > 2 * listing.PIECE_BYTES


@pytest.mark.parametrize("more", [-2, -1, 0, 1])
def test_an_entry_is_found_where_one_piece_ends_and_the_next_begins(log: Path, more: int) -> None:
    log.write_bytes(log.read_bytes() + bytes(listing.PIECE_BYTES + more) + encode_entry(7, 3, b""))

    shown = rows(roost("inspect", "ledger", log, "--format", "json"))

    assert [row["what"] for row in shown] == ["entry", "entry", "entry", "bad", "entry"]


def test_an_entry_that_is_cut_short_is_shown_as_bad(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-1])

    shown = rows(roost("inspect", "ledger", log, "--format", "json"))

    assert [row["what"] for row in shown] == ["entry", "entry", "bad"]


def test_a_header_that_does_not_fit_is_shown_and_the_rest_too(log: Path) -> None:
    harm(log, 0, b"WHAT")

    shown = rows(roost("inspect", "ledger", log, "--format", "json"))

    assert [row["what"] for row in shown] == ["bad", "entry", "entry", "entry"]


def test_a_slot_that_points_elsewhere_is_shown_as_bad(made: Path, log: Path) -> None:
    index = log.with_suffix(".index")
    index.write_bytes((made / "stopped" / "ledgers" / "7.index").read_bytes())
    harm(index, HEADER_BYTES + 12, b"\0\0\0\0")  # the checksum of entry 0
    harm(index, HEADER_BYTES + 16, index.read_bytes()[HEADER_BYTES + 32 :][:16])  # 1 becomes 2
    harm(index, HEADER_BYTES + 32 + 8, b"\xff\xff\xff\xff")  # the size of entry 2

    reasons = [row["why"] for row in rows(roost("inspect", "ledger", index, "--format", "json"))]

    assert reasons == [
        "the block there has another checksum",
        "it is entry 2 of ledger 7",
        "no entry is so long",
    ]


def test_an_index_without_its_log_is_shown(made: Path, tmp_path: Path) -> None:
    index = tmp_path / "7.index"
    index.write_bytes((made / "stopped" / "ledgers" / "7.index").read_bytes())

    shown = rows(roost("inspect", "ledger", index, "--format", "json"))

    assert {row["why"] for row in shown} == {"the entry log is missing"}


@pytest.mark.parametrize(("name", "why"), [("7.txt", "no file of a ledger"), ("9.log", "No such")])
def test_what_is_no_file_of_a_ledger_is_refused(tmp_path: Path, name: str, why: str) -> None:
    ran = roost("inspect", "ledger", tmp_path / name)

    assert ran.code == 1
    assert why in ran.err
