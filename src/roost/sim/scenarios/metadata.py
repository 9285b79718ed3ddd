"""Processes elect a leader, take ids and follow keys, over a metadata store that fails them.

What is checked: ids are given out once; what a leader writes by a transaction that compares its
leadership never comes behind what a later one has written, and what was acknowledged is there; a
watch tells everything in order and once, or says that it cannot; and no lease runs out in the store
while its holder still relies on it.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from roost.errors import Compacted, NotFound, Retryable, Unknown
from roost.host.seams import Seams
from roost.metadata.election import Leadership, campaign, resign
from roost.metadata.ids import take_ids
from roost.metadata.operations import Event, LeaseId, Put, Revision
from roost.metadata.store import Lease, MetadataStore
from roost.metadata.view import View
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.nemesis import LEFT_OUT, Nemesis
from roost.sim.play import Options, Report, play
from roost.sim.world import World

CANDIDATES = 3
RAGE_S = 60.0
# When all faults are over, each process has to lead within this time.
LIVENESS_S = 300.0
CALL_S = 2.0

Work = Callable[[MetadataStore], Coroutine[Any, Any, None]]
"""What a process does over and over."""


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("metadata", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let faults rage while processes compete, then heal everything and see that each gets on."""
    rng = world.rng("story")
    store = SimMetadata(world, _draw_faults(rng))
    book = Book(world, store)
    for number in range(CANDIDATES):
        candidate = Candidate(book, f"candidate-{number}")
        book.candidates.append(candidate)
        world.host(candidate.name).start("runs", candidate.run)

    nemesis = Nemesis(world, rng)
    async with asyncio.TaskGroup() as group:
        group.create_task(nemesis.rage(RAGE_S))
        group.create_task(_trouble(world, store, rng))
    nemesis.heal()
    store.faults = MetadataFaults()
    book.begin_liveness()
    try:
        async with asyncio.timeout(LIVENESS_S):
            for candidate in book.candidates:
                await candidate.well.wait()
    except TimeoutError:
        waiting = [each.name for each in book.candidates if not each.well.is_set()]
        world.violate(f"{', '.join(waiting)} neither led nor saw who leads, though all is well")
    book.check()
    return {
        "terms": len(book.epochs),
        "writes": len(book.acked),
        "ids": len(book.ids),
        "events": book.events,
        "compacted": book.compacted,
    }


async def _trouble(world: World, store: SimMetadata, rng: Random) -> None:
    """Do to the store, again and again, one of the things that are in this seed."""
    kinds = [kind for kind in (_cut, _stop, _compact, _let_go) if rng.random() > LEFT_OUT]
    end = world.now + RAGE_S
    while world.now < end:
        await asyncio.sleep(rng.uniform(0.2, 6.0))
        if kinds:
            await rng.choice(kinds)(store, rng)


async def _cut(store: SimMetadata, rng: Random) -> None:
    name = f"candidate-{rng.randrange(CANDIDATES)}"
    store.cut(name)
    await asyncio.sleep(rng.uniform(0.1, 15.0))
    store.heal(name)


async def _stop(store: SimMetadata, rng: Random) -> None:
    store.stop()
    await asyncio.sleep(rng.uniform(0.05, 10.0))
    store.start()


async def _compact(store: SimMetadata, rng: Random) -> None:
    del rng
    store.compact()


async def _let_go(store: SimMetadata, rng: Random) -> None:
    del rng
    store.let_go()


def _draw_faults(rng: Random) -> MetadataFaults:
    def chance(most: float) -> float:
        return 0.0 if rng.random() < LEFT_OUT else rng.random() * most

    return MetadataFaults(
        delay_mean_s=10 ** rng.uniform(-4.0, -1.5),
        delays_long=chance(0.02),
        loses=chance(0.1),
        forgets=chance(0.1),
        refuses=chance(0.1),
        compacts=chance(0.2),
        lets_go=chance(0.02),
    )


class Book:
    """What all processes have done and seen, and what has to hold of it."""

    def __init__(self, world: World, store: SimMetadata) -> None:
        self.world = world
        self.store = store
        self.candidates: list[Candidate] = []
        self.epochs: list[int] = []
        self.acked: list[bytes] = []
        self.ids: set[int] = set()
        self.events = 0
        self.compacted = 0
        self._leases: dict[LeaseId, Lease] = {}
        store.on_expired = self._on_expired

    def begin_liveness(self) -> None:
        """See from now on that every process gets on."""
        for candidate in self.candidates:
            candidate.well.clear()

    def took(self, first: int) -> None:
        """Note an id that somebody took."""
        if first in self.ids:
            self.world.violate(f"id {first} was given out twice")
        self.ids.add(first)

    def elected(self, leadership: Leadership) -> None:
        """Note that somebody leads."""
        self.world.trace("elected", epoch=leadership.epoch)
        if leadership.epoch in self.epochs:
            self.world.violate(f"epoch {leadership.epoch} was won twice")
        self.epochs.append(leadership.epoch)

    def granted(self, lease: Lease) -> None:
        """Note a lease, and who relies on it."""
        self._leases[lease.id] = lease

    def told(self, first: Revision, events: list[Event]) -> None:
        """Compare what a watch has told, from a revision on, with what has happened."""
        self.events += len(events)
        last = events[-1].revision
        history = self.store.history
        begin = bisect_left(history, first, key=_revision_of)
        truth = history[begin : bisect_right(history, last, key=_revision_of)]
        if events != truth:
            self.world.violate(f"a watch told {events} from {first} on, and it was {truth}")

    def check(self) -> None:
        """See whether what was written under a leadership is in the order of the leaderships."""
        written = [
            event.item.value
            for event in self.store.history
            if event.key == "written" and event.item is not None
        ]
        epochs = [int(value.split()[0]) for value in written]
        if epochs != sorted(epochs):
            self.world.violate(f"a leader wrote behind a later one: {epochs}")
        if missing := set(self.acked) - set(written):
            self.world.violate(f"writes were acknowledged and are not there: {sorted(missing)}")

    def _on_expired(self, lease: LeaseId) -> None:
        if lease in self._leases and not self._leases[lease].lost:
            self.world.violate(f"lease {lease} ran out while its holder relied on it")


class Candidate:
    """One process: it competes, writes while it leads, takes ids, and watches all the time."""

    def __init__(self, book: Book, name: str) -> None:
        self.name = name
        self.well = asyncio.Event()
        """Set once it has led, or given up a leadership, since somebody cleared it."""

        self._book = book
        self._rng = book.world.rng(name)

    async def run(self, seams: Seams) -> None:
        """Do all of it, for ever."""
        store = self._book.store.handle(self.name, seams.clock)
        async with asyncio.TaskGroup() as group:
            for work in (self._lead, self._watch, self._follow, self._take_ids):
                group.create_task(self._again(work, store))

    async def _again(self, work: Work, store: MetadataStore) -> None:
        while True:
            try:
                await work(store)
            except (Retryable, Unknown, NotFound) as error:
                self._book.world.trace("again", process=self.name, error=type(error).__name__)
            await asyncio.sleep(self._rng.uniform(0.1, 1.5))

    async def _lead(self, store: MetadataStore) -> None:
        lease = await store.grant(self._rng.randrange(2, 12), timeout_s=CALL_S)
        self._book.granted(lease)
        try:
            leadership = await campaign(store, "leader", self.name.encode(), lease)
            self._book.elected(leadership)
            # A process that does not notice that it was paused goes on for a while.
            for number in range(self._rng.randrange(1, 8)):
                await self._write(store, leadership, number)
            self.well.set()
            if self._rng.random() < 0.5:
                await resign(store, leadership, timeout_s=CALL_S)
        finally:
            await lease.revoke(timeout_s=CALL_S)

    async def _write(self, store: MetadataStore, leadership: Leadership, number: int) -> None:
        value = f"{leadership.epoch} {self.name} {number}".encode()
        put = Put("written", value)
        outcome = await store.txn([leadership.still], [put], timeout_s=CALL_S)
        if outcome.succeeded:
            self._book.acked.append(value)
        await asyncio.sleep(self._rng.uniform(0.0, 0.5))

    async def _watch(self, store: MetadataStore) -> None:
        page = await store.range("", timeout_s=CALL_S)
        first = Revision(page.revision + 1)
        async with store.watch("", first) as watch:
            try:
                while True:
                    batch = await anext(watch)
                    self._book.told(first, [*batch.events])
                    first = Revision(batch.revision + 1)
            except Compacted:
                self._book.compacted += 1

    async def _follow(self, store: MetadataStore) -> None:
        async with await View.open(store, "") as view:
            while True:
                before = view.revision
                await view.changes()
                if view.revision < before:
                    self._book.world.violate(f"{self.name} sees the past after the present")

    async def _take_ids(self, store: MetadataStore) -> None:
        self._book.took(await take_ids(store, "ledger", timeout_s=CALL_S))


def _revision_of(event: Event) -> Revision:
    return event.revision
