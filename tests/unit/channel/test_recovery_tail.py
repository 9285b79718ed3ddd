"""What a crash leaves at the end of a channel, and what recovery makes of it.

All of it stands above the durable bound: what is whole stays, what is torn moves to `salvage/`.
"""

from pathlib import Path

import pytest

from roost import FileChannel
from roost.types import Durability
from tests.unit.channel import bydocument
from tests.unit.channel.disks import quick
from tests.unit.channel.reading import read_all

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])

MESSAGES = [b"first", b"\0zeros\0", b"x" * 40, b"l", b"the last one"]
FRAMES = list(map(bydocument.frame, MESSAGES))
ENDS = [sum(map(len, FRAMES[: n + 1])) for n in range(len(FRAMES))]
WHOLE = bydocument.plain_header(0, 0) + b"".join(FRAMES)


def left_by_a_crash(folder: Path, tail: bytes, bound: int = 0) -> None:
    """Write a folder whose last segment is as given."""
    folder.mkdir()
    bydocument.write_offset(folder, bound, r=0)
    (folder / "segment.0").write_bytes(tail)


def salvaged(folder: Path) -> dict[str, bytes]:
    """Read what recovery put aside."""
    return {path.name: path.read_bytes() for path in (folder / "salvage").glob("*")}


def check(folder: Path, kept: list[bytes], aside: dict[str, bytes]) -> None:
    """Open twice: the first time puts right, the second finds everything in order."""
    for attempt in range(2):
        with FileChannel(folder, disk=quick()) as channel:
            assert channel.rx("r", auto_ack=False).peek_many(100) == kept
            findings = channel.stat().findings
            assert [finding.kind for finding in findings] == (["torn"] if aside else []) * (
                attempt == 0
            )
        assert salvaged(folder) == aside
        body = bydocument.frames(*kept)
        assert (folder / "segment.0").read_bytes() == bydocument.plain_header(0, 0) + body
        assert bydocument.read_bound(folder) == len(body)


def test_a_last_segment_cut_at_any_byte_keeps_every_whole_message(tmp_path: Path) -> None:
    for size in range(64, len(WHOLE) + 1):
        folder = tmp_path / f"{size}"
        left_by_a_crash(folder, WHOLE[:size])
        kept = [m for m, end in zip(MESSAGES, ENDS, strict=True) if 64 + end <= size]
        end = len(bydocument.frames(*kept))
        torn = WHOLE[64 + end : size].rstrip(b"\0")

        check(folder, kept, {f"segment.0.at.{end}": torn} if torn else {})


@pytest.mark.parametrize("room", [0, 1, 7, 8, 9, 5000])
def test_a_tail_of_zeros_is_no_message_and_nothing_to_keep(tmp_path: Path, room: int) -> None:
    for count, end in enumerate([0, *ENDS]):
        folder = tmp_path / f"{end}"
        left_by_a_crash(folder, WHOLE[: 64 + end] + bytes(room))

        check(folder, MESSAGES[:count], {})


def test_zeros_from_any_byte_on_keep_every_whole_message(tmp_path: Path) -> None:
    for size in range(64, len(WHOLE)):
        folder = tmp_path / f"{size}"
        tail = WHOLE[:size] + bytes(len(WHOLE) - size + 4096)
        left_by_a_crash(folder, tail)
        # A frame that ends in zeros of its own is whole, however much of it was written.
        kept = [
            message
            for message, frame, end in zip(MESSAGES, FRAMES, ENDS, strict=True)
            if tail[64 + end - len(frame) : 64 + end] == frame
        ]
        end = len(bydocument.frames(*kept))
        torn = WHOLE[64 + end : size].rstrip(b"\0")

        check(folder, kept, {f"segment.0.at.{end}": torn} if torn else {})


def test_a_flipped_byte_above_the_bound_cuts_from_its_message_on(tmp_path: Path) -> None:
    for at in range(64, len(WHOLE)):
        folder = tmp_path / f"{at}"
        flipped = bytearray(WHOLE)
        flipped[at] ^= 0x41
        left_by_a_crash(folder, bytes(flipped))
        kept = [m for m, end in zip(MESSAGES, ENDS, strict=True) if 64 + end <= at]
        end = len(bydocument.frames(*kept))

        check(folder, kept, {f"segment.0.at.{end}": bytes(flipped[64 + end :])})


def test_a_bound_within_the_segment_divides_torn_from_corrupt(tmp_path: Path) -> None:
    flipped = bytearray(WHOLE)
    flipped[64 + ENDS[2] + 8] ^= 1
    for bound in ENDS[:3]:
        folder = tmp_path / f"{bound}"
        left_by_a_crash(folder, bytes(flipped), bound)

        check(folder, MESSAGES[:3], {f"segment.0.at.{ENDS[2]}": bytes(flipped[64 + ENDS[2] :])})


@modes
def test_sending_goes_on_where_the_tail_was_cut(tmp_path: Path, mode: Durability) -> None:
    folder = tmp_path / "q"
    left_by_a_crash(folder, WHOLE[:-3] + bytes(999))

    with FileChannel(folder, durability=mode) as channel:
        assert channel.tx().send(b"after") == ENDS[3]
        assert read_all(channel).messages == [*MESSAGES[:4], b"after"]
    assert bydocument.read_messages(folder) == [*MESSAGES[:4], b"after"]


def test_what_was_salvaged_before_is_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    left_by_a_crash(folder, WHOLE[: 64 + ENDS[0]] + b"torn once")
    FileChannel(folder).close()
    with (folder / "segment.0").open("ab") as file:
        file.write(b"torn again")
    FileChannel(folder).close()

    assert sorted(salvaged(folder).values()) == [b"torn again", b"torn once"]
    assert f"segment.0.at.{ENDS[0]}" in salvaged(folder)


def test_a_huge_length_in_the_tail_allocates_nothing(tmp_path: Path) -> None:
    for number, length in enumerate((0xFFFFFFFF, 0x20FFFFF0, 0x80000000, 1 << 20)):
        folder = tmp_path / f"{number}"
        torn = length.to_bytes(4, "big") + b"\1\2\3\4 and a little"
        left_by_a_crash(folder, WHOLE + torn)

        check(folder, MESSAGES, {f"segment.0.at.{ENDS[-1]}": torn})


def test_every_segment_above_the_bound_is_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    end = bydocument.write_plain(folder, 0, 0, b"one", b"two")
    torn_at = end
    end = bydocument.write_plain(folder, 1, end, b"three", b"four")
    bydocument.write_plain(folder, 2, end, b"five")
    bydocument.write_offset(folder, 0)
    second = bytearray((folder / "segment.1").read_bytes())
    second[64 + 8] ^= 1
    (folder / "segment.1").write_bytes(second)
    third = (folder / "segment.2").read_bytes()

    for _ in range(2):
        with FileChannel(folder) as channel:
            assert channel.rx("r", auto_ack=False).peek_many(9) == [b"one", b"two"]
            assert channel.stat().tail == torn_at
    assert salvaged(folder) == {
        f"segment.1.at.{torn_at}": bytes(second[64:]),
        "segment.2": third,
    }
    assert not (folder / "segment.2").exists()


@pytest.mark.parametrize("size", [0, 1, 11, 12, 63])
def test_a_last_segment_without_a_whole_header_was_never_created(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "q"
    end = bydocument.write_plain(folder, 0, 0, *MESSAGES)
    header = bydocument.plain_header(1, end)[:size]
    (folder / "segment.1").write_bytes(header)
    bydocument.write_offset(folder, end)

    for _ in range(2):
        with FileChannel(folder) as channel:
            assert channel.stat().tail == end
            assert channel.rx("r", auto_ack=False).peek_many(100) == MESSAGES
    assert not (folder / "segment.1").exists()
    assert salvaged(folder) == ({"segment.1": header} if header.strip(b"\0") else {})
    with FileChannel(folder, segment_bytes=1) as channel:
        channel.tx().send(b"more")
    assert bydocument.read_messages(folder) == [*MESSAGES, b"more"]


@pytest.mark.parametrize("content", [b"", bytes(64), bytes(5000)])
def test_a_first_and_only_segment_that_was_never_created_is_begun_anew(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "segment.0").write_bytes(content)

    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"one")
        assert read_all(channel).messages == [b"one"]


def test_a_header_of_nothing_but_zeros_over_frames_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    end = bydocument.write_plain(folder, 0, 0, *MESSAGES)
    bydocument.write_plain(folder, 1, end, b"lost")
    blank = bytes(64) + (folder / "segment.1").read_bytes()[64:]
    (folder / "segment.1").write_bytes(blank)
    bydocument.write_offset(folder, end + 12)

    with FileChannel(folder) as channel:
        assert [finding.kind for finding in channel.stat().findings] == ["corrupt", "corrupt"]
        assert channel.tx().send(b"more") == end + 12
        assert read_all(channel).messages == [*MESSAGES, b"more"]
    assert (folder / "segment.1").read_bytes() == blank


def test_an_unfinished_file_is_removed_and_nothing_is_appended_to_it(tmp_path: Path) -> None:
    bydocument.write_plain(tmp_path, 0, 0, b"one")
    for name in ("segment.1.ing", "segment.0.z.ing", "segment.7.z.ing"):
        (tmp_path / name).write_bytes(b"garbage of a crash")

    with FileChannel(tmp_path, segment_bytes=1, compression="snappy", disk=quick()) as channel:
        channel.rx("holder").close()  # or what was read would be collected
        channel.tx().send(b"two")
        channel.tx().send(b"three")
        assert read_all(channel).messages == [b"one", b"two", b"three"]

    assert not list(tmp_path.glob("*.ing"))
    assert bydocument.read_messages(tmp_path) == [b"one", b"two", b"three"]
