"""Connections to storage nodes: one to each, made when it is wanted, and made again when lost.

Where a node is, and what it has room for, says a `Directory`. A node that could not be reached is
left alone for a while, longer each time, so that who asks for it in vain is told so at once. The
promise: nothing here waits without a deadline, and what was under way on a connection that was lost
is told to who sent it, by the connection itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, Protocol, Self, TypeVar

import msgspec

from roost.errors import Closed, NotFound, RoostError, Unavailable
from roost.host.clock import Clock
from roost.host.net import Address, Net
from roost.host.random import Rng
from roost.ledger.placement import BackOff, Candidate, choose
from roost.metadata.layout import DRAINS, drain_key
from roost.metadata.node_documents import NodeReport
from roost.metadata.nodes import LiveNodes
from roost.metadata.store import MetadataStore
from roost.metadata.view import View
from roost.node.client import NodeClient
from roost.rpc.client import Connection
from roost.types import NodeId
from roost.wire.messages import PROTOCOL_VERSION, Hello

T = TypeVar("T")


class Patience(msgspec.Struct, frozen=True):
    """How long nodes may take."""

    connect_s: float = 2.0
    call_s: float = 5.0
    """For one answer, before they count as silent."""

    tell_s: float = 1.0
    """For taking note of something that they need not know."""

    copy_s: float = 600.0
    """For a copy from other nodes."""


PATIENT: Final = Patience()


class KnownNode(msgspec.Struct, frozen=True):
    """A registered node."""

    candidate: Candidate
    address: Address


class Directory(Protocol):
    """Which nodes there are, as far as is known here; what it says may be old."""

    def nodes(self) -> Sequence[KnownNode]:
        """List the nodes that are registered now."""

    def address(self, node: NodeId) -> Address | None:
        """Tell where a node is, or was last; None if nobody ever said."""


class FixedNodes:
    """A directory of nodes that were named once, and never change."""

    def __init__(self, nodes: Iterable[KnownNode]) -> None:
        self._nodes: Final = {each.candidate.node: each for each in nodes}

    def nodes(self) -> Sequence[KnownNode]:
        """List them."""
        return [*self._nodes.values()]

    def address(self, node: NodeId) -> Address | None:
        """Tell where one is."""
        known = self._nodes.get(node)
        return None if known is None else known.address


def known_node(report: NodeReport, *, draining: bool) -> KnownNode:
    """Make of a node's report what a directory says of it; who is to be emptied takes no more."""
    candidate = Candidate(
        NodeId(report.node),
        report.free_bytes,
        zone=report.zone,
        writable=not (report.readonly or report.health or draining),
    )
    return KnownNode(candidate, Address.parse(report.address))


class RegisteredNodes:
    """The directory of the nodes that are registered in the metadata, followed."""

    def __init__(self, live: LiveNodes, drains: View) -> None:
        self._live: Final = live
        self._drains: Final = drains
        self._addresses: Final[dict[NodeId, Address]] = {}
        self._nodes: list[KnownNode] = []
        self._take()

    @classmethod
    async def open(cls, store: MetadataStore) -> Self:
        """List the nodes; `run` follows them from there."""
        return cls(await LiveNodes.open(store), await View.open(store, DRAINS))

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._live))
            group.create_task(self._follow(self._drains))

    async def _follow(self, source: LiveNodes | View) -> None:
        try:
            while True:
                await source.changes()
                self._take()
        finally:
            await source.close()

    def nodes(self) -> Sequence[KnownNode]:
        """List the nodes that are registered now."""
        return self._nodes

    def address(self, node: NodeId) -> Address | None:
        """Tell where one is, or was when it was registered last."""
        return self._addresses.get(node)

    def _take(self) -> None:
        drains = self._drains.items
        self._nodes = [
            known_node(report, draining=drain_key(name) in drains)
            for name, report in self._live.reports.items()
        ]
        for each in self._nodes:
            self._addresses[each.candidate.node] = each.address


class Nodes:
    """The nodes that one process talks to."""

    def __init__(
        self,
        directory: Directory,
        *,
        net: Net,
        clock: Clock,
        rng: Rng,
        cluster: str,
        name: str,
        patience: Patience = PATIENT,
    ) -> None:
        self.directory: Final = directory
        self._net: Final = net
        self._clock: Final = clock
        self._rng: Final = rng
        self._hello: Final = Hello(
            version=PROTOCOL_VERSION, cluster=cluster, role="client", name=name
        )
        self.patience: Final = patience
        self._back_off: Final = BackOff()
        self._clients: Final[dict[NodeId, NodeClient]] = {}
        self._connecting: Final[dict[NodeId, asyncio.Lock]] = {}
        self._closed = False

    def connected(self, node: NodeId) -> NodeClient | None:
        """Give the connection to a node, if there is one."""
        client = self._clients.get(node)
        if client is None or client.connection.lost.is_set():
            return None
        return client

    async def connect(self, node: NodeId) -> NodeClient:
        """Give a connection to a node; `Unavailable` if it cannot be reached now."""
        async with self._connecting.setdefault(node, asyncio.Lock()):
            if self._closed:
                raise Closed("the connections to the nodes were closed")
            if (client := self.connected(node)) is not None:
                return client
            if (rests_s := self._back_off.until(node) - self._clock.now()) > 0:
                raise Unavailable(
                    f"node {node} could not be reached, and is left alone for {rests_s:.1f} s"
                )
            try:
                client = self._clients[node] = await self._open(node)
            except RoostError:
                self._back_off.failed(node, self._clock.now())
                raise
            self._back_off.worked(node)
            return client

    async def _open(self, node: NodeId) -> NodeClient:
        address = self.directory.address(node)
        if address is None:
            raise NotFound(f"node {node} is not registered, and nobody knows where it was")
        connection = await Connection.open(
            self._net, address, self._hello, timeout_s=self.patience.connect_s
        )
        if connection.welcome.node != node:
            connection.abort()
            raise Unavailable(
                f"{address} is said to be node {node}, and is {connection.welcome.node}"
            )
        return NodeClient(connection)

    async def ask(
        self, node: NodeId, asking: Callable[[NodeClient], Awaitable[T]], *, timeout_s: float
    ) -> T:
        """Connect to a node and ask it something; `Unavailable` if no answer comes in time.

        What was asked may be done all the same, then or later.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await asking(await self.connect(node))
        except TimeoutError:
            raise Unavailable(f"node {node} did not answer within {timeout_s:g} s") from None

    def drop(self, client: NodeClient) -> None:
        """Give up a connection whose other end does not answer."""
        client.connection.abort()

    async def find(
        self, count: int, *, excluded: Collection[NodeId], zones_taken: Collection[str] = ()
    ) -> list[NodeId]:
        """Choose nodes, and connect to them; fewer if there are not enough that can be reached."""
        found: list[NodeId] = []
        tried = {*excluded}
        while len(found) < count:
            drawn = choose(
                [each.candidate for each in self.directory.nodes()],
                count - len(found),
                rng=self._rng,
                excluded={*tried, *self._back_off.resting(self._clock.now())},
                zones_taken={*zones_taken, *self._zones(found)},
            )
            if not drawn:
                break
            tried.update(drawn)
            results = await asyncio.gather(*map(self.connect, drawn), return_exceptions=True)
            for node, result in zip(drawn, results, strict=True):
                if isinstance(result, NodeClient):
                    found.append(node)
                elif not isinstance(result, RoostError):
                    raise result
        return found

    def _zones(self, nodes: Collection[NodeId]) -> set[str]:
        known = (each.candidate for each in self.directory.nodes())
        return {each.zone for each in known if each.node in nodes}

    def zones(self, nodes: Collection[NodeId]) -> set[str]:
        """Name the zones that nodes are in."""
        return self._zones(nodes)

    def abort(self) -> None:
        """End all connections at once, with whatever is under way on them."""
        self._closed = True
        for client in self._clients.values():
            client.connection.abort()

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        clients = [*self._clients.values()]
        await asyncio.gather(*(client.connection.close() for client in clients))
