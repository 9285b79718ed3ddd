"""Verification reads everything and goes on behind whatever is in the way, and changes nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost import FileChannel
from roost.channel.recover import Finding
from roost.channel.verify import Verification, Verified
from roost.channel.view import View
from roost.segments.format import HEADER_BYTES
from roost.segments.kernel import frame
from tests.unit.channel.disks import BROKEN, Watch, WatchedDisk, refuse

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "filechannel"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Make a channel of 01 to 05, ten bytes each, two in a segment; `a` has taken the first."""
    with FileChannel(tmp_path, segment_bytes=20) as channel:
        for number in range(1, 6):
            channel.tx().send(b"%02d" % number)
        channel.rx("a").recv_many(1)
    before = {path: path.read_bytes() for path in tmp_path.glob("segment.*")}
    yield tmp_path
    assert all(path.read_bytes() == raw for path, raw in before.items() if path.exists())


def verify(folder: Path, watch: Watch | None = None) -> Verified:
    disk = WatchedDisk(guarded=False)
    with View(disk, folder) as view:
        disk.watch = watch
        return Verification(disk, view, progress=lambda _, __: None).run()


def told(finding: Finding) -> tuple[str, str]:
    return finding.kind, Path(finding.file).name


def test_progress_comes_to_all_there_is(folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    disk = WatchedDisk(guarded=False)

    with View(disk, folder) as view:
        Verification(disk, view, progress=lambda *step: steps.append(step)).run()

    assert steps[-1] == (50, 50)


def test_folders_of_the_published_original_are_sound() -> None:
    for folder in sorted(GOLDEN.iterdir()):
        assert (verify(folder).messages, verify(folder).findings) == (200, [])


def test_a_folder_that_ends_with_a_compressed_segment_is_sound(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "snappy", tmp_path / "copy", ignore=lambda *_: {"segment.3"})
    (tmp_path / "copy" / "segment.2").unlink()

    assert verify(tmp_path / "copy").findings == []


@pytest.mark.parametrize("name", ["segment.0", "segment.1", "segment.2"])
def test_a_segment_that_cannot_be_read_is_told_and_the_others_are_checked(
    folder: Path, name: str
) -> None:
    verified = verify(folder, refuse(BROKEN, "read", name=name))

    assert ("unreadable", name) in [told(problem) for problem in verified.problems]
    assert verified.messages == (4 if name == "segment.2" else 3)


def test_what_is_collected_while_it_is_read_is_only_noted(folder: Path) -> None:
    def watch(operation: str, path: Path) -> None:
        if (operation, path.name) == ("open", "segment.0"):
            path.unlink(missing_ok=True)

    verified = verify(folder, watch)

    assert told(verified.findings[0]) == ("note", folder.name)
    assert (verified.messages, verified.findings[0].size) == (3, 20)


def test_a_receiver_before_the_head_is_found(folder: Path) -> None:
    (folder / "segment.0").unlink()

    verified = verify(folder)

    assert [told(problem) for problem in verified.problems] == [("misplaced", "offset")]
    assert "receiver 'a' stands at 10, before the head 20" in verified.problems[0].text


def test_messages_that_are_not_durable_are_only_noted(folder: Path) -> None:
    with (folder / "segment.2").open("ab") as file:
        file.write(frame(b"06"))

    verified = verify(folder)

    assert verified.problems == []
    assert [(f.kind, f.offset, f.size) for f in verified.findings] == [
        ("note", HEADER_BYTES + 10, 10)
    ]
    (folder / "segment.2").write_bytes((folder / "segment.2").read_bytes()[:-10])


def test_a_header_that_is_damaged_is_found(folder: Path) -> None:
    raw = (folder / "segment.1").read_bytes()
    (folder / "segment.1").write_bytes(b"\xff" + raw[1:])

    verified = verify(folder)

    assert [told(problem) for problem in verified.problems] == [
        ("corrupt", "segment.1"),
        ("corrupt", "segment.0"),
    ]
    assert "the header is that of segment" in verified.problems[0].text
    (folder / "segment.1").write_bytes(raw)
