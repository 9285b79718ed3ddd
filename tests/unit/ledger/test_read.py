"""Reading a range: whom to ask, what to believe, whom to accuse."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.ledger.quorum import write_set
from roost.ledger.read import (
    Ask,
    Done,
    Effect,
    Failed,
    Fault,
    Horizon,
    Ill,
    Latencies,
    RangeRead,
)
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId

A, B, C = (NodeId(name) for name in "abc")


def document(quorum: Quorum, last: int | None = None) -> LedgerDocument:
    nodes = tuple(NodeId(name) for name in "abcdefgh"[: quorum.ensemble])
    return LedgerDocument(
        ledger=LedgerId(7),
        epoch=Epoch(1),
        quorum=quorum,
        fragments=(Fragment(EntryId(0), nodes),),
        phase=LedgerPhase.OPEN if last is None else LedgerPhase.CLOSED,
        last=None if last is None else EntryId(last),
    )


def reading(first: int = 0, upto: int = 1, quorum: Quorum | None = None) -> RangeRead:
    made = document(quorum or Quorum())
    return RangeRead(made, EntryId(first), EntryId(upto), order=[B, A, C])


def entries(*which: int) -> dict[EntryId, bytes]:
    return {EntryId(each): b"%d" % each for each in which}


def test_one_copy_is_enough_and_comes_from_the_first_in_order() -> None:
    read = reading()

    asked = read.start()
    quiet = read.on_batch(B, EntryId(0), EntryId(2), entries(0, 1), ())
    done = read.on_read_end(B)

    assert asked == [Ask(B, EntryId(0), EntryId(1))]
    assert quiet == []
    assert done == [Done((b"0", b"1"))]
    assert read.over


def test_a_node_that_lacks_an_entry_is_accused_and_the_next_is_asked() -> None:
    read = reading()
    read.start()

    accused = read.on_batch(B, EntryId(0), EntryId(2), entries(1), ())
    asked = read.on_read_end(B)
    read.on_batch(A, EntryId(0), EntryId(2), entries(0, 1), ())

    assert accused == [Fault(B, EntryId(0), Ill.ABSENT)]
    assert asked == [Ask(A, EntryId(0), EntryId(1))]
    assert read.on_read_end(A) == [Done((b"0", b"1"))]


def test_what_came_before_a_gap_is_given_and_the_rest_is_asked_for_next_time() -> None:
    read = reading(upto=3)
    read.start()

    read.on_batch(B, EntryId(0), EntryId(4), entries(0, 1, 3), [EntryId(2)])

    assert read.on_read_end(B) == [Done((b"0", b"1"))]
    assert read.on_read_end(A) == []
    assert read.on_batch(A, EntryId(0), EntryId(1), {}, ()) == []


def test_nobody_has_it() -> None:
    read = reading()
    read.start()
    read.on_batch(B, EntryId(0), EntryId(2), {}, [EntryId(0)])
    read.on_read_end(B)
    read.on_failed(A)
    read.on_batch(C, EntryId(0), EntryId(2), {}, ())

    (failed,) = read.on_read_end(C)

    assert isinstance(failed, Failed)
    assert failed.why == "entry 0: not whole on b, c, and no answer from a"


def test_a_slow_node_is_not_waited_for() -> None:
    read = reading()
    read.start()

    hedge = read.on_slow()
    read.on_batch(A, EntryId(0), EntryId(2), entries(0, 1), ())
    done = read.on_read_end(A)

    assert hedge == [Ask(A, EntryId(0), EntryId(1))]
    assert done == [Done((b"0", b"1"))]
    assert read.on_slow() == []


def test_what_has_come_of_a_slow_node_is_given_at_once() -> None:
    read = reading()
    read.start()
    read.on_batch(B, EntryId(0), EntryId(1), entries(0), ())

    assert read.on_slow() == [Done((b"0",))]


def test_with_a_read_quorum_copies_are_compared() -> None:
    read = reading(0, 0, Quorum(3, 3, 2, 2))

    asked = read.start()
    read.on_batch(B, EntryId(0), EntryId(1), {EntryId(0): b"x"}, ())
    quiet = read.on_read_end(B)
    accused = read.on_batch(A, EntryId(0), EntryId(1), {EntryId(0): b"y"}, ())
    third = read.on_read_end(A)
    read.on_batch(C, EntryId(0), EntryId(1), {EntryId(0): b"x"}, ())

    assert asked == [Ask(B, EntryId(0), EntryId(0)), Ask(A, EntryId(0), EntryId(0))]
    assert quiet == []
    assert accused == [Fault(A, EntryId(0), Ill.DIFFERENT)]
    assert third == [Ask(C, EntryId(0), EntryId(0))]
    assert read.on_read_end(C) == [Done((b"x",))]


def test_where_entries_are_striped_so_many_are_asked_as_have_all() -> None:
    quorum = Quorum(5, 2, 2)
    read = RangeRead(document(quorum), EntryId(0), EntryId(9), order=[])

    asked = [ask.node for ask in read.start() if isinstance(ask, Ask)]

    for entry in range(10):
        assert any(document(quorum).nodes[slot] in asked for slot in write_set(entry, quorum))
    assert len(asked) < 5


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([Quorum(3, 3, 2), Quorum(4, 2, 2), Quorum(5, 3, 2), Quorum(3, 3, 2, 2)]),
    st.randoms(use_true_random=False),
)
def test_whatever_is_on_a_node_that_answers_is_found(quorum: Quorum, rng: object) -> None:
    draw = getattr(rng, "random")  # noqa: B009 (hypothesis's has no type)
    made = document(quorum)
    has = {
        node: {
            entry: b"%d" % entry
            for entry in range(12)
            if slot in write_set(entry, quorum) and draw() < 0.7
        }
        for slot, node in enumerate(made.nodes)
    }
    silent = {node for node in made.nodes if draw() < 0.2}
    read = RangeRead(made, EntryId(2), EntryId(11), order=list(made.nodes))
    todo: list[Effect] = [*read.start()]
    result: Done | Failed | None = None
    while todo and result is None:
        effect = todo.pop(int(draw() * len(todo)))
        match effect:
            case Ask(node, first, upto):
                if node in silent:
                    todo += read.on_failed(node)
                    continue
                before = EntryId(first + 1 + int(draw() * (upto - first + 1)))
                found = {EntryId(e): p for e, p in has[node].items() if first <= e < before}
                todo += read.on_batch(node, first, before, found, ())
                todo += read.on_slow() if draw() < 0.1 else []
                todo += read.on_read_end(node)
            case Fault(node, entry, _):
                assert entry not in has[node]
            case Done() | Failed():
                result = effect

    copies = sum(2 in has[node] for node in made.nodes if node not in silent)
    assert isinstance(result, Done) == (copies >= quorum.read)
    if isinstance(result, Done):
        assert list(result.payloads) == [b"%d" % (2 + n) for n in range(len(result.payloads))]


def test_a_horizon_only_grows_and_ends_where_the_ledger_ends() -> None:
    horizon = Horizon()

    horizon.on_lac(EntryId(3))
    horizon.on_lac(EntryId(1))
    horizon.on_document(document(Quorum()))
    seen = [(horizon.upto, horizon.closed)]
    horizon.on_document(document(Quorum(), last=5))
    horizon.on_lac(EntryId(9))
    seen.append((horizon.upto, horizon.closed))

    assert seen == [(3, False), (5, True)]


def test_slow_is_what_takes_longer_than_nearly_all_did() -> None:
    latencies = Latencies(kept=100, first_s=7.0)

    first = latencies.slow_after_s()
    for number in range(100):
        latencies.note(0.01 if number else 2.0)

    assert first == 7.0
    assert latencies.slow_after_s() == pytest.approx(0.01)
    latencies.note(0.5)
    latencies.note(0.6)
    assert latencies.slow_after_s() == pytest.approx(0.5)
