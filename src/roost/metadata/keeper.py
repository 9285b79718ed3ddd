"""Keeps one embedded store: its versions in memory, its file durable, its leases in time.

Decisions are made in memory, at once and one after the other (`Versions`); what they led to becomes
durable in groups, on a worker; and only then anybody hears of it, those too who only read. So a
call sees all that was acknowledged before it, and nothing that a loss of power could take back.

A write that fails ends the keeper for good: memory is ahead of the file then, and nothing that it
says could be relied on. Whoever opens the folder again finds what was acknowledged.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from roost.errors import Closed, RoostError, Unavailable, Unknown
from roost.host.disk import Disk, Held, Lock
from roost.host.jobs import begin
from roost.host.log import Log
from roost.host.seams import Seams
from roost.metadata.database import Database, Loaded, Pending
from roost.metadata.operations import (
    Batch,
    Compare,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Revision,
)
from roost.metadata.versions import Versions

LOCK_NAME: Final = "lock"
HISTORY_EVENTS: Final = 20_000
"""How many events are kept for watches; once there are more, the older half is forgotten."""

UUID_BYTES: Final = 16

STALL_S: Final = 1.0
"""Once we were so late, leases begin anew: their renewals had to wait for us, and not we for them.
"""


class Keeper:
    """The one owner of a folder's store."""

    def __init__(self, seams: Seams, log: Log, history_max: int) -> None:
        self._clock: Final = seams.clock
        self._rng: Final = seams.rng
        self._log: Final = log
        self._history_max: Final = history_max
        self._versions: Final = Versions()
        self._worker: Final = seams.tasks.worker("metadata")
        self._database: Database
        self._lock: Lock
        # Decisions are counted; those up to `_durable` are in the file, and may be told.
        self._decided = 0
        self._durable = 0
        self._told_upto = Revision(0)
        self._granted: dict[LeaseId, int] = {}
        self._ended: list[LeaseId] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._watching: list[asyncio.Future[None]] = []
        self._work: Final = asyncio.Event()
        self._new_lease: Final = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._why_over: RoostError | None = None
        self.uuid = b""
        """Which store it is: another folder is another one."""
        self.failed: Final = asyncio.Event()
        """Set once it cannot go on."""

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        seams: Seams,
        log: Log,
        holder: str,
        keep_leases: bool,
        history_max: int = HISTORY_EVENTS,
    ) -> Self:
        """Take a folder, made if missing, and read what is in it.

        With `keep_leases` the leases of the process before begin anew, since their holders live
        elsewhere; without, they end: their holders died with it.
        """
        keeper = cls(seams, log, history_max)
        keeper._lock = _lock(seams.disk, folder, holder)
        try:
            loaded = await begin(keeper._worker, keeper._opening(folder))
        except BaseException:
            keeper._worker.stop()
            keeper._lock.release()
            raise
        try:
            await keeper._begin(loaded, keep_leases=keep_leases)
        except BaseException:
            await keeper.close()
            raise
        return keeper

    @property
    def revision(self) -> Revision:
        """Name the last change that is durable."""
        return self._told_upto

    # Asking

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]
    ) -> Outcome:
        """Carry out a transaction that `check_txn` has passed."""
        self.check()
        before = self._versions.revision
        outcome = self._versions.txn(compares, then, orelse)
        if self._versions.revision != before:
            self._decide()
        await self._settled(changed=self._versions.revision != before)
        return outcome

    async def page(self, prefix: str, *, after: str, limit: int, revision: Revision | None) -> Page:
        """Read a page."""
        self.check()
        page = self._versions.page(prefix, after=after, limit=limit, revision=revision)
        await self._settled(changed=False)
        return page

    def look(self, prefix: str, first: Revision) -> Batch | Revision:
        """Read what happened and is durable; or where to go on once there is `news`."""
        self.check()
        return self._versions.batch(prefix, first, upto=self._told_upto)

    async def news(self) -> None:
        """Wait until something more has happened, or the keeper is over."""
        self.check()
        future = asyncio.get_running_loop().create_future()
        self._watching.append(future)
        try:
            await future
        finally:
            if future in self._watching:
                self._watching.remove(future)

    async def grant(self, ttl_s: int) -> LeaseId:
        """Begin a lease."""
        self.check()
        lease = LeaseId(self._rng.randrange(1, 1 << 62))
        self._versions.grant(lease, ttl_s, self._clock.now())
        self._granted[lease] = ttl_s
        self._new_lease.set()
        self._decide()
        await self._settled(changed=True)
        return lease

    async def renew(self, lease: LeaseId) -> int:
        """Begin a lease's time anew; returns it, or 0 if the lease is gone."""
        self.check()
        return self._versions.renew(lease, self._clock.now())

    async def revoke(self, lease: LeaseId) -> None:
        """End a lease, if it has not ended."""
        self.check()
        self._end_lease(lease)
        await self._settled(changed=True)

    async def let_go(self) -> None:
        """End all leases, whoever holds them."""
        self.check()
        for lease in self._versions.leases:
            self._end_lease(lease)
        await self._settled(changed=True)

    def compact(self, upto: Revision) -> None:
        """Forget history up to a revision that is durable."""
        self.check()
        self._versions.compact(min(upto, self._told_upto))
        self._decide()
        self.nudge()

    def nudge(self) -> None:
        """Wake all who wait for news, though there may be none."""
        watching, self._watching = self._watching, []
        for future in watching:
            if not future.done():
                future.set_result(None)

    async def close(self) -> None:
        """Make durable what was decided, and let go of the folder. Twice is once."""
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        if self._why_over is None:
            with suppress(RoostError):
                await self._settled(changed=False)
        self._end(Closed("the metadata store was closed"))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        try:
            await begin(self._worker, self._closing())
        finally:
            self._worker.stop()
            self._lock.release()

    # How it works

    def check(self) -> None:
        """Raise why it can do nothing any more, if it is over."""
        if self._why_over is not None:
            raise self._why_over

    def _opening(self, folder: Path) -> Generator[None, None, Loaded]:
        self._database = Database(folder)
        try:
            loaded = self._database.load(uuid=self._rng.randbytes(UUID_BYTES))
        except BaseException:
            self._database.close()
            raise
        yield
        return loaded

    def _closing(self) -> Generator[None, None, None]:
        self._database.close()
        yield

    async def _begin(self, loaded: Loaded, *, keep_leases: bool) -> None:
        versions, now = self._versions, self._clock.now()
        versions.load(loaded.events, revision=loaded.revision, compacted=loaded.compacted)
        self.uuid = loaded.uuid
        self._told_upto = versions.revision
        for lease, ttl_s in loaded.leases.items():
            versions.grant(lease, ttl_s, now)
        if not keep_leases:
            for lease in versions.leases:
                self._end_lease(lease)
        self._tasks = [
            asyncio.get_running_loop().create_task(run()) for run in (self._write, self._expire)
        ]
        self._log.event(
            "metadata_opened",
            revision=loaded.revision,
            compacted=loaded.compacted,
            leases=len(loaded.leases),
            kept=keep_leases,
        )
        await self._settled(changed=False)

    def _end_lease(self, lease: LeaseId) -> None:
        if self._versions.revoke(lease):
            # It may have been granted a moment ago, and not be in the file yet.
            if self._granted.pop(lease, None) is None:
                self._ended.append(lease)
            self._decide()

    def _decide(self) -> None:
        self._decided += 1
        self._work.set()

    async def _settled(self, *, changed: bool) -> None:
        """Wait until all that was decided so far is durable."""
        if self._durable >= self._decided:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._decided, future))
        try:
            await future
        except RoostError as error:
            if changed:
                raise Unknown(f"{error} It may or may not have been done.") from error
            raise

    async def _write(self) -> None:
        """Make durable what was decided, until there is nothing to rely on any more."""
        while True:
            await self._work.wait()
            self._work.clear()
            decided, pending = self._decided, self._take()
            try:
                await begin(self._worker, self._commit(pending))
            except RoostError as error:
                self._log.event("metadata_failed", level="error", error=str(error))
                self._end(
                    Unavailable(f"the metadata store has failed, and must be opened again: {error}")
                )
                return
            self._durable = decided
            self._told_upto = pending.revision
            self._wake()
            if self._versions.history > self._history_max:
                kept = self._versions.since(self._versions.compacted)[-self._history_max // 2 :]
                self.compact(Revision(kept[0].revision - 1))

    def _take(self) -> Pending:
        versions = self._versions
        pending = Pending(
            versions.since(self._told_upto),
            versions.revision,
            versions.compacted,
            self._granted,
            self._ended,
        )
        self._granted, self._ended = {}, []
        return pending

    def _commit(self, pending: Pending) -> Generator[None, None, None]:
        self._database.commit(pending)
        yield

    async def _expire(self) -> None:
        """End leases once their time has run out."""
        while True:
            due = self._versions.next_expiry()
            self._new_lease.clear()
            if due is None:
                await self._new_lease.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - self._clock.now())):
                    await self._new_lease.wait()
            self._end_expired(due)

    def _end_expired(self, due: float) -> None:
        now = self._clock.now()
        if now - due > STALL_S:
            self._log.event("metadata_stalled", level="warning", late_s=round(now - due, 3))
            for lease in self._versions.leases:
                self._versions.renew(lease, now)
        for lease in self._versions.expired(now):
            self._log.event("lease_expired", lease=lease)
            self._end_lease(lease)

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._durable:
            future = self._waiting.pop(0)[1]
            if not future.done():
                future.set_result(None)
        self.nudge()

    def _end(self, why: RoostError) -> None:
        """Answer nobody any more."""
        if self._why_over is None:
            self._why_over = why
            self.failed.set()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(self._why_over)
        self.nudge()


def _lock(disk: Disk, folder: Path, holder: str) -> Lock:
    try:
        disk.make_folder(folder)
        return disk.lock(folder / LOCK_NAME, holder=holder)
    except Held as error:
        raise Unavailable(
            f"the metadata in {folder} is in use by {error.holder or 'another program'}: stop that "
            "one, or let both reach it through `roost meta`"
        ) from error
    except OSError as error:
        raise Unavailable(f"the folder {folder} cannot be used for metadata: {error}") from error
