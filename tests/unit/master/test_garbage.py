"""What a node may forget: never because something is unknown, and never what is named."""

import msgspec
import pytest

from roost.ledger.repair import Job, with_copy
from roost.master.garbage import Verdict, judge, with_barred
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId

A, B, C, D, E, F = (NodeId(name) for name in "abcdef")
SEVEN = LedgerId(7)
CLOSED = LedgerDocument(
    ledger=SEVEN,
    epoch=Epoch(1),
    quorum=Quorum(),
    fragments=(Fragment(EntryId(0), (A, B, C)),),
    phase=LedgerPhase.CLOSED,
    last=EntryId(8),
)
OPEN = msgspec.structs.replace(CLOSED, phase=LedgerPhase.OPEN, last=None)
RECOVERED = msgspec.structs.replace(OPEN, phase=LedgerPhase.IN_RECOVERY)
BARRED = msgspec.structs.replace(CLOSED, barred=(D,))


@pytest.mark.parametrize(
    ("document", "node", "verdict"),
    [
        (CLOSED, A, Verdict.KEEP),
        (CLOSED, D, Verdict.BAR),
        (BARRED, D, Verdict.DELETE),
        (OPEN, A, Verdict.KEEP),
        (OPEN, D, Verdict.KEEP),
        (RECOVERED, D, Verdict.KEEP),
        (CLOSED.deleted(), A, Verdict.DELETE),
        (OPEN.deleted(), D, Verdict.DELETE),
    ],
)
def test_a_document_decides(document: LedgerDocument, node: NodeId, verdict: Verdict) -> None:
    nodes = {A, B, C, D, E, F}

    assert judge(document, ledger=SEVEN, node=node, ids_before=0, nodes=nodes) is verdict


def test_without_a_document_it_was_deleted_if_its_id_was_ever_given_out() -> None:
    def verdict(ids_before: int) -> Verdict:
        return judge(None, ledger=SEVEN, node=A, ids_before=ids_before, nodes={A})

    assert verdict(8) is Verdict.DELETE
    assert verdict(7) is Verdict.FOREIGN
    assert verdict(0) is Verdict.FOREIGN


def test_a_stray_copy_is_kept_where_its_node_may_be_needed() -> None:
    def verdict(document: LedgerDocument, *nodes: NodeId) -> Verdict:
        return judge(document, ledger=SEVEN, node=D, ids_before=0, nodes=nodes)

    assert verdict(CLOSED, A, B, C, D) is Verdict.KEEP
    assert verdict(CLOSED, A, B, C, D, E) is Verdict.KEEP
    assert verdict(CLOSED, A, B, C, D, E, F) is Verdict.BAR
    barred = msgspec.structs.replace(CLOSED, barred=(F,))
    assert verdict(barred, A, B, C, D, E, F) is Verdict.KEEP


def test_only_who_is_named_for_nothing_is_barred_and_is_never_named_again() -> None:
    job = Job(SEVEN, Epoch(1), EntryId(0), EntryId(8), 0, A, D, EntryId(8), (B, C))
    assert with_copy(CLOSED, job) is not None

    barred = with_barred(CLOSED, D)

    assert barred == BARRED
    assert with_barred(BARRED, D) == BARRED
    assert with_barred(CLOSED, A) is None
    assert with_barred(OPEN, D) is None
    assert with_copy(BARRED, job) is None
    BARRED.check()
    with pytest.raises(AssertionError, match="not named"):
        msgspec.structs.replace(CLOSED, barred=(A,)).check()
