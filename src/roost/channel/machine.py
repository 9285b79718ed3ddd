"""The one synchronous heart of an open channel, behind one lock.

Senders and receivers of both faces, threads and asyncio, are thin: they ask the machine, and
differ only in how they wait. What runs without the lock is compiled and atomic: a store into the
tail's window, and a cursor's step within its own.

The promise: `ends.visible`, where receivers stop, never passes what the durability mode calls
safe, and after a failed write or sync nothing is acknowledged any more.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Final, NoReturn

import msgspec

from roost.channel.acks import Delivery
from roost.channel.catalogue import Catalogue
from roost.channel.cursors import check_name
from roost.channel.flush import Flusher
from roost.channel.positions import OFFSET_NAME, Place
from roost.channel.reading import Reading
from roost.channel.recover import Recovered
from roost.channel.tail import Tail
from roost.channel.upkeep import Upkeep
from roost.channel.wait import Waiters
from roost.errors import Closed, Invalid, NotFound, Unavailable, Unknown
from roost.host.clock import Clock
from roost.host.disk import Disk, File
from roost.host.metrics import ChannelMetrics
from roost.host.tasks import Tasks
from roost.segments.compress import Method
from roost.segments.file import Segment, Windows
from roost.segments.kernel import Ends
from roost.types import Durability

BOUND_DELAY_S: Final = 0.25
"""How far the durable bound on disk may lag behind, in mode `fsync`."""


class Settings(msgspec.Struct, frozen=True):
    """What a channel was opened with."""

    durability: Durability
    segment_bytes: int
    message_bytes_max: int
    interval_s: float
    method: Method | None
    windows: Windows
    unmapped_because: str


class Taken(msgspec.Struct, frozen=True):
    """Messages handed out; in mode `fsync` they count once the position `kept` is durable."""

    payloads: list[bytes]
    deliveries: list[Delivery]
    kept: int = 0


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
        self.folder: Final = folder
        self.settings: Final = settings
        self.findings: Final = recovered.findings
        self.lock: Final = Lock()
        self.ends: Final = Ends()
        self.ends.written = self.ends.visible = recovered.written
        self.failure = ""
        self.closed = False
        self._closing: Final = RLock()
        self._syncing = 0
        self._metrics: Final = metrics
        self._positions: Final = recovered.positions
        assert recovered.positions.channel is not None, "recovery writes the channel's slot"
        self._bound: Final = recovered.positions.channel
        self._readings: Final[dict[str, Reading]] = {}
        self.arrivals: Final = Waiters(lambda: self.ends.visible)
        self.durables: Final = Waiters(lambda: self.data.group.durable)
        self.kept: Final = Waiters(lambda: self.marks.group.durable)
        self.catalogue: Final = Catalogue(
            disk,
            folder,
            recovered.segments,
            windows=settings.windows,
            message_bytes_max=settings.message_bytes_max,
        )
        self._fsync: Final = settings.durability == "fsync"
        self.tail: Final = Tail(
            disk,
            folder,
            file=recovered.tail,
            segment=recovered.segments[-1],
            ends=self.ends,
            publish=not self._fsync,
            sync_all=settings.durability != "os",
            segment_bytes=settings.segment_bytes,
            message_bytes_max=settings.message_bytes_max,
            windows=settings.windows,
            mapped=not settings.unmapped_because,
            sealed=self._sealed,
        )
        self._flush_worker: Final = tasks.worker("roost-flush")
        self.data: Final = Flusher(
            self,
            durable=recovered.written,
            lock=self.lock,
            worker=self._flush_worker,
            failed=self.fail,
            wake=self._wake_data,
        )
        self.marks: Final = Flusher(
            self._positions,
            durable=0,
            lock=self.lock,
            worker=self._flush_worker,
            failed=self.fail,
            wake=self.kept.wake,
        )
        self.upkeep: Final = Upkeep(
            disk,
            folder,
            self.catalogue,
            self._positions,
            lock=self.lock,
            worker=tasks.worker("roost-upkeep"),
            method=settings.method,
            durable=lambda: self.data.group.durable,
            needed=self._needed,
            failed=self.fail,
            metrics=metrics,
        )
        self.upkeep.look()

    # Sending

    def append_slowly(self, payload: bytes) -> int:
        """Store one message where the window could not take it, and return its position."""
        with self.lock:
            self._check_sending()
            with self._writing():
                return self.tail.append(payload)

    def append_many(self, framed: bytes) -> tuple[int, int]:
        """Store frames that stand one behind the other; return where they begin and end."""
        with self.lock:
            self._check_sending()
            with self._writing():
                return self.tail.append_many(framed), self.ends.written

    def lost_page(self, error: OSError) -> NoReturn:
        """Fail the channel for a store into a page that was cut off or that cannot be read."""
        with self.lock, self._writing():
            raise error

    def after_send(self) -> None:
        """Do what follows a send in the modes that do not wait for a sync."""
        if self.settings.durability == "interval" and not self.data.scheduled:
            self.data.request_within(self.settings.interval_s)
        if self.arrivals.queue:
            self.arrivals.wake()

    def roll_if_full(self) -> None:
        """Begin a new segment if the next message does, to have its syncs done beforehand."""
        with self.lock:
            self._check_sending()
            with self._writing():
                self.tail.roll_if_full()

    async def off_loop(self, work: Callable[[], None]) -> None:
        """Have a worker do what blocks, and suspend this task meanwhile."""
        with self.lock:
            self._check_open()
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

        self._flush_worker.start(steps())
        await done

    def wait_durable(self, upto: int) -> None:
        """Block until everything before `upto` is durable."""
        while self.data.group.durable < upto:
            self.check_settling("what was sent")
            if not self.data.sync_here():
                self.durables.wait(upto, None)

    def check_settling(self, what: str) -> None:
        """Raise `Unknown` if what somebody waits for will never be known."""
        if self.failure:
            raise Unknown(
                f"{what} may or may not be durable in {self.folder}: {self.failure}. Close the "
                "channel, open it again, and look at what is there."
            )

    def _check_sending(self) -> None:
        self._check_open()
        if self.failure:
            raise Unavailable(
                f"{self.folder} takes no more messages: {self.failure}. Nothing was sent; close "
                "the channel and open it again."
            )

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the channel {self.folder} was closed")

    @contextmanager
    def _writing(self, name: str = "") -> Iterator[None]:
        """Fail the channel for a write that may have been done in part. Lock held."""
        try:
            yield
        except OSError as error:
            if error.filename is None:  # the kernel knows the page, not the file
                error.filename = str(self.folder / (name or self.tail.segment.name))
            self._fail(error)
            raise Unknown(
                f"it may or may not have been done in {self.folder}: {self.failure}. Close the "
                "channel, open it again, and look at what is there."
            ) from error

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Say that a read failed; nothing was moved by it. Lock held."""
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"{self.folder} cannot be read now: {error}. No message was taken; try again."
            ) from error

    # Receiving

    def open_reading(
        self, name: str, *, start: int | str, auto_ack: bool, decoded: bool
    ) -> Reading:
        """Open a receiver for one more handle, making it if there is none of this name.

        What is `decoded` may turn out to be none of the codec's messages, and then be given back.
        """
        check_name(name)
        with self.lock:
            self._check_open()
            reading = self._readings.get(name)
            if reading is None:
                place = self._positions.find(name)
                if place is None:
                    place = self._new_place(name, start)
                with self._looking():
                    reading = Reading(
                        place,
                        self.catalogue,
                        self.ends,
                        auto_ack=auto_ack,
                        direct=auto_ack and not self._fsync and not decoded,
                        moved=self.upkeep.look,
                    )
                self._readings[name] = reading
            elif reading.auto_ack != auto_ack:
                raise Invalid(
                    f"auto_ack={auto_ack}: receiver {name!r} is open with auto_ack="
                    f"{reading.auto_ack}, and its handles share one position"
                )
            reading.handles += 1
            return reading

    def _new_place(self, name: str, start: int | str) -> Place:
        match start:
            case "head":
                position = self.catalogue.head
            case "tail":
                position = self.ends.visible
            case int() if self.catalogue.head <= start <= self.ends.visible:
                position = start
            case _:
                raise Invalid(
                    f"start={start!r}: 'head', 'tail', or a position from {self.catalogue.head} "
                    f"to {self.ends.visible}"
                )
        with self._writing(OFFSET_NAME):
            return self._positions.add(name, position)

    def close_reading(self, reading: Reading) -> None:
        """Let go of one handle; with the last one, what was not acknowledged comes again."""
        with self.lock:
            reading.handles -= 1
            if reading.handles == 0:
                reading.walk.close()
                self._readings.pop(reading.name, None)
        self.arrivals.wake_all()

    def peek(self, reading: Reading, count: int) -> list[bytes]:
        """Look at the next messages without handing them out."""
        with self.lock:
            self._check_open()
            with self._looking():
                return reading.peek(count)

    def check_arriving(self) -> None:
        """Raise if nothing will ever arrive any more."""
        if self.failure:
            raise Unavailable(
                f"nothing more arrives in {self.folder}: {self.failure}. Close the channel and "
                "open it again."
            )

    def next_position(self, reading: Reading) -> int:
        """Say where the first message stands that was not yet handed out."""
        with self.lock:
            return reading.next_position

    def take(self, reading: Reading, count_max: int, bytes_max: int) -> Taken:
        """Hand out the next messages, none if there are none."""
        with self.lock:
            self._check_open()
            if not reading.handles:
                raise Closed(f"the last handle of receiver {reading.name!r} was closed")
            with self._looking():
                if reading.direct:
                    return Taken(payloads=reading.walk.take(count_max, bytes_max), deliveries=[])
                deliveries = reading.take(count_max, bytes_max)
            kept = 0
            if reading.auto_ack and deliveries:
                with self._writing(OFFSET_NAME):
                    reading.settle(deliveries)
                kept = self._moved()
            payloads = [delivery.payload for delivery in deliveries]
            return Taken(payloads=payloads, deliveries=deliveries, kept=kept)

    def acknowledge(self, reading: Reading, count: int) -> int:
        """Acknowledge the oldest messages taken; the answer is what to wait for, or 0."""
        with self.lock:
            self._check_open()
            with self._writing(OFFSET_NAME):
                reading.acknowledge(count)
            return self._moved()

    def arrived(self, reading: Reading, deliveries: list[Delivery]) -> None:
        """Note that messages whose position is durable now are handed out for good."""
        with self.lock:
            reading.confirm(deliveries)
            self.upkeep.look_if_collectable()

    def _needed(self) -> int | None:
        """Say from where on somebody may need messages; None if nobody ever will."""
        return min(
            (
                place.position if reading is None else reading.needed
                for place, reading in self.receivers()
            ),
            default=None,
        )

    def give_back(self, reading: Reading, deliveries: list[Delivery]) -> int:
        """Take back what was handed out and did not arrive; the answer is what to wait for."""
        with self.lock, self._writing(OFFSET_NAME):
            # Its last handle may have been closed meanwhile, and others opened.
            self._readings.get(reading.name, reading).give_back(deliveries)
            kept = self._moved()
        self.arrivals.wake_all()
        return kept

    def skip(self, reading: Reading) -> int:
        """Move a receiver behind the damage at its position; return how many bytes that is."""
        with self.lock:
            self._check_open()
            before = reading.walk.cursor.position
            with self._looking():
                behind = reading.walk.behind_damage()
            with self._writing(OFFSET_NAME):
                reading.skip_to(behind)
            self._moved()
            return reading.walk.cursor.position - before

    def _moved(self) -> int:
        """Note that a position was stored; the answer is what to wait for, or 0."""
        self.upkeep.look_if_collectable()
        stored = self._positions.stored()
        return stored if self._fsync else 0

    def after_receive(self) -> None:
        """Do what follows a receive in the modes that do not wait for a sync."""
        if self.settings.durability == "interval" and not self.marks.scheduled:
            self.marks.request_within(self.settings.interval_s)

    def wait_kept(self, upto: int) -> None:
        """Block until the stores of positions up to this one are durable."""
        while self.marks.group.durable < upto:
            self.check_settling("the position")
            if not self.marks.sync_here():
                self.kept.wait(upto, None)

    def receivers(self) -> list[tuple[Place, Reading | None]]:
        """List the receivers with their open handles' share. Lock held."""
        return [
            (place, self._readings.get(place.mark.name)) for place in self._positions.receivers()
        ]

    @property
    def incarnation(self) -> int:
        """How often the system lost messages that a receiver had read."""
        return self._bound.mark.id

    def remove_receiver(self, name: str) -> None:
        """Forget a receiver that has no handles."""
        with self.lock:
            self._check_open()
            place = self._positions.find(name)
            if place is None:
                raise NotFound(f"there is no receiver {name!r} in {self.folder}")
            if name in self._readings:
                raise Invalid(f"receiver {name!r} is in use; close its handles first")
            with self._writing(OFFSET_NAME):
                self._positions.remove(place)
            self.upkeep.look()

    # What the data's flusher asks; see `Syncable`

    def pending(self) -> tuple[int, list[File]]:
        """Say how far it is written, and which files to sync to make that durable."""
        return self.tail.pending()

    def settled(self, durable: int) -> None:
        """Note that everything before `durable` is durable, and let receivers have it."""
        self.tail.settled(durable)
        try:
            self._bound.store(durable)
        except OSError as error:
            self._fail(error)
            return
        if self._fsync:
            self.ends.visible = durable
        if self.settings.durability != "os":
            self.marks.request_within(BOUND_DELAY_S)
        if self.settings.method is not None and len(self.catalogue.segments) > 1:
            self.upkeep.look()

    def sync(self) -> None:
        """Make everything sent and every position stored so far durable, in any mode."""
        with self.lock:
            self._check_open()
            upto, stored = self.ends.written, self._positions.stored()
            self._syncing += 1
            self.tail.sync_all = True
        try:
            self.wait_durable(upto)
            self.wait_kept(stored)
        finally:
            with self.lock:
                self._syncing -= 1
                self.tail.sync_all = self.settings.durability != "os" or self._syncing > 0

    # What happens to everybody

    def _sealed(self, segment: Segment, growing: Segment) -> None:
        self.catalogue.sealed(segment, growing)
        for reading in self._readings.values():
            reading.walk.sealed(segment)
        self._metrics.rolls += 1
        if not self._fsync:
            self.data.request_locked()

    def _wake_data(self) -> None:
        self.durables.wake()
        self.arrivals.wake()

    def fail(self, error: OSError) -> None:
        """Stop acknowledging: a write or a sync failed, and what it was about is not known."""
        with self.lock:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.failure:
            self.failure = f"writing to the disk failed ({error})"
        self.tail.close_window()
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        for waiters in (self.durables, self.kept, self.arrivals):
            waiters.finish()

    def close(self) -> None:
        """Make everything durable, give back the room reserved ahead, and let go of the files.

        Whoever still waits gets `Closed`. After a failure the files are left as they are, for
        the next open to put right. Who closes a second time returns when the first is done.
        """
        with self._closing:
            if not self.closed:
                self._close()

    def _close(self) -> None:
        with self.lock:
            self.closed = True
            failed = bool(self.failure)
            self.tail.close_window()
            for reading in self._readings.values():
                reading.walk.close()
        self.upkeep.stop()
        self.data.stop()
        self.marks.stop()
        self._flush_worker.stop()
        try:
            if not self.failure:
                self._settle_all()
            elif not failed:  # meanwhile, in the background: nobody else was told
                self.check_settling("what was sent")
        finally:
            self.tail.close()
            self._positions.close()
            self._finish_waiting()

    def _settle_all(self) -> None:
        with self._writing():
            self.tail.cut()
            self.tail.sync_all = True
            for file in self.pending()[1]:
                file.sync()
            self._bound.store(self.ends.written)
            self._positions.sync()
        self.data.group.end(self.ends.written)
        self.marks.group.end(self._positions.stored())
        self.ends.visible = self.ends.written


def _end_future(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
