"""Histories of a node for its checker: a node of a few lines that does everything right.

A `Correct` node answers as a real one must, and tells the book of it all. What is asked is drawn
from a seed. A test then plants one wrong answer behind it.
"""

from random import Random
from typing import Any

import msgspec

from roost.errors import Conflict, Fenced, RoostError, Sealed, Unknown
from roost.sim.ledger_book import LedgerBook
from roost.sim.ledger_page import Attempt
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import LedgerState, VerifyReport

PAYLOAD_BYTES_MAX = 40
SEVEN = 7


class Correct:
    """One ledger on a node that keeps its promises."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.book = LedgerBook(payload_bytes_max=PAYLOAD_BYTES_MAX)
        self.entries: dict[int, bytes] = {}
        self.fenced: int | None = None
        self.last: int | None = None
        self.lac = -1
        self.deleted = False

    # Adds

    def payload(self, entry: int, version: int = 0) -> bytes:
        """Make a payload unlike others."""
        return b"%d.%d" % (entry, version)

    def send(
        self,
        entry: int,
        version: int = 0,
        *,
        epoch: int = 1,
        lac: int = -1,
        recovery: bool = False,
    ) -> Attempt:
        """Send an add that nobody has answered."""
        payload = self.payload(entry, version)
        return self.book.adding(SEVEN, entry, payload, epoch=epoch, lac=lac, recovery=recovery)

    def take(self, attempt: Attempt) -> None:
        """Store what was sent."""
        self.entries[attempt.entry] = attempt.payload
        self.lac = max(self.lac, attempt.lac)

    def add(self, entry: int, version: int = 0, **how: Any) -> Attempt:
        """Send an add, store it, and say so."""
        attempt = self.send(entry, version, **how)
        self.take(attempt)
        self.book.added(attempt)
        return attempt

    def refusal(self, attempt: Attempt) -> RoostError | None:
        """Say why an add is not taken."""
        if self.last is not None and (not attempt.recovery or attempt.entry > self.last):
            return Sealed("it is closed", ledger=SEVEN, last=self.last)
        if self.fenced is not None and not attempt.recovery:
            return Fenced("it is fenced", ledger=SEVEN, epoch=self.fenced)
        if self.entries.get(attempt.entry, attempt.payload) != attempt.payload:
            return Conflict("other bytes")
        return None

    def try_to_add(self) -> None:
        """Draw an add, and answer it, or not."""
        entry, version = self.rng.randrange(20), self.rng.choice([0, 0, 0, 1])
        lac, recovery = self.rng.randrange(-1, entry + 1) - 1, self.rng.random() < 0.2
        attempt = self.send(entry, version, lac=max(-1, lac), recovery=recovery)
        outcome = self.refusal(attempt)
        if outcome is None and self.rng.random() < 0.2:
            outcome = Unknown("the connection was lost")
            if self.rng.random() < 0.5:
                self.take(attempt)
        elif outcome is None:
            self.take(attempt)
            self.book.added(attempt)
        if outcome is not None and not isinstance(outcome, Unknown):
            self.book.not_added(attempt, outcome)

    # Everything else

    def fence(self, epoch: int = 3) -> None:
        """Fence it, and say so."""
        self.book.fencing(SEVEN, epoch)
        self.fenced = max(epoch, self.fenced or 0)
        self.book.fenced(SEVEN, epoch)

    def close(self, last: int = 30) -> None:
        """Close it, and say so."""
        self.book.closing(SEVEN, last)
        self.last = last
        self.book.closed(SEVEN, last)

    def delete(self) -> None:
        """Delete it, and say so."""
        self.book.deleting(SEVEN)
        self.deleted = True
        self.book.deleted(SEVEN)

    def read(
        self,
        first: int = 0,
        before: int = 40,
        *,
        fence: int | None = None,
        without: int | None = None,
        found: dict[int, bytes] | None = None,
        suspects: tuple[int, ...] = (),
        **other: Any,
    ) -> None:
        """Read a range; what is given is answered in the place of what is right."""
        look = self.book.looking(SEVEN, fence=fence)
        if fence is not None:
            self.fenced = max(fence, self.fenced or 0)
        right = {e: self.entries[e] for e in self.entries if first <= e < before and e != without}
        says = {"lac": self.lac, "last": self.last, "fenced": self.fenced, **other}
        self.book.read(look, first, before, {**right, **(found or {})}, suspects, **says)

    def right_state(self) -> LedgerState:
        """Say how the ledger is."""
        return LedgerState(
            ledger=LedgerId(SEVEN),
            epoch=Epoch(1) if self.entries else None,
            fenced=None if self.fenced is None else Epoch(self.fenced),
            last=None if self.last is None else EntryId(self.last),
            lac=EntryId(self.lac),
            highest=EntryId(max(self.entries, default=-1)),
            entries=len(self.entries),
            bytes=0,
            flushed_before=0,
            flushed_at=0.0,
            suspect=False,
        )

    def state(self, **wrong: Any) -> None:
        """Ask for the state; what is given is answered in the place of what is right."""
        look = self.book.looking(SEVEN)
        self.book.stated(look, msgspec.structs.replace(self.right_state(), **wrong))

    def verify(self, *, lost: int = 0, bad_total: int = 0) -> None:
        """Have all entries checked."""
        look = self.book.looking(SEVEN)
        entries = len(self.entries) - lost
        report = VerifyReport(
            LedgerId(SEVEN), entries, 0, [], bad_total=bad_total, complete=not bad_total
        )
        self.book.verified(look, report)

    def play(self, steps: int, *, ends: bool = True) -> None:
        """Live through a drawn history, in which everything is right."""
        for _ in range(steps):
            kind = self.rng.choices(
                ["add", "read", "state", "verify", "fence", "fenced read", "close"],
                [10, 5, 2, 1, *([0.3, 0.3, 0.1] if ends else [0, 0, 0])],
            )[0]
            match kind:
                case "add":
                    self.try_to_add()
                case "read":
                    first = self.rng.randrange(20)
                    self.read(first, first + self.rng.randrange(1, 20))
                case "fenced read":
                    self.read(fence=self.rng.randrange(2, 5))
                case "state":
                    self.state()
                case "verify":
                    self.verify()
                case "fence":
                    self.fence(self.rng.randrange(2, 5))
                case _:
                    if self.last is None:
                        self.close()
