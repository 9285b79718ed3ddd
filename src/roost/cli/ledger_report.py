"""What is said about replicated ledgers to people."""

from collections.abc import Mapping, Sequence

from roost.cli.report import table
from roost.cli.words import counted, size
from roost.ledger.mending import Copy
from roost.ledger.quorum import end_coverage
from roost.ledger.recover import Answer
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
    quorum = document.quorum
    facts = [
        ("ledger", f"{document.ledger}"),
        ("state", document.phase.value),
        ("epoch", f"{document.epoch}"),
        ("quorum", f"ensemble {quorum.ensemble}, write {quorum.write}, ack {quorum.ack}"),
    ]
    if document.last is not None:
        facts.append(("last entry", f"{document.last}"))
    if document.length is not None:
        facts.append(("bytes", size(document.length)))
    if document.laggards:
        facts.append(("may lack", " ".join(document.laggards)))
    parts = ["\n".join(f"{name:10}  {text}" for name, text in facts)]
    rows = [(each.first, " ".join(each.nodes)) for each in document.fragments]
    parts.append(table([("from entry", "nodes"), *rows]))
    parts.extend(_recovery_text(document))
    return "\n\n".join(parts)


def _recovery_text(document: LedgerDocument) -> Sequence[str]:
    note = document.recovery
    if note is None:
        return ()
    lines = [f"recovered by {note.by}"]
    if note.base is not None:
        lines.append(f"known to be confirmed: all upto entry {note.base}")
    if note.reason:
        lines.append(f"the end: {note.reason}")
    if note.given_up:
        lines.append(f"given up: {', '.join(map(str, note.given_up))}")
    return ("\n".join(lines),)


def explained(document: LedgerDocument, said: Mapping[int, Mapping[NodeId, str]]) -> str:
    """Tell why a ledger ends where it does, and why some entries are in it or not."""
    parts = [document_text(document)]
    for entry, answers in said.items():
        told = "\n".join(f"  {node}: {answer}" for node, answer in answers.items())
        parts.append(f"entry {entry}: {_why(document, entry, answers)}\n{told}")
    return "\n\n".join(parts)


def _why(document: LedgerDocument, entry: int, answers: Mapping[NodeId, str]) -> str:
    found = sum(answer == Answer.FOUND.value for answer in answers.values())
    absent = sum(answer == Answer.ABSENT.value for answer in answers.values())
    copies = f"{counted(found, 'node')} of {len(answers)} found it"
    if document.last is not None:
        if entry <= document.last:
            return f"kept, and {copies} now"
        end = end_coverage(document.quorum)
        return (
            f"cut: the ledger ends with entry {document.last}. {absent} of {len(answers)} do not "
            f"have it now, and nobody can have confirmed what {end} never had"
        )
    return f"not decided while the ledger is {document.phase.value}; {copies} now"


def copies_text(copies: Sequence[Copy]) -> str:
    """Lay out how the copies of a ledger are."""
    rows: list[Sequence[object]] = [("NODE", "STATE", "ENTRIES", "OF", "BAD")]
    rows += [(each.node, _state(each), each.entries, each.wanted, each.bad) for each in copies]
    return table(rows)


def _state(copy: Copy) -> str:
    if copy.error:
        return f"silent ({copy.error})"
    return "whole" if copy.whole else "damaged"
