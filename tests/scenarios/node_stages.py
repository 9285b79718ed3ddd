"""A stage for the pure part of a storage node: its ledgers, its backlog, and its checkpoint."""

from typing import Any, Final

from roost.node.known import Known
from roost.node.ledgers import Add, Admission, Ledger, Stored, memory_bytes
from roost.node.space import Backlog, Limits
from roost.node.table import decode
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import encode_entry, payload_of

RECORD_BYTES: Final = 100
ENTRY_BYTES: Final = 229
"""What an entry of one letter takes in memory."""

NOBODY: Final[Any] = None
"""Who hears of an add here: the transcript."""


class Node:
    """A node without a disk: what is asked waits for `group`, as it does for its sync.

    Each record of the journal takes 100 bytes; four entries in memory, or a journal of more than a
    thousand bytes, are a reason to flush.
    """

    def __init__(self) -> None:
        self._limits = Limits(memory_bytes_max=4 * 4 * ENTRY_BYTES, journal_bytes_max=2000)
        self._known = Known(decode(b"".join(Known(decode(b"")).checkpoint(Position(0)))))
        self._known.forgetful = False
        self._backlog = Backlog(self._limits)
        self._tail = 0
        self._applied = 0
        self._trimmed = 0
        self._waiting: list[tuple[str, Ledger, Add | int, int]] = []
        self._flushing: dict[LedgerId, tuple[int, Stored]] = {}

    def check(self) -> None:
        """See that replay would find every entry that is not in files, and nothing is behind."""
        replay_from = self._backlog.unflushed_from(Position(self._applied))
        assert self._trimmed <= replay_from <= self._applied <= self._tail
        for ledger in self._known.ledgers.values():
            oldest = ledger.unflushed_from
            assert oldest is None or oldest >= replay_from
            assert not ledger.pending.keys() & ledger.memtable.keys()

    # Asking

    def add(
        self,
        entry: int,
        value: str,
        *,
        ledger: int = 7,
        epoch: int = 1,
        lac: int = -1,
        recovery: bool = False,
    ) -> str:
        """Ask to have an entry stored."""
        found = self._known.find_or_new(LedgerId(ledger))
        block = encode_entry(ledger, entry, value.encode())
        add = Add(
            found.id,
            EntryId(entry),
            Epoch(epoch),
            EntryId(lac),
            block,
            recovery,
            NOBODY,
            entry,
        )
        admission = found.admit(add)
        if admission is Admission.FRESH:
            self._known.adopt(found)
            found.admitted(add)
            self._queue("add", found, add)
            return "journaled"
        if admission is Admission.REPEAT:
            self._waiting.append(("repeat", found, add, self._tail))
            return "there already: waits for what is under way"
        return "looks into the files first"

    def fence(self, epoch: int, ledger: int = 7) -> str:
        """Ask for a fence."""
        found = self._known.find_or_make(LedgerId(ledger))
        if found.is_fenced(Epoch(epoch)):
            self._waiting.append(("fenced", found, epoch, self._tail))
            return "fenced already: waits for what is under way"
        found.fencing = Epoch(epoch)
        self._queue("fenced", found, epoch)
        return "journaled"

    def close(self, last: int, ledger: int = 7) -> str:
        """Ask for a close."""
        found = self._known.find_or_make(LedgerId(ledger))
        if found.is_closed(EntryId(last)):
            self._waiting.append(("closed", found, last, self._tail))
            return "closed already: waits for what is under way"
        found.closing = EntryId(last)
        self._queue("closed", found, last)
        return "journaled"

    def delete(self, ledger: int = 7) -> str:
        """Ask for a deletion."""
        self._queue("deleted", self._known.find_or_make(LedgerId(ledger)), 0)
        return "journaled"

    def _queue(self, what: str, ledger: Ledger, value: Add | int) -> None:
        self._waiting.append((what, ledger, value, self._tail))
        self._tail += RECORD_BYTES

    # What happens

    def group(self) -> list[str]:
        """Learn that all of it is durable, and answer in order."""
        answers = [self._settle(*item) for item in self._waiting]
        self._waiting = []
        self._applied = self._tail
        return answers

    def _settle(self, what: str, ledger: Ledger, value: Add | int, position: int) -> str:
        name = f"ledger {ledger.id}"
        if isinstance(value, Add):
            if what == "add" and ledger.id in self._known.ledgers:
                if ledger.oldest is None:
                    self._backlog.began(ledger.id, Position(position))
                ledger.apply(value, Position(position))
                self._backlog.memory_bytes += ENTRY_BYTES
            return f"{name}: entry {value.entry} is stored"
        if what == "fenced":
            ledger.fence(Epoch(value))
        elif what == "closed":
            ledger.close(EntryId(value))
        else:
            self._known.delete(ledger.id)
            self._backlog.forget(ledger.id, memory_bytes(ledger.memtable))
            ledger.empty()
            return f"{name} is deleted"
        self._known.touch(ledger.id)
        return f"{name} is {what}: {ledger.fenced if what == 'fenced' else ledger.last}"

    def due(self) -> str:
        """Tell which ledgers are to be flushed now."""
        kept = self._applied - self._trimmed
        due = self._backlog.to_flush(journal_bytes=kept, applied=Position(self._applied))
        return f"to flush: {' '.join(map(str, due)) or 'none'}"

    def slow(self) -> str:
        """Tell what adds wait for."""
        kept = self._applied - self._trimmed
        why = self._backlog.why_slow(journal_bytes=kept, queued_bytes=self._tail - self._applied)
        return why or "adds go on"

    def flush(self, ledger: int = 7) -> str:
        """Begin to flush a ledger."""
        found = self._known.find(LedgerId(ledger))
        blocks = found.freeze()
        self._backlog.froze(found.id, memory_bytes(blocks))
        stored = Stored(
            log_end=(found.stored.log_end or 64) + sum(map(len, blocks.values())),
            entries=found.stored.entries + len(blocks),
            highest=max(found.stored.highest, *blocks),
            before=Position(self._applied),
        )
        self._flushing[found.id] = (memory_bytes(blocks), stored)
        return f"writes entries {' '.join(map(str, sorted(blocks)))}"

    def flushed(self, ledger: int = 7) -> str:
        """Learn that a flush has ended."""
        size, stored = self._flushing.pop(LedgerId(ledger))
        self._backlog.flushed(LedgerId(ledger), size)
        found = self._known.find(LedgerId(ledger))
        found.flushed(stored)
        self._known.touch(found.id)
        return f"in files: {stored.entries} entries, all before {stored.before}"

    def no_room(self, ledger: int = 7) -> str:
        """Learn that there was no room for a flush."""
        size, _ = self._flushing.pop(LedgerId(ledger))
        self._known.find(LedgerId(ledger)).thaw()
        self._backlog.thawed(LedgerId(ledger), size)
        return "everything is in memory as before"

    def checkpoint(self) -> list[str]:
        """Write a checkpoint, trim the journal, and tell what a restart would read."""
        replay_from = self._backlog.unflushed_from(Position(self._applied))
        read = decode(b"".join(self._known.checkpoint(replay_from)))
        self._trimmed = read.replay_from
        rows = [
            f"ledger {ledger.id}: epoch {ledger.epoch}, fenced {ledger.fenced}, "
            f"last {ledger.last}, in files {ledger.stored.entries}, all before "
            f"{ledger.stored.before}"
            for ledger in read.ledgers
        ]
        gone = [f"ledger {ledger} is deleted" for ledger in sorted(read.deleted)]
        return [*rows, *gone, f"replay from {read.replay_from} of {self._tail}"]

    # Looking

    def read(self, entry: int, ledger: int = 7) -> str:
        """Tell what readers see of an entry in memory."""
        block = self._known.find(LedgerId(ledger)).in_memory(EntryId(entry))
        return "nothing" if block is None else bytes(payload_of(block)).decode()

    def state(self, ledger: int = 7) -> str:
        """Tell how a ledger is, as readers see it."""
        found = self._known.find(LedgerId(ledger))
        return (
            f"highest {found.highest}, LAC {found.lac}, fenced {found.fenced}, last {found.last}, "
            f"{found.entries} entries"
        )
