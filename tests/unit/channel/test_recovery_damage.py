"""Damage below the durable bound: it is never served, never cut, and costs no other message.

Each test damages a folder that was closed cleanly, opens it, and reads it to the end, going on
behind the damage. What comes out is what went in, in order, without what was hit.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from roost import Corrupt, FileChannel
from tests.unit.channel import bydocument
from tests.unit.channel.disks import quick
from tests.unit.channel.reading import read_all

MESSAGES = [b"message %02d" % n for n in range(12)]
METHODS = ["snappy", "gzip", "zstd"]


def closed(folder: Path, method: str = "") -> int:
    """Write a folder of three segments with four messages each; the answer is where it ends."""
    end = 0
    for number in range(3):
        part = MESSAGES[4 * number : 4 * number + 4]
        if method and number < 2:
            end = bydocument.write_packed(folder, number, end, method, *part)
        else:
            end = bydocument.write_plain(folder, number, end, *part)
    bydocument.write_offset(folder, end, reader=0, witness=0)  # so that nothing is collected
    return end


def flip(path: Path, at: int, bits: int = 0x10) -> bytes:
    """Damage one byte of a file, and give what is in it now."""
    content = bytearray(path.read_bytes())
    content[at] ^= bits
    path.write_bytes(content)
    return bytes(content)


def is_part_of(part: list[bytes], whole: list[bytes]) -> bool:
    """Tell whether a list is another one with some left out."""
    rest = iter(whole)
    return all(message in rest for message in part)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_byte_of_a_frame_costs_its_message_alone(tmp_path: Path, number: int) -> None:
    part = MESSAGES[4 * number : 4 * number + 4]
    at = 64
    for hit, message in enumerate(part):
        for within in range(8 + len(message)):
            folder = tmp_path / f"{hit}.{within}"
            end = closed(folder)
            damaged = flip(folder / f"segment.{number}", at + within)

            with FileChannel(folder, disk=quick()) as channel:
                read = read_all(channel)
                assert channel.tx().send(b"more") == end
                assert read_all(channel).messages == [b"more"]

            assert read.messages == [m for m in MESSAGES if m is not message]
            assert [(e.file, e.offset) for e in read.errors if isinstance(e, Corrupt)] == [
                (str(folder / f"segment.{number}"), at)
            ]
            assert (folder / f"segment.{number}").read_bytes().startswith(damaged)
            assert not (folder / "salvage").exists()
        at += 8 + len(message)


def read_or_refuse(folder: Path) -> tuple[list[bytes], list[str]] | None:
    """Read a folder to its end, and say what it tells of itself; None if it cannot be opened."""
    try:
        with FileChannel(folder, disk=quick()) as channel:
            return read_all(channel).messages, [f.kind for f in channel.stat().findings]
    except Corrupt as error:
        refusal = str(error)
    assert "Nothing was changed" in refusal
    return None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_byte_of_a_plain_header_is_noticed(tmp_path: Path, number: int) -> None:
    for at in (*range(14), 30, 63):
        for bits in (1, 0x80):
            folder = tmp_path / f"{at}.{bits}"
            closed(folder)
            damaged = flip(folder / f"segment.{number}", at, bits)

            match read_or_refuse(folder):
                case messages, findings:
                    assert findings[0] == "corrupt"
                    assert is_part_of(messages, MESSAGES)
                case None:
                    assert at < 12
            assert (folder / f"segment.{number}").read_bytes() == damaged


@pytest.mark.parametrize("method", METHODS)
def test_a_flipped_byte_of_a_compressed_segment_is_never_served(
    tmp_path: Path, method: str
) -> None:
    closed(tmp_path / "q", method)
    size = (tmp_path / "q" / "segment.0.z").stat().st_size
    for at in range(size):
        folder = tmp_path / f"{at}"
        closed(folder, method)
        damaged = flip(folder / "segment.0.z", at)

        match read_or_refuse(folder):
            case messages, _:
                # Not every bit of a stream's own header says something.
                assert messages[-8:] == MESSAGES[4:]
                assert messages[:-8] == MESSAGES[:4] or len(messages) < 12
                assert is_part_of(messages, MESSAGES)
            case None:
                assert at < 20
        assert (folder / "segment.0.z").read_bytes() == damaged


@pytest.mark.parametrize("method", METHODS)
def test_a_compressed_segment_cut_at_any_byte_is_never_served_as_whole(
    tmp_path: Path, method: str
) -> None:
    closed(tmp_path / "q", method)
    whole = (tmp_path / "q" / "segment.1.z").read_bytes()
    for size in range(len(whole)):
        folder = tmp_path / f"{size}"
        closed(folder, method)
        (folder / "segment.1.z").write_bytes(whole[:size])

        with FileChannel(folder, disk=quick()) as channel:
            read = read_all(channel)

        assert read.errors
        assert is_part_of(read.messages, MESSAGES)
        assert read.messages[:4] == MESSAGES[:4]
        assert read.messages[-4:] == MESSAGES[8:]
        assert (folder / "segment.1.z").read_bytes() == whole[:size]


def test_a_sealed_segment_cut_at_any_byte_costs_what_was_cut(tmp_path: Path) -> None:
    closed(tmp_path / "q")
    whole = (tmp_path / "q" / "segment.1").read_bytes()
    for size in range(64, len(whole)):
        folder = tmp_path / f"{size}"
        end = closed(folder)
        (folder / "segment.1").write_bytes(whole[:size])
        left = MESSAGES[4 : 4 + (size - 64) // 18]

        with FileChannel(folder, disk=quick()) as channel:
            (finding,) = channel.stat().findings
            assert (finding.kind, finding.offset) == ("corrupt", size)
            assert read_all(channel).messages == MESSAGES[:4] + left + MESSAGES[8:]
            assert channel.tx().send(b"more") == end
        assert (folder / "segment.1").read_bytes() == whole[:size]


def test_a_last_segment_cut_below_the_bound_never_gives_a_position_twice(tmp_path: Path) -> None:
    closed(tmp_path / "q")
    whole = (tmp_path / "q" / "segment.2").read_bytes()
    for size in range(64, len(whole)):
        folder = tmp_path / f"{size}"
        end = closed(folder)
        (folder / "segment.2").write_bytes(whole[:size])
        left = MESSAGES[: 8 + (size - 64) // 18]

        for attempt in range(2):
            with FileChannel(folder, disk=quick()) as channel:
                assert channel.stat().findings[0].kind == "corrupt"
                assert channel.tx().send(b"more") == end + attempt * 12
        with FileChannel(folder, disk=quick()) as channel:
            assert read_all(channel).messages == [*left, b"more", b"more"]
        assert (folder / "segment.2").read_bytes() == whole[:size]


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}])
@pytest.mark.parametrize("method", ["", "snappy"])
def test_a_segment_that_is_gone_costs_its_messages_and_is_noticed(
    tmp_path: Path, gone: set[int], method: str
) -> None:
    end = closed(tmp_path, method)
    for path in bydocument.segment_files(tmp_path):
        if int(path.name.split(".")[1]) in gone:
            path.unlink()
    left = [m for n in range(3) if n not in gone for m in MESSAGES[4 * n : 4 * n + 4]]

    with FileChannel(tmp_path) as channel:
        assert channel.tx().send(b"more") == end
        read = read_all(channel)
        stat = channel.stat()

    assert read.messages == [*left, b"more"]
    assert read.errors
    assert stat.findings or stat.head > 0


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x01"])
def test_a_segment_overwritten_with_one_byte_is_never_served(tmp_path: Path, filler: bytes) -> None:
    closed(tmp_path)
    (tmp_path / "segment.1").write_bytes(bydocument.plain_header(1, 72) + filler * (18 * 4))
    before = (tmp_path / "segment.1").read_bytes()

    with FileChannel(tmp_path) as channel:
        read = read_all(channel)

    assert read.messages == MESSAGES[:4] + MESSAGES[8:]
    assert (tmp_path / "segment.1").read_bytes() == before


def test_a_huge_length_below_the_bound_allocates_nothing_and_costs_one_message(
    tmp_path: Path,
) -> None:
    for length in (0xFFFFFFFF, 0x20FFFFF0, 0x01000001, 19, 0):
        folder = tmp_path / f"{length}"
        closed(folder)
        content = bytearray((folder / "segment.1").read_bytes())
        content[64 + 18 : 64 + 22] = length.to_bytes(4, "big")
        (folder / "segment.1").write_bytes(content)

        with FileChannel(folder, disk=quick()) as channel:
            assert read_all(channel).messages == MESSAGES[:5] + MESSAGES[6:]


def test_a_frame_inside_a_damaged_message_is_not_taken_for_a_message(tmp_path: Path) -> None:
    trap = b"a mail with " + bydocument.frames(b"a frame", b"in it") + b" and more"
    for number in (0, 1):
        folder = tmp_path / f"{number}"
        end = bydocument.write_plain(folder, 0, 0, b"one", trap, b"two")
        end = bydocument.write_plain(folder, 1, end, b"three", trap, trap, b"four")
        bydocument.write_offset(folder, end)
        flip(folder / f"segment.{number}", 64 + (11 if number == 0 else 13) + 8)

        with FileChannel(folder) as channel:
            messages = read_all(channel).messages

        whole = [b"one", trap, b"two", b"three", trap, trap, b"four"]
        del whole[1 if number == 0 else 4]
        assert messages == whole


def test_two_damaged_messages_with_frames_in_them_are_both_passed_over(tmp_path: Path) -> None:
    trap = b"a mail with " + bydocument.frames(b"a frame", b"in it") + b" and more"
    end = bydocument.write_plain(tmp_path, 0, 0, b"one", trap, trap, b"two")
    bydocument.write_offset(tmp_path, end)
    flip(tmp_path / "segment.0", 64 + 11 + 8)
    flip(tmp_path / "segment.0", 64 + 11 + 8 + len(trap) + 8)

    with FileChannel(tmp_path) as channel:
        assert read_all(channel).messages == [b"one", b"two"]


def test_damage_raises_again_each_time_and_holds_the_position(tmp_path: Path) -> None:
    closed(tmp_path)
    flip(tmp_path / "segment.0", 64 + 18 + 9)

    with FileChannel(tmp_path) as channel:
        for auto_ack in (True, False):
            with channel.rx("r", auto_ack=auto_ack) as rx:
                if auto_ack:
                    assert rx.recv(0) == MESSAGES[0]
                for _ in range(3):
                    for receive in (rx.recv, rx.peek, rx.try_recv):
                        with pytest.raises(Corrupt, match=r"segment\.0 is damaged at offset 82"):
                            receive()
                    assert rx.position == 18
        with channel.rx("r", auto_ack=False) as rx:
            assert rx.skip_corrupt() == 18
            assert rx.recv(0) == MESSAGES[2]


def test_skipping_where_nothing_is_damaged_moves_nothing(tmp_path: Path) -> None:
    closed(tmp_path)

    with FileChannel(tmp_path) as channel:
        rx = channel.rx()
        for n in range(12):
            assert rx.skip_corrupt() == 0
            assert rx.recv(0) == MESSAGES[n]
        assert rx.skip_corrupt() == 0


def test_each_receiver_meets_the_damage_by_itself(tmp_path: Path) -> None:
    closed(tmp_path)
    flip(tmp_path / "segment.0", 64 + 8)

    with FileChannel(tmp_path) as channel:
        for name in ("a", "b"):
            rx = channel.rx(name)
            with pytest.raises(Corrupt):
                rx.recv(0)
            rx.skip_corrupt()
            assert rx.recv(0) == MESSAGES[1]


@pytest.mark.parametrize("plain_damage", ["", "frame", "header", "cut", "empty"])
@pytest.mark.parametrize("packed_damage", ["", "stream", "header", "cut", "empty"])
def test_of_two_forms_of_a_segment_the_good_one_stays(
    tmp_path: Path, plain_damage: str, packed_damage: str
) -> None:
    closed(tmp_path)
    bydocument.write_packed(tmp_path, 1, 72, "gzip", *MESSAGES[4:8])
    before = bydocument.snapshot(tmp_path)
    for name, damage in (("segment.1", plain_damage), ("segment.1.z", packed_damage)):
        if damage in ("frame", "stream"):
            flip(tmp_path / name, 64 + 12)
        elif damage == "header":
            flip(tmp_path / name, 40)
        elif damage:
            (tmp_path / name).write_bytes(before[name][: 80 if damage == "cut" else 0])
    after = bydocument.snapshot(tmp_path)

    for reader in ("first", "second"):
        with FileChannel(tmp_path) as channel:
            messages = read_all(channel, reader).messages

        if not packed_damage or not plain_damage:
            assert messages == MESSAGES
        else:
            assert is_part_of(messages, MESSAGES)
            assert set(MESSAGES[:4] + MESSAGES[8:]) <= set(messages)
    kept = bydocument.snapshot(tmp_path)
    for name in ("segment.1", "segment.1.z"):
        held = kept.get(name, kept.get(f"salvage/{name}", b""))
        assert held == after[name] or "" in (plain_damage, packed_damage)


def test_two_segments_that_overlap_are_not_opened_and_not_changed(tmp_path: Path) -> None:
    for first, second in pairwise([0, 100, 34]):
        folder = tmp_path / f"{second}"
        bydocument.write_plain(folder, 0, first, *MESSAGES[:4])
        bydocument.write_plain(folder, 1, second, *MESSAGES[4:])
        bydocument.write_packed(folder, 2, second, "snappy", *MESSAGES[:2])
        bydocument.write_plain(folder, 3, second + 20, b"more")
        before = bydocument.snapshot(folder)

        with pytest.raises(Corrupt, match=r"Nothing was changed; restore"):
            FileChannel(folder)
        after = bydocument.snapshot(folder)
        assert {name: after[name] for name in before} == before
