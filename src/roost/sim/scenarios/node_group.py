"""A few storage nodes, entries that are copied between them, and a power cut that takes them all.

Writers send each entry to some of the nodes; copies bring it to others (`place`), are interrupted
by crashes of either end, and asked for again. Nodes are killed, stopped, or lose power, one by one
or all at once. Each seed draws the sync policy of all its nodes: with `interval` and `never` a loss
of power may take the end of what was acknowledged, and the node must say that something may be
gone. An entry has the same bytes wherever it is sent, so that what is copied is known. Each node
has a book of its own (`roost.sim.ledger_book`). At the end all heals, everything is copied
everywhere, and each node must hold what any of them has.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final, Literal

import msgspec

from roost.errors import RoostError, Unknown
from roost.host.net import Address
from roost.host.seams import Seams
from roost.journal.plan import SyncPolicy
from roost.node.client import NodeClient
from roost.node.store import NodeSettings
from roost.rpc.client import Connection
from roost.sim.checkers import Violation
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from roost.sim.ledger_book import LedgerBook
from roost.sim.ledger_page import Attempt
from roost.sim.medium import NetFaults
from roost.sim.nemesis import draw_net_faults
from roost.sim.play import Options, Report, play
from roost.sim.scenarios.node_asks import Asks
from roost.sim.scenarios.node_client import HELLO, fresh_ids
from roost.sim.scenarios.node_life import FOLDER, NodeLife
from roost.sim.scenarios.node_plan import FILE_BYTES_MAX, draw_settings
from roost.sim.world import Process, World
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId
from roost.wire.messages import BAD_ENTRIES_MAX, Place, Read

EPOCH: Final = Epoch(1)
NOBODY: Final = "nobody:7000"
"""An address at which there is no node."""

PATIENCE_S: Final = 3.0
LIVENESS_S: Final = 60.0
SLACK_S: Final = 0.04
"""How much later than its interval a sync may have ended."""

Ending = Literal["stop one", "kill one", "power of one", "at an operation", "power of all"]
ENDINGS: Final[tuple[Ending, ...]] = (
    "stop one",
    "kill one",
    "power of one",
    "at an operation",
    "power of all",
    "power of all",
)
KINDS: Final = {"add": 8.0, "place": 5.0, "read": 2.0, "state": 1.0, "fence": 0.5, "delete": 0.15}


class Plan(msgspec.Struct, frozen=True):
    """What one seed does."""

    nodes: int
    clients: int
    lives: int
    requests: int
    ledgers: int
    order: str
    payload_bytes_max: int
    kinds: dict[str, float]
    settings: NodeSettings
    harms: bool
    disk: DiskFaults
    net: NetFaults


def draw(rng: Random) -> Plan:
    """Draw a plan; each kind of fault is absent in most seeds."""
    payload_bytes_max = rng.choice([16, 40, 200])
    settings = draw_settings(rng, payload_bytes_max)
    sync: SyncPolicy = rng.choice(["always", "always", "interval", "never"])
    interval_s = rng.choice([0.002, 0.02])
    journal = msgspec.structs.replace(settings.journal, sync=sync, interval_s=interval_s)
    limits = msgspec.structs.replace(settings.limits, free_bytes_min=0)
    return Plan(
        nodes=rng.choice([2, 2, 3]),
        clients=rng.randrange(1, 4),
        lives=rng.randrange(1, 5),
        requests=rng.choice([6, 20, 40]),
        ledgers=rng.randrange(1, 4),
        order=rng.choice(["in order", "striped", "shuffled"]),
        payload_bytes_max=payload_bytes_max,
        kinds={
            kind: weight * (0.3 + rng.random())
            for kind, weight in KINDS.items()
            if kind in {"add", "place"} or rng.random() < 0.6
        },
        settings=msgspec.structs.replace(settings, journal=journal, limits=limits),
        harms=rng.random() < 0.15,
        disk=DiskFaults(
            writes_back=rng.choice([0.0, 0.0, 0.2]),
            tears=rng.choice([0.0, 0.0, 0.5]),
            file_bytes_max=FILE_BYTES_MAX,
        ),
        net=draw_net_faults(rng) if rng.random() < 0.3 else NetFaults(delay_mean_s=0.0003),
    )


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("node_group", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let one seed's nodes live, end, and heal."""
    told = Story(world)
    world.trace("plan", **msgspec.structs.asdict(told.plan))
    await told.play()
    figures: dict[str, int] = {}
    for member in told.members:
        for name, count in member.figures().items():
            figures[name] = figures.get(name, 0) + count
    return {**figures, "placed": told.placed}


class Member:
    """One node of the group, and what is known of it."""

    def __init__(self, world: World, name: str, plan: Plan) -> None:
        self.address: Final = Address(name, 7000)
        self.book: Final = LedgerBook(payload_bytes_max=plan.payload_bytes_max)
        self.life: Final = NodeLife(
            world,
            self.book,
            name=name,
            listen=self.address,
            settings=plan.settings,
            payload_bytes_max=plan.payload_bytes_max,
        )
        self._world = world
        self._journal = plan.settings.journal
        self._known: list[tuple[float, int]] = []
        self._may_lose = False
        host = world.host(name, plan.disk)
        self.process: Final = Process(host, "node", self.life.main)
        host.processes["node"] = self.process

    def figures(self) -> dict[str, int]:
        """Tell what it got done."""
        book, life = self.book, self.life
        return {"lives": life.opened, "acked": book.acked, "found": book.found, **life.figures}

    def restart(self) -> None:
        """Start it, whatever has ended it."""
        if not self.process.alive:
            self.process.restart()
            self._may_lose = self._journal.sync != "always"

    def note(self) -> None:
        """Note that what is known of it now is known at this time."""
        self._known.append((self._world.now, self.book.moment))

    async def stop(self) -> None:
        """Have it end by itself."""
        if self.process.alive:
            await self.life.end(self.process)
            if self.process.finished and not self.life.failure:
                self._may_lose = False
        self.process.finished = False

    def lose_power(self) -> None:
        """Take its power, and bring it back; nothing is started."""
        host = self.process.host
        host.crash()
        if self._may_lose:
            kept = 0
            if self._journal.sync == "interval":
                since = host.dark_at - self._journal.interval_s - SLACK_S
                kept = max((moment for at, moment in self._known if at <= since), default=0)
            self.book.lost_power(kept=kept)
        host.boot()


class Copy(msgspec.Struct, eq=False):
    """A copy that was asked for, and may be under way: what it may bring to a node."""

    member: Member
    first: int
    upto: int
    attempts: list[Attempt]


class Target:
    """A ledger that is written to."""

    def __init__(self, ledger: int, rng: Random, plan: Plan) -> None:
        self.ledger: Final = LedgerId(ledger)
        self.highest = 0
        self.tried: Final[list[EntryId]] = []
        self.copies: Final[list[Copy]] = []
        self._payload_bytes_max = plan.payload_bytes_max
        self._ids: Iterator[EntryId] = fresh_ids(rng, plan.order)

    def fresh(self) -> EntryId:
        """Give the next id that nobody has used."""
        entry = next(self._ids)
        self.tried.append(entry)
        self.highest = max(self.highest, entry)
        for copy in self.copies:
            if copy.first <= entry <= copy.upto:
                copy.attempts.append(self.attempt(copy.member, entry, recovery=True))
        return entry

    def copying(self, member: Member, first: int, upto: int) -> Copy:
        """Note that a node may get some entries from now on, of those that will be sent, too."""
        tried = sorted({entry for entry in self.tried if first <= entry <= upto})
        attempts = [self.attempt(member, entry, recovery=True) for entry in tried]
        copy = Copy(member, first, upto, attempts)
        self.copies.append(copy)
        return copy

    def attempt(self, member: Member, entry: EntryId, *, recovery: bool) -> Attempt:
        """Note that an entry is sent to a node, or may come to it by a copy."""
        lac = NO_ENTRY if recovery else EntryId(entry - 1)
        payload = self.payload(entry)
        return member.book.adding(
            self.ledger, entry, payload, epoch=EPOCH, lac=lac, recovery=recovery
        )

    def payload(self, entry: int) -> bytes:
        """Give the one payload that an entry ever has."""
        name = f"{self.ledger}.{entry}.".encode()
        size = (self.ledger * 31 + entry * 17) % self._payload_bytes_max
        return name.ljust(size, b"-")[: self._payload_bytes_max]


class Story:
    """One seed."""

    def __init__(self, world: World) -> None:
        self.plan = draw(world.rng("plan"))
        self.members = [Member(world, f"node-{n}", self.plan) for n in range(self.plan.nodes)]
        self.placed = 0
        self.left = 0
        self.over = False
        self._world = world
        self._rng = world.rng("story")
        ledgers = range(self.plan.ledgers)
        self.targets = [Target(7 + ledger, self._rng, self.plan) for ledger in ledgers]

    async def play(self) -> None:
        """Let the nodes live and end as often as the plan says, then heal and look."""
        world = self._world
        world.network.misbehave(self.plan.net)
        clients = [
            Client(self, world, f"client-{n}", copies=n == 0) for n in range(self.plan.clients)
        ]
        for client in clients:
            world.host(client.name).start("client", client.main)
        for member in self.members:
            member.restart()
        for _ in range(self.plan.lives):
            await self._live()
        world.network.heal()
        for member in self.members:
            member.process.disk.faults = DiskFaults(file_bytes_max=FILE_BYTES_MAX)
            member.restart()
        world.trace("heal")
        self.left, self.over = self._rng.randrange(self.plan.requests), True
        try:
            async with asyncio.timeout(LIVENESS_S):
                for client in clients:
                    await client.done.wait()
        except TimeoutError:
            world.violate("liveness: not everything could be copied")
        for member in self.members:
            await member.stop()
            if member.life.failure:
                world.violate(f"liveness: all is well, and yet: {member.life.failure}")
            member.life.check_stopped(member.process.disk)

    async def _live(self) -> None:
        """Let them live for a while, and end one or all of them."""
        rng = self._rng
        ending = rng.choice(ENDINGS)
        self._world.count(ending)
        member = rng.choice(self.members)
        self.left = rng.randrange(self.plan.requests)
        if ending == "at an operation":
            member.process.disk.lose_power_after(rng.randrange(1, rng.choice([20, 60, 200])))
        await asyncio.sleep(rng.random() ** 2 * 0.3)
        match ending:
            case "stop one":
                await member.stop()
            case "kill one":
                member.process.kill()
            case "power of one" | "at an operation":
                member.lose_power()
            case _:
                for each in self.members:
                    each.lose_power()
        if self.plan.harms and rng.random() < 0.5 and not member.process.alive:
            self._harm(member)
        for each in self.members:
            if not each.process.host.up:  # at an operation that came late
                each.lose_power()
            each.restart()

    def _harm(self, member: Member) -> None:
        """Flip a bit of a ledger's file, which nobody may take for good, here or elsewhere."""
        disk: SimDisk = member.process.disk
        faults, disk.faults = disk.faults, DiskFaults(file_bytes_max=FILE_BYTES_MAX)
        folder = FOLDER / "ledgers"
        try:
            paths = [folder / name for name in disk.names(folder)]
        except FileNotFoundError:
            paths = []
        if paths:
            path = self._rng.choice(paths)
            file = disk.open(path, writable=False)
            if size := file.size():
                member.book.harmed()
                disk.rot(path, self._rng.randrange(size), self._rng.randrange(8))
            file.close()
        disk.faults = faults


class Client:
    """One client; `main` is its process."""

    def __init__(self, told: Story, world: World, name: str, *, copies: bool) -> None:
        self.name: Final = name
        self.done: Final = asyncio.Event()
        """Set when there is nothing to do any more, and everything is copied."""
        self._copies = copies
        self._story = told
        self._world = world
        self._rng = world.rng(name)
        self._kinds = [*told.plan.kinds]
        self._weights = [*told.plan.kinds.values()]

    async def main(self, seams: Seams) -> None:
        """Ask for this and that, for ever."""
        try:
            while not self.done.is_set():
                if not self._story.left:
                    if self._story.over:
                        if self._copies:
                            await self._copy_all(seams)
                        self.done.set()
                    await asyncio.sleep(0.01 + self._rng.random() * 0.02)
                    continue
                self._story.left -= 1
                (kind,) = self._rng.choices(self._kinds, self._weights)
                self._world.count(kind)
                await self._ask(seams, kind)
                if self._rng.random() < 0.3:
                    await asyncio.sleep(self._rng.random() * 0.02)
        except Violation as violation:
            self._world.violate(str(violation))

    @asynccontextmanager
    async def _asking(self, seams: Seams, member: Member) -> AsyncIterator[NodeClient]:
        connection = await Connection.open(seams.net, member.address, HELLO, timeout_s=1.0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield NodeClient(connection)
        finally:
            connection.abort()
            await connection.lost.wait()
            member.note()

    async def _ask(self, seams: Seams, kind: str) -> None:
        rng = self._rng
        target = rng.choice(self._story.targets)
        if kind == "add":
            await self._add(seams, target)
            return
        member = rng.choice(self._story.members)
        try:
            async with self._asking(seams, member) as node:
                asks = Asks(node, member.book)
                match kind:
                    case "place":
                        await self._place(node, member, target)
                    case "state":
                        await asks.state(target.ledger)
                    case "fence":
                        await asks.fence(target.ledger, Epoch(EPOCH + rng.randrange(1, 4)))
                    case "delete":
                        await asks.delete(target.ledger)
                    case _:
                        await asks.read(self._reading(target))
        except (RoostError, OSError, TimeoutError) as error:
            self._world.trace("not done", client=self.name, kind=kind, error=str(error))

    def _reading(self, target: Target) -> Read:
        first = max(0, target.highest - self._rng.randrange(30))
        return Read(
            ledger=target.ledger,
            first=EntryId(first),
            upto=EntryId(first + 40),
            bytes_max=self._rng.choice([100, 1 << 20]),
        )

    # Adds

    async def _add(self, seams: Seams, target: Target) -> None:
        """Send some entries to some of the nodes."""
        rng, members = self._rng, self._story.members
        entries = [target.fresh() for _ in range(rng.randrange(1, 6))]
        if rng.random() < 0.2:
            entries.append(rng.choice(target.tried))
        chosen = rng.sample(members, rng.randrange(1, len(members) + 1))
        await asyncio.gather(*(self._add_to(seams, member, target, entries) for member in chosen))

    async def _add_to(
        self, seams: Seams, member: Member, target: Target, entries: Iterable[EntryId]
    ) -> None:
        try:
            async with self._asking(seams, member) as node:
                await asyncio.gather(
                    *(self._add_one(node, member, target, entry) for entry in entries)
                )
        except (RoostError, OSError, TimeoutError) as error:
            self._world.trace("not added", client=self.name, error=str(error))

    async def _add_one(
        self, node: NodeClient, member: Member, target: Target, entry: EntryId
    ) -> None:
        attempt = target.attempt(member, entry, recovery=False)
        try:
            await node.add(
                target.ledger, entry, attempt.payload, epoch=EPOCH, lac=EntryId(attempt.lac)
            )
        except Unknown:
            pass
        except RoostError as error:
            member.book.not_added(attempt, error)
        else:
            member.book.added(attempt)
            member.note()

    # Copies

    async def _place(self, node: NodeClient, member: Member, target: Target) -> None:
        """Have a node copy some of what the others have."""
        rng = self._rng
        sources = [str(each.address) for each in self._story.members if each is not member]
        rng.shuffle(sources)
        if rng.random() < 0.2:
            sources.insert(rng.randrange(len(sources) + 1), NOBODY)
        first = max(0, rng.randrange(-5, target.highest + 1))
        upto = first + rng.choice([0, 5, 40, 400])
        place = _place(target, first, upto, sources)
        await self._place_range(node, member, target, place)

    async def _place_range(
        self, node: NodeClient, member: Member, target: Target, place: Place
    ) -> set[EntryId]:
        """Have a range copied; tells what is missing then."""
        copy = target.copying(member, place.first, place.upto)
        placed = await node.place(place)
        target.copies.remove(copy)
        missing = {*placed.missing}
        for attempt in copy.attempts:
            if attempt.entry not in missing:
                member.book.added(attempt)
        for entry in {*range(place.first, place.upto + 1)} - missing - {*target.tried}:
            raise Violation(f"refused stays refused: {target.ledger}/{entry} was copied")
        member.note()
        self._story.placed += placed.entries
        return missing

    async def _copy_all(self, seams: Seams) -> None:
        """When all is well, see that every node gets what any of the others has."""
        for target in self._story.targets:
            for member in self._story.members:
                if not self._deleted(member, target):
                    await self._copy_whole(seams, member, target)

    async def _copy_whole(self, seams: Seams, member: Member, target: Target) -> None:
        others = [each for each in self._story.members if each is not member]
        sure = {entry for each in others for entry in each.book.surely_has(target.ledger)}
        if any(each.book.is_harmed for each in self._story.members):
            sure = set()
        while True:
            try:
                async with self._asking(seams, member) as node:
                    upto = EntryId(target.highest)
                    sources = [str(each.address) for each in others]
                    missing: set[EntryId] = set()
                    for first in range(0, upto + 1, BAD_ENTRIES_MAX):
                        place = _place(target, first, first + BAD_ENTRIES_MAX - 1, sources)
                        missing |= await self._place_range(node, member, target, place)
                    await Asks(node, member.book).read(
                        Read(ledger=target.ledger, first=EntryId(0), upto=upto, bytes_max=1 << 20)
                    )
            except (RoostError, OSError, TimeoutError) as error:
                self._world.trace("not copied", client=self.name, error=str(error))
                if self._deleted(member, target):
                    return
                await asyncio.sleep(0.1)
                continue
            lost = sorted(sure & missing)
            if not lost or any(self._deleted(each, target) for each in others):
                return
            self._world.trace("not copied yet", ledger=target.ledger, entries=lost)
            await asyncio.sleep(0.1)

    def _deleted(self, member: Member, target: Target) -> bool:
        return member.book.is_deleted(target.ledger)


def _place(target: Target, first: int, upto: int, sources: list[str]) -> Place:
    return Place(
        ledger=target.ledger,
        epoch=EPOCH,
        first=EntryId(first),
        upto=EntryId(upto),
        sources=sources,
    )
