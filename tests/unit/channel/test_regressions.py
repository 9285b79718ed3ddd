"""Bugs that random histories and fuzzing found, each as the short story that showed it."""

import errno
import random
from pathlib import Path

import pytest

from roost import FileChannel, Unknown
from roost.sim.disk import SimDisk
from roost.types import Durability
from tests.unit.channel.stepped import SteppedClock, SteppedTasks

FOLDER = Path("/queue")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(0))


def opened(
    disk: SimDisk, *, durability: Durability = "fsync", segment_bytes: int = 1000
) -> FileChannel[bytes]:
    clock = SteppedClock()
    return FileChannel(
        FOLDER,
        durability=durability,
        segment_bytes=segment_bytes,
        disk=disk,
        tasks=SteppedTasks(clock),
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
