"""Ids that are given out once: from a counter in the metadata, by compare and swap.

The promise: no two calls, by whomever and whenever, return the same id of one kind, and whoever
calls after another has returned gets a greater one. Ids are left out where an answer was lost.
"""

from typing import Final

import msgspec

from roost.errors import Throttled, Unknown
from roost.metadata.documents import Kind
from roost.metadata.layout import counter_key
from roost.metadata.operations import Absent, ChangedAt, Compare, Put
from roost.metadata.store import CALL_S, MetadataStore

TRIES_MAX: Final = 100
"""How often others may be quicker before we give up."""


class Counter(msgspec.Struct, frozen=True):
    """A counter of ids."""

    next: int
    """The first id that was not given out."""


COUNTER: Final = Kind("counter", Counter)


async def take_ids(
    store: MetadataStore, kind: str, count: int = 1, *, timeout_s: float = CALL_S
) -> int:
    """Take ids that nobody had before: the one that is returned, and `count - 1` behind it.

    They count from 0. `timeout_s` is for each request.
    """
    assert count > 0, "somebody who takes ids takes some"
    key = counter_key(kind)
    for _ in range(TRIES_MAX):
        item = await store.get(key, timeout_s=timeout_s)
        first = COUNTER.decode(key, item.value).next if item else 0
        compare: Compare = ChangedAt(key, item.changed) if item else Absent(key)
        put = Put(key, COUNTER.encode(Counter(first + count)))
        try:
            outcome = await store.txn([compare], [put], timeout_s=timeout_s)
        except Unknown:
            continue  # if it was done, these ids are nobody's
        if outcome.succeeded:
            return first
    raise Throttled(f"others took ids of {kind!r} {TRIES_MAX} times before us: try again")


async def first_free(store: MetadataStore, kind: str, *, timeout_s: float = CALL_S) -> int:
    """Tell the first id of a kind that was not given out, as it is now."""
    key = counter_key(kind)
    item = await store.get(key, timeout_s=timeout_s)
    return COUNTER.decode(key, item.value).next if item else 0
