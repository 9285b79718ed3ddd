"""What the checker of a storage node keeps of one ledger; see `roost.sim.ledger_book`.

All that is here was asked for or answered. `since` is when, counted over everything that the book
was told.
"""

import msgspec

from roost.types import NO_ENTRY


class Attempt:
    """One add that somebody sent."""

    def __init__(self, page: "Page", entry: int, payload: bytes, since: int) -> None:
        self.page = page
        self.entry = entry
        self.payload = payload
        self.since = since
        self.epoch = 0
        self.lac: int = NO_ENTRY
        self.recovery = False
        self.refused = False

    def __str__(self) -> str:
        kind = "write-back" if self.recovery else "add"
        return f"{kind} of {self.page.ledger}/{self.entry} {self.payload[:16]!r}"


class Doubt(msgspec.Struct, frozen=True):
    """An entry that a loss of power may have taken."""

    payload: bytes
    known: int
    """Since when it was known to be there."""

    doubted: int
    """When the power went."""


class Page:
    """What is known of one ledger."""

    def __init__(self, ledger: int) -> None:
        self.ledger = ledger
        self.attempts: dict[int, list[Attempt]] = {}
        self.values: dict[int, tuple[bytes, int]] = {}
        """What an entry is, and since when that is known."""
        self.absent: set[int] = set()
        """Entries that were absent behind a fence: no writer hears that they were stored."""
        self.acked_to_writers: set[int] = set()
        self.epoch: int | None = None
        self.fences: set[int] = set()
        """The epochs of all who ever asked for a fence."""
        self.lasts: set[int] = set()
        """The last entries with which anybody ever asked to close it."""
        self.deleting = False
        # What was answered or seen for certain, and since when.
        self.fenced: int | None = None
        self.fenced_since: int | None = None
        self.last: int | None = None
        self.closed_since: int | None = None
        self.deleted_since: int | None = None
        self.lac: int = NO_ENTRY
        self.highest: int = NO_ENTRY
        self.asked: dict[object, int] = {}
        """Fences, closes and deletions, and when somebody first asked for them."""
        self.doubtful: dict[int, Doubt] = {}
        """What was there when the power went under a node that had not synced it."""
        self.outlived: set[int] = set()
        """What was found since."""
        self.gone: set[int] = set()
        """What of the doubtful the node could not find."""

    def doubt(self, kept: int, now: int) -> None:
        """Note that what was not known by `kept` may be gone."""
        for entry, (payload, since) in [*self.values.items()]:
            if since > kept:
                self.doubtful[entry] = Doubt(payload, since, now)
                del self.values[entry]
        self.gone.clear()
        self.outlived.clear()
        self.lac = NO_ENTRY
        self.highest = max(self.values, default=NO_ENTRY)
        if not self.values:
            self.epoch = None

    @property
    def exists(self) -> bool:
        """Whether it is known to have been there."""
        return bool(self.values) or self.fenced is not None or self.last is not None


class Look(msgspec.Struct, frozen=True):
    """A question about a ledger, with what was certain when it was asked."""

    page: Page
    since: int
    fences: bool
    existed: bool
    deleted: bool
    fenced: int | None
    last: int | None
    lac: int
    highest: int
    epoch: int | None
