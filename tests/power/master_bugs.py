"""Bugs to plant in masters; see `tests.power.bugs`. They are caught in the scenario `ledger`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from roost.ledger.repair import plan, with_copy
from roost.ledger.repairing import Repairer
from roost.master import collecting
from roost.master.audit import Need, Survey, Why
from roost.master.collecting import Collector
from roost.master.documents import Documents
from roost.master.garbage import Verdict, judge
from roost.metadata.ledgers import LedgerDocument, LedgerPhase
from roost.types import EntryId, LedgerId
from tests.power.bugs import Bug

Patch = pytest.MonkeyPatch


def open_ledgers_collected(patch: Patch) -> None:
    """What a node has of an open ledger that does not name it now counts as left behind."""

    def judging(document: LedgerDocument | None, **options: Any) -> Verdict:
        if document is not None and document.phase is LedgerPhase.OPEN:
            named = document.fragments[-1].nodes
            return Verdict.KEEP if options["node"] in named else Verdict.DELETE
        return judge(document, **options)

    patch.setattr(collecting, "judge", judging)


def collected_by_a_stale_list(patch: Patch) -> None:
    """Ledgers' documents are remembered for a while, and so is that there is none."""
    real = Documents.some

    async def some(self: Any, ledgers: Sequence[LedgerId]) -> Any:
        found = self.__dict__.setdefault("remembered", {})
        wanted = [LedgerId(max(ledgers) + 1), *ledgers]
        if missing := [each for each in wanted if each not in found]:
            found.update(await real(self, missing))
        return {each: found[each] for each in ledgers}

    patch.setattr(Documents, "some", some)


def forgotten_without_a_bar(patch: Patch) -> None:
    """A copy that was left behind is deleted, and nobody is told never to name its node."""

    async def bar(_self: Any, _now: Any, _node: Any) -> bool:
        return True

    patch.setattr(Collector, "_bar", bar)


def _as_closed(document: LedgerDocument) -> LedgerDocument:
    first = document.fragments[-1].first
    return msgspec.structs.replace(
        document, phase=LedgerPhase.CLOSED, last=EntryId(first), laggards=()
    )


def open_ledgers_repaired(patch: Patch) -> None:
    """The last fragment of an open ledger names others for nodes that are gone."""
    real_repair, real_look = Repairer._repair, Survey.on_document

    async def repairing(self: Any, ledger: LedgerId, gone: Any, leaving: Any) -> bool:
        now = await self._records.read(ledger)
        if now.document.phase is not LedgerPhase.OPEN:
            return await real_repair(self, ledger, gone, leaving)
        candidates = [each.candidate for each in self._nodes.directory.nodes()]
        closed = _as_closed(now.document)
        for job in plan(closed, gone=gone, candidates=candidates, rng=self._rng):
            made = with_copy(_as_closed(now.document), job)
            if made is not None:
                document = msgspec.structs.replace(now.document, fragments=made.fragments)
                now = await self._records.change(now, document)
        return False

    def on_document(self: Any, document: LedgerDocument) -> None:
        real_look(self, document)
        if document.phase is LedgerPhase.OPEN:
            self.needs.insert(0, Need(0, Why.LOST, document.ledger))
            self.gone.update(self._gone(document.nodes))

    patch.setattr(Repairer, "_repair", repairing)
    patch.setattr(Survey, "on_document", on_document)


BUGS: Final = [
    Bug("open ledgers collected", open_ledgers_collected, 400),
    Bug("collected by a stale list", collected_by_a_stale_list, 400),
    Bug("forgotten without a bar", forgotten_without_a_bar, 2000),
    Bug("open ledgers repaired", open_ledgers_repaired, 2000),
]
