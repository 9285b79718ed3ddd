"""The file `offset`, open: stores receivers' positions, and makes them durable when asked.

Every method is called with the channel's lock held, but a mapped `Slot.store`, which the
compiled cursor does by itself. Where the file cannot be mapped, a store is one small write.
"""

import errno
from pathlib import Path
from threading import Lock
from typing import Final

from roost.channel.cursors import (
    FILE_BYTES,
    SLOT_BYTES,
    Kind,
    Mark,
    check_name,
    copy_offset,
    decode_marks,
    encode_copy,
    free_slot,
)
from roost.host.disk import Disk, File
from roost.segments.kernel import Slot

OFFSET_NAME: Final = "offset"


class Place:
    """One slot in use: the mark that it had last, and the means to store the next one."""

    def __init__(self, file: File, view: memoryview | None, mark: Mark) -> None:
        self.mark: Final = mark
        self.slot: Final = _mapped_slot(view, mark) if view is not None else None
        self._file: Final = file
        self._sequence = mark.sequence
        self._position = mark.position

    @property
    def position(self) -> int:
        """The position that was stored last."""
        return self._position if self.slot is None else self.slot.position

    @property
    def sequence(self) -> int:
        """The sequence of the copy that was stored last."""
        return self._sequence if self.slot is None else self.slot.sequence

    def store(self, position: int) -> None:
        """Store a position; it is durable after the next sync of the file."""
        if self.slot is not None:
            self.slot.store(position)
            return
        mark = self._next(position)
        self._file.write_at(copy_offset(mark.slot, mark.sequence), encode_copy(mark))
        self._sequence, self._position = mark.sequence, position

    def _next(self, position: int) -> Mark:
        kept = self.mark
        return Mark(
            slot=kept.slot,
            kind=kept.kind,
            name=kept.name,
            id=kept.id,
            sequence=self._sequence + 1,
            position=position,
        )


def _mapped_slot(view: memoryview, mark: Mark) -> Slot:
    even, odd = (copy_offset(mark.slot, parity) for parity in (0, 1))
    return Slot(
        mark.prefix,
        view[even : even + SLOT_BYTES],
        view[odd : odd + SLOT_BYTES],
        sequence=mark.sequence,
        position=mark.position,
    )


class Positions:
    """All slots of one channel."""

    def __init__(self, file: File) -> None:
        self._file: Final = file
        file.allocate(FILE_BYTES)
        self._view: Final = file.map(0, FILE_BYTES, writable=True)
        marks = decode_marks(file.read_at(0, FILE_BYTES))
        self._places: Final = {slot: Place(file, self._view, mark) for slot, mark in marks.items()}
        self._stored = 0
        self._syncing: Final = Lock()
        self._broken = False

    @property
    def channel(self) -> Place | None:
        """The channel's own slot; None in a folder that never had one."""
        return self._places.get(0)

    def receivers(self) -> list[Place]:
        """List the receivers' slots."""
        return [place for slot, place in sorted(self._places.items()) if slot != 0]

    def find(self, name: str) -> Place | None:
        """Find a receiver by its name."""
        return next((place for place in self.receivers() if place.mark.name == name), None)

    def add(self, name: str, position: int) -> Place:
        """Give a new receiver a slot, durably."""
        check_name(name)
        slot = free_slot({slot: place.mark for slot, place in self._places.items()})
        number = 1 + max((place.mark.id for place in self.receivers()), default=0)
        return self._put(
            Mark(slot=slot, kind=Kind.RECEIVER, name=name, id=number, sequence=0, position=position)
        )

    def put_channel(self, *, bound: int, incarnation: int, durability: str) -> Place:
        """Write the channel's own slot, durably."""
        before = self.channel
        sequence = 0 if before is None else before.sequence
        return self._put(
            Mark(
                slot=0,
                kind=Kind.CHANNEL,
                name=durability,
                id=incarnation,
                sequence=sequence,
                position=bound,
            )
        )

    def _put(self, mark: Mark) -> Place:
        place = Place(self._file, self._view, mark)
        # Known before it is durable: if the sync fails it may be, and then needs its messages.
        self._places[mark.slot] = place
        for _ in range(2):  # both copies, so that neither is an older owner's
            place.store(mark.position)
        self.sync()
        return place

    def remove(self, place: Place) -> None:
        """Free a receiver's slot, durably."""
        for parity in (0, 1):
            self._file.write_at(copy_offset(place.mark.slot, parity), bytes(SLOT_BYTES))
        self.sync()
        del self._places[place.mark.slot]

    def stored(self) -> int:
        """Count a store that somebody wants durable; the count is what a sync settles."""
        self._stored += 1
        return self._stored

    def pending(self) -> tuple[int, list["Positions"]]:
        """Say which stores a sync that begins now makes durable."""
        return self._stored, [self]

    def settled(self, durable: int) -> None:
        """Note that stores were synced; nothing is kept of it here."""

    def sync(self) -> None:
        """Make all stores durable. Whoever calls, and from which thread, one failure is for all.

        The system tells of a failed write once; a sync after that one would seem to succeed.
        """
        with self._syncing:
            if self._broken:
                raise OSError(errno.EIO, "an earlier sync of the positions failed")
            try:
                self._file.sync()
            except OSError:
                self._broken = True
                raise

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def open_positions(disk: Disk, folder: Path) -> Positions:
    """Open the file `offset`, making it if the folder has none."""
    path = folder / OFFSET_NAME
    known = OFFSET_NAME in disk.names(folder)
    file = disk.open(path, create=True)
    positions = Positions(file)
    if not known:
        file.sync()
        disk.sync_folder(folder)
    return positions
