"""Disks on which one file is odd: a part of it cannot be read, or it seems to be very long."""

import errno
from pathlib import Path

from roost.host.disk import Disk, File, Lock, Sweep


class _Odd:
    """A disk on which one file is another one; everything else is passed on."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name

    def odd(self, file: File) -> File:
        """Make the odd file of the plain one."""
        raise NotImplementedError

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        file = self._disk.open(path, create=create, writable=writable)
        return self.odd(file) if path.name == self._name else file

    def names(self, folder: Path) -> list[str]:
        return self._disk.names(folder)

    def make_folder(self, folder: Path) -> None:
        self._disk.make_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._disk.rename(source, target)

    def unlink(self, path: Path) -> None:
        self._disk.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        self._disk.sync_folder(folder)

    def sweep(self, folder: Path) -> Sweep | None:
        return self._disk.sweep(folder)

    def lock(self, path: Path, *, holder: str) -> Lock:
        return self._disk.lock(path, holder=holder)

    def mapping(self, folder: Path) -> str:
        return self._disk.mapping(folder)

    def free_bytes(self, folder: Path) -> int:
        return self._disk.free_bytes(folder)


class ScratchedDisk(_Odd):
    """A disk that cannot read some bytes of one file; `written` counts writes there."""

    def __init__(self, disk: Disk, name: str, scratch: range) -> None:
        super().__init__(disk, name)
        self.written = 0
        self._scratch = scratch

    def odd(self, file: File) -> File:
        """Scratch it."""
        return _Scratched(file, self)

    def hits(self, offset: int, size: int) -> bool:
        """Tell whether a range touches the scratch."""
        return offset < self._scratch.stop and offset + size > self._scratch.start


class LongFileDisk(_Odd):
    """A disk on which one file says that it is very long."""

    def __init__(self, disk: Disk, name: str, size: int) -> None:
        super().__init__(disk, name)
        self._size = size

    def odd(self, file: File) -> File:
        """Make it long."""
        return _Long(file, self._size)


class _Passing:
    """A file that passes everything on."""

    def __init__(self, file: File) -> None:
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._file.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def map(self, offset: int, size: int, *, writable: bool) -> memoryview | None:
        return self._file.map(offset, size, writable=writable)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class _Scratched(_Passing):
    def __init__(self, file: File, disk: ScratchedDisk) -> None:
        super().__init__(file)
        self._disk = disk

    def read_at(self, offset: int, size: int) -> bytes:
        if self._disk.hits(offset, size):
            raise OSError(errno.EIO, "scratched")
        return super().read_at(offset, size)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.written += self._disk.hits(offset, len(data))
        super().write_at(offset, data)


class _Long(_Passing):
    def __init__(self, file: File, size: int) -> None:
        super().__init__(file)
        self._size = size

    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        assert size < 1 << 20, "so much is not read at once"
        return super().read_at(offset, size)
