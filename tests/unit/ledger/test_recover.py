"""Recovery, with whatever nodes hold and whoever answers; see also `ledger_recover_*`."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.ledger.quorum import write_set
from roost.ledger.recover import (
    CloseAt,
    Effect,
    Fence,
    FindSpares,
    Read,
    RecoverSettings,
    Recovery,
    Undecided,
    WriteBack,
)
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, NodeId

QUORUMS = [
    Quorum(3, 3, 2),
    Quorum(3, 2, 2),
    Quorum(4, 3, 2),
    Quorum(5, 3, 2),
    Quorum(5, 5, 2),
    Quorum(3, 3, 3),
    Quorum(2, 2, 1),
]
A, B, C = (NodeId(name) for name in "abc")


def document(quorum: Quorum, first: int = 0) -> LedgerDocument:
    nodes = tuple(NodeId(name) for name in "abcdefgh"[: quorum.ensemble])
    old = tuple(NodeId(f"old-{name}") for name in nodes)
    fragments = [Fragment(EntryId(first), nodes)]
    if first:
        fragments.insert(0, Fragment(EntryId(0), old))
    return LedgerDocument(
        ledger=LedgerId(7),
        epoch=Epoch(1),
        quorum=quorum,
        fragments=tuple(fragments),
        phase=LedgerPhase.IN_RECOVERY,
    )


class Nodes:
    """What the nodes of a ledger's last fragment hold, as its writer left them."""

    def __init__(self, rng: Random, quorum: Quorum) -> None:
        self.rng = rng
        self.quorum = quorum
        self.first = rng.choice([0, 0, 5])
        self.document = document(quorum, self.first)
        self.names = self.document.fragments[-1].nodes
        self.has: dict[NodeId, dict[int, bytes]] = {node: {} for node in self.names}
        self.acked = self.first - 1 + rng.randrange(0, 6)
        # Everything acknowledged is on Qa nodes at least, of the rest some are somewhere.
        for entry in range(self.first, self.acked + 4):
            slots = [*write_set(entry, quorum)]
            rng.shuffle(slots)
            least = quorum.ack if entry <= self.acked else 0
            for slot in slots[: rng.randrange(least, quorum.write + 1)]:
                self.has[self.names[slot]][entry] = f"entry {entry}".encode()
        self.lacs = {node: rng.randrange(-1, self.acked + 1) for node in self.names}
        down = rng.sample(self.names, rng.randrange(0, quorum.ack))
        self.down = {*down}
        self.spares = [NodeId(f"spare-{n}") for n in range(rng.choice([0, 1, quorum.ensemble]))]
        self.readonly = {node for node in self.names if rng.random() < 0.1}
        settings = RecoverSettings(
            window=rng.choice([1, 2, 100]), held_bytes_max=rng.choice([1, 1 << 20])
        )
        self.recovery = Recovery(self.document, settings)
        self.todo: list[Effect | tuple[NodeId, WriteBack]] = []
        self.result: CloseAt | Undecided | None = None

    def do(self, effects: Iterable[Effect]) -> None:
        """Note what is to be done; it is done in any order."""
        self.recovery.check()
        for effect in effects:
            if isinstance(effect, WriteBack):
                assert effect.lac == self.recovery.base
                self.todo += [(node, effect) for node in effect.nodes]
            elif isinstance(effect, Fence):
                self.todo += [Fence((node,)) for node in effect.nodes]
            elif isinstance(effect, CloseAt | Undecided):
                self.result = effect
            else:
                self.todo.append(effect)

    def play(self) -> CloseAt | Undecided:
        """Answer everything, in any order."""
        self.do(self.recovery.start())
        while self.todo and self.result is None:
            self.answer(self.todo.pop(self.rng.randrange(len(self.todo))))
        assert self.result is not None, "nothing is under way, and nothing was decided"
        return self.result

    def answer(self, effect: Effect | tuple[NodeId, WriteBack]) -> None:
        match effect:
            case Fence((node,)):
                if node in self.down:
                    self.do(self.recovery.on_failed(node))
                else:
                    self.do(self.recovery.on_fenced(node, EntryId(self.lacs[node])))
            case Read():
                self.read(effect)
            case FindSpares(count, excluded):
                left = [node for node in self.spares if node not in excluded][:count]
                self.spares = [node for node in self.spares if node not in left]
                self.do(self.recovery.on_spares(left))
            case (node, WriteBack() as back):
                if node in self.down or node in self.readonly:
                    self.do(self.recovery.on_refused(node))
                else:
                    held = self.has.setdefault(node, {})
                    assert held.setdefault(back.entry, bytes(back.payload)) == back.payload
                    self.do(self.recovery.on_stored(node, back.entry))
            case _:
                raise AssertionError(effect)

    def read(self, read: Read) -> None:
        """Answer a read, perhaps with a part only."""
        node = read.node
        if node in self.down:
            self.do(self.recovery.on_failed(node))
            return
        before = EntryId(self.rng.randrange(read.first + 1, read.upto + 2))
        wanted = range(read.first, before)
        found = {EntryId(each): self.has[node][each] for each in wanted if each in self.has[node]}
        self.do(self.recovery.on_batch(node, read.first, before, found, ()))
        self.do(self.recovery.on_read_end(node))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(QUORUMS), st.randoms(use_true_random=False))
def test_the_acknowledged_is_never_cut_and_the_kept_has_its_copies(
    quorum: Quorum, rng: Random
) -> None:
    nodes = Nodes(rng, quorum)

    result = nodes.play()

    if isinstance(result, Undecided):
        # So few nodes are down that everything can be decided, but not that it can be written.
        assert "write set take it" in result.why
        return
    assert result.last >= nodes.acked
    assert result.base >= nodes.first - 1
    assert result.fragments[: len(nodes.document.fragments) - 1] == (nodes.document.fragments[:-1])
    for entry in range(result.base + 1, result.last + 1):
        fragment = [each for each in result.fragments if each.first <= entry][-1]
        named = [fragment.nodes[slot] for slot in write_set(entry, quorum)]
        assert sum(entry in nodes.has.get(node, {}) for node in named) >= quorum.ack


def test_whoever_is_not_asked_is_not_heard() -> None:
    recovery = Recovery(document(Quorum()), RecoverSettings())
    recovery.start()

    assert recovery.on_fenced(NodeId("stranger"), EntryId(9)) == []
    assert recovery.on_refused(NodeId("stranger")) == []
    assert recovery.base is None


def test_a_node_that_passes_over_entries_or_says_nothing_is_not_asked_again() -> None:
    recovery = Recovery(document(Quorum()), RecoverSettings(window=5))
    recovery.start()
    recovery.on_fenced(A, NO_ENTRY)
    recovery.on_fenced(B, NO_ENTRY)

    recovery.on_batch(A, EntryId(3), EntryId(5), {}, ())
    recovery.on_read_end(B)
    (undecided,) = recovery.on_batch(C, EntryId(0), EntryId(5), {}, ())

    assert isinstance(undecided, Undecided)
    assert "a silent, b silent, c absent" in undecided.why


def test_once_it_is_over_nothing_more_is_done() -> None:
    recovery = Recovery(document(Quorum()), RecoverSettings())
    recovery.start()
    recovery.on_failed(A)
    recovery.on_failed(B)
    assert recovery.on_fenced(C, NO_ENTRY)

    assert recovery.over
    assert recovery.on_failed(C) == []
    assert recovery.on_stored(C, EntryId(0)) == []
    assert recovery.on_spares([]) == []
    assert recovery.on_batch(C, EntryId(0), EntryId(5), {}, ()) == []
    assert recovery.on_read_end(C) == []


def test_a_read_that_ends_behind_the_decision_is_no_failure() -> None:
    recovery = Recovery(document(Quorum()), RecoverSettings(window=5))
    recovery.start()
    recovery.on_fenced(A, NO_ENTRY)
    recovery.on_fenced(B, NO_ENTRY)
    recovery.on_batch(A, EntryId(0), EntryId(2), {EntryId(0): b"x"}, ())
    recovery.on_batch(B, EntryId(0), EntryId(2), {}, ())

    late = [*recovery.on_batch(C, EntryId(0), EntryId(5), {}, ()), *recovery.on_read_end(C)]

    assert late == []
    assert recovery.on_stored(A, EntryId(0)) == []
    (close,) = recovery.on_stored(B, EntryId(0))
    assert isinstance(close, CloseAt)


def test_only_what_is_undecided_can_be_given_up() -> None:
    recovery = Recovery(document(Quorum()), RecoverSettings())
    recovery.start()

    with pytest.raises(AssertionError):
        recovery.accept_loss()


def test_every_node_is_a_laggard_behind_a_recovery() -> None:
    nodes = Nodes(Random(1), Quorum(3, 3, 2))
    nodes.down.clear()
    nodes.readonly.clear()

    result = nodes.play()

    assert isinstance(result, CloseAt)
    assert {*nodes.names} <= {*result.laggards}
