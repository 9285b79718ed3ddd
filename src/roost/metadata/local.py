"""A store object on a keeper in the same process: `dir://` and embedded clusters."""

from collections.abc import Sequence
from typing import Final, Self

from roost.host.clock import Clock
from roost.metadata.answers import changes_anything
from roost.metadata.gate import Gate, closed
from roost.metadata.held import HeldLease, Leases
from roost.metadata.keeper import Keeper
from roost.metadata.operations import (
    PAGE_ITEMS_MAX,
    Batch,
    Compare,
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


class LocalStore(MetadataStore):
    """One user of a keeper; with `owned`, the keeper ends with it."""

    def __init__(self, keeper: Keeper, *, clock: Clock, owned: bool = False) -> None:
        self._keeper: Final = keeper
        self._clock: Final = clock
        self._owned: Final = owned
        self._leases: Final = Leases()
        self._gate: Final = Gate()

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
        page = self._keeper.page(prefix, after=after, limit=limit, revision=revision)
        return await self._gate.ask(page, f"reading {prefix!r}", timeout_s)

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
        return await self._gate.ask(
            self._keeper.txn(compares, then, orelse),
            "a transaction",
            timeout_s,
            changes=changes_anything(then, orelse),
        )

    def watch(self, prefix: str, first: Revision) -> "LocalWatch":
        """Watch some keys."""
        check_watch(prefix, first)
        return LocalWatch(self._keeper, prefix, first, store=self._gate)

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        """Begin a lease."""
        check_ttl(ttl_s)
        sent_at = self._clock.now()
        lease = await self._gate.ask(self._keeper.grant(ttl_s), "granting a lease", timeout_s)
        term = LeaseTerm(ttl_s=ttl_s, sent_at=sent_at)
        held = HeldLease(lease, term, renew=self._renew, revoke=self._revoke, clock=self._clock)
        self._leases.add(held)
        return held

    async def close(self) -> None:
        """End, and end the keeper if it is ours."""
        self._gate.close()
        await self._leases.close()
        if self._owned:
            await self._keeper.close()

    async def _renew(self, lease: LeaseId, timeout_s: float) -> float:
        return await self._gate.ask(self._keeper.renew(lease), "renewing a lease", timeout_s)

    async def _revoke(self, lease: LeaseId, timeout_s: float) -> None:
        await self._gate.ask(
            self._keeper.revoke(lease), "revoking a lease", timeout_s, changes=True
        )


class LocalWatch:
    """A watch in the keeper's own process."""

    def __init__(self, keeper: Keeper, prefix: str, first: Revision, *, store: Gate) -> None:
        self._keeper: Final = keeper
        self._prefix: Final = prefix
        self._first = first
        self._gate: Final = Gate(store)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while True:
            if self._gate.is_closed:
                raise closed()
            found = self._keeper.look(self._prefix, self._first)
            if isinstance(found, Batch):
                self._first = Revision(found.revision + 1)
                return found
            self._first = found
            await self._gate.wait(self._keeper.news())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Watch no more."""
        self._gate.close()
