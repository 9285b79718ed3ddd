"""How much is in memory and in the journal, what to flush for it, and when to slow down.

Pure. The promise: an idle ledger never holds the journal back, and a slow disk slows writers down
instead of filling the memory. What was not flushed for longest is flushed first, whoever wrote it:
all ledgers whose oldest entry lies in the older half of what the journal still has to keep.
"""

from itertools import takewhile
from typing import Final

import msgspec

from roost.types import LedgerId, Position


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a node may take."""

    memory_bytes_max: int = 256 << 20
    """Entries in memory; from a quarter of it on they are flushed, at all of it adds wait."""

    journal_bytes_max: int = 1 << 30
    """The journal; from half of it on the oldest entries are flushed, at all of it adds wait."""

    queued_bytes_max: int = 32 << 20
    """What waits for its sync; beyond it adds wait."""

    free_bytes_min: int = 256 << 20
    """Where the disk has less room than this, adds are refused; all else goes on."""


class Backlog:
    """The ledgers that have entries in memory only, the longest-waiting first."""

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._live: Final[dict[LedgerId, Position]] = {}
        self._flushing: Final[dict[LedgerId, Position]] = {}
        self.memory_bytes = 0
        """What entries take, those that are being flushed included."""
        self.flushing_bytes = 0

    def began(self, ledger: LedgerId, position: Position) -> None:
        """Note that a ledger, with none in memory before, has an entry from this position on."""
        assert ledger not in self._live, "it has begun already"
        self._live[ledger] = position

    def froze(self, ledger: LedgerId, size: int) -> None:
        """Note that a flush of all that this ledger has begins."""
        self._flushing[ledger] = self._live.pop(ledger)
        self.flushing_bytes += size

    def flushed(self, ledger: LedgerId, size: int) -> None:
        """Note that it has ended."""
        del self._flushing[ledger]
        self.flushing_bytes -= size
        self.memory_bytes -= size

    def thawed(self, ledger: LedgerId, size: int) -> None:
        """Note that it could not be done: everything is in memory as before."""
        oldest = self._flushing.pop(ledger)
        self.flushing_bytes -= size
        self._live[ledger] = oldest
        ordered = sorted(self._live.items(), key=lambda item: item[1])
        self._live.clear()
        self._live.update(ordered)

    def forget(self, ledger: LedgerId, size: int) -> None:
        """Note that a ledger was deleted, with what it had in memory and no flush had begun of."""
        self._live.pop(ledger, None)
        self.memory_bytes -= size

    def unflushed_from(self, applied: Position) -> Position:
        """Tell where replay would have to begin, if everything before `applied` was applied."""
        first_live = next(iter(self._live.values()), applied)
        return min(first_live, min(self._flushing.values(), default=applied))

    def to_flush(self, *, journal_bytes: int, applied: Position) -> list[LedgerId]:
        """Choose the ledgers to flush now."""
        limits = self._limits
        resting = self.memory_bytes - self.flushing_bytes
        if (
            resting <= limits.memory_bytes_max // 4
            and journal_bytes <= limits.journal_bytes_max // 2
        ):
            return []
        oldest = next(iter(self._live.values()), applied)
        middle = oldest + (applied - oldest + 1) // 2
        return [*takewhile(lambda ledger: self._live[ledger] <= middle, self._live)]

    def everything(self) -> list[LedgerId]:
        """List all that are not being flushed."""
        return [*self._live]

    def why_slow(self, *, journal_bytes: int, queued_bytes: int) -> str:
        """Say what adds have to wait for; '' if they need not."""
        limits = self._limits
        if self.memory_bytes > limits.memory_bytes_max:
            return f"{self.memory_bytes} bytes of entries are in memory, waiting to be flushed"
        if journal_bytes > limits.journal_bytes_max:
            return f"the journal has {journal_bytes} bytes, waiting for flushes"
        if queued_bytes > limits.queued_bytes_max:
            return f"{queued_bytes} bytes wait for their sync"
        return ""
