"""Simulated disks for the tests of what is wrong with them, and how to look at what is on them."""

import errno
from pathlib import Path
from random import Random

import pytest

from roost.host.disk import Disk, File
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults

ROOT = Path("/disk")
FILE = ROOT / "file"
SECTOR = 512
PAGE = 4096


def new_disk(seed: int = 1, faults: DiskFaults | None = None) -> SimDisk:
    """Make a disk with one empty folder."""
    disk = SimDisk(Random(seed), faults or DiskFaults())
    disk.make_folder(ROOT)
    return disk


def created(disk: Disk, text: bytes = b"", *, path: Path = FILE) -> File:
    """Make a file, durable with its name and all."""
    file = disk.open(path, create=True)
    file.write_at(0, text)
    file.sync()
    disk.sync_folder(path.parent)
    return file


def content(disk: Disk, path: Path = FILE) -> bytes:
    """Read all of a file."""
    file = disk.open(path, writable=False)
    text = file.read_at(0, file.size())
    file.close()
    return text


def window(file: File, size: int = PAGE) -> memoryview:
    """Map the front of a file, to store into."""
    file.allocate(size)
    view = file.map(0, size, writable=True)
    assert view is not None
    return view


def fail_sync(disk: SimDisk, file: File) -> None:
    """Sync FILE, which does not work this time."""
    disk.fail_next("sync", "/file", errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        file.sync()
