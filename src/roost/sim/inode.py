"""One simulated file: what its readers see, and what the disk has of it.

Both versions are buffers of a fixed size, so that a window into the visible one can be handed out
and stored into without a call. What is unsynced is therefore never noted but found by comparing,
sector by sector, and only where it matters: a sync copies everything.

What a loss of power may leave of the unsynced is a superset of what ext4 and XFS do:

- each sector for itself: the synced version, the last one, or one in between (`write_back`);
- any length that the file had since the last sync; what was beyond it is gone;
- behind the shortest length since the last sync also zeros, since a cut may outlive what was then
  written there, and the other way round.
"""

import zlib
from array import array

from roost.host.random import Rng
from roost.sim.faults import Keep

SECTOR_BYTES = 512
BLOCK_BYTES = 4096
_ZERO_SECTOR = bytes(SECTOR_BYTES)


class Inode:
    """The bytes of one file, whatever its name; offsets and sizes have been checked before."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max % BLOCK_BYTES == 0, "a file's capacity counts in blocks"
        self._bytes = bytearray(bytes_max)
        self._size = 0
        self._durable = bytearray(bytes_max)
        self._durable_size = 0
        # Since the last sync: the lengths it had, in order, and the shortest.
        self._sizes = array("q")
        self._shortest = 0
        # No byte at or above this was ever written since the file was made.
        self._used = 0
        # Bit n: block n has its space on the disk.
        self._blocks = 0
        self._durable_blocks = 0
        # Sectors that a failed sync made clean without storing them: what they held then. They
        # are dirty again once they are written, or stored into with something else.
        self._lost: dict[int, bytes] = {}
        # Somebody may store into it without a call, and into a part that was cut since.
        self._has_window = False
        self._cut_under_window = False

    @property
    def size(self) -> int:
        """The present length."""
        return self._size

    @property
    def bytes_max(self) -> int:
        """The length that it can never exceed."""
        return len(self._bytes)

    @property
    def blocks(self) -> int:
        """How many blocks it takes on the disk."""
        return self._blocks.bit_count()

    @property
    def has_lost(self) -> bool:
        """Whether a failed sync left sectors that are clean but not stored."""
        return bool(self._lost)

    def checksum(self) -> int:
        """Digest what a reader sees, for a trace."""
        return zlib.crc32(memoryview(self._bytes)[: self._size])

    def read(self, offset: int, size: int) -> bytes:
        """Give what a reader sees; fewer bytes only where the file ends."""
        return bytes(memoryview(self._bytes)[offset : min(offset + size, self._size)])

    def missing_blocks(self, offset: int, before: int) -> list[int]:
        """List the blocks of a range that have no space yet."""
        touched = range(offset // BLOCK_BYTES, _ceil(before, BLOCK_BYTES))
        return [block for block in touched if not self._blocks >> block & 1]

    def write(self, offset: int, piece: bytes | bytearray | memoryview) -> None:
        """Change what a reader sees, and take the space for it."""
        end = offset + len(piece)
        if end > self._size:
            self._lengthen(end)
        self._bytes[offset:end] = piece
        self._take(offset, end)
        if self._lost:
            for sector in range(offset // SECTOR_BYTES, _ceil(end, SECTOR_BYTES)):
                self._lost.pop(sector, None)

    def resize(self, size: int) -> None:
        """Cut, or extend with zeros that take no space."""
        if size > self._size:
            self._lengthen(size)
        elif size < self._size:
            self._refuse_stray_stores()
            self._bytes[size : self._size] = bytes(self._size - size)
            self._note_size(size)
            self._blocks &= (1 << _ceil(size, BLOCK_BYTES)) - 1
            self._cut_under_window = self._has_window
            for sector in [sector for sector in self._lost if sector >= size // SECTOR_BYTES]:
                del self._lost[sector]

    def reserve(self, size: int) -> None:
        """Take the space for the first `size` bytes, and be at least so long."""
        if size > self._size:
            self._lengthen(size)
        self._take(0, size)

    def window(self, offset: int, size: int, *, writable: bool) -> memoryview:
        """Give a window into what readers see."""
        assert offset + size <= self._size, "a window lies within the file"
        view = memoryview(self._bytes)[offset : offset + size]
        if not writable:
            return view.toreadonly()
        assert not self.missing_blocks(offset, offset + size), (
            "space is allocated before it is mapped, or a store may find the disk full"
        )
        self._has_window = True
        return view

    def sync(self) -> None:
        """Make what readers see durable, but for what an earlier failure lost."""
        self._refuse_stray_stores()
        kept = {}
        for sector, then in list(self._lost.items()):
            if self._sector(self._bytes, sector) == then:
                kept[sector] = self._sector(self._durable, sector)
            else:
                del self._lost[sector]
        memoryview(self._durable)[: self._used] = memoryview(self._bytes)[: self._used]
        for sector, old in kept.items():
            self._put(self._durable, sector, old)
        self._durable_size = self._size
        self._durable_blocks = self._blocks
        self._sizes = array("q")
        self._shortest = self._size

    def fail_sync(self, rng: Rng) -> None:
        """Store any part of what is unsynced, and forget that the rest is not stored."""
        for sector in self._dirty():
            if rng.getrandbits(1):
                self._put(self._durable, sector, self._sector(self._bytes, sector))
            else:
                self._lost[sector] = self._sector(self._bytes, sector)

    def write_back(self, rng: Rng) -> None:
        """Store any part of what is unsynced, as a disk does in its own time."""
        for sector in self._dirty():
            if rng.getrandbits(1):
                self._put(self._durable, sector, self._sector(self._bytes, sector))

    def evict(self, rng: Rng) -> None:
        """Forget the page of a sector that is clean but lost: it then reads as it is stored."""
        sector = rng.choice(list(self._lost))
        if self._sector(self._bytes, sector) == self._lost.pop(sector):
            end = min((sector + 1) * SECTOR_BYTES, self._size)
            start = min(sector * SECTOR_BYTES, end)
            self._bytes[start:end] = self._durable[start:end]

    def detach(self) -> None:
        """Let the windows that were given out be stored into without any effect."""
        self._refuse_stray_stores()
        left = bytearray(len(self._bytes))
        left[: self._size] = memoryview(self._bytes)[: self._size]
        self._bytes = left
        self._has_window = self._cut_under_window = False

    def crash(self, rng: Rng, keep: Keep, *, tears: float) -> None:
        """Become what a loss of power leaves; nothing is unsynced afterwards."""
        size = {"all": self._size, "none": self._durable_size}.get(keep)
        if size is None:
            size = rng.choice([self._durable_size, *self._sizes])
        if keep != "none":
            for sector in self._unsettled():
                self._put(self._durable, sector, self._survivor(sector, rng, keep, tears))
        self._durable[size : self._used] = bytes(self._used - size)
        self._bytes = bytearray(self._durable)
        self._size = self._durable_size = self._shortest = self._used = size
        self._sizes = array("q")
        # Only an upper bound: it does not matter what space a file may still hold.
        self._blocks = (self._blocks | self._durable_blocks) & ((1 << _ceil(size, BLOCK_BYTES)) - 1)
        self._durable_blocks = self._blocks
        self._lost.clear()
        self._has_window = self._cut_under_window = False

    def rot(self, offset: int, bit: int) -> None:
        """Flip a bit on the disk and for every reader, without making anything dirty."""
        sector = offset // SECTOR_BYTES
        self._bytes[offset] ^= 1 << bit
        self._durable[offset] ^= 1 << bit
        if sector in self._lost:
            lost = bytearray(self._lost[sector])
            lost[offset % SECTOR_BYTES] ^= 1 << bit
            self._lost[sector] = bytes(lost)

    def _survivor(self, sector: int, rng: Rng, keep: Keep, tears: float) -> bytes:
        old = self._sector(self._durable, sector)
        new = self._sector(self._bytes, sector)
        if self._lost.get(sector) == new:
            new = old
        if keep == "all":
            return new
        choices = [old, new]
        if sector * SECTOR_BYTES >= self._shortest:
            choices.append(_ZERO_SECTOR)
        if tears and rng.random() < tears:
            cut = rng.randrange(1, SECTOR_BYTES)
            return new[:cut] + old[cut:]
        return rng.choice(choices)

    def _dirty(self) -> list[int]:
        """List the sectors of which readers see something else than is stored."""
        sectors: list[int] = []
        for start in range(0, self._used, BLOCK_BYTES):
            if (
                self._bytes[start : start + BLOCK_BYTES]
                != self._durable[start : start + BLOCK_BYTES]
            ):
                first = start // SECTOR_BYTES
                sectors.extend(range(first, first + BLOCK_BYTES // SECTOR_BYTES))
        return [
            sector
            for sector in sectors
            if (new := self._sector(self._bytes, sector)) != self._sector(self._durable, sector)
            and self._lost.get(sector) != new
        ]

    def _unsettled(self) -> list[int]:
        """List the sectors of which more than one version may survive."""
        cut = range(_ceil(self._shortest, SECTOR_BYTES), _ceil(self._used, SECTOR_BYTES))
        return sorted({*self._dirty(), *cut})

    def _lengthen(self, size: int) -> None:
        self._refuse_stray_stores()
        self._note_size(size)

    def _note_size(self, size: int) -> None:
        self._size = size
        self._sizes.append(size)
        self._shortest = min(self._shortest, size)
        self._used = max(self._used, size)

    def _take(self, offset: int, before: int) -> None:
        first, last = offset // BLOCK_BYTES, _ceil(before, BLOCK_BYTES)
        self._blocks |= (1 << last) - (1 << first)

    def _refuse_stray_stores(self) -> None:
        """Check that nothing was stored through a window of what was since cut.

        On a real disk that is a bus error, but for the rest of the last page, where it only has
        no effect.
        """
        if self._cut_under_window:
            page_end = _ceil(self._size, BLOCK_BYTES) * BLOCK_BYTES
            assert not self._bytes[page_end : self._used].strip(b"\0"), (
                "something was stored through a window of a part of the file that was cut"
            )
            self._bytes[self._size : page_end] = bytes(page_end - self._size)

    @staticmethod
    def _sector(version: bytearray, sector: int) -> bytes:
        return bytes(version[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])

    @staticmethod
    def _put(version: bytearray, sector: int, content: bytes) -> None:
        version[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = content


def _ceil(number: int, unit: int) -> int:
    return -(-number // unit)
