"""The writer, driven by whatever may happen; see also the transcripts `ledger_append_*`."""

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.errors import Closed, Conflict, Fenced, Invalid, NotFound, RoostError, Sealed, Unknown
from roost.ledger.append import (
    Appender,
    AppendSettings,
    ChangeFragments,
    Close,
    Confirmed,
    Disconnect,
    Effect,
    FindSpares,
    Overdue,
    Stopped,
    TellLac,
    Write,
)
from roost.ledger.quorum import write_set
from roost.metadata.ledgers import Fragment, LedgerDocument, Quorum
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, NodeId

A, B, C, D = (NodeId(name) for name in "abcd")


def document(quorum: Quorum = Quorum(), names: str = "abc") -> LedgerDocument:  # noqa: B008 (frozen)
    nodes = tuple(NodeId(name) for name in names)
    return LedgerDocument(
        ledger=LedgerId(7),
        epoch=Epoch(1),
        quorum=quorum,
        fragments=(Fragment(EntryId(0), nodes),),
    )


def writer(**options: float) -> Appender:
    made: AppendSettings = AppendSettings(**options)  # type: ignore[arg-type]
    return Appender(document(), made)


def confirm(appender: Appender, *entries: int) -> None:
    for entry in entries:
        for node in (A, B, C):
            appender.on_stored(node, EntryId(entry))


@pytest.mark.parametrize(
    "error",
    [
        Fenced("fenced", ledger=7, epoch=9),
        Sealed("closed", ledger=7, last=4),
        NotFound("deleted"),
        Conflict("other bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_who_is_told_that_the_ledger_has_ended_stops(error: RoostError) -> None:
    appender = writer()
    appender.append(b"x", 0.0)

    (effect,) = appender.on_refused(A, EntryId(0), error)

    assert isinstance(effect, Stopped)
    with pytest.raises(Fenced):
        appender.append(b"y", 0.0)
    assert appender.deadline() is None
    assert appender.on_time(99.0) == []
    assert appender.on_spares([D], 0.0) == ()
    assert appender.on_changed(0.0) == ()
    assert appender.on_returned(A, 0.0) == ()
    assert appender.close(0.0) == ()


def test_what_a_node_that_was_replaced_says_counts_no_more() -> None:
    appender = writer()
    appender.append(b"x", 0.0)
    appender.on_failed(A)
    appender.on_spares([D], 0.0)
    appender.on_changed(0.0)

    assert appender.on_refused(A, EntryId(0), Fenced("f", ledger=7, epoch=9)) == ()
    assert appender.on_stored(A, EntryId(0)) == ()
    assert appender.on_failed(A) == ()
    assert appender.stopped is None


def test_an_entry_that_is_too_large_is_refused_and_takes_no_id() -> None:
    appender = writer(payload_bytes_max=3)

    with pytest.raises(Invalid, match="payload_bytes_max"):
        appender.append(b"four", 0.0)

    assert appender.append(b"ok", 0.0)[0] == 0


def test_bytes_are_bounded_too_and_let_one_entry_pass() -> None:
    appender = writer(pending_bytes_max=3)

    appender.append(b"four", 0.0)

    full = appender.full
    confirm(appender, 0)
    assert (full, appender.full, appender.length) == (True, False, 4)


def test_a_node_that_owes_too_much_is_given_up() -> None:
    appender = writer(behind_bytes_max=3)
    for entry in range(2):
        appender.append(b"xx", 0.0)
        appender.on_stored(A, EntryId(entry))
        appender.on_stored(B, EntryId(entry))

    assert appender.deadline() is not None
    effects = appender.on_time(0.0)

    assert effects[0] == Disconnect(C)
    assert appender.missing == (C,)


def test_a_node_that_fails_while_nothing_is_written_is_replaced_with_the_next_entry() -> None:
    appender = writer()

    quiet = appender.on_failed(A)
    _, effects = appender.append(b"x", 0.0)

    assert quiet == ()
    assert effects == [
        Write(EntryId(0), b"x", NO_ENTRY, (B, C)),
        FindSpares(1, (A, B, C)),
    ]


def test_a_node_that_returns_before_it_is_replaced_keeps_its_slot() -> None:
    appender = writer()
    appender.append(b"x", 0.0)
    appender.on_failed(A)

    again = appender.on_returned(A, 0.0)
    after = appender.on_spares([D], 0.0)

    assert again == [Write(EntryId(0), b"x", NO_ENTRY, (A,))]
    assert not after
    assert appender.nodes == (A, B, C)


def test_a_node_that_returns_while_the_metadata_changes_is_replaced_nevertheless() -> None:
    appender = writer()
    appender.append(b"x", 0.0)
    appender.on_failed(A)
    appender.on_spares([D], 0.0)
    appender.on_returned(A, 0.0)
    appender.on_stored(A, EntryId(0))

    again = appender.on_changed(0.0)

    assert again == [Write(EntryId(0), b"x", NO_ENTRY, (D,))]
    assert appender.on_stored(B, EntryId(0)) == ()
    assert appender.on_stored(D, EntryId(0)) == (Confirmed(EntryId(0)),)


def test_a_spare_that_has_a_slot_already_is_none() -> None:
    appender = writer()
    appender.append(b"x", 0.0)
    appender.on_failed(A)

    assert not appender.on_spares([B], 0.0)
    assert appender.nodes == (A, B, C)


def test_an_abandoned_writer_takes_nothing_more() -> None:
    appender = writer()

    assert appender.abandon("enough") == (Stopped("enough"),)
    assert appender.abandon("enough") == ()
    with pytest.raises(Closed):
        appender.append(b"x", 0.0)


def test_no_ensemble_is_changed_behind_a_close() -> None:
    appender = writer(linger_s=0.0)
    appender.append(b"x", 0.0)
    appender.on_failed(C)
    appender.on_spares([], 0.0)
    appender.on_stored(A, EntryId(0))
    appender.on_stored(B, EntryId(0))

    effects = [*appender.close(0.0), *appender.on_time(100.0)]

    assert effects == [Close(EntryId(0), 1, (C,))]
    assert appender.deadline() is None


class Cluster:
    """Nodes, and a metadata store, that do what is drawn; and what must be true of it all."""

    def __init__(self, quorum: Quorum) -> None:
        names = "abcdefghij"[: quorum.ensemble + 2]
        self.now = 0.0
        self.quorum = quorum
        self.names = [NodeId(name) for name in names]
        self.has: dict[NodeId, set[int]] = {name: set() for name in self.names}
        self.sent: list[tuple[NodeId, EntryId]] = []
        self.asked: list[ChangeFragments | FindSpares] = []
        self.fragments = document(quorum, names[: quorum.ensemble]).fragments
        self.laggards: set[NodeId] = set()
        self.up = set(self.names)
        self.confirmed = NO_ENTRY
        settings = AppendSettings(
            pending_max=6,
            append_timeout_s=3.0,
            node_timeout_s=2.0,
            spare_retry_s=1.0,
            lac_push_s=0.5,
            linger_s=0.5,
            write_retry_limit=50,
        )
        self.appender = Appender(document(quorum, names[: quorum.ensemble]), settings)
        self.close: Close | None = None

    def do(self, effects: Iterable[Effect]) -> None:  # noqa: C901 (a table)
        """Carry out what was decided."""
        self.appender.check()
        for effect in effects:
            match effect:
                case Write():
                    for node in effect.nodes:
                        assert effect.lac < effect.entry
                        if node in self.up:
                            self.sent.append((node, effect.entry))
                        else:
                            self.do(self.appender.on_failed(node))
                case Confirmed(upto):
                    assert upto > self.confirmed
                    for entry in range(self.confirmed + 1, upto + 1):
                        self.check_copies(entry)
                    self.confirmed = upto
                case FindSpares() | ChangeFragments():
                    self.asked.append(effect)
                case Close():
                    self.close = effect
                case Overdue() | Disconnect() | TellLac():
                    pass
                case Stopped(why):
                    raise AssertionError(why)

    def check_copies(self, entry: int) -> None:
        """An entry that is confirmed is on Qa nodes that the metadata names for it."""
        fragment = [each for each in self.fragments if each.first <= entry][-1]
        named = [fragment.nodes[slot] for slot in write_set(entry, self.quorum)]
        assert sum(entry in self.has[node] for node in named) >= self.quorum.ack

    def step(self, draw: int, at: int) -> None:
        """Let one thing happen."""
        node = self.names[at % len(self.names)]
        match draw:
            case 0 | 1 | 2:
                with suppress(RoostError):
                    self.do(self.appender.append(b"x" * (at % 3), self.now)[1])
            case 3 | 4 | 5 | 6:
                if self.sent:
                    node, entry = self.sent.pop(at % len(self.sent))
                    self.has[node].add(entry)
                    self.do(self.appender.on_stored(node, entry))
            case 7:
                self.up.discard(node)
                self.sent = [each for each in self.sent if each[0] != node]
                error = Unknown("lost")
                self.do(self.appender.on_refused(node, EntryId(0), error))
            case 8:
                self.up.add(node)
                if node in self.appender.missing:
                    self.do(self.appender.on_returned(node, self.now))
            case 9:
                self.answer()
            case _:
                self.now += 0.3
                self.do(self.appender.on_time(self.now))

    def answer(self) -> None:
        """Answer the oldest thing that was asked of the surroundings."""
        if not self.asked:
            return
        asked = self.asked.pop(0)
        if isinstance(asked, FindSpares):
            spares = [each for each in self.names if each in self.up]
            spares = [each for each in spares if each not in asked.excluded][: asked.count]
            self.do(self.appender.on_spares(spares, self.now))
        else:
            self.fragments = asked.fragments
            self.laggards = {*asked.laggards}
            self.do(self.appender.on_changed(self.now))

    def settle(self) -> None:
        """Let all be well, and close."""
        for node in self.names:
            self.up.add(node)
            if node in self.appender.missing:
                self.do(self.appender.on_returned(node, self.now))
        self.do(self.appender.close(self.now))
        for _ in range(1000):
            if self.close is not None:
                return
            self.step(3, 0)
            self.step(8, self.names.index(next(iter(self.appender.missing), self.names[0])))
            self.answer()
            self.step(10, 0)
        raise AssertionError("it does not close")


QUORUMS = [Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(4, 3, 2), Quorum(5, 3, 3), Quorum(2, 2, 1)]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(QUORUMS),
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 9)), max_size=80),
)
def test_whatever_happens_the_confirmed_is_where_the_metadata_says(
    quorum: Quorum, steps: list[tuple[int, int]]
) -> None:
    cluster = Cluster(quorum)

    for draw, at in steps:
        cluster.step(draw, at)
    cluster.settle()

    close = cluster.close
    assert close is not None
    assert close.last == cluster.confirmed == cluster.appender.lac
    for entry in range(close.last + 1):
        fragment = [each for each in cluster.fragments if each.first <= entry][-1]
        for slot in write_set(entry, quorum):
            node = fragment.nodes[slot]
            assert entry in cluster.has[node] or node in close.laggards, (entry, node)
