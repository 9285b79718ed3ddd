"""Why an entry is in its ledger, or is not."""

import msgspec
import pytest

from roost.ledger.explain import facts, recovered, why
from roost.metadata.ledgers import Fragment, LedgerDocument, Quorum, RecoveryNote
from roost.types import EntryId, Epoch, LedgerId, NodeId

NODES = (NodeId("a"), NodeId("b"), NodeId("c"))
OPEN = LedgerDocument(
    ledger=LedgerId(7),
    epoch=Epoch(1),
    quorum=Quorum(),
    fragments=(Fragment(EntryId(0), NODES),),
)
CLOSED = OPEN.closed(EntryId(9), length=None, laggards=())
RECOVERED = msgspec.structs.replace(
    CLOSED, recovery=RecoveryNote("me", EntryId(5), "", (EntryId(10),))
)


@pytest.mark.parametrize(
    ("document", "entry", "said", "sentence"),
    [
        (OPEN, 0, ["found"], "not decided while the ledger is open; 1 of 1 nodes found it now"),
        (CLOSED, 9, ["found"] * 3, "kept: its writer had it confirmed"),
        (CLOSED, 10, ["absent"] * 3, "cut, since the ledger ends with entry 9; 3 of 3 nodes do"),
        (RECOVERED, 5, ["found"] * 3, "kept: it was known to be confirmed before the recovery"),
        (RECOVERED, 6, ["found"] * 2, "kept: the recovery found it, and wrote it back; 2 of 2"),
        (RECOVERED, 10, ["found", "silent"], "given up, by somebody's decision; 1 of 2 nodes"),
        (RECOVERED, 11, ["absent"] * 2, "cut, since"),
    ],
)
def test_the_reason_follows_from_the_document_and_the_answers(
    document: LedgerDocument, entry: int, said: list[str], sentence: str
) -> None:
    assert why(document, entry, said).startswith(sentence)


def test_a_ledger_is_told_by_what_its_document_says() -> None:
    assert [*facts(OPEN)] == [
        ("ledger", "7"),
        ("state", "open"),
        ("epoch", "1"),
        ("quorum", "ensemble 3, write 3, ack 2"),
    ]
    closed = OPEN.closed(EntryId(9), length=5, laggards=NODES[:2])
    assert [*facts(closed)][4:] == [("last entry", "9"), ("bytes", "5"), ("may lack", "a b")]


def test_a_recovery_is_told_by_what_it_has_noted() -> None:
    assert [*recovered(RecoveryNote("me"))] == ["recovered by me"]
    assert [*recovered(RecoveryNote("me", EntryId(5), "nobody has it", (EntryId(10),)))] == [
        "recovered by me",
        "known to be confirmed: all upto entry 5",
        "the end: nobody has it",
        "given up: 10",
    ]
