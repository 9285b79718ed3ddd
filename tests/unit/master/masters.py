"""A small simulated cluster with masters: who is registered, the test says."""

from typing import Final

from roost.host.log import Memory
from roost.host.metrics import MasterMetrics
from roost.ledger.client import Ledgers
from roost.ledger.writer import LedgerWriter
from roost.master.auditing import AuditSettings
from roost.master.collecting import CollectSettings
from roost.master.scrubbing import ScrubSettings
from roost.master.service import Master, MasterSettings
from roost.metadata.layout import identity_key, live_key
from roost.metadata.ledgers import Quorum
from roost.metadata.node_documents import NODE_IDENTITY, NODE_REPORT, NodeIdentity, NodeReport
from roost.metadata.store import MetadataStore
from tests.unit.ledger.clusters import ONE, PATIENCE, PORT, Cluster

QUICK: Final = MasterSettings(
    grace_s=5.0,
    look_s=0.5,
    report_s=0.5,
    patience=PATIENCE,
    audit=AuditSettings(audit_s=1.0, rest_s=2.0),
    collect=CollectSettings(collect_s=3.0, tombstone_s=5.0),
    scrub=ScrubSettings(round_s=10.0, look_s=1.0, keep_s=0.0),
)


def master(
    cluster: Cluster, name: str = "master", settings: MasterSettings = QUICK
) -> tuple[Master, Memory, MasterMetrics]:
    """Make a master, in the process of the program."""
    log, metrics = Memory(), MasterMetrics()
    made = Master(
        store(cluster, name),
        settings,
        seams=cluster.seams,
        cluster="test",
        name=name,
        log=log,
        metrics=metrics,
    )
    return made, log, metrics


def store(cluster: Cluster, name: str = "test") -> MetadataStore:
    """Give a handle of the metadata."""
    return cluster.metadata.handle(name, cluster.seams.clock)


def report(node: str, free_bytes: int = 1 << 30) -> NodeReport:
    """Make a report of a node that is well."""
    return NodeReport(
        node=node,
        address=f"{node}:{PORT}",
        zone="",
        roost="1",
        health="",
        readonly="",
        free_bytes=free_bytes,
        ledgers=0,
        added_bytes_per_s=0.0,
        read_bytes_per_s=0.0,
        reported_at=0.0,
    )


async def arrive(cluster: Cluster, *names: str) -> None:
    """Register nodes."""
    handle = store(cluster)
    for name in names or [*cluster.nodes]:
        identity = NodeIdentity(name, "0" * 32, f"{name}:{PORT}", 0.0)
        await handle.put(identity_key(name), NODE_IDENTITY.encode(identity))
        await handle.put(live_key(name), NODE_REPORT.encode(report(name)))


async def leave(cluster: Cluster, *names: str) -> None:
    """Let nodes' leases run out."""
    for name in names:
        await store(cluster).delete(live_key(name))


async def written(
    ledgers: Ledgers,
    count: int,
    quorum: Quorum = Quorum(),  # noqa: B008 (it is frozen)
) -> LedgerWriter:
    """Make a ledger with so many entries."""
    writer = await ledgers.create(epoch=ONE, quorum=quorum)
    for number in range(count):
        await writer.write(b"entry %d" % number)
    return writer
