"""Bugs to plant in the storage node; see `tests.power.bugs`."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from roost.host.disk import Disk
from roost.host.jobs import begin
from roost.journal import recover
from roost.journal.kept import Kept
from roost.journal.record import DELETE, FENCE, Record
from roost.journal.recover import JournalRecovery
from roost.journal.service import Journal
from roost.journal.writer import Writer
from roost.node import flush, upkeep
from roost.node.flush import Flush, Flusher
from roost.node.known import Known
from roost.node.layout import owner, write_whole
from roost.node.ledgers import Add, Admission, Ledger, Stored, memory_bytes
from roost.node.reading import Found, Reader
from roost.node.recovery import Recovery
from roost.node.space import Backlog
from roost.node.store import Store
from roost.node.upkeep import Upkeep
from roost.types import NO_ENTRY, Position
from tests.power.bugs import Bug
from tests.power.lazy import Lazy

Patch = pytest.MonkeyPatch


def _lazy(owner: type, **how: Any) -> Callable[[Patch], None]:
    """Give all objects of a class, which takes its disk first, a lazy one."""
    real: Any = owner.__init__  # type: ignore[misc]

    def init(self: Any, disk: Disk, *args: Any, **options: Any) -> None:
        real(self, Lazy(disk, **how), *args, **options)

    return lambda patch: patch.setattr(owner, "__init__", init)


def _lazy_checkpoint(**how: Any) -> Callable[[Patch], None]:
    def write(disk: Disk, path: Path, pieces: list[bytes]) -> None:
        lazy: Any = Lazy(disk, **how)
        write_whole(lazy, path, pieces)

    return lambda patch: patch.setattr(upkeep, "write_whole", write)


# Recovery


def replay_above_the_highest_entry(patch: Patch) -> None:
    """Replay takes only what is above the highest entry in a ledger's index."""
    real = Recovery._add

    def add(self: Any, record: Record) -> None:
        ledger = self._known.ledgers.get(record.ledger)
        if ledger is None or record.entry > ledger.stored.highest:
            real(self, record)

    patch.setattr(Recovery, "_add", add)


def replay_of_known_ledgers_only(patch: Patch) -> None:
    """Replay passes over ledgers that the checkpoint does not know."""
    real = Recovery._add

    def add(self: Any, record: Record) -> None:
        if record.ledger in self._known.ledgers:
            real(self, record)

    patch.setattr(Recovery, "_add", add)


def replay_of_adds_only(patch: Patch) -> None:
    """Replay passes over fences, closes and deletions."""
    patch.setattr(Recovery, "_control", lambda _self, _record: None)


def replay_makes_entries_again(patch: Patch) -> None:
    """Replay counts what is in a ledger's files as if it were new, and begins an empty file."""
    real = Recovery._read_checkpoint

    def read(self: Any) -> Any:
        checkpoint = real(self)
        for ledger in checkpoint.ledgers:
            ledger.stored = msgspec.structs.replace(ledger.stored, log_end=0)
        return checkpoint

    patch.setattr(Recovery, "_read_checkpoint", read)


def torn_tail_taken_for_damage(patch: Patch) -> None:
    """Whatever does not hold is kept as damage, also what was never durable."""
    patch.setattr(recover, "judge_tail", lambda _bads, *, end, **_: end)


# Files and the checkpoint


def trim_before_the_checkpoint(patch: Patch) -> None:
    """The journal forgets before the checkpoint that lets it is durable."""

    async def checkpoint(self: Any) -> None:
        replay_from = self._backlog.unflushed_from(self._applied())
        pieces = self._known.checkpoint(replay_from)
        self._journal.trim(replay_from)
        await begin(self._checkpoints, self._write(pieces))

    patch.setattr(Upkeep, "checkpoint", checkpoint)


def index_before_the_log(patch: Patch) -> None:
    """Slots are written and synced, and the blocks that they speak of only written."""
    real = Flusher.flush

    def slots_first(self: Any, job: Flush) -> Generator[None, None, Stored]:
        disk: Any = self._files._disk
        self._files._disk = Lazy(disk, syncs=False, suffix=".log")
        try:
            self._files.close()
            return (yield from real(self, job))
        finally:
            self._files._disk = disk

    patch.setattr(Flusher, "flush", slots_first)


def sweeps_not_done(patch: Patch) -> None:
    """A flush of many ledgers counts as stored when it is written."""

    def swept(_sweep: Any) -> Generator[None, None, None]:
        yield

    patch.setattr(upkeep, "_swept", swept)


def flush_dropped_from_memory_first(patch: Patch) -> None:
    """What a flush takes is not in memory any more while it is under way."""
    real = Ledger.freeze

    def freeze(self: Any) -> Any:
        blocks = real(self)
        self.frozen = {}
        return blocks

    patch.setattr(Ledger, "freeze", freeze)


def failed_flush_forgets(patch: Patch) -> None:
    """Of what could not be flushed only the first entry is taken back."""
    real = Ledger.thaw

    def thaw(self: Any) -> None:
        self.frozen = dict([*self.frozen.items()][:1])
        real(self)

    patch.setattr(Ledger, "thaw", thaw)


def neighbours_slots_lost(patch: Patch) -> None:
    """A flush puts zeros where it has no entry between two of its own."""
    real = flush._write_span

    def write(*args: Any, **_: Any) -> None:
        real(*args, known=NO_ENTRY)

    patch.setattr(flush, "_write_span", write)


def _flush_one(
    patch: Patch, *, before_at_the_end: bool = False, reach: Callable[[Any], Position] | None = None
) -> None:
    """Plant another position up to which a ledger's files are said to be complete."""

    async def flush_one(self: Any, ledger: Ledger) -> None:
        if ledger.id not in self._known.ledgers:
            return
        blocks = ledger.freeze()
        size = memory_bytes(blocks)
        self._backlog.froze(ledger.id, size)
        worker, flusher = self._owners[owner(ledger.id, len(self._owners))]
        job = Flush(
            ledger=ledger.id,
            blocks=blocks,
            stored=ledger.stored,
            before=self._applied() if reach is None else reach(self),
            closed=ledger.last is not None,
            at=self._clock.wall(),
            rewritten=len(ledger.rewritten & blocks.keys()),
        )
        try:
            stored = await begin(worker, flusher.flush(job))
        except OSError:
            ledger.thaw()
            self._backlog.thawed(ledger.id, size)
            raise
        if before_at_the_end:
            stored = msgspec.structs.replace(stored, before=self._applied())
        self._backlog.flushed(ledger.id, size)
        ledger.flushed(stored)
        if ledger.id in self._known.ledgers:
            self._known.touch(ledger.id)

    patch.setattr(Upkeep, "_flush_one", flush_one)


def flush_covers_what_came_meanwhile(patch: Patch) -> None:
    """A flush is said to have stored what was there at its end, not at its beginning."""
    _flush_one(patch, before_at_the_end=True)


def flush_covers_what_is_under_way(patch: Patch) -> None:
    """A flush is said to have stored what waits in the journal's queue, too."""
    _flush_one(patch, reach=lambda self: self._journal.tail)


def trim_up_to_what_is_applied(patch: Patch) -> None:
    """The journal forgets everything that was applied, flushed or not."""
    patch.setattr(Backlog, "unflushed_from", lambda _self, applied: applied)


def trim_ignores_what_was_never_flushed(patch: Patch) -> None:
    """Ledgers that were never flushed do not hold the journal back."""
    ever: set[tuple[int, int]] = set()
    real = Backlog.flushed

    def flushed(self: Any, ledger: int, size: int) -> None:
        ever.add((id(self), ledger))
        real(self, ledger, size)  # type: ignore[arg-type]

    def unflushed_from(self: Any, applied: Position) -> Position:
        held = {**self._live, **self._flushing}
        return min([held[key] for key in held if (id(self), key) in ever], default=applied)

    patch.setattr(Backlog, "flushed", flushed)
    patch.setattr(Backlog, "unflushed_from", unflushed_from)


def trim_one_segment_too_far(patch: Patch) -> None:
    """A segment goes when its first record is not needed any more."""

    def has_unneeded(self: Any, before: Position) -> bool:
        return len(self._segments) > 1 and self._segments[0].begin < before

    patch.setattr(Kept, "has_unneeded", has_unneeded)


def checkpoint_forgets(what: str, value: object) -> Callable[[Patch], None]:
    """A checkpoint does not say something of a ledger."""
    real = Ledger.restore

    def restore(self: Any, stored: Stored) -> None:
        setattr(self, what, value)
        real(self, stored)

    return lambda patch: patch.setattr(Ledger, "restore", restore)


def fence_not_put_into_the_checkpoint(patch: Patch) -> None:
    """What a checkpoint says of a ledger is not made anew for a fence or a close."""
    real = Store._let_hold

    def let_hold(self: Any, kind: int, ledger: Ledger, value: int) -> None:
        touched = {*self.known._touched}
        real(self, kind, ledger, value)
        if kind != DELETE:
            self.known._touched.intersection_update(touched)

    patch.setattr(Store, "_let_hold", let_hold)


def deletions_not_remembered(patch: Patch) -> None:
    """A checkpoint leaves out the ledgers that were deleted."""
    real = Known.checkpoint

    def checkpoint(self: Any, replay_from: Position) -> list[bytes]:
        self._touched -= self.deleted
        for ledger in self.deleted:
            self._rows.pop(ledger, None)
        return real(self, replay_from)

    patch.setattr(Known, "checkpoint", checkpoint)


# The journal


def ack_before_the_sync(patch: Patch) -> None:
    """A group counts as stored when it is written."""
    real = Writer.write

    def write(self: Any, parts: Any, *, sync: bool) -> Iterator[None]:
        return real(self, parts, sync=sync and False)

    patch.setattr(Writer, "write", write)


def alone_not_synced(patch: Patch) -> None:
    """What the loop writes itself counts as stored when it is written."""
    real_here, real_write = Journal._write_here, Writer.write

    def write_here(self: Any, group: Any) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(
                Writer, "write", lambda self, parts, *, sync: real_write(self, parts, sync=not sync)
            )
            real_here(self, group)

    patch.setattr(Journal, "_write_here", write_here)


def sealed_segment_not_synced(patch: Patch) -> None:
    """A segment that is left for the next one is not synced."""

    def seal(self: Any) -> Iterator[None]:
        file, self._file = self._file, None
        if file is not None:
            yield
            file.truncate(self._stop)
            file.close()

    patch.setattr(Writer, "_seal", seal)


def failed_sync_tried_again(patch: Patch) -> None:
    """A sync of the journal that failed is done again, and believed."""

    class Stubborn(Lazy):
        def open(self, path: Path, **options: Any) -> Any:
            file: Any = super().open(path, **options)
            real = file.sync

            def sync() -> None:
                for _ in range(20):
                    try:
                        real()
                    except OSError:
                        continue
                    return

            file.sync = sync
            return file

    real: Any = Writer.__init__

    def init(self: Any, disk: Disk, *args: Any, **options: Any) -> None:
        real(self, Stubborn(disk), *args, **options)

    patch.setattr(Writer, "__init__", init)


# What is admitted


def second_value_acknowledged(patch: Patch) -> None:
    """An add of an id that is there is acknowledged, whatever its bytes."""
    real = Ledger.held

    class Alike(bytes):
        def __eq__(self, _other: object) -> bool:
            return True

        __hash__ = bytes.__hash__

        def __ne__(self, _other: object) -> bool:
            return False

    def held(self: Any, entry: Any) -> Any:
        block = real(self, entry)
        return None if block is None else Alike(block)

    patch.setattr(Ledger, "held", held)


def files_not_looked_into(patch: Patch) -> None:
    """An id that is not in memory is taken for a new one."""
    real = Ledger.admit

    def admit(self: Any, add: Add) -> Admission:
        admission = real(self, add)
        return Admission.FRESH if admission is Admission.LOOK else admission

    patch.setattr(Ledger, "admit", admit)


def repeats_answered_at_once(patch: Patch) -> None:
    """An add that was sent twice is acknowledged while the first one is under way."""
    patch.setattr(Store, "_repeated", lambda _self, add: add.sink.stored(add.tag))


def epoch_not_checked(patch: Patch) -> None:
    """Adds of any epoch are taken."""
    real = Ledger.admit

    def admit(self: Any, add: Add) -> Admission:
        self.epoch = None
        return real(self, add)

    patch.setattr(Ledger, "admit", admit)


def shown_before_durable(patch: Patch) -> None:
    """An entry is readable from the moment at which it was admitted."""
    real = Ledger.admitted

    def admitted(self: Any, add: Add) -> None:
        real(self, add)
        self.memtable[add.entry] = add.block
        self.highest = max(self.highest, add.entry)

    patch.setattr(Ledger, "admitted", admitted)


def unreadable_called_absent(patch: Patch) -> None:
    """An entry whose bytes do not hold is said not to be there."""
    real = Reader.read

    def read(self: Any, *args: Any, **options: Any) -> Found:
        found = real(self, *args, **options)
        missing = sorted([*found.missing, *found.suspects])
        return msgspec.structs.replace(found, missing=missing, suspects=[])

    patch.setattr(Reader, "read", read)


# Fences and deletions


def fence_outside_of_the_queue(patch: Patch) -> None:
    """A fence is answered without waiting for the adds that are under way."""

    async def fence(self: Any, ledger: Any, epoch: Any) -> Any:
        self._check_control()
        found = self.known.find_or_make(ledger)
        if not found.is_fenced(epoch):
            self._journal_control(FENCE, found, epoch)
        found.fence(epoch)
        await asyncio.sleep(0)
        return self.state(ledger)

    patch.setattr(Store, "fence", fence)


def fence_not_durable(patch: Patch) -> None:
    """A fence goes through the queue, and is nowhere but in memory."""

    async def fence(self: Any, ledger: Any, epoch: Any) -> Any:
        self._check_control()
        found = self.known.find_or_make(ledger)
        found.fence(epoch)
        await self._behind_all()
        return self.state(ledger)

    patch.setattr(Store, "fence", fence)


def fenced_read_does_not_wait(patch: Patch) -> None:
    """A fenced read is answered while its fence, and what is before it, is under way."""

    async def read(self: Any, wanted: Any) -> Any:
        if wanted.fence is not None:
            self._spawn(_forgiving(self.fence(wanted.ledger, wanted.fence)))
            await asyncio.sleep(0)
        return await self._views.read(wanted)

    async def _forgiving(work: Any) -> None:
        await asyncio.gather(work, return_exceptions=True)

    patch.setattr(Store, "read", read)


def fence_lets_adds_pass(patch: Patch) -> None:
    """A fence does not hold for what comes behind it until it is durable."""
    patch.setattr(Ledger, "fencing", property(lambda _self: None, lambda _self, _value: None))


def deletion_in_memory_only(patch: Patch) -> None:
    """A deletion is done at once, and nowhere written down but in the next checkpoint."""

    async def delete(self: Any, ledger: Any) -> None:
        self._check_control()
        if ledger not in self.known.deleted:
            self._let_hold(DELETE, self.known.find_or_make(ledger), -1)
        await self._behind_all()

    patch.setattr(Store, "delete", delete)


def lac_of_the_last_add(patch: Patch) -> None:
    """The LAC is that of the latest add, also if it is lower."""
    real = Ledger._keep

    def keep(self: Any, entry: Any, lac: Any, position: Any, block: Any) -> None:
        self.lac = NO_ENTRY
        real(self, entry, lac, position, block)

    patch.setattr(Ledger, "_keep", keep)


BUGS: Final = [
    Bug("replay above the highest entry", replay_above_the_highest_entry, 100),
    Bug("replay of known ledgers only", replay_of_known_ledgers_only, 100),
    Bug("replay of adds only", replay_of_adds_only, 100),
    Bug("replay makes entries again", replay_makes_entries_again, 100),
    Bug("torn tail taken for damage", torn_tail_taken_for_damage, 100),
    Bug("tail not written again", _lazy(JournalRecovery, writes=False, suffix=".journal"), 1500),
    Bug("trim before the checkpoint", trim_before_the_checkpoint, 400),
    Bug("checkpoint not synced", _lazy_checkpoint(syncs=False), 100),
    Bug("name of the checkpoint not synced", _lazy_checkpoint(folders=False), 100),
    Bug("ledgers' files not synced", _lazy(Flusher, syncs=False), 100),
    Bug("names of ledgers' files not synced", _lazy(Flusher, folders=False), 100),
    Bug("index before the log", index_before_the_log, 100),
    Bug("sweeps not done", sweeps_not_done, 200),
    Bug("flush dropped from memory first", flush_dropped_from_memory_first, 100),
    Bug("failed flush forgets", failed_flush_forgets, 400),
    Bug("neighbours' slots lost", neighbours_slots_lost, 100),
    Bug("flush covers what came meanwhile", flush_covers_what_came_meanwhile, 100),
    Bug("flush covers what is under way", flush_covers_what_is_under_way, 400),
    Bug("trim up to what is applied", trim_up_to_what_is_applied, 100),
    Bug("trim ignores what was never flushed", trim_ignores_what_was_never_flushed, 100),
    Bug("trim one segment too far", trim_one_segment_too_far, 100),
    Bug("fence not put into the checkpoint", fence_not_put_into_the_checkpoint, 100),
    Bug("checkpoint forgets fences", checkpoint_forgets("fenced", None), 100),
    Bug("checkpoint forgets closes", checkpoint_forgets("last", None), 100),
    Bug("checkpoint forgets the LAC", checkpoint_forgets("lac", NO_ENTRY), 100),
    Bug("checkpoint forgets the epoch", checkpoint_forgets("epoch", None), 100),
    Bug("deletions not remembered", deletions_not_remembered, 100),
    Bug("ack before the sync", ack_before_the_sync, 100),
    Bug("alone, and not synced", alone_not_synced, 400),
    Bug("sealed segment not synced", sealed_segment_not_synced, 100),
    Bug("names of segments not synced", _lazy(Writer, folders=False), 100),
    Bug("failed sync tried again", failed_sync_tried_again, 800),
    Bug("second value acknowledged", second_value_acknowledged, 100),
    Bug("files not looked into", files_not_looked_into, 100),
    Bug("repeats answered at once", repeats_answered_at_once, 100),
    Bug("epoch not checked", epoch_not_checked, 100),
    Bug("shown before it is durable", shown_before_durable, 100),
    Bug("unreadable called absent", unreadable_called_absent, 600),
    Bug("fence outside of the queue", fence_outside_of_the_queue, 100),
    Bug("fence not durable", fence_not_durable, 100),
    Bug("fenced read does not wait", fenced_read_does_not_wait, 100),
    Bug("fence lets adds pass", fence_lets_adds_pass, 200),
    Bug("deletion in memory only", deletion_in_memory_only, 100),
    Bug("LAC of the last add", lac_of_the_last_add, 100),
]
