"""What is said about replicated ledgers to people."""

from collections.abc import Mapping, Sequence

from roost.cli.report import table
from roost.ledger.copies import Copy
from roost.ledger.explain import facts, recovered, why
from roost.metadata.ledgers import LedgerDocument
from roost.types import NodeId


def listing(documents: Sequence[LedgerDocument]) -> str:
    """Lay out ledgers, one on a line."""
    rows: list[Sequence[object]] = [("LEDGER", "STATE", "ENTRIES", "BYTES", "NODES")]
    for each in documents:
        entries = "" if each.last is None else each.last + 1
        length = "" if each.length is None else each.length
        nodes = " ".join(each.fragments[-1].nodes)
        rows.append((each.ledger, each.phase.value, entries, length, nodes))
    return table(rows)


def document_text(document: LedgerDocument) -> str:
    """Lay out what the metadata says of a ledger."""
    parts = ["\n".join(f"{name:10}  {text}" for name, text in facts(document))]
    rows = [(each.first, " ".join(each.nodes)) for each in document.fragments]
    parts.append(table([("from entry", "nodes"), *rows]))
    if document.recovery is not None:
        parts.append("\n".join(recovered(document.recovery)))
    return "\n\n".join(parts)


def explained(document: LedgerDocument, said: Mapping[int, Mapping[NodeId, str]]) -> str:
    """Tell why a ledger ends where it does, and why some entries are in it or not."""
    parts = [document_text(document)]
    for entry, answers in said.items():
        told = "\n".join(f"  {node}: {answer}" for node, answer in answers.items())
        parts.append(f"entry {entry}: {why(document, entry, answers.values())}\n{told}")
    return "\n\n".join(parts)


def copies_text(copies: Sequence[Copy]) -> str:
    """Lay out how the copies of a ledger are."""
    rows: list[Sequence[object]] = [("NODE", "STATE", "ENTRIES", "OF", "BAD")]
    rows += [(each.node, _state(each), each.entries, each.wanted, each.bad) for each in copies]
    return table(rows)


def _state(copy: Copy) -> str:
    if copy.error:
        return f"silent ({copy.error})"
    return "whole" if copy.whole else "damaged"
