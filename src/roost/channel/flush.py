"""Syncs what was written, for all who wait, and moves the durable mark.

The decisions are `SyncGroup`'s; here are the syncs themselves. One job at a time runs rounds of
"see what is written, sync it, say so" until nothing is left. It runs on a worker, or in the
thread of a sender that finds nobody syncing: one round of its own is quicker than handing over.
"""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final, Protocol

from roost.channel.standing import Standing
from roost.host.tasks import Worker
from roost.journal.group import SyncGroup


class Syncs(Protocol):
    """Something that can be synced, as a file can."""

    def sync(self) -> None:
        """Make durable what was written to it, or raise `OSError`."""


class Syncable(Protocol):
    """What a flusher makes durable. All methods are called with the channel's lock held."""

    def pending(self) -> tuple[int, Sequence[Syncs]]:
        """Say how far it is written, and which files to sync, in order, to make that durable."""

    def settled(self, durable: int) -> None:
        """Note that everything before `durable` is durable now."""


class Flusher:
    """Group sync of one `Syncable`."""

    def __init__(
        self,
        target: Syncable,
        standing: Standing,
        *,
        durable: int = 0,
        worker: Worker,
        wake: Callable[[], None],
        rising: Callable[[], bool] = lambda: False,
    ) -> None:
        self.group: Final = SyncGroup(durable=durable)
        self.scheduled = False
        self._stopped = False
        self._here: Final = Lock()
        self._target: Final = target
        self._lock: Final = standing.lock
        self._worker: Final = worker
        self._failed: Final = standing.fail
        self._wake: Final = wake
        self._rising: Final = rising

    def request(self) -> None:
        """See to it that what is written by now gets synced, by the worker."""
        with self._lock:
            self.request_locked()

    def request_locked(self) -> None:
        """Do as `request` does, for a caller that holds the lock."""
        if not self._stopped and self.group.claim():
            self._worker.start(self._rounds())

    def request_within(self, delay_s: float) -> None:
        """See to it that what is written by now gets synced after at most `delay_s`."""
        if not self.scheduled:
            self.scheduled = True
            self._worker.start(self._later(), delay_s=delay_s)

    def sync_here(self) -> bool:
        """Do one round in this thread unless somebody is at it; the worker does what is left."""
        if self.group.busy:  # the usual answer where many wait, without fighting for the lock
            return False
        with self._lock:
            if self._stopped or not self.group.claim():
                return False
            # Taken before anybody can stop the flusher. Whoever had it last is about to leave,
            # and needs no lock for that.
            self._here.acquire()
        try:
            for _ in self._round():
                pass
            if self._more():
                self._worker.start(self._rounds())
        except BaseException:
            # The caller is interrupted (by ^C, say): somebody else syncs for those who wait.
            with self._lock:
                self.group.abandon()
                self.request_locked()
            raise
        finally:
            self._here.release()
        return True

    def sync_for_the_last(self) -> None:
        """Do what `_more` has left to the last of those who were woken, in that thread."""
        if self._rising() or self.group.busy:
            return
        with self._lock:
            left = self._target.pending()[0] > self.group.durable
        if left:
            self.sync_here()

    def stop(self) -> None:
        """Begin no more syncs, and wait for the one that a sender may be doing.

        The worker's jobs are ended by stopping the worker, after this.
        """
        with self._lock:
            self._stopped = True
        with self._here:
            pass

    def _later(self) -> Iterator[None]:
        self.scheduled = False
        with self._lock:
            claimed = not self._stopped and self.group.claim()
        if claimed:
            yield from self._rounds()

    def _rounds(self) -> Iterator[None]:
        while True:
            yield from self._round()
            if not self._more():
                return

    def _round(self) -> Iterator[None]:
        with self._lock:
            written, files = self._target.pending()
            self.group.begin(max(written, self.group.durable))
        try:
            for file in files:
                yield
                file.sync()
                yield
        except OSError as error:
            with self._lock:
                self.group.fail()
            self._failed(error)
            return
        with self._lock:
            self._target.settled(self.group.done())
        self._wake()

    def _more(self) -> bool:
        """Stop being the one who syncs, unless something was written since.

        While those who were just woken are still coming up, the first of them may have written
        again: the last one syncs for all, in place of a sync for every few.
        """
        with self._lock:
            self.group.release()
            if self._rising():
                return False
            # Released first: who writes after this look finds nobody syncing and claims it.
            return self._target.pending()[0] > self.group.durable and self.group.claim()
