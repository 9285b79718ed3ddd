"""A journal that is open: appends, group commit, and the end of segments that nobody needs.

All decisions fall in the event loop's thread; the worker writes, syncs, makes segments ahead and
removes old ones. The promises: `durable` hears of an item once everything up to it is stored as
the policy says, in the order of the calls, and never of one that was appended while that was
written. After a failed write or sync nothing is ever called durable again, since the system has
forgotten which pages it could not write; a full disk is no failure.

What comes while a group is written is the next group. There are two exceptions, for the two ends of
the load. Where much waits already, it is handed to the worker behind the group that is written, so
that the disk need not wait for this thread. And a record that comes alone, from somebody who waits
for it, is written by this thread itself where the last sync was quick: to hand it over and to be
woken again would take as long as the sync. Who else comes meanwhile waits for one sync, as ever.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from roost.host.metrics import JournalMetrics
from roost.host.seams import Seams
from roost.host.tasks import Worker
from roost.journal.alone import Alone
from roost.journal.chain import Opened, Segment
from roost.journal.group import SyncGroup
from roost.journal.kept import Kept
from roost.journal.plan import Group, JournalSettings, Plan, Planned
from roost.journal.writer import Writer
from roost.types import Position

AHEAD_MAX: Final = 2
"""So many groups the worker has at most, the one that it writes included."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Journal:
    """One node's write-ahead log. Every method is called in the event loop's thread.

    It is made in a folder that `JournalRecovery` has put in order; `start` comes before the first
    append.
    """

    def __init__(
        self,
        seams: Seams,
        worker: Worker,
        folder: Path,
        opened: Opened,
        *,
        settings: JournalSettings,
        uuid: bytes,
        durable: Callable[[list[Any]], None],
        failed: Callable[[list[Any], OSError], None],
        metrics: JournalMetrics | None = None,
    ) -> None:
        self.metrics: Final = JournalMetrics() if metrics is None else metrics
        self._loop: Final = asyncio.get_running_loop()
        self._worker: Final = worker
        self._writer: Final = Writer(seams.disk, folder, file_bytes=settings.file_bytes)
        self._settings: Final = settings
        self._seams: Final = seams
        self._durable: Final = durable
        self._failed: Final = failed
        self._plan: Final = Plan(
            uuid=uuid, begin=opened.begin, settings=settings, wake=self._wake, wanted=self._want
        )
        self.append: Final = self._plan.append
        """`append(kind, epoch, lac, block, item, *, recovery=False) -> Position`, see `Plan`.

        The block must not change before its item is handed back. Raises `NoRoom` for an add that
        has none, which never happens while `why_no_room` is '', and for any other record once
        the reserve is used up; `Unavailable` after a failure, `Closed` after `close`.
        """
        self.barrier: Final = self._plan.barrier
        """`barrier(item)`: have it handed back behind everything before it, without a record."""
        self._group: Final = SyncGroup(durable=opened.begin)
        self._kept: Final = Kept(opened.segments, file_bytes=settings.file_bytes)
        self._number = opened.number
        self._stored = opened.begin
        self._making = False
        self._sync_due = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._error: OSError | None = None
        # Groups that the worker has; and what is to be done about those that it is done with.
        self._handed = 0
        self._written: Final[deque[Callable[[], None]]] = deque()
        self._due = False
        self._gathering = False
        self._alone: Final = Alone(settings)
        self._closing = self._ending = False
        self._started: Final = asyncio.Event()
        self._ended: Final = asyncio.Event()

    @property
    def failure(self) -> str:
        """What went wrong for good, or ''."""
        return "" if self._error is None else f"writing to the disk failed ({self._error})"

    @property
    def acks_unsynced(self) -> bool:
        """Whether items are handed back that a loss of power could take."""
        return self._settings.sync != "always"

    @property
    def tail(self) -> Position:
        """The position of the next record."""
        return self._plan.tail

    @property
    def durable_before(self) -> Position:
        """Everything below this position is known to be on the disk."""
        return Position(self._group.durable)

    @property
    def stored_before(self) -> Position:
        """Everything below this position was handed to `durable`, or is being handed to it."""
        return self._stored

    def could_trim(self, before: Position) -> bool:
        """Tell whether `trim` would find a segment to remove."""
        return self._kept.has_unneeded(before)

    @property
    def kept_bytes(self) -> int:
        """What the files of all segments take on the disk, those made ahead included."""
        return self._kept.bytes

    @property
    def queued_bytes(self) -> int:
        """How much was appended and not handed back yet."""
        return self._plan.tail - self._stored

    @property
    def why_no_room(self) -> str:
        """Why adds are to be refused for now, or ''."""
        return self._plan.why_no_room

    async def start(self) -> None:
        """Make the first segment. Where there is no room for it, `why_no_room` says so."""
        self._want()
        await self._started.wait()

    def trim(self, before: Position) -> None:
        """Remove the segments whose records all lie before a position, but never the last one.

        What cannot be removed now is tried again with the next call.
        """
        self._kept.want_from(before)
        self._remove_unneeded()

    async def close(self) -> None:
        """Write and sync what waits, cut the last segment to its records, and end.

        After a failure it only ends. Closing twice is fine.
        """
        if not self._closing:
            self._closing = True
            self._plan.stop("the journal was closed", closed=True)
            self._stop_timers()
            if self._group.busy:
                pass  # it ends when what waits has come by
            elif self._error is not None:
                self._end()
            else:
                self._wake()
        await self._ended.wait()

    # Group commit

    def _wake(self) -> None:
        # Not at once: what else this turn of the loop appends shares the sync.
        if self._group.claim():
            self._due = True
            if not self._gathering:
                self._loop.call_soon(self.hurry)

    def demand_sync(self) -> None:
        """Have what was appended up to now synced before it is handed back, whatever the policy."""
        self._sync_due = True

    def gather(self) -> None:
        """Begin no write now: `hurry` comes within this turn of the loop, when all is appended."""
        self._gathering = True

    def hurry(self) -> None:
        """Begin to write what waits now, not at the end of this turn.

        For whoever knows that nothing else comes in this turn: a turn of the loop takes as long as
        a good part of a sync.
        """
        self._gathering = False
        # A loop that reads a lot gets to its other work late, and the disk must not wait for that.
        self._hear()
        if self._due:
            if not self._alone.waited:  # or `_on_next_turn` does it
                self._due = False
                self._begin([])
        elif 0 < self._handed < AHEAD_MAX and self._much_waits and self._error is None:
            self._hand_over(self._plan.take())

    @property
    def _much_waits(self) -> bool:
        return self._plan.waiting_bytes >= self._settings.ahead_bytes

    def _begin(self, done: list[Any]) -> None:
        """Write what waits, and hand back what was written before it."""
        if self._error is not None:
            self._fail(done)
            return
        if self._handed and not self._much_waits:
            # What waits goes along once the last of the groups that the worker has is done.
            if done:
                self._durable(done)
            return
        group = self._plan.take()
        if not done and not self._handed and self._alone.allows(group):
            self._write_here(group)
            return
        if group.parts or self._sync_due:
            # Before the items are handed back, so that the disk has something to do meanwhile.
            self._hand_over(group)
            if done:
                self._durable(done)
            return
        if done or group.items:
            self._durable([*done, *group.items])
        self._rest()

    def _rest(self) -> None:
        """Begin no more until something is appended; what was appended just now has its turn."""
        if not self._plan.rest():
            self._loop.call_soon(self._begin, [])
            return
        self._group.release()
        if self._closing:
            self._end()

    def _hand_over(self, group: Group) -> None:
        """Have the worker write a group, behind those that it has."""
        sync = self._settings.sync == "always" or self._sync_due
        sync = sync or any(part.header is not None for part in group.parts)
        self._sync_due = False
        if sync:
            self._group.begin(group.upto)
        self._handed += 1
        self._worker.start(self._write(group, sync=sync))

    def _write(self, group: Group, *, sync: bool) -> Iterator[None]:
        began = self._seams.clock.now()
        try:
            yield from self._writer.write(group.parts, sync=sync)
        except OSError as error:
            self._written.append(partial(self._on_broken, error, group.items))
        else:
            took_s = self._seams.clock.now() - began
            self._written.append(partial(self._on_written, group, sync=sync, took_s=took_s))
        self._report(self._hear)

    def _hear(self) -> None:
        """Deal with the groups that the worker is done with."""
        while self._written:
            self._written.popleft()()

    def _on_written(self, group: Group, *, sync: bool, took_s: float) -> None:
        self._handed -= 1
        if self._error is not None:
            self._fail(group.items)
            return
        self._note_written(group, synced=sync)
        if sync:
            self._alone.synced(took_s)
        elif self._settings.sync == "interval" and self._sync_timer is None:
            self._sync_timer = self._loop.call_later(self._settings.interval_s, self._on_sync_due)
        self._begin(group.items)

    # Alone

    def _write_here(self, group: Group) -> None:
        """Write a group, and wait for its sync."""
        self._alone.waited = True
        self._loop.call_soon(self._on_next_turn)
        self._group.begin(group.upto)
        began = self._seams.clock.now()
        try:
            for _ in self._writer.write(group.parts, sync=True):
                pass
        except OSError as error:
            self._break(error)
            self._fail(group.items)
            return
        self._alone.synced(self._seams.clock.now() - began)
        self._note_written(group, synced=True)
        self._durable(group.items)
        self._rest()

    def _on_next_turn(self) -> None:
        """Begin what has come since: it was not begun at once, so that all of it shares a sync."""
        self._alone.waited = False
        if self._due and not self._gathering:
            self.hurry()

    def _note_written(self, group: Group, *, synced: bool) -> None:
        """Keep count of the segments, and of what was done and is stored by it."""
        self._stored = group.upto
        for part in group.parts:
            self._kept.on_written(part)
            self.metrics.records += len(part.pieces) // 2
            self.metrics.stored_bytes += part.end - part.begin
            self.metrics.rolls += part.header is not None
        if synced:
            self.metrics.syncs += 1
            self.metrics.synced_bytes += group.upto - self._group.durable
            self._plan.synced_before = Position(self._group.done())

    def _on_sync_due(self) -> None:
        self._sync_timer = None
        self._sync_due = True
        self._wake()

    # What went wrong

    def _on_broken(self, error: OSError, items: list[Any]) -> None:
        self._handed -= 1
        self._break(error)
        self._fail(items)

    def _break(self, error: OSError) -> None:
        """Stop for good: a write or a sync failed, and what it was about is not known."""
        if self._error is None:
            self._error = error
            self._plan.stop(
                f"the journal takes nothing any more: {self.failure}. Restart the node; it "
                "looks at what is there.",
                closed=False,
            )
            self._group.fail()
            self._stop_timers()

    def _fail(self, items: list[Any]) -> None:
        """Hand back what will never be known to be durable."""
        assert self._error is not None, "something failed"
        if not self._handed:  # or the worker has some that come before these
            items = [*items, *self._plan.take().items]
        if items:
            self._failed(items, self._error)
        if self._handed:
            return
        self._group.release()
        if self._closing:
            self._end()

    # Segments

    def _want(self) -> None:
        """Have the next segment made, unless it is there or under way."""
        if self._making or not self._plan.wants_segment:
            return
        self._making = True
        segment = Planned(number=self._number, nonce=self._seams.rng.getrandbits(64))
        self._worker.start(self._make(segment))

    def _make(self, segment: Planned) -> Iterator[None]:
        try:
            yield from self._writer.make(segment.number)
        except OSError as error:
            self._report(self._on_not_made, error)
        else:
            self._report(self._on_made, segment)

    def _on_made(self, segment: Planned) -> None:
        self._making = False
        self._number += 1
        self._kept.on_made()
        self._plan.on_made(segment)
        self._started.set()
        self._want()

    def _on_not_made(self, error: OSError) -> None:
        self._making = False
        if error.errno in _FULL:
            self.metrics.full += 1
            self._plan.on_no_room(f"no space for its next segment ({error})")
            if not self._closing:
                self._retry_timer = self._loop.call_later(self._settings.retry_s, self._want)
        else:
            # Whatever waits or is in flight comes by and is handed back then.
            self._break(error)
        self._started.set()

    def _remove_unneeded(self) -> None:
        if self._closing or self._error is not None:
            return
        gone = self._kept.take_unneeded()
        if gone:
            self._worker.start(self._remove(gone))

    def _remove(self, gone: list[Segment]) -> Iterator[None]:
        try:
            yield from self._writer.remove(gone)
        except OSError:
            self._report(self._on_not_removed, gone)
        else:
            self._report(self._on_removed, gone)

    def _on_removed(self, gone: list[Segment]) -> None:
        self._kept.on_removed(gone)
        self.metrics.trimmed_segments += len(gone)
        self.metrics.salvaged_bytes += sum(each.file_bytes for each in gone if each.damaged)
        self._want()
        self._remove_unneeded()
        if self._ending:
            self._end()

    def _on_not_removed(self, gone: list[Segment]) -> None:
        # Nothing that counts hangs on it. One that is gone already is passed over then.
        self.metrics.failed_trims += 1
        self._kept.on_not_removed(gone)
        if self._ending:
            self._end()

    # The end

    def _end(self) -> None:
        """Let the worker finish, as soon as nothing is being removed any more."""
        self._ending = True
        if not self._kept.removing:
            gone = [] if self._error is not None else self._kept.take_unneeded()
            self._worker.start(self._finish(gone, broken=self._error is not None))

    def _finish(self, gone: list[Segment], *, broken: bool) -> Iterator[None]:
        try:
            if gone:
                yield from self._writer.remove(gone)
        except OSError:
            pass  # the next start removes them
        try:
            if not broken:
                yield from self._writer.finish()
        except OSError as error:
            self._report(self._break, error)
        finally:
            self._writer.abandon()
        self._report(self._ended.set)

    def _stop_timers(self) -> None:
        for timer in (self._sync_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    def _report(self, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon_threadsafe(call, *args)
