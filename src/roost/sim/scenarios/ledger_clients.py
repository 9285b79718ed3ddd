"""The clients of the scenario `ledger`: who writes, takes over, reads and repairs.

Each is a process on a host of its own. What it is answered it tells the book, and nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from roost.errors import NotFound, RoostError, Unavailable
from roost.host.log import Log
from roost.host.net import Address
from roost.host.seams import Seams
from roost.ledger.client import Ledgers
from roost.ledger.nodes import FixedNodes, KnownNode
from roost.ledger.placement import Candidate
from roost.ledger.writer import LedgerWriter
from roost.metadata.layout import LEDGERS
from roost.metadata.ledgers import LEDGER, LedgerDocument, LedgerPhase
from roost.metadata.operations import Compare, Operation, Outcome, Page, Revision
from roost.metadata.store import CALL_S, Lease, MetadataStore, Watch
from roost.sim.checkers import Violation
from roost.sim.metadata import SimMetadata
from roost.sim.replica_book import ReplicaBook
from roost.sim.scenarios.ledger_plan import Plan
from roost.sim.world import World
from roost.types import EntryId, Epoch, LedgerId, NodeId

CLUSTER: Final = "sim"
PORT: Final = 7000
LONG_S: Final = 60.0
READ_TRIES: Final = 100


class Bell:
    """An event that any process may wait for, and also one that was started again since."""

    def __init__(self) -> None:
        self.rung = False
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Wake all who wait, and let nobody wait any more."""
        self.rung = True
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until it was rung."""
        while not self.rung:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter


class Work:
    """What all clients of one seed share."""

    def __init__(
        self, world: World, plan: Plan, book: ReplicaBook, metadata: SimMetadata, nodes: list[str]
    ) -> None:
        self.world = world
        self.plan = plan
        self.book = book
        self.metadata = metadata
        self.ledgers: list[LedgerId] = []
        """All that were made, in order."""
        self.deleted: set[LedgerId] = set()
        """Those that somebody has begun to delete."""
        self.gone: set[NodeId] = set()
        """Nodes whose disks are lost."""
        self.ended = Bell()
        """Set when all troubles are over."""
        self.appended = Bell()
        """Set when the first entry was let in."""
        self._nodes = nodes
        self._seen = Revision(0)

    @property
    def over(self) -> bool:
        """Whether nothing new is to be begun."""
        return self.ended.rung

    def client(self, name: str, seams: Seams) -> Ledgers:
        """Make a client of this process."""
        plan = self.plan
        zones = plan.zones
        known = [
            KnownNode(
                Candidate(NodeId(node), 1 << 30, zone=f"zone-{n % zones}" if zones else ""),
                Address(node, PORT),
            )
            for n, node in enumerate(self._nodes)
        ]
        return Ledgers(
            self.told(self.metadata.handle(name, seams.clock)),
            FixedNodes(known),
            net=seams.net,
            clock=seams.clock,
            rng=seams.rng,
            cluster=CLUSTER,
            name=name,
            log=self.said(name),
            appending=plan.appending,
            patience=plan.patience,
            recovering=plan.recovering,
            change_timeout_s=10.0,
        )

    def told(self, store: MetadataStore) -> MetadataStore:
        """Make a store whose every change the book hears of at once."""
        return _Told(self, store)

    def said(self, name: str) -> Log:
        """Make a log that is a part of the history."""
        return _Said(self.world, name)

    def look(self) -> None:
        """Tell the book all that changed in the metadata."""
        versions = self.metadata.versions
        while self._seen < versions.revision:
            for event in versions.since(self._seen):
                if event.key.startswith(LEDGERS) and event.item is not None:
                    self.changed(LEDGER.decode(event.key, event.item.value))
            self._seen = versions.revision

    def changed(self, document: LedgerDocument) -> None:
        """Tell the book of one change."""
        self.world.trace(
            "document",
            ledger=document.ledger,
            phase=document.phase.value,
            last=document.last,
            fragments=[(each.first, *each.nodes) for each in document.fragments],
            laggards=document.laggards,
        )
        self.checked(lambda: self.book.changed(document))

    def checked(self, tell: Callable[[], None]) -> None:
        """Tell the book something; what it finds is a broken promise."""
        try:
            tell()
        except Violation as violation:
            self.world.violate(str(violation))


class _Told(MetadataStore):
    """A store whose every change the book hears of at once."""

    def __init__(self, work: Work, store: MetadataStore) -> None:
        self._work = work
        self._store = store

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = 1000,
        revision: Revision | None = None,
        timeout_s: float = CALL_S,
    ) -> Page:
        return await self._store.range(
            prefix, after=after, limit=limit, revision=revision, timeout_s=timeout_s
        )

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float = CALL_S,
    ) -> Outcome:
        try:
            return await self._store.txn(compares, then, orelse, timeout_s=timeout_s)
        finally:
            self._work.look()

    def watch(self, prefix: str, first: Revision) -> Watch:
        return self._store.watch(prefix, first)

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        return await self._store.grant(ttl_s, timeout_s=timeout_s)

    async def close(self) -> None:
        await self._store.close()


class _Said:
    """What a client says of itself, as a part of the history."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def event(self, name: str, /, **fields: object) -> None:
        """Note it."""
        fields.pop("level", None)
        self._world.trace(f"{self._name}: {name}", **fields)


class Writer:
    """Makes a ledger and writes to it; a process that was killed makes another one."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self.leaseless = Bell()
        """Set when it is to believe that somebody else owns its ledger."""
        self.done = asyncio.Event()
        """Set when it has nothing to do any more."""
        self._work = work
        self._rng: Random = work.world.rng(name)
        self._made = 0

    async def main(self, seams: Seams) -> None:
        """Write one ledger."""
        work, plan = self._work, self._work.plan
        if self._made == 2 or work.over:
            self.done.set()
            await asyncio.Event().wait()
        self._made += 1
        ledgers = work.client(self.name, seams)
        try:
            writer = await ledgers.create(epoch=Epoch(1), quorum=plan.quorum)
        except RoostError as error:
            work.world.trace("not made", error=str(error))
        else:
            work.ledgers.append(writer.ledger)
            work.book.opened(writer.ledger, lambda: writer.lac)
            work.look()
            overtaking = asyncio.ensure_future(self._overtake(writer))
            await self._write(writer)
            await self._finish(writer)
            overtaking.cancel()
        self.done.set()
        await asyncio.Event().wait()

    async def _overtake(self, writer: LedgerWriter) -> None:
        await self.leaseless.wait()
        writer.overtake("the lease is lost")

    async def _write(self, writer: LedgerWriter) -> None:
        plan, rng = self._work.plan, self._rng
        left = plan.entries
        failures = 0
        while left and failures < 30 and writer.stopped is None:
            for _ in range(min(left, plan.burst)):
                if self._append(writer, plan.entries - left):
                    left -= 1
                else:
                    failures += 1
                    await asyncio.sleep(0.02 * rng.random())
            if plan.pause_s:
                await asyncio.sleep(plan.pause_s * rng.random() * 2)

    def _append(self, writer: LedgerWriter, number: int) -> bool:
        work, ledger = self._work, writer.ledger
        payload = f"{ledger}.{number}.{self._rng.randrange(1000)}".encode()
        try:
            future = writer.append(payload)
        except RoostError as error:
            work.world.trace("refused", ledger=ledger, error=type(error).__name__)
            payload += b" refused"
            work.book.not_sent(payload)
            return False
        entry = work.book.sent(ledger, payload)
        work.appended.ring()
        future.add_done_callback(lambda done: self._answered(ledger, entry, done))
        return True

    def _answered(self, ledger: LedgerId, entry: EntryId, done: "asyncio.Future[EntryId]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        work = self._work
        work.world.trace("answered", ledger=ledger, entry=entry, error=type(error).__name__)
        work.checked(lambda: work.book.answered(ledger, entry, error or done.result()))

    async def _finish(self, writer: LedgerWriter) -> None:
        """Close the ledger, or leave it open for others to end."""
        if not self._work.plan.closes:
            await writer_idle(self._work, writer)
        try:
            await writer.close(timeout_s=5.0)
        except RoostError as error:
            self._work.world.trace("not closed", ledger=writer.ledger, error=str(error))
        self._work.look()


async def writer_idle(work: Work, writer: LedgerWriter) -> None:
    """Stand by until all is over, or the writer has been stopped."""
    try:
        async with asyncio.timeout(LONG_S):
            over = asyncio.ensure_future(work.ended.wait())
            stopped = asyncio.ensure_future(writer.wait_stopped())
            await asyncio.wait([over, stopped], return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            stopped.cancel()
    except TimeoutError:
        pass


class Taker:
    """Ends ledgers, whether or not their writers are gone."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self.wanted = Bell()
        """Set when it is to take over something."""
        self._work = work
        self._rng = work.world.rng(name)

    async def main(self, seams: Seams) -> None:
        """Take over whenever that is wanted."""
        work = self._work
        ledgers = work.client(self.name, seams)
        while True:
            await self.wanted.wait()
            self.wanted.rung = False
            if not work.ledgers:
                continue
            ledger = self._rng.choice(work.ledgers)
            try:
                await ledgers.recover(ledger, epoch=Epoch(2), timeout_s=2.0)
            except RoostError as error:
                work.world.trace("not recovered", ledger=ledger, error=str(error))
            work.look()


class Reader:
    """Follows ledgers while they grow."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self._work = work
        self._rng = work.world.rng(name)

    async def main(self, seams: Seams) -> None:
        """Read until all is over."""
        work = self._work
        ledgers = work.client(self.name, seams)
        await work.appended.wait()
        while not work.over:
            ledger = self._rng.choice(work.ledgers)
            try:
                await self._follow(ledgers, ledger)
            except RoostError as error:
                work.world.trace("not read", ledger=ledger, error=str(error))
            await asyncio.sleep(0.05)

    async def _follow(self, ledgers: Ledgers, ledger: LedgerId) -> None:
        work = self._work
        reader = await ledgers.open(ledger)
        first = EntryId(0)
        while not (work.over or (reader.closed and first > reader.upto)):
            async for piece in reader.read_all(first, timeout_s=2.0):
                for number, payload in enumerate(piece.payloads, piece.first):
                    self._read(ledger, EntryId(number), bytes(payload))
                if not piece.payloads:
                    await asyncio.sleep(0.01)
                first = piece.before
            await reader.wait(EntryId(first - 1), timeout_s=0.3)

    def _read(self, ledger: LedgerId, entry: EntryId, payload: bytes) -> None:
        self._work.look()
        self._work.checked(lambda: self._work.book.read(ledger, entry, payload))


class Mender:
    """Repairs ledgers that are closed."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self._work = work

    async def main(self, seams: Seams) -> None:
        """Repair until all is over."""
        work = self._work
        ledgers = work.client(self.name, seams)
        while not work.over:
            for ledger in [*work.ledgers]:
                try:
                    await ledgers.repair(ledger, gone={*work.gone})
                except RoostError as error:
                    work.world.trace("not repaired", ledger=ledger, error=str(error))
                work.look()
            await asyncio.sleep(0.03)


class Healer:
    """Ends, repairs and reads everything, once all is well."""

    def __init__(self, work: Work, name: str) -> None:
        self.name = name
        self.done = asyncio.Event()
        self.failure = ""
        self._work = work

    async def main(self, seams: Seams) -> None:
        """See that all is well."""
        ledgers = self._work.client(self.name, seams)
        try:
            for ledger in self._work.ledgers:
                try:
                    await self._make_whole(ledgers, ledger)
                except NotFound:
                    if ledger not in self._work.deleted:
                        raise
            self.failure = ""
        except RoostError as error:
            self.failure += f": {error!r}"
        self.done.set()
        await asyncio.Event().wait()

    async def _make_whole(self, ledgers: Ledgers, ledger: LedgerId) -> None:
        self.failure = f"ledger {ledger} is not closed"
        await ledgers.recover(ledger, epoch=Epoch(3), timeout_s=LONG_S)
        self._work.look()
        self.failure = f"ledger {ledger} is not repaired"
        while not await ledgers.repair(ledger, gone={*self._work.gone}):
            self._work.look()
            await asyncio.sleep(0.2)
        self._work.look()
        self.failure = f"ledger {ledger} is not read"
        await self._read_all(ledgers, ledger)

    async def _read_all(self, ledgers: Ledgers, ledger: LedgerId) -> None:
        document = await ledgers.describe(ledger)
        assert document.phase is LedgerPhase.CLOSED, "it was recovered"
        left = {*document.laggards} | ({*document.holders} & self._work.gone)
        if left:
            self._work.world.violate(f"liveness: ledger {ledger} still names {sorted(left)}")
        reader = await ledgers.open(ledger)
        payloads: list[bytes] = []
        for _ in range(READ_TRIES):
            # Nodes may have been started only now.
            with suppress(Unavailable):
                async for piece in reader.read_all(EntryId(len(payloads))):
                    payloads += map(bytes, piece.payloads)
                break
            await asyncio.sleep(0.2)
        self._work.checked(lambda: self._work.book.whole(ledger, payloads))
        if reader.faults:
            self._work.world.violate(f"named is there: a reader found {reader.faults}")
