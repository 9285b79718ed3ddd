"""Real disks with a hand on the brake: they stop before chosen operations, or refuse them.

Everything else is the operating system's, so that what a test sees is what a user would.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from roost.host.disk import Disk, File, Lock, Sweep
from roost.host.posix import PosixDisk
from roost.segments.kernel import GUARDED
from tests.unit.channel.threads import WAIT_S

Watch = Callable[[str, Path], None]
"""Called before each operation with its name and file; what it raises is the answer."""


def refuse(code: int, *operations: str, name: str = "") -> Watch:
    """Make these operations fail on files whose name begins so."""

    def watch(operation: str, path: Path) -> None:
        if operation in operations and path.name.startswith(name):
            raise OSError(code, os.strerror(code), str(path))

    return watch


def every(*watches: Watch) -> Watch:
    """Ask several, one after the other."""

    def watch(operation: str, path: Path) -> None:
        for each in watches:
            each(operation, path)

    return watch


class Gate:
    """Holds an operation back until the test opens it, and tells when somebody stands there."""

    def __init__(self, operation: str, name: str = "") -> None:
        self.reached: Final = Event()
        self._operation = operation
        self._name = name
        self._open = Event()

    def __call__(self, operation: str, path: Path) -> None:
        """Wait here if it is the operation that was named."""
        if operation == self._operation and path.name.startswith(self._name):
            self.reached.set()
            assert self._open.wait(WAIT_S), f"nobody opened the gate before {operation} {path}"

    def wait(self) -> None:
        """Wait until somebody stands before it."""
        assert self.reached.wait(WAIT_S), "nobody came to the gate"

    def open(self) -> None:
        """Let everybody through."""
        self._open.set()


class WatchedDisk:
    """The real disk; `watch` may be replaced at any time.

    Without `syncs` it leaves out what only a loss of power would tell, and is quick.
    """

    def __init__(
        self, watch: Watch | None = None, *, guarded: bool = GUARDED, syncs: bool = True
    ) -> None:
        self._disk: Final[Disk] = PosixDisk(guarded=guarded)
        self.syncs: Final = syncs
        self.watch: Watch | None = watch

    def before(self, operation: str, path: Path) -> None:
        """Ask the watch."""
        if self.watch is not None:
            self.watch(operation, path)

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file that is watched too."""
        self.before("open", path)
        return _WatchedFile(self, self._disk.open(path, create=create, writable=writable), path)

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder."""
        self.before("names", folder)
        return self._disk.names(folder)

    def make_folder(self, folder: Path) -> None:
        """Make a folder."""
        self.before("make_folder", folder)
        if self.syncs:
            self._disk.make_folder(folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file."""
        self.before("rename", target)
        self._disk.rename(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        self.before("unlink", path)
        self._disk.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Sync a folder."""
        self.before("sync_folder", folder)
        if self.syncs:
            self._disk.sync_folder(folder)

    def sweep(self, folder: Path) -> Sweep | None:
        """Begin a sweep."""
        self.before("sweep", folder)
        return self._disk.sweep(folder)

    def lock(self, path: Path, *, holder: str) -> Lock:
        """Take a lock."""
        self.before("lock", path)
        return self._disk.lock(path, holder=holder)

    def mapping(self, folder: Path) -> str:
        """Say why files cannot be mapped."""
        return self._disk.mapping(folder)

    def free_bytes(self, folder: Path) -> int:
        """Tell the free space."""
        return self._disk.free_bytes(folder)


class _WatchedFile:
    """An open file of a watched disk."""

    def __init__(self, disk: WatchedDisk, file: File, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def size(self) -> int:
        return self._file.size()

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.before("read", self._path)
        return self._file.read_at(offset, size)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.before("write", self._path)
        self._file.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.before("truncate", self._path)
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._disk.before("allocate", self._path)
        self._file.allocate(size)

    def map(self, offset: int, size: int, *, writable: bool) -> memoryview | None:
        return self._file.map(offset, size, writable=writable)

    def sync(self) -> None:
        self._disk.before("sync", self._path)
        if self._disk.syncs:
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def quick() -> WatchedDisk:
    """Make a real disk for many openings in a row."""
    return WatchedDisk(syncs=False)


FULL: Final = errno.ENOSPC
BROKEN: Final = errno.EIO
