"""What a metadata store holds, and what can be asked of it: keys, versions, transactions, events.

Pure. A store maps keys to values and counts its changes: each change makes a new *revision*, a
number that only grows. Whatever changes together, in one transaction or with the end of one lease,
shares a revision. The promise kept here: a request that one store would refuse for its size or its
shape is refused by all of them, with `Invalid`, before it goes anywhere.

The bounds are those of etcd, which is the strictest of the stores.
"""

from collections.abc import Sequence
from typing import Final, NewType

import msgspec

from roost.errors import Invalid

Revision = NewType("Revision", int)
"""Counts the changes of a store, from 1; 0 is before all of them."""

LeaseId = NewType("LeaseId", int)
"""Names a lease; from 1."""

NO_LEASE: Final = LeaseId(0)
"""The lease of what no lease holds."""

OPERATIONS_MAX: Final = 128
"""How many compares a transaction has at most, and how many operations each of its branches."""

REQUEST_BYTES_MAX: Final = 3 << 19
"""How much one request carries at most, keys and values and `OPERATION_BYTES` for each."""

OPERATION_BYTES: Final = 128
"""What a compare or an operation takes besides its key and its value, at most."""

KEY_BYTES_MAX: Final = 1024
PAGE_ITEMS_MAX: Final = 1000
TTL_S_MIN: Final = 2
TTL_S_MAX: Final = 86_400


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A key as it stands."""

    key: str
    value: bytes
    created: Revision
    """When it came to be; it has another one after it was deleted and put again."""

    changed: Revision
    """When it was put last."""

    version: int
    """How often it was put since it came to be, from 1."""

    lease: LeaseId = NO_LEASE
    """It vanishes with this lease."""


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Some keys, in their order.

    The next page is behind the last of them, at this revision. A watch that begins one revision
    later misses nothing.
    """

    items: Sequence[Item]
    revision: Revision
    """All of it is as it was then."""

    more: bool
    """Whether there may be another page."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """A key was put, or deleted: then it has no item any more."""

    key: str
    revision: Revision
    item: Item | None


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """All that happened to the keys of a watch in one revision, or in several that follow."""

    events: Sequence[Event]
    """Never none, in the order in which they happened; a revision is never divided."""

    @property
    def revision(self) -> Revision:
        """The last revision that is in it; to go on is to begin with the next."""
        return self.events[-1].revision


class ChangedAt(msgspec.Struct, frozen=True, array_like=True, tag="changed"):
    """The key was put last at this revision, and is still there."""

    key: str
    revision: Revision


class CreatedAt(msgspec.Struct, frozen=True, array_like=True, tag="created"):
    """The key came to be at this revision, and is still there, whatever was put since."""

    key: str
    revision: Revision


class Absent(msgspec.Struct, frozen=True, array_like=True, tag="absent"):
    """There is no such key."""

    key: str


Compare = ChangedAt | CreatedAt | Absent


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """Give a key a value, and a lease or none; it loses the one that it had."""

    key: str
    value: bytes
    lease: LeaseId = NO_LEASE


class Delete(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """Remove a key; there need not be one."""

    key: str


class Get(msgspec.Struct, frozen=True, array_like=True, tag="get"):
    """Read a key, as the operations before this one in the same transaction left it."""

    key: str


Operation = Put | Delete | Get


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of a transaction."""

    succeeded: bool
    """Whether all compares held, so that `then` was done and not `orelse`."""

    revision: Revision
    """Of the store behind it. If it changed anything, then in this revision."""

    got: Sequence[Item | None] = ()
    """What its `Get`s found, in order."""


def check_txn(
    compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]
) -> None:
    """Refuse a transaction that some store could not carry out."""
    for name, part in (("compares", compares), ("then", then), ("orelse", orelse)):
        if len(part) > OPERATIONS_MAX:
            raise Invalid(f"a transaction with {len(part)} {name}: at most {OPERATIONS_MAX} go in")
    size = sum(_compare_bytes(compare) for compare in compares)
    for branch in (then, orelse):
        size += sum(_operation_bytes(operation) for operation in branch)
        _check_changes(branch)
    if size > REQUEST_BYTES_MAX:
        raise Invalid(
            f"a request of {size} bytes: at most {REQUEST_BYTES_MAX} go in, where each operation "
            f"counts {OPERATION_BYTES} besides its key and its value"
        )


def check_key(key: str) -> int:
    """Refuse what can be no key; returns its bytes."""
    if not key.isprintable() or not key:
        raise Invalid(f"key {key!r}: a key is printable text, and not empty")
    size = len(key.encode())
    if size > KEY_BYTES_MAX:
        raise Invalid(f"key {key[:80]!r}... of {size} bytes: at most {KEY_BYTES_MAX} are allowed")
    return size


def check_prefix(prefix: str) -> None:
    """Refuse what no key can begin with; every key begins with ''."""
    if prefix:
        check_key(prefix)


def check_page(prefix: str, after: str, limit: int, revision: Revision | None) -> None:
    """Refuse a page that cannot be."""
    check_prefix(prefix)
    check_prefix(after)
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise Invalid(f"limit {limit}: a page has from 1 to {PAGE_ITEMS_MAX} keys")
    if revision is not None and revision < 1:
        raise Invalid(f"revision {revision}: they count from 1")


def check_watch(prefix: str, first: Revision) -> None:
    """Refuse a watch that cannot be."""
    check_prefix(prefix)
    if first < 1:
        raise Invalid(f"a watch from revision {first}: they count from 1; list first, and go on")


def check_ttl(ttl_s: int) -> None:
    """Refuse a lease that some store could not grant."""
    if not TTL_S_MIN <= ttl_s <= TTL_S_MAX:
        raise Invalid(f"ttl_s {ttl_s}: a lease lasts from {TTL_S_MIN} to {TTL_S_MAX} s")


def _compare_bytes(compare: Compare) -> int:
    if not isinstance(compare, Absent) and compare.revision < 1:
        raise Invalid(
            f"{type(compare).__name__} of {compare.key!r} with revision {compare.revision}: they "
            "count from 1; say Absent of a key that is not there"
        )
    return check_key(compare.key) + OPERATION_BYTES


def _operation_bytes(operation: Operation) -> int:
    size = check_key(operation.key) + OPERATION_BYTES
    return size + len(operation.value) if isinstance(operation, Put) else size


def _check_changes(branch: Sequence[Operation]) -> None:
    changed: set[str] = set()
    for operation in branch:
        if isinstance(operation, Get):
            continue
        if operation.key in changed:
            raise Invalid(f"a transaction that changes the key {operation.key!r} twice")
        changed.add(operation.key)
