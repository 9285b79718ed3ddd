"""`roost doctor` says of each thing whether it is well, and what to do if it is not."""

import os
from pathlib import Path

import pytest

from roost import FileChannel
from roost.cli.doctor import PROBE_NAME
from tests.unit.cli.commands import Ran, roost


def told(ran: Ran) -> dict[str, tuple[str, str]]:
    """Read the verdicts: of each subject its level and what is said of it."""
    rows = [text.split(maxsplit=1) for text in ran.out.decode().splitlines()]
    return {rest[:11].strip(): (level, rest[13:]) for level, rest in rows}


def test_the_machine_is_examined() -> None:
    ran = roost("doctor")

    verdicts = told(ran)
    assert ran.code == 0
    assert [*verdicts] == ["python", "platform", "kernels", "isal"]
    assert verdicts["platform"][0] == "ok"


def test_a_channel_is_examined_beside_its_owner(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="interval") as channel:
        channel.tx().send(b"one")
        ran = roost("doctor", tmp_path)
        written = channel.stat().write_path

    verdicts = told(ran)
    assert ran.code == 0
    assert verdicts["channel"] == ("ok", "positions 0 to 11 in 1 segment")
    assert verdicts["open in"][1].startswith(f"process {os.getpid()} on ")
    assert verdicts["durability"] == ("ok", "interval, as its last owner chose")
    assert verdicts["write path"][1].startswith(written)
    assert " ms (" in verdicts["fsync"][1]
    assert not (tmp_path / PROBE_NAME).exists()


def test_where_a_channel_might_be_made_its_disk_is_examined(tmp_path: Path) -> None:
    ran = roost("doctor", tmp_path / "not" / "yet")

    verdicts = told(ran)
    assert ran.code == 0
    assert verdicts["channel"] == ("warn", f"there is none in {tmp_path / 'not' / 'yet'} yet")
    assert "fsync" in verdicts
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "offset", "subject"), [("segment.0", 20, "segments"), ("segment.2", 4, "channel")]
)
def test_damage_that_a_look_shows_is_a_failure(
    tmp_path: Path, name: str, offset: int, subject: str
) -> None:
    with FileChannel(tmp_path, segment_bytes=1) as channel:
        channel.tx().send(b"one")
        channel.tx().send(b"two")
        channel.tx().send(b"three")
    harmed = bytearray((tmp_path / name).read_bytes())
    harmed[offset : offset + 8] = b"\0\0\0\0\0\0\0\1"
    (tmp_path / name).write_bytes(harmed)

    ran = roost("doctor", tmp_path)

    assert ran.code == 1
    assert told(ran)[subject][0] == "fail"


def test_what_is_no_folder_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")

    ran = roost("doctor", tmp_path / "file")

    assert ran.code == 1
    assert told(ran)["channel"] == ("fail", f"{tmp_path / 'file'} is not a folder")
