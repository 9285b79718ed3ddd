"""Decides what a node may forget of the ledgers that it has.

Pure. Nothing is deleted because it is unknown here: each verdict rests on what a linearizable read
of the metadata said *after* the node had listed the ledger, and on two things that never change.
A ledger that is deleted stays so, and an id is never given out twice; so a document that is gone is
gone for good. And a ledger's document is made before any node hears of it: whatever a node has, had
a document before.

    deleted     its document says so
    unknown     it has no document, and its id was given out before the node was asked: it was
                deleted, and its document is gone.
    stray       it is closed, and names this node for nothing: what is here was left behind when
                others took the node's place. First the document bars the node, which nobody can
                name from then on; a node is asked to forget only what it was barred from, and so
                an order that comes late does no harm.

Everything else is kept: of an open ledger nobody but its writer knows who is to be named next. And
a ledger whose id was never given out says that this metadata is not the one that the node's ledgers
were written under, or an old copy of it: then nothing at all is deleted there.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

import msgspec

from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import LedgerId, NodeId

SPARES_MIN: Final = 2
"""A node is barred only while as many others could take a place in the ledger."""


class Verdict(Enum):
    """What is to become of a ledger on one node."""

    KEEP = "keep"
    DELETE = "delete"
    BAR = "bar"
    """Bar the node in the document, and delete then."""

    FOREIGN = "foreign"
    """Delete nothing on this node: the metadata is not its own."""


def judge(
    document: LedgerDocument | None,
    *,
    ledger: LedgerId,
    node: NodeId,
    ids_before: int,
    nodes: Collection[NodeId],
) -> Verdict:
    """Decide about a ledger that `node` has listed.

    `document` was read after that, and `ids_before`, the first id that was not given out, before.
    `nodes` are all that could be named.
    """
    if document is None:
        return Verdict.DELETE if ledger < ids_before else Verdict.FOREIGN
    assert document.ledger == ledger, "it is the ledger's own document"
    if document.phase is LedgerPhase.DELETED or node in document.barred:
        return Verdict.DELETE
    if document.phase is not LedgerPhase.CLOSED or node in document.nodes:
        return Verdict.KEEP
    spares = {*nodes} - {*document.nodes, *document.barred, node}
    return Verdict.BAR if len(spares) >= SPARES_MIN else Verdict.KEEP


def with_barred(document: LedgerDocument, node: NodeId) -> LedgerDocument | None:
    """Bar a node from a closed ledger for good; None if it is named, or may be."""
    if document.phase is not LedgerPhase.CLOSED or node in document.nodes:
        return None
    if node in document.barred:
        return document
    return msgspec.structs.replace(document, barred=(*document.barred, node))
