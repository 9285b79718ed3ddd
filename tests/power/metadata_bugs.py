"""Bugs to plant in what is built on metadata stores; see `tests.power.bugs`."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from roost.metadata import election, ids
from roost.metadata.election import Leadership
from roost.metadata.operations import Absent, Batch, Compare, CreatedAt, Get, Outcome, Put, Revision
from roost.metadata.store import Lease, MetadataStore
from roost.metadata.term import LeaseTerm
from roost.metadata.versions import Versions
from roost.sim.metadata import SimWatch, _Look
from tests.power.bugs import Bug


def lease_counted_from_its_answer(patch: pytest.MonkeyPatch) -> None:
    """A lease's time is taken to begin when the answer came, and has no margin."""

    def on_answer(self: Any, *, ttl_s: float, sent_at: float, now: float) -> None:
        del sent_at
        if ttl_s > 0:
            self._ttl_s = self._hold_s = ttl_s
            self._deadline = now + ttl_s
            self._renew_at = now + ttl_s / 3

    patch.setattr(LeaseTerm, "on_answer", on_answer)


def leadership_of_others_taken(patch: pytest.MonkeyPatch) -> None:
    """Whoever finds a leader takes that leadership for one of its own, won and not heard of."""

    async def elected(store: MetadataStore, key: str, value: bytes, lease: Lease) -> Leadership:
        found = await store.txn([Absent(key)], [Put(key, value, lease.id)], [Get(key)])
        if found.succeeded:
            return Leadership(key, found.revision)
        holder = found.got[0]
        assert holder is not None
        return Leadership(key, holder.created)

    patch.setattr(election, "_elected", elected)


def leadership_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A leader's writes do not depend on its leadership."""
    kept = Versions._holds

    def holds(self: Any, compare: Compare) -> bool:
        return isinstance(compare, CreatedAt) or kept(self, compare)

    patch.setattr(Versions, "_holds", holds)


def ids_taken_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """A counter is put whatever became of it since it was read."""

    async def take_ids(store: MetadataStore, kind: str, *, timeout_s: float) -> int:
        item = await store.get(f"ids/{kind}", timeout_s=timeout_s)
        first = ids.COUNTER.decode("", item.value).next if item else 0
        value = ids.COUNTER.encode(ids.Counter(first + 1))
        await store.put(f"ids/{kind}", value, timeout_s=timeout_s)
        return first

    patch.setattr("roost.sim.scenarios.metadata.take_ids", take_ids)


def watch_goes_on_at_the_store_s_revision(patch: pytest.MonkeyPatch) -> None:
    """A watch goes on behind the store's revision, and not behind what it has delivered."""

    async def anext_(self: Any) -> Batch:
        self._look = _Look(self._name, self._prefix, self._first)
        batch: Batch = await self._store.look(self._look)
        self._first = Revision(self._store._store.versions.revision + 1)
        return batch

    patch.setattr(SimWatch, "__anext__", anext_)


def compaction_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A watch from what is forgotten tells what is left, and says nothing of the rest."""
    kept = Versions.batch

    def batch(self: Any, prefix: str, first: Revision, **options: Any) -> Batch | Revision:
        return kept(self, prefix, max(first, Revision(self._compacted + 1)), **options)

    patch.setattr(Versions, "batch", batch)


def transactions_always_succeed(patch: pytest.MonkeyPatch) -> None:
    """A transaction is acknowledged though its compares did not hold, and it did nothing."""
    kept = Versions.txn

    def txn(self: Any, compares: Sequence[Compare], then: Any, orelse: Any) -> Outcome:
        outcome = kept(self, compares, then, orelse)
        return Outcome(True, outcome.revision, outcome.got or [None])

    patch.setattr(Versions, "txn", txn)


BUGS: Final = [
    Bug(name="lease counted from its answer", plant=lease_counted_from_its_answer, seeds_max=60),
    Bug(name="leadership of others taken", plant=leadership_of_others_taken, seeds_max=20),
    Bug(name="leadership not compared", plant=leadership_not_compared, seeds_max=60),
    Bug(name="ids without comparing", plant=ids_taken_without_comparing, seeds_max=20),
    Bug(
        name="watch goes on at the store's revision",
        plant=watch_goes_on_at_the_store_s_revision,
        seeds_max=20,
    ),
    Bug(name="compaction passed over", plant=compaction_passed_over, seeds_max=20),
    Bug(name="transactions always succeed", plant=transactions_always_succeed, seeds_max=20),
]
