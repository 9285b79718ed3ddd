"""One handle on a receiver: everything about it that does not wait.

The thread face and the asyncio face hold one each. Closing it lets go of its share exactly once,
however often it is closed.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from roost.channel.machine import Machine
from roost.channel.reading import Reading
from roost.channel.readings import Taken
from roost.errors import Closed, Invalid
from roost.wire.codec import Codec

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""How many bytes one `recv_many` hands out at most, unless told otherwise."""


def _none() -> None:
    """Stand in for the cursor's step where the position is kept under the lock."""


class Handle(Generic[T]):
    """A share in one receiver."""

    __slots__ = ("_closed", "_reading", "_readings", "decode", "machine", "next")

    def __init__(self, machine: Machine, reading: Reading, codec: Codec[T]) -> None:
        self.machine: Final = machine
        self.decode: Final = codec.decode
        self.next: Callable[[], bytes | None] = (
            reading.walk.cursor.next if reading.direct else _none
        )
        self._reading: Final = reading
        self._readings: Final = machine.readings
        self._closed = False

    @property
    def name(self) -> str:
        """The receiver's name."""
        return self._reading.name

    @property
    def id(self) -> int:
        """The receiver's number."""
        return self._reading.place.mark.id

    @property
    def position(self) -> int:
        """Where the first message stands that is not acknowledged."""
        return self._reading.position

    @property
    def unacknowledged(self) -> int:
        """How many messages are out and not acknowledged."""
        return self._reading.unacknowledged

    @property
    def awaited(self) -> int:
        """What must be visible for the next message to be there."""
        return self._readings.next_position(self._reading) + 1

    def take(self, count_max: int, bytes_max: int) -> Taken:
        """Take what there is, through the lock."""
        self._check_open()
        return self._readings.take(self._reading, count_max, bytes_max)

    def arrived(self, taken: Taken) -> None:
        """Note that what was taken is handed out for good."""
        self._readings.arrived(self._reading, taken.deliveries)

    def give_back(self, taken: Taken) -> int:
        """Give back what was taken and did not arrive; the answer is what to wait for."""
        return self._readings.give_back(self._reading, taken.deliveries)

    def received(self, taken: Taken) -> list[Any]:
        """Turn what was taken into messages; from the first one that is none on, it is given back.

        So what cannot be decoded stops a receiver with an error, again each time, and is not lost.
        """
        if self.decode is None:
            return taken.payloads
        messages: list[Any] = []
        try:
            for payload in taken.payloads:
                messages.append(self.decode(payload))  # noqa: PERF401 (those before a bad one count)
        except BaseException as error:
            if not isinstance(error, Exception):
                messages.clear()
            self._readings.give_back(self._reading, taken.deliveries[len(messages) :])
            if not messages:
                raise
        return messages

    def peek(self, count: int) -> list[Any]:
        """Look at what comes next."""
        self._check_open()
        check_count(count)
        payloads = self._readings.peek(self._reading, count)
        return payloads if self.decode is None else [self.decode(payload) for payload in payloads]

    def acknowledge(self, count: int) -> int:
        """Acknowledge; the answer is what to wait for, or 0."""
        self._check_open()
        if self._reading.auto_ack:
            raise Invalid(
                f"receiver {self.name!r} acknowledges by itself; open it with auto_ack=False"
            )
        return self._readings.acknowledge(self._reading, count)

    def skip(self) -> int:
        """Move behind damage."""
        self._check_open()
        return self._readings.skip(self._reading)

    def close(self) -> None:
        """Let go of the share."""
        if not self._closed:
            self._closed = True
            self.next = _none
            self._readings.close(self._reading)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this handle of receiver {self.name!r} was closed")


def check_count(count: int) -> None:
    """Refuse a number of messages that makes no sense."""
    if not isinstance(count, int) or count < 1:
        raise Invalid(f"{count!r} messages: ask for at least one")
