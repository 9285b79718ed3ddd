"""The contract of a metadata store: what every implementation promises, and what none does.

What is promised:

- *Linearizable.* A call takes effect in one instant between its begin and its end, all of it or
  nothing, and reads see all that took effect before. An acknowledged change survives any crash of
  the store.
- *Errors that say what was decided.* `Unavailable`: nothing was, so it may be asked again.
  `Unknown`: a change whose answer was lost, which may have happened, may still happen, or never;
  read again and see. `Invalid`, `NotFound` (the lease is gone), `Conflict`: it was not done, and
  never will be. Reads are never `Unknown`. After `close`, everything is `Closed`.
- *Every call ends.* Within `timeout_s` it has an answer or an error, `Unknown` or `Unavailable`.
- *A watch is in order, exactly once, without gaps*, from the revision that was asked for: over lost
  connections and restarts of the store it goes on behind the last event that was delivered. What
  the store has forgotten it says by `Compacted`, and never by leaving something out.
- *A lease is regarded as lost before the store lets it go*: by our own clock, with a margin. The
  store object renews it for as long as it is neither lost nor revoked.

What is not promised, since no store can:

- When keys of a lease vanish. Not before it is lost by its holder's clock, unless the store lets it
  go early (it may, under load or by a restart, and then `lost` says so late); up to seconds after
  its time has run out; and later still if the store restarts, since its time then begins anew. So
  losing a lease must be safe: what it protects is decided by transactions that compare revisions.
- That a lease has the time that was asked for: it may get more.
- How long history is kept. Each watcher lists again once it has missed too much.
"""

from collections.abc import Sequence
from typing import Final, Protocol, Self

from roost.metadata.operations import (
    NO_LEASE,
    PAGE_ITEMS_MAX,
    Batch,
    Compare,
    Delete,
    Get,
    Item,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Put,
    Revision,
)

CALL_S: Final = 5.0
"""How long a call waits for its answer, unless told otherwise."""


class Watch(Protocol):
    """The changes of some keys, as they happen: `async with store.watch(...) as watch`."""

    def __aiter__(self) -> Self:
        """Iterate over the batches; it never ends by itself."""

    async def __anext__(self) -> Batch:
        """Wait for the next batch, as long as it takes; whoever gives up waiting loses nothing.

        Raises `Compacted` if the store has forgotten what comes next, and `Closed`.
        """

    async def __aenter__(self) -> Self:
        """Watch."""

    async def __aexit__(self, *exception: object) -> None:
        """Watch no more."""

    async def close(self) -> None:
        """Watch no more; whoever waits gets `Closed`. Closing twice does nothing."""


class Lease(Protocol):
    """A time that is renewed while its holder and the store are well; keys vanish with it."""

    @property
    def id(self) -> LeaseId:
        """Name it, in a `Put`."""

    @property
    def ttl_s(self) -> float:
        """How long the store keeps it after each renewal, at least."""

    @property
    def lost(self) -> bool:
        """Whether it must be regarded as lost, now, by our own clock; once lost, for ever."""

    @property
    def deadline(self) -> float:
        """When it will be regarded as lost, by our own clock, if it is not renewed before."""

    async def wait_lost(self) -> None:
        """Wait until it is lost, or was revoked."""

    async def revoke(self, *, timeout_s: float = CALL_S) -> None:
        """Give it up; its keys are deleted. It counts as lost from now on, whatever comes.

        `Unknown` if the answer was lost: its keys then vanish with its time. Of a lease that is
        gone nothing is left to do.
        """


class MetadataStore(Protocol):
    """Keys, values, and all that happens to them.

    An implementation names this as its base, and brings what has no body here.
    """

    async def get(self, key: str, *, timeout_s: float = CALL_S) -> Item | None:
        """Read a key as it is now."""
        return (await self.txn((), (Get(key),), timeout_s=timeout_s)).got[0]

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = PAGE_ITEMS_MAX,
        revision: Revision | None = None,
        timeout_s: float = CALL_S,
    ) -> Page:
        """Read the keys that begin with `prefix` and come behind `after`, in their order.

        As they are now, or as they were at `revision`; `Compacted` if that is forgotten, and
        `Invalid` if it is yet to come. A page may hold fewer than `limit` though there are more.
        """

    async def put(
        self, key: str, value: bytes, *, lease: LeaseId = NO_LEASE, timeout_s: float = CALL_S
    ) -> Revision:
        """Give a key a value, whatever it had; returns when. `NotFound` if the lease is gone."""
        return (await self.txn((), (Put(key, value, lease),), timeout_s=timeout_s)).revision

    async def delete(self, key: str, *, timeout_s: float = CALL_S) -> bool:
        """Remove a key; returns whether there was one."""
        found = await self.txn((), (Get(key), Delete(key)), timeout_s=timeout_s)
        return found.got[0] is not None

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float = CALL_S,
    ) -> Outcome:
        """Do `then` if all compares hold, and `orelse` if not, all in one instant.

        `NotFound` if one of the leases in what would be done is gone; then nothing is done.
        """

    def watch(self, prefix: str, first: Revision) -> Watch:
        """Watch the keys that begin with `prefix`, from what happened in revision `first` on."""

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        """Begin a lease, and renew it from now on; `Unavailable` if none was begun, or none known.

        What the store may have begun without our knowing ends by itself.
        """

    async def close(self) -> None:
        """End: leases are renewed no more, and are lost; watches and calls get `Closed`."""
