"""Looks at all ledgers again and again, and has those repaired that lack something.

One look lists all documents. What is most urgent is repaired first, a few ledgers at a time; after
a while everything is looked at anew, since what is most urgent may have changed. A ledger that
nothing can be done for now, for want of nodes, rests meanwhile, and holds up nobody.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from roost.errors import RoostError
from roost.master.audit import Need, Survey
from roost.master.means import Means
from roost.types import LedgerId

LOOK_S: Final = 5.0
"""How old a look at the nodes may be by which something is decided."""


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ledgers are looked at and repaired."""

    audit_s: float = 10.0
    """How long to wait after all were looked at and nothing was to be done."""

    mend_s: float = 60.0
    """For how long to repair before everything is looked at anew."""

    rest_s: float = 60.0
    """For how long to leave alone what nothing could be done for."""

    copies_max: int = 2
    """How many ledgers are repaired at a time."""


class Auditor:
    """Keeps ledgers whole."""

    def __init__(self, means: Means, settings: AuditSettings) -> None:
        self.survey = Survey(gone=lambda _: (), draining=())
        """The last look."""
        self.audits = 0
        self._roster: Final = means.roster
        self._documents: Final = means.documents
        self._repairer: Final = means.repairer
        self._clock: Final = means.clock
        self._log: Final = means.log
        self._metrics: Final = means.metrics
        self._settings: Final = settings
        self._resting: dict[LedgerId, float] = {}
        self._told: tuple[object, ...] = ()

    async def run_once(self) -> float:
        """Look once, and repair for a while; tells how long to wait before the next time."""
        await self.audit()
        return 0.0 if await self.mend() else self._settings.audit_s

    async def audit(self) -> None:
        """Look at all ledgers."""
        await self._roster.look(unless_within_s=LOOK_S)
        now = self._clock.now()
        self._resting = {ledger: at for ledger, at in self._resting.items() if now < at}
        survey = Survey(
            gone=self._roster.absences.gone,
            draining=self._roster.draining,
            resting=self._resting.keys(),
        )
        async for each in self._documents.all():
            survey.on_document(each.document)
        self.survey = survey
        self.audits += 1
        self._note(survey)

    def _note(self, survey: Survey) -> None:
        metrics = self._metrics
        metrics.audits += 1
        metrics.ledgers = survey.ledgers
        metrics.under_replicated = survey.under_replicated
        metrics.waiting = survey.waiting
        told = (survey.under_replicated, survey.waiting, {*survey.gone}, {**survey.draining})
        if told != self._told:
            self._told = told
            self._log.event(
                "audited",
                ledgers=survey.ledgers,
                under_replicated=survey.under_replicated,
                waiting=survey.waiting,
                gone=sorted(survey.gone),
                draining=dict(sorted(survey.draining.items())),
            )

    async def mend(self) -> int:
        """Repair what the last look found; tells how many ledgers are whole again."""
        needs = iter([*self.survey.needs])
        until = self._clock.now() + self._settings.mend_s
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(self._work(needs, until))
                for _ in range(self._settings.copies_max)
            ]
        return sum(worker.result() for worker in workers)

    async def _work(self, needs: Iterator[Need], until: float) -> int:
        mended = 0
        for need in needs:
            if self._clock.now() >= until:
                break
            if await self._mend(need.ledger):
                mended += 1
            else:
                self._resting[need.ledger] = self._clock.now() + self._settings.rest_s
        return mended

    async def _mend(self, ledger: LedgerId) -> bool:
        try:
            await self._roster.look(unless_within_s=LOOK_S)
            return await self._repairer.repair(
                ledger,
                gone=self._roster.absences.gone(self.survey.gone),
                leaving=self._roster.draining,
            )
        except RoostError as error:
            self._log.event("not_repaired", level="warning", ledger=ledger, error=str(error))
            return False
