"""The real disk, on Linux.

It keeps the contract of `roost.host.disk` with the plainest calls that do: `pread`, `pwrite`,
`fdatasync`, `fallocate`, `rename`, `flock` and a shared `mmap`. Nothing is cached or deferred here.
Every error keeps its number and names the file. Files are made for their owner alone, and a link
in place of a file is refused, so that a folder which others may write to cannot point us elsewhere.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from roost.host.disk import File, Held, Lock, Sweep
from roost.host.mounts import parse_mounts, why_unsafe

WINDOW_ALIGNMENT = 4096
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
# Without O_NONBLOCK, opening a pipe that was put in a file's place would wait for ever.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_HOLDER_BYTES_MAX = 4096
# No open file has this number. A negative one would not do: to `mmap` it means no file at all.
_CLOSED = (1 << 31) - 1
_MOUNTS = Path("/proc/self/mountinfo")
# From this version of Linux on `syncfs` tells of pages that could not be written.
_SYNCFS_TELLS = (5, 8)


class PosixDisk:
    """The folders and files of this machine.

    `guarded` tells whether stores into mapped windows are made by code that turns a bus error
    into an `OSError`; without it nothing is ever mapped.
    """

    def __init__(self, *, guarded: bool) -> None:
        self._guarded = guarded

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; without `create` a missing one raises `FileNotFoundError`."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0)
        fd = os.open(path, flags | _FLAGS, _FILE_MODE)
        try:
            _refuse_all_but_files(fd, path)
        except OSError:
            os.close(fd)
            raise
        return _PosixFile(self, fd, path)

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder, sorted."""
        return sorted(path.name for path in folder.iterdir())

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably; an existing one is fine."""
        missing = []
        nearest = folder.absolute()
        while not nearest.exists():
            missing.append(nearest)
            nearest = nearest.parent
        # The nearest one may be ours, made just before a process was killed and not yet durable:
        # each level is synced before the next is made, so it is the only one. Where it is not
        # ours, its parent may be closed to us.
        with contextlib.suppress(PermissionError):
            self.sync_folder(nearest.parent)
        for level in reversed(missing):
            level.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            self.sync_folder(level.parent)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a name; a missing one raises `FileNotFoundError`."""
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
        """Make all creations, renames and removals in a folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = str(folder)
            raise
        finally:
            os.close(fd)

    def sweep(self, folder: Path) -> Sweep | None:
        """Begin a sweep of the file system of a folder; None where errors could pass unseen."""
        release = re.match(r"(\d+)\.(\d+)", os.uname().release)
        if release is None or (int(release[1]), int(release[2])) < _SYNCFS_TELLS:
            return None
        try:
            syncfs = ctypes.CDLL(None, use_errno=True).syncfs
        except (OSError, AttributeError):
            return None
        # The system tells each open file of the errors since it was opened.
        return _PosixSweep(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), syncfs)

    def lock(self, path: Path, *, holder: str) -> Lock:
        """Take an exclusive lock on a file, made if missing, and write `holder` into it.

        Raises `Held` at once if somebody has it, be it this very process.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, _FILE_MODE)
        try:
            _refuse_all_but_files(fd, path)
            _take(fd, holder)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                error.filename = str(path)
            raise
        return _PosixLock(fd)

    def mapping(self, folder: Path) -> str:
        """Say why files of this folder cannot be mapped safely, or '' if they can."""
        if not self._guarded:
            return "stores into mapped files are not guarded in this installation"
        if mmap.ALLOCATIONGRANULARITY > WINDOW_ALIGNMENT:
            return f"windows begin at multiples of {mmap.ALLOCATIONGRANULARITY} bytes here"
        device = folder.stat().st_dev
        try:
            mounts = parse_mounts(_MOUNTS.read_text(errors="surrogateescape"))
        except OSError as error:
            return f"{_MOUNTS} cannot be read: {error.strerror}"
        place = os.path.realpath(folder)
        return why_unsafe(mounts, place, f"{os.major(device)}:{os.minor(device)}")

    def free_bytes(self, folder: Path) -> int:
        """Tell how much can still be written below a folder."""
        usage = os.statvfs(folder)
        return usage.f_bavail * usage.f_frsize


class _PosixFile:
    """One open file of the real disk.

    Any number of threads may use it at once, but nobody while it is being closed: the number of
    a closed file may already mean another one.
    """

    def __init__(self, disk: PosixDisk, fd: int, path: Path) -> None:
        self._disk = disk
        self._fd = fd
        self._path = path
        # Everything before this was reserved through this object, and the reservation holds.
        self._reserved_before = 0
        self._reserves = True
        self._why_unmapped: str | None = None

    def size(self) -> int:
        """Tell the present length of the file."""
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            error.filename = str(self._path)
            raise

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, fewer only where the file ends."""
        try:
            got = os.pread(self._fd, size, offset)
            if len(got) == size or not got:
                return got
            # The end of the file, or the most that one call reads (2 GiB).
            pieces = [got]
            got_before = len(got)
            while got and got_before < size:
                got = os.pread(self._fd, size - got_before, offset + got_before)
                pieces.append(got)
                got_before += len(got)
            return b"".join(pieces)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, extending the file where needed."""
        try:
            written = os.pwrite(self._fd, data, offset)
            if written == len(data):
                return
            # A nearly full disk or a limit takes a part; the next call says what is wrong.
            _write_all(self._fd, offset + written, memoryview(data)[written:])
        except OSError as error:
            error.filename = str(self._path)
            raise

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) the file to `size` bytes."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._reserved_before = min(self._reserved_before, size)

    def allocate(self, size: int) -> None:
        """Reserve space for the first `size` bytes; the file is then at least so long."""
        if size <= self._reserved_before:
            return
        try:
            before = os.fstat(self._fd).st_size
            try:
                # Only what is new: where the file system cannot reserve, the C library writes
                # zeros where it read zeros, and must not meet a store into what was there.
                start = self._reserved_before
                os.posix_fallocate(self._fd, start, size - start)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    # It may have taken all that there was; give that back.
                    os.ftruncate(self._fd, before)
                if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                    raise
                self._reserves = False
                os.ftruncate(self._fd, max(before, size))
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._reserved_before = size

    def map(self, offset: int, size: int, *, writable: bool) -> memoryview | None:
        """Map a range; None where mapping is not safe, or the file ends before the range does."""
        if offset + size > self.size():  # somebody else may just have cut it
            return None
        if self._why_unmapped is None:
            # A file stays on the file system that it was opened on.
            self._why_unmapped = self._disk.mapping(self._path.parent)
        if self._why_unmapped or not self._reserves:
            return None
        if size == 0:
            # To `mmap`, no size means all of the file.
            return memoryview(b"")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            # Both kinds are shared mappings. The view keeps the mapping alive.
            return memoryview(mmap.mmap(self._fd, size, access=access, offset=offset))
        except OSError as error:
            error.filename = str(self._path)
            raise

    def sync(self) -> None:
        """Make everything written so far durable. Blocks: call it where blocking is allowed.

        `fdatasync` leaves out only what no reader needs (times); a new length is included.
        """
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Let go of the file; windows stay valid. Closing twice does nothing."""
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


class _PosixSweep:
    """A folder that is open since the sweep began, to sync its file system."""

    def __init__(self, fd: int, syncfs: Callable[[int], int]) -> None:
        self._fd = fd
        self._syncfs = syncfs

    def sync(self) -> None:
        """Make all of it durable."""
        if self._syncfs(self._fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "the file system")

    def close(self) -> None:
        """Let go of it. Closing twice does nothing."""
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


def _take(fd: int, holder: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        present = os.pread(fd, _HOLDER_BYTES_MAX, 0)
        raise Held(present.decode(errors="replace")) from None
    # Written before the rest is cut: what the file held needs no new space, so that a full disk
    # stops nobody who was here before.
    text = holder.encode()[:_HOLDER_BYTES_MAX]
    _write_all(fd, 0, memoryview(text))
    os.ftruncate(fd, len(text))


class _PosixLock:
    """An `flock`, which belongs to this opening of the file and not to the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._owner = os.getpid()

    def release(self) -> None:
        """Let go. Releasing twice does nothing."""
        fd, self._fd = self._fd, _CLOSED
        if fd == _CLOSED:
            return
        # A fork shares the lock. The child's copy of this object must not unlock its parent, and
        # the parent's release must not wait until its children are gone.
        if os.getpid() == self._owner:
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _write_all(fd: int, offset: int, rest: memoryview) -> None:
    while rest:
        written = os.pwrite(fd, rest, offset)
        if written == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes")
        offset += written
        rest = rest[written:]


def _refuse_all_but_files(fd: int, path: Path) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
