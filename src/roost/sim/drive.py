"""What all handles of one simulated disk share: its files, its room, and its power.

Each operation passes `begin`, where the program may find that it has ended, that the operation
fails, or that the disk did something by itself meanwhile; one that changes something also passes
`end`, since power may be lost just after it took effect.
"""

import errno
from collections.abc import Callable
from pathlib import PurePath

from roost.host.random import Rng
from roost.sim.faults import DiskFaults, Operation
from roost.sim.folders import Folders, parent
from roost.sim.inode import BLOCK_BYTES, Inode

# Operations that only look, or let go of what a lost program loses anyway: nobody can tell whether
# they took effect.
_WITHOUT_EFFECT: frozenset[Operation] = frozenset(
    {"close", "free_bytes", "map", "mapping", "names", "read", "release", "size"}
)


class PowerLoss(BaseException):
    """The program that made this call does not exist any more.

    It is no `Exception`, since no program handles its own end.
    """


class Drive:
    """The hardware, and what the operating system keeps in memory of it."""

    def __init__(self, rng: Rng, faults: DiskFaults, trace: Callable[[str], None] | None) -> None:
        self.rng = rng
        self.faults = faults
        self.folders = Folders()
        # Locked files, and by whom.
        self.locks: dict[str, str] = {}
        # Raised when a program ends: what was made in an earlier life is dead.
        self.life = 0
        self._trace = trace
        self._handles: dict[int, Inode] = {}
        self._handles_made = 0
        self._failures: list[tuple[Operation, str, int]] = []
        self._halted = False
        # Operations until the power goes, that one included; 0 means never.
        self._countdown = 0
        self._going = False
        self.on_halt: Callable[[], None] | None = None

    def begin(
        self,
        operation: Operation,
        *paths: str,
        life: int | None = None,
        chance: float = 0.0,
        detail: str = "",
    ) -> int:
        """Pass before an operation; answers the `errno` that it has to fail with, or 0."""
        if self._going:
            self.halt()
        if self._halted or (life is not None and life != self.life):
            raise PowerLoss(f"no program is there to {operation} {' '.join(paths)}")
        if self._countdown:
            self._count_down(operation, *paths)
        self._write_back()
        code = self._injected(operation, paths)
        if not code and chance and self.rng.random() < chance:
            code = errno.EIO
        if self._trace is not None:
            outcome = f" {errno.errorcode[code]}" if code else ""
            self._trace(f"{operation} {' '.join(paths)}{detail}{outcome}")
        return code

    def end(self) -> None:
        """Pass after an operation that took effect."""
        if self._going:
            self.halt()
            raise PowerLoss("the power went just after an operation took effect")

    def lose_power_after(self, operations: int) -> None:
        """Let the power go at the n-th operation from now."""
        assert operations > 0, "the next operation is the first"
        self._countdown = operations

    def halt(self) -> None:
        """End the program: nothing that it still does has an effect."""
        if not self._halted:
            self._halted = True
            for inode in self.inodes():
                inode.detach()
            if self.on_halt is not None:
                self.on_halt()

    def restart(self) -> None:
        """Be there for another program; nothing of the last one's handles and locks is left."""
        self.life += 1
        self.locks.clear()
        self._handles.clear()
        self._halted = self._going = False
        self._countdown = 0

    def fail_next(self, operation: Operation, path_suffix: str, code: int) -> None:
        """Let the next such operation on such a path fail."""
        self._failures.append((operation, path_suffix, code))

    def fail_none(self) -> None:
        """Let no operation fail that was to fail and has not come yet."""
        self._failures.clear()

    def tell(self, line: str) -> None:
        """Add a line to the trace."""
        if self._trace is not None:
            self._trace(line)

    def attach(self, inode: Inode) -> int:
        """Keep a file, named or not, until this number is given back."""
        self._handles_made += 1
        self._handles[self._handles_made] = inode
        return self._handles_made

    def release(self, handle: int) -> None:
        """Forget a handle."""
        self._handles.pop(handle, None)

    def inodes(self) -> list[Inode]:
        """List each file that a name or a handle refers to, once."""
        named = [inode for _, inode in self.folders.files()]
        return list(dict.fromkeys([*named, *self._handles.values()]))

    def free_blocks(self) -> int:
        """Count the blocks that nobody has taken."""
        taken = sum(inode.blocks for inode in self.inodes())
        # A crash that undoes a cut may leave more than the disk holds.
        return max(0, self.faults.capacity_bytes // BLOCK_BYTES - taken)

    def find(self, name: str) -> Inode:
        """Give the file of a name, or raise what a real disk does."""
        inode = self.folders.find(name)
        if inode is None:
            self.check_folder(parent(name))
            raise failure(
                errno.EISDIR if self.folders.has_folder(name) else errno.ENOENT,
                name,
            )
        return inode

    def find_or_create(self, name: str) -> Inode:
        """Give the file of a name, made if missing."""
        if self.folders.find(name) is None and not self.folders.has_folder(name):
            self.check_folder(parent(name))
            self.folders.create(name, Inode(self.faults.file_bytes_max))
        return self.find(name)

    def check_folder(self, folder: str) -> None:
        """Raise what a real disk does where there is no such folder."""
        if not self.folders.has_folder(folder):
            file = self.folders.find(folder)
            raise failure(errno.ENOENT if file is None else errno.ENOTDIR, folder)

    def add_folder(self, folder: str) -> None:
        """Make a folder and its missing parents."""
        levels = [*map(str, reversed(PurePath(folder).parents)), folder]
        for level in levels:
            if self.folders.find(level) is not None:
                raise failure(errno.ENOTDIR, folder)
            self.folders.add_folder(level)

    def _count_down(self, operation: Operation, *paths: str) -> None:
        self._countdown -= 1
        if self._countdown:
            return
        self._going = True
        if operation in _WITHOUT_EFFECT or self.rng.getrandbits(1):
            self.halt()
            raise PowerLoss(f"the power went just before {operation} {' '.join(paths)}")

    def _write_back(self) -> None:
        chance = self.faults.writes_back
        if chance and self.rng.random() < chance and (inodes := self.inodes()):
            self.rng.choice(inodes).write_back(self.rng)

    def _injected(self, operation: Operation, paths: tuple[str, ...]) -> int:
        for failing in self._failures:
            if failing[0] == operation and any(path.endswith(failing[1]) for path in paths):
                self._failures.remove(failing)
                return failing[2]
        return 0


def failure(code: int, path: str) -> OSError:
    """Make the error that a real disk raises; Python picks the class that belongs to `code`."""
    return OSError(code, f"simulated {errno.errorcode[code]}", path)
