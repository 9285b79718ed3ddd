"""The disk as Roost sees it: files that forget what was not synced.

The contract that both implementations keep, and that everything above relies on:

- A write is whole or raises `OSError`; after an error the written range is undefined.
- A write is visible to every reader of the file at once, and durable only after a `sync` that
  began after it. A store into a mapped window is a write.
- Creating, renaming and removing a name is visible at once, and durable only after
  `sync_folder` of the folder; a rename from one folder to another needs both. A rename is atomic:
  a crash leaves the old or the new name.
- `truncate` and `allocate` are durable after the file's next `sync`.
- After `sync` raised, nothing may be concluded about what was written since the last good one,
  and a later `sync` does not repair it: the bytes must be written again.
- An open file outlives its name: removing or replacing it leaves open handles readable.
"""

from pathlib import Path
from typing import Protocol


class File(Protocol):
    """One open file. All offsets are bytes from its start."""

    def size(self) -> int:
        """Tell the present length of the file."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, fewer only where the file ends."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, extending the file where needed."""

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) the file to `size` bytes."""

    def allocate(self, size: int) -> None:
        """Reserve space for the first `size` bytes; the file is then at least so long.

        What it adds reads as zeros. It raises `OSError` (ENOSPC) where there is no room, so
        that a later store into a mapped window of that range needs none.
        """

    def map(self, offset: int, size: int, *, writable: bool) -> memoryview | None:
        """Map a range, or answer None where mapping is not safe or the file ends before the range.

        The window lives as long as something refers to it. `offset` is a multiple of 4096. What
        is stored into must have been allocated (or written) before it is mapped.
        """

    def sync(self) -> None:
        """Make everything written so far durable. Blocks: call it where blocking is allowed."""

    def close(self) -> None:
        """Let go of the file; windows stay valid. Closing twice does nothing.

        Nobody may be using the file meanwhile. Afterwards every other call raises `OSError`.
        """


class Sweep(Protocol):
    """Many files' syncs in one: of all that was written and named since it was begun."""

    def sync(self) -> None:
        """Make all of it durable, files and folders; it may be called again.

        It raises where anything of that could not be written, also what others had written to
        the same file system: then nothing may be concluded about any of the files.
        """

    def close(self) -> None:
        """Let go of it. Closing twice does nothing."""


class Lock(Protocol):
    """An exclusive hold on a folder, gone at the latest with the process."""

    def release(self) -> None:
        """Let go. Releasing twice does nothing."""


class Held(Exception):
    """Somebody else holds the lock; `holder` is what they wrote about themselves."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class Disk(Protocol):
    """The folders and files of one machine."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; without `create` a missing one raises `FileNotFoundError`."""

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder, sorted."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably; an existing one is fine."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""

    def unlink(self, path: Path) -> None:
        """Remove a name; a missing one raises `FileNotFoundError`."""

    def sync_folder(self, folder: Path) -> None:
        """Make all creations, renames and removals in a folder durable."""

    def sweep(self, folder: Path) -> Sweep | None:
        """Begin a sweep of the file system of a folder; None where errors could pass unseen."""

    def lock(self, path: Path, *, holder: str) -> Lock:
        """Take an exclusive lock on a file, made if missing, and write `holder` into it.

        Raises `Held` at once if somebody has it.
        """

    def mapping(self, folder: Path) -> str:
        """Say why files of this folder cannot be mapped safely, or '' if they can."""

    def free_bytes(self, folder: Path) -> int:
        """Tell how much can still be written below a folder."""
