"""A node's place in its cluster: it says in the metadata who it is and how it is, while it runs.

The node serves whether it is registered or not, since who knows its address needs no metadata. What
ends it is a refusal: its name belongs to another folder, or the metadata to another cluster.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from roost.errors import Retryable
from roost.host.clock import Clock
from roost.host.log import Log
from roost.host.net import Address
from roost.host.seams import Seams
from roost.metadata.node_documents import NodeIdentity, NodeReport
from roost.metadata.nodes import Registration
from roost.metadata.opening import open_store
from roost.metadata.store import MetadataStore
from roost.node.identity import Identity
from roost.wire.messages import NodeStat

RETRY_S: Final = 1.0


class MembershipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node registers, and as what."""

    url: str
    address: Address
    """Where others reach it."""

    zone: str = ""


class Reporter:
    """Makes a node's reports; its rates are averages between two of them."""

    def __init__(
        self, settings: MembershipSettings, stat: Callable[[], NodeStat], clock: Clock
    ) -> None:
        self._settings: Final = settings
        self._stat: Final = stat
        self._clock: Final = clock
        self._since = clock.now()
        self._before = stat().counters

    def report(self) -> NodeReport:
        """Say how the node is now."""
        stat, now = self._stat(), self._clock.now()
        span_s = max(now - self._since, 1e-3)
        added, read = (
            (stat.counters[name] - self._before[name]) / span_s
            for name in ("node_added_bytes", "node_read_bytes")
        )
        self._since, self._before = now, stat.counters
        return NodeReport(
            node=stat.node,
            address=str(self._settings.address),
            zone=self._settings.zone,
            roost=stat.version,
            health=stat.health,
            readonly=stat.readonly,
            free_bytes=stat.free_bytes,
            ledgers=stat.ledgers,
            added_bytes_per_s=round(added, 1),
            read_bytes_per_s=round(read, 1),
            reported_at=self._clock.wall(),
        )


async def be_member(
    settings: MembershipSettings,
    identity: Identity,
    stat: Callable[[], NodeStat],
    *,
    seams: Seams,
    log: Log,
    holder: str,
    stop: asyncio.Event,
) -> None:
    """Keep a node registered until it stops; raises what it is refused for."""
    store = await _opened(settings.url, seams=seams, log=log, holder=holder, stop=stop)
    if store is None:
        return
    try:
        registration = Registration(
            store,
            cluster=identity.cluster,
            identity=NodeIdentity(
                node=identity.node,
                uuid=identity.uuid.hex(),
                address=str(settings.address),
                created_at=seams.clock.wall(),
            ),
            report=Reporter(settings, stat, seams.clock).report,
            log=log,
        )
        await registration.run(stop)
    finally:
        await store.close()


async def _opened(
    url: str, *, seams: Seams, log: Log, holder: str, stop: asyncio.Event
) -> MetadataStore | None:
    """Open the metadata as soon as it is there; None if the node stopped before."""
    while not stop.is_set():
        try:
            return await open_store(url, seams=seams, log=log, holder=holder)
        except Retryable as error:
            log.event("not_registered", level="warning", error=str(error))
        try:
            async with asyncio.timeout(RETRY_S):
                await stop.wait()
        except TimeoutError:
            continue
    return None
