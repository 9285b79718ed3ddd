"""The files of ledgers: names, headers, and how many are open at once."""

from pathlib import Path
from random import Random

import pytest

from roost.node.files import (
    HEADER_BYTES,
    INDEX,
    LOG,
    OpenFiles,
    encode_header,
    file_name,
    header_problem,
    parse_file_name,
)
from roost.sim.disk import SimDisk
from roost.types import LedgerId
from roost.wire.entry import LEDGER_ID_MAX

FOLDER = Path("/ledgers")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def disk(said: list[str]) -> SimDisk:
    disk = SimDisk(Random(0), trace=said.append)
    disk.make_folder(FOLDER)
    said.clear()
    return disk


def files_of(disk: SimDisk, files_max: int) -> OpenFiles:
    return OpenFiles(disk, FOLDER, files_max=files_max, writable=True)


def test_a_name_is_read_as_it_was_written() -> None:
    for ledger in (0, 9, 10, LEDGER_ID_MAX):
        for kind in (LOG, INDEX):
            assert parse_file_name(file_name(ledger, kind)) == (ledger, kind)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "7",
        "7.",
        "7.logs",
        "07.log",
        "+7.log",
        "-7.log",
        " 7.log",
        "7.log.making",
        "7.LOG",
        "\u0667.log",
        "²7.log",
        "x.index",
    ],
)
def test_what_is_not_such_a_name_is_not_read_as_one(name: str) -> None:
    assert parse_file_name(name) is None


def test_a_header_tells_what_a_file_is() -> None:
    log, index = encode_header(7, LOG), encode_header(7, INDEX)

    assert (log[:8], index[:8]) == (b"ROOSTLOG", b"ROOSTIDX")
    assert int.from_bytes(log[12:16], "little") == 1
    assert int.from_bytes(log[16:24], "little") == 7
    assert len(log) == len(index) == HEADER_BYTES
    assert header_problem(log, 7, LOG) == header_problem(index, 7, INDEX) == ""
    assert header_problem(log, 8, LOG) == "it does not begin as log 8"
    assert header_problem(log, 7, INDEX)
    assert header_problem(log[:-1], 7, LOG)


def test_a_file_is_opened_once_while_there_is_room(disk: SimDisk, said: list[str]) -> None:
    files = files_of(disk, 2)

    for _ in range(3):
        for kind in (LOG, INDEX):
            files.get(LedgerId(7), kind, create=True)

    assert said == ["open /ledgers/7.log", "open /ledgers/7.index"]


def test_the_file_that_was_not_used_for_longest_is_closed(disk: SimDisk, said: list[str]) -> None:
    files = files_of(disk, 2)
    one, two = (files.get(LedgerId(ledger), LOG, create=True) for ledger in (1, 2))
    files.get(LedgerId(1), LOG)

    files.get(LedgerId(3), LOG, create=True)

    assert said[-1] == "open /ledgers/3.log"
    assert one.size() == 0
    with pytest.raises(OSError, match="EBADF"):
        two.size()


def test_a_missing_file_is_not_made_unless_asked_for(disk: SimDisk) -> None:
    files = files_of(disk, 2)

    with pytest.raises(FileNotFoundError):
        files.get(LedgerId(1), LOG)
    assert disk.names(FOLDER) == []


def test_both_files_of_a_ledger_are_dropped_and_no_others(disk: SimDisk) -> None:
    files = files_of(disk, 4)
    dropped = [files.get(LedgerId(1), kind, create=True) for kind in (LOG, INDEX)]
    kept = files.get(LedgerId(2), LOG, create=True)

    files.drop(LedgerId(1))
    files.drop(LedgerId(1))

    assert kept.size() == 0
    for file in dropped:
        with pytest.raises(OSError, match="EBADF"):
            file.size()


def test_closing_closes_all(disk: SimDisk) -> None:
    files = files_of(disk, 4)
    several = [files.get(LedgerId(ledger), LOG, create=True) for ledger in range(4)]

    files.close()

    for file in several:
        with pytest.raises(OSError, match="EBADF"):
            file.size()
