"""The names of a simulated disk: what is visible, and what is durable of it.

Each creation, rename and removal stays pending until all folders that it touches were synced. A
loss of power lets any subset of the pending ones survive, sometimes a prefix, as a journal would;
each is whole or absent. So a rename leaves the old name or the new one, never both or none, and a
rename between two folders needs both to be synced.
"""

from pathlib import PurePath

import msgspec

from roost.host.random import Rng
from roost.sim.faults import Keep
from roost.sim.inode import Inode


class _Change(msgspec.Struct, frozen=True):
    """A file got the name `target`, lost the name `source`, or both.

    `unsynced` are the folders that must still be synced for it to be durable.
    """

    inode: Inode
    source: str | None
    target: str | None
    unsynced: frozenset[str]

    def names(self) -> set[str]:
        return {name for name in (self.source, self.target) if name is not None}


class Folders:
    """Which file has which name. Names are absolute paths; a file never has two."""

    def __init__(self) -> None:
        # A folder is durable as soon as it is there. The dictionary keeps their order.
        self._folders: dict[str, None] = {"/": None}
        self._visible: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        self._pending: list[_Change] = []

    def has_folder(self, folder: str) -> bool:
        """Tell whether there is a folder of this name."""
        return folder in self._folders

    def add_folder(self, folder: str) -> None:
        """Make a folder; it is durable at once."""
        self._folders[folder] = None

    def find(self, name: str) -> Inode | None:
        """Give the file that has this name now."""
        return self._visible.get(name)

    def names(self, folder: str) -> list[str]:
        """List what is in a folder, sorted."""
        everything = [*self._visible, *self._folders]
        return sorted(
            PurePath(name).name for name in everything if name != "/" and parent(name) == folder
        )

    def files(self) -> list[tuple[str, Inode]]:
        """List all files by name."""
        return sorted(self._visible.items(), key=lambda item: item[0])

    def create(self, name: str, inode: Inode) -> None:
        """Give a new file its first name."""
        self._visible[name] = inode
        self._note(inode, None, name)

    def rename(self, source: str, target: str) -> None:
        """Move a name; whatever had the new one loses it."""
        inode = self._visible.pop(source)
        self._visible[target] = inode
        self._note(inode, source, target)

    def unlink(self, name: str) -> None:
        """Remove a name."""
        self._note(self._visible.pop(name), name, None)

    def sync(self, folder: str) -> None:
        """Make durable what changed in this folder, and what those changes build upon."""
        ready: list[_Change] = []
        waiting: list[_Change] = []
        touched: set[str] = set()
        for change in reversed(self._pending):
            unsynced = change.unsynced - {folder}
            if unsynced and not change.names() & touched:
                waiting.append(msgspec.structs.replace(change, unsynced=unsynced))
            else:
                ready.append(change)
                touched |= change.names()
        self._pending = waiting[::-1]
        for change in reversed(ready):
            _apply(self._durable, change)

    def sync_all(self) -> None:
        """Make durable what changed in any folder."""
        for folder in sorted({name for change in self._pending for name in change.unsynced}):
            self.sync(folder)

    def crash(self, rng: Rng, keep: Keep) -> None:
        """Become what a loss of power leaves; nothing is pending afterwards."""
        for change in _survivors(self._pending, rng, keep):
            _apply(self._durable, change)
        self._visible = dict(self._durable)
        self._pending = []

    def _note(self, inode: Inode, source: str | None, target: str | None) -> None:
        unsynced = frozenset(parent(name) for name in (source, target) if name is not None)
        self._pending.append(_Change(inode, source, target, unsynced))


def parent(name: str) -> str:
    """Name the folder that a path lies in."""
    return name.rpartition("/")[0] or "/"


def _survivors(pending: list[_Change], rng: Rng, keep: Keep) -> list[_Change]:
    if keep != "some":
        return pending if keep == "all" else []
    if rng.getrandbits(1):
        return pending[: rng.randrange(len(pending) + 1)]
    return [change for change in pending if rng.getrandbits(1)]


def _apply(names: dict[str, Inode], change: _Change) -> None:
    # By file and not by the old name: of a chain of renames, the first may have been lost.
    for name in [name for name, inode in names.items() if inode is change.inode]:
        del names[name]
    if change.target is not None:
        names[change.target] = change.inode
