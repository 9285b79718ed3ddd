"""One ledger's end, played with the recovery machine alone: a thousand takeovers a second.

A writer leaves entries on some nodes and adds still under way; recoverers begin, die in the midst
of it, and leave to the next one what they have written back; nodes are away for some of them and
not for others. At the end the ledger must be closed so that all that was acknowledged is there,
and all of it on enough of the nodes that are named for it. The whole system plays in the scenario
`ledger`; what is rare there, since so much must come together, is frequent here.
"""

from collections.abc import Iterable
from random import Random

import msgspec

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
from roost.sim.checkers import Violation
from roost.sim.play import Options, Report
from roost.types import NO_ENTRY, EntryId, Epoch, LedgerId, NodeId

QUORUMS = [Quorum(3, 3, 2), Quorum(3, 3, 2), Quorum(5, 5, 2), Quorum(4, 3, 2), Quorum(3, 2, 2)]
TAKEOVERS_MAX = 40


class Model:
    """One ledger."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.quorum = quorum = rng.choice(QUORUMS)
        self.nodes = [NodeId(f"node-{n}") for n in range(quorum.ensemble + 3)]
        self.has: dict[NodeId, set[int]] = {node: set() for node in self.nodes}
        self.lacs = dict.fromkeys(self.nodes, int(NO_ENTRY))
        self.fenced: set[NodeId] = set()
        names = tuple(self.nodes[: quorum.ensemble])
        fragments = [Fragment(EntryId(0), names)]
        self.first = rng.choice([0, 0, 3])
        if self.first:
            later = [*names]
            for slot in rng.sample(range(quorum.ensemble), rng.randrange(1, 3)):
                later[slot] = self.nodes[quorum.ensemble + slot % 3]
            if len({*later}) == len(later):
                fragments.append(Fragment(EntryId(self.first), tuple(later)))
            else:
                self.first = 0
        self.document = LedgerDocument(
            ledger=LedgerId(7),
            epoch=Epoch(1),
            quorum=quorum,
            fragments=tuple(fragments),
            phase=LedgerPhase.IN_RECOVERY,
        )
        self.acked = self.first - 1
        self.under_way: list[tuple[NodeId, int]] = []
        self.acks: dict[int, set[NodeId]] = {}
        self.down: set[NodeId] = set()
        self._write(fragments)

    def _write(self, fragments: list[Fragment]) -> None:
        """Let the old writer write, and be gone in the midst of it."""
        rng = self.rng
        for entry in range(self.first):
            for slot in write_set(entry, self.quorum):
                self.has[fragments[0].nodes[slot]].add(entry)
        named = fragments[-1].nodes
        known = self.first - 1 if rng.random() < 0.5 else rng.randrange(-1, self.first or 1) - 1
        for node in named:
            self.lacs[node] = max(int(NO_ENTRY), rng.choice([known, -1]))
        for entry in range(self.first, self.first + rng.randrange(1, 5)):
            self.acks[entry] = set()
            for slot in write_set(entry, self.quorum):
                self.under_way.append((named[slot], entry))
        rng.shuffle(self.under_way)
        for _ in range(rng.randrange(len(self.under_way) + 1)):
            self.arrive()

    def arrive(self) -> None:
        """Let one add of the old writer reach its node; all of them in order, on each way."""
        if not self.under_way:
            return
        node = self.rng.choice(self.under_way)[0]
        entry = min(each for name, each in self.under_way if name == node)
        self.under_way.remove((node, entry))
        if node in self.fenced or node in self.down:
            return
        self.has[node].add(entry)
        self.lacs[node] = max(self.lacs[node], min(self.acked, entry - 1))
        self.acks[entry].add(node)
        while len(self.acks.get(self.acked + 1, ())) >= self.quorum.ack:
            self.acked += 1

    # Takeovers

    def play(self) -> None:
        """Take the ledger over until it is closed, and look at what came of it."""
        rng = self.rng
        for number in range(TAKEOVERS_MAX):
            last = number == TAKEOVERS_MAX - 1
            away = 0 if last else rng.randrange(self.quorum.ack + 1)
            self.down = {*rng.sample(self.document.fragments[-1].nodes, away)}
            close = Takeover(self, dies=not last and rng.random() < 0.6).play()
            if close is not None:
                self._check(close)
                return
        raise Violation("liveness: all nodes are there, and the ledger is not closed")

    def _check(self, close: CloseAt) -> None:
        # Whatever is still under way arrives.
        self.down = set()
        while self.under_way:
            self.arrive()
        if close.last < self.acked:
            raise Violation(f"acked is durable: {self.acked}, and it ends at {close.last}")
        for entry in range(close.last + 1):
            fragment = [each for each in close.fragments if each.first <= entry][-1]
            named = [fragment.nodes[slot] for slot in write_set(entry, self.quorum)]
            copies = sum(entry in self.has[node] for node in named)
            if copies < self.quorum.ack:
                raise Violation(f"enough copies: {entry} is on {copies} of {named}")


class Takeover:
    """One recoverer."""

    def __init__(self, model: Model, *, dies: bool) -> None:
        rng = model.rng
        self.model = model
        self.recovery = Recovery(model.document, RecoverSettings(window=rng.choice([1, 2, 50])))
        self.steps = rng.randrange(3, 30) if dies else 10_000
        self.todo: list[object] = []
        self.result: CloseAt | Undecided | None = None

    def play(self) -> CloseAt | None:
        """Do everything in any order, until it is closed, undecided, or dead."""
        rng = self.model.rng
        self.do(self.recovery.start())
        while self.todo and self.result is None and self.steps:
            self.steps -= 1
            if rng.random() < 0.2:
                self.model.arrive()
            self.answer(self.todo.pop(rng.randrange(len(self.todo))))
        return self.result if isinstance(self.result, CloseAt) else None

    def do(self, effects: Iterable[Effect]) -> None:
        """Note what is to be done."""
        for effect in effects:
            if isinstance(effect, WriteBack):
                self.todo += [(node, effect) for node in effect.nodes]
            elif isinstance(effect, Fence):
                self.todo += [Fence((node,)) for node in effect.nodes]
            elif isinstance(effect, CloseAt | Undecided):
                self.result = effect
            else:
                self.todo.append(effect)

    def answer(self, effect: object) -> None:
        """Let one thing happen."""
        model, recovery = self.model, self.recovery
        match effect:
            case Fence((node,)):
                if node in model.down:
                    self.do(recovery.on_failed(node))
                else:
                    model.fenced.add(node)
                    self.do(recovery.on_fenced(node, EntryId(model.lacs[node])))
            case Read():
                self._read(effect)
            case FindSpares(count, excluded):
                spares = [each for each in model.nodes if each not in {*excluded, *model.down}]
                self.do(recovery.on_spares(spares[:count]))
            case (str() as name, WriteBack() as back):
                node = NodeId(name)
                if node in model.down:
                    self.do(recovery.on_refused(node))
                else:
                    model.has[node].add(back.entry)
                    model.lacs[node] = max(model.lacs[node], back.lac)
                    self.do(recovery.on_stored(node, back.entry))
            case _:
                raise AssertionError(effect)

    def _read(self, read: Read) -> None:
        model, node = self.model, read.node
        if node in model.down:
            self.do(self.recovery.on_failed(node))
            return
        model.fenced.add(node)
        wanted = range(read.first, read.upto + 1)
        found = {EntryId(each): b"%d" % each for each in wanted if each in model.has[node]}
        before = EntryId(read.upto + 1)
        self.do(self.recovery.on_batch(node, read.first, before, found, ()))
        self.do(self.recovery.on_read_end(node))


def run(seed: int, _options: Options) -> Report:
    """Play it with one seed."""
    violations = []
    try:
        Model(Random(seed)).play()
    except Violation as violation:
        violations.append(str(violation))
    report = Report("recovery", seed, "", 0, 0.0, {}, {}, [])
    return msgspec.structs.replace(report, violations=violations)
