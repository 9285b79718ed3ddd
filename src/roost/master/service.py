"""The work of the elected master: it audits, repairs, collects and scrubs until it is told to end.

The promise: whatever two masters do at once harms nobody. A master that has lost its election and
does not know it yet is a matter of seconds, and cannot be ruled out; so every change that counts is
a compare-and-set on what was read, and what nodes are told cannot become wrong by being late.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from roost.errors import RoostError
from roost.host.log import Log
from roost.host.metrics import MasterMetrics
from roost.host.seams import Seams
from roost.ledger.nodes import PATIENT, Nodes, Patience
from roost.ledger.pace import Pace
from roost.ledger.records import Records
from roost.ledger.repairing import Repairer
from roost.ledger.throttle import Throttle
from roost.master.absence import Absences
from roost.master.auditing import Auditor, AuditSettings
from roost.master.collecting import Collector, CollectSettings
from roost.master.documents import Documents
from roost.master.means import Means
from roost.master.roster import Roster
from roost.master.scrubbing import Scrubber, ScrubSettings
from roost.metadata.election import Leadership
from roost.metadata.masters import MASTER_REPORT, MasterReport
from roost.metadata.operations import Put
from roost.metadata.store import Lease, MetadataStore

RETRY_S: Final = 1.0


class MasterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a master works."""

    grace_s: float = 60.0
    """How long a node may be away before its copies are made anew elsewhere."""

    look_s: float = 2.0
    """How often to see which nodes are there."""

    copy_bytes_per_s: float | None = 100e6
    """How fast all copies together may go."""

    scrub_bytes_per_s: float | None = 20e6
    """How fast everything is read again."""

    report_s: float = 2.0
    """How often the master says how it is."""

    patience: Patience = PATIENT
    audit: AuditSettings = AuditSettings()
    collect: CollectSettings = CollectSettings()
    scrub: ScrubSettings = ScrubSettings()


class Master:
    """One term of one master."""

    def __init__(
        self,
        store: MetadataStore,
        settings: MasterSettings,
        *,
        seams: Seams,
        cluster: str,
        name: str,
        log: Log,
        metrics: MasterMetrics,
    ) -> None:
        self._store: Final = store
        self._settings: Final = settings
        self._clock: Final = seams.clock
        self._log: Final = log
        self._metrics: Final = metrics
        # A look that comes so late has missed too much of what happened in between.
        gap_s = max(settings.grace_s / 2, 4 * settings.look_s)
        absences = Absences(grace_s=settings.grace_s, gap_s_max=gap_s)
        self.roster: Final = Roster(store, absences, seams.clock)
        self._nodes: Final = Nodes(
            self.roster,
            net=seams.net,
            clock=seams.clock,
            rng=seams.rng,
            cluster=cluster,
            name=name,
            patience=settings.patience,
        )
        copies = Throttle(Pace(settings.copy_bytes_per_s), seams.clock)
        scrubs = Throttle(Pace(settings.scrub_bytes_per_s), seams.clock)
        records = Records(store, clock=seams.clock)
        self._repairer: Final = Repairer(
            nodes=self._nodes, records=records, rng=seams.rng, log=log, throttle=copies
        )
        means = Means(
            store=store,
            documents=Documents(store, log, metrics),
            records=records,
            roster=self.roster,
            nodes=self._nodes,
            repairer=self._repairer,
            clock=seams.clock,
            log=log,
            metrics=metrics,
        )
        self.auditor: Final = Auditor(means, settings.audit)
        self.collector: Final = Collector(means, settings.collect)
        self.scrubber: Final = Scrubber(means, scrubs, settings.scrub)

    async def work(self) -> None:
        """Keep ledgers whole until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._again("look", self._look))
                group.create_task(self._again("audit", self._audit))
                group.create_task(self._again("collection", self._collect))
                if self._settings.scrub.round_s:
                    group.create_task(self._again("scrub", self._scrub))
        finally:
            self._metrics.copies_running = 0
            self._nodes.abort()

    async def _again(self, what: str, once: Callable[[], Awaitable[float]]) -> None:
        """Do something again and again; it tells how long to wait in between."""
        while True:
            try:
                wait_s = await once()
            except RoostError as error:
                self._log.event(f"{what}_failed", level="warning", error=str(error))
                wait_s = RETRY_S
            await asyncio.sleep(wait_s)

    async def _look(self) -> float:
        await self.roster.look()
        return self._settings.look_s

    async def _audit(self) -> float:
        wait_s = await self.auditor.run_once()
        self.refresh()
        return wait_s

    async def _collect(self) -> float:
        await self.collector.collect()
        return self._settings.collect.collect_s

    async def _scrub(self) -> float:
        await self.scrubber.round()
        return self._settings.scrub.look_s

    async def lead(self, leadership: Leadership, lease: Lease, report: MasterReport) -> None:
        """Work, and say how it goes, as long as the election is ours; returns once it is not."""
        work = asyncio.ensure_future(self.work())
        telling = asyncio.ensure_future(self._tell(leadership, lease, report))
        lost = asyncio.ensure_future(lease.wait_lost())
        tasks = [work, telling, lost]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, telling):
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _tell(self, leadership: Leadership, lease: Lease, first: MasterReport) -> None:
        """Report until somebody else is elected, or may be."""
        while True:
            self.refresh()
            report = self.report(first)
            put = Put(leadership.key, MASTER_REPORT.encode(report), lease.id)
            try:
                if not (await self._store.txn([leadership.still], [put])).succeeded:
                    self._log.event("not_elected_any_more", level="warning")
                    return
            except RoostError as error:
                # Whether we still lead, the lease knows.
                self._log.event("not_reported", level="warning", error=str(error))
            await asyncio.sleep(self._settings.report_s)

    def refresh(self) -> None:
        """Bring the figures up to date."""
        metrics, done = self._metrics, self._repairer.figures
        metrics.copies_running = done.running
        metrics.copies, metrics.failed_copies = done.copies, done.failed
        metrics.copied_entries, metrics.copied_bytes = done.entries, done.bytes

    def report(self, first: MasterReport) -> MasterReport:
        """Say how it is now."""
        survey, figures = self.auditor.survey, self._repairer.figures
        return msgspec.structs.replace(
            first,
            reported_at=self._clock.wall(),
            audits=self.auditor.audits,
            ledgers=survey.ledgers,
            under_replicated=survey.under_replicated,
            waiting=survey.waiting,
            copies_running=figures.running,
            copied_bytes=figures.bytes,
            gone=tuple(sorted(survey.gone)),
            draining={str(node): left for node, left in sorted(survey.draining.items())},
        )
