"""A simulated disk that does to a program what a real one may do, and does it again for one seed.

It holds its files in memory, keeps what is visible and what is durable apart, and belongs to one
simulated machine. The machine's program ends in one of two ways. `crash` is a loss of power: of
what was not synced, any part survives. `kill` ends only the process: the page cache stays, with
the lies that a failed sync left in it. Either way all handles and locks of the program are dead,
and what it still stores into a window has no effect.

`halt` and `lose_power_after` stop the program in the middle of synchronous code, between any two
operations: from then on each operation raises `PowerLoss`, until `crash` or `kill` says what became
of the disk. Nothing but the order of the calls and the `rng` decides what happens.
"""

import errno
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roost.host.disk import File, Held, Lock, Sweep
from roost.host.random import Rng
from roost.sim.drive import Drive, failure
from roost.sim.faults import DiskFaults, Keep, Operation
from roost.sim.folders import parent
from roost.sim.inode import BLOCK_BYTES, Inode

_HEALTHY: Final = DiskFaults()


class SimDisk:
    """The folders and files of one simulated machine, and the means to harm them.

    `trace` hears of each operation as one short line, the same lines for the same seed.
    """

    def __init__(
        self,
        rng: Rng,
        faults: DiskFaults = _HEALTHY,
        *,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._rng = rng
        self._drive = Drive(rng, faults, trace)

    # What a program asks of its disk.

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; without `create` a missing one raises `FileNotFoundError`."""
        name = str(path)
        self._begin("open", name)
        inode = self._drive.find_or_create(name) if create else self._drive.find(name)
        file = _SimFile(self._drive, inode, name, writable=writable)
        self._drive.end()
        return file

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder, sorted."""
        self._begin("names", str(folder))
        self._drive.check_folder(str(folder))
        return self._drive.folders.names(str(folder))

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably; an existing one is fine."""
        self._begin("make_folder", str(folder))
        self._drive.add_folder(str(folder))
        self._drive.end()

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        old, new = str(source), str(target)
        self._begin("rename", old, new)
        self._drive.find(old)
        self._drive.check_folder(parent(new))
        if self._drive.folders.has_folder(new):
            raise failure(errno.EISDIR, new)
        if old != new:
            self._drive.folders.rename(old, new)
        self._drive.end()

    def unlink(self, path: Path) -> None:
        """Remove a name; a missing one raises `FileNotFoundError`."""
        name = str(path)
        self._begin("unlink", name)
        self._drive.find(name)
        self._drive.folders.unlink(name)
        self._drive.end()

    def sync_folder(self, folder: Path) -> None:
        """Make all creations, renames and removals in a folder durable."""
        name = str(folder)
        self._begin("sync_folder", name, chance=self.faults.sync_fails)
        self._drive.check_folder(name)
        self._drive.folders.sync(name)
        self._drive.end()

    def sweep(self, folder: Path) -> Sweep | None:
        """Begin a sweep of all that is on this disk."""
        self._drive.check_folder(str(folder))
        return _SimSweep(self._drive, str(folder))

    def lock(self, path: Path, *, holder: str) -> Lock:
        """Take an exclusive lock on a file, made if missing, and write `holder` into it."""
        name = str(path)
        self._begin("lock", name)
        inode = self._drive.find_or_create(name)
        if name in self._drive.locks:
            raise Held(self._drive.locks[name])
        # The few bytes of it are not counted as space: it is a courtesy.
        inode.resize(0)
        inode.write(0, holder.encode())
        self._drive.locks[name] = holder
        lock = _SimLock(self._drive, name)
        self._drive.end()
        return lock

    def mapping(self, folder: Path) -> str:
        """Say why files of this folder cannot be mapped safely, or '' if they can."""
        self._begin("mapping", str(folder))
        self._drive.check_folder(str(folder))
        return self.faults.mapping

    def free_bytes(self, folder: Path) -> int:
        """Tell how much can still be written below a folder."""
        self._begin("free_bytes", str(folder))
        self._drive.check_folder(str(folder))
        return self._drive.free_blocks() * BLOCK_BYTES

    # What the simulated world and its tests do to the disk.

    @property
    def faults(self) -> DiskFaults:
        """How it misbehaves from now on; may be replaced at any time."""
        return self._drive.faults

    @faults.setter
    def faults(self, faults: DiskFaults) -> None:
        self._drive.faults = faults

    def lose_power_after(self, operations: int) -> None:
        """Halt at the n-th operation from now (1 is the next), before or after it takes effect."""
        self._drive.lose_power_after(operations)

    def halt(self) -> None:
        """End the program now: nothing that it still does has an effect.

        Call it before the program's tasks are cancelled, or their `finally` clauses change more
        than those of a process that is killed.
        """
        self._drive.halt()

    def when_halted(self, call: Callable[[], None]) -> None:
        """Have somebody called at the moment when the program ends, before it can notice."""
        self._drive.on_halt = call

    def crash(self, keep: Keep | None = None) -> None:
        """Lose power and come back: draw what survives of the unsynced, or `keep` what is said."""
        drive, rng, faults = self._drive, self._rng, self.faults
        drive.halt()
        # All and nothing are what happens most; drawn sector by sector they would never happen.
        most = _part(rng, "some") if keep is None else keep
        drive.tell(f"crash keeps {most}")
        drive.folders.crash(rng, _part(rng, most))
        for name, inode in drive.folders.files():
            inode.crash(rng, _part(rng, most), tears=faults.tears)
            if faults.rots and inode.size and rng.random() < faults.rots:
                inode.rot(rng.randrange(inode.size), rng.randrange(8))
            drive.tell(f"  {name} {inode.size} {inode.checksum():08x}")
        drive.restart()

    def kill(self) -> None:
        """End the process and leave the machine on: what is visible stays so."""
        self._drive.halt()
        self._drive.tell("kill")
        self._drive.restart()

    def fail_next(self, operation: Operation, path_suffix: str, code: int) -> None:
        """Let the next such operation on a path that ends so raise `OSError` with this `errno`.

        A failed write has written any part; a failed sync leaves the unsynced clean but lost. The
        release of a lock never fails.
        """
        self._drive.fail_next(operation, path_suffix, code)

    def fail_none(self) -> None:
        """Take back every `fail_next` that nothing has met yet."""
        self._drive.fail_none()

    def rot(self, path: Path, offset: int, bit: int) -> None:
        """Flip a bit of a file, on the disk and for every reader."""
        self._drive.tell(f"rot {path} {offset}.{bit}")
        self._drive.find(str(path)).rot(offset, bit)

    def _begin(self, operation: Operation, *paths: str, chance: float = 0.0) -> None:
        code = self._drive.begin(operation, *paths, chance=chance)
        if code:
            raise failure(code, paths[0])


class _SimFile:
    """One open file of a simulated disk."""

    def __init__(self, drive: Drive, inode: Inode, name: str, *, writable: bool) -> None:
        self._drive = drive
        self._inode = inode
        self._name = name
        self._writable = writable
        self._life = drive.life
        self._handle: int | None = drive.attach(inode)

    def size(self) -> int:
        """Tell the present length of the file."""
        code = self._begin("size")
        if code:
            raise failure(code, self._name)
        return self._inode.size

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, fewer only where the file ends."""
        chance = self._drive.faults.read_fails
        code = self._begin("read", chance=chance, detail=f" {offset}+{size}")
        if code:
            raise failure(code, self._name)
        return self._inode.read(offset, size)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, extending the file where needed."""
        chance = self._drive.faults.write_fails
        detail = f" {offset}+{len(data)} {zlib.crc32(data):08x}"
        code = self._begin("write", chance=chance, detail=detail)
        self._check_writable()
        piece = memoryview(data)
        if code:
            piece = piece[: self._drive.rng.randrange(len(piece) + 1)]
        elif offset + len(piece) > self._inode.bytes_max:
            code, piece = errno.EFBIG, piece[:0]
        missing = self._inode.missing_blocks(offset, offset + len(piece))
        free = self._drive.free_blocks() if missing else 0
        if len(missing) > free:
            # As on a real disk, what fits is there.
            code, piece = errno.ENOSPC, piece[: max(0, missing[free] * BLOCK_BYTES - offset)]
        if piece:
            self._inode.write(offset, piece)
        if code:
            raise failure(code, self._name)
        self._drive.end()

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) the file to `size` bytes."""
        self._begin_change("truncate", size)
        self._inode.resize(size)
        self._drive.end()

    def allocate(self, size: int) -> None:
        """Reserve space for the first `size` bytes; the file is then at least so long."""
        self._begin_change("allocate", size)
        missing = self._inode.missing_blocks(0, size)
        if missing and len(missing) > self._drive.free_blocks():
            raise failure(errno.ENOSPC, self._name)
        self._inode.reserve(size)
        self._drive.end()

    def map(self, offset: int, size: int, *, writable: bool) -> memoryview | None:
        """Map a range; None where mapping is not safe, or the file ends before the range does."""
        code = self._begin("map", detail=f" {offset}+{size}")
        if code:
            raise failure(code, self._name)
        if self._drive.faults.mapping or offset + size > self._inode.size:
            return None
        if writable and not self._writable:
            raise failure(errno.EACCES, self._name)
        return self._inode.window(offset, size, writable=writable)

    def sync(self) -> None:
        """Make everything written so far durable, unless that fails."""
        code = self._begin("sync", chance=self._drive.faults.sync_fails)
        if code:
            self._inode.fail_sync(self._drive.rng)
            raise failure(code, self._name)
        self._inode.sync()
        self._drive.end()

    def close(self) -> None:
        """Let go of the file; windows stay valid. Closing twice does nothing."""
        if self._handle is not None:
            code = self._begin("close")
            self._drive.release(self._handle)
            self._handle = None
            if code:
                raise failure(code, self._name)

    def _begin(self, operation: Operation, *, chance: float = 0.0, detail: str = "") -> int:
        if self._handle is None:
            raise failure(errno.EBADF, self._name)
        drive = self._drive
        code = drive.begin(operation, self._name, life=self._life, chance=chance, detail=detail)
        evicts = drive.faults.evicts
        if evicts and self._inode.has_lost and drive.rng.random() < evicts:
            self._inode.evict(drive.rng)
        return code

    def _begin_change(self, operation: Operation, size: int) -> None:
        code = self._begin(operation, detail=f" {size}")
        self._check_writable()
        if code or size > self._inode.bytes_max:
            raise failure(code or errno.EFBIG, self._name)

    def _check_writable(self) -> None:
        if not self._writable:
            raise failure(errno.EBADF, self._name)


class _SimSweep:
    """All files of a disk, to be synced together."""

    def __init__(self, drive: Drive, name: str) -> None:
        self._drive = drive
        self._name = name
        self._life: int | None = drive.life

    def sync(self) -> None:
        """Make everything durable, unless that fails."""
        if self._life is None:
            raise failure(errno.EBADF, self._name)
        drive = self._drive
        chance = drive.faults.sync_fails
        if code := drive.begin("sweep", self._name, life=self._life, chance=chance):
            for inode in drive.inodes():
                inode.fail_sync(drive.rng)
            raise failure(code, self._name)
        for inode in drive.inodes():
            inode.sync()
        drive.folders.sync_all()
        drive.end()

    def close(self) -> None:
        """Let go of it. Closing twice does nothing."""
        self._life = None


class _SimLock:
    """A lock that dies with the program that took it."""

    def __init__(self, drive: Drive, name: str) -> None:
        self._drive = drive
        self._name = name
        self._life = drive.life
        self._held = True

    def release(self) -> None:
        """Let go. Releasing twice does nothing."""
        if self._held:
            self._drive.begin("release", self._name, life=self._life)
            del self._drive.locks[self._name]
            self._held = False


def _part(rng: Rng, most: Keep) -> Keep:
    """Draw how one thing fares in a crash that keeps `some` of everything."""
    return most if most != "some" else rng.choice(("all", "none", "some", "some"))
