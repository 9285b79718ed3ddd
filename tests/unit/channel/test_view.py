"""A view reads beside the owner of a folder: whatever that does, nothing is missed or made up."""

import errno
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from roost import Corrupt, FileChannel, Invalid, NotFound, Trimmed, Unavailable
from roost.channel.cursors import FILE_BYTES, HALF_BYTES, SLOT_BYTES
from roost.channel.view import Message, View
from roost.host.disk import Disk
from roost.host.posix import PosixDisk
from roost.segments.compress import compressor, method_byte
from roost.segments.format import HEADER_BYTES, Header, encode_header
from roost.segments.kernel import frame
from tests.unit.channel.disks import WatchedDisk, refuse
from tests.unit.channel.threads import Running

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "filechannel"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def owner(folder: Path) -> Iterator[FileChannel[bytes]]:
    """Open a channel that syncs nothing, with two messages of ten bytes to a segment."""
    with FileChannel(folder, durability="os", segment_bytes=20) as channel:
        yield channel


def view(folder: Path, disk: Disk | None = None) -> View:
    return View(disk if disk is not None else PosixDisk(guarded=False), folder)


def send(channel: FileChannel[bytes], *numbers: int) -> None:
    for number in numbers:
        channel.tx().send(b"%02d" % number)


def payloads(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


def everything(seen: View) -> list[Message]:
    messages: list[Message] = []
    while more := seen.take(100):
        messages += more
    return messages


def store(folder: Path, name: str, offset: int, raw: bytes) -> None:
    """Write into a file as its owner would."""
    with (folder / name).open("r+b") as file:
        file.seek(offset)
        file.write(raw)


def compress(folder: Path, number: int, begin: int, end: int) -> None:
    """Put a compressed segment in a plain one's place."""
    plain = folder / f"segment.{number}"
    packing = compressor("gzip")
    stream = packing.add(plain.read_bytes()[HEADER_BYTES : HEADER_BYTES + end - begin])
    header = Header(segment=number, begin=begin, end=end, method=method_byte("gzip"))
    packed = encode_header(header) + stream + packing.finish()
    plain.with_name(plain.name + ".z").write_bytes(packed)
    plain.unlink()


# What the owner does meanwhile


def test_messages_are_seen_as_they_are_sent(owner: FileChannel[bytes], folder: Path) -> None:
    send(owner, 1)
    seen = view(folder)

    assert seen.take(10) == [Message(begin=0, end=10, segment=0, payload=b"01")]
    assert seen.take(10) == []
    send(owner, 2, 3, 4, 5)
    assert [(m.begin, m.segment) for m in everything(seen)] == [(10, 0), (20, 1), (30, 1), (40, 2)]


def test_in_mode_fsync_nothing_is_seen_behind_the_durable_end(folder: Path) -> None:
    with FileChannel(folder) as channel:
        send(channel, 1)
        seen = view(folder)
        store(folder, "segment.0", HEADER_BYTES + 10, frame(b"02"))  # written, and not synced

        assert payloads(everything(seen)) == [b"01"]
        assert (seen.durability, seen.visible, seen.written()) == ("fsync", 10, 20)


def test_a_message_that_is_half_stored_is_not_there_yet(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1)
    seen = view(folder)
    second = frame(b"02")
    store(folder, "segment.0", HEADER_BYTES + 10, second[:9])

    assert payloads(everything(seen)) == [b"01"]
    store(folder, "segment.0", HEADER_BYTES + 10, second)
    assert payloads(everything(seen)) == [b"02"]


def test_a_segment_that_rolls_while_it_is_read_is_read_to_its_end(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2)
    seen = view(folder)

    assert payloads(seen.take(1)) == [b"01"]
    send(owner, 3)
    assert payloads(everything(seen)) == [b"02", b"03"]


def test_a_segment_that_is_compressed_before_it_is_opened_is_read_in_its_new_form(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3)
    seen = view(folder)

    compress(folder, 0, begin=0, end=20)

    assert payloads(everything(seen)) == [b"01", b"02", b"03"]


def test_a_segment_that_is_compressed_while_it_is_open_is_read_on(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3)
    seen = view(folder)

    assert payloads(seen.take(1)) == [b"01"]
    compress(folder, 0, begin=0, end=20)
    assert seen.refresh() is False
    assert payloads(everything(seen)) == [b"02", b"03"]


def test_a_segment_that_is_compressed_during_the_look_is_found(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3)
    compressed: list[int] = []

    def watch(operation: str, path: Path) -> None:
        if (operation, path.name) == ("open", "segment.0") and not compressed:
            compressed.append(0)
            compress(folder, 0, begin=0, end=20)

    seen = view(folder, WatchedDisk(watch, guarded=False))

    assert seen.segments[0].method == "gzip"
    assert payloads(everything(seen)) == [b"01", b"02", b"03"]


def test_what_is_collected_during_the_look_is_not_missed(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3)

    def watch(operation: str, path: Path) -> None:
        if (operation, path.name) == ("open", "segment.0"):
            path.unlink(missing_ok=True)

    seen = view(folder, WatchedDisk(watch, guarded=False))

    assert seen.head == 20
    assert payloads(everything(seen)) == [b"03"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_the_system_does_not_list_while_it_is_renamed_is_found(
    owner: FileChannel[bytes], folder: Path, number: int
) -> None:
    send(owner, 1, 2, 3, 4, 5)
    hidden = folder / f"segment.{number}"

    def watch(operation: str, _: Path) -> None:
        if operation == "names":
            hidden.rename(folder / "elsewhere")
        elif (folder / "elsewhere").exists():
            (folder / "elsewhere").rename(hidden)

    seen = view(folder, WatchedDisk(watch, guarded=False))

    assert payloads(everything(seen)) == [b"01", b"02", b"03", b"04", b"05"]


def test_messages_that_were_collected_are_said_to_be_trimmed(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3, 4, 5)
    seen = view(folder)
    (folder / "segment.0").unlink()

    for _ in range(2):
        with pytest.raises(Trimmed) as caught:
            seen.take(10)
        assert caught.value.head == 20
    assert seen.pass_over() == 20
    assert payloads(everything(seen)) == [b"03", b"04", b"05"]


def test_a_message_of_a_segment_that_is_open_and_gone_still_names_it(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3)
    seen = view(folder)
    seen.take(1)
    (folder / "segment.0").unlink()
    seen.refresh()

    assert [(m.payload, m.segment) for m in everything(seen)] == [(b"02", 0), (b"03", 1)]


def test_a_segment_that_grew_at_one_look_and_was_collected_at_the_next_is_gone(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1)
    seen = view(folder)
    assert payloads(seen.take(10)) == [b"01"]
    send(owner, 2, 3, 4, 5)
    for number in (0, 1):
        (folder / f"segment.{number}").unlink()

    with pytest.raises(Trimmed) as caught:
        seen.take(10)

    assert caught.value.head == 40
    assert seen.pass_over() == 30
    assert payloads(everything(seen)) == [b"05"]


def test_beside_a_busy_owner_every_message_is_seen_once_and_in_order(folder: Path) -> None:
    count = 3000
    with FileChannel(
        folder, durability="os", segment_bytes=2000, compression="snappy", codec="str"
    ) as channel:
        channel.rx(start="tail").close()  # it keeps what is sent from being collected

        def work() -> None:
            for number in range(count):
                channel.tx().send(f"{number}")

        seen = view(folder) if (folder / "segment.0").exists() else None
        assert seen is not None
        sending = Running(work)
        messages: list[Message] = []
        while len(messages) < count:
            messages += seen.take(100)
        sending.answer()

    assert [int(message.payload) for message in messages] == [*range(count)]
    assert all(before.end == after.begin for before, after in pairwise(messages))
    assert len({message.segment for message in messages}) > 10


def test_beside_an_owner_that_collects_no_message_is_seen_out_of_order(folder: Path) -> None:
    count = 2000
    with FileChannel(
        folder, durability="os", segment_bytes=500, compression="snappy", codec="str"
    ) as channel:
        rx = channel.rx()

        def work() -> None:
            for number in range(count):
                channel.tx().send(f"{number}")
                rx.recv(timeout=30)

        seen = view(folder)
        sending = Running(work)
        numbers: list[int] = []
        while not numbers or numbers[-1] < count - 1:
            try:
                numbers += [int(message.payload) for message in seen.take(100)]
            except Trimmed:
                assert seen.pass_over() > 0
        sending.answer()

    assert numbers == sorted(set(numbers))


def test_what_never_stays_the_same_is_given_up(owner: FileChannel[bytes], folder: Path) -> None:
    send(owner, 1, 2, 3)
    gone = refuse(errno.ENOENT, "open", name="segment")

    with pytest.raises(Unavailable, match="faster"):
        view(folder, WatchedDisk(gone, guarded=False))
    disk = WatchedDisk(guarded=False)
    seen = view(folder, disk)
    disk.watch = gone
    for look in (seen.refresh, lambda: seen.take(1), seen.written):
        with pytest.raises(Unavailable, match="faster"):
            look()


# The file `offset`


@pytest.mark.parametrize("half", [0, HALF_BYTES])
def test_while_one_copy_is_torn_the_other_one_tells(folder: Path, half: int) -> None:
    with FileChannel(folder) as channel:
        send(channel, 1, 2)
        channel.rx("a").recv(timeout=1)
    store(folder, "offset", half + SLOT_BYTES + 100, b"torn")

    marks, damaged = view(folder).marks()

    assert marks[1].position in (0, 10)
    assert damaged == []


def test_a_slot_that_no_copy_tells_is_read_again_and_then_said_to_be_damaged(
    folder: Path,
) -> None:
    with FileChannel(folder) as channel:
        channel.rx("a")
    whole = (folder / "offset").read_bytes()
    for half in (0, HALF_BYTES):
        store(folder, "offset", half + SLOT_BYTES + 100, b"torn")
    reads = 0

    def mend(operation: str, path: Path) -> None:
        nonlocal reads
        if (operation, path.name) == ("read", "offset"):
            reads += 1
            if reads == 6:
                store(folder, "offset", 0, whole)

    disk = WatchedDisk(guarded=False)
    seen = view(folder, disk)

    assert seen.marks()[1] == [1]
    disk.watch = mend
    assert [mark.name for mark in seen.receivers()] == ["a"]


def test_a_folder_of_the_published_original_is_read_whole() -> None:
    for folder in sorted(GOLDEN.iterdir()):
        seen = view(folder)

        messages = everything(seen)

        assert len(messages) == 200
        assert messages[-1].end == seen.visible
        assert (seen.durability, seen.receivers(), seen.findings) == ("", [], [])


def test_a_folder_that_ends_with_a_compressed_segment_is_read_whole(folder: Path) -> None:
    shutil.copytree(GOLDEN / "gzip", folder)
    for number in (2, 3):
        (folder / f"segment.{number}").unlink()
    seen = view(folder)

    messages = everything(seen)

    assert messages[-1].end == seen.visible == seen.written() == 8230


def test_without_the_file_offset_half_a_message_at_the_end_is_not_there_yet(
    folder: Path,
) -> None:
    shutil.copytree(GOLDEN / "gzip", folder)
    size = (folder / "segment.3").stat().st_size
    store(folder, "segment.3", size, frame(b"more")[:-1])
    seen = view(folder)

    assert len(everything(seen)) == 200
    store(folder, "segment.3", size, frame(b"more"))
    assert payloads(everything(seen)) == [b"more"]


def test_without_the_file_offset_good_messages_behind_bad_ones_are_read_behind_damage(
    folder: Path,
) -> None:
    shutil.copytree(GOLDEN / "gzip", folder)
    size = (folder / "segment.3").stat().st_size
    store(folder, "segment.3", size, b"damage!!!" + frame(b"more"))
    seen = view(folder)

    seen.go(seen.visible - 12 - 9)

    with pytest.raises(Corrupt):
        seen.take(10)
    assert seen.pass_over() == 9
    assert payloads(everything(seen)) == [b"more"]


def test_another_channel_in_its_place_is_not_taken_for_the_same(folder: Path) -> None:
    with FileChannel(folder) as channel:
        send(channel, 1, 2)
    seen = view(folder)
    shutil.rmtree(folder)
    with FileChannel(folder) as channel:
        send(channel, 3)

        with pytest.raises(Unavailable, match="replaced"):
            seen.refresh()


def test_a_folder_without_a_channel_says_so(tmp_path: Path) -> None:
    (tmp_path / "offset").write_bytes(bytes(FILE_BYTES))

    for folder in (tmp_path, tmp_path / "missing", tmp_path / "offset"):
        with pytest.raises(NotFound):
            view(folder)


# Damage


def test_damage_is_reported_with_file_and_offset_until_it_is_passed_over(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3, 4, 5)
    owner.sync()
    store(folder, "segment.1", HEADER_BYTES + 10 + 8, b"X")
    seen = view(folder)

    assert payloads(seen.take(10)) == [b"01", b"02", b"03"]
    for _ in range(2):
        with pytest.raises(Corrupt) as caught:
            seen.take(10)
        assert (caught.value.file, caught.value.offset) == (str(folder / "segment.1"), 74)
    assert seen.pass_over() == 10
    assert payloads(everything(seen)) == [b"05"]


def test_what_the_next_open_would_cut_is_not_called_damage(folder: Path) -> None:
    with FileChannel(folder, durability="os", segment_bytes=20) as channel:
        channel.sync()
        send(channel, 1)
    offset = (folder / "offset").read_bytes()
    with FileChannel(folder, durability="os", segment_bytes=20) as channel:
        send(channel, 2, 3)
    # The power went: nothing of the second life was durable, and a page of it came to the disk.
    (folder / "offset").write_bytes(offset)
    store(folder, "segment.0", HEADER_BYTES + 10, bytes(10))

    seen = view(folder)

    assert payloads(everything(seen)) == [b"01"]
    with FileChannel(folder, durability="os") as channel:
        assert channel.stat().tail == seen.visible


def test_a_damaged_header_is_told_and_the_rest_is_read(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3, 4, 5)
    owner.sync()
    store(folder, "segment.1", 20, b"X")
    seen = view(folder)

    assert [(f.kind, f.file) for f in seen.findings] == [("corrupt", str(folder / "segment.1"))]
    assert payloads(seen.take(2)) == [b"01", b"02"]
    with pytest.raises(Corrupt):
        seen.take(1)
    seen.pass_over()
    assert payloads(everything(seen)) == [b"05"]


def test_a_last_segment_that_was_never_wholly_made_is_none(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2)
    (folder / "segment.1").write_bytes(bytes(12))
    seen = view(folder)

    assert payloads(everything(seen)) == [b"01", b"02"]
    assert seen.findings == []


# Positions


def test_a_view_goes_where_it_is_told(owner: FileChannel[bytes], folder: Path) -> None:
    send(owner, 1, 2, 3)
    owner.rx("a").recv(timeout=1)
    seen = view(folder)

    assert seen.go("tail") == 30
    assert seen.go("head") == 0
    assert seen.go(30) == 30
    assert seen.go(15) == 10  # inside a message: at its begin
    assert seen.go_to_receiver("a") == 10
    assert payloads(seen.take(1)) == [b"02"]


def test_a_view_does_not_go_where_nothing_is(owner: FileChannel[bytes], folder: Path) -> None:
    send(owner, 1, 2, 3)
    (folder / "segment.0").unlink()
    seen = view(folder)

    with pytest.raises(Trimmed):
        seen.go(10)
    with pytest.raises(Invalid):
        seen.go(31)
    with pytest.raises(NotFound):
        seen.go_to_receiver("nobody")


def test_the_last_messages_are_found_over_segments_and_damage(
    owner: FileChannel[bytes], folder: Path
) -> None:
    send(owner, 1, 2, 3, 4, 5)
    owner.sync()
    store(folder, "segment.1", HEADER_BYTES + 8, b"X")
    seen = view(folder)

    assert [seen.go_back(count) for count in (0, 1, 2, 3, 99)] == [50, 40, 30, 10, 0]
