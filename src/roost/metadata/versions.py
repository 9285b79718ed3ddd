"""Every version of every key since the last compaction, and the leases that hold keys.

Pure. This is a whole metadata store but for its surroundings: a call changes it, the events that
the call led to can be taken and made durable, and time is an argument. The embedded store and the
simulated one are this, each with surroundings of its own.

The promise: revisions grow by one with each call that changes anything, a call that fails changes
nothing, and what was said of a revision once is said of it for ever, until it is compacted.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roost.errors import Compacted, Invalid, NotFound
from roost.metadata.operations import (
    NO_LEASE,
    Absent,
    Batch,
    ChangedAt,
    Compare,
    Delete,
    Event,
    Get,
    Item,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Put,
    Revision,
)

BATCH_REVISIONS: Final = 100
"""How many revisions a batch has at most."""

PAGE_BYTES: Final = 4 << 20
"""A page ends when it has so much, and so does a batch; there is one key, or revision, at least."""


class _Held(msgspec.Struct):
    """One lease: until when it lasts, and which keys go with it."""

    ttl_s: int
    deadline: float
    keys: set[str]


class Versions:
    """A store in memory."""

    def __init__(self) -> None:
        self._revision = Revision(0)
        self._compacted = Revision(0)
        # All events behind the last compaction, in order.
        self._events: list[Event] = []
        # Of each key all versions that can still be asked for; the last is what it is now.
        self._past: dict[str, list[Event]] = {}
        self._keys: list[str] = []
        self._leases: dict[LeaseId, _Held] = {}

    @property
    def revision(self) -> Revision:
        """Name the last change."""
        return self._revision

    @property
    def compacted(self) -> Revision:
        """Name the last revision that is forgotten."""
        return self._compacted

    @property
    def history(self) -> int:
        """Count the events that are kept for watches."""
        return len(self._events)

    def load(self, events: Iterable[Event], *, revision: Revision, compacted: Revision) -> None:
        """Take up what another life left: its versions in order, and how far it had come."""
        assert not self._revision, "only what is empty can be loaded"
        for event in events:
            self._note(event)
        self._revision = revision
        self._compacted = compacted
        self._events = [event for event in self._events if event.revision > compacted]

    # Reading

    def get(self, key: str) -> Item | None:
        """Read a key."""
        past = self._past.get(key)
        return past[-1].item if past else None

    def page(
        self, prefix: str, *, after: str = "", limit: int, revision: Revision | None = None
    ) -> Page:
        """Read keys in order, as they are or were."""
        at = self._readable(revision)
        items: list[Item] = []
        left_bytes = PAGE_BYTES
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        for place in range(begin, len(self._keys)):
            key = self._keys[place]
            if not key.startswith(prefix):
                break
            if (item := self._at(key, at)) is None:
                continue
            if len(items) == limit or left_bytes <= 0:
                return Page(items, at, more=True)
            items.append(item)
            left_bytes -= len(item.value) + len(key)
        return Page(items, at, more=False)

    def batch(
        self, prefix: str, first: Revision, *, upto: Revision | None = None
    ) -> Batch | Revision:
        """Read what happened from revision `first` on, and if it was nothing, where to go on."""
        if first <= self._compacted:
            raise Compacted(
                f"what happened in revision {first} is forgotten, as is all up to "
                f"{self._compacted}: list {prefix!r} again, and watch behind that",
                upto=self._compacted,
            )
        last = self._revision if upto is None else upto
        events: list[Event] = []
        revisions = size = 0
        for place in range(self._place(first), len(self._events)):
            event = self._events[place]
            if event.revision > last:
                break
            if not event.key.startswith(prefix):
                continue
            if not events or events[-1].revision != event.revision:
                revisions += 1
                if revisions > BATCH_REVISIONS or size >= PAGE_BYTES:
                    break
            events.append(event)
            size += len(event.key) + (0 if event.item is None else len(event.item.value))
        return Batch(events) if events else Revision(max(first, last + 1))

    def since(self, revision: Revision) -> Sequence[Event]:
        """Read all that happened behind a revision that is not forgotten."""
        return self._events[self._place(Revision(revision + 1)) :]

    # Changing

    def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]
    ) -> Outcome:
        """Carry out a transaction that `check_txn` has passed."""
        succeeded = all(self._holds(compare) for compare in compares)
        branch = then if succeeded else orelse
        self._check_leases(branch)
        revision = Revision(self._revision + 1)
        got: list[Item | None] = []
        for operation in branch:
            match operation:
                case Get(key):
                    got.append(self.get(key))
                case Put(key, value, lease):
                    self._put(key, value, lease, revision)
                case Delete(key):
                    self._delete(key, revision)
        return Outcome(succeeded, self._revision, got)

    def compact(self, upto: Revision) -> None:
        """Forget what was before: of each key only its version of then is kept, if it had one."""
        if upto > self._revision:
            raise Invalid(f"revision {upto} is yet to come: it is {self._revision}")
        if upto <= self._compacted:
            return
        behind = self._place(Revision(upto + 1))
        for key in {event.key for event in self._events[:behind]}:
            past = self._past[key]
            kept = bisect_right(past, upto, key=_revision_of) - 1
            if past[kept].item is None:
                kept += 1
            del past[:kept]
            if not past:
                del self._past[key]
                del self._keys[bisect_left(self._keys, key)]
        del self._events[:behind]
        self._compacted = upto

    # Leases

    @property
    def leases(self) -> dict[LeaseId, int]:
        """Tell which there are, and how long each lasts after a renewal."""
        return {lease: held.ttl_s for lease, held in self._leases.items()}

    def grant(self, lease: LeaseId, ttl_s: int, now: float) -> None:
        """Begin a lease; of a key that names it already it takes hold, too."""
        assert lease not in self._leases, "no two leases have one id"
        keys = {key for key in self._keys if (at := self.get(key)) and at.lease == lease}
        self._leases[lease] = _Held(ttl_s, now + ttl_s, keys)

    def renew(self, lease: LeaseId, now: float) -> int:
        """Begin a lease's time anew; returns it, or 0 if the lease is gone."""
        held = self._leases.get(lease)
        if held is None:
            return 0
        held.deadline = now + held.ttl_s
        return held.ttl_s

    def revoke(self, lease: LeaseId) -> bool:
        """End a lease, and delete its keys; returns whether there was one."""
        held = self._leases.pop(lease, None)
        if held is None:
            return False
        revision = Revision(self._revision + 1)
        for key in sorted(held.keys):
            self._delete(key, revision)
        return True

    def expired(self, now: float) -> Sequence[LeaseId]:
        """Tell whose time has run out, in the order in which it did."""
        out = [(held.deadline, lease) for lease, held in self._leases.items()]
        return [lease for deadline, lease in sorted(out) if deadline <= now]

    def next_expiry(self) -> float | None:
        """Tell when the next lease's time runs out."""
        return min((held.deadline for held in self._leases.values()), default=None)

    # How it works

    def _readable(self, revision: Revision | None) -> Revision:
        if revision is None:
            return self._revision
        if revision > self._revision:
            raise Invalid(f"revision {revision} is yet to come: it is {self._revision}")
        if revision < self._compacted:
            raise Compacted(
                f"how it was at revision {revision} is forgotten; it was compacted up to "
                f"{self._compacted}: read what is now",
                upto=self._compacted,
            )
        return revision

    def _at(self, key: str, revision: Revision) -> Item | None:
        past = self._past[key]
        place = bisect_right(past, revision, key=_revision_of)
        return past[place - 1].item if place else None

    def _place(self, first: Revision) -> int:
        return bisect_left(self._events, first, key=_revision_of)

    def _holds(self, compare: Compare) -> bool:
        item = self.get(compare.key)
        if isinstance(compare, Absent) or item is None:
            return isinstance(compare, Absent) and item is None
        at = item.changed if isinstance(compare, ChangedAt) else item.created
        return at == compare.revision

    def _check_leases(self, branch: Sequence[Operation]) -> None:
        for operation in branch:
            if isinstance(operation, Put) and operation.lease not in (NO_LEASE, *self._leases):
                raise lease_is_gone(operation.lease, operation.key)

    def _put(self, key: str, value: bytes, lease: LeaseId, revision: Revision) -> None:
        before = self.get(key)
        item = Item(
            key,
            value,
            created=before.created if before else revision,
            changed=revision,
            version=before.version + 1 if before else 1,
            lease=lease,
        )
        self._detach(before)
        if lease:
            self._leases[lease].keys.add(key)
        self._note(Event(key, revision, item))

    def _delete(self, key: str, revision: Revision) -> None:
        if before := self.get(key):
            self._detach(before)
            self._note(Event(key, revision, None))

    def _detach(self, item: Item | None) -> None:
        if item and item.lease in self._leases:
            self._leases[item.lease].keys.discard(item.key)

    def _note(self, event: Event) -> None:
        past = self._past.get(event.key)
        if past is None:
            past = self._past[event.key] = []
            insort(self._keys, event.key)
        past.append(event)
        self._events.append(event)
        self._revision = event.revision


def lease_is_gone(lease: LeaseId, key: str) -> NotFound:
    """Say that nothing can be put with a lease that does not exist."""
    return NotFound(f"lease {lease}, with which {key!r} was put, is gone: grant another")


def _revision_of(event: Event) -> Revision:
    return event.revision
