"""The receiving end for threads.

The usual receive in modes `os` and `interval` is one compiled step of a cursor, which keeps the
position by itself, without the lock.
"""

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from roost.channel.handle import BATCH_BYTES_MAX, Handle, check_count
from roost.channel.readings import Taken
from roost.errors import Closed

T = TypeVar("T")
_RAISE: Final[Any] = object()


class Receiver(Generic[T]):
    """Receives from a channel; any number of threads may share one, and compete."""

    __slots__ = ("_handle", "_machine", "_readings", "_standing", "_timed")

    def __init__(self, handle: Handle[T]) -> None:
        self._handle: Final = handle
        self._machine: Final = handle.machine
        self._readings: Final = handle.machine.readings
        self._standing: Final = handle.machine.standing
        self._timed: Final = handle.machine.settings.durability == "interval"

    @property
    def name(self) -> str:
        """The receiver's name; handles of the same name share one position."""
        return self._handle.name

    @property
    def id(self) -> int:
        """The receiver's number, unlike that of any other receiver of this channel."""
        return self._handle.id

    @property
    def position(self) -> int:
        """The position of the first message that is not acknowledged."""
        return self._handle.position

    @property
    def unack_count(self) -> int:
        """How many messages were received and not acknowledged."""
        return self._handle.unacknowledged

    def recv(self, timeout: float | None = None) -> T:
        """Receive the next message, waiting for it; `TimeoutError` if none comes in time.

        Raises `Corrupt` where the next message is damaged, again each time, until
        `skip_corrupt` is called.
        """
        try:
            payload: Any = self._handle.next()
        except OSError:  # a page is lost: the other way looks what is wrong
            payload = None
        if payload is None:
            (payload,) = self._wait_for(1, BATCH_BYTES_MAX, timeout)
        elif self._timed:
            self._readings.after_receive()
        message: T = payload
        return message

    def try_recv(self, default: Any = None) -> T | Any:
        """Receive the next message if it is there; otherwise answer `default`."""
        messages = self._kept(self._handle.take(1, BATCH_BYTES_MAX))
        return messages[0] if messages else default

    def recv_many(
        self, count_max: int, timeout: float | None = None, *, bytes_max: int = BATCH_BYTES_MAX
    ) -> list[T]:
        """Receive what is there, up to `count_max` messages, waiting for the first.

        The position is kept once for all of them. At least one comes, or `TimeoutError`.
        """
        check_count(count_max)
        return self._wait_for(count_max, max(1, bytes_max), timeout)

    def _wait_for(self, count_max: int, bytes_max: int, timeout: float | None) -> list[T]:
        clock = self._machine.clock
        deadline = None if timeout is None else clock.now() + timeout
        while True:
            turn = self._machine.arrivals.turn
            messages = self._kept(self._handle.take(count_max, bytes_max))
            if messages:
                return messages
            self._standing.check_arriving()
            left = None if deadline is None else deadline - clock.now()
            if left is not None and left <= 0:
                raise TimeoutError(f"no message for {self.name!r} within {timeout} s")
            self._machine.arrivals.wait(self._handle.awaited, left, turn=turn)

    def _kept(self, taken: Taken) -> list[T]:
        """Wait until the position is as durable as the mode promises, or give all back."""
        if taken.kept:
            try:
                self._readings.wait_kept(taken.kept)
            except KeyboardInterrupt:
                # Durably, since the position that passes these messages may be durable by now.
                self._readings.wait_kept(self._handle.give_back(taken))
                raise
            except BaseException:
                self._handle.give_back(taken)
                raise
        elif taken.payloads:
            self._readings.after_receive()
        messages = self._handle.received(taken)
        if taken.deliveries:
            self._handle.arrived(taken)
        return messages

    def __iter__(self) -> Iterator[T]:
        """Receive for ever, until the channel or this handle is closed."""
        while True:
            try:
                message = self.recv()
            except Closed:
                return
            yield message

    def peek(self, default: Any = None) -> T | Any:
        """Look at the next message without receiving it; `default` if there is none."""
        seen = self._handle.peek(1)
        return seen[0] if seen else default

    def peek_many(self, count_max: int) -> list[T]:
        """Look at the next messages without receiving them."""
        return self._handle.peek(count_max)

    def ack(self, count: int = 1) -> None:
        """Acknowledge the `count` oldest messages received: they do not come again.

        In mode `fsync` that is durable when the call returns.
        """
        kept = self._handle.acknowledge(count)
        if kept:
            self._readings.wait_kept(kept)
        else:
            self._readings.after_receive()

    def skip_corrupt(self) -> int:
        """Go on behind the damage at the position; answer how many bytes are passed over."""
        return self._handle.skip()

    def close(self) -> None:
        """Let go of this handle. What was not acknowledged comes again to the next one."""
        self._handle.close()

    def __enter__(self) -> "Receiver[T]":
        """Use the receiver for a while."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handle."""
        self.close()
