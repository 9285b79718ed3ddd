"""Stages for the pure parts of the file channel."""

from roost.channel.acks import Deliveries, Delivery
from roost.channel.cursors import (
    FILE_BYTES,
    SLOT_BYTES,
    Kind,
    Mark,
    copy_offset,
    decode_marks,
    encode_copy,
    free_slot,
)

MESSAGE_BYTES = 10


class Acks:
    """One receiver of a channel whose messages 0, 1, 2 … take ten bytes each."""

    def __init__(self) -> None:
        self._deliveries = Deliveries()
        self._cursor = 0
        self._held: set[int] = set()
        self._settled: set[int] = set()

    def check(self) -> None:
        """See that the position passes nothing but what is settled."""
        passed = set(range(self._position() // MESSAGE_BYTES))
        assert passed <= self._settled, "the position passed a message that is not settled"
        assert not passed & self._held, "the position passed a message that somebody holds"
        assert self._deliveries.unacknowledged == len(self._held)

    def receive(self) -> str:
        """Take the next message: one that was given back, or a fresh one."""
        delivery = self._deliveries.redeliver()
        if delivery is None:
            delivery = _delivery(self._cursor // MESSAGE_BYTES)
            self._deliveries.take(delivery.begin)
            self._cursor = delivery.end
        self._held.add(delivery.begin // MESSAGE_BYTES)
        return f"message {delivery.begin // MESSAGE_BYTES}"

    def ack(self, count: int) -> str:
        """Acknowledge the oldest messages that are held."""
        self._deliveries.acknowledge(count)
        done = sorted(self._held)[:count]
        self._held -= {*done}
        self._settled |= {*done}
        return self._standing()

    def settle(self, message: int) -> str:
        """Be done with one message, whatever came before it."""
        self._deliveries.settle(message * MESSAGE_BYTES)
        self._held.remove(message)
        self._settled.add(message)
        return self._standing()

    def give_back(self, message: int) -> str:
        """Return one message, so that somebody else gets it."""
        self._deliveries.give_back(_delivery(message))
        self._held.discard(message)
        self._settled.discard(message)
        return self._standing()

    def restart(self) -> str:
        """Lose all but the position, as a crash does."""
        self._cursor = self._position()
        self._deliveries = Deliveries()
        self._held = set()
        self._settled = set(range(self._cursor // MESSAGE_BYTES))
        return self._standing()

    def _position(self) -> int:
        return self._deliveries.position(self._cursor)

    def _standing(self) -> str:
        message = self._position() // MESSAGE_BYTES
        return f"position is before {message}, unacknowledged {len(self._held)}"


def _delivery(message: int) -> Delivery:
    begin = message * MESSAGE_BYTES
    return Delivery(begin=begin, end=begin + MESSAGE_BYTES, payload=b"%d" % message)


class Marks:
    """The file `offset` with some receivers; each `move` writes one copy of one slot."""

    def __init__(self) -> None:
        self._file = bytearray(FILE_BYTES)
        self._marks: dict[int, Mark] = {}
        self._moved: dict[str, list[int]] = {}
        self._newest = 0

    def check(self) -> None:
        """See that the file knows a receiver's last position or its last but one."""
        for mark in decode_marks(bytes(self._file)).values():
            assert mark.position in self._moved[mark.name][-2:]

    def join(self, name: str) -> str:
        """Give a new receiver a slot."""
        slot = free_slot(self._marks)
        self._marks[slot] = Mark(
            slot=slot, kind=Kind.RECEIVER, name=name, id=len(self._marks), sequence=0, position=0
        )
        self._moved[name] = [0]
        self._write(self._marks[slot])
        return f"slot {slot}"

    def move(self, name: str, position: int) -> str:
        """Write a receiver's position."""
        old = next(mark for mark in self._marks.values() if mark.name == name)
        mark = Mark(
            slot=old.slot,
            kind=old.kind,
            name=name,
            id=old.id,
            sequence=old.sequence + 1,
            position=position,
        )
        self._moved[name].append(position)
        self._marks[mark.slot] = mark
        self._write(mark)
        return f"copy at {self._newest}"

    def tear(self, keep: int) -> None:
        """Lose all but the first bytes of the copy that was written last."""
        end = self._newest + SLOT_BYTES
        self._file[self._newest + keep : end] = bytes(SLOT_BYTES - keep)

    def read(self) -> list[str]:
        """Read the file as a restart does."""
        self._marks = decode_marks(bytes(self._file))
        self._moved = {mark.name: [mark.position] for mark in self._marks.values()}
        return [f"{mark.name} at {mark.position}" for mark in self._marks.values()]

    def _write(self, mark: Mark) -> None:
        self._newest = copy_offset(mark.slot, mark.sequence)
        self._file[self._newest : self._newest + SLOT_BYTES] = encode_copy(mark)
