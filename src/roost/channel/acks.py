"""Which messages were taken and not acknowledged, and where that leaves the position.

Sans-IO. One object per receiver, shared by its competing consumers. The promise: the position
never passes a message that somebody still holds unacknowledged or has given back.
"""

from heapq import heappop, heappush

import msgspec

from roost.errors import Invalid


class Delivery(msgspec.Struct, frozen=True):
    """A message on its way: where its frame stands, and what it carries."""

    begin: int
    end: int
    payload: bytes


class Deliveries:
    """The messages between a receiver's position and the next one it will read."""

    __slots__ = ("_oldest", "_returned", "_settling", "_taken")

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._oldest: list[int] = []  # a heap of what was taken; what is settled leaves it late
        self._returned: dict[int, Delivery] = {}
        self._settling: set[int] = set()

    @property
    def unacknowledged(self) -> int:
        """How many messages were taken and neither acknowledged nor given back."""
        return len(self._taken)

    def take(self, begin: int) -> None:
        """Note that the message at `begin` was handed out."""
        assert begin not in self._taken, "a message was handed out twice"
        self._taken.add(begin)
        heappush(self._oldest, begin)

    def redeliver(self) -> Delivery | None:
        """Hand out again what was given back, oldest first."""
        if not self._returned:
            return None
        delivery = self._returned.pop(min(self._returned))
        self.take(delivery.begin)
        return delivery

    def waiting(self) -> list[Delivery]:
        """List what was given back, oldest first, without handing it out."""
        return [self._returned[begin] for begin in sorted(self._returned)]

    def acknowledge(self, count: int) -> None:
        """Note that the `count` oldest messages taken are done with."""
        if not isinstance(count, int) or not 0 <= count <= len(self._taken):
            raise Invalid(
                f"ack({count!r}): {len(self._taken)} messages were received and not acknowledged"
            )
        while count:
            begin = heappop(self._oldest)
            if begin in self._taken:
                self._taken.remove(begin)
                count -= 1

    def settle(self, begin: int) -> None:
        """Note that the message at `begin` is done with, whatever came before it.

        Until `confirm` it may still be given back.
        """
        self._taken.remove(begin)
        self._settling.add(begin)

    def confirm(self, begin: int) -> None:
        """Note that a message that was settled has arrived for good."""
        self._settling.discard(begin)

    def give_back(self, delivery: Delivery) -> None:
        """Take a message back, settled or not: it is delivered again."""
        self._taken.discard(delivery.begin)
        self._settling.discard(delivery.begin)
        self._returned[delivery.begin] = delivery

    def position(self, cursor: int) -> int:
        """Say how far everything is done with, when reading has come to `cursor`."""
        while self._oldest and self._oldest[0] not in self._taken:
            heappop(self._oldest)
        oldest = self._oldest[0] if self._oldest else cursor
        return min([cursor, oldest, *self._returned])

    def needed(self, cursor: int) -> int:
        """Say from where on messages may still be asked for: a settled one may come back."""
        return min([self.position(cursor), *self._settling])
