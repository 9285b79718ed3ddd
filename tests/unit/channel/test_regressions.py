"""Bugs that random histories and fuzzing found, each as the short story that showed it."""

import errno
import random
from pathlib import Path

import msgspec
import pytest

from roost import Corrupt, FileChannel, Unavailable, Unknown
from roost.channel.cursors import Kind, Mark, decode_copy, encode_copy
from roost.segments.format import Header, encode_header
from roost.sim.disk import SimDisk
from roost.types import Durability
from tests.unit.channel.stepped import SteppedClock, SteppedTasks

FOLDER = Path("/queue")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(0))


def opened(
    disk: SimDisk,
    *,
    durability: Durability = "fsync",
    segment_bytes: int = 1000,
    clock: SteppedClock | None = None,
    tasks: SteppedTasks | None = None,
) -> FileChannel[bytes]:
    clock = clock or SteppedClock()
    return FileChannel(
        FOLDER,
        durability=durability,
        segment_bytes=segment_bytes,
        disk=disk,
        tasks=tasks or SteppedTasks(clock),
        clock=clock,
    )


def test_a_segment_whose_name_was_not_durable_is_made_so_before_it_is_used(disk: SimDisk) -> None:
    channel = opened(disk, segment_bytes=1)
    channel.tx().send(b"one")
    disk.fail_next("sync_folder", str(FOLDER), errno.EIO)
    with pytest.raises(Unknown):
        channel.tx().send(b"two")
    disk.kill()

    opened(disk).tx().send(b"three")
    disk.crash("none")

    assert opened(disk).rx().peek_many(10) == [b"one", b"three"]


def test_what_a_receiver_in_doubt_needs_is_not_collected(disk: SimDisk) -> None:
    channel = opened(disk, segment_bytes=1)
    second = [channel.tx().send(payload) for payload in (b"one", b"two")][1]
    channel.rx("behind", start=second).close()
    disk.fail_next("sync", "offset", errno.EIO)
    with pytest.raises(Unknown):
        channel.rx("in doubt", start="head")
    channel.close()

    with opened(disk) as again:
        assert again.rx("in doubt").peek_many(10) == [b"one", b"two"]


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_in_recovery_does_not_hide_that_messages_were_lost(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    channel = opened(disk, durability="os")
    channel.tx().send_many([b"one", b"two"])
    for name in "abc":  # so that its slot stands in another sector than the channel's
        channel.rx(name)
    channel.rx("ahead").recv_many(2)
    channel.rx("other")
    disk.crash("none")
    disk.fail_next("sync", "offset", errno.EIO)
    with pytest.raises(Unavailable):
        opened(disk)
    disk.crash("none")

    assert opened(disk).stat().incarnation > 0


def test_a_close_says_so_when_the_sync_that_it_waited_for_failed(disk: SimDisk) -> None:
    opened(disk).close()
    clock = SteppedClock()
    tasks = SteppedTasks(clock)
    channel = opened(disk, durability="interval", clock=clock, tasks=tasks)
    channel.tx().send(b"one")
    clock.advance(1)
    tasks.step("roost-flush")
    disk.fail_next("sync", "segment.0", errno.EIO)

    with pytest.raises(Unknown, match="may or may not be durable"):
        channel.close()


def test_what_is_sent_behind_damage_is_never_taken_for_a_part_of_it(disk: SimDisk) -> None:
    with opened(disk) as channel:
        begin = channel.tx().send_many([b"damaged", b"whole"])
        end = channel.stat().tail
    file = disk.open(FOLDER / "segment.0")
    length = end - begin + len(b"new")  # as if it ended where the next message is going to end
    file.write_at(64, length.to_bytes(4, "big") + b"\xff")
    file.close()

    with opened(disk) as channel:
        channel.tx().send(b"new")
    with opened(disk) as channel, channel.rx() as receiver:
        with pytest.raises(Corrupt):
            receiver.recv(0)
        receiver.skip_corrupt()
        assert receiver.recv_many(10) == [b"whole", b"new"]


def test_what_was_received_as_objects_is_collected_where_no_fsync_is_waited_for(
    disk: SimDisk,
) -> None:
    clock = SteppedClock()
    tasks = SteppedTasks(clock)
    with FileChannel(
        FOLDER,
        codec="str",
        durability="os",
        segment_bytes=1,
        disk=disk,
        clock=clock,
        tasks=tasks,
    ) as channel:
        channel.tx().send("one")
        channel.tx().send("two")
        assert channel.rx().recv_many(10) == ["one", "two"]
        for worker in tasks.names():
            tasks.finish(worker)

        assert "segment.0" not in disk.names(FOLDER)


@pytest.mark.parametrize("number", ["id", "sequence", "position"])
def test_a_slot_whose_number_leaves_no_room_for_the_next_one_does_not_count(number: str) -> None:
    mark = Mark(slot=1, kind=Kind.RECEIVER, name="r", id=1, sequence=2, position=3)
    highest, too_high = (
        msgspec.structs.replace(mark, **{number: value}) for value in (2**63 - 1, 2**63)
    )

    assert decode_copy(1, encode_copy(highest)) == highest
    assert decode_copy(1, encode_copy(too_high)) is None


def test_a_folder_that_claims_to_reach_where_no_channel_does_is_refused(disk: SimDisk) -> None:
    opened(disk).close()
    file = disk.open(FOLDER / "segment.0")
    file.write_at(0, encode_header(Header(segment=0, begin=2**64 - 1)))
    file.close()

    with pytest.raises(Corrupt, match="claims to reach"):
        opened(disk)


def test_a_folder_whose_segments_run_out_of_numbers_is_refused(disk: SimDisk) -> None:
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / "segment.4294967295", create=True)
    file.write_at(0, encode_header(Header(segment=2**32 - 1, begin=0)))
    file.close()

    with pytest.raises(Corrupt, match="claims to reach"):
        opened(disk)
