"""What a channel should hold and say, as a list of messages and a few numbers.

The model knows what was acknowledged, and what a crash may take or leave. Where the channel may
choose (what was in flight, what was not yet synced) it says what is allowed, and `recovered` takes
over what the channel chose.
"""

import msgspec

from roost.channel.stat import ChannelStat, ReceiverStat
from roost.types import Durability

FRAME_BYTES = 8


class Message(msgspec.Struct, frozen=True):
    """One message and where it stands."""

    begin: int
    payload: bytes

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.begin + FRAME_BYTES + len(self.payload)


class Reader(msgspec.Struct):
    """One receiver: `cursor` is what it reads next, `out` what it holds unacknowledged."""

    name: str
    id: int
    cursor: int
    floor: int
    """It is known that at least this position is durable."""
    auto_ack: bool = True
    handles: int = 0
    out: list[int] = msgspec.field(default_factory=list)
    moving: bool = False
    """A call that moves it has begun and not returned."""

    @property
    def position(self) -> int:
        """The first message that is not acknowledged."""
        return self.out[0] if self.out else self.cursor


class Model(msgspec.Struct):
    """One channel, as it should be."""

    durability: Durability = "fsync"
    messages: list[Message] = msgspec.field(default_factory=list)
    in_flight: list[Message] = msgspec.field(default_factory=list)
    readers: dict[str, Reader] = msgspec.field(default_factory=dict)
    in_doubt: str = ""
    """The receiver that is being made or removed: nobody knows whether it is there."""
    durable: int = 0
    head: int = 0
    incarnation: int = 0

    @property
    def end(self) -> int:
        """Where the next message goes."""
        return self.messages[-1].end if self.messages else 0

    def next_for(self, cursor: int) -> list[Message]:
        """List what a reader at this position has before it."""
        return [message for message in self.messages if message.begin >= cursor]

    # Sending

    def sending(self, payloads: list[bytes]) -> None:
        """Note that a send has begun."""
        begin = self.end
        for payload in payloads:
            self.in_flight.append(Message(begin, payload))
            begin = self.in_flight[-1].end

    def sent(self) -> None:
        """Note that it returned."""
        self.messages += self.in_flight
        self.in_flight = []

    def refused(self) -> None:
        """Note that a call raised an error which says that nothing was done."""
        self.in_flight = []
        for reader in self.readers.values():
            reader.moving = False

    # Receiving

    def took(self, reader: Reader, count: int) -> None:
        """Note that a receive returned so many messages."""
        taken = self.next_for(reader.cursor)[:count]
        reader.cursor = taken[-1].end if taken else reader.cursor
        if not reader.auto_ack:
            reader.out += [message.begin for message in taken]
        self.kept(reader)

    def kept(self, reader: Reader) -> None:
        """Note that a call that moves a position returned."""
        reader.moving = False
        if self.durability == "fsync":
            reader.floor = reader.position

    def let_go(self, reader: Reader) -> None:
        """Note that a handle was closed."""
        reader.handles -= 1
        if not reader.handles:
            reader.cursor = reader.position
            reader.out = []

    def all_durable(self) -> None:
        """Note that everything was synced."""
        self.durable = self.end
        self.positions_durable()

    def positions_durable(self) -> None:
        """Note that the file with the positions was synced."""
        for reader in self.readers.values():
            reader.floor = reader.position

    # What must hold

    def check(self, stat: ChannelStat) -> None:
        """Compare an open channel with what it should be."""
        assert stat.failure == ""
        assert stat.tail == self.end
        assert self.durable <= stat.durable <= stat.tail
        if self.durability == "fsync":
            assert stat.durable == stat.tail
        lowest = min((reader.position for reader in self.readers.values()), default=self.head)
        assert self.head <= stat.head <= max(lowest, self.head)
        assert stat.head in {self.end, *(message.begin for message in self.messages)}
        assert stat.incarnation == self.incarnation
        self.head, self.durable = stat.head, stat.durable
        assert sorted(map(_comparable, stat.receivers)) == sorted(
            (r.name, r.id, r.position, self.end - r.position, len(r.out), bool(r.handles))
            for r in self.readers.values()
        )

    # What may have become of it

    def lost_power(self) -> None:
        """Say that what was not durable may be gone."""
        if self.durability == "fsync":
            self.stayed_on()

    def stayed_on(self) -> None:
        """Say that nothing is gone that a call returned for."""
        self.all_durable()

    def recovered(self, stat: ChannelStat, content: list[Message]) -> None:
        """Compare what was recovered with what is allowed, and take it over."""
        self._check_content(stat, content)
        found = {reader.name: reader for reader in stat.receivers}
        assert found.keys() | {self.in_doubt} == self.readers.keys() | {self.in_doubt}
        for reader in self.readers.values():
            if reader.name != self.in_doubt:
                self._check_reader(reader, found[reader.name], stat)
        self._check_incarnation(stat)
        self.messages = [m for m in self.messages if m.end <= stat.head] + content
        self.in_flight = []
        self.readers = {
            reader.name: Reader(
                name=reader.name, id=reader.id, cursor=reader.position, floor=reader.position
            )
            for reader in found.values()
        }
        self.head, self.durable, self.incarnation = stat.head, stat.tail, stat.incarnation

    def _check_content(self, stat: ChannelStat, content: list[Message]) -> None:
        known = self.messages + self.in_flight
        assert not [finding for finding in stat.findings if finding.kind == "corrupt"]
        assert content == [m for m in known if stat.head <= m.begin < stat.tail]
        assert self.durable <= stat.tail == (content[-1].end if content else stat.head)

    def _check_reader(self, reader: Reader, found: ReceiverStat, stat: ChannelStat) -> None:
        assert found.id == reader.id
        assert stat.head <= found.position
        assert min(reader.floor, stat.tail) <= found.position
        assert found.position <= (stat.tail if reader.moving else reader.position)
        known = self.messages + self.in_flight
        assert found.position in {stat.tail, *(message.begin for message in known)}

    def _check_incarnation(self, stat: ChannelStat) -> None:
        ahead = any(reader.floor > stat.tail for reader in self.readers.values())
        lost = any(finding.kind == "lost" for finding in stat.findings)
        assert stat.incarnation >= self.incarnation + (ahead or lost)
        if self.durability == "fsync":
            assert not lost


def _comparable(stat: ReceiverStat) -> tuple[str, int, int, int, int, bool]:
    return (
        stat.name,
        stat.id,
        stat.position,
        stat.behind_bytes,
        stat.unacknowledged,
        stat.open,
    )
