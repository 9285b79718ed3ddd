"""Bugs to plant in the clients of replicated ledgers; see `tests.power.bugs`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from roost.errors import RoostError, Unknown
from roost.ledger import quorum, recover
from roost.ledger.append import Appender, Confirmed, Effect
from roost.ledger.reading import LedgerReader
from roost.ledger.records import Records, Versioned
from roost.ledger.recover import Recovery
from roost.ledger.recovering import Recoverer, _Attempt
from roost.ledger.repair import plan, with_copy
from roost.ledger.repairing import Repairer
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase
from roost.metadata.operations import Compare
from roost.node.client import NodeClient
from roost.types import EntryId, NodeId
from tests.power.bugs import Bug

Patch = pytest.MonkeyPatch


# The writer


def ack_out_of_order(patch: Patch) -> None:
    """An entry is acknowledged as soon as it has its copies, and with it all before it."""
    real = Appender.on_stored

    def on_stored(self: Any, node: NodeId, entry: EntryId) -> Sequence[Effect]:
        effects = real(self, node, entry)
        pending = self._pending.get(entry)
        if not effects and pending is not None and pending.acks.bit_count() >= self._quorum.ack:
            return (Confirmed(entry),)
        return effects

    patch.setattr(Appender, "on_stored", on_stored)


def acks_one_too_few(patch: Patch) -> None:
    """An entry is acknowledged with one copy less than Qa, where that leaves any."""
    real = Appender._confirm

    def confirm(self: Any) -> Any:
        fewer = msgspec.structs.replace(self._quorum, ack=max(1, self._quorum.ack - 1))
        before, self._quorum = self._quorum, fewer
        try:
            return real(self)
        finally:
            self._quorum = before

    patch.setattr(Appender, "_confirm", confirm)


def acks_not_frozen_during_a_change(patch: Patch) -> None:
    """Entries are confirmed while the metadata is about to name another ensemble for them."""
    real = Appender.on_stored

    def on_stored(self: Any, node: NodeId, entry: EntryId) -> Any:
        changing, self._changing = self._changing, False
        try:
            return real(self, node, entry)
        finally:
            self._changing = changing

    patch.setattr(Appender, "on_stored", on_stored)


def acks_of_the_replaced_count(patch: Patch) -> None:
    """What a node had acknowledged before it was replaced counts for who takes its slot."""
    real = Appender.on_changed

    def on_changed(self: Any, now: float) -> Any:
        acks = {entry: pending.acks for entry, pending in self._pending.items()}
        effects = [*real(self, now)]
        for entry, pending in self._pending.items():
            pending.acks |= acks[entry]
        return [*effects, *self._confirm()]

    patch.setattr(Appender, "on_changed", on_changed)


def nothing_sent_to_the_new_node(patch: Patch) -> None:
    """Whoever takes a slot gets new entries only, and what is pending counts as there."""

    def send_again(self: Any, replica: Any, _now: float) -> list[Effect]:
        for pending in self._pending.values():
            pending.acks |= replica.bit & pending.mask
        return []

    patch.setattr(Appender, "_send_again", send_again)


def changes_without_compare(patch: Patch) -> None:
    """The writer puts its fragments down, whatever the metadata says by then."""
    _compare_less(patch, LedgerPhase.OPEN)


def closes_without_compare(patch: Patch) -> None:
    """Whoever closes a ledger closes it, whatever the metadata says by then."""
    _compare_less(patch, LedgerPhase.CLOSED)


def _compare_less(patch: Patch, phase: LedgerPhase) -> None:
    real = Records.change

    async def change(self: Any, was: Versioned, now: LedgerDocument) -> Versioned:
        if now.phase is phase:
            was = Versioned(was.document, (await self.read(now.ledger)).revision)
        return await real(self, was, now)

    patch.setattr(Records, "change", change)


def lost_answer_believed(patch: Patch) -> None:
    """A change whose answer was lost counts as made."""

    async def settle(self: Any, compare: Compare, now: LedgerDocument) -> Versioned:
        key = f"ledgers/{now.ledger:020}"
        try:
            return await real(self, compare, now)
        except Unknown:
            item = await self._store.get(key)
            if item is None:
                raise
            return Versioned(now, item.changed)

    real = Records._settle

    async def pause(
        self: Any, deadline: float, error: RoostError, *, doubtful: bool = False
    ) -> None:
        if isinstance(error, Unknown):
            raise error
        await real_pause(self, deadline, error, doubtful=doubtful)

    real_pause = Records._pause
    patch.setattr(Records, "_settle", settle)
    patch.setattr(Records, "_pause", pause)


def laggards_not_noted(patch: Patch) -> None:
    """Nodes that were away are named for what they missed, and nobody is told."""
    patch.setattr(Appender, "_noted_laggards", lambda _self: ())


def owing_not_noted(patch: Patch) -> None:
    """A close does not say which nodes still owe answers."""
    real = Appender._look_at_close

    def look(self: Any, *, lingered: bool = False) -> Any:
        for each in self._slots:
            each.owed.clear()
            each.owed_bytes = 0
        return real(self, lingered=lingered)

    patch.setattr(Appender, "_look_at_close", look)


# Recovery


def close_at_the_lac(patch: Patch) -> None:
    """Recovery ends the ledger at the highest LAC that it was told."""
    real = Recovery._judge

    def judge(self: Any, entry: EntryId) -> bool | None:
        kept = real(self, entry)
        return False if kept else kept

    patch.setattr(Recovery, "_judge", judge)


def nothing_written_back(patch: Patch) -> None:
    """What recovery finds somewhere it leaves there."""
    real = Recovery._write_back

    def write_back(self: Any, entry: EntryId, to: int) -> Any:
        effect = real(self, entry, to)
        self._candidates[entry].acks = ~0
        while (head := self._candidates.get(EntryId(self._done + 1))) is not None:
            if head.acks >= 0 or self._done + 1 > entry:
                break
            self._done = EntryId(self._done + 1)
            del self._candidates[self._done]
            self._held_bytes -= len(head.payload or b"")
        return msgspec.structs.replace(effect, nodes=())

    patch.setattr(Recovery, "_write_back", write_back)


def one_negative_ends(patch: Patch) -> None:
    """One node that lacks an entry is enough to cut it."""
    patch.setattr(recover, "end_coverage", lambda _quorum: 1)


def majority_ends(patch: Patch) -> None:
    """A majority that lacks an entry is enough to cut it."""
    patch.setattr(recover, "end_coverage", lambda of: of.write // 2 + 1)


def silence_is_absence(patch: Patch) -> None:
    """Who does not answer counts as one who lacks the entry."""

    def judge(self: Any, entry: EntryId) -> bool | None:
        candidate = self._candidate(entry)
        slots = quorum.write_set(entry, self._quorum)
        silent = [self._sources[self._named[slot]].silent for slot in slots]
        no = [slot in candidate.answers or gone for slot, gone in zip(slots, silent, strict=True)]
        if candidate.payload is not None:
            return bool(self._decide(entry, {}, kept=True))
        return None if sum(no) < quorum.end_coverage(self._quorum) else False

    patch.setattr(Recovery, "_judge", judge)


def reads_not_fenced(patch: Patch) -> None:
    """Recovery reads without fencing those that it reads from."""
    real = NodeClient.read

    def read(self: Any, *args: Any, **options: Any) -> Any:
        options["fence"] = None
        return real(self, *args, **options)

    patch.setattr(NodeClient, "read", read)


def nobody_fenced(patch: Patch) -> None:
    """Recovery asks for LACs, and fences nobody."""
    reads_not_fenced(patch)

    async def fence(self: Any, ledger: Any, _epoch: Any) -> Any:
        try:
            return await self.state(ledger)
        except RoostError:
            return await real(self, ledger, _epoch)

    real = NodeClient.fence
    patch.setattr(NodeClient, "fence", fence)


def starts_in_an_earlier_fragment(patch: Patch) -> None:
    """Recovery begins behind the LACs that it was told, also before the last fragment begins."""
    real = Recovery._begin_reading

    def begin(self: Any) -> Any:
        first, self._first = self._first, EntryId(0)
        try:
            return real(self)
        finally:
            self._first = first

    patch.setattr(Recovery, "_begin_reading", begin)


def fragments_named_early(patch: Patch) -> None:
    """Recovery tells the metadata of its ensemble before it has written everything back."""
    real_init, real_find, real_change = _Attempt.__init__, _Attempt._find_spares, Records.change
    real_try = Recoverer._try

    async def try_(self: Any, *args: Any, **options: Any) -> LedgerDocument:
        self._nodes.records = self._records
        return await real_try(self, *args, **options)

    def init(self: Any, begun: Versioned, *args: Any, **options: Any) -> None:
        real_init(self, begun, *args, **options)
        self.begun = self.now = begun

    async def find(self: Any, *args: Any) -> None:
        before = self._recovery._fragments
        await real_find(self, *args)
        after: tuple[Fragment, ...] = self._recovery._fragments
        if after != before:
            document = msgspec.structs.replace(self.now.document, fragments=after)
            records = self._nodes.records
            self.now = await real_change(records, self.now, document)
            records.early = {self.begun.revision: self.now}

    async def change(self: Any, was: Versioned, now: LedgerDocument) -> Versioned:
        return await real_change(self, getattr(self, "early", {}).get(was.revision, was), now)

    patch.setattr(Recoverer, "_try", try_)
    patch.setattr(_Attempt, "__init__", init)
    patch.setattr(_Attempt, "_find_spares", find)
    patch.setattr(Records, "change", change)


def write_back_raises_the_lac(patch: Patch) -> None:
    """What is written back carries the LAC of what was written back before it."""
    real = Recovery._write_back

    def write_back(self: Any, entry: EntryId, to: int) -> Any:
        return msgspec.structs.replace(real(self, entry, to), lac=self._done)

    patch.setattr(Recovery, "_write_back", write_back)


def closed_before_written_back(patch: Patch) -> None:
    """The ledger is closed when its end is known, and not when everything is written back."""
    real = Recovery._look_at_end

    def look(self: Any) -> Any:
        done = self._done
        if self._end is not None:
            self._done = max(self._done, self._end)
        try:
            return real(self)
        finally:
            self._done = done

    patch.setattr(Recovery, "_look_at_end", look)


def nobody_lags_behind_a_recovery(patch: Patch) -> None:
    """Who recovers takes it that every node has everything."""
    real = Recovery._look_at_end

    def look(self: Any) -> Any:
        return [msgspec.structs.replace(each, laggards=()) for each in real(self)]

    patch.setattr(Recovery, "_look_at_end", look)


# Reading and repair


def reads_what_is_not_confirmed(patch: Patch) -> None:
    """A reader believes the highest entry that a node has."""

    async def ask(self: Any, node: NodeId) -> None:
        try:
            state = await (await self._nodes.connect(node)).state(self.ledger)
        except RoostError:
            return
        self._horizon.on_lac(state.highest)

    patch.setattr(LedgerReader, "_ask_lac", ask)


def named_before_it_is_copied(patch: Patch) -> None:
    """Repair names the new node, and has it copy then."""

    async def copy_all(self: Any, now: Versioned, gone: Any, leaving: Any) -> Versioned:
        candidates = [each.candidate for each in self._nodes.directory.nodes()]
        for job in plan(
            now.document, gone=gone, leaving=leaving, candidates=candidates, rng=self._rng
        ):
            document = with_copy(now.document, job)
            if document is not None:
                now = await self._records.change(now, document)
            await self._copy(now.document, job)
        for node in now.document.laggards:
            now = await self._without(now, node)
        return now

    patch.setattr(Repairer, "_copy_all", copy_all)


def copy_not_checked(patch: Patch) -> None:
    """Repair takes it that a copy that ended is whole."""
    patch.setattr("roost.ledger.repairing.is_copied", lambda *_: True)
    patch.setattr("roost.ledger.repairing.named_entries", lambda *_: 0)


def laggards_struck_off_unseen(patch: Patch) -> None:
    """A laggard that has the last entry counts as having all."""
    patch.setattr(
        "roost.ledger.repairing.is_complete",
        lambda document, state: state.highest >= document.last,
    )


BUGS: Final = [
    Bug("ack out of order", ack_out_of_order, 200),
    Bug("acks one too few", acks_one_too_few, 200),
    Bug("acks not frozen during a change", acks_not_frozen_during_a_change, 100),
    Bug("acks of the replaced count", acks_of_the_replaced_count, 2000, rare=True),
    Bug("nothing sent to the new node", nothing_sent_to_the_new_node, 100),
    Bug("changes without compare", changes_without_compare, 100),
    Bug("closes without compare", closes_without_compare, 100),
    Bug("lost answer believed", lost_answer_believed, 800),
    Bug("laggards not noted", laggards_not_noted, 100),
    Bug("owing not noted", owing_not_noted, 100),
    Bug("close at the LAC", close_at_the_lac, 100),
    Bug("nothing written back", nothing_written_back, 100),
    Bug("one negative ends", one_negative_ends, 200),
    Bug("silence is absence", silence_is_absence, 600),
    Bug("reads not fenced", reads_not_fenced, 1500),
    Bug("nobody fenced", nobody_fenced, 200),
    Bug("fragments named early", fragments_named_early, 1000),
    Bug("nobody lags behind a recovery", nobody_lags_behind_a_recovery, 100),
    Bug("reads what is not confirmed", reads_what_is_not_confirmed, 100),
    Bug("named before it is copied", named_before_it_is_copied, 200),
    Bug("copy not checked", copy_not_checked, 2000),
    Bug("laggards struck off unseen", laggards_struck_off_unseen, 400),
]
"""Bugs that the whole system is played with."""

RECOVERY_BUGS: Final = [
    Bug("close at the LAC", close_at_the_lac, 100),
    Bug("nothing written back", nothing_written_back, 100),
    Bug("one negative ends", one_negative_ends, 100),
    Bug("majority ends", majority_ends, 400),
    Bug("silence is absence", silence_is_absence, 100),
    Bug("starts in an earlier fragment", starts_in_an_earlier_fragment, 1000),
    Bug("closed before written back", closed_before_written_back, 400),
    # The model plays some thousand seeds a second.
    Bug("write-back raises the LAC", write_back_raises_the_lac, 12_000),
]
"""Bugs in the machine alone: for some of them more must come together than the system's seeds do.

One that is left out, since nothing can come of it: a writer that takes being fenced for the failure
of a node. The metadata, which is in recovery by then, stops it at its next change.
"""
