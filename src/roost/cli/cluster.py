"""`roost cluster`: what the metadata says of a whole cluster."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.machine import holder, log, seams
from roost.cli.pipes import Pipes
from roost.cli.words import size
from roost.config.values import A_CLUSTER_OR_OFF
from roost.errors import NotFound
from roost.metadata.address import parse_url
from roost.metadata.node_documents import ClusterDocument, NodeIdentity, NodeReport
from roost.metadata.nodes import all_nodes, cluster_of
from roost.metadata.opening import open_store

TITLES: Final = ("NODE", "ADDRESS", "ZONE", "STATE", "FREE", "LEDGERS")

Nodes = Sequence[tuple[NodeIdentity, NodeReport | None]]


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
    first.
    """
    with misused():
        parse_url(url)
    with Pipes() as pipes, pipes.waiting():
        document, nodes = asyncio.run(_asked(url))
        write = _json if as_json else _table
        pipes.write("".join(f"{line}\n" for line in write(document, nodes)).encode())


async def _asked(url: str) -> tuple[ClusterDocument, Nodes]:
    store = await open_store(url, seams=seams(), log=log("auto", "error"), holder=holder())
    try:
        document = await cluster_of(store)
        if document is None:
            raise NotFound(f"no node has ever registered at {url}: look at the address")
        return document, await all_nodes(store)
    finally:
        await store.close()


def _json(document: ClusterDocument, nodes: Nodes) -> Iterable[str]:
    for identity, report in nodes:
        fields = {"cluster": document.cluster, "state": _state(report)}
        fields |= msgspec.to_builtins(identity)
        fields |= {} if report is None else msgspec.to_builtins(report)
        yield msgspec.json.encode(fields).decode()


def _table(document: ClusterDocument, nodes: Nodes) -> Iterable[str]:
    rows = [TITLES, *(_row(identity, report) for identity, report in nodes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    up = sum(report is not None for _, report in nodes)
    yield f"cluster {document.cluster}: {up} of {len(nodes)} nodes are up"
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _row(identity: NodeIdentity, report: NodeReport | None) -> tuple[str, ...]:
    if report is None:
        return (identity.node, identity.address, "", _state(report), "", "")
    free, ledgers = size(report.free_bytes), str(report.ledgers)
    return (identity.node, report.address, report.zone, _state(report), free, ledgers)


def _state(report: NodeReport | None) -> str:
    if report is None:
        return "down"
    if report.readonly:
        return "read-only"
    return "ill" if report.health else "up"
