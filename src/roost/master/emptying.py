"""Counts what still names a node that is to be emptied."""

import msgspec

from roost.errors import Conflict
from roost.host.log import Silence
from roost.host.metrics import MasterMetrics
from roost.master.audit import Survey
from roost.master.documents import Documents
from roost.metadata.drains import forget_node
from roost.metadata.store import MetadataStore
from roost.types import NodeId


class Left(msgspec.Struct, frozen=True):
    """How many ledgers name a node."""

    ledgers: int
    open: int
    """Of these, how many are open: their writers move them, or whoever ends them."""


async def left_on(store: MetadataStore, node: NodeId) -> Left:
    """Count, in the metadata as it is now."""
    metrics = MasterMetrics()
    survey = Survey(gone=lambda _: (), draining=(node,))
    async for each in Documents(store, Silence(), metrics).all():
        survey.on_document(each.document)
    if metrics.unreadable:
        raise Conflict(
            f"{metrics.unreadable} ledgers cannot be read here, and may name node {node!r}: "
            "update this Roost, or look at the log of the master"
        )
    return Left(survey.draining[node], survey.draining_open)


async def forget_empty_node(store: MetadataStore, node: NodeId) -> None:
    """Strike a node off for good; `Conflict` if anything names it, or it runs."""
    left = await left_on(store, node)
    if left.ledgers:
        raise Conflict(f"{left.ledgers} ledgers still name node {node!r}: wait for the master")
    await forget_node(store, node)
