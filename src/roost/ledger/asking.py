"""Asks nodes what they have of a ledger, and changes nothing."""

import asyncio

from roost.errors import NotFound, RoostError
from roost.ledger.nodes import Nodes
from roost.ledger.quorum import write_set
from roost.ledger.recover import Answer
from roost.metadata.ledgers import LedgerDocument
from roost.types import EntryId, LedgerId, NodeId


async def is_written(nodes: Nodes, document: LedgerDocument) -> bool:
    """Tell whether any node has an entry of a ledger, or a fence; all of them have to answer."""
    for node in document.nodes:
        try:
            async with asyncio.timeout(nodes.patience.call_s):
                state = await (await nodes.connect(node)).state(document.ledger)
        except NotFound:
            continue
        if state.highest >= 0 or state.fenced is not None:
            return True
    return False


async def ask_all(nodes: Nodes, document: LedgerDocument, entry: EntryId) -> dict[NodeId, str]:
    """Tell what each node of an entry's write set has of it, or says."""
    slots = write_set(entry, document.quorum)
    named = [document.fragment_of(entry).nodes[slot] for slot in slots]
    said = await asyncio.gather(*(_ask(nodes, node, document.ledger, entry) for node in named))
    return dict(zip(named, said, strict=True))


async def _ask(nodes: Nodes, node: NodeId, ledger: LedgerId, entry: EntryId) -> str:
    try:
        async with asyncio.timeout(nodes.patience.call_s):
            batch = await (await nodes.connect(node)).read_one(ledger, entry)
    except NotFound:
        return Answer.ABSENT.value
    except (RoostError, TimeoutError) as error:
        return f"{Answer.SILENT.value} ({str(error) or 'no answer in time'})"
    if entry in batch.suspects:
        return Answer.UNSURE.value
    if entry in batch.found:
        return Answer.FOUND.value
    return Answer.ABSENT.value
