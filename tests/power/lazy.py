"""A disk that leaves out some of what it is asked for, for bugs that forget just that."""

from pathlib import Path
from typing import Any

from roost.host.disk import Disk


class Lazy:
    """A disk that leaves out some of what it is asked for."""

    def __init__(
        self,
        disk: Disk,
        *,
        syncs: bool = True,
        folders: bool = True,
        writes: bool = True,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self._syncs = syncs
        self._folders = folders
        self._writes = writes
        self._suffix = suffix

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Any:
        file: Any = self._disk.open(path, create=create, writable=writable)
        if path.name.endswith(self._suffix):
            if not self._syncs:
                file.sync = lambda: None
            if not self._writes:
                file.write_at = lambda *_: None
        return file

    def sync_folder(self, folder: Path) -> None:
        if self._folders:
            self._disk.sync_folder(folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)
