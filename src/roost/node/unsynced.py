"""Remembers that a node acknowledges what is not synced, and under which run of its machine.

With the sync policies `interval` and `never` a loss of power takes what was acknowledged last, and
nothing in the journal tells that it was there. So while such a node serves, its folder has a file
`unsynced` that names the run of the machine. The promise: who finds it under another run knows
that entries may be gone, and who finds none, or one of this run, knows that none are.
"""

from pathlib import Path
from typing import Final

from roost.host.clock import Clock
from roost.host.disk import Disk
from roost.node.layout import UNSYNCED, write_whole

_NAME_BYTES_MAX: Final = 256


class Unsynced:
    """The file `unsynced` of one node's folder."""

    def __init__(self, disk: Disk, folder: Path, clock: Clock) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._run: Final = f"{clock.boot()}\n".encode()

    def lost_power(self) -> bool:
        """Tell whether the machine stopped under a node that had not synced everything."""
        return self._found() not in {None, self._run}

    def settle(self, *, unsynced: bool) -> None:
        """Say what holds from now on: whether there will be entries that are not synced."""
        found = self._found()
        if unsynced and found != self._run:
            write_whole(self._disk, self._folder / UNSYNCED, [self._run])
        elif not unsynced and found is not None:
            self._disk.unlink(self._folder / UNSYNCED)
            self._disk.sync_folder(self._folder)

    def doubt(self) -> None:
        """Note that what was not synced may be gone, whatever becomes of the machine."""
        write_whole(self._disk, self._folder / UNSYNCED, [b"a sync failed\n"])

    def _found(self) -> bytes | None:
        if UNSYNCED not in self._disk.names(self._folder):
            return None
        file = self._disk.open(self._folder / UNSYNCED, writable=False)
        try:
            return file.read_at(0, _NAME_BYTES_MAX)
        finally:
            file.close()
