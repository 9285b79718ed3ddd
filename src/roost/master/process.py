"""A master as a program: it waits for the metadata and for its election, works, and stands again.

Any number of them may run; one is elected, and the others wait. Whoever loses the election stops at
once and stands again. A master that is told to end gives the election up, so that the next one need
not wait for a lease to run out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from roost.errors import Retryable, RoostError, Unavailable, Unknown
from roost.host.log import Log
from roost.host.metrics import MasterMetrics, collect, render_prometheus
from roost.host.net import Address
from roost.host.seams import Seams
from roost.master.service import Master, MasterSettings
from roost.metadata.election import campaign
from roost.metadata.layout import MASTER
from roost.metadata.masters import MASTER_REPORT, MasterReport
from roost.metadata.nodes import cluster_of
from roost.metadata.store import MetadataStore
from roost.node.http import HttpServer, Told

RETRY_S: Final = 1.0


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a master runs."""

    http: Address | None = None
    """Where it tells of itself; None for nowhere."""

    name: str = "master"
    ttl_s: int = 10
    """How long the election outlives its winner."""

    master: MasterSettings = MasterSettings()


class MasterProcess:
    """A master that runs, or waits to be elected."""

    def __init__(
        self,
        settings: ProcessSettings,
        opening: Callable[[], Awaitable[MetadataStore]],
        *,
        seams: Seams,
        log: Log,
    ) -> None:
        self.http_address: Address | None = None
        self._settings: Final = settings
        self._opening: Final = opening
        self._seams: Final = seams
        self._log: Final = log
        self._metrics: Final = MasterMetrics()
        told = Told(metrics=self.metrics, ills=self.ills, facts=self.facts, title="Roost master")
        self._http: Final = HttpServer(seams.net, told, log=log)
        self._standing = "the metadata is not reached yet"
        self._cluster = ""
        self._master: Master | None = None

    async def run(self, stop: asyncio.Event, *, serving: Callable[["MasterProcess"], None]) -> None:
        """Run until told to stop."""
        settings = self._settings
        if settings.http is not None:
            try:
                self.http_address = await self._http.start(settings.http)
            except OSError as error:
                raise Unavailable(
                    f"cannot listen on {settings.http}: {error.strerror or error}"
                ) from error
        try:
            serving(self)
            await _until(stop, self._live())
        finally:
            self._http.stop()

    async def _live(self) -> None:
        store = await self._opened()
        try:
            self._cluster = await self._found_cluster(store)
            while True:
                try:
                    await self._stand(store)
                except (Retryable, Unknown) as error:
                    self._standing = str(error)
                    self._log.event("not_elected", level="warning", error=str(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            await store.close()

    async def _opened(self) -> MetadataStore:
        while True:
            try:
                return await self._opening()
            except Retryable as error:
                self._log.event("no_metadata", level="warning", error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _found_cluster(self, store: MetadataStore) -> str:
        """Wait until a node has said which cluster this is."""
        while True:
            try:
                document = await cluster_of(store)
            except Retryable as error:
                self._log.event("no_metadata", level="warning", error=str(error))
            else:
                if document is not None:
                    return document.cluster
                self._standing = "no node has registered yet"
            await asyncio.sleep(RETRY_S)

    async def _stand(self, store: MetadataStore) -> None:
        """Stand for election, and lead until that is over."""
        settings, clock = self._settings, self._seams.clock
        lease = await store.grant(settings.ttl_s)
        self._standing = ""
        try:
            report = MasterReport(
                name=settings.name,
                address=str(self.http_address or ""),
                reported_at=clock.wall(),
            )
            leadership = await campaign(store, MASTER, MASTER_REPORT.encode(report), lease)
            self._log.event("elected", cluster=self._cluster, epoch=leadership.epoch)
            self._metrics.elected = 1
            self._master = Master(
                store,
                settings.master,
                seams=self._seams,
                cluster=self._cluster,
                name=settings.name,
                log=self._log,
                metrics=self._metrics,
            )
            await self._master.lead(leadership, lease, report)
            self._log.event("deposed", level="warning")
        finally:
            self._metrics.elected = 0
            self._master = None
            if not lease.lost:
                await _quietly(lease.revoke())

    # What it tells of itself

    def metrics(self) -> str:
        """Write all figures as they are now."""
        if self._master is not None:
            self._master.refresh()
        return render_prometheus(collect(self._metrics, master=self._settings.name))

    def ills(self) -> Sequence[str]:
        """Say why it is not well."""
        return [self._standing] if self._standing else []

    def facts(self) -> Mapping[str, object]:
        """Say what it is, and what the cluster lacks."""
        metrics = self._metrics
        facts: dict[str, object] = {
            "master": self._settings.name,
            "cluster": self._cluster,
            "elected": bool(metrics.elected),
        }
        if self._master is not None:
            facts |= {
                "ledgers": metrics.ledgers,
                "under_replicated": metrics.under_replicated,
                "copies_running": metrics.copies_running,
            }
        return facts


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Work until that ends, or is told to; what it raises is raised here."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait([working, stopping])


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Do what would be nice to have done."""
    try:
        await work
    except RoostError:
        return
