"""The writer of one ledger: gives ids, says where entries go, and when each is durable.

Sans-IO. The promise: entry e is confirmed once it *and every entry before it* is on Qa nodes of its
write set, in the fragment that the metadata names for it; nothing that was confirmed is ever taken
back, and an id never gets other bytes.

    0 . . . . . . . . LAC | LAC+1 . . . . . . next-1 |
      confirmed             pending: on fewer than Qa nodes, or behind one that is

**A node fails.** Entries go on to the others. Once something is to be written, the writer looks
for another node to take its slot. From then on it is *changing*: acknowledgements are noted, and
nothing is confirmed, so that the new fragment can begin at LAC+1 and still does when the metadata
has taken it. What the node that is replaced had acknowledged beyond the LAC counts no more; its
successor is sent everything from there on. If no other node can be had, the ensemble stays as it
is, and so does the failed node: as long as Qa of each write set are left all goes on, and the node
is noted as a laggard, for what it misses. Below that, what is pending stays so, new entries are
refused, and everything goes on by itself when nodes return.

**A zombie.** Fenced by anybody, or overtaken in the metadata, the writer stops for good; what is
pending may or may not be in the ledger, and its appenders are told just that.

Time-outs decide nothing: an appender that waited too long is told that nobody knows, and its entry
stays where it is.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from roost.errors import (
    Closed,
    Conflict,
    Fenced,
    Invalid,
    NotFound,
    RoostError,
    Sealed,
    Throttled,
    Unavailable,
)
from roost.ledger.quorum import stripe_masks
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase
from roost.types import NO_ENTRY, EntryId, NodeId


class AppendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and patience of a writer."""

    pending_max: int = 8192
    """How many entries may be unconfirmed at once."""

    pending_bytes_max: int = 64 << 20
    """How many bytes of them."""

    behind_bytes_max: int = 128 << 20
    """How much one node may owe before it counts as failed."""

    payload_bytes_max: int = 4 << 20
    """The largest entry."""

    append_timeout_s: float = 30.0
    """When an appender is told that nobody knows."""

    node_timeout_s: float = 5.0
    """How long a node may owe an answer before it counts as failed."""

    spare_retry_s: float = 5.0
    """How long to go on without a node that nobody could replace, before looking again."""

    write_retry_limit: int = 10
    """How many ensembles in a row may fail without confirming anything before the writer ends."""

    lac_push_s: float = 0.02
    """After which silence readers are told of the LAC by itself."""

    linger_s: float = 2.0
    """How long a close waits for the slowest copies, so that nobody has to look for them later."""


class Write(msgspec.Struct, frozen=True):
    """Send an entry to these nodes."""

    entry: EntryId
    payload: bytes | memoryview
    lac: EntryId
    nodes: tuple[NodeId, ...]


class Confirmed(msgspec.Struct, frozen=True):
    """Tell the appenders that everything up to and including `upto` is durable."""

    upto: EntryId


class Overdue(msgspec.Struct, frozen=True):
    """Tell the appenders up to and including `upto` who still wait that nobody knows."""

    upto: EntryId


class Disconnect(msgspec.Struct, frozen=True):
    """Give up the connection to a node: it owes too much, or for too long."""

    node: NodeId


class FindSpares(msgspec.Struct, frozen=True):
    """Find nodes that can be reached; answer with `on_spares`."""

    count: int
    excluded: tuple[NodeId, ...]


class ChangeFragments(msgspec.Struct, frozen=True):
    """Have the metadata take these; answer with `on_changed` or `on_overtaken`."""

    fragments: tuple[Fragment, ...]
    laggards: tuple[NodeId, ...]


class TellLac(msgspec.Struct, frozen=True):
    """Tell these nodes, and so their readers, how far all is confirmed."""

    lac: EntryId
    nodes: tuple[NodeId, ...]


class Close(msgspec.Struct, frozen=True):
    """Have the metadata close the ledger; answer with `on_closed` or `on_overtaken`."""

    last: EntryId
    length: int
    laggards: tuple[NodeId, ...]


class Stopped(msgspec.Struct, frozen=True):
    """The writer has ended for good; tell all who wait that nobody knows."""

    why: str


Effect = (
    Write
    | Confirmed
    | Overdue
    | Disconnect
    | FindSpares
    | ChangeFragments
    | TellLac
    | Close
    | Stopped
)
NOTHING: Final[tuple[Effect, ...]] = ()


class Pending:
    """An entry that is not confirmed."""

    __slots__ = ("acks", "mask", "payload", "since")

    def __init__(self, payload: bytes | memoryview, mask: int, since: float) -> None:
        self.payload = payload
        self.mask = mask
        """Its write set, by slot."""
        self.acks = 0
        """Who has it, by slot, of the nodes that have the slots now."""
        self.since = since


class Replica:
    """A node that has a slot of the ensemble."""

    __slots__ = ("bit", "lags", "node", "owed", "owed_bytes")

    def __init__(self, node: NodeId, bit: int) -> None:
        self.node = node
        self.bit = bit
        self.owed: dict[EntryId, tuple[float, int]] = {}
        """What was sent and is not answered, oldest first: when, and how many bytes."""
        self.owed_bytes = 0
        self.lags = False
        """Whether it misses entries that are confirmed."""


class Appender:
    """The writer's decisions."""

    def __init__(self, document: LedgerDocument, settings: AppendSettings) -> None:
        assert document.phase is LedgerPhase.OPEN, "only an open ledger has a writer"
        assert document.fragments[-1].first == 0, "a ledger is written by who made it, once"
        self._ledger: Final = document.ledger
        self._epoch: Final = document.epoch
        self._quorum: Final = document.quorum
        self._settings: Final = settings
        self._masks: Final = stripe_masks(document.quorum)
        self._fragments = document.fragments
        self._slots: list[Replica] = []
        self._replicas: dict[NodeId, Replica] = {}
        self._seat(document.fragments[-1].nodes)
        self._next = EntryId(0)
        self._lac = NO_ENTRY
        self._length = 0
        self._pending: dict[EntryId, Pending] = {}
        self._pending_bytes = 0
        self._told = NO_ENTRY
        """Up to where appenders were told something."""
        self._lac_sent = NO_ENTRY
        self._written_at = 0.0
        self._down = 0
        """The slots whose nodes cannot be reached."""
        self._changing = False
        self._asked: tuple[Fragment, ...] | None = None
        self._given_up = 0
        """The slots for which there was no other node."""
        self._seek_at = 0.0
        self._sought = 0
        """The slots for which other nodes are being looked for."""
        self._changes = 0
        self._laggards = set(document.laggards)
        self._closing = False
        self._linger_until = 0.0
        self._close_sent = False
        self._stopped: RoostError | None = None

    def _seat(self, nodes: Sequence[NodeId]) -> None:
        """Give the slots to these nodes; who stays keeps what is known of it."""
        known = self._replicas
        self._slots = [
            known.get(node) or Replica(node, 1 << slot) for slot, node in enumerate(nodes)
        ]
        self._replicas = {each.node: each for each in self._slots}

    # What it is

    @property
    def lac(self) -> EntryId:
        """The entry up to which everything is confirmed."""
        return self._lac

    @property
    def length(self) -> int:
        """The bytes of what is confirmed."""
        return self._length

    @property
    def stopped(self) -> RoostError | None:
        """Why nothing is written any more."""
        return self._stopped

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The ensemble, by slot."""
        return tuple(each.node for each in self._slots)

    @property
    def missing(self) -> tuple[NodeId, ...]:
        """The nodes of the ensemble that cannot be reached."""
        return tuple(each.node for each in self._slots if each.bit & self._down)

    @property
    def pending(self) -> int:
        """How many entries are not confirmed."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        """Whether as much is pending as may be."""
        settings = self._settings
        return (
            len(self._pending) >= settings.pending_max
            or self._pending_bytes >= settings.pending_bytes_max
        )

    # Writing

    def append(self, payload: bytes | memoryview, now: float) -> tuple[EntryId, Sequence[Effect]]:
        """Take an entry, and give its id; raises if it cannot be taken, and then nothing is."""
        entry = self._next
        mask = self._masks[entry % self._quorum.ensemble]
        down = self._down
        if self._stopped is not None or self._closing or self.full:
            self._refuse()
        if down and not self._changing:
            self._check_writable(mask & ~down)
        if len(payload) > self._settings.payload_bytes_max:
            raise Invalid(
                f"an entry of {len(payload)} bytes; at most {self._settings.payload_bytes_max} "
                "(payload_bytes_max)"
            )
        self._next = EntryId(entry + 1)
        self._pending[entry] = Pending(payload, mask, now)
        self._pending_bytes += len(payload)
        self._lac_sent = self._lac
        self._written_at = now
        write = self._write(entry, payload, mask & ~down, now)
        if down & ~self._given_up and not self._changing:
            return entry, [write, *self._begin_change()]
        return entry, (write,)

    def _refuse(self) -> None:
        if self._stopped is not None:
            raise self._stopped
        if self._closing:
            raise Closed("the ledger is being closed by its writer")
        raise Throttled(
            f"{len(self._pending)} entries of {self._pending_bytes} bytes are not confirmed yet: "
            "wait for some of them"
        )

    def _check_writable(self, up: int) -> None:
        if up.bit_count() < self._quorum.ack and not self._down & ~self._given_up:
            raise Unavailable(
                f"only {up.bit_count()} of the nodes that the entry goes to can be reached, and "
                f"{self._quorum.ack} must have it; try again when nodes are back (missing: "
                f"{', '.join(self.missing)})"
            )

    def _write(self, entry: EntryId, payload: bytes | memoryview, to: int, now: float) -> Write:
        size = len(payload)
        nodes = []
        for each in self._slots:
            if each.bit & to:
                nodes.append(each.node)
                each.owed[entry] = (now, size)
                each.owed_bytes += size
        return Write(entry, payload, self._lac, tuple(nodes))

    # What nodes answer

    def on_stored(self, node: NodeId, entry: EntryId) -> Sequence[Effect]:
        """Note that a node has an entry."""
        replica = self._replicas.get(node)
        if replica is None:
            return NOTHING  # it was replaced: what it has is in no fragment
        owed = replica.owed.pop(entry, None)
        if owed is not None:
            replica.owed_bytes -= owed[1]
        pending = self._pending.get(entry)
        if pending is None:
            return self._look_at_close() if self._closing else NOTHING
        pending.acks |= replica.bit & pending.mask
        if self._changing or self._pending.get(EntryId(self._lac + 1)) is not pending:
            return NOTHING
        return self._confirm()

    def _confirm(self) -> Sequence[Effect]:
        """Move the LAC over everything that has enough copies, in order."""
        if self._stopped is not None:
            return NOTHING
        before = self._lac
        ack = self._quorum.ack
        while (pending := self._pending.get(EntryId(self._lac + 1))) is not None:
            if pending.acks.bit_count() < ack:
                break
            self._lac = EntryId(self._lac + 1)
            del self._pending[self._lac]
            self._pending_bytes -= len(pending.payload)
            self._length += len(pending.payload)
            if missed := pending.mask & ~pending.acks & self._down:
                self._note_missed(missed)
        if self._lac == before:
            return NOTHING
        self._changes = 0
        self._told = max(self._told, self._lac)
        confirmed = Confirmed(self._lac)
        return [confirmed, *self._look_at_close()] if self._closing else (confirmed,)

    def _note_missed(self, slots: int) -> None:
        for each in self._slots:
            if each.bit & slots:
                each.lags = True

    def on_refused(self, node: NodeId, entry: EntryId, error: RoostError) -> Sequence[Effect]:
        """Note that a node did not take an entry, or that nobody knows."""
        if node not in self._replicas:
            return NOTHING
        if isinstance(error, Fenced | Sealed | NotFound | Conflict):
            return self._stop(
                Fenced(
                    f"node {node} refuses entry {entry}: {error}; somebody else has ended this "
                    "ledger, and its writer must stop",
                    ledger=self._ledger,
                    epoch=error.epoch if isinstance(error, Fenced) else self._epoch,
                )
            )
        return self.on_failed(node)

    def on_failed(self, node: NodeId) -> Sequence[Effect]:
        """Note that a node cannot be reached, or takes no adds."""
        replica = self._replicas.get(node)
        if replica is None or replica.bit & self._down:
            return NOTHING
        self._down |= replica.bit
        if any(entry <= self._lac for entry in replica.owed):
            replica.lags = True
        replica.owed.clear()
        replica.owed_bytes = 0
        if self._pending and not self._changing:
            return self._begin_change()
        return self._look_at_close()

    def on_returned(self, node: NodeId, now: float) -> Sequence[Effect]:
        """Note that a node can be reached again: it is sent what it may still get in time."""
        replica = self._replicas.get(node)
        if replica is None or not replica.bit & self._down or self._stopped is not None:
            return NOTHING
        self._down &= ~replica.bit
        self._given_up &= ~replica.bit
        return self._send_again(replica, now)

    def _send_again(self, replica: Replica, now: float) -> list[Effect]:
        return [
            self._write(entry, pending.payload, replica.bit, now)
            for entry, pending in self._pending.items()
            if pending.mask & replica.bit and not pending.acks & replica.bit
        ]

    # Another ensemble

    @property
    def _tells_lac(self) -> bool:
        """Whether readers may be told of a LAC that no entry has told them; a close will tell."""
        return self._lac > self._lac_sent and not self._close_sent

    @property
    def _seeks(self) -> bool:
        """Whether to look again for nodes that nobody could replace."""
        ends = self._closing and not self._pending
        return bool(self._given_up) and not (self._changing or ends)

    def _begin_change(self) -> Sequence[Effect]:
        """Look for nodes in the place of those that failed."""
        failed = self._down & ~self._given_up
        if not failed or self._changing or self._close_sent or self._stopped is not None:
            return NOTHING
        if self._changes >= self._settings.write_retry_limit:
            return self._stop(
                Unavailable(
                    f"{self._changes} ensembles in a row took nothing; the writer gives the "
                    "ledger up"
                )
            )
        self._changing = True
        self._sought = failed
        return [FindSpares(failed.bit_count(), self.nodes)]

    def on_spares(self, spares: Sequence[NodeId], now: float) -> Sequence[Effect]:
        """Take these nodes in, or go on without: there may be fewer than were asked for."""
        assert self._changing or self._stopped is not None, "nobody asked for spares"
        if self._stopped is not None:
            return NOTHING
        # Some may have returned meanwhile; those that failed meanwhile have their turn after this.
        failed = [each for each in self._slots if each.bit & self._down & self._sought]
        nodes = [*self.nodes]
        spares = [node for node in spares if node not in nodes]
        for replica, spare in zip(failed, spares, strict=False):
            nodes[replica.bit.bit_length() - 1] = spare
            if replica.lags:
                self._laggards.add(replica.node)
        for replica in failed[len(spares) :]:
            self._given_up |= replica.bit
            self._seek_at = now + self._settings.spare_retry_s
        if not failed or not spares:
            self._changing = False
            return self._go_on()
        self._changes += 1
        self._asked = self._with(Fragment(EntryId(self._lac + 1), tuple(nodes)))
        return [ChangeFragments(self._asked, self._noted_laggards())]

    def _with(self, fragment: Fragment) -> tuple[Fragment, ...]:
        """Begin a fragment behind the LAC; one that has no confirmed entry gives way."""
        kept = tuple(each for each in self._fragments if each.first < fragment.first)
        return (*kept, fragment)

    def on_changed(self, now: float) -> Sequence[Effect]:
        """Note that the metadata names the new ensemble: from here on it counts."""
        assert self._asked is not None or self._stopped is not None, "nobody asked for a change"
        fragments, self._asked = self._asked, None
        if self._stopped is not None or fragments is None:
            return NOTHING
        before = self._slots
        self._fragments = fragments
        self._seat(fragments[-1].nodes)
        new = [now_ for was, now_ in zip(before, self._slots, strict=True) if was is not now_]
        replaced = sum(each.bit for each in new)
        self._down &= ~replaced
        self._given_up &= ~replaced
        for pending in self._pending.values():
            pending.acks &= ~replaced
        again = [effect for each in new for effect in self._send_again(each, now)]
        self._changing = False
        return [*again, *self._go_on()]

    def _go_on(self) -> Sequence[Effect]:
        """Confirm what had to wait, and begin anew if another node has failed meanwhile."""
        confirmed = self._confirm()
        if self._pending:
            return [*confirmed, *self._begin_change()]
        return confirmed or self._look_at_close()

    def _noted_laggards(self) -> tuple[NodeId, ...]:
        lagging = {each.node for each in self._slots if each.lags}
        return tuple(sorted(self._laggards | lagging))

    # The end

    def on_overtaken(self, why: str) -> Sequence[Effect]:
        """Note that the metadata has moved on without us, or that we are no owner any more."""
        return self._stop(
            Fenced(f"{why}; this writer must stop", ledger=self._ledger, epoch=self._epoch)
        )

    def abandon(self, why: str) -> Sequence[Effect]:
        """Write no more, without closing: whoever comes next recovers the ledger."""
        return self._stop(Closed(why))

    def _stop(self, error: RoostError) -> Sequence[Effect]:
        if self._stopped is not None:
            return NOTHING
        self._stopped = error
        return (Stopped(str(error)),)

    def close(self, now: float) -> Sequence[Effect]:
        """Take no more; close the ledger once everything is confirmed."""
        if self._closing or self._stopped is not None:
            return NOTHING
        self._closing = True
        self._linger_until = now + self._settings.linger_s
        return self._look_at_close()

    def _look_at_close(self, *, lingered: bool = False) -> Sequence[Effect]:
        if (
            not self._closing
            or self._pending
            or self._changing
            or self._close_sent
            or self._stopped is not None
        ):
            return NOTHING
        if not lingered and any(each.owed for each in self._slots):
            return NOTHING
        self._close_sent = True
        owing = {each.node for each in self._slots if each.owed}
        laggards = tuple(sorted({*self._noted_laggards(), *owing}))
        return [Close(self._lac, self._length, laggards)]

    def on_closed(self) -> Sequence[Effect]:
        """Note that the metadata has closed it."""
        assert self._close_sent, "nobody asked to close it"
        return self._stop(Closed("the ledger is closed"))

    # Time

    def deadline(self) -> float | None:
        """Tell when `on_time` has something to do; None if nothing is waited for."""
        if self._stopped is not None:
            return None
        settings, due = self._settings, []
        oldest = self._pending.get(EntryId(max(self._told, self._lac) + 1))
        if oldest is not None:
            due.append(oldest.since + settings.append_timeout_s)
        due.extend(self._answer_due(each) for each in self._slots if each.owed)
        if self._seeks:
            due.append(self._seek_at)
        if self._tells_lac:
            due.append(self._written_at + settings.lac_push_s)
        if self._closing and not (self._close_sent or self._pending or self._changing):
            due.append(self._linger_until)
        return min(due, default=None)

    def on_time(self, now: float) -> list[Effect]:
        """Do what is due."""
        if self._stopped is not None:
            return []
        effects: list[Effect] = []
        effects += self._overdue(now)
        for each in self._slots:
            if each.owed and now >= self._answer_due(each):
                effects.append(Disconnect(each.node))
                effects += self.on_failed(each.node)
        if self._seeks and now >= self._seek_at:
            self._given_up = 0
            effects += self._begin_change()
        if self._tells_lac and now >= self._written_at + self._settings.lac_push_s:
            self._lac_sent = self._lac
            up = tuple(each.node for each in self._slots if not each.bit & self._down)
            effects.append(TellLac(self._lac, up))
        if self._closing and now >= self._linger_until:
            effects += self._look_at_close(lingered=True)
        return effects

    def _overdue(self, now: float) -> Iterable[Effect]:
        told = max(self._told, self._lac)
        while (pending := self._pending.get(EntryId(told + 1))) is not None:
            if pending.since + self._settings.append_timeout_s > now:
                break
            told = EntryId(told + 1)
        if told > max(self._told, self._lac):
            self._told = told
            yield Overdue(told)

    def _answer_due(self, replica: Replica) -> float:
        """Tell when a node that owes something counts as failed; it may be too much already."""
        since, _ = next(iter(replica.owed.values()))
        if replica.owed_bytes > self._settings.behind_bytes_max:
            return since
        return since + self._settings.node_timeout_s

    def check(self) -> None:
        """Assert every invariant."""
        quorum = self._quorum
        assert [*self._pending] == [*range(self._lac + 1, self._next)], "every id, and in order"
        assert self._pending_bytes == sum(len(each.payload) for each in self._pending.values())
        assert tuple(each.node for each in self._slots) == self._fragments[-1].nodes
        assert len(self._replicas) == quorum.ensemble == len(self._slots)
        assert all(each.bit == 1 << slot for slot, each in enumerate(self._slots))
        firsts = [each.first for each in self._fragments]
        assert firsts == sorted(set(firsts)), "fragments begin one behind the other"
        assert firsts[0] == 0, "the first one with entry 0"
        assert firsts[-1] <= self._lac + 1, "nothing confirmed is in a fragment to come"
        assert not self._given_up & ~self._down, "only a node that failed is given up"
        for entry, pending in self._pending.items():
            assert pending.mask == self._masks[entry % quorum.ensemble]
            assert not pending.acks & ~pending.mask, "only its write set acknowledges an entry"
        first = self._pending.get(EntryId(self._lac + 1))
        if first is not None and not self._changing and self._stopped is None:
            assert first.acks.bit_count() < quorum.ack, "what has its copies is confirmed"
        for each in self._slots:
            assert each.owed_bytes == sum(size for _, size in each.owed.values())
            assert not (each.owed and each.bit & self._down), "who is gone owes nothing"
