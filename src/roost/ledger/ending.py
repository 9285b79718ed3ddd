"""Tells nodes that a ledger is closed or deleted, after the metadata says so.

A node that does not hear of it loses nothing but time: its readers find the end in the metadata,
and the auditor tells it again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from roost.errors import RoostError
from roost.ledger.nodes import Nodes
from roost.metadata.ledgers import LedgerDocument
from roost.node.client import NodeClient
from roost.types import NodeId


async def tell_nodes_closed(nodes: Nodes, document: LedgerDocument) -> list[NodeId]:
    """Close a ledger on all its nodes, as far as they answer; names those that did not."""
    last = document.last
    assert last is not None, "only a closed ledger has an end"
    return await _tell(nodes, document, lambda node: node.close_ledger(document.ledger, last))


async def tell_nodes_deleted(nodes: Nodes, document: LedgerDocument) -> list[NodeId]:
    """Delete a ledger on all its nodes, as far as they answer; names those that did not."""
    return await _tell(nodes, document, lambda node: node.delete(document.ledger))


async def _tell(
    nodes: Nodes, document: LedgerDocument, tell: Callable[[NodeClient], Awaitable[object]]
) -> list[NodeId]:
    async def tell_one(node: NodeId) -> bool:
        try:
            async with asyncio.timeout(nodes.patience.tell_s):
                await tell(await nodes.connect(node))
        except (RoostError, TimeoutError):
            return False
        return True

    told = await asyncio.gather(*map(tell_one, document.nodes))
    return [node for node, heard in zip(document.nodes, told, strict=True) if not heard]
