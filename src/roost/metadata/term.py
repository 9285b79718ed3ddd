"""How long a lease can be relied on: the arithmetic of its holder.

Pure. The promise: a lease counts as lost before the store can have let its time run out, whatever
became of the messages in between, as far as two clocks go at the same speed within a tenth.

The store's time began, or began anew, when it took a request; and that was after the request had
been sent, by the holder's own clock. So the store holds the lease at least until `sent_at + ttl_s`,
and its holder relies on it for a margin less:

    sent_at      renew_at            deadline   margin   sent_at + ttl_s
       |------------|-------------------|-------------------|----------->
                    a third of the way
"""

from typing import Final

MARGIN_S: Final = 1.0
MARGIN_SHARE: Final = 0.1
"""The margin is the greater of the two: clocks drift the further the longer a lease lasts."""

RENEWALS: Final = 3
"""How often it is renewed in the time that it can be relied on."""

TRIES: Final = 4
"""How often a renewal that fails is tried again before the next one is due."""


class LeaseTerm:
    """The time of one lease."""

    def __init__(self, *, ttl_s: float, sent_at: float) -> None:
        self._gone = False
        self._begin(ttl_s, sent_at)

    @property
    def ttl_s(self) -> float:
        """What the store said last."""
        return self._ttl_s

    @property
    def deadline(self) -> float:
        """When it is lost, unless it is renewed before."""
        return self._deadline

    @property
    def renew_at(self) -> float:
        """When to ask for a renewal."""
        return min(self._renew_at, self._deadline)

    def lost(self, now: float) -> bool:
        """Tell whether it must be regarded as lost; what was lost once is lost for ever."""
        self._gone = self._gone or now >= self._deadline
        return self._gone

    def on_answer(self, *, ttl_s: float, sent_at: float, now: float) -> None:
        """Hear from the store what is left of it; nothing is: it is gone."""
        if ttl_s <= 0:
            self._gone = True
        elif not self.lost(now):
            self._begin(ttl_s, sent_at)

    def on_failure(self, now: float) -> None:
        """Hear that a renewal had no answer."""
        self._renew_at = now + self._hold_s / RENEWALS / TRIES

    def on_revoked(self) -> None:
        """Hear that its holder gave it up."""
        self._gone = True

    def _begin(self, ttl_s: float, sent_at: float) -> None:
        self._ttl_s = ttl_s
        self._hold_s = ttl_s - max(MARGIN_S, ttl_s * MARGIN_SHARE)
        self._deadline = sent_at + self._hold_s
        self._renew_at = sent_at + self._hold_s / RENEWALS
