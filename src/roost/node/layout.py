"""What stands where in a node's folder.

node/
  identity      who this node is
  lock          which process has it open
  checkpoint    all ledgers, and from where the journal is needed
  unsynced      while it serves with another sync policy than always: the run of its machine
  journal/      the write-ahead log
  ledgers/      two files for each ledger
  salvage/      what recovery cut off or set aside; nothing reads it
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from roost.host.disk import Disk
from roost.types import LedgerId

CHECKPOINT: Final = "checkpoint"
JOURNAL: Final = "journal"
LEDGERS: Final = "ledgers"
UNSYNCED: Final = "unsynced"
MAKING: Final = ".making"

CHECKPOINT_BYTES_MAX: Final = 1 << 32
"""No checkpoint that Roost writes is longer; a longer one is not read into memory."""


def write_whole(disk: Disk, path: Path, pieces: Sequence[bytes]) -> None:
    """Replace a file as a whole: a crash leaves the old one or the new one."""
    making = path.with_name(path.name + MAKING)
    file = disk.open(making, create=True)
    try:
        file.truncate(0)
        file.write_at(0, b"".join(pieces))
        file.sync()
    finally:
        file.close()
    disk.rename(making, path)
    disk.sync_folder(path.parent)


def is_new(disk: Disk, folder: Path) -> bool:
    """Tell whether a formatted folder was never used: then it lacks a checkpoint by right."""
    for name in (JOURNAL, LEDGERS):
        try:
            if disk.names(folder / name):
                return False
        except FileNotFoundError:
            continue
    return CHECKPOINT not in disk.names(folder)


def owner(ledger: LedgerId, workers: int) -> int:
    """Tell which of the flush workers has the files of a ledger."""
    return ledger % workers
