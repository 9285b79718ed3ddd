"""All ledgers that a node knows, and what a checkpoint would say of them.

Pure. A checkpoint is written often and most ledgers rest, so each one's row is kept and made anew
only if it was touched. The promise: what a checkpoint says of a ledger is never ahead of what is
in its files and the durable part of the journal.
"""

from bisect import bisect_right
from typing import Final

from roost.errors import NotFound
from roost.node.ledgers import Ledger
from roost.node.table import Checkpoint, encode_deleted, encode_header, encode_row
from roost.types import LedgerId, Position


class Known:
    """The ledgers of one node."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.ledgers: Final = {ledger.id: ledger for ledger in checkpoint.ledgers}
        self.deleted: Final = checkpoint.deleted
        self.forgetful = checkpoint.forgetful
        """Whether ledgers may be missing here that this node once had."""
        self._rows: Final = {
            **{ledger.id: encode_row(ledger) for ledger in checkpoint.ledgers},
            **{ledger: encode_deleted(ledger) for ledger in checkpoint.deleted},
        }
        self._touched: Final[set[LedgerId]] = set()
        self._sorted: list[LedgerId] | None = None

    def find(self, ledger: LedgerId) -> Ledger:
        """Give a ledger that is there."""
        found = self.ledgers.get(ledger)
        if found is None:
            raise self._not_there(ledger)
        return found

    def find_or_doubt(self, ledger: LedgerId) -> Ledger:
        """Give a ledger; an empty, suspect one where it may have been forgotten."""
        return self.find_or_new(ledger) if self.forgetful else self.find(ledger)

    def find_or_new(self, ledger: LedgerId) -> Ledger:
        """Give a ledger, or a new one that is not here before `adopt`; not one that was deleted."""
        found = self.ledgers.get(ledger)
        if found is None:
            if ledger in self.deleted:
                raise self._not_there(ledger)
            found = Ledger(ledger)
            found.suspect = self.forgetful
        return found

    def find_or_make(self, ledger: LedgerId) -> Ledger:
        """Give a ledger, new if it was never here; raises `NotFound` if it was deleted."""
        found = self.find_or_new(ledger)
        self.adopt(found)
        return found

    def _not_there(self, ledger: LedgerId) -> NotFound:
        if ledger in self.deleted:
            return NotFound(f"ledger {ledger} was deleted here; its id is never used again")
        return NotFound(f"ledger {ledger} is not on this node")

    def touch(self, ledger: LedgerId) -> None:
        """Note that the row of a ledger has to be made anew."""
        self._touched.add(ledger)

    def adopt(self, ledger: Ledger) -> None:
        """Take up a ledger, unless it is here already."""
        if ledger.id not in self.ledgers:
            self.ledgers[ledger.id] = ledger
            self._sorted = None
            self._touched.add(ledger.id)

    def delete(self, ledger: LedgerId) -> None:
        """Forget a ledger for good, but for its id."""
        del self.ledgers[ledger]
        self.deleted.add(ledger)
        self._sorted = None
        self._touched.add(ledger)

    def distrust(self) -> None:
        """Note that something was lost, and nobody can tell of which ledger."""
        self.forgetful = True
        for ledger in self.ledgers.values():
            self.distrust_one(ledger)

    def distrust_one(self, ledger: Ledger) -> None:
        """Note that something of a ledger was lost."""
        ledger.suspect = True
        self._touched.add(ledger.id)

    def page(self, after: LedgerId | None, limit: int) -> list[Ledger]:
        """List ledgers in the order of their ids, from behind one of them."""
        if self._sorted is None:
            self._sorted = sorted(self.ledgers)
        start = 0 if after is None else bisect_right(self._sorted, after)
        return [self.ledgers[ledger] for ledger in self._sorted[start : start + limit]]

    def checkpoint(self, replay_from: Position) -> list[bytes]:
        """Make a checkpoint of what is known now, in pieces."""
        for ledger in self._touched:
            found = self.ledgers.get(ledger)
            self._rows[ledger] = encode_deleted(ledger) if found is None else encode_row(found)
        self._touched.clear()
        header = encode_header(
            replay_from=replay_from, forgetful=self.forgetful, rows=len(self._rows)
        )
        return [header, *self._rows.values()]
