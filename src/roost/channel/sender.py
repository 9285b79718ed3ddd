"""The sending end, for threads and for asyncio tasks.

The usual send is one compiled store into a mapped window, without the lock; the two classes differ
only in how they wait where the mode asks them to.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from roost.channel.machine import Machine
from roost.errors import Invalid
from roost.segments.format import FRAME_BYTES
from roost.segments.kernel import frames
from roost.wire.codec import Codec

T = TypeVar("T")


def _as_payload(message: Any, length_max: int) -> bytes:
    """Check what the fast path refused; the answer is bytes that can be sent."""
    if isinstance(message, bytearray | memoryview):
        message = bytes(message)
    if not isinstance(message, bytes):
        raise Invalid(f"this channel sends bytes, not {type(message).__name__}; or give it a codec")
    if not message:
        raise Invalid("an empty message cannot be sent: the channel's format has no room for one")
    if len(message) > length_max:
        raise Invalid(
            f"the message has {len(message)} bytes; message_bytes_max={length_max} are allowed"
        )
    return message


class Sender(Generic[T]):
    """Sends messages into a channel; any number of threads may share one."""

    __slots__ = ("_append", "_arrivals", "_encode", "_fsync", "_machine", "_quiet")

    def __init__(self, machine: Machine, codec: Codec[T]) -> None:
        self._machine: Final = machine
        self._encode: Final = codec.encode
        self._append: Final = machine.tail.store
        self._arrivals: Final = machine.arrivals.queue
        self._fsync: Final = machine.settings.durability == "fsync"
        self._quiet: Final = machine.settings.durability == "os"

    def send(self, message: T) -> int:
        """Send one message and return its position; when, the channel's `durability` says.

        Raises `NoRoom` on a full disk (nothing was sent), `Unknown` if a write or the sync that
        should have made it durable failed, `Invalid` for what the codec or the limits refuse.
        """
        payload: Any = message if self._encode is None else self._encode(message)
        try:
            begin = self._append(payload)
        except OSError as error:
            self._machine.lost_page(error)
        if begin < 0:
            payload = _as_payload(payload, self._machine.settings.message_bytes_max)
            begin = self._machine.append_slowly(payload)
        if self._fsync:
            self._machine.wait_durable(begin + FRAME_BYTES + len(payload))
        elif self._arrivals or not self._quiet:
            self._machine.after_send()
        return begin

    def send_many(self, messages: Iterable[T]) -> int:
        """Send messages one behind the other, and return the position of the first.

        They are written with one system call; in mode `fsync` they share one sync. It is all or
        nothing but for a crash, which may keep some of the first.
        """
        begin, end = self._machine.append_many(_framed(self._machine, self._encode, messages))
        if self._fsync:
            self._machine.wait_durable(end)
        else:
            self._machine.after_send()
        return begin


class AsyncSender(Generic[T]):
    """Sends messages into a channel from asyncio tasks; any number of them may share one."""

    __slots__ = ("_append", "_arrivals", "_encode", "_fsync", "_machine", "_quiet")

    def __init__(self, machine: Machine, codec: Codec[T]) -> None:
        self._machine: Final = machine
        self._encode: Final = codec.encode
        self._append: Final = machine.tail.store
        self._arrivals: Final = machine.arrivals.queue
        self._fsync: Final = machine.settings.durability == "fsync"
        self._quiet: Final = machine.settings.durability == "os"

    async def send(self, message: T) -> int:
        """Send one message and return its position, as `Sender.send` does.

        Cancelled while it waits for the sync, the message may or may not become durable; the
        `CancelledError` carries a note that says so, with the position.
        """
        payload: Any = message if self._encode is None else self._encode(message)
        try:
            begin = self._append(payload)
        except OSError as error:
            self._machine.lost_page(error)
        if begin < 0:
            payload = _as_payload(payload, self._machine.settings.message_bytes_max)
            if self._machine.tail.full:
                await _roll(self._machine)
            begin = self._machine.append_slowly(payload)
        if self._fsync:
            await _durable(self._machine, begin, begin + FRAME_BYTES + len(payload))
        elif self._arrivals or not self._quiet:
            self._machine.after_send()
        return begin

    async def send_many(self, messages: Iterable[T]) -> int:
        """Send messages one behind the other, as `Sender.send_many` does."""
        framed = _framed(self._machine, self._encode, messages)
        if self._machine.tail.full:
            await _roll(self._machine)
        begin, end = self._machine.append_many(framed)
        if self._fsync:
            await _durable(self._machine, begin, end)
        else:
            self._machine.after_send()
        return begin


def _framed(machine: Machine, encode: Any, messages: Iterable[Any]) -> bytes:
    """Frame messages; each is looked at only if the kernel refuses one or one may be too long."""
    length_max = machine.settings.message_bytes_max
    payloads = list(messages) if encode is None else [encode(message) for message in messages]
    if not payloads:
        raise Invalid("send_many() of no messages; give it at least one")
    try:
        framed = frames(payloads)
    except (TypeError, ValueError):
        return frames([_as_payload(payload, length_max) for payload in payloads])
    if len(framed) > length_max:
        for payload in payloads:
            _as_payload(payload, length_max)
    return framed


async def _durable(machine: Machine, begin: int, upto: int) -> None:
    data, durables = machine.sends, machine.durables
    while data.group.durable < upto:
        future = durables.join(upto)
        if not data.group.busy:
            data.request()
        try:
            await future
        except asyncio.CancelledError as error:
            durables.leave(upto, future)
            error.add_note(f"the message at position {begin} may or may not become durable")
            raise
        if data.group.durable < upto:
            machine.standing.check_settling("what was sent")


async def _roll(machine: Machine) -> None:
    """Begin a new segment off the event loop, since that syncs."""
    await machine.off_loop(machine.roll_if_full)
