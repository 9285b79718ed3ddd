"""What lies between simulated hosts: delays, mishaps, ways that are blocked or clogged."""

from collections.abc import Callable
from contextvars import Context
from math import log
from typing import Any
from zlib import crc32

import msgspec

from roost.host.random import Rng
from roost.sim.handles import SimHandle
from roost.sim.loop import SimLoop
from roost.sim.timeline import Timeline


class NetFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulated network misbehaves. By default it only takes its time.

    What has no unit is a chance from 0 to 1, drawn for each piece of bytes that is sent.
    """

    delay_mean_s: float = 0.0005
    """The mean of the exponential time that a piece is under way."""

    delays_long: float = 0.0
    """It takes a hundred times as long; what was sent after it waits behind it."""

    loses: float = 0.0
    """It is lost and sent again, perhaps several times; at worst the connection is given up."""

    splits: float = 0.0
    """It arrives as two, the second one later."""

    lingers: float = 0.0
    """Drawn for each end of a connection: what is still under way arrives seconds later, and the
    bytes of a new connection may come before it."""

    window_bytes: int = 256 << 10
    """How much may be under way or unread before a sender has to keep it in its own buffer."""

    give_up_s: float = 15.0
    """How long unanswered bytes are sent again before the connection is lost (`TimeoutError`)."""


class Way:
    """What lies between two hosts in one direction."""

    def __init__(self) -> None:
        self.blocked = False
        self.clogged_until = 0.0
        self.bytes_per_s = 0.0
        self._free_at = 0.0

    def hinders(self, now: float) -> bool:
        """Tell whether more than delay happens to what goes this way."""
        return self.blocked or self.clogged_until > now or bool(self.bytes_per_s)

    def passage(self, size: int, now: float) -> float:
        """Take `size` bytes that set out now, and tell when they are through."""
        begin = max(now, self.clogged_until)
        if not self.bytes_per_s:
            return begin
        self._free_at = max(begin, self._free_at) + size / self.bytes_per_s
        return self._free_at


class Station:
    """A host as the network sees it; it answers nothing while it is down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True


class Medium:
    """What all connections of one world share."""

    def __init__(
        self,
        timeline: Timeline,
        rng: Rng,
        kernel: SimLoop,
        *,
        count: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self.timeline = timeline
        self.rng = rng
        self.kernel = kernel
        """The loop on which the kernels of all hosts act; no process ever stops it."""
        self.count = count
        self.tell = tell
        self.hindered = False
        """Whether any way is more than slow; connections look no further while none is."""
        self.carried = 0
        """The checksum of all bytes that were read, in the order in which they were."""
        self.faults = NetFaults()
        self.mishaps = 0.0
        self.delay_mean_s = self.faults.delay_mean_s
        self._ways: dict[tuple[str, str], Way] = {}

    def misbehave(self, faults: NetFaults) -> None:
        """Change how the network misbehaves, from now on."""
        self.faults = faults
        self.mishaps = faults.delays_long + faults.loses + faults.splits
        self.delay_mean_s = faults.delay_mean_s

    def way(self, source: str, target: str) -> Way:
        """Find the way from one host to another."""
        return self._ways.setdefault((source, target), Way())

    def look(self) -> None:
        """Look whether any way hinders; called when one has changed."""
        now = self.timeline.now
        self.hindered = any(way.hinders(now) for way in self._ways.values())

    def clear(self) -> None:
        """Open all ways."""
        for way in self._ways.values():
            way.blocked = False
            way.clogged_until = 0.0
            way.bytes_per_s = 0.0
        self.look()

    def delay(self) -> float:
        """Draw how long something small is under way."""
        delay = -log(1.0 - self.rng.random()) * self.delay_mean_s
        return delay * 100 if self.rng.random() < self.faults.delays_long else delay

    def post(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Let the kernels do something at an instant."""
        self.timeline.at(when, SimHandle(callback, args, self.kernel, Context()))

    def record(self, piece: bytes) -> None:
        """Make what was read a part of the history."""
        self.carried = crc32(piece, self.carried)
