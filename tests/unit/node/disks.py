"""Ledgers' files without a node: flush, read, break."""

from collections.abc import Generator, Iterable
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from roost.host.disk import Disk
from roost.node.files import file_name
from roost.node.flush import Flush, Flusher
from roost.node.ledgers import Block, Stored
from roost.node.reading import Found, Reader
from roost.sim.disk import SimDisk
from roost.types import EntryId, LedgerId, Position
from roost.wire.entry import HEAD_BYTES, encode_entry

T = TypeVar("T")

LEDGERS: Final = Path("/ledgers")
SEVEN: Final = LedgerId(7)


def finish(job: Generator[None, None, T]) -> T:
    """Run a job to its end."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            result: T = end.value
            return result


def blocks_of(entries: Iterable[int], size: int = 30, ledger: int = SEVEN) -> dict[EntryId, Block]:
    """Make the blocks of some entries; their payloads tell the id."""
    return {
        EntryId(entry): encode_entry(ledger, entry, (b"%d " % entry).ljust(size, b"."))
        for entry in entries
    }


def a_flush(
    blocks: dict[EntryId, Block],
    stored: Stored | None = None,
    *,
    before: int = 0,
    closed: bool = False,
) -> Flush:
    """Say what a flush of ledger 7 has to do."""
    return Flush(
        ledger=SEVEN,
        blocks=blocks,
        stored=stored or Stored(),
        before=Position(before),
        closed=closed,
        at=5.0,
    )


class Shelf:
    """One ledger's files on one disk, and all that was ever flushed into them."""

    def __init__(self, disk: Disk, folder: Path = LEDGERS) -> None:
        self.disk: Final = disk
        self.folder: Final = folder
        self.stored = Stored()
        self.blocks: dict[EntryId, Block] = {}
        """What is there, and what may be: the traces of a flush that did not end."""
        self.traces: dict[EntryId, Block] = {}
        disk.make_folder(folder)

    def flush(self, *batches: dict[EntryId, Block], closed: bool = False) -> "Shelf":
        """Flush batches, one after the other."""
        flusher = Flusher(self.disk, self.folder, files_max=4)
        for blocks in batches:
            self.stored = finish(flusher.flush(a_flush(blocks, self.stored, closed=closed)))
            self.blocks |= blocks
        flusher.close()
        return self

    def path(self, kind: str) -> Path:
        """Name one of the files."""
        return self.folder / file_name(SEVEN, kind)

    def content(self, kind: str) -> bytes:
        """Read one of the files."""
        file = self.disk.open(self.path(kind), writable=False)
        content = file.read_at(0, file.size())
        file.close()
        return content

    def overwrite(self, kind: str, offset: int, piece: bytes) -> None:
        """Put other bytes into one of the files, as nobody should."""
        file = self.disk.open(self.path(kind))
        file.write_at(offset, piece)
        file.sync()
        file.close()

    def read(self, first: int, before: int, *, bytes_max: int = 1 << 20) -> "Answer":
        """Read some ids, once."""
        reader = Reader(self.disk, self.folder, files_max=4)
        found = reader.read(
            SEVEN, self.stored, EntryId(first), EntryId(before), bytes_max=bytes_max
        )
        reader.close()
        return Answer(first, found)

    def check(self, *, suspects: bool = False) -> list[int]:
        """Read everything; nothing stored is missing, no byte is another. Gives the suspects."""
        doubted: list[int] = []
        first = 0
        while first <= self.stored.highest:
            answer = self.read(first, self.stored.highest + 1)
            for entry, block in answer.blocks.items():
                good = self.blocks.get(EntryId(entry)) or self.traces[EntryId(entry)]
                assert block == good, f"entry {entry} has other bytes"
            for entry in answer.missing:
                assert entry not in self.blocks, f"entry {entry} is missing"
            doubted += answer.suspects
            assert answer.before > first
            first = answer.before
        assert suspects or {*doubted} <= self.traces.keys() - self.blocks.keys()
        return doubted


class Answer:
    """What a read of files said, each id once."""

    def __init__(self, first: int, found: Found) -> None:
        self.blocks: Final[dict[int, bytes]] = {}
        self.missing: Final = found.missing
        self.suspects: Final = found.suspects
        self.before: Final = found.before
        for piece in found.pieces:
            at = 0
            for entry in range(piece.first, piece.first + piece.count):
                size = HEAD_BYTES + int.from_bytes(piece.blocks[at + 8 : at + 12], "little")
                self.blocks[entry] = bytes(piece.blocks[at : at + size])
                at += size
            assert at == len(piece.blocks)
        told = sorted([*self.blocks, *found.missing, *found.suspects])
        assert told == [*range(first, found.before)], "each id is told once"


def sim_disk(seed: int = 0) -> SimDisk:
    """Make a simulated disk."""
    return SimDisk(Random(seed))
