"""The nodes of a cluster: how one registers and stays registered, and how others follow them.

A node has two keys: who it is, permanent, and how it is, bound to a lease of the node's process.
The promise: a node is only ever registered by the folder that registered first under its name.
Another folder, with another UUID, would answer "no such entry" for what the first one holds.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Self

from roost.errors import Conflict, NotFound, Retryable, RoostError, Unknown
from roost.host.log import Log
from roost.metadata.layout import CLUSTER, IDENTITIES, LIVE_NODES, identity_key, live_key
from roost.metadata.node_documents import (
    CLUSTER_DOCUMENT,
    NODE_IDENTITY,
    NODE_REPORT,
    ClusterDocument,
    NodeIdentity,
    NodeReport,
)
from roost.metadata.operations import Absent, ChangedAt, Get, Item, Put
from roost.metadata.store import Lease, MetadataStore
from roost.metadata.view import View, list_all

TTL_S: Final = 10
REPORT_S: Final = 5.0
"""How often a node says how it is."""

RETRY_S: Final = 1.0
TRIES_MAX: Final = 10
"""How often a registration is begun anew because somebody else changed what it had read."""

Report = Callable[[], NodeReport]
"""Says how a node is now."""


class Registration:
    """Keeps one node registered."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        cluster: str,
        identity: NodeIdentity,
        report: Report,
        log: Log,
        ttl_s: int = TTL_S,
        report_s: float = REPORT_S,
    ) -> None:
        self.registered: Final = asyncio.Event()
        """Set while the node is registered, as far as is known here."""

        self._store: Final = store
        self._cluster: Final = cluster
        self._identity: Final = identity
        self._report: Final = report
        self._log: Final = log
        self._ttl_s: Final = ttl_s
        self._report_s: Final = report_s

    async def run(self, stop: asyncio.Event) -> None:
        """Register, report, and register again whenever the lease is lost; leave once told to.

        Raises `Conflict` if the name belongs to another folder, or the metadata to another cluster.
        """
        while not stop.is_set():
            try:
                lease = await self._store.grant(self._ttl_s)
                try:
                    await self._stay(lease, stop)
                finally:
                    self.registered.clear()
                    if not lease.lost:
                        await lease.revoke()
            except (Retryable, Unknown, NotFound) as error:
                self._log.event("not_registered", level="warning", error=str(error))
                await _any_of(RETRY_S, stop)

    async def _stay(self, lease: Lease, stop: asyncio.Event) -> None:
        await register(
            self._store, lease, cluster=self._cluster, identity=self._identity, report=self._report
        )
        self._log.event("registered", node=self._identity.node, lease=lease.id, ttl_s=lease.ttl_s)
        self.registered.set()
        lost = asyncio.ensure_future(lease.wait_lost())
        try:
            while not (stop.is_set() or lease.lost):
                await _any_of(self._report_s, stop, lost)
                if not (stop.is_set() or lease.lost):
                    await _tell(self._store, lease, self._report())
        finally:
            lost.cancel()
        if lease.lost:
            self._log.event("lease_lost", level="warning", lease=lease.id)


async def register(
    store: MetadataStore, lease: Lease, *, cluster: str, identity: NodeIdentity, report: Report
) -> None:
    """Register a node with a lease. The first one of all makes the cluster's document."""
    for _ in range(TRIES_MAX):
        found = await store.txn((), [Get(CLUSTER), Get(identity_key(identity.node))])
        cluster_item, identity_item = found.got
        told = report()
        puts = [Put(live_key(identity.node), NODE_REPORT.encode(told), lease.id)]
        if cluster_item is None:
            document = ClusterDocument(cluster, told.reported_at)
            puts.append(Put(CLUSTER, CLUSTER_DOCUMENT.encode(document)))
        else:
            _check_cluster(cluster_item, cluster)
        if identity_item is None:
            puts.append(Put(identity_key(identity.node), NODE_IDENTITY.encode(identity)))
        else:
            _check_identity(identity_item, identity)
        compares = [
            _as_found(CLUSTER, cluster_item),
            _as_found(identity_key(identity.node), identity_item),
        ]
        if (await store.txn(compares, puts)).succeeded:
            return
    raise Conflict(f"others registered node {identity.node!r} all the time: are there two of it?")


class LiveNodes:
    """The nodes that are registered now, followed; it may be behind by what is under way."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._reports: dict[str, NodeReport] = {}
        self._unreadable: dict[str, RoostError] = {}
        for item in view.items.values():
            self._note(item.key, item)

    @classmethod
    async def open(cls, store: MetadataStore) -> Self:
        """List the nodes, and follow them from there."""
        return cls(await View.open(store, LIVE_NODES))

    @property
    def reports(self) -> Mapping[str, NodeReport]:
        """Show how each node is, by its name."""
        return self._reports

    @property
    def unreadable(self) -> Mapping[str, RoostError]:
        """Name the nodes whose report cannot be read here, as that of a newer Roost."""
        return self._unreadable

    async def changes(self) -> set[str]:
        """Wait until something has changed, and name the nodes that it was about."""
        names: set[str] = set()
        for change in await self._view.changes():
            self._note(change.key, change.now)
            names.add(change.key.removeprefix(LIVE_NODES))
        return names

    async def close(self) -> None:
        """Follow them no more."""
        await self._view.close()

    def _note(self, key: str, item: Item | None) -> None:
        name = key.removeprefix(LIVE_NODES)
        self._reports.pop(name, None)
        self._unreadable.pop(name, None)
        if item is not None:
            try:
                self._reports[name] = NODE_REPORT.decode(key, item.value)
            except RoostError as error:
                self._unreadable[name] = error


async def all_nodes(store: MetadataStore) -> list[tuple[NodeIdentity, NodeReport | None]]:
    """List every node that ever registered, and how it is if it is registered now."""
    identities, _ = await list_all(store, IDENTITIES)
    live, _ = await list_all(store, LIVE_NODES)
    reports = {item.key: NODE_REPORT.decode(item.key, item.value) for item in live}
    found = [NODE_IDENTITY.decode(item.key, item.value) for item in identities]
    return [(identity, reports.get(live_key(identity.node))) for identity in found]


async def cluster_of(store: MetadataStore) -> ClusterDocument | None:
    """Tell whose metadata this is; nobody's yet if no node has registered."""
    item = await store.get(CLUSTER)
    return CLUSTER_DOCUMENT.decode(CLUSTER, item.value) if item else None


async def _tell(store: MetadataStore, lease: Lease, report: NodeReport) -> None:
    await store.put(live_key(report.node), NODE_REPORT.encode(report), lease=lease.id)


def _check_cluster(item: Item, cluster: str) -> None:
    document = CLUSTER_DOCUMENT.decode(item.key, item.value)
    if document.cluster != cluster:
        raise Conflict(
            f"the metadata is that of cluster {document.cluster!r}, and this node's folder was "
            f"formatted for {cluster!r}: look at --cluster and --data"
        )


def _check_identity(item: Item, identity: NodeIdentity) -> None:
    known = NODE_IDENTITY.decode(item.key, item.value)
    if known.uuid != identity.uuid:
        raise Conflict(
            f"node {identity.node!r} is known with uuid {known.uuid}, first seen at "
            f"{known.address}, and this folder has uuid {identity.uuid}: it does not hold what "
            "that node holds. Start the folder that does, or format this one under another name."
        )


def _as_found(key: str, item: Item | None) -> ChangedAt | Absent:
    return Absent(key) if item is None else ChangedAt(key, item.changed)


async def _any_of(timeout_s: float, *events: "asyncio.Event | asyncio.Future[None]") -> None:
    """Wait until one of some things has happened, or for so long."""
    waiting = [
        asyncio.ensure_future(event.wait()) if isinstance(event, asyncio.Event) else event
        for event in events
    ]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event, waited in zip(events, waiting, strict=True):
            if waited is not event:
                waited.cancel()
