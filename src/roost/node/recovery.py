"""Puts a node together after a stop of any kind, before it serves anybody.

The checkpoint says which ledgers there are, and up to where each one's files count; what came after
it is in the journal and is taken from there. Files may hold more than the checkpoint says: that is
written over. So nothing has to be found out about which flush came how far, and recovery may itself
be interrupted at any point and begun again.

What the journal or the checkpoint lost does not stop the rest: the ledgers concerned, or all of
them where nobody can tell, become *suspect*, durably before the journal may forget it, and from
then on nothing in them is called absent.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec

from roost.errors import Corrupt
from roost.host.disk import Disk
from roost.host.log import Log
from roost.journal.chain import Opened
from roost.journal.record import ADD, CLOSE, DELETE, FENCE, Record
from roost.journal.recover import JournalRecovery
from roost.node.files import (
    HEADER_BYTES,
    INDEX,
    LOG,
    encode_header,
    file_name,
    parse_file_name,
)
from roost.node.flush import Flush, Flusher
from roost.node.index import SLOT_BYTES, slot_offset
from roost.node.known import Known
from roost.node.layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES_MAX,
    JOURNAL,
    LEDGERS,
    MAKING,
    is_new,
    write_whole,
)
from roost.node.ledgers import ENTRY_MEMORY_BYTES, Ledger, Stored, memory_bytes
from roost.node.space import Backlog, Limits
from roost.node.table import Checkpoint, decode
from roost.node.unsynced import Unsynced
from roost.types import EntryId, Epoch, LedgerId, Position

# Between so many records the caller gets a chance to do something else.
_RECORDS_A_STEP: Final = 4096


class Recovered(msgspec.Struct, frozen=True):
    """A node as it was, ready to go on."""

    known: Known
    backlog: Backlog
    opened: Opened
    replayed: int
    lost_power: bool
    """Whether entries may be gone that were acknowledged before they were synced."""


class Recovery:
    """One recovery; `run` does it, step by step."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        uuid: bytes,
        unsynced: Unsynced,
        limits: Limits,
        files_max: int,
        log: Log,
    ) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._uuid: Final = uuid
        self._unsynced: Final = unsynced
        self._log: Final = log
        self._memory_bytes_max: Final = limits.memory_bytes_max
        self._backlog: Final = Backlog(limits)
        self._flusher: Final = Flusher(disk, folder / LEDGERS, files_max=files_max)
        self._replayed = 0

    def run(self) -> Generator[None, None, Recovered]:
        """Do all of it."""
        for name in (JOURNAL, LEDGERS):
            self._disk.make_folder(self._folder / name)
        checkpoint = self._read_checkpoint()
        self._known = Known(checkpoint)
        yield
        if checkpoint.problem:
            # Before anything is written: what the journal has of them goes behind what is there.
            self._adopt_orphans()
        journal = JournalRecovery(
            self._disk,
            self._folder / JOURNAL,
            uuid=self._uuid,
            replay_from=checkpoint.replay_from,
            reach=max((each.stored.before for each in checkpoint.ledgers), default=Position(0)),
        )
        yield from journal.prepare()
        yield from self._replay(journal)
        self._note_losses(journal)
        lost_power = self._unsynced.lost_power()
        if lost_power:
            self._known.distrust()
            self._log.event("power_lost", level="error")
        yield
        self._look_for_files()
        self._flusher.close()
        self._log.event(
            "recovered",
            ledgers=len(self._known.ledgers),
            replayed=self._replayed,
            replay_from=checkpoint.replay_from,
            journal_end=journal.opened.begin,
            forgetful=self._known.forgetful,
        )
        return Recovered(
            known=self._known,
            backlog=self._backlog,
            opened=journal.opened,
            replayed=self._replayed,
            lost_power=lost_power,
        )

    # The checkpoint

    def _read_checkpoint(self) -> Checkpoint:
        path = self._folder / CHECKPOINT
        names = self._disk.names(self._folder)
        if CHECKPOINT + MAKING in names:
            self._disk.unlink(path.with_name(CHECKPOINT + MAKING))
        if CHECKPOINT not in names:
            return self._without_checkpoint(path)
        file = self._disk.open(path, writable=False)
        try:
            size = file.size()
            if size > CHECKPOINT_BYTES_MAX:
                raise Corrupt(
                    f"{path} has {size} bytes, and no checkpoint is that long; this node cannot "
                    "start. Format a new one, and let its ledgers be copied from their replicas.",
                    file=str(path),
                    offset=0,
                )
            checkpoint = decode(file.read_at(0, size))
        finally:
            file.close()
        if checkpoint.problem:
            self._log.event("checkpoint_damaged", level="error", problem=checkpoint.problem)
        # It may be only in the page cache, if its folder's sync failed or was never done.
        self._disk.sync_folder(self._folder)
        return checkpoint

    def _without_checkpoint(self, path: Path) -> Checkpoint:
        """Begin, or go on without what a checkpoint would have said."""
        empty = decode(b"")
        if not is_new(self._disk, self._folder):
            self._log.event("checkpoint_missing", level="error", path=str(path))
            return empty
        known = Known(msgspec.structs.replace(empty, forgetful=False))
        write_whole(self._disk, path, known.checkpoint(Position(0)))
        return msgspec.structs.replace(empty, forgetful=False, problem="")

    # The journal

    def _replay(self, journal: JournalRecovery) -> Generator[None, None, None]:
        steps = 0
        for record in journal.records():
            if record.kind == ADD:
                self._add(record)
                if self._backlog.memory_bytes > self._memory_bytes_max // 2:
                    yield from self._flush_all(Position(record.position + 1))
            else:
                self._control(record)
            steps += 1
            if steps % _RECORDS_A_STEP == 0:
                yield
        self._replayed = steps

    def _add(self, record: Record) -> None:
        known = self._known
        ledger = known.ledgers.get(record.ledger)
        if ledger is None:
            if record.ledger in known.deleted:
                return
            ledger = known.find_or_make(record.ledger)
        if record.position < ledger.stored.before:
            return
        if ledger.epoch is None:
            ledger.epoch = record.epoch
        if record.entry in ledger.memtable:
            if ledger.memtable[record.entry] != record.block:
                known.distrust_one(ledger)
                self._log.event(
                    "two_values", level="error", ledger=record.ledger, entry=record.entry
                )
            return
        if ledger.oldest is None:
            self._backlog.began(ledger.id, record.position)
        ledger.replay(record.entry, record.lac, record.position, record.block)
        self._backlog.memory_bytes += len(record.block) + ENTRY_MEMORY_BYTES

    def _control(self, record: Record) -> None:
        known = self._known
        if record.ledger in known.deleted:
            return
        ledger = known.find_or_make(record.ledger)
        known.touch(ledger.id)
        if record.kind == FENCE:
            ledger.fence(record.epoch)
        elif record.kind == CLOSE:
            ledger.last = record.lac
        elif record.kind == DELETE:
            self._backlog.forget(ledger.id, memory_bytes(ledger.memtable))
            known.delete(ledger.id)

    def _flush_all(self, before: Position) -> Generator[None, None, None]:
        """Make room in memory; the journal keeps it all until there is another checkpoint."""
        for number in self._backlog.everything():
            ledger = self._known.ledgers[number]
            blocks = ledger.freeze()
            size = memory_bytes(blocks)
            self._backlog.froze(number, size)
            stored = yield from self._flusher.flush(
                Flush(
                    ledger=number,
                    blocks=blocks,
                    stored=ledger.stored,
                    before=before,
                    closed=ledger.last is not None,
                    at=ledger.stored.at,
                )
            )
            ledger.flushed(stored)
            self._backlog.flushed(number, size)
            self._known.touch(number)

    # What is lost

    def _note_losses(self, journal: JournalRecovery) -> None:
        if journal.missing or any(damage.ledger is None for damage in journal.damages):
            self._known.distrust()
        for damage in journal.damages:
            if damage.ledger is not None and damage.ledger not in self._known.deleted:
                self._known.distrust_one(self._known.find_or_make(damage.ledger))
        for finding in journal.findings:
            self._log.event("journal_finding", level="warning", finding=str(finding))

    def _look_for_files(self) -> None:
        """Remove what deleted ledgers left, and take up files that nothing else tells of."""
        removed = False
        for name in self._disk.names(self._folder / LEDGERS):
            parsed = parse_file_name(name)
            if parsed is not None and parsed[0] in self._known.deleted:
                self._disk.unlink(self._folder / LEDGERS / name)
                removed = True
        if removed:
            self._disk.sync_folder(self._folder / LEDGERS)
        if self._known.forgetful:
            self._adopt_orphans()

    def _adopt_orphans(self) -> None:
        """Take up the ledgers that only their files tell of."""
        names = self._disk.names(self._folder / LEDGERS)
        found = {parsed[0] for parsed in map(parse_file_name, names) if parsed is not None}
        orphans = sorted(found - self._known.ledgers.keys() - self._known.deleted)
        for number in orphans:
            self._known.adopt(self._adopted(number))
        if orphans:
            self._disk.sync_folder(self._folder / LEDGERS)

    def _adopted(self, number: LedgerId) -> Ledger:
        """Make a ledger of its files alone: nobody knows whether it was fenced, so it is."""
        ledger = Ledger(number)
        ledger.suspect = True
        ledger.fence(Epoch(0))
        log_end = self._completed(number, LOG)
        slots = (self._completed(number, INDEX) - slot_offset(0)) // SLOT_BYTES
        ledger.restore(
            Stored(log_end=log_end, entries=slots, highest=EntryId(slots - 1), before=Position(0))
        )
        self._log.event("ledger_adopted", level="error", ledger=number, slots=slots)
        return ledger

    def _completed(self, number: LedgerId, kind: str) -> int:
        """See that a file is there, begins as it should and is durable; tells its size.

        Its last flush may not have come to its end, and none will make it a first time again.
        """
        file = self._disk.open(self._folder / LEDGERS / file_name(number, kind), create=True)
        try:
            if file.size() < HEADER_BYTES:
                file.write_at(0, encode_header(number, kind))
            file.sync()
            return file.size()
        finally:
            file.close()
