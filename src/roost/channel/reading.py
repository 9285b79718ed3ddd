"""What all handles of one receiver share: where it reads, what is out, what is kept.

Every method is called with the channel's lock held. Two ways of keeping the position:

- *direct*: messages are acknowledged by being received, and the page cache is durable enough.
  The compiled cursor stores the position itself, without the lock.
- *tracked*: every message handed out is accounted for until it is acknowledged or given back.
"""

from collections.abc import Callable
from typing import Final

from roost.channel.acks import Deliveries, Delivery
from roost.channel.catalogue import Catalogue
from roost.channel.positions import Place
from roost.channel.walk import Walk, aligned
from roost.segments.format import FRAME_BYTES
from roost.segments.kernel import Ends


class Reading:
    """One receiver, as long as it has handles."""

    def __init__(
        self,
        place: Place,
        catalogue: Catalogue,
        ends: Ends,
        *,
        auto_ack: bool,
        direct: bool,
        moved: Callable[[], None],
    ) -> None:
        self.place: Final = place
        self.auto_ack: Final = auto_ack
        self.direct: Final = direct and place.slot is not None
        self.handles = 0
        self._catalogue: Final = catalogue
        self._ends: Final = ends
        self._deliveries: Final = Deliveries()
        position = aligned(catalogue, place.position, ends.visible)
        if position != place.position:
            place.store(position)
        slot = place.slot if self.direct else None
        self.walk: Final = Walk(catalogue, ends, position=position, slot=slot, left=moved)

    @property
    def name(self) -> str:
        """The receiver's name."""
        return self.place.mark.name

    @property
    def position(self) -> int:
        """The first message that is not acknowledged."""
        return self.place.position

    @property
    def next_position(self) -> int:
        """The first message that was not yet handed out."""
        waiting = self._deliveries.waiting()
        return waiting[0].begin if waiting else self.walk.cursor.position

    @property
    def unacknowledged(self) -> int:
        """How many messages are out and not acknowledged."""
        return self._deliveries.unacknowledged

    def take(self, count_max: int, bytes_max: int) -> list[Delivery]:
        """Hand out messages; those that were given back come first."""
        taken: list[Delivery] = []
        while len(taken) < count_max and (again := self._deliveries.redeliver()) is not None:
            taken.append(again)
        if taken:
            return taken
        begin = self.walk.cursor.position
        for payload in self.walk.take(count_max, bytes_max):
            end = begin + FRAME_BYTES + len(payload)
            taken.append(Delivery(begin=begin, end=end, payload=payload))
            self._deliveries.take(begin)
            begin = end
        return taken

    def peek(self, count_max: int) -> list[bytes]:
        """Look at the messages that come next without taking them."""
        seen = [delivery.payload for delivery in self._deliveries.waiting()[:count_max]]
        walk = Walk(self._catalogue, self._ends, position=self.walk.cursor.position)
        try:
            while len(seen) < count_max and (payload := walk.next()) is not None:
                seen.append(payload)
        finally:
            walk.close()
        return seen

    def settle(self, deliveries: list[Delivery]) -> None:
        """Note that just these messages are done with, and store the position."""
        for delivery in deliveries:
            self._deliveries.settle(delivery.begin)
        try:
            self._store()
        except OSError:
            for delivery in deliveries:
                self._deliveries.give_back(delivery)
            raise

    def confirm(self, deliveries: list[Delivery]) -> None:
        """Note that settled messages have arrived, and are not given back any more."""
        for delivery in deliveries:
            self._deliveries.confirm(delivery.begin)

    @property
    def needed(self) -> int:
        """From where on this receiver may still need messages."""
        return min(self.position, self._deliveries.needed(self.walk.cursor.position))

    def acknowledge(self, count: int) -> None:
        """Note that the `count` oldest messages are done with, and store the position."""
        self._deliveries.acknowledge(count)
        self._store()

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Take messages back that were not delivered after all."""
        for delivery in deliveries:
            self._deliveries.give_back(delivery)
        self._store()

    def skip_to(self, position: int) -> None:
        """Go on behind damage."""
        self.walk.cursor.seek(position)
        self._store()

    def _store(self) -> None:
        position = self._deliveries.position(self.walk.cursor.position)
        if position != self.place.position:
            self.place.store(position)
