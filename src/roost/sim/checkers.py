"""Checks what a channel did against what it promised.

A `Book` is told what happened, by those who send and receive in a simulation, and raises
`Violation` at the first thing that no channel may do. It knows nothing of how a channel works; it
knows positions, payloads and outcomes. Payloads are unlike one another, so that each can be found
again. The names of the checks are those of the promises in `ARCHITECTURE.md`:

- *acked is durable* (1): what was acknowledged is read back at its position, byte for byte; after a
  loss of power in the modes that do not sync, only what was shown as durable must be.
- *a position never holds two values* (2), for as long as it is not lost that way.
- *refused stays refused* (3): a message that was refused never appears, nor one never sent.
- *a gap-free prefix* (5): a receiver sees every message in order, and in mode `fsync` none that
  vanishes later.
- *corruption is never served* (7): only bytes that were sent come out, and only a range that was
  harmed is ever passed over.
- *nothing needed is deleted* (8): a receiver that comes back finds all that it had not done with.
"""

import math

FRAME_BYTES = 8


class Violation(Exception):
    """A promise was broken; the message says which, and by what."""


class Reader:
    """What one receiver has seen, and where it must go on."""

    def __init__(self, name: str, *, auto_ack: bool, start: int) -> None:
        self.name = name
        self.auto_ack = auto_ack
        self.next = start
        self.done_upto = start
        self.sure_upto = start
        self.asked_upto = start
        self.asked = 0
        self.on_the_way = 0
        self.fresh = False


class Book:
    """All that is known about one channel."""

    def __init__(self, *, fsync: bool) -> None:
        self._fsync = fsync
        self._offered: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._at: dict[int, bytes] = {}
        self._placed: dict[bytes, int] = {}
        self._readers: dict[str, Reader] = {}
        self._harmed: list[tuple[int, int]] = []
        self._durable = 0
        self.acked = 0
        self.delivered = 0

    # Sending

    def offered(self, payload: bytes) -> None:
        """Note that a send of this message began; until more is known its outcome is open."""
        assert payload not in self._offered, "the scenario sent a payload twice"
        self._offered.add(payload)

    def accepted(self, payload: bytes, position: int) -> None:
        """Note that a send returned."""
        self.acked += 1
        self._place(payload, position, "a send returned")

    def refused(self, payload: bytes) -> None:
        """Note that a send was refused with a definite error."""
        self._refused.add(payload)
        if payload in self._placed:
            raise Violation(f"refused stays refused: {_name(payload)} had been seen before")

    def durable(self, position: int) -> None:
        """Note what the channel shows as durable."""
        self._durable = max(self._durable, position)

    def _place(self, payload: bytes, position: int, where: str) -> None:
        """Fix where a message stands: from here on it stands there and nothing else does."""
        if payload not in self._offered:
            raise Violation(f"corruption is never served: {where}: {_name(payload)} was never sent")
        if payload in self._refused:
            raise Violation(f"refused stays refused: {where}: {_name(payload)} at {position}")
        if self._placed.setdefault(payload, position) != position:
            raise Violation(
                f"a position never holds two values: {where}: {_name(payload)} at {position}, and "
                f"at {self._placed[payload]} before"
            )
        if self._at.setdefault(position, payload) != payload:
            raise Violation(
                f"a position never holds two values: {where}: {position} holds {_name(payload)}, "
                f"and held {_name(self._at[position])} before"
            )

    # Receiving

    def reader(self, name: str, *, auto_ack: bool, start: int) -> None:
        """Note a new receiver, which must see everything from `start` on."""
        self._readers[name] = Reader(name, auto_ack=auto_ack, start=start)

    def knows(self, name: str) -> bool:
        """Tell whether a receiver was noted."""
        return name in self._readers

    def asked(self, name: str, count: int) -> None:
        """Note that a receiver asked for messages; a crash now may take up to so many with it."""
        self._readers[name].asked = count

    def in_doubt(self, name: str) -> None:
        """Note that a receive ended with `Unknown`: a crash later may take what it asked for."""
        reader = self._readers[name]
        reader.on_the_way, reader.asked = reader.on_the_way + reader.asked, 0

    def received(self, name: str, payloads: list[bytes], *, position: int) -> None:
        """Note what a receive returned, in order; before it the receiver stood at `position`."""
        reader = self._readers[name]
        self._go_on(reader, position)
        for payload in payloads:
            self.delivered += 1
            self._place(payload, reader.next, f"receiver {reader.name} at {reader.next}")
            reader.next += FRAME_BYTES + len(payload)
        reader.asked = 0
        if reader.auto_ack:
            reader.done_upto = reader.sure_upto = reader.next

    def _go_on(self, reader: Reader, position: int) -> None:
        """Take a receiver that was opened anew from where it stands."""
        if reader.fresh:
            self._check_restart(reader, position)
            reader.next, reader.fresh, reader.on_the_way = position, False, 0

    def _check_restart(self, reader: Reader, position: int) -> None:
        """Check where a receiver goes on after its handle was closed or the process ended."""
        if position < reader.sure_upto:
            raise Violation(
                f"acked is durable: receiver {reader.name} goes on at {position}, though "
                f"everything before {reader.sure_upto} was acknowledged"
            )
        end = self._reach(reader)
        if position > end and not self._passed_over(end, position):
            raise Violation(
                f"nothing needed is deleted: receiver {reader.name} goes on at {position} and "
                f"passes over what stands at {end}"
            )

    def _reach(self, reader: Reader) -> float:
        """Say how far a receiver's position may have come with what was on its way at a crash."""
        end = reader.done_upto
        for _ in range(reader.on_the_way if reader.auto_ack else 0):
            if end not in self._at:
                return math.inf  # nobody knows what stood there
            end += FRAME_BYTES + len(self._at[end])
        return end

    def acknowledging(self, name: str, payloads: list[bytes]) -> None:
        """Note that an ack of the oldest messages was asked for: from now on it may count."""
        reader = self._readers[name]
        for payload in payloads:
            reader.asked_upto = self._placed[payload] + FRAME_BYTES + len(payload)
        reader.done_upto = max(reader.done_upto, reader.asked_upto)

    def acknowledged(self, name: str) -> None:
        """Note that the ack returned: it must count."""
        reader = self._readers[name]
        reader.sure_upto = max(reader.sure_upto, reader.asked_upto)

    def reopened(self, name: str) -> None:
        """Note that a receiver's last handle went: the next receive tells where it goes on."""
        self._readers[name].fresh = True

    def skipped(self, name: str, size: int, *, position: int) -> None:
        """Note that a receiver, then at `position`, was moved over damage."""
        reader = self._readers[name]
        self._go_on(reader, position)
        if size and not self._passed_over(reader.next, reader.next + size):
            raise Violation(
                f"corruption is never served: receiver {reader.name} passed over {reader.next} to "
                f"{reader.next + size}, where nothing was harmed"
            )
        reader.next += size

    # Restarts

    def harmed(self, start: int, stop: int) -> None:
        """Note that bytes of this range of positions were changed behind the channel's back."""
        self._harmed.append((start, stop))

    def corrupt(self, what: str) -> None:
        """Note that damage was reported: there must be some."""
        if not self._harmed:
            raise Violation(f"acked is durable: nothing was harmed, and yet: {what}")

    def _passed_over(self, start: float, stop: float) -> bool:
        return any(low < stop and start < high for low, high in self._harmed)

    def restarted(self, *, lossy: bool, tail: int) -> None:
        """Note that the channel was opened again, and ends at `tail` now.

        `lossy` says that the system may have forgotten what was not synced.
        """
        may_lose = lossy and not self._fsync
        for position in sorted(self._at):
            if position < tail:
                continue
            if self._passed_over(position, position + 1):
                pass
            elif not may_lose:
                raise Violation(
                    f"acked is durable: {_name(self._at[position])} stood at {position}, and the "
                    f"channel ends at {tail}"
                )
            elif position < self._durable:
                raise Violation(
                    f"acked is durable: position {position} is lost, though everything before "
                    f"{self._durable} was shown as durable"
                )
            self._placed.pop(self._at.pop(position))
        for reader in self._readers.values():
            reader.fresh = True
            reader.on_the_way, reader.asked = reader.on_the_way + reader.asked, 0
            if may_lose:
                reader.sure_upto = 0
                reader.done_upto = min(reader.done_upto, tail)
                reader.next = min(reader.next, tail)
        self.durable(tail)

    def audited(self, content: list[tuple[int, bytes]], *, head: int, tail: int) -> None:
        """Check all that stands in the channel, from its head to its end."""
        for position, payload in content:
            self._place(payload, position, f"an audit at {position}")
        held = {position for position, _ in content}
        for position, payload in self._at.items():
            harmed = self._passed_over(position, position + FRAME_BYTES + len(payload))
            if head <= position < tail and position not in held and not harmed:
                raise Violation(f"acked is durable: {_name(payload)} is gone from {position}")
        for reader in self._readers.values():
            if head > self._reach(reader) and not self._passed_over(reader.done_upto, head):
                raise Violation(
                    f"nothing needed is deleted: the channel begins at {head}, and receiver "
                    f"{reader.name} is at {reader.done_upto}"
                )

    def drained(self, *, tail: int) -> None:
        """Check, at the end, that every receiver has seen everything."""
        for reader in self._readers.values():
            if reader.next != tail and not (reader.fresh and self._reach(reader) >= tail):
                raise Violation(
                    f"a gap-free prefix: receiver {reader.name} ended at {reader.next}, and the "
                    f"channel at {tail}"
                )


def _name(payload: bytes) -> str:
    return f"message {payload[:12]!r}"
