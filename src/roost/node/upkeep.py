"""Flushes, checkpoints and trims, so that memory and journal stay within their limits.

One task does it all, woken whenever there may be something to do. The order of a checkpoint is the
promise: what it says is in the ledgers' files was synced before; it is durable itself, name and
all, before the journal forgets anything.

What fails here fails the node: a file whose sync failed is not tried again. A full disk is no
failure; it is tried again when there is room, and until then everything stays in memory and in
the journal.
"""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from roost.host.jobs import begin
from roost.host.log import Log
from roost.host.metrics import NodeMetrics
from roost.host.seams import Seams
from roost.host.tasks import Worker
from roost.journal.service import Journal
from roost.node.flush import Flush, Flusher, is_full
from roost.node.known import Known
from roost.node.layout import CHECKPOINT, LEDGERS, owner, write_whole
from roost.node.ledgers import Ledger, memory_bytes
from roost.node.space import Backlog
from roost.types import LedgerId, Position

RETRY_S: Final = 1.0
"""How long it waits for room on a full disk before it tries again."""


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
        flushes = []
        for number in ledgers:
            ledger = self._known.ledgers.get(number)
            if ledger is not None and not ledger.frozen and ledger.memtable:
                flushes.append(asyncio.ensure_future(self._flush_one(ledger)))
        outcomes = await asyncio.gather(*flushes, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            # A full disk is the least of them: it would be tried again.
            raise min(failures, key=is_full)

    async def _flush_one(self, ledger: Ledger) -> None:
        if ledger.id not in self._known.ledgers:  # it was deleted meanwhile
            return
        blocks = ledger.freeze()
        size = memory_bytes(blocks)
        self._backlog.froze(ledger.id, size)
        worker, flusher = self._owners[owner(ledger.id, len(self._owners))]
        flush = Flush(
            ledger=ledger.id,
            blocks=blocks,
            stored=ledger.stored,
            before=self._applied(),
            closed=ledger.last is not None,
            at=self._clock.wall(),
            rewritten=len(ledger.rewritten & blocks.keys()),
        )
        try:
            stored = await begin(worker, flusher.flush(flush))
        except OSError:
            if ledger.id in self._known.ledgers:
                ledger.thaw()
                self._backlog.thawed(ledger.id, size)
            else:
                self._backlog.flushed(ledger.id, size)
            raise
        self._backlog.flushed(ledger.id, size)
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
