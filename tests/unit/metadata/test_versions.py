"""The memory of a store, against a model that keeps everything and is asked in the simplest way."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roost.errors import Compacted, Invalid, NotFound
from roost.metadata.operations import (
    Absent,
    Batch,
    ChangedAt,
    Delete,
    Event,
    Get,
    Item,
    LeaseId,
    Put,
    Revision,
)
from roost.metadata.versions import PAGE_BYTES, Versions

KEYS = st.sampled_from(["a", "a/1", "a/2", "b"])
NOTHING: dict[str, Item] = {}


class Model(RuleBasedStateMachine):
    """All states that there ever were, and what led to them."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = Versions()
        self.states = [NOTHING]
        self.compacted = 0
        self.leases: dict[int, float] = {}
        self.now = 0.0

    def begin(self) -> dict[str, Item]:
        return dict(self.states[-1])

    def end(self, state: dict[str, Item], *, changed: bool) -> None:
        if changed:
            self.states.append(state)

    @rule(key=KEYS, value=st.binary(max_size=3), lease=st.sampled_from([0, 1, 2]))
    def put(self, key: str, value: bytes, lease: int) -> None:
        puts = [Put(key, value, LeaseId(lease))]
        if lease and lease not in self.leases:
            with pytest.raises(NotFound):
                self.versions.txn((), puts, ())
            return
        state, revision = self.begin(), Revision(len(self.states))
        old = state.get(key)
        state[key] = Item(
            key,
            value,
            old.created if old else revision,
            revision,
            old.version + 1 if old else 1,
            LeaseId(lease),
        )
        assert self.versions.txn((), puts, ()).revision == revision
        self.end(state, changed=True)

    @rule(first=KEYS, second=KEYS)
    def swap(self, first: str, second: str) -> None:
        state, revision = self.begin(), Revision(len(self.states))
        item = state.get(first)
        compare = ChangedAt(first, item.changed) if item else Absent(first)
        if first == second:
            return
        outcome = self.versions.txn([compare], [Delete(first), Put(second, b""), Get(first)], ())
        state.pop(first, None)
        old = state.get(second)
        created = old.created if old else revision
        state[second] = Item(second, b"", created, revision, old.version + 1 if old else 1)
        self.end(state, changed=True)
        assert outcome.succeeded
        assert list(outcome.got) == [None]
        assert not self.versions.txn([Absent(second)], [Delete(second)], ()).succeeded

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        state = self.begin()
        changed = state.pop(key, None) is not None
        self.versions.txn((), [Delete(key)], ())
        self.end(state, changed=changed)

    @rule(lease=st.sampled_from([1, 2]), ttl_s=st.integers(2, 5))
    def grant_or_renew(self, lease: int, ttl_s: int) -> None:
        left = self.versions.renew(LeaseId(lease), self.now)
        if lease not in self.leases:
            assert left == 0
            self.versions.grant(LeaseId(lease), ttl_s, self.now)
            left = ttl_s
        self.leases[lease] = self.now + left

    @rule(later_s=st.integers(1, 3))
    def time_passes(self, later_s: int) -> None:
        self.now += later_s
        out = {lease for lease, deadline in self.leases.items() if deadline <= self.now}
        expired = self.versions.expired(self.now)
        assert set(expired) == out
        for lease in expired:
            state = self.begin()
            gone = [key for key, item in state.items() if item.lease == lease]
            for key in gone:
                del state[key]
            assert self.versions.revoke(lease)
            del self.leases[lease]
            self.end(state, changed=bool(gone))

    @precondition(lambda self: len(self.states) > 1)
    @rule(share=st.floats(0.0, 1.0))
    def compact(self, share: float) -> None:
        upto = int(share * (len(self.states) - 1))
        self.versions.compact(Revision(upto))
        self.compacted = max(self.compacted, upto)

    @invariant()
    def everything_can_be_read_as_it_was(self) -> None:
        for revision in range(max(1, self.compacted), len(self.states)):
            page = self.versions.page("", limit=100, revision=Revision(revision))
            assert list(page.items) == [item for _, item in sorted(self.states[revision].items())]
        for key in ("a", "a/1", "b"):
            assert self.versions.get(key) == self.states[-1].get(key)
        assert self.versions.next_expiry() == min(self.leases.values(), default=None)
        with pytest.raises(Invalid):
            self.versions.page("", limit=1, revision=Revision(len(self.states)))
        if self.compacted > 1:
            with pytest.raises(Compacted):
                self.versions.page("", limit=1, revision=Revision(self.compacted - 1))

    @invariant()
    def events_lead_from_each_state_to_the_next(self) -> None:
        first, state = self.compacted + 1, dict(self.states[self.compacted])
        with pytest.raises(Compacted):
            self.versions.batch("", Revision(self.compacted))
        while isinstance(found := self.versions.batch("", Revision(first)), Batch):
            for event in found.events:
                state.pop(event.key, None)
                if event.item is not None:
                    state[event.key] = event.item
            first = found.revision + 1
        assert state == self.states[-1]
        assert found == len(self.states)

    @invariant()
    def another_life_reads_the_same(self) -> None:
        events: list[Event] = []
        for revision in range(max(1, self.compacted), len(self.states)):
            before = self.states[revision - 1] if revision > self.compacted else NOTHING
            events += [
                Event(key, item.changed, item)
                for key, item in self.states[revision].items()
                if before.get(key) != item
            ]
            events += [
                Event(key, Revision(revision), None)
                for key in before
                if key not in self.states[revision]
            ]
        again = Versions()
        again.load(
            sorted(events, key=lambda event: event.revision),
            revision=self.versions.revision,
            compacted=Revision(self.compacted),
        )
        assert again.page("", limit=100) == self.versions.page("", limit=100)
        assert again.history == self.versions.history


TestModel = Model.TestCase


def test_a_page_and_a_batch_end_when_they_are_long_enough() -> None:
    versions = Versions()
    for number in range(10):
        versions.txn((), [Put(f"k{number}", bytes(PAGE_BYTES // 4))], ())

    page = versions.page("", limit=100)
    batch = versions.batch("", Revision(1))

    assert isinstance(batch, Batch)
    assert (len(page.items), page.more) == (4, True)
    assert len(batch.events) == 4


def test_a_key_that_names_a_lease_which_begins_later_goes_with_it() -> None:
    versions = Versions()
    item = Item("a", b"", Revision(1), Revision(1), 1, LeaseId(7))
    versions.load([Event("a", Revision(1), item)], revision=Revision(3), compacted=Revision(0))
    versions.grant(LeaseId(7), 5, 0.0)
    versions.revoke(LeaseId(7))

    assert versions.get("a") is None
    assert versions.revision == 4
    with pytest.raises(Invalid, match="yet to come"):
        versions.compact(Revision(5))
