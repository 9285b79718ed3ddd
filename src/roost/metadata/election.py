"""Elections, for all stores: who leads is who has created a key, until that key vanishes.

    leadership = await campaign(store, "masters/leader", b"10.0.0.7:4710", lease)
    ...
    await resign(store, leadership)

The promise: of all leaderships of one key no two have the same epoch, and whoever is elected later
has the greater one. The epoch is the revision in which the key was created. That somebody leads
*now* is known to a transaction only, one that compares `leadership.still`; the lease says in time,
but not for certain, when to stop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from roost.errors import NotFound, Retryable, Unavailable, Unknown
from roost.metadata.operations import (
    Absent,
    CreatedAt,
    Delete,
    Get,
    Item,
    Outcome,
    Put,
    Revision,
)
from roost.metadata.store import CALL_S, Lease, MetadataStore
from roost.metadata.view import View

RETRY_S: Final = 0.5
"""How long to wait after the store could not be asked."""


class Leadership(msgspec.Struct, frozen=True):
    """One term of one leader."""

    key: str
    epoch: Revision
    """Greater than that of every leader before: it fences."""

    @property
    def still(self) -> CreatedAt:
        """Let a transaction do nothing once somebody else was elected, or could have been."""
        return CreatedAt(self.key, self.epoch)


async def campaign(store: MetadataStore, key: str, value: bytes, lease: Lease) -> Leadership:
    """Wait, as long as it takes, until we are elected; `value` tells others who leads.

    Raises `Unavailable` once the lease is lost. Whoever gives up waiting revokes the lease: that
    is what takes back a candidacy that may have been won meanwhile.
    """
    if not lease.lost:
        lost = asyncio.ensure_future(lease.wait_lost())
        elected = asyncio.ensure_future(_elected(store, key, value, lease))
        try:
            await asyncio.wait([lost, elected], return_when=asyncio.FIRST_COMPLETED)
            if elected.done() and not lease.lost:
                return elected.result()
        finally:
            for task in (lost, elected):
                task.cancel()
            await asyncio.wait([lost, elected])
    raise _lost(key, lease)


async def resign(
    store: MetadataStore, leadership: Leadership, *, timeout_s: float = CALL_S
) -> None:
    """Give up a leadership, if it still is one; its lease stays."""
    await store.txn([leadership.still], [Delete(leadership.key)], timeout_s=timeout_s)


async def observe(store: MetadataStore, key: str) -> AsyncGenerator[Item | None, None]:
    """Tell who leads, now and whenever that changes: the key's item, or None for nobody."""
    async with await View.open(store, key) as view:
        yield view.items.get(key)
        while True:
            for change in await view.changes():
                if change.key == key:
                    yield change.now


async def _elected(store: MetadataStore, key: str, value: bytes, lease: Lease) -> Leadership:
    while True:
        try:
            found = await _run_for(store, key, value, lease)
            if found.succeeded:
                return Leadership(key, found.revision)
            holder = found.got[0]
            assert holder is not None, "who was refused was refused for somebody"
            if holder.lease == lease.id:  # our own, of which we had no answer
                return Leadership(key, holder.created)
            await _vacant(store, key)
        except NotFound as error:
            raise _lost(key, lease) from error
        except (Retryable, Unknown):
            await asyncio.sleep(RETRY_S)


async def _run_for(store: MetadataStore, key: str, value: bytes, lease: Lease) -> Outcome:
    return await store.txn([Absent(key)], [Put(key, value, lease.id)], [Get(key)])


async def _vacant(store: MetadataStore, key: str) -> None:
    """Wait until nobody leads."""
    async with aclosing(observe(store, key)) as leaders:
        async for leader in leaders:
            if leader is None:
                return


def _lost(key: str, lease: Lease) -> Unavailable:
    return Unavailable(
        f"lease {lease.id} was lost before {key!r} was won: grant another, and campaign again"
    )
