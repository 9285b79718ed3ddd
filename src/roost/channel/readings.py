"""The receiving half of an open channel: its receivers, their messages, their positions.

Handles ask here for what does not wait; how they wait for arrivals and for positions to become
durable is their own affair. The promise: a message that is handed out and does not arrive comes
again, and nothing that somebody may still ask for is collected.
"""

from typing import Final

import msgspec

from roost.channel.acks import Delivery
from roost.channel.catalogue import Catalogue
from roost.channel.cursors import check_name
from roost.channel.flush import Flusher
from roost.channel.positions import OFFSET_NAME, Place, Positions
from roost.channel.reading import Reading
from roost.channel.settings import Settings
from roost.channel.standing import Standing
from roost.channel.upkeep import Upkeep
from roost.channel.wait import Waiters
from roost.errors import Closed, Invalid, NotFound
from roost.host.tasks import Worker
from roost.segments.file import Segment
from roost.segments.kernel import Ends


class Taken(msgspec.Struct, frozen=True):
    """Messages handed out; in mode `fsync` they count once the position `kept` is durable."""

    payloads: list[bytes]
    deliveries: list[Delivery]
    kept: int = 0


class Readings:
    """All receivers of one channel."""

    def __init__(
        self,
        standing: Standing,
        positions: Positions,
        catalogue: Catalogue,
        ends: Ends,
        *,
        settings: Settings,
        upkeep: Upkeep,
        arrivals: Waiters,
        worker: Worker,
    ) -> None:
        self.kept: Final = Waiters(lambda: self.marks.group.durable)
        self.marks: Final = Flusher(positions, standing, worker=worker, wake=self.kept.wake)
        self._standing: Final = standing
        self._lock: Final = standing.lock
        self._positions: Final = positions
        self._catalogue: Final = catalogue
        self._ends: Final = ends
        self._settings: Final = settings
        self._upkeep: Final = upkeep
        self._arrivals: Final = arrivals
        self._open: Final[dict[str, Reading]] = {}

    def open(self, name: str, *, start: int | str, auto_ack: bool, decoded: bool) -> Reading:
        """Open a receiver for one more handle, making it if there is none of this name.

        What is `decoded` may turn out to be none of the codec's messages, and then be given back.
        """
        check_name(name)
        with self._lock:
            self._standing.check_open()
            reading = self._open.get(name)
            if reading is None:
                place = self._positions.find(name)
                if place is None:
                    place = self._new_place(name, start)
                with self._standing.looking():
                    reading = Reading(
                        place,
                        self._catalogue,
                        self._ends,
                        auto_ack=auto_ack,
                        direct=auto_ack and not self._settings.fsync and not decoded,
                        moved=self._upkeep.look,
                    )
                self._open[name] = reading
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
                position = self._catalogue.head
            case "tail":
                position = self._ends.visible
            case int() if self._catalogue.head <= start <= self._ends.visible:
                position = start
            case _:
                raise Invalid(
                    f"start={start!r}: 'head', 'tail', or a position from {self._catalogue.head} "
                    f"to {self._ends.visible}"
                )
        with self._standing.writing(OFFSET_NAME):
            return self._positions.add(name, position)

    def close(self, reading: Reading) -> None:
        """Let go of one handle; with the last one, what was not acknowledged comes again."""
        with self._lock:
            reading.handles -= 1
            if reading.handles == 0:
                reading.walk.close()
                self._open.pop(reading.name, None)
        self._arrivals.wake_all()

    def peek(self, reading: Reading, count: int) -> list[bytes]:
        """Look at the next messages without handing them out."""
        with self._lock:
            self._standing.check_open()
            with self._standing.looking():
                return reading.peek(count)

    def next_position(self, reading: Reading) -> int:
        """Say where the first message stands that was not yet handed out."""
        with self._lock:
            return reading.next_position

    def take(self, reading: Reading, count_max: int, bytes_max: int) -> Taken:
        """Hand out the next messages, none if there are none."""
        with self._lock:
            self._standing.check_open()
            if not reading.handles:
                raise Closed(f"the last handle of receiver {reading.name!r} was closed")
            with self._standing.looking():
                if reading.direct:
                    return Taken(payloads=reading.walk.take(count_max, bytes_max), deliveries=[])
                deliveries = reading.take(count_max, bytes_max)
            kept = 0
            if reading.auto_ack and deliveries:
                with self._standing.writing(OFFSET_NAME):
                    reading.settle(deliveries)
                kept = self._moved()
            payloads = [delivery.payload for delivery in deliveries]
            return Taken(payloads=payloads, deliveries=deliveries, kept=kept)

    def acknowledge(self, reading: Reading, count: int) -> int:
        """Acknowledge the oldest messages taken; the answer is what to wait for, or 0."""
        with self._lock:
            self._standing.check_open()
            with self._standing.writing(OFFSET_NAME):
                reading.acknowledge(count)
            return self._moved()

    def arrived(self, reading: Reading, deliveries: list[Delivery]) -> None:
        """Note that messages whose position is durable now are handed out for good."""
        with self._lock:
            reading.confirm(deliveries)
            self._upkeep.look_if_collectable()

    def needed(self) -> int | None:
        """Say from where on somebody may need messages; None if nobody ever will."""
        return min(
            (
                place.position if reading is None else reading.needed
                for place, reading in self.places()
            ),
            default=None,
        )

    def give_back(self, reading: Reading, deliveries: list[Delivery]) -> int:
        """Take back what was handed out and did not arrive; the answer is what to wait for."""
        with self._lock, self._standing.writing(OFFSET_NAME):
            # Its last handle may have been closed meanwhile, and others opened.
            self._open.get(reading.name, reading).give_back(deliveries)
            kept = self._moved()
        self._arrivals.wake_all()
        return kept

    def skip(self, reading: Reading) -> int:
        """Move a receiver behind the damage at its position; return how many bytes that is."""
        with self._lock:
            self._standing.check_open()
            before = reading.walk.cursor.position
            with self._standing.looking():
                behind = reading.walk.behind_damage()
            with self._standing.writing(OFFSET_NAME):
                reading.skip_to(behind)
            self._moved()
            return reading.walk.cursor.position - before

    def _moved(self) -> int:
        """Note that a position was stored; the answer is what to wait for, or 0."""
        self._upkeep.look_if_collectable()
        stored = self._positions.stored()
        return stored if self._settings.fsync else 0

    def after_receive(self) -> None:
        """Do what follows a receive in the modes that do not wait for a sync."""
        if self._settings.timed and not self.marks.scheduled:
            self.marks.request_within(self._settings.interval_s)

    def wait_kept(self, upto: int) -> None:
        """Block until the stores of positions up to this one are durable."""
        while self.marks.group.durable < upto:
            self._standing.check_settling("the position")
            if not self.marks.sync_here():
                self.kept.wait(upto, None)

    def places(self) -> list[tuple[Place, Reading | None]]:
        """List the receivers with their open handles' share. Lock held."""
        return [(place, self._open.get(place.mark.name)) for place in self._positions.receivers()]

    def remove(self, name: str) -> None:
        """Forget a receiver that has no handles."""
        with self._lock:
            self._standing.check_open()
            place = self._positions.find(name)
            if place is None:
                raise NotFound(f"there is no receiver {name!r} in {self._standing.folder}")
            if name in self._open:
                raise Invalid(f"receiver {name!r} is in use; close its handles first")
            with self._standing.writing(OFFSET_NAME):
                self._positions.remove(place)
            self._upkeep.look()

    def sealed(self, segment: Segment) -> None:
        """Note that the growing segment got its end. Lock held."""
        for reading in self._open.values():
            reading.walk.sealed(segment)

    def close_all(self) -> None:
        """Let go of all segments that are being read. Lock held."""
        for reading in self._open.values():
            reading.walk.close()
