"""Nodes that are to be emptied: marked by people, respected by whoever chooses nodes.

A node that is marked goes on serving what it has. No new ensemble takes it, and the master moves
what is closed to other nodes; nothing of that is lost if the mark is taken away again.
"""

from typing import Final

import msgspec

from roost.errors import Conflict, NotFound
from roost.metadata.documents import Kind
from roost.metadata.layout import DRAINS, drain_key, identity_key, live_key
from roost.metadata.operations import Absent, ChangedAt, Compare, Delete, Get, Put
from roost.metadata.store import MetadataStore
from roost.metadata.view import list_all

TRIES_MAX: Final = 10


class NodeDrain(msgspec.Struct, frozen=True):
    """A mark: this node is to be emptied."""

    node: str
    since: float
    """By the wall of whoever said so."""


NODE_DRAIN: Final = Kind("drain", NodeDrain)


async def mark_draining(store: MetadataStore, node: str, *, wall: float) -> None:
    """Say that a node is to be emptied; saying it again changes nothing. `NotFound` of others."""
    put = Put(drain_key(node), NODE_DRAIN.encode(NodeDrain(node, wall)))
    for _ in range(TRIES_MAX):
        found = await store.txn((), [Get(identity_key(node)), Get(drain_key(node))])
        known, marked = found.got
        if known is None:
            raise _nobody(node)
        if marked is not None:
            return
        compares: list[Compare] = [ChangedAt(known.key, known.changed), Absent(put.key)]
        if (await store.txn(compares, [put])).succeeded:
            return
    raise Conflict(f"others marked node {node!r}, and took the mark away, all the time")


async def unmark_draining(store: MetadataStore, node: str) -> bool:
    """Say that a node may be used as any other; tells whether it was marked."""
    return await store.delete(drain_key(node))


async def draining(store: MetadataStore) -> set[str]:
    """Name the nodes that are to be emptied."""
    items, _ = await list_all(store, DRAINS)
    return {NODE_DRAIN.decode(item.key, item.value).node for item in items}


async def forget_node(store: MetadataStore, node: str) -> None:
    """Strike a node that was emptied, and stopped, off the list of those that ever registered.

    `Conflict` while it is registered, or was not marked; whether it is empty the caller has seen.
    """
    keys = (identity_key(node), live_key(node), drain_key(node))
    found = await store.txn((), [Get(key) for key in keys])
    known, live, marked = found.got
    if known is None:
        raise _nobody(node)
    if live is not None:
        raise Conflict(f"node {node!r} is registered: stop it first")
    if marked is None:
        raise Conflict(f"node {node!r} may be in use: decommission it first")
    compares: list[Compare] = [
        ChangedAt(known.key, known.changed),
        ChangedAt(marked.key, marked.changed),
        Absent(live_key(node)),
    ]
    done = await store.txn(compares, [Delete(known.key), Delete(marked.key)])
    if not done.succeeded:
        raise Conflict(f"node {node!r} was started, or marked, meanwhile: look at it again")


def _nobody(node: str) -> NotFound:
    return NotFound(f"no node {node!r} has ever registered: `roost cluster status` lists all")
