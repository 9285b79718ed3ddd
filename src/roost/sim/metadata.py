"""The simulated metadata store: one store that all processes of a world see, each through a handle.

    store = SimMetadata(world)
    handle = store.handle("node-1")          # in a process, or in the story
    store.cut("node-1"); store.heal("node-1")

It keeps the contract of `roost.metadata.store` and nothing more. Requests take their time; they
are lost on the way, or done and their answer lost, or done long after who sent them has given up,
or has died. Leases run out late, and begin anew when the store restarts; it may let all of them go
for no reason. It is away for a while, and it forgets history while somebody watches. All of this is
drawn from the world's seed, by chances (`MetadataFaults`) and by whoever calls the methods of
`SimMetadata`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from math import log
from typing import Any, Final, Self, TypeVar

import msgspec

from roost.errors import Closed, RoostError, Unavailable
from roost.host.clock import Clock
from roost.metadata.answers import changes_anything, unanswered
from roost.metadata.held import HeldLease, Leases
from roost.metadata.operations import (
    PAGE_ITEMS_MAX,
    Batch,
    Compare,
    Event,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Revision,
    check_page,
    check_ttl,
    check_txn,
    check_watch,
)
from roost.metadata.store import CALL_S, Lease, MetadataStore
from roost.metadata.term import LeaseTerm
from roost.metadata.versions import Versions
from roost.sim.clock import SimClock
from roost.sim.handles import SimHandle
from roost.sim.world import World

T = TypeVar("T")


class MetadataFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How the store misbehaves; what has no unit is a chance, drawn for each request."""

    delay_mean_s: float = 0.001
    """The mean of the exponential time that a request, and each answer, is under way."""

    delays_long: float = 0.0
    """It takes a thousand times as long: a request may be done after it was given up."""

    loses: float = 0.0
    """It is lost on its way, and never done."""

    forgets: float = 0.0
    """It is done, and its answer is lost."""

    refuses: float = 0.0
    """It is answered at once by `Unavailable`, and not done."""

    compacts: float = 0.0
    """Behind it, all history is forgotten up to a revision that is drawn."""

    lets_go: float = 0.0
    """Before it, the store lets all leases go, though their holders are well."""

    expiry_late_s: float = 0.6
    """How long after its time a lease's keys are still there, at most."""


class SimMetadata:
    """The store itself, which no process owns."""

    def __init__(self, world: World, faults: MetadataFaults | None = None) -> None:
        self.faults = faults or MetadataFaults()
        self.versions: Final = Versions()
        """What it holds, for checkers and stories to look at."""

        self.history: Final[list[Event]] = []
        """All that ever happened, for checkers."""

        self.on_expired: Callable[[LeaseId], None] = lambda _: None
        """Called when the time of a lease has run out, before it ends."""

        self.clock: Final = SimClock(world.timeline)
        self._world: Final = world
        self._rng: Final = world.rng("metadata")
        self._up = True
        self._cut: set[str] = set()
        self._watching: dict[_Look, None] = {}
        self._expiry_at: float | None = None

    def handle(self, name: str, clock: Clock | None = None) -> "SimStore":
        """Make a store object for the process that runs now; what is cut off is named by `name`."""
        return SimStore(self, name, clock or self.clock)

    # What can be done to it

    def cut(self, name: str) -> None:
        """Let nothing through between a handle and the store."""
        self._world.count("metadata partition")
        self._world.trace("metadata cut", handle=name)
        self._cut.add(name)

    def heal(self, name: str) -> None:
        """Let everything through again."""
        self._world.trace("metadata heal", handle=name)
        self._cut.discard(name)
        self._tell()

    def stop(self) -> None:
        """Answer nobody, as if it was killed."""
        self._world.count("metadata stop")
        self._world.trace("metadata stop")
        self._up = False

    def start(self) -> None:
        """Answer again; leases begin anew, in full."""
        self._world.trace("metadata start")
        self._up = True
        for lease in self.versions.leases:
            self.versions.renew(lease, self._world.now)
        self._expire_later()
        self._tell()

    def compact(self, upto: Revision | None = None) -> None:
        """Forget history."""
        upto = self.versions.revision if upto is None else upto
        self._world.count("metadata compaction")
        self._world.trace("metadata compact", upto=upto)
        self._note()
        self.versions.compact(upto)
        self._tell()

    def let_go(self) -> None:
        """End all leases, for no reason that their holders would know."""
        self._world.count("metadata leases lost")
        self._world.trace("metadata let go")
        for lease in self.versions.leases:
            self.versions.revoke(lease)
        self._tell()

    # What handles call

    def send(self, request: "_Request") -> None:
        """Take a request, and see that it arrives, if it does."""
        if self._rng.random() < self.faults.loses:
            self._world.count("metadata request lost")
            return
        self._world.post(self._world.now + self._delay_s(), self._on_request, request)

    def look(self, look: "_Look") -> None:
        """Answer a look for events once there are any, and the handle can be reached."""
        self._watching[look] = None
        self._world.post(self._world.now + self._delay_s(), self._on_look, look)

    def drop(self, look: "_Look") -> None:
        """Answer it no more."""
        self._watching.pop(look, None)

    def grant(self, ttl_s: int, versions: Versions) -> LeaseId:
        """Begin a lease, when a request for one is carried out."""
        lease = LeaseId(self._rng.randrange(1, 1 << 62))
        versions.grant(lease, ttl_s, self._world.now)
        return lease

    def renew(self, lease: LeaseId, versions: Versions) -> int:
        """Begin a lease's time anew, when a request for that is carried out."""
        return versions.renew(lease, self._world.now)

    # How it works

    def _delay_s(self) -> float:
        delay_s = -log(1.0 - self._rng.random()) * self.faults.delay_mean_s
        return delay_s * 1000 if self._rng.random() < self.faults.delays_long else delay_s

    def _reachable(self, name: str) -> bool:
        return self._up and name not in self._cut

    def _on_request(self, request: "_Request") -> None:
        faults, rng = self.faults, self._rng
        if rng.random() < faults.refuses or not self._reachable(request.handle):
            # Who cannot be reached refuses, or is not heard of.
            if request.handle in self._cut or rng.random() < 0.5:  # noqa: PLR2004  by a coin
                return
            refusal = Unavailable("the metadata store refused a connection: try again")
            self._answer(request, refusal)
            return
        if rng.random() < faults.lets_go:
            self.let_go()
        try:
            result: object = request.carry_out(self.versions)
        except RoostError as error:
            result = error
        self._expire_later()
        if rng.random() < faults.compacts and self.versions.revision > self.versions.compacted:
            span = self.versions.revision - self.versions.compacted
            self.compact(Revision(self.versions.compacted + rng.randrange(1, span + 1)))
        self._tell()
        if rng.random() < faults.forgets:
            self._world.count("metadata answer lost")
            if rng.random() < 0.5:  # noqa: PLR2004  the connection is seen to end, or nothing is
                self._answer(request, _Lost())
            return
        self._answer(request, result)

    def _answer(self, request: "_Request", result: object) -> None:
        when = self._world.now + self._delay_s()
        if request.handle not in self._cut:
            self._world.timeline.at(when, request.settling(result))

    def _tell(self) -> None:
        """Let all who watch look, each at an instant of its own."""
        self._note()
        for look in self._watching:
            self._world.post(self._world.now + self._delay_s(), self._on_look, look)

    def _note(self) -> None:
        noted = self.history[-1].revision if self.history else Revision(0)
        if self.versions.revision > noted:
            self.history.extend(self.versions.since(noted))

    def _on_look(self, look: "_Look") -> None:
        if look not in self._watching or not self._reachable(look.handle):
            return
        try:
            found: Batch | Revision | RoostError = self.versions.batch(look.prefix, look.first)
        except RoostError as error:
            found = error
        if not isinstance(found, int):
            self.drop(look)
            self._world.timeline.at(self._world.now, look.settling(found))

    def _expire_later(self) -> None:
        """See that the next lease whose time runs out is ended, some time after that."""
        due = self.versions.next_expiry()
        if due is not None and (self._expiry_at is None or due < self._expiry_at):
            self._expiry_at = due
            late_s = self._rng.random() * self.faults.expiry_late_s
            self._world.post(due + late_s, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry_at = None
        if self._up:
            for lease in self.versions.expired(self._world.now):
                self._world.trace("metadata lease expired", lease=lease)
                self.on_expired(lease)
                self.versions.revoke(lease)
            self._expire_later()
            self._tell()


class _Lost(RoostError):
    """The connection ended before there was an answer."""


class _Settled:
    """Somebody in a process who waits for something of the store."""

    def __init__(self, handle: str) -> None:
        self.handle: Final = handle
        self.loop: Final = asyncio.get_running_loop()
        self.done: Final[asyncio.Future[Any]] = self.loop.create_future()
        self._context: Final = copy_context()

    def settling(self, result: object) -> SimHandle:
        """Make what, in the process, ends the wait."""
        return SimHandle(self.settle, (result,), self.loop, self._context)

    def settle(self, result: object) -> None:
        """End the wait."""
        if self.done.done():
            return
        if isinstance(result, RoostError):
            self.done.set_exception(result)
        else:
            self.done.set_result(result)


class _Request(_Settled):
    """One request under way."""

    def __init__(self, handle: str, carry_out: Callable[[Versions], object]) -> None:
        super().__init__(handle)
        self.carry_out: Final = carry_out


class _Look(_Settled):
    """A watch that waits for its next batch."""

    def __init__(self, handle: str, prefix: str, first: Revision) -> None:
        super().__init__(handle)
        self.prefix: Final = prefix
        self.first: Final = first


class SimStore(MetadataStore):
    """The store as one process sees it."""

    def __init__(self, store: SimMetadata, name: str, clock: Clock) -> None:
        self._store: Final = store
        self._name: Final = name
        self._clock: Final = clock
        self._leases: Final = Leases()
        self._waiting: Final[dict[_Settled, None]] = {}
        self._closed = False

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = PAGE_ITEMS_MAX,
        revision: Revision | None = None,
        timeout_s: float = CALL_S,
    ) -> Page:
        """Read a page."""
        check_page(prefix, after, limit, revision)
        return await self._ask(
            lambda versions: versions.page(prefix, after=after, limit=limit, revision=revision),
            f"reading {prefix!r}",
            timeout_s,
        )

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float = CALL_S,
    ) -> Outcome:
        """Carry out a transaction."""
        check_txn(compares, then, orelse)
        return await self._ask(
            lambda versions: versions.txn(compares, then, orelse),
            "a transaction",
            timeout_s,
            changes=changes_anything(then, orelse),
        )

    def watch(self, prefix: str, first: Revision) -> "SimWatch":
        """Watch some keys."""
        check_watch(prefix, first)
        return SimWatch(self, self._name, prefix, first)

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        """Begin a lease."""
        check_ttl(ttl_s)
        sent_at = self._clock.now()
        lease = await self._ask(partial(self._store.grant, ttl_s), "granting a lease", timeout_s)
        term = LeaseTerm(ttl_s=ttl_s, sent_at=sent_at)
        held = HeldLease(lease, term, renew=self._renew, revoke=self._revoke, clock=self._clock)
        self._leases.add(held)
        return held

    async def close(self) -> None:
        """End."""
        self._closed = True
        await self._leases.close()
        for each in list(self._waiting):
            each.settle(_closed())

    async def look(self, look: "_Look") -> Batch:
        """Wait for events."""
        if self._closed:
            raise _closed()
        self._store.look(look)
        try:
            batch: Batch = await self._wait(look)
        finally:
            self._store.drop(look)
        return batch

    async def _renew(self, lease: LeaseId, timeout_s: float) -> float:
        return await self._ask(partial(self._store.renew, lease), "renewing a lease", timeout_s)

    async def _revoke(self, lease: LeaseId, timeout_s: float) -> None:
        await self._ask(
            lambda versions: versions.revoke(lease), "revoking a lease", timeout_s, changes=True
        )

    async def _ask(
        self,
        carry_out: Callable[[Versions], T],
        what: str,
        timeout_s: float,
        *,
        changes: bool = False,
    ) -> T:
        if self._closed:
            raise _closed()
        request = _Request(self._name, carry_out)
        self._store.send(request)
        try:
            async with asyncio.timeout(timeout_s):
                result: T = await self._wait(request)
        except TimeoutError:
            raise unanswered(what, f"within {timeout_s:g} s", changes=changes) from None
        except _Lost:
            raise unanswered(what, "before the connection ended", changes=changes) from None
        return result

    async def _wait(self, settled: _Settled) -> Any:
        self._waiting[settled] = None
        try:
            return await settled.done
        finally:
            del self._waiting[settled]


class SimWatch:
    """A watch of one process."""

    def __init__(self, store: SimStore, name: str, prefix: str, first: Revision) -> None:
        self._store: Final = store
        self._name: Final = name
        self._prefix: Final = prefix
        self._first = first
        self._look: _Look | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._closed:
            raise _closed()
        self._look = _Look(self._name, self._prefix, self._first)
        batch = await self._store.look(self._look)
        # Only what reaches its reader is done with.
        self._first = Revision(batch.revision + 1)
        return batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Watch no more."""
        self._closed = True
        if self._look is not None:
            self._look.settle(_closed())


def _closed() -> Closed:
    return Closed("the metadata store was closed")
