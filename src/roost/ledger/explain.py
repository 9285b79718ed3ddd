"""Says how a ledger is, and why an entry is in it or not: from the document, and nodes' answers.

Pure. Once a ledger is closed the document decides, and nodes only tell how many copies are left.
"""

from collections.abc import Collection, Iterator

from roost.ledger.quorum import end_coverage
from roost.ledger.recover import Answer
from roost.metadata.ledgers import LedgerDocument, RecoveryNote


def facts(document: LedgerDocument) -> Iterator[tuple[str, str]]:
    """List what the metadata says of a ledger as a whole, each with its name."""
    quorum = document.quorum
    yield "ledger", f"{document.ledger}"
    yield "state", document.phase.value
    yield "epoch", f"{document.epoch}"
    yield "quorum", f"ensemble {quorum.ensemble}, write {quorum.write}, ack {quorum.ack}"
    if document.last is not None:
        yield "last entry", f"{document.last}"
    if document.length is not None:
        yield "bytes", f"{document.length}"
    if document.laggards:
        yield "may lack", " ".join(document.laggards)


def recovered(note: RecoveryNote) -> Iterator[str]:
    """Tell what a recovery has noted, a line each."""
    yield f"recovered by {note.by}"
    if note.base is not None:
        yield f"known to be confirmed: all upto entry {note.base}"
    if note.reason:
        yield f"the end: {note.reason}"
    if note.given_up:
        yield f"given up: {', '.join(map(str, note.given_up))}"


def why(document: LedgerDocument, entry: int, answers: Collection[str]) -> str:
    """Say it in a sentence; `answers` are those of the entry's write set, now."""
    found = sum(answer == Answer.FOUND.value for answer in answers)
    absent = sum(answer == Answer.ABSENT.value for answer in answers)
    copies = f"{found} of {len(answers)} nodes found it now"
    if document.last is None:
        ack = document.quorum.ack
        return f"not decided while the ledger is {document.phase.value}; {copies}, of {ack} needed"
    note = document.recovery
    if note is not None and entry in note.given_up:
        return f"given up, by somebody's decision; {copies}"
    if entry > document.last:
        return (
            f"cut, since the ledger ends with entry {document.last}; {absent} of {len(answers)} "
            f"nodes do not have it now, and what {end_coverage(document.quorum)} never had, nobody "
            "can have confirmed"
        )
    if note is None:
        return f"kept: its writer had it confirmed before it closed the ledger; {copies}"
    if note.base is not None and entry <= note.base:
        return f"kept: it was known to be confirmed before the recovery; {copies}"
    return f"kept: the recovery found it, and wrote it back; {copies}"
