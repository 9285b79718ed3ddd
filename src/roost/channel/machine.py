"""The one synchronous heart of an open channel, behind one lock.

Senders and receivers of both faces, threads and asyncio, are thin: they ask the machine, and
differ only in how they wait. What runs without the lock is compiled and atomic: a store into the
tail's window, and a cursor's step within its own.

The promise: `ends.visible`, where receivers stop, never passes what the durability mode calls
safe, and after a failed write or sync nothing is acknowledged any more.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Final, NoReturn

from roost.channel.catalogue import Catalogue
from roost.channel.flush import Flusher
from roost.channel.readings import Readings
from roost.channel.recover import Recovered
from roost.channel.settings import Settings
from roost.channel.standing import Standing
from roost.channel.tail import Tail
from roost.channel.upkeep import Upkeep
from roost.channel.wait import Waiters
from roost.host.clock import Clock
from roost.host.disk import Disk, File
from roost.host.metrics import ChannelMetrics
from roost.host.tasks import Tasks
from roost.segments.file import Segment
from roost.segments.kernel import Ends

BOUND_DELAY_S: Final = 0.25
"""How far the durable bound on disk may lag behind, in mode `fsync`."""


class Machine:
    """An open channel."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        recovered: Recovered,
        *,
        settings: Settings,
        tasks: Tasks,
        clock: Clock,
        metrics: ChannelMetrics,
    ) -> None:
        self.clock: Final = clock
        self.settings: Final = settings
        self.findings: Final = recovered.findings
        self.standing: Final = Standing(folder, failed=self._on_failure, metrics=metrics)
        self.ends: Final = Ends()
        self.ends.written = self.ends.visible = recovered.written
        assert recovered.positions.channel is not None, "recovery writes the channel's slot"
        self._bound: Final = recovered.positions.channel
        self._positions: Final = recovered.positions
        self._closing: Final = RLock()
        self._syncing = 0
        self._begun: Final = recovered.written
        self.arrivals: Final = Waiters(lambda: self.ends.visible)
        self.durables: Final = Waiters(lambda: self.sends.group.durable)
        self.catalogue: Final = _catalogue(disk, folder, recovered, settings)
        self.tail: Final = Tail(
            disk, folder, recovered, ends=self.ends, settings=settings, sealed=self._sealed
        )
        self._worker: Final = tasks.worker("roost-flush")
        self.sends: Final = Flusher(
            self,
            self.standing,
            durable=recovered.written,
            worker=self._worker,
            wake=self._wake,
            rising=lambda: self.durables.rising,
        )
        self.upkeep: Final = self._new_upkeep(disk, tasks)
        self.readings: Final = self._new_readings()
        self.upkeep.look()

    def _new_upkeep(self, disk: Disk, tasks: Tasks) -> Upkeep:
        return Upkeep(
            disk,
            self.standing,
            self.catalogue,
            self._positions,
            worker=tasks.worker("roost-upkeep"),
            method=self.settings.method,
            durable=lambda: self.sends.group.durable,
            needed=self._needed,
        )

    def _new_readings(self) -> Readings:
        return Readings(
            self.standing,
            self._positions,
            self.catalogue,
            self.ends,
            settings=self.settings,
            upkeep=self.upkeep,
            arrivals=self.arrivals,
            worker=self._worker,
        )

    # Sending

    def append_slowly(self, payload: bytes) -> int:
        """Store one message where the window could not take it, and return its position."""
        with self.standing.lock:
            self.standing.check_sending()
            with self.standing.writing(self.tail.segment.name):
                return self.tail.append(payload)

    def append_many(self, framed: bytes) -> tuple[int, int]:
        """Store frames that stand one behind the other; return where they begin and end."""
        with self.standing.lock:
            self.standing.check_sending()
            with self.standing.writing(self.tail.segment.name):
                return self.tail.append_many(framed), self.ends.written

    def lost_page(self, error: OSError) -> NoReturn:
        """Fail the channel for a store into a page that was cut off or that cannot be read."""
        with self.standing.lock, self.standing.writing(self.tail.segment.name):
            raise error

    def after_send(self) -> None:
        """Do what follows a send in the modes that do not wait for a sync."""
        if self.settings.timed and not self.sends.scheduled:
            self.sends.request_within(self.settings.interval_s)
        if self.arrivals.queue:
            self.arrivals.wake()

    def roll_if_full(self) -> None:
        """Begin a new segment if the next message does, to have its syncs done beforehand."""
        with self.standing.lock:
            self.standing.check_sending()
            with self.standing.writing(self.tail.segment.name):
                self.tail.roll_if_full()

    async def off_loop(self, work: Callable[[], None]) -> None:
        """Have a worker do what blocks, and suspend this task meanwhile."""
        with self.standing.lock:
            self.standing.check_open()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def steps() -> Iterator[None]:
            yield
            error: Exception | None = None
            try:
                work()
            except Exception as raised:  # noqa: BLE001  whoever waits must hear of any failure
                error = raised
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_end_future, done, error)

        self._worker.start(steps())
        await done

    def wait_durable(self, upto: int) -> None:
        """Block until everything before `upto` is durable."""
        while self.sends.group.durable < upto:
            self.standing.check_settling("what was sent")
            if self.durables.rising or not self.sends.sync_here():
                try:
                    self.durables.wait(upto, None)
                finally:
                    self.sends.sync_for_the_last()

    @property
    def incarnation(self) -> int:
        """How often the system lost messages that a receiver had read."""
        return self._bound.mark.id

    # What the data's flusher asks; see `Syncable`

    def pending(self) -> tuple[int, list[File]]:
        """Say how far it is written, and which files to sync to make that durable."""
        return self.tail.pending()

    def settled(self, durable: int) -> None:
        """Note that everything before `durable` is durable, and let receivers have it."""
        self.standing.metrics.syncs += 1
        self.tail.settled(durable)
        try:
            self._bound.store(durable)
        except OSError as error:
            self.standing.fail_locked(error)
            return
        if self.settings.fsync:
            self.ends.visible = durable
        if self.settings.durability != "os":
            self.readings.marks.request_within(BOUND_DELAY_S)
        if self.settings.method is not None and len(self.catalogue.segments) > 1:
            self.upkeep.look()

    def metrics(self) -> ChannelMetrics:
        """Give the counters, the one that is not kept while sending brought up to date."""
        self.standing.metrics.sent_bytes = self.ends.written - self._begun
        return self.standing.metrics

    def sync(self) -> None:
        """Make everything sent and every position stored so far durable, in any mode."""
        with self.standing.lock:
            self.standing.check_open()
            upto, stored = self.ends.written, self._positions.stored()
            self._syncing += 1
            self.tail.sync_all = True
        try:
            self.wait_durable(upto)
            self.readings.wait_kept(stored)
        finally:
            with self.standing.lock:
                self._syncing -= 1
                self.tail.sync_all = self.settings.durability != "os" or self._syncing > 0

    # What happens to everybody

    def _sealed(self, segment: Segment, growing: Segment) -> None:
        self.catalogue.sealed(segment, growing)
        self.readings.sealed(segment)
        self.standing.metrics.rolls += 1
        if not self.settings.fsync:
            self.sends.request_locked()

    def _needed(self) -> int | None:
        return self.readings.needed()

    def _wake(self) -> None:
        self.durables.wake()
        self.arrivals.wake()

    def _on_failure(self) -> None:
        """Send everybody through the lock, where they hear of it, and wake who waits."""
        self.tail.close_window()
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        for waiters in (self.durables, self.readings.kept, self.arrivals):
            waiters.finish()

    def close(self) -> None:
        """Make everything durable, give back the room reserved ahead, and let go of the files.

        Whoever still waits gets `Closed`. After a failure the files are left as they are, for
        the next open to put right. Who closes a second time returns when the first is done.
        """
        with self._closing:
            if not self.standing.closed:
                self._close()

    def _close(self) -> None:
        with self.standing.lock:
            self.standing.closed = True
            failed = bool(self.standing.failure)
            self.tail.close_window()
            self.readings.close_all()
        self.upkeep.stop()
        self.sends.stop()
        self.readings.marks.stop()
        self._worker.stop()
        try:
            if not self.standing.failure:
                self._settle_all()
            elif not failed:  # meanwhile, in the background: nobody else was told
                self.standing.check_settling("what was sent")
        finally:
            self.tail.close()
            self._positions.close()
            self._finish_waiting()

    def _settle_all(self) -> None:
        with self.standing.writing(self.tail.segment.name):
            self.tail.cut()
            self.tail.sync_all = True
            for file in self.pending()[1]:
                file.sync()
            self._bound.store(self.ends.written)
            self._positions.sync()
        self.sends.group.end(self.ends.written)
        self.readings.marks.group.end(self._positions.stored())
        self.ends.visible = self.ends.written


def _end_future(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _catalogue(disk: Disk, folder: Path, recovered: Recovered, settings: Settings) -> Catalogue:
    return Catalogue(
        disk,
        folder,
        recovered.segments,
        windows=settings.windows,
        message_bytes_max=settings.message_bytes_max,
    )
