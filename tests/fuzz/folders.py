"""A channel's folder made of given files, opened, read to its end, and used, under an oracle.

Whatever the files hold: only Roost's own errors come out, every message that is served stands
where it should, damage is passed over in the end, and what is sent afterwards arrives and stays.
Nothing of it touches a real disk, and nobody works in the background but when the channel closes.
"""

from pathlib import Path
from random import Random

import msgspec

from roost import Corrupt, FileChannel, RoostError, Trimmed
from roost.channel.receiver import Receiver
from roost.channel.stat import ChannelStat
from roost.segments.windows import Windows
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from roost.types import Durability
from tests.unit.channel.stepped import SteppedClock, SteppedTasks

FOLDER = Path("/queue")
WINDOWS = Windows(bytes_min=4096, bytes_max=16384)
MESSAGE_BYTES_MAX = 1 << 16
FILE_BYTES_MAX = 128 << 10
FRAME_BYTES = 8
MODES: tuple[Durability, ...] = ("fsync", "interval", "os", "fsync")

Served = list[tuple[int, bytes]]
"""Positions and messages, in the order in which they came."""


def disk_of(files: dict[str, bytes], way: int) -> SimDisk:
    """Put files into a folder, durably; three bits of `way` say how it is opened."""
    mapping = "" if way & 4 else "it is not wanted"
    disk = SimDisk(Random(0), DiskFaults(mapping=mapping, file_bytes_max=FILE_BYTES_MAX))
    disk.make_folder(FOLDER)
    for name, content in files.items():
        file = disk.open(FOLDER / name, create=True)
        file.write_at(0, content)
        file.sync()
        file.close()
    disk.sync_folder(FOLDER)
    return disk


def files_of(disk: SimDisk, folder: Path = FOLDER) -> dict[str, bytes]:
    """Read all files of the folder but the lock; those of `salvage/` with that before the name."""
    files: dict[str, bytes] = {}
    for name in disk.names(folder):
        if name == "salvage":
            files |= {
                f"salvage/{kept}": held for kept, held in files_of(disk, folder / name).items()
            }
        elif name != "lock":
            file = disk.open(folder / name, writable=False)
            files[name] = file.read_at(0, file.size())
            file.close()
    return files


def opened(disk: SimDisk, way: int) -> FileChannel[bytes]:
    """Open the folder with small limits."""
    clock = SteppedClock()
    return FileChannel(
        FOLDER,
        durability=MODES[way & 3],
        message_bytes_max=MESSAGE_BYTES_MAX,
        windows=WINDOWS,
        disk=disk,
        clock=clock,
        tasks=SteppedTasks(clock),
    )


class Outcome(msgspec.Struct, frozen=True):
    """What became of a folder: what it said of itself, and what it served."""

    stat: ChannelStat
    served: Served
    sent: tuple[int, bytes]
    again: Served
    """What was served when it was opened again; behind damage that may differ."""


def use(disk: SimDisk, way: int) -> Outcome | None:
    """Open, read, send, close, and once more; None if it cannot be opened, as is said then."""
    try:
        channel = opened(disk, way)
    except RoostError:
        return None
    with channel:
        stat = channel.stat()
        channel.rx("holder").close()  # without one at the head, what was read would be collected
        served = read_all(channel.rx("fuzz"))
        assert read_many(channel.rx("fuzz too")) == [payload for _, payload in served]
        sent = (channel.tx().send(b"afterwards"), b"afterwards")
        assert read_all(channel.rx("fuzz")) == [sent], "what was sent behind did not arrive"
    with opened(disk, way) as channel:
        later = channel.stat()
        assert (later.head, later.tail) == (stat.head, sent[0] + FRAME_BYTES + len(sent[1]))
        assert {finding.kind for finding in later.findings} <= {"corrupt"}
        again = read_all(channel.rx("later"))
        assert again.pop() == sent
        assert again == served or damaged(stat)
    return Outcome(stat=stat, served=served, sent=sent, again=again)


def damaged(stat: ChannelStat) -> bool:
    """Tell whether recovery found damage."""
    return "corrupt" in {finding.kind for finding in stat.findings}


def read_all(receiver: Receiver[bytes]) -> Served:
    """Receive one by one to the end, over all damage."""
    served: Served = []
    with receiver:
        while True:
            try:
                payload = receiver.try_recv()
            except (Corrupt, Trimmed):
                assert receiver.skip_corrupt() > 0, "damage that cannot be passed over"
                continue
            if payload is None:
                return served
            served.append((receiver.position - FRAME_BYTES - len(payload), payload))


def read_many(receiver: Receiver[bytes]) -> list[bytes]:
    """Receive in batches to the end, over all damage."""
    served: list[bytes] = []
    with receiver:
        while True:
            try:
                served += receiver.recv_many(7, 0)
            except (Corrupt, Trimmed):
                assert receiver.skip_corrupt() > 0, "damage that cannot be passed over"
            except TimeoutError:
                return served
