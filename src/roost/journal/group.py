"""Who syncs, and what a sync has made durable: many writers share one.

Sans-IO; one caller at a time: who holds the channel's lock, or the event loop. The promise: what is
called durable was written before a sync began that then succeeded. One party at a time syncs; it
may have handed over several syncs, which are then done one after the other. After one has failed
there is never another: the system has forgotten which pages it could not write.
"""

from collections import deque


class SyncGroup:
    """One file's, or one chain of files', writes and syncs, as a count that only grows."""

    __slots__ = ("_broken", "_in_flight", "busy", "durable")

    def __init__(self, *, durable: int) -> None:
        self.busy = False
        self._broken = False
        self.durable = durable
        """Everything before this is durable."""
        # What each sync that was handed over will have made durable, in their order.
        self._in_flight: deque[int] = deque()

    def claim(self) -> bool:
        """Become the one who syncs; False if somebody is, or a sync has failed."""
        if self.busy or self._broken:
            return False
        self.busy = True
        return True

    def begin(self, written: int) -> None:
        """Note what was written when the sync begins: a `done` of its own is about just that."""
        assert self.busy, "a sync without a claim"
        assert written >= self.durable, "what was durable is gone"
        self._in_flight.append(written)

    def done(self) -> int:
        """Note that the sync succeeded that began first, and say what is durable now."""
        assert self._in_flight, "a sync ended that never began"
        self.durable = self._in_flight.popleft()
        return self.durable

    def fail(self) -> None:
        """Note that the sync failed: nothing becomes durable any more."""
        self._broken = True
        self._in_flight.clear()

    def release(self) -> None:
        """Stop being the one who syncs."""
        assert not self._in_flight, "released in the middle of a sync"
        self.busy = False

    def abandon(self) -> None:
        """Stop being the one who syncs, in the middle: it is as if the sync had not begun."""
        self._in_flight.clear()
        self.busy = False

    def end(self, durable: int) -> None:
        """Note that everything was synced, at the end, by somebody who syncs alone."""
        self.durable = durable
