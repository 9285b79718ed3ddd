"""One ledger as its node knows it: what may be added to it, and what of it is in memory.

Pure. The promises: an entry id never gets a second value, and once a fence or a close was admitted,
nothing but what recovery writes back gets in behind it. Entries pass through three tables:

    pending  --the group is durable-->  memtable  --a flush begins-->  frozen  --it ends-->  files

`pending` is never read: what is in there can still vanish. A flush takes all of the memtable, so
that everything of this ledger before the journal position `flushed_before` is in its files.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from roost.errors import Conflict, Fenced, Invalid, Sealed
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, Position
from roost.wire.sink import Sink

Block = bytes | memoryview
"""An entry as it came and as it will be stored; see `roost.wire.entry`."""

ENTRY_MEMORY_BYTES: Final = 200
"""What an entry in memory takes besides its block, about: Python's own share."""


def memory_bytes(blocks: Mapping[EntryId, Block]) -> int:
    """Tell what entries take in memory."""
    return sum(map(len, blocks.values())) + len(blocks) * ENTRY_MEMORY_BYTES


class Admission(Enum):
    """What is to be done with an add that is not refused."""

    FRESH = 1
    """Journal it: the id has no value yet."""

    REPEAT = 2
    """Acknowledge it behind what is under way: the id has just this value."""

    LOOK = 3
    """Look into the files first: the id may have a value there."""


FRESH: Final = Admission.FRESH
"""For the hot path: to find a member in its class takes as long as a call."""


class Add(msgspec.Struct, frozen=True):
    """An entry that somebody asks to have stored; whoever asks has checked the block."""

    ledger: LedgerId
    entry: EntryId
    epoch: Epoch
    lac: EntryId
    block: Block
    recovery: bool
    sink: Sink
    tag: int


class Stored(msgspec.Struct, frozen=True):
    """What of a ledger is in its files, as of the end of a flush."""

    log_end: int = 0
    """Where the next block goes in the entry log; 0 while there are no files."""

    entries: int = 0
    highest: EntryId = NO_ENTRY
    before: Position = Position(0)
    """Everything of this ledger that the journal holds before this position is in the files."""

    at: float = 0.0
    """When, by the wall; for people only."""


class Ledger:
    """A ledger's state on one node."""

    __slots__ = (
        "_newest",
        "closing",
        "epoch",
        "fenced",
        "fencing",
        "frozen",
        "frozen_oldest",
        "highest",
        "id",
        "lac",
        "last",
        "memtable",
        "oldest",
        "pending",
        "rewritten",
        "stored",
        "suspect",
    )

    def __init__(self, ledger: LedgerId) -> None:
        self.id: Final = ledger
        self.epoch: Epoch | None = None
        self.fenced: Epoch | None = None
        self.last: EntryId | None = None
        self.fencing: Epoch | None = None
        """Who asked for a fence last: it holds for adds at once, and shows once it is durable."""
        self.closing: EntryId | None = None
        """The same of a close."""
        self.lac: EntryId = NO_ENTRY
        self.highest: EntryId = NO_ENTRY
        """The highest entry that is durable here."""
        self.suspect = False
        """Whether entries may have been lost here: then nothing is called absent."""
        self.stored = Stored()
        self.rewritten: set[EntryId] = set()
        """Entries that were in the files, could not be read any more, and were added again."""
        self.pending: dict[EntryId, Block] = {}
        self.memtable: dict[EntryId, Block] = {}
        self.frozen: dict[EntryId, Block] = {}
        self.oldest: Position | None = None
        self.frozen_oldest: Position | None = None
        self._newest: EntryId = NO_ENTRY

    # What may be done

    def admit(self, add: Add) -> Admission:
        """Decide about an add; raises what refuses it."""
        entry = add.entry
        if add.epoch != self.epoch and self.epoch is not None:
            raise Conflict(
                f"ledger {self.id} belongs to epoch {self.epoch} for ever; this add is of "
                f"{add.epoch}"
            )
        if add.lac >= entry and not add.recovery:
            raise Invalid(
                f"ledger {self.id}: entry {entry} came with LAC {add.lac}, which must be less"
            )
        last = self.closing if self.last is None else self.last
        if last is not None or self.fenced is not None or self.fencing is not None:
            self._check_ended(entry, last, recovery=add.recovery)
        if entry > self._newest:
            return FRESH
        held = self.held(entry)
        if held is None:
            return Admission.LOOK if entry <= self.stored.highest else Admission.FRESH
        if held != add.block:
            raise self.other_bytes(entry)
        return Admission.REPEAT

    def _check_ended(self, entry: EntryId, last: EntryId | None, *, recovery: bool) -> None:
        fencer = self.fenced if self.fencing is None else self.fencing
        if recovery:
            if last is not None and entry > last:
                raise Sealed(
                    f"ledger {self.id} is closed, and its last entry is {last}: entry {entry} "
                    "is beyond it",
                    ledger=self.id,
                    last=last,
                )
        elif fencer is not None:
            raise Fenced(
                f"ledger {self.id} was fenced by epoch {fencer}: its writer must stop",
                ledger=self.id,
                epoch=fencer,
            )
        elif last is not None:
            raise Sealed(
                f"ledger {self.id} is closed, and its last entry is {last}",
                ledger=self.id,
                last=last,
            )

    def confirm(self, epoch: Epoch, lac: EntryId) -> bool:
        """Take a writer's LAC that came without an entry; tells whether it is news."""
        if self.epoch is not None and epoch != self.epoch:
            raise Conflict(f"ledger {self.id} belongs to epoch {self.epoch} for ever, not {epoch}")
        last = self.closing if self.last is None else self.last
        if last is not None or self.fenced is not None or self.fencing is not None:
            self._check_ended(lac, last, recovery=False)
        if lac <= self.lac:
            return False
        self.lac = lac
        return True

    def other_bytes(self, entry: EntryId) -> Conflict:
        """Make the error, and the alarm, for a second value."""
        return Conflict(
            f"ledger {self.id}, entry {entry} is stored here with other bytes; they stay, and what "
            "was sent now is refused: two writers used one id"
        )

    def admitted(self, add: Add) -> None:
        """Note that an add goes into the journal."""
        entry = add.entry
        self.epoch = add.epoch
        self.pending[entry] = add.block
        if entry > self._newest:  # noqa: PLR1730 (a call costs much more)
            self._newest = entry

    def is_fenced(self, epoch: Epoch) -> bool:
        """Tell whether a fence of this epoch was asked for already, or one of a higher epoch."""
        asked = (each for each in (self.fenced, self.fencing) if each is not None)
        return epoch <= max(asked, default=-1)

    def fence(self, epoch: Epoch) -> None:
        """Let no ordinary add in any more; the highest epoch that asked is remembered."""
        self.fenced = epoch if self.fenced is None else max(epoch, self.fenced)

    def is_closed(self, last: EntryId) -> bool:
        """Tell whether this close was asked for already; raises `Conflict` if another one was."""
        end = self.closing if self.last is None else self.last
        if end is not None and end != last:
            raise Conflict(
                f"ledger {self.id} is closed with last entry {end}; it cannot end at {last}"
            )
        return end is not None

    def close(self, last: EntryId) -> None:
        """End the ledger behind an entry; for good."""
        self.is_closed(last)
        self.last = last

    # What becomes of entries

    def apply(self, add: Add, position: Position) -> None:
        """Note that an entry, journaled at a position, is durable: it may be read."""
        del self.pending[add.entry]
        self._keep(add.entry, add.lac, position, add.block)

    def _keep(self, entry: EntryId, lac: EntryId, position: Position, block: Block) -> None:
        self.memtable[entry] = block
        if self.oldest is None:
            self.oldest = position
        if entry > self.highest:  # noqa: PLR1730 (a call costs much more)
            self.highest = entry
        if lac > self.lac:  # noqa: PLR1730 (a call costs much more)
            self.lac = lac

    def replay(self, entry: EntryId, lac: EntryId, position: Position, block: Block) -> None:
        """Take an entry from the journal after a restart."""
        self._newest = max(self._newest, entry)
        self._keep(entry, lac, position, block)

    def freeze(self) -> dict[EntryId, Block]:
        """Begin a flush: give all that it has to store."""
        assert not self.frozen, "two flushes of one ledger at once"
        self.frozen, self.memtable = self.memtable, {}
        self.frozen_oldest, self.oldest = self.oldest, None
        return self.frozen

    def thaw(self) -> None:
        """Take back what could not be flushed."""
        self.memtable = self.frozen | self.memtable
        self.oldest, self.frozen_oldest = self.frozen_oldest, None
        self.frozen = {}

    def flushed(self, stored: Stored) -> None:
        """End a flush: what was frozen is in the files now."""
        self.stored = stored
        self.frozen = {}
        self.frozen_oldest = None

    def restore(self, stored: Stored) -> None:
        """Take up what the files hold, at a start."""
        self.stored = stored
        self.highest = max(self.highest, stored.highest)
        self._newest = max(self._newest, stored.highest)

    def empty(self) -> None:
        """Let go of what is in memory, after the ledger was deleted."""
        self.memtable = {}
        self.oldest = None

    # What is there

    def held(self, entry: EntryId) -> Block | None:
        """Give what is in memory of an entry, durable or not."""
        return self.pending.get(entry) or self.memtable.get(entry) or self.frozen.get(entry)

    def in_memory(self, entry: EntryId) -> Block | None:
        """Give what is in memory of an entry that is durable."""
        return self.memtable.get(entry) or self.frozen.get(entry)

    @property
    def entries(self) -> int:
        """Count the durable entries."""
        return self.stored.entries + len(self.frozen) + len(self.memtable)

    @property
    def unflushed_from(self) -> Position | None:
        """Tell from which journal position on entries are in memory only; None if none are."""
        return self.oldest if self.frozen_oldest is None else self.frozen_oldest
