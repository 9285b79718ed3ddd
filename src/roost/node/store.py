"""A storage node in-process: adds, fences, closes and deletes ledgers, and says what it holds.

Everything is decided in one thread, that of the event loop, in the order in which it was asked for;
the order of the journal is that order. The promises: an add is acknowledged once its group was
synced, and readable from then on; nothing is readable before; behind a fence that was answered no
ordinary add is ever acknowledged, since the fence goes through the same queue.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from roost.errors import Closed, Conflict, NoRoom, RoostError, Unavailable, Unknown
from roost.host.jobs import begin
from roost.host.log import Log
from roost.host.metrics import JournalMetrics, NodeMetrics
from roost.host.seams import Seams
from roost.host.tasks import Worker
from roost.journal.plan import JournalSettings
from roost.journal.record import ADD, CLOSE, DELETE, FENCE
from roost.journal.service import Journal
from roost.node.known import Known
from roost.node.layout import JOURNAL
from roost.node.ledgers import ENTRY_MEMORY_BYTES, FRESH, Add, Admission, Ledger, memory_bytes
from roost.node.recovery import Recovered, Recovery
from roost.node.space import Limits
from roost.node.unsynced import Unsynced
from roost.node.upkeep import Upkeep
from roost.node.views import Chunk, Views
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import encode_head
from roost.wire.messages import LedgerState, Read, VerifyReport
from roost.wire.sink import Sink

SPACE_LOOK_S: Final = 1.0
"""How often the room on the disk is looked at."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store works."""

    journal: JournalSettings = JournalSettings()
    limits: Limits = Limits()
    flush_workers: int = 4
    files_max: int = 128
    """How many files each worker keeps open."""

    together_min: int = 256
    """From how many ledgers on a flush syncs the whole disk, and not each of their files."""

    @property
    def fitting_limits(self) -> Limits:
        """Give limits that the journal can keep, so that adds never wait for ever.

        While its next segment is made, what is appended meanwhile has to fit the one before; and
        two segments it has in any case, the one that is written and the one that is made ahead.
        """
        journal, limits = self.journal, self.limits
        return msgspec.structs.replace(
            limits,
            queued_bytes_max=min(limits.queued_bytes_max, journal.segment_bytes // 2),
            journal_bytes_max=max(limits.journal_bytes_max, 2 * journal.file_bytes),
        )


class Control(msgspec.Struct, frozen=True):
    """A fence, a close or a deletion that is under way."""

    kind: int
    ledger: Ledger
    value: int
    done: asyncio.Future[None]


Item = tuple[Ledger | None, Add, Position] | Control | asyncio.Future[None]
"""What waits for its group: an add, of no ledger if it is there already; a control; somebody."""


class Store:
    """One node's ledgers."""

    # What somebody waits for who waits until adds need not.
    _easing: asyncio.Future[None] | None = None

    def __init__(
        self,
        folder: Path,
        recovered: Recovered,
        settings: NodeSettings,
        *,
        uuid: bytes,
        unsynced: Unsynced,
        seams: Seams,
        log: Log,
        metrics: NodeMetrics,
        journal_metrics: JournalMetrics,
    ) -> None:
        self.known: Final[Known] = recovered.known
        self.metrics: Final = metrics
        self.failure = ""
        """Why this node only reads, or ''."""
        self.why_slow = ""
        """What adds have to wait for, or ''; `on_pressure` hears when that changes."""
        self.on_pressure: Callable[[], None] = lambda: None
        self.free_bytes = seams.disk.free_bytes(folder)
        self._refusal: Callable[[], RoostError] | None = None
        self._stopping = False
        self._unsynced: Final = unsynced
        self._free_bytes_min: Final = settings.limits.free_bytes_min
        self._queued_bytes_max: Final = settings.fitting_limits.queued_bytes_max
        self._folder: Final = folder
        self._seams: Final = seams
        self._log: Final = log
        self._ledgers: Final = recovered.known.ledgers
        self._backlog: Final = recovered.backlog
        self._applied = recovered.opened.begin
        self.journal: Final = Journal(
            seams,
            seams.tasks.worker("roost-journal"),
            folder / JOURNAL,
            recovered.opened,
            settings=settings.journal,
            uuid=uuid,
            durable=self._on_durable,
            failed=self._on_journal_failed,
            metrics=journal_metrics,
        )
        self.upkeep: Final = self._new_upkeep(folder, settings)
        self._views: Final = Views(
            folder, self.known, seams=seams, files_max=settings.files_max, log=log, metrics=metrics
        )
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        # Those of them that go on until they are told to end.
        self._housekeeping: list[asyncio.Task[None]] = []

    def _new_upkeep(self, folder: Path, settings: NodeSettings) -> Upkeep:
        return Upkeep(
            folder,
            self.known,
            self._backlog,
            self.journal,
            seams=self._seams,
            workers=settings.flush_workers,
            files_max=settings.files_max,
            together_min=settings.together_min,
            applied=lambda: self._applied,
            relieved=self._look_at_pressure,
            failed=self._fail,
            log=self._log,
            metrics=self.metrics,
        )

    @classmethod
    async def open(
        cls,
        folder: Path,
        settings: NodeSettings,
        *,
        uuid: bytes,
        seams: Seams,
        log: Log,
        metrics: NodeMetrics,
        journal_metrics: JournalMetrics,
    ) -> Self:
        """Recover what a folder holds, and be ready to serve it."""
        worker = seams.tasks.worker("roost-recovery")
        unsynced = Unsynced(seams.disk, folder, seams.clock)
        recovery = Recovery(
            seams.disk,
            folder,
            uuid=uuid,
            unsynced=unsynced,
            limits=settings.fitting_limits,
            files_max=settings.files_max,
            log=log,
        )
        recovered = await begin(worker, recovery.run())
        store = cls(
            folder,
            recovered,
            settings,
            uuid=uuid,
            unsynced=unsynced,
            seams=seams,
            log=log,
            metrics=metrics,
            journal_metrics=journal_metrics,
        )
        await store.journal.start()
        await store._say_whether_synced(worker, lost_power=recovered.lost_power)
        worker.stop()
        store._housekeeping = [
            store._spawn(store.upkeep.run()),
            store._spawn(store._watch_space()),
        ]
        store.upkeep.look()
        return store

    async def _say_whether_synced(self, worker: Worker, *, lost_power: bool) -> None:
        """Before anything is acknowledged, have the folder tell if a loss of power can take it."""

        def settle() -> Generator[None, None, None]:
            yield
            self._unsynced.settle(unsynced=self.journal.acks_unsynced)

        try:
            if lost_power:  # what the folder tells now has to be in a checkpoint first
                await self.upkeep.checkpoint()
            await begin(worker, settle())
        except OSError as error:
            self._fail("saying whether entries are synced", error)

    # Adding

    def add(self, add: Add) -> None:
        """Store an entry whose block was checked; its sink hears by its tag what became of it."""
        try:
            if self._refusal is not None:
                raise self._refusal()
            ledger = self._ledgers.get(add.ledger)
            if ledger is None:
                ledger = self.known.find_or_new(add.ledger)
            admission = ledger.admit(add)
            if admission is FRESH:
                journal = self.journal
                item = (ledger, add, journal.tail)
                journal.append(ADD, add.epoch, add.lac, add.block, item, recovery=add.recovery)
                if ledger.epoch is None:
                    self.known.adopt(ledger)
                ledger.admitted(add)
            elif admission is Admission.REPEAT:
                self._repeated(add)
            else:
                self._spawn(self._look_first(ledger, add))
        except RoostError as error:
            self._refuse(add, error)

    def _repeated(self, add: Add) -> None:
        """Acknowledge what is there, behind all that is under way: it may be part of that."""
        self.metrics.duplicate_adds += 1
        self.journal.barrier((None, add, self.journal.tail))

    def _refuse(self, add: Add, error: RoostError) -> None:
        self.metrics.refused_adds += 1
        if isinstance(error, Conflict):
            self.metrics.conflicts += 1
            self._log.event(
                "conflict", level="error", ledger=add.ledger, entry=add.entry, error=str(error)
            )
        add.sink.refused(add.tag, error)

    async def _look_first(self, ledger: Ledger, add: Add) -> None:
        """Compare with what the files have, before an add is let in that may be there already."""
        try:
            while True:
                stored = ledger.stored
                held, suspect = await self._views.look(ledger, add.entry)
                if self._refusal is not None:
                    raise self._refusal()
                self.known.find(ledger.id)
                admission = ledger.admit(add)
                if admission is Admission.LOOK and ledger.stored is stored:
                    break
                if admission is Admission.REPEAT:
                    self._repeated(add)
                    return
            self._add_over(ledger, add, held, suspect=suspect)
        except RoostError as error:
            self._refuse(add, error)

    def _add_over(self, ledger: Ledger, add: Add, held: bytes | None, *, suspect: bool) -> None:
        """Let an add in, or not, knowing what the files have under its id."""
        if held is not None:
            if held != add.block:
                raise ledger.other_bytes(add.entry)
            self._repeated(add)
            return
        if suspect and not add.recovery:
            raise Unavailable(
                f"ledger {ledger.id}, entry {add.entry} is stored here and cannot be read; only "
                "recovery may write it again"
            )
        item = (ledger, add, self.journal.tail)
        self.journal.append(ADD, add.epoch, add.lac, add.block, item, recovery=add.recovery)
        ledger.admitted(add)
        if suspect:
            ledger.rewritten.add(add.entry)

    def hurry(self) -> None:
        """Have what was added written now, since nothing more comes for the moment."""
        self.journal.hurry()
        # A sync may take long; what comes meanwhile must not have to be refused.
        if self.journal.queued_bytes > self._queued_bytes_max and not self.why_slow:
            self._look_at_pressure()

    def confirm(self, ledger: LedgerId, epoch: Epoch, lac: EntryId) -> None:
        """Learn a writer's LAC; whoever waits for one hears of it.

        That is a hint, and goes no way through the journal: after a crash an older one may be
        known, and nothing more is lost by that than time.
        """
        found = self.known.find(ledger)
        if found.confirm(epoch, lac):
            self.known.touch(ledger)
            self._views.changed(ledger)

    # Fencing, closing, deleting

    async def fence(self, ledger: LedgerId, epoch: Epoch) -> LedgerState:
        """Refuse a ledger's writer for good; also of a ledger that was never here."""
        self._check_control()
        found = self.known.find_or_new(ledger)
        if found.is_fenced(epoch):
            done = self._behind_all()
        else:
            done = self._journal_control(FENCE, found, epoch)
            found.fencing = epoch
        await done
        self.metrics.fences += 1
        return self.state(ledger)

    async def close_ledger(self, ledger: LedgerId, last: EntryId) -> LedgerState:
        """Close a ledger for good, with its last entry."""
        self._check_control()
        found = self.known.find_or_new(ledger)
        if found.is_closed(last):
            done = self._behind_all()
        else:
            done = self._journal_control(CLOSE, found, last)
            found.closing = last
        await done
        self.metrics.closes += 1
        return self.state(ledger)

    async def delete(self, ledger: LedgerId) -> None:
        """Forget a ledger; one that is not here is remembered as deleted, too."""
        self._check_control()
        if ledger in self.known.deleted:
            await self._behind_all()
            return
        await self._journal_control(DELETE, self.known.find_or_new(ledger), -1)

    def _journal_control(self, kind: int, ledger: Ledger, value: int) -> "asyncio.Future[None]":
        """Have something about a ledger written; it is done when it is durable and holds."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        epoch, last = (value, -1) if kind == FENCE else (0, value)
        item = Control(kind, ledger, value, done)
        self.journal.append(kind, epoch, last, encode_head(ledger.id, 0, b""), item)
        # Whatever the policy: what was refused because of it must not be taken after a restart.
        self.journal.demand_sync()
        self.known.adopt(ledger)
        return done

    def _behind_all(self) -> "asyncio.Future[None]":
        """Give a future of the moment at which all that was asked before is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.journal.barrier(done)
        return done

    def _check_control(self) -> None:
        if self.failure:
            raise Unavailable(f"this node only reads: {self.failure}")

    # What becomes durable

    def _on_durable(self, items: Iterable[Item]) -> None:
        """Apply a group, in order, and answer those who asked."""
        backlog, views = self._backlog, self._views
        added = size = 0
        told: dict[Sink, Sink] = {}  # a set has no order
        last_sink: Sink | None = None
        for item in items:
            if not isinstance(item, tuple):
                self._settle(item)
                continue
            ledger, add, position = item
            # Where there is no ledger it is a repeat; or the ledger was deleted meanwhile.
            if ledger is not None and (ledger.oldest is not None or ledger.id in self._ledgers):
                if ledger.oldest is None:
                    backlog.began(ledger.id, position)
                ledger.apply(add, position)
                added += 1
                size += len(add.block)
                if views.watched:
                    views.changed(ledger.id)
            sink = add.sink
            sink.stored(add.tag)
            if sink is not last_sink:
                last_sink = told[sink] = sink
        for sink in told:
            sink.settle()
        self._applied = self.journal.stored_before
        backlog.memory_bytes += size + added * ENTRY_MEMORY_BYTES
        self.metrics.adds += added
        self.metrics.added_bytes += size
        self.upkeep.look()
        self._look_at_pressure()

    def _settle(self, item: Control | asyncio.Future[None]) -> None:
        """Let what was asked for hold, in its turn, and tell who waits, if somebody still does."""
        if isinstance(item, Control) and item.ledger.id in self._ledgers:
            self._let_hold(item.kind, item.ledger, item.value)  # or it was deleted meanwhile
        done = item.done if isinstance(item, Control) else item
        if not done.done():
            done.set_result(None)

    def _let_hold(self, kind: int, ledger: Ledger, value: int) -> None:
        if kind == FENCE:
            ledger.fence(Epoch(value))
        elif kind == CLOSE:
            ledger.close(EntryId(value))
            self._spawn(self.upkeep.cut(ledger))
        else:
            self.known.delete(ledger.id)
            self._backlog.forget(ledger.id, memory_bytes(ledger.memtable))
            ledger.empty()
            self.metrics.deletes += 1
            self._views.drop(ledger.id)
            self._spawn(self.upkeep.remove(ledger.id))
        self.known.touch(ledger.id)
        self._views.changed(ledger.id)

    def _on_journal_failed(self, items: Iterable[Item], error: OSError) -> None:
        self._fail("the journal", error)
        self._doubt_unsynced()
        unknown = Unknown(
            f"the node failed while this was written ({error.strerror}); it may or may not be "
            "stored there"
        )
        for item in items:
            if isinstance(item, tuple):
                item[1].sink.refused(item[1].tag, unknown)
                continue
            done = item.done if isinstance(item, Control) else item
            if not done.done():
                done.set_exception(unknown)

    def _fail(self, what: str, error: OSError) -> None:
        """Only read from now on: nothing that failed is tried again."""
        if not self.failure:
            self.failure = f"{what} failed: {error}"
            self._log.event("failed", level="error", what=what, error=str(error))
        failure = self.failure
        self._refusal = lambda: Unavailable(
            f"this node only reads: {failure}. Look after its disk, and start it again."
        )
        self._ease()

    # Pressure

    def _look_at_pressure(self) -> None:
        why = self._why_slow()
        if why and self.upkeep.why_full:
            # Waiting makes no room, and whoever is not read from cannot delete anything.
            self._look_at_space()
            why = ""
        if bool(why) != bool(self.why_slow):
            self.metrics.throttled += bool(why)
            self.why_slow = why
            self._ease()
            self.on_pressure()

    async def eased(self) -> None:
        """Wait until adds need not wait, or are refused; for who adds without a connection."""
        while self.why_slow and self._refusal is None:
            if self._easing is None:
                self._easing = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._easing)

    def _ease(self) -> None:
        if self._easing is not None and not (self.why_slow and self._refusal is None):
            self._easing.set_result(None)
            self._easing = None

    def _why_slow(self) -> str:
        return self._backlog.why_slow(
            journal_bytes=self.journal.kept_bytes, queued_bytes=self.journal.queued_bytes
        )

    async def _watch_space(self) -> None:
        """Refuse adds while the disk has less room than is to be left."""
        while True:
            self._look_at_journal()
            self._look_at_space()
            self._look_at_pressure()
            await asyncio.sleep(SPACE_LOOK_S)

    def _look_at_journal(self) -> None:
        """Hear of a failure that came while nobody waited for the journal."""
        if self.journal.failure and not self.failure:
            self._fail("the journal", OSError(self.journal.failure))
            self._doubt_unsynced()

    def _look_at_space(self) -> None:
        try:
            self.free_bytes = self._seams.disk.free_bytes(self._folder)
        except OSError as error:
            self._log.event("free_bytes_unknown", level="warning", error=str(error))
            return
        if self.failure or self._stopping:
            return
        if self.free_bytes < self._free_bytes_min or (self.upkeep.why_full and self._why_slow()):
            self._refusal = self._no_room
            self._ease()
        else:
            self._refusal = None

    @property
    def why_refused(self) -> str:
        """Say why adds are refused, or ''."""
        return "" if self._refusal is None else str(self._refusal())

    def _no_room(self) -> NoRoom:
        return NoRoom(
            f"the disk of this node has {self.free_bytes} bytes left, and {self._free_bytes_min} "
            "are kept free: delete ledgers, or give it more room. Nothing was written."
        )

    # Looking

    async def read(self, read: Read) -> Chunk:
        """Read a piece: what there is of some entries from the first on; ask again behind it."""
        if read.fence is not None:
            await self.fence(read.ledger, read.fence)
        return await self._views.read(read)

    def state(self, ledger: LedgerId) -> LedgerState:
        """Tell how a ledger is."""
        return self._views.state(self.known.find_or_doubt(ledger))

    def page(self, after: LedgerId | None, limit: int) -> list[LedgerState]:
        """List ledgers by their ids, from behind one of them."""
        return [self._views.state(ledger) for ledger in self.known.page(after, limit)]

    async def verify(self, ledger: LedgerId) -> VerifyReport:
        """Read every entry of a ledger, and say which are not good."""
        return await self._views.verify(self.known.find_or_doubt(ledger))

    @property
    def memory_bytes(self) -> int:
        """Tell what the entries in memory take."""
        return self._backlog.memory_bytes

    # The end

    async def stop(self) -> None:
        """Take no more, bring everything into files, and end; nothing is left to recover."""
        self._stopping = True
        if not self.failure:
            self._refusal = lambda: Closed("this node was stopped")
            self._ease()
        await self.upkeep.settle()
        for task in self._housekeeping:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.failure:
            try:
                await self._behind_all()
                await self.upkeep.flush_all()
            except OSError as error:
                self._fail("the last flush", error)
            except (Unknown, Unavailable) as error:
                self._log.event("stopped_without_journal", level="error", error=str(error))
        await self.journal.close()
        # What became durable just now may have begun something.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._forget_unsynced()
        self.upkeep.close()
        self._views.close()

    def _doubt_unsynced(self) -> None:
        """After a failed sync the system may drop what was acknowledged: the next start asks."""
        if self.journal.acks_unsynced:
            try:
                self._unsynced.doubt()
            except OSError as error:
                self._log.event("unsynced_not_doubted", level="error", error=str(error))

    def _forget_unsynced(self) -> None:
        """Let the next start know that all is in files: no loss of power takes anything now."""
        if self.failure or self.journal.failure or not self.journal.acks_unsynced:
            return
        try:
            self._unsynced.settle(unsynced=False)
        except OSError as error:
            self._log.event("unsynced_left", level="warning", error=str(error))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
