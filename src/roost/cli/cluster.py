"""`roost cluster`: what the metadata says of a whole cluster."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.machine import holder, log, seams
from roost.cli.pipes import Pipes
from roost.cli.words import counted, size
from roost.config.values import A_CLUSTER_OR_OFF
from roost.errors import NotFound
from roost.metadata.address import parse_url
from roost.metadata.drains import draining
from roost.metadata.masters import MasterReport, master_of
from roost.metadata.node_documents import ClusterDocument, NodeIdentity, NodeReport
from roost.metadata.nodes import all_nodes, cluster_of
from roost.metadata.opening import open_store

TITLES: Final = ("NODE", "ADDRESS", "ZONE", "STATE", "FREE", "LEDGERS")

Nodes = Sequence[tuple[NodeIdentity, NodeReport | None]]


class Found(msgspec.Struct, frozen=True):
    """What the metadata says."""

    document: ClusterDocument
    nodes: Nodes
    draining: set[str]
    master: MasterReport | None


@click.group(epilog=epilog("$ roost cluster status --cluster meta://127.0.0.1:4700"))
def cluster() -> None:
    """Look at a cluster through its metadata."""


@cluster.command(epilog=epilog("$ roost cluster status --cluster etcd://10.0.0.5:2379/prod --json"))
@click.option(
    "--cluster",
    "url",
    metavar="URL",
    required=True,
    help=f"Where the metadata is: {A_CLUSTER_OR_OFF.allowed.removesuffix('; or off')}.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a node.")
@ends_well
def status(*, url: str, as_json: bool) -> None:
    """List the nodes that ever registered, and how each of them is.

    A node is up while it is registered, read-only while it takes no adds, ill if it says that
    something is wrong with it, and down if it is not registered: then what is shown is where it was
    first. The elected master tells how many ledgers lack a copy.
    """
    with misused():
        parse_url(url)
    with Pipes() as pipes, pipes.waiting():
        found = asyncio.run(_asked(url))
        write = _json if as_json else _table
        pipes.write("".join(f"{line}\n" for line in write(found)).encode())


async def _asked(url: str) -> Found:
    store = await open_store(url, seams=seams(), log=log("auto", "error"), holder=holder())
    try:
        document = await cluster_of(store)
        if document is None:
            raise NotFound(f"no node has ever registered at {url}: look at the address")
        nodes, marked = await all_nodes(store), await draining(store)
        return Found(document, nodes, marked, await master_of(store))
    finally:
        await store.close()


def _json(found: Found) -> Iterable[str]:
    cluster = {"cluster": found.document.cluster}
    for identity, report in found.nodes:
        fields = cluster | {"state": _state(report), "draining": identity.node in found.draining}
        fields |= msgspec.to_builtins(identity)
        fields |= {} if report is None else msgspec.to_builtins(report)
        yield msgspec.json.encode(fields).decode()
    if found.master is not None:
        fields = cluster | {"master": msgspec.to_builtins(found.master)}
        yield msgspec.json.encode(fields).decode()


def _table(found: Found) -> Iterable[str]:
    nodes, master = found.nodes, found.master
    rows = [TITLES, *(_row(identity, report, found) for identity, report in nodes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    up = sum(report is not None for _, report in nodes)
    yield f"cluster {found.document.cluster}: {up} of {len(nodes)} nodes are up"
    if master is not None:
        yield f"master {master.name}: {_whole(master)}"
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _whole(master: MasterReport) -> str:
    if not master.audits:
        return "has not looked at the ledgers yet"
    told = f"{master.under_replicated} of {counted(master.ledgers, 'ledger')} under-replicated"
    if master.waiting:
        told += f", {master.waiting} open with a node that is gone"
    if master.copies_running:
        told += f", {master.copies_running} copies running"
    return f"{told}, {size(master.copied_bytes)} copied"


def _row(identity: NodeIdentity, report: NodeReport | None, found: Found) -> tuple[str, ...]:
    state = _state(report)
    if identity.node in found.draining:
        left = None if found.master is None else found.master.draining.get(identity.node)
        state += " draining" if left is None else f" draining, {counted(left, 'ledger')} left"
    if report is None:
        return (identity.node, identity.address, "", state, "", "")
    free, ledgers = size(report.free_bytes), str(report.ledgers)
    return (identity.node, report.address, report.zone, state, free, ledgers)


def _state(report: NodeReport | None) -> str:
    if report is None:
        return "down"
    if report.readonly:
        return "read-only"
    return "ill" if report.health else "up"
