"""What `roost channel` sends, takes and tells, and how each command ends."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost import FileChannel
from roost.channel.cursors import Kind, Mark, copy_offset, encode_copy
from roost.segments.format import HEADER_BYTES
from tests.unit.cli.commands import Ran, roost


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "inbox"


@pytest.fixture
def numbers(folder: Path) -> Path:
    """Make a channel of 01 to 05, ten bytes each, two in a segment; receiver `a` has taken two."""
    with FileChannel(folder, segment_bytes=20) as channel:
        for number in range(1, 6):
            channel.tx().send(b"%02d" % number)
        channel.rx("a").recv_many(1)
        channel.rx("a").recv_many(1)
        channel.rx("b", start="head")
    return folder


def everything(folder: Path) -> list[bytes]:
    with FileChannel(folder) as channel:
        rx = channel.rx("everything")
        return list(iter(rx.try_recv, None))


def objects(ran: Ran) -> list[dict[str, Any]]:
    return [msgspec.json.decode(text) for text in ran.out.splitlines()]


def harm(folder: Path, name: str, offset: int) -> None:
    with (folder / name).open("r+b") as file:
        file.seek(offset)
        file.write(b"XX")


# send


def test_messages_are_sent_as_they_are_given(folder: Path) -> None:
    ran = roost("channel", "send", folder, "one", "", "two words")

    assert everything(folder) == [b"one", b"two words"]
    assert ran == Ran(
        code=0,
        out=b"",
        err="skipped 1 empty message: one without a byte cannot be sent\n"
        "sent 2 messages; the channel ends at position 28\n",
    )


def test_each_line_of_the_input_is_a_message_and_empty_ones_are_counted(folder: Path) -> None:
    ran = roost("channel", "send", folder, given=b"one\n\n\ntwo\r\n\xff\0three")

    assert everything(folder) == [b"one", b"two\r", b"\xff\0three"]
    assert "skipped 2 empty messages" in ran.err
    assert "sent 3 messages" in ran.err


def test_the_input_is_cut_where_it_is_told_to_be(folder: Path) -> None:
    roost("channel", "send", folder, "--delimiter", r"\0", given=b"a\nb\0c\0")
    roost("channel", "send", folder, "--delimiter", r"-\x2D\n", given=b"d--\ne-\n--\n")
    roost("channel", "send", folder, "--whole", given=b"f\ng\n")

    assert everything(folder) == [b"a\nb", b"c", b"d", b"e-\n", b"f\ng\n"]


def test_messages_of_any_bytes_go_through_a_pipe_with_their_length(
    folder: Path, tmp_path: Path
) -> None:
    messages = [bytes(range(256)), b"\n", b"\0" * 5, b"x" * 100_000]
    with FileChannel(folder) as channel:
        channel.tx().send_many(messages)

    taken = roost("channel", "recv", folder, "--length-prefixed")
    roost("channel", "send", tmp_path / "copy", "--length-prefixed", given=taken.out)

    assert everything(tmp_path / "copy") == messages


@pytest.mark.parametrize(
    ("options", "given", "why"),
    [
        (["--length-prefixed"], b"\0\0\0\3one\0\0\0\3tw", "in the middle of a message"),
        (["--length-prefixed", "--message-bytes-max", "3"], b"\0\0\0\3one\0\0\0\4", "more than 3"),
        (["--message-bytes-max", "3"], b"one\nfour\nfive\n", "more than 3 bytes"),
        (["--message-bytes-max", "3"], b"one\nfour", "more than 3 bytes"),
    ],
)
def test_what_stands_before_a_bad_end_of_the_input_is_sent(
    folder: Path, options: list[str], given: bytes, why: str
) -> None:
    ran = roost("channel", "send", folder, *options, given=given)

    assert everything(folder) == [b"one"]
    assert ran.code == 1
    assert "sent 1 message;" in ran.err
    assert why in ran.err


def test_a_channel_is_made_as_it_is_told_to_be(folder: Path) -> None:
    lines = b"".join(b"%050d\n" % number for number in range(20))

    for _ in range(2):  # the second one seals what the first one wrote
        roost(
            *("channel", "send", folder, "--segment-bytes", "100", "--durability", "os"),
            *("--compression", "gzip"),
            given=lines,
        )

    stat = msgspec.json.decode(roost("channel", "stat", folder, "--json").out)
    assert stat["durability"] == "os"
    assert {segment["form"] for segment in stat["segments"]} <= {"gzip", "plain", "growing"}
    assert len(stat["segments"]) == 2


def test_a_channel_that_is_open_elsewhere_is_refused_with_its_holder(folder: Path) -> None:
    with FileChannel(folder):
        ran = roost("channel", "send", folder, "one", "--wait", "0.01")

        assert ran.code == 1
        assert f"process {os.getpid()} on " in ran.err
        assert len(ran.err.splitlines()) == 1


# recv


def test_a_receiver_takes_each_message_once(numbers: Path) -> None:
    assert roost("channel", "recv", numbers, "--count", "2") == Ran(0, b"01\n02\n", "")
    assert roost("channel", "recv", numbers).out == b"03\n04\n05\n"
    assert roost("channel", "recv", numbers) == Ran(0, b"", "")
    assert roost("channel", "recv", numbers, "--receiver", "a").out == b"03\n04\n05\n"


def test_a_new_receiver_begins_where_it_is_told(numbers: Path) -> None:
    assert roost("channel", "recv", numbers, "--receiver", "c", "--start", "30").out == b"04\n05\n"
    assert roost("channel", "recv", numbers, "--receiver", "d", "--start", "tail").out == b""
    assert roost("channel", "recv", numbers, "--receiver", "d", "--start", "head").out == b""


def test_messages_can_be_taken_as_json_with_their_positions(folder: Path) -> None:
    with FileChannel(folder) as channel:
        channel.tx().send_many(["grün".encode(), b"\xff\0"])

    assert objects(roost("channel", "recv", folder, "--format", "json")) == [
        {"position": 0, "text": "grün"},
        {"position": 13, "base64": "/wA="},
    ]


def test_who_waits_in_vain_for_a_count_is_told_by_the_exit_code(numbers: Path) -> None:
    ran = roost("channel", "recv", numbers, "--count", "9", "--timeout", "0.02")

    assert (ran.code, ran.out) == (3, b"01\n02\n03\n04\n05\n")
    assert roost("channel", "recv", numbers, "--timeout", "0.02").code == 0
    with FileChannel(numbers):
        assert roost("channel", "recv", numbers, "--timeout", "0.02").code == 1


def test_to_take_messages_does_not_change_the_mode_of_those_who_send(folder: Path) -> None:
    with FileChannel(folder, durability="interval") as channel:
        channel.tx().send(b"one")

    roost("channel", "recv", folder)

    assert msgspec.json.decode(roost("channel", "stat", folder, "--json").out)["durability"] == (
        "interval"
    )


def test_damage_stops_a_receiver_until_it_is_told_to_go_on(numbers: Path) -> None:
    harm(numbers, "segment.1", HEADER_BYTES + 8)

    stopped = roost("channel", "recv", numbers)
    again = roost("channel", "recv", numbers, "--skip-corrupt")

    assert (stopped.code, stopped.out) == (1, b"01\n02\n")
    assert f"{numbers / 'segment.1'} is damaged at offset {HEADER_BYTES}" in stopped.err
    assert "--skip-corrupt" in stopped.err
    assert (again.code, again.out) == (0, b"04\n05\n")
    assert "Passed over 10 bytes" in again.err


@pytest.mark.parametrize("command", ["recv", "tail", "dump", "stat", "verify"])
def test_where_no_channel_is_one_line_says_so(tmp_path: Path, command: str) -> None:
    ran = roost("channel", command, tmp_path / "nowhere")

    assert ran == Ran(1, b"", f"roost: there is no channel in {tmp_path / 'nowhere'}\n")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "inbox", "one", "--whole"],
        ["send", "inbox", "--whole", "--length-prefixed"],
        ["send", "inbox", "--delimiter", ""],
        ["recv", "inbox", "--follow", "--timeout", "1"],
        ["recv", "inbox", "--format", "json", "--delimiter", ";"],
        ["recv", "inbox", "--start", "middle"],
        ["dump", "inbox", "--from", "0", "--receiver", "a"],
        ["verify"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert roost("channel", *arguments).code == 2


@pytest.mark.parametrize("command", ["send", "recv", "tail", "dump", "stat", "verify"])
def test_the_help_of_each_command_shows_an_example_and_the_exit_codes(command: str) -> None:
    ran = roost("channel", command, "--help")

    assert f"roost channel {command} inbox".encode() in ran.out
    assert b"130  interrupted" in ran.out


# tail and dump


def test_the_last_messages_are_shown_and_nobody_moves(numbers: Path) -> None:
    assert roost("channel", "tail", numbers, "--count", "3") == Ran(0, b"03\n04\n05\n", "")
    assert roost("channel", "tail", numbers, "-n", "0").out == b""
    assert roost("channel", "tail", numbers, "-n", "1", "--delimiter", ";").out == b"05;"
    assert roost("channel", "recv", numbers, "--receiver", "b", "--count", "1").out == b"01\n"


def test_messages_are_listed_with_all_that_is_known_of_them(folder: Path) -> None:
    with FileChannel(folder) as channel:
        channel.tx().send_many([b'say "hi"\n', b"\xff\0", "grün".encode(), b"\x1b[2J"])

    assert roost("channel", "dump", folder).out.decode().splitlines() == [
        '0 0 08c8274c 9 "say \\"hi\\"\\n"',
        "17 0 d2fdef8d 2 base64:/wA=",
        '27 0 5d95b1a5 5 "grün"',
        '40 0 bdcc322c 4 "\\u001b[2J"',
    ]
    assert objects(roost("channel", "dump", folder, "--format", "json", "--to", "20")) == [
        {"position": 0, "segment": 0, "crc32": "08c8274c", "size": 9, "text": 'say "hi"\n'},
        {"position": 17, "segment": 0, "crc32": "d2fdef8d", "size": 2, "base64": "/wA="},
    ]


def test_a_part_can_be_listed(numbers: Path) -> None:
    def listed(*options: str) -> list[int]:
        ran = roost("channel", "dump", numbers, "--format", "json", *options)
        return [told["position"] for told in objects(ran)]

    assert listed("--from", "20", "--to", "40") == [20, 30]
    assert listed("--from", "25", "--to", "31") == [20, 30]
    assert listed("--receiver", "a") == [20, 30, 40]
    assert listed("--from", "tail") == []
    assert roost("channel", "dump", numbers, "--from", "51").code == 1
    assert roost("channel", "dump", numbers, "--receiver", "nobody").code == 1


@pytest.mark.parametrize("command", ["tail", "dump"])
def test_damage_is_shown_where_it_stands(numbers: Path, command: str) -> None:
    harm(numbers, "segment.1", HEADER_BYTES + 8)

    stopped = roost("channel", command, numbers)
    passing = roost("channel", command, numbers, "--skip-corrupt")

    assert stopped.code == 1
    assert stopped.out.count(b"\n") == 2
    assert f"segment.1 is damaged at offset {HEADER_BYTES}" in stopped.err
    assert passing.code == 0
    assert passing.out.count(b"\n") == 4
    assert "Passed over 10 bytes" in passing.err


# stat


def test_a_channel_is_described_beside_its_owner_and_without(numbers: Path) -> None:
    with FileChannel(numbers) as channel:
        channel.tx().send(b"06")
        beside = msgspec.json.decode(roost("channel", "stat", numbers, "--json").out)
        owners = channel.stat()
    without = roost("channel", "stat", numbers).out.decode()

    assert beside["owner"].startswith(f"process {os.getpid()} on ")
    assert (beside["durability"], beside["write_path"]) == ("fsync", owners.write_path)
    assert (beside["head"], beside["visible"], beside["written"]) == (0, 60, 60)
    assert [(r["name"], r["behind_bytes"]) for r in beside["receivers"]] == [("a", 40), ("b", 60)]
    assert [s["end"] for s in beside["segments"]] == [20, 40, 60]
    assert beside["disk_bytes"] == owners.disk_bytes
    assert "open in      no process" in without
    assert "segment.2  growing     40   60" in without


def test_what_was_cut_from_the_tail_is_described(numbers: Path) -> None:
    with (numbers / "segment.2").open("ab") as file:
        file.write(b"torn")
    with FileChannel(numbers):
        pass

    ran = roost("channel", "stat", numbers)

    assert b"segment.2.at.50  4 B" in ran.out


# verify


def test_a_sound_channel_is_verified(numbers: Path) -> None:
    with FileChannel(numbers) as channel:
        beside = roost("channel", "verify", numbers)
        assert channel.stat().tail == 50
    ran = roost("channel", "verify", numbers)

    assert (beside.code, ran.code) == (0, 0)
    assert ran.out == b"5 messages of 10 B in 3 segments, positions 0 to 50: all good\n"


def test_every_damage_is_found_in_one_go(numbers: Path) -> None:
    harm(numbers, "segment.0", HEADER_BYTES + 8)
    harm(numbers, "segment.2", HEADER_BYTES + 8)

    ran = roost("channel", "verify", numbers)

    assert ran.code == 1
    told = ran.out.decode().splitlines()
    assert told[0].startswith(f"corrupt: {numbers / 'segment.0'} offset {HEADER_BYTES}, 10 bytes")
    assert told[1].startswith(f"corrupt: {numbers / 'segment.2'} offset {HEADER_BYTES}, 10 bytes")
    assert told[2].endswith("3 messages of 6 B in 3 segments, positions 0 to 50: 2 problems")


@pytest.mark.parametrize("method", ["snappy", "gzip", "zstd"])
def test_damage_in_a_compressed_segment_is_found(folder: Path, method: str) -> None:
    with FileChannel(folder, segment_bytes=20, compression=method) as channel:
        for number in range(1, 6):
            channel.tx().send(b"%02d" % number)
        while not [*folder.glob("segment.*.z")]:  # by a worker, which a close does not wait for
            os.sched_yield()
    assert roost("channel", "verify", folder).code == 0
    packed = sorted(path.name for path in folder.glob("segment.*.z"))

    harm(folder, packed[0], HEADER_BYTES + 15)

    ran = roost("channel", "verify", folder)
    assert ran.code == 1
    assert f"corrupt: {folder / packed[0]} offset " in ran.out.decode()


def test_a_segment_that_is_missing_is_found(numbers: Path) -> None:
    (numbers / "segment.1").unlink()

    ran = roost("channel", "verify", numbers)

    assert ran.code == 1
    assert b"no good message at position 20" in ran.out


def test_a_file_of_positions_that_does_not_fit_is_found(numbers: Path) -> None:
    raw = bytearray((numbers / "offset").read_bytes())
    for copy in (128, 128 + 32768):
        raw[copy + 100] ^= 1
    (numbers / "offset").write_bytes(raw)

    ran = roost("channel", "verify", numbers)

    assert ran.code == 1
    assert f"corrupt: {numbers / 'offset'} offset 128, 128 bytes" in ran.out.decode()


@pytest.mark.parametrize(
    ("position", "why"),
    [(5, "which is not where a message begins"), (60, "behind the end 50")],
)
def test_a_receiver_that_stands_where_no_message_is_is_found(
    numbers: Path, position: int, why: str
) -> None:
    mark = Mark(slot=7, kind=Kind.RECEIVER, name="lost", id=7, sequence=1, position=position)
    with (numbers / "offset").open("r+b") as file:
        file.seek(copy_offset(mark.slot, mark.sequence))
        file.write(encode_copy(mark))

    ran = roost("channel", "verify", numbers)

    assert ran.code == 1
    assert f"receiver 'lost' stands at {position}, {why}" in ran.out.decode()


def test_what_a_crash_leaves_is_noted_and_no_problem(numbers: Path) -> None:
    with (numbers / "segment.2").open("ab") as file:
        file.write(b"torn")
    (numbers / "segment.3.ing").write_bytes(b"")
    (numbers / "segment.0.z.ing").write_bytes(b"half")

    ran = roost("channel", "verify", numbers)

    assert ran.code == 0
    notes = [text for text in ran.out.decode().splitlines() if text.startswith("note: ")]
    assert [note.split()[1] for note in notes] == [
        f"{numbers / 'segment.2'}",
        f"{numbers / 'segment.0.z.ing'}",
        f"{numbers / 'segment.3.ing'}",
    ]


def test_both_forms_of_a_segment_are_checked(numbers: Path) -> None:
    plain = (numbers / "segment.0").read_bytes()
    with FileChannel(numbers, segment_bytes=20, compression="gzip") as channel:
        channel.tx().send_many([b"06", b"07"])
        channel.tx().send(b"08")
    (numbers / "segment.0").write_bytes(plain[:-1] + b"X")

    ran = roost("channel", "verify", numbers)

    assert ran.code == 0
    assert b"segment.0 offset 74: the compressed form is there, too" in ran.out
    assert b"damaged at offset 74" in ran.out
