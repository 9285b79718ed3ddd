"""Stages for one ledger's writer, and for who ends it when the writer is gone."""

from collections.abc import Sequence

from roost.errors import Fenced, NoRoom
from roost.ledger import append, recover
from roost.ledger.append import Appender, AppendSettings
from roost.ledger.recover import RecoverSettings, Recovery
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId


def document(
    nodes: str, *, write: int, ack: int, phase: LedgerPhase = LedgerPhase.OPEN
) -> LedgerDocument:
    """Make a ledger's document; the nodes of fragments are parted by a slash, as in abc/4abd."""
    fragments = []
    for text in nodes.split("/"):
        digits = "".join(each for each in text if each.isdigit())
        names = tuple(NodeId(each) for each in text if each.isalpha())
        fragments.append(Fragment(EntryId(int(digits or 0)), names))
    return LedgerDocument(
        ledger=LedgerId(7),
        epoch=Epoch(1),
        quorum=Quorum(len(fragments[0].nodes), write, ack),
        fragments=tuple(fragments),
        phase=phase,
    )


def shown(effects: Sequence[object]) -> list[str]:
    """Say in short what is to be done."""
    return [_shown(effect) for effect in effects]


def _named(nodes: Sequence[str]) -> str:
    return " ".join(nodes) or "nobody"


def _fragments(fragments: Sequence[Fragment]) -> str:
    return ", ".join(f"{each.first}: {' '.join(each.nodes)}" for each in fragments)


def _shown(effect: object) -> str:  # noqa: C901, PLR0912 (a table)
    match effect:
        case append.Write() | recover.WriteBack():
            what = "write" if isinstance(effect, append.Write) else "write back"
            return f"{what} {effect.entry} to {_named(effect.nodes)} with LAC {effect.lac}"
        case append.Confirmed(upto):
            return f"confirmed up to {upto}"
        case append.Overdue(upto):
            return f"tell up to {upto}: nobody knows"
        case append.Disconnect(node):
            return f"disconnect {node}"
        case append.FindSpares(count, excluded) | recover.FindSpares(count, excluded):
            return f"find {count} besides {_named(excluded)}"
        case append.ChangeFragments(fragments, laggards):
            return f"change to {_fragments(fragments)}; laggards {_named(laggards)}"
        case append.TellLac(lac, nodes):
            return f"tell LAC {lac} to {_named(nodes)}"
        case append.Close(last, length, laggards):
            return f"close at {last}, {length} bytes; laggards {_named(laggards)}"
        case append.Stopped(why):
            return f"stopped: {why}"
        case recover.Fence(nodes):
            return f"fence {_named(nodes)}"
        case recover.Read(node, first, upto):
            return f"read {first} to {upto} of {node}"
        case recover.CloseAt():
            lost = f"; given up {list(effect.given_up)}" if effect.given_up else ""
            return (
                f"close at {effect.last} with {_fragments(effect.fragments)}; base "
                f"{effect.base}{lost}: {effect.reason}"
            )
        case recover.Undecided(why):
            return f"undecided: {why}"
        case _:
            return str(effect)


class Writer:
    """One ledger's writer; by default on nodes a, b and c, with two of three copies enough."""

    def __init__(self) -> None:
        self._now = 0.0
        self.ledger()

    def check(self) -> None:
        """See that every invariant of the writer holds."""
        self._appender.check()

    def ledger(
        self,
        nodes: str = "abc",
        write: int = 3,
        ack: int = 2,
        limit: int = 3,
        pending: int = 100,
    ) -> None:
        """Begin to write a ledger."""
        settings = AppendSettings(
            pending_max=pending,
            append_timeout_s=10.0,
            node_timeout_s=5.0,
            spare_retry_s=2.0,
            write_retry_limit=limit,
            lac_push_s=0.1,
            linger_s=1.0,
        )
        self._appender = Appender(document(nodes, write=write, ack=ack), settings)

    def append(self, payload: str) -> list[str]:
        """Take an entry."""
        _, effects = self._appender.append(payload.encode(), self._now)
        return shown(effects)

    def stored(self, node: str, *entries: int) -> list[str]:
        """Learn that a node has entries."""
        answers = []
        for entry in entries:
            answers += shown(self._appender.on_stored(NodeId(node), EntryId(entry)))
            self.check()
        return answers

    def failed(self, node: str) -> list[str]:
        """Learn that a node cannot be reached."""
        return shown(self._appender.on_failed(NodeId(node)))

    def full(self, node: str, entry: int) -> list[str]:
        """Learn that a node has no room."""
        error = NoRoom("the disk is full")
        return shown(self._appender.on_refused(NodeId(node), EntryId(entry), error))

    def fenced(self, node: str, entry: int, by: int = 2) -> list[str]:
        """Learn that a node was fenced."""
        error = Fenced(f"ledger 7 was fenced by epoch {by}", ledger=7, epoch=by)
        return shown(self._appender.on_refused(NodeId(node), EntryId(entry), error))

    def returned(self, node: str) -> list[str]:
        """Learn that a node can be reached again."""
        return shown(self._appender.on_returned(NodeId(node), self._now))

    def spares(self, *nodes: str) -> list[str]:
        """Learn which other nodes there are."""
        return shown(self._appender.on_spares([NodeId(node) for node in nodes], self._now))

    def changed(self) -> list[str]:
        """Learn that the metadata names the new ensemble."""
        return shown(self._appender.on_changed(self._now))

    def overtaken(self, why: str) -> list[str]:
        """Learn that somebody else has changed the metadata."""
        return shown(self._appender.on_overtaken(why))

    def close(self) -> list[str]:
        """Close the ledger."""
        return shown(self._appender.close(self._now))

    def closed(self) -> list[str]:
        """Learn that the metadata has closed it."""
        return shown(self._appender.on_closed())

    def passes(self, seconds: float) -> list[str]:
        """Let time pass, and do all that is due, when it is."""
        end = self._now + seconds
        answers = []
        while (due := self._appender.deadline()) is not None and due <= end:
            self._now = max(self._now, due)
            answers += [
                f"at {self._now:g}: {line}" for line in shown(self._appender.on_time(self._now))
            ]
            self.check()
            after = self._appender.deadline()
            assert after is None or after > self._now, "what is due was not done"
        self._now = end
        return answers

    def state(self) -> str:
        """Tell how far it is."""
        made = self._appender
        return (
            f"LAC {made.lac}, {made.pending} pending, on {_named(made.nodes)}, missing "
            f"{_named(made.missing)}"
        )


class Taker:
    """Somebody who ends a ledger; nodes answer what the transcript says."""

    def __init__(self) -> None:
        self.ledger()

    def check(self) -> None:
        """See that every invariant holds."""
        self._recovery.check()

    def ledger(self, nodes: str = "abc", write: int = 3, ack: int = 2, window: int = 10) -> None:
        """Begin to end a ledger."""
        made = document(nodes, write=write, ack=ack, phase=LedgerPhase.IN_RECOVERY)
        self._recovery = Recovery(made, RecoverSettings(window=window))

    def start(self) -> list[str]:
        """Begin."""
        return shown(self._recovery.start())

    def fenced(self, node: str, lac: int = -1) -> list[str]:
        """Learn that a node is fenced, and which LAC it knows."""
        return shown(self._recovery.on_fenced(NodeId(node), EntryId(lac)))

    def answers(self, node: str, entries: str, first: int = 0, unsure: str = "") -> list[str]:
        """Learn what a node has from `first` on: letters, and a dot for what it never had.

        `unsure` names ids of which it cannot tell.
        """
        doubtful = [EntryId(int(each)) for each in unsure]
        found = {
            EntryId(first + at): letter.encode()
            for at, letter in enumerate(entries)
            if letter != "." and first + at not in doubtful
        }
        before = EntryId(first + len(entries))
        effects = self._recovery.on_batch(NodeId(node), EntryId(first), before, found, doubtful)
        self.check()
        return shown([*effects, *self._recovery.on_read_end(NodeId(node))])

    def failed(self, node: str) -> list[str]:
        """Learn that a node cannot be reached."""
        return shown(self._recovery.on_failed(NodeId(node)))

    def refused(self, node: str) -> list[str]:
        """Learn that a node takes nothing that is written back."""
        return shown(self._recovery.on_refused(NodeId(node)))

    def stored(self, node: str, *entries: int) -> list[str]:
        """Learn that a node has what was written back."""
        answers = []
        for entry in entries:
            answers += shown(self._recovery.on_stored(NodeId(node), EntryId(entry)))
            self.check()
        return answers

    def spares(self, *nodes: str) -> list[str]:
        """Learn which other nodes there are."""
        return shown(self._recovery.on_spares([NodeId(node) for node in nodes]))

    def accept_loss(self) -> list[str]:
        """Decide that what cannot be read is lost."""
        return shown(self._recovery.accept_loss())

    def decisions(self) -> list[str]:
        """Tell what was decided of each entry, and why."""
        return [str(each) for each in self._recovery.decisions]
