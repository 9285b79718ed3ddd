"""What the clients of the scenario `node` ask for, each on a host of its own.

A client connects, asks for this and that, hangs up or is cut off, and connects again. Which kinds
of requests there are in a seed, and how frequent, is drawn by swarm. All of them are told to the
book before they are sent and when they are answered, and nothing else is said of them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

import msgspec

from roost.errors import RoostError, Unknown
from roost.host.net import Address
from roost.host.seams import Seams
from roost.node.client import NodeClient
from roost.rpc.client import Connection
from roost.sim.checkers import Violation
from roost.sim.ledger_book import LedgerBook
from roost.sim.ledger_page import Attempt
from roost.sim.scenarios.node_asks import Asks
from roost.sim.scenarios.node_life import CLUSTER
from roost.sim.world import World
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello, Read

NODE: Final = Address("node", 7000)
HELLO: Final = Hello(version=PROTOCOL_VERSION, cluster=CLUSTER, role="client", name="client")
# Requests, and how frequent they are where they are not left out.
KINDS: Final = {
    "add": 10.0,
    "add again": 3.0,
    "add other bytes": 2.0,
    "add nonsense": 1.0,
    "write back": 2.0,
    "read": 5.0,
    "long poll": 1.0,
    "state": 1.5,
    "list": 0.4,
    "verify": 0.4,
    "fence": 0.7,
    "fenced read": 1.0,
    "close": 0.4,
    "delete": 0.4,
    "hang up": 0.5,
}
ENDS: Final = ("fence", "fenced read", "close", "delete")
"""What a ledger takes no adds after."""
ALWAYS: Final = ("add", "read")
PATIENCE_S: Final = 3.0
IN_FLIGHT_MAX: Final = 30


class Orders(msgspec.Struct, frozen=True):
    """What the clients of one seed do."""

    kinds: dict[str, float]
    ledgers: int
    order: str
    payload_bytes_max: int
    batch: int
    pause_s: float
    ends: float
    """The chance that a request is about a ledger that was ended."""


class Target:
    """A ledger that is written to."""

    def __init__(self, ledger: int, epoch: int, rng: Random, order: str) -> None:
        self.ledger = LedgerId(ledger)
        self.epoch = Epoch(epoch)
        self.ended = False
        self.tried: list[tuple[EntryId, bytes]] = []
        self._ids = fresh_ids(rng, order)

    def fresh(self) -> EntryId:
        """Give the next id that nobody has used."""
        return next(self._ids)


def fresh_ids(rng: Random, order: str) -> Iterator[EntryId]:
    """Give ids, each once, as they come to a node: with holes, and not in their order."""
    step = rng.randrange(2, 4) if order == "striped" else 1
    at = 0
    while True:
        window = [EntryId(at + number * step) for number in range(8)]
        if order != "in order":
            rng.shuffle(window)
        yield from window
        at = window[-1] if order == "in order" else max(window)
        at += step if rng.random() < 0.9 else rng.choice([step, 70, 300])


class Work:
    """What all clients of one seed share: orders, the ledgers, and what is known of them."""

    def __init__(self, world: World, orders: Orders, book: LedgerBook) -> None:
        self.world = world
        self.orders = orders
        self.book = book
        self.rng = world.rng("work")
        self.targets: list[Target] = []
        self.left = 0
        """How many requests may still be begun in this life of the node."""
        self.over = False
        self.used = asyncio.Event()
        """Set when none are left."""
        self._mark = (0, self.used)
        self._kinds = [*orders.kinds]
        self._weights = [*orders.kinds.values()]
        self.open_one()

    def grant(self, requests: int) -> None:
        """Let so many requests be begun."""
        self.left = requests
        self.used.clear()

    def mark(self, left: int) -> asyncio.Event:
        """Give an event of the moment at which so few are left."""
        self._mark = (left, asyncio.Event())
        if self.left <= left:
            self._mark[1].set()
        return self._mark[1]

    def next_kind(self) -> str | None:
        """Draw what is asked for next; None for nothing now."""
        if not self.left:
            self.used.set()
            return None
        self.left -= 1
        if self.left <= self._mark[0]:
            self._mark[1].set()
        (kind,) = self.rng.choices(self._kinds, self._weights)
        return kind

    def target(self) -> Target:
        """Draw a ledger, mostly one that has not ended."""
        going = [target for target in self.targets if not target.ended]
        if not going or self.rng.random() < self.orders.ends:
            return self.rng.choice(self.targets)
        return self.rng.choice(going)

    def open_one(self) -> None:
        """Let there be another ledger, if there may."""
        if len(self.targets) < self.orders.ledgers:
            # Ids that are far apart, and some that belong to one flush worker.
            ledger = len(self.targets) * self.rng.choice([1, 2, 3]) + 10 * len(self.targets)
            target = Target(ledger, self.rng.randrange(1, 4), self.rng, self.orders.order)
            self.targets.append(target)

    def ends(self, target: Target) -> None:
        """Note that a ledger will hardly take more; there may be another."""
        target.ended = True
        self.open_one()

    def payload(self, target: Target, entry: EntryId, version: int) -> bytes:
        """Make a payload unlike all others."""
        name = f"{target.ledger}.{entry}.{version}."
        size = self.rng.randrange(len(name), max(len(name) + 1, self.orders.payload_bytes_max))
        return name.encode().ljust(size, b"-")[: self.orders.payload_bytes_max]


class Client:
    """One client; `main` is its process."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self.done = asyncio.Event()
        """Set when it has nothing to do any more, and everything was answered."""
        self._work = work
        self._book = work.book
        self._rng = work.world.rng(name)
        self._adds: dict[int, Attempt] = {}
        self._tag = 0
        self._settled: asyncio.Event

    async def main(self, seams: Seams) -> None:
        """Ask for this and that, for ever."""
        self._settled = asyncio.Event()
        try:
            while True:
                try:
                    connection = await Connection.open(seams.net, NODE, HELLO, timeout_s=2.0)
                except (RoostError, OSError):
                    await asyncio.sleep(self._rng.random() * 0.02)
                    continue
                try:
                    await self._talk(connection)
                finally:
                    connection.abort()
                    await connection.lost.wait()
        except Violation as violation:
            self._work.world.violate(str(violation))

    async def _talk(self, connection: Connection) -> None:
        node = NodeClient(connection)
        while not connection.lost.is_set():
            kind = self._work.next_kind()
            if kind is None:
                await self._wait_for_adds()
                if self._adds:
                    return
                if self._work.over:
                    self.done.set()
                await asyncio.sleep(0.01 + self._rng.random() * 0.02)
                continue
            self._work.world.count(kind)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._ask(node, kind)
            except TimeoutError:
                return
            except RoostError as error:
                self._work.world.trace("refused", client=self.name, kind=kind, error=str(error))
            if kind == "hang up":
                return
            if len(self._adds) > IN_FLIGHT_MAX:
                await self._wait_for_adds()
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.random() * self._work.orders.pause_s)

    async def _ask(self, node: NodeClient, kind: str) -> None:
        target, rng = self._work.target(), self._rng
        ledger, asks = target.ledger, Asks(node, self._book)
        if kind in ENDS:
            # What is sent right before and right behind it is what it may get wrong.
            self._work.ends(target)
            for _ in range(rng.randrange(3)):
                self._add_one(node, target, "add")
            for _ in range(rng.randrange(3)):
                asyncio.get_running_loop().call_soon(self._add_one, node, target, "add")
        match kind:
            case "read" | "fenced read" | "long poll":
                await asks.read(self._reading(target, kind))
            case "state":
                await asks.state(ledger)
            case "verify":
                await asks.verify(ledger)
            case "list":
                await asks.listing()
            case "fence" | "close" | "delete":
                await self._end(asks, target, kind)
            case "hang up":
                pass
            case _:
                await self._add(node, target, kind)

    async def _end(self, asks: Asks, target: Target, kind: str) -> None:
        ledger, rng = target.ledger, self._rng
        if kind == "fence":
            await asks.fence(ledger, Epoch(target.epoch + rng.randrange(1, 4)))
        elif kind == "close":
            last = rng.choice([0, 0, 1, 5]) + self._book.highest_tried(ledger)
            await asks.close(ledger, EntryId(last))
        else:
            await asks.delete(ledger)

    def _reading(self, target: Target, kind: str) -> Read:
        rng, tried = self._rng, self._book.highest_tried(target.ledger)
        first = max(0, rng.randrange(-3, tried + 2))
        waits = kind == "long poll"
        fences = kind == "fenced read"
        if waits:
            first = max(0, tried - 1)
        if fences:
            first = max(0, tried - rng.randrange(12))
        return Read(
            ledger=target.ledger,
            first=EntryId(first),
            upto=EntryId(first + rng.choice([0, 3, 20, 500])),
            bytes_max=rng.choice([0, 100, 1000, 1 << 20]),
            fence=Epoch(target.epoch + rng.randrange(1, 4)) if fences else None,
            wait_s=rng.choice([0.003, 0.05, 0.3]) if waits else 0.0,
            lac=EntryId(rng.randrange(-1, tried + 1)) if waits and rng.random() < 0.5 else None,
        )

    # Adds

    async def _add(self, node: NodeClient, target: Target, kind: str) -> None:
        for _ in range(self._rng.randrange(1, self._work.orders.batch + 1)):
            self._add_one(node, target, kind)
        if self._rng.random() < 0.4:
            await self._wait_for_adds()

    def _add_one(self, node: NodeClient, target: Target, kind: str) -> None:
        rng = self._rng
        entry, payload = EntryId(0), b""
        recovery = kind == "write back"
        epoch = target.epoch
        if kind in {"add again", "add other bytes", "write back"} and target.tried:
            recent = target.tried[-12:] if rng.random() < 0.5 else target.tried
            entry, payload = rng.choice(recent)
            recovery = recovery or rng.random() < 0.2
            if kind == "add other bytes" and len(payload) < self._work.orders.payload_bytes_max:
                payload = self._work.payload(target, entry, rng.randrange(1, 4))
        else:
            entry = target.fresh()
            payload = self._work.payload(target, entry, 0)
        lac = rng.randrange(-1, entry) if rng.random() < 0.7 and entry else entry - 1
        if kind == "add nonsense":
            match rng.randrange(3):
                case 0:
                    epoch = Epoch(epoch + 1)
                case 1:
                    lac = entry + rng.randrange(3)
                case _:
                    payload = payload.ljust(self._work.orders.payload_bytes_max + 1, b"-")
        target.tried.append((entry, payload))
        attempt = self._book.adding(
            target.ledger, entry, payload, epoch=epoch, lac=lac, recovery=recovery
        )
        self._send(node, attempt)

    def _send(self, node: NodeClient, attempt: Attempt) -> None:
        self._tag += 1
        self._adds[self._tag] = attempt
        self._settled.clear()
        try:
            node.start_add(
                LedgerId(attempt.page.ledger),
                EntryId(attempt.entry),
                attempt.payload,
                epoch=Epoch(attempt.epoch),
                lac=EntryId(attempt.lac),
                sink=self,
                tag=self._tag,
                recovery=attempt.recovery,
            )
        except RoostError as error:
            self.refused(self._tag, error)

    async def _wait_for_adds(self) -> None:
        """Wait until all adds are answered; the connection is given up if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while self._adds:
                    await self._settled.wait()

    def stored(self, tag: int) -> None:
        """Hear that an add is durable."""
        attempt = self._adds.pop(tag)
        self._work.world.trace("acked", client=self.name, what=attempt)
        self._checked(self._book.added, attempt)
        self.settle()

    def refused(self, tag: int, error: RoostError) -> None:
        """Hear that an add was refused, or that nobody knows."""
        attempt = self._adds.pop(tag)
        kind = type(error).__name__
        self._work.world.trace("not acked", client=self.name, what=attempt, error=kind)
        if not isinstance(error, Unknown):
            self._checked(self._book.not_added, attempt, error)
        self.settle()

    def settle(self) -> None:
        """Wake whoever waits for all of them."""
        if not self._adds:
            self._settled.set()

    def _checked(self, tell: object, *what: object) -> None:
        try:
            assert callable(tell)
            tell(*what)
        except Violation as violation:
            self._work.world.violate(str(violation))
