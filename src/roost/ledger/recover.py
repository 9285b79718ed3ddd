"""Ends a ledger whose writer is gone: finds its last entry, and sees that all before it are safe.

Sans-IO. The promises: what was ever acknowledged stays, and stays where it is; whoever was told
"no such entry" was told the truth; and if too few nodes answer to know, nothing is decided.

    base        known to be confirmed: the highest LAC that a fenced node knows
    base < e    kept if any node of its write set has it, and then written back to Qa nodes
    the end     the first e that Qw - Qa + 1 nodes of its write set, fenced, lack

The last fragment's nodes are fenced first, so many that the old writer can confirm nothing more
(`quorum.covers`). From then on what they hold does not change under our eyes, except by recoverers
like this one, and all of these write back the same bytes under the same ids.

Reads go to the ensemble that the metadata names. Write-backs go to one that this recovery keeps in
its own memory: where a node cannot be reached another one takes its slot, from the first entry on
that is not written back yet. Only the close makes that known. A recovery that fails before leaves
copies on nodes that no fragment names, and so the LAC that goes with them stays at the base: the
next recoverer must not skip what this one has only put there.

*Undecided* is an answer: nodes that do not answer, or cannot tell, count for neither side. To end
the ledger all the same, and lose what cannot be read, is an input of its own (`accept_loss`), and
nothing here ever gives it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from roost.ledger.quorum import covers, end_coverage, write_set
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase
from roost.types import NO_ENTRY, EntryId, NodeId


class RecoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How far a recovery looks ahead."""

    window: int = 256
    """How many entries beyond what is written back are read."""

    held_bytes_max: int = 32 << 20
    """How many bytes of them are held before nothing more is read ahead."""


class Fence(msgspec.Struct, frozen=True):
    """Fence the ledger on these nodes; each answers with `on_fenced` or `on_failed`."""

    nodes: tuple[NodeId, ...]


class Read(msgspec.Struct, frozen=True):
    """Read a range of a node, fenced; answer with `on_batch`s and `on_read_end`, or `on_failed`."""

    node: NodeId
    first: EntryId
    upto: EntryId


class WriteBack(msgspec.Struct, frozen=True):
    """Add an entry with the flag of recovery; each answers with `on_stored` or `on_refused`."""

    entry: EntryId
    payload: bytes | memoryview
    lac: EntryId
    nodes: tuple[NodeId, ...]


class FindSpares(msgspec.Struct, frozen=True):
    """Find nodes that can be reached; answer with `on_spares`."""

    count: int
    excluded: tuple[NodeId, ...]


class CloseAt(msgspec.Struct, frozen=True):
    """Have the metadata close the ledger, if its version is still the one that began this."""

    last: EntryId
    fragments: tuple[Fragment, ...]
    laggards: tuple[NodeId, ...]
    base: EntryId
    reason: str
    given_up: tuple[EntryId, ...]


class Undecided(msgspec.Struct, frozen=True):
    """Give up for now: too few nodes answered to know. Nothing was changed; begin anew later."""

    why: str


Effect = Fence | Read | WriteBack | FindSpares | CloseAt | Undecided


class Answer(Enum):
    """What a node said of an entry."""

    FOUND = "found"
    ABSENT = "absent"
    UNSURE = "unsure"
    """It cannot tell, or what it has does not hold."""
    SILENT = "silent"
    """It cannot be reached."""


class Decision(msgspec.Struct, frozen=True):
    """Why an entry was kept, or why the ledger ends before it."""

    entry: EntryId
    kept: bool
    answers: tuple[tuple[NodeId, Answer], ...]
    """Who had said what by then; who is not named had not answered."""

    @property
    def unanimous(self) -> bool:
        """Whether all who had answered said the same, and have the entry."""
        return all(answer is Answer.FOUND for _, answer in self.answers)

    def __str__(self) -> str:
        said = ", ".join(f"{node} {answer.value}" for node, answer in self.answers)
        return f"entry {self.entry} {'kept' if self.kept else 'cut'}: {said or 'no answers'}"


class _Candidate:
    """An entry that may be in the ledger."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.payload: bytes | memoryview | None = None
        self.acks = 0


class _Source:
    """A node of the last ensemble that the metadata names."""

    def __init__(self) -> None:
        self.reading = False
        self.silent = False
        self.asked_from = EntryId(0)
        self.next = EntryId(0)
        """Up to here, excluding, it has answered."""


class Recovery:
    """One try to end one ledger."""

    def __init__(self, document: LedgerDocument, settings: RecoverSettings) -> None:
        assert document.phase is LedgerPhase.IN_RECOVERY, "recovery begins in the metadata"
        self.decisions: Final[list[Decision]] = []
        self._quorum: Final = document.quorum
        self._settings: Final = settings
        self._named: Final = document.fragments[-1].nodes
        self._first: Final = document.fragments[-1].first
        self._sources: Final = {node: _Source() for node in self._named}
        self._lacs: dict[int, EntryId] = {}
        self._base: EntryId | None = None
        self._candidates: dict[EntryId, _Candidate] = {}
        self._held_bytes = 0
        # Numbers on a line: base <= done < cursor <= end + 1.
        self._done = NO_ENTRY
        self._cursor = EntryId(0)
        self._end: EntryId | None = None
        self._why_end = ""
        self._stuck = ""
        self._fragments = document.fragments
        self._slots = list(self._named)
        self._down = 0
        self._given_up = 0
        self._seeking = False
        self._over = False
        self._undecided = False
        self._accepting_loss = False
        self._lost: list[EntryId] = []

    @property
    def base(self) -> EntryId | None:
        """The entry up to which all is known to be confirmed, once that is known."""
        return self._base

    @property
    def over(self) -> bool:
        """Whether nothing more comes of this try."""
        return self._over

    # Fencing

    def start(self) -> Sequence[Effect]:
        """Begin."""
        return [Fence(self._named)]

    def on_fenced(self, node: NodeId, lac: EntryId) -> Sequence[Effect]:
        """Note that a node lets the old writer add nothing more, and what LAC it knows."""
        if self._base is not None or self._over or node not in self._sources:
            return []
        self._lacs[self._named.index(node)] = lac
        return self._look_at_fences()

    def _look_at_fences(self) -> Sequence[Effect]:
        if covers(self._lacs.keys(), self._quorum):
            return self._begin_reading()
        silent = {node for node, source in self._sources.items() if source.silent}
        if len(self._lacs) + len(silent) < len(self._named):
            return []
        if self._accepting_loss:
            return self._begin_reading()
        return self._undecide(
            f"too few nodes can be fenced: {len(self._lacs)} of {len(self._named)} answered, and "
            f"{', '.join(sorted(silent))} did not"
        )

    def _begin_reading(self) -> Sequence[Effect]:
        self._base = EntryId(max([*self._lacs.values(), EntryId(self._first - 1)]))
        self._done = self._base
        self._cursor = EntryId(self._base + 1)
        for source in self._sources.values():
            source.next = self._cursor
        return self._go_on()

    # Reading

    def on_batch(
        self,
        node: NodeId,
        first: EntryId,
        before: EntryId,
        found: Mapping[EntryId, bytes | memoryview],
        unsure: Iterable[EntryId],
    ) -> Sequence[Effect]:
        """Note what a fenced node says of the entries [first, before)."""
        if self._over or self._end is not None:
            return []
        source, slot = self._sources[node], self._named.index(node)
        if first > source.next:
            return self.on_failed(node)  # it passed over what it was asked for
        before = EntryId(min(before, self._done + self._settings.window + 1))
        source.next = max(source.next, before)
        doubtful = {*unsure}
        for number in range(max(first, self._cursor), before):
            entry = EntryId(number)
            if slot not in write_set(entry, self._quorum):
                continue
            if (payload := found.get(entry)) is not None:
                if (other := self._found(entry, slot, payload)) is not None:
                    return other
            else:
                answer = Answer.UNSURE if entry in doubtful else Answer.ABSENT
                self._candidate(entry).answers[slot] = answer
        return self._go_on()

    def _found(
        self, entry: EntryId, slot: int, payload: bytes | memoryview
    ) -> Sequence[Effect] | None:
        candidate = self._candidate(entry)
        candidate.answers[slot] = Answer.FOUND
        if candidate.payload is None:
            candidate.payload = payload
            self._held_bytes += len(payload)
        elif candidate.payload != payload:
            return self._undecide(
                f"entry {entry} is on {self._named[slot]} with other bytes than elsewhere: two "
                "writers used one id"
            )
        return None

    def on_read_end(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node has said what it was asked for."""
        source = self._sources[node]
        if source.reading and source.next == source.asked_from and self._end is None:
            return self.on_failed(node)  # it said nothing, and would do so for ever
        source.reading = False
        return self._go_on()

    def _candidate(self, entry: EntryId) -> _Candidate:
        return self._candidates.setdefault(entry, _Candidate())

    # Deciding

    def _go_on(self) -> Sequence[Effect]:
        if self.over or self._base is None:
            return []
        effects: list[Effect] = []
        while self._end is None and self._cursor <= self._done + self._settings.window:
            kept = self._judge(self._cursor)
            if kept is None:
                break
            if not kept:
                self._end = EntryId(self._cursor - 1)
                break
            effects.append(self._write_back(self._cursor, self._all_slots()))
            self._cursor = EntryId(self._cursor + 1)
        if why := self._stuck or self._too_few():
            return self._undecide(why)
        return [*effects, *self._seek(), *self._ask_on(), *self._look_at_end()]

    def _judge(self, entry: EntryId) -> bool | None:
        """Decide whether an entry is kept; None while that is open, or if it cannot be decided."""
        candidate = self._candidate(entry)
        slots = write_set(entry, self._quorum)
        answers = {
            slot: Answer.SILENT if self._sources[self._named[slot]].silent else None
            for slot in slots
        } | candidate.answers
        absent = sum(answer is Answer.ABSENT for answer in answers.values())
        if candidate.payload is not None:
            return self._decide(entry, answers, kept=True)
        if absent >= end_coverage(self._quorum):
            self._why_end = (
                f"{absent} of {self._quorum.write} nodes never had entry {entry}: nobody can have "
                "confirmed it"
            )
            return self._decide(entry, answers, kept=False)
        if None in answers.values():
            return None
        if self._accepting_loss:
            self._give_up_from(entry)
            return self._decide(entry, answers, kept=False)
        decision = self._decision(entry, answers, kept=False)
        self._stuck = f"nobody can tell whether the ledger ends here: {decision}"
        return None

    def _decide(self, entry: EntryId, answers: Mapping[int, Answer | None], *, kept: bool) -> bool:
        self.decisions.append(self._decision(entry, answers, kept=kept))
        return kept

    def _decision(
        self, entry: EntryId, answers: Mapping[int, Answer | None], *, kept: bool
    ) -> Decision:
        said = [(self._named[slot], answers[slot]) for slot in sorted(answers)]
        return Decision(entry, kept, tuple((node, each) for node, each in said if each is not None))

    def _give_up_from(self, entry: EntryId) -> None:
        self._why_end = f"entry {entry} and what follows was given up: nobody who answers has it"
        self._lost = [
            each
            for each, candidate in sorted(self._candidates.items())
            if each >= entry
            and (candidate.payload is not None or Answer.UNSURE in candidate.answers.values())
        ]
        if entry not in self._lost:
            self._lost.insert(0, entry)

    def _undecide(self, why: str) -> Sequence[Effect]:
        self._over = self._undecided = True
        return [Undecided(why)]

    def accept_loss(self) -> Sequence[Effect]:
        """End the ledger at what can be proven, though it is undecided, and list what is lost.

        That is somebody's decision, who knows that the nodes which are missing never come back.
        """
        assert self._undecided, "there is nothing to be given up before it is undecided"
        self._over = self._undecided = False
        self._stuck = ""
        self._accepting_loss = True
        return self._look_at_fences() if self._base is None else self._go_on()

    # Writing back

    def _all_slots(self) -> int:
        return (1 << len(self._slots)) - 1

    def _write_back(self, entry: EntryId, to: int) -> WriteBack:
        candidate = self._candidates[entry]
        assert candidate.payload is not None, "only what was found is written back"
        assert self._base is not None, "and only behind the base"
        nodes = tuple(
            self._slots[slot]
            for slot in write_set(entry, self._quorum)
            if to & ~self._down & 1 << slot
        )
        return WriteBack(entry, candidate.payload, self._base, nodes)

    def on_stored(self, node: NodeId, entry: EntryId) -> Sequence[Effect]:
        """Note that a node has an entry that was written back."""
        candidate = self._candidates.get(entry)
        if candidate is None or node not in self._slots or self._over:
            return []
        slot = self._slots.index(node)
        if slot in write_set(entry, self._quorum):
            candidate.acks |= 1 << slot
        while (head := self._candidates.get(EntryId(self._done + 1))) is not None:
            if self._done + 1 >= self._cursor or head.acks.bit_count() < self._quorum.ack:
                break
            self._done = EntryId(self._done + 1)
            del self._candidates[self._done]
            self._held_bytes -= len(head.payload or b"")
        return self._go_on()

    def on_refused(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node does not take what is written back; it may well be read from."""
        if self._over or node not in self._slots:
            return []
        self._down |= 1 << self._slots.index(node)
        return self._go_on()

    def on_failed(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node cannot be reached, or does not do what it was asked."""
        if self._over:
            return []
        if node in self._slots:
            self._down |= 1 << self._slots.index(node)
        source = self._sources.get(node)
        if source is not None:
            source.silent = True
            source.reading = False
        if self._base is None:
            return self._look_at_fences()
        return self._go_on()

    def _seek(self) -> Sequence[Effect]:
        """Look for nodes in the place of those that should take write-backs and cannot."""
        writing = self._cursor > self._done + 1
        failed = self._down & ~self._given_up
        if not (writing and failed) or self._seeking:
            return []
        self._seeking = True
        return [FindSpares(failed.bit_count(), tuple(dict.fromkeys((*self._slots, *self._named))))]

    def on_spares(self, spares: Sequence[NodeId]) -> Sequence[Effect]:
        """Let others take the slots, in memory only; there may be fewer than were asked for."""
        self._seeking = False
        if self._over:
            return []
        failed = [slot for slot in range(len(self._slots)) if self._down >> slot & 1]
        failed = [slot for slot in failed if not self._given_up >> slot & 1]
        spares = [node for node in spares if node not in self._slots]
        replaced = 0
        for slot, spare in zip(failed, spares, strict=False):
            self._slots[slot] = spare
            replaced |= 1 << slot
        for slot in failed[len(spares) :]:
            self._given_up |= 1 << slot
        if not replaced:
            return self._go_on()
        self._down &= ~replaced
        first = EntryId(self._done + 1)
        kept = tuple(each for each in self._fragments if each.first < first)
        self._fragments = (*kept, Fragment(first, tuple(self._slots)))
        again: list[Effect] = []
        for number in range(first, self._cursor):
            self._candidates[EntryId(number)].acks &= ~replaced
            again.append(self._write_back(EntryId(number), replaced))
        return [*again, *self._go_on()]

    def _too_few(self) -> str:
        """Say why an entry that is to be written back cannot be, if so."""
        if not self._given_up:
            return ""
        for number in range(self._done + 1, self._cursor):
            slots = write_set(number, self._quorum)
            left = sum(not self._given_up >> slot & 1 for slot in slots)
            if left < self._quorum.ack:
                return (
                    f"entry {number} is to be on {self._quorum.ack} nodes, and only {left} of its "
                    "write set take it"
                )
        return ""

    # The end

    def _ask_on(self) -> list[Effect]:
        """Have every node that has nothing to do read on."""
        if self._end is not None:
            return []
        upto = EntryId(self._done + self._settings.window)
        asks: list[Effect] = []
        for node, source in self._sources.items():
            full = self._held_bytes > self._settings.held_bytes_max and source.next > self._cursor
            if source.silent or source.reading or source.next > upto or full:
                continue
            source.reading = True
            source.asked_from = source.next
            asks.append(Read(node, source.next, upto))
        return asks

    def _look_at_end(self) -> list[Effect]:
        if self._end is None or self._done < self._end:
            return []
        assert self._base is not None, "the end is behind the base"
        self._over = True
        nodes = {node for each in self._fragments for node in each.nodes}
        return [
            CloseAt(
                last=self._end,
                fragments=self._fragments,
                # Nobody knows what the old writer's slowest copies have come to.
                laggards=tuple(sorted(nodes)),
                base=self._base,
                reason=self._why_end,
                given_up=tuple(self._lost),
            )
        ]

    def check(self) -> None:
        """Assert every invariant."""
        if self._base is None:
            return
        assert self._first - 1 <= self._base <= self._done < self._cursor
        assert self._end is None or self._cursor == self._end + 1
        firsts = [each.first for each in self._fragments]
        assert firsts == sorted(set(firsts)), "fragments begin one behind the other"
        assert self._fragments[-1].nodes == tuple(self._slots)
        assert firsts[-1] <= self._done + 1
        assert len(set(self._slots)) == len(self._slots), "no node has two slots"
        assert self._held_bytes == sum(
            len(each.payload) for each in self._candidates.values() if each.payload is not None
        )
        kept = [each.entry for each in self.decisions if each.kept]
        assert kept == [*range(self._base + 1, self._cursor)], "kept in order, without a gap"
