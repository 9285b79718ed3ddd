"""What can be asked of the machine about a folder without touching anything in it.

Linux tells through `/proc`: which locks are held, and which file systems are mounted. So a lock's
holder can be named without ever taking the lock, and nobody who opens the folder at that moment
finds it taken.
"""

import os
from pathlib import Path

import msgspec

from roost.host.mounts import nearest_mount, parse_mounts

_LOCKS = Path("/proc/locks")
_MOUNTS = Path("/proc/self/mountinfo")


class HeldLock(msgspec.Struct, frozen=True):
    """One line of the table of locks: on which file, and by which process."""

    device: str
    inode: int
    pid: int


def parse_locks(table: str) -> list[HeldLock]:
    """Read the text of `/proc/locks`; only locks by `flock` that are held count.

    A line holds number, kind, how strict it is, access, process, major:minor:inode (the first two
    in hexadecimal), begin, end. The line of a process that waits has an arrow after the number.
    """
    locks = []
    for line in table.splitlines():
        fields = line.split()
        if fields[1:2] != ["FLOCK"]:
            continue
        major, minor, inode = fields[5].split(":")
        device = f"{int(major, 16)}:{int(minor, 16)}"
        locks.append(HeldLock(device=device, inode=int(inode), pid=int(fields[4])))
    return locks


def lock_holder(lock: Path) -> str:
    """Name who holds a lock file; '' if nobody does."""
    try:
        status = lock.stat()
        text = lock.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    try:
        locks = parse_locks(_LOCKS.read_text())
    except OSError as error:
        return f"perhaps {text} ({_LOCKS} cannot be read: {error.strerror})"
    device = _device(status)
    for held in locks:
        # A layered file system shows another device than that of its locks.
        if held.inode == status.st_ino and (held.device == device or str(held.pid) in text.split()):
            return text or f"process {held.pid}"
    return ""


def file_system(folder: Path) -> str:
    """Name the kind of file system that holds a folder; '' where that is not told."""
    try:
        mounts = parse_mounts(_MOUNTS.read_text(errors="surrogateescape"))
    except OSError:
        return ""
    nearest = nearest_mount(mounts, os.path.realpath(folder), _device(folder.stat()))
    return "" if nearest is None else nearest.kind


def _device(status: os.stat_result) -> str:
    return f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
