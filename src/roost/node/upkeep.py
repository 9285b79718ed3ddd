"""Flushes, checkpoints and trims, so that memory and journal stay within their limits.

One task does it all, woken whenever there may be something to do. The order of a checkpoint is the
promise: what it says is in the ledgers' files was synced before; it is durable itself, name and
all, before the journal forgets anything.

What fails here fails the node: a file whose sync failed is not tried again. A full disk is no
failure; it is tried again when there is room, and until then everything stays in memory and in
the journal.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final

from roost.host.disk import Sweep
from roost.host.jobs import begin
from roost.host.log import Log
from roost.host.metrics import NodeMetrics
from roost.host.seams import Seams
from roost.host.tasks import Worker
from roost.journal.service import Journal
from roost.node.flush import Flush, Flusher, is_full, stored_by
from roost.node.known import Known
from roost.node.layout import CHECKPOINT, LEDGERS, owner, write_whole
from roost.node.ledgers import Ledger, Stored, memory_bytes
from roost.node.space import Backlog
from roost.types import LedgerId, Position

RETRY_S: Final = 1.0
"""How long it waits for room on a full disk before it tries again."""

TOGETHER_MAX: Final = 10_000
"""How many ledgers are flushed with the same two syncs."""


class Upkeep:
    """The housekeeping of one store."""

    def __init__(
        self,
        folder: Path,
        known: Known,
        backlog: Backlog,
        journal: Journal,
        *,
        seams: Seams,
        workers: int,
        files_max: int,
        together_min: int,
        applied: Callable[[], Position],
        relieved: Callable[[], None],
        failed: Callable[[str, OSError], None],
        log: Log,
        metrics: NodeMetrics,
    ) -> None:
        self._disk: Final = seams.disk
        self._folder: Final = folder
        self._known: Final = known
        self._backlog: Final = backlog
        self._journal: Final = journal
        self._clock: Final = seams.clock
        self._applied: Final = applied
        self._relieved: Final = relieved
        self._failed: Final = failed
        self._log: Final = log
        self._metrics: Final = metrics
        self._owners: Final[list[tuple[Worker, Flusher]]] = [
            (
                seams.tasks.worker(f"roost-flush-{number}"),
                Flusher(seams.disk, folder / LEDGERS, files_max=files_max),
            )
            for number in range(workers)
        ]
        self._together_min: Final = together_min
        self._checkpoints: Final = seams.tasks.worker("roost-checkpoint")
        self._wanted: Final = asyncio.Event()
        self._busy: Final = asyncio.Lock()
        self.why_full = ""
        """Why entries cannot be flushed now, or ''."""

    def look(self) -> None:
        """See soon whether there is something to do; cheap, called after every group."""
        if not self._wanted.is_set() and self._backlog.to_flush(
            journal_bytes=self._journal.kept_bytes, applied=self._applied()
        ):
            self._wanted.set()

    async def run(self) -> None:
        """Do what there is to do, until cancelled or until the node has failed."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                async with self._busy:
                    await self._round()
            except OSError as error:
                if not is_full(error):
                    self._failed("a flush", error)
                    return
                self.why_full = f"ledgers cannot be flushed: {error.strerror}"
                self._log.event("flush_without_room", level="error", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
            else:
                self.why_full = ""
                self._relieved()
                self.look()

    async def _round(self) -> None:
        """Flush what is due, and let the journal forget what nobody needs any more."""
        await self._flush(
            self._backlog.to_flush(journal_bytes=self._journal.kept_bytes, applied=self._applied())
        )
        replay_from = self._backlog.unflushed_from(self._applied())
        if self._journal.could_trim(replay_from):
            await self.checkpoint()

    async def settle(self) -> None:
        """Wait until no flush is under way, so that `run` may be cancelled."""
        async with self._busy:
            pass

    async def flush_all(self) -> None:
        """Bring everything into files, and checkpoint: what a clean stop does."""
        async with self._busy:
            await self._flush(self._backlog.everything())
            await self.checkpoint()

    async def _flush(self, ledgers: list[LedgerId]) -> None:
        """Flush ledgers: one by one if they are few, else many at once."""
        known = self._known.ledgers
        due = [
            ledger
            for number in ledgers
            if (ledger := known.get(number)) and not ledger.frozen and ledger.memtable
        ]
        if len(due) >= self._together_min:
            sweep = self._disk.sweep(self._folder)
            if sweep is not None:
                try:
                    await self._flush_together(due, sweep)
                finally:
                    sweep.close()
                return
        flushes = [asyncio.ensure_future(self._flush_one(ledger)) for ledger in due]
        await _all_of(flushes)

    async def _flush_together(self, ledgers: list[Ledger], sweep: Sweep) -> None:
        """Flush very many ledgers with two syncs for thousands of them, of the whole disk.

        The order is the same: all logs are synced before any slot is written.
        """
        for start in range(0, len(ledgers), TOGETHER_MAX):
            batch = [
                ledger
                for ledger in ledgers[start : start + TOGETHER_MAX]
                if ledger.id in self._known.ledgers and ledger.memtable and not ledger.frozen
            ]
            flushes = [self._freeze(ledger) for ledger in batch]
            try:
                await self._by_owner(Flusher.write_logs, flushes)
                await begin(self._checkpoints, _swept(sweep))
                # The files of those that were deleted meanwhile are gone, and stay so.
                there = [flush for flush in flushes if flush.ledger in self._known.ledgers]
                await self._by_owner(Flusher.write_indexes, there)
                await begin(self._checkpoints, _swept(sweep))
            except OSError:
                for ledger, flush in zip(batch, flushes, strict=True):
                    self._thaw(ledger, flush)
                raise
            for ledger, flush in zip(batch, flushes, strict=True):
                self._flushed(ledger, flush, stored_by(flush))
            if start + TOGETHER_MAX < len(ledgers):
                self._log.event("flushing", flushed=start + len(batch), of=len(ledgers))

    async def _by_owner(
        self,
        write: Callable[[Flusher, Sequence[Flush]], Generator[None, None, None]],
        flushes: Sequence[Flush],
    ) -> None:
        """Have each worker write what is of its ledgers."""
        shares: list[list[Flush]] = [[] for _ in self._owners]
        for flush in flushes:
            shares[owner(flush.ledger, len(shares))].append(flush)
        await _all_of(
            [
                asyncio.ensure_future(begin(worker, write(flusher, share)))
                for (worker, flusher), share in zip(self._owners, shares, strict=True)
                if share
            ]
        )

    async def _flush_one(self, ledger: Ledger) -> None:
        if ledger.id not in self._known.ledgers:  # it was deleted meanwhile
            return
        flush = self._freeze(ledger)
        worker, flusher = self._owners[owner(ledger.id, len(self._owners))]
        try:
            stored = await begin(worker, flusher.flush(flush))
        except OSError:
            self._thaw(ledger, flush)
            raise
        self._flushed(ledger, flush, stored)

    def _freeze(self, ledger: Ledger) -> Flush:
        """Take all that a ledger has in memory."""
        blocks = ledger.freeze()
        self._backlog.froze(ledger.id, memory_bytes(blocks))
        return Flush(
            ledger=ledger.id,
            blocks=blocks,
            stored=ledger.stored,
            before=self._applied(),
            closed=ledger.last is not None,
            at=self._clock.wall(),
            rewritten=len(ledger.rewritten & blocks.keys()),
        )

    def _thaw(self, ledger: Ledger, flush: Flush) -> None:
        """Give back what could not be stored."""
        size = memory_bytes(flush.blocks)
        if ledger.id in self._known.ledgers:
            ledger.thaw()
            self._backlog.thawed(ledger.id, size)
        else:
            self._backlog.flushed(ledger.id, size)

    def _flushed(self, ledger: Ledger, flush: Flush, stored: Stored) -> None:
        """Note that it is stored."""
        self._backlog.flushed(ledger.id, memory_bytes(flush.blocks))
        ledger.flushed(stored)
        if ledger.id in self._known.ledgers:  # or it was deleted meanwhile
            self._known.touch(ledger.id)
        self._metrics.flushes += 1
        self._metrics.flushed_bytes += stored.log_end - flush.stored.log_end

    async def checkpoint(self) -> None:
        """Say durably what is known now, and let the journal forget what nobody needs for it."""
        replay_from = self._backlog.unflushed_from(self._applied())
        pieces = self._known.checkpoint(replay_from)
        await begin(self._checkpoints, self._write(pieces))
        self._metrics.checkpoints += 1
        self._log.event("checkpoint", level="debug", replay_from=replay_from, rows=len(pieces) - 1)
        self._journal.trim(replay_from)

    def _write(self, pieces: list[bytes]) -> Generator[None, None, None]:
        yield
        write_whole(self._disk, self._folder / CHECKPOINT, pieces)

    async def cut(self, ledger: Ledger) -> None:
        """Give back what was reserved for the log of a ledger that was closed."""
        if ledger.memtable or ledger.frozen or not ledger.stored.log_end:
            return  # its next flush does it, or there is nothing to cut
        if ledger.id not in self._known.ledgers:  # it was deleted meanwhile
            return
        worker, flusher = self._owners[owner(ledger.id, len(self._owners))]
        try:
            await begin(worker, flusher.cut(ledger.id, ledger.stored.log_end))
        except OSError as error:
            self._failed("cutting an entry log", error)

    async def remove(self, ledger: LedgerId) -> None:
        """Remove the files of a ledger whose deletion is durable."""
        worker, flusher = self._owners[owner(ledger, len(self._owners))]
        try:
            await begin(worker, flusher.remove(ledger))
        except OSError as error:
            # The next start removes them.
            self._log.event("files_left", level="warning", ledger=ledger, error=str(error))

    def close(self) -> None:
        """Let go of all files, at the end."""
        for worker, flusher in self._owners:
            worker.stop()
            flusher.close()
        self._checkpoints.stop()


async def _all_of(work: Sequence["asyncio.Future[None]"]) -> None:
    """Wait for all; of their errors the worst is raised."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        # A full disk is the least of them: it would be tried again.
        raise min(failures, key=is_full)


def _swept(sweep: Sweep) -> Generator[None, None, None]:
    yield
    sweep.sync()
