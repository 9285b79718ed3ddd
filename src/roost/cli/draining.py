"""`roost node decommission` and `roost node forget`: take a node out of its cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.machine import clock, holder, log, progress, seams
from roost.cli.pipes import Pipes
from roost.cli.words import counted
from roost.config.values import A_CLUSTER_OR_OFF
from roost.master.emptying import Left, forget_empty_node, left_on
from roost.metadata.address import parse_url
from roost.metadata.drains import mark_draining, unmark_draining
from roost.metadata.opening import open_store
from roost.metadata.store import MetadataStore
from roost.types import NodeId

T = TypeVar("T")

LOOK_S: Final = 1.0
CLUSTER: Final = click.option(
    "--cluster",
    "url",
    metavar="URL",
    required=True,
    help=f"Where the metadata is: {A_CLUSTER_OR_OFF.allowed.removesuffix('; or off')}.",
)


@click.command(
    epilog=epilog("$ roost node decommission alice --cluster meta://127.0.0.1:4700 --wait")
)
@click.argument("node")
@CLUSTER
@click.option("--wait", is_flag=True, help="Return once nothing names the node any more.")
@click.option("--undo", is_flag=True, help="Use the node as any other again.")
@ends_well
def decommission(*, node: str, url: str, wait: bool, undo: bool) -> None:
    """Empty a node, so that it can be stopped for good.

    No new ensemble takes it from now on, and the master copies what is closed to other nodes. A
    ledger that is open moves when its writer closes it, or has to replace a node. The node serves
    what it has until it is stopped; it may be stopped once nothing names it any more.
    """
    with misused():
        parse_url(url)
        if wait and undo:
            raise click.UsageError("--undo waits for nothing.")
    with Pipes() as pipes, pipes.waiting():
        if undo:
            marked = _asked(url, lambda store: unmark_draining(store, node))
            told = "is used as any other again" if marked else "was not being emptied"
            pipes.write(f"{node} {told}\n".encode())
            return
        wall = clock().wall()
        _asked(url, lambda store: mark_draining(store, node, wall=wall))
        left = _asked(url, lambda store: _emptied(store, NodeId(node), wait=wait))
        pipes.write(f"{node} {_told(left.ledgers, left.open)}\n".encode())


@click.command(epilog=epilog("$ roost node forget alice --cluster meta://127.0.0.1:4700"))
@click.argument("node")
@CLUSTER
@ends_well
def forget(*, node: str, url: str) -> None:
    """Strike a node that was emptied and stopped off the list of the cluster's nodes.

    It is refused while the node is registered, or named for anything. A folder that registers under
    that name later is a new node, whatever it holds.
    """
    with misused():
        parse_url(url)
    with Pipes() as pipes, pipes.waiting():
        _asked(url, lambda store: forget_empty_node(store, NodeId(node)))
        pipes.write(f"{node} is forgotten\n".encode())


def _told(ledgers: int, still_open: int) -> str:
    if not ledgers:
        return "is empty: nothing names it any more"
    waiting = f", {still_open} of them open" if still_open else ""
    return f"is being emptied: {counted(ledgers, 'ledger')} left{waiting}"


async def _emptied(store: MetadataStore, node: NodeId, *, wait: bool) -> Left:
    """Tell what is left, or wait until nothing is."""
    left = await left_on(store, node)
    most = left.ledgers
    with progress("emptying", of="ledgers") as line:
        while wait and left.ledgers:
            await asyncio.sleep(LOOK_S)
            left = await left_on(store, node)
            most = max(most, left.ledgers)
            line.at(most - left.ledgers, most)
    return left


def _asked(url: str, ask: Callable[[MetadataStore], Awaitable[T]]) -> T:
    async def main() -> T:
        store = await open_store(url, seams=seams(), log=log("auto", "error"), holder=holder())
        try:
            return await ask(store)
        finally:
            await store.close()

    return asyncio.run(main())
