"""Who syncs, and what a sync has made durable: many writers share one.

Sans-IO; one caller at a time: who holds the channel's lock, or the event loop. The promise: what is
called durable was written before a sync began that then succeeded. At most one sync is in flight,
and after one has failed there is never another: the system has forgotten which pages it could not
write.
"""


class SyncGroup:
    """One file's, or one chain of files', writes and syncs, as a count that only grows."""

    __slots__ = ("_broken", "_in_flight", "busy", "durable")

    def __init__(self, *, durable: int) -> None:
        self.busy = False
        self._broken = False
        self.durable = durable
        """Everything before this is durable."""
        self._in_flight: int | None = None

    def claim(self) -> bool:
        """Become the one who syncs; False if somebody is, or a sync has failed."""
        if self.busy or self._broken:
            return False
        self.busy = True
        return True

    def begin(self, written: int) -> None:
        """Note what was written when the sync begins: the next `done` is about just that."""
        assert self.busy, "a sync without a claim"
        assert self._in_flight is None, "two syncs in flight"
        assert written >= self.durable, "what was durable is gone"
        self._in_flight = written

    def done(self) -> int:
        """Note that the sync succeeded, and say what is durable now."""
        assert self._in_flight is not None, "a sync ended that never began"
        self.durable, self._in_flight = self._in_flight, None
        return self.durable

    def fail(self) -> None:
        """Note that the sync failed: nothing becomes durable any more."""
        self._broken = True
        self._in_flight = None

    def release(self) -> None:
        """Stop being the one who syncs."""
        assert self._in_flight is None, "released in the middle of a sync"
        self.busy = False

    def abandon(self) -> None:
        """Stop being the one who syncs, in the middle: it is as if the sync had not begun."""
        self._in_flight = None
        self.busy = False

    def end(self, durable: int) -> None:
        """Note that everything was synced, at the end, by somebody who syncs alone."""
        self.durable = durable
