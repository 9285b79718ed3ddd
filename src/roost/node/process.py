"""A whole node, from its start to its end: its store, who may ask it, and what it tells of itself.

It tells its health from the first moment, also while it recovers; it takes requests once it has
recovered; and at the end it takes no more, answers those that are under way, brings everything into
files, and only then is gone. So a node that was stopped has nothing to recover, and who sees the
event `stopped` may move its disk. The promise: whatever fails on the way in, nothing stays behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from roost.errors import Unavailable
from roost.host.log import Log
from roost.host.metrics import JournalMetrics, NodeMetrics, collect, render_prometheus
from roost.host.net import Address
from roost.host.seams import Seams
from roost.node.http import HttpServer, Told
from roost.node.identity import Identity
from roost.node.peer import Peers
from roost.node.service import NodeService
from roost.node.status import Status
from roost.node.store import NodeSettings, Store
from roost.rpc.limits import Limits
from roost.rpc.server import Server
from roost.rpc.session import Peer
from roost.wire.entry import PAYLOAD_BYTES_MAX
from roost.wire.frame import Frame
from roost.wire.messages import PROTOCOL_VERSION, NodeStat, Welcome


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node runs."""

    data: Path
    """Its folder, which this process has taken."""

    listen: Address
    http: Address | None = None
    """Where it tells of itself; None for nowhere."""

    store: NodeSettings = NodeSettings()
    limits: Limits = Limits()
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    drain_s: float = 10.0
    """How long it waits for what is under way before it stops."""


class NodeProcess:
    """A node that runs, or is about to."""

    def __init__(
        self, settings: ProcessSettings, identity: Identity, *, seams: Seams, log: Log
    ) -> None:
        self.address: Address | None = None
        """Where it takes requests, once it does."""
        self.http_address: Address | None = None
        """Where it tells of itself."""
        self._settings: Final = settings
        self._identity: Final = identity
        self._seams: Final = seams
        self._log: Final = log
        self._metrics: Final = NodeMetrics()
        self._journal_metrics: Final = JournalMetrics()
        told = Told(metrics=self.metrics, ills=self.ills, facts=self.facts)
        self._http: Final = HttpServer(seams.net, told, log=log)
        self._standing = "starting"
        self._store: Store | None = None
        self._status: Status | None = None
        self._server: Server | None = None

    @classmethod
    async def start(
        cls, settings: ProcessSettings, identity: Identity, *, seams: Seams, log: Log
    ) -> Self:
        """Recover what the folder holds, and serve it."""
        process = cls(settings, identity, seams=seams, log=log)
        try:
            await process._begin()
        except BaseException:
            await process.stop()
            raise
        return process

    @property
    def store(self) -> Store | None:
        """What it serves, between its recovery and its end."""
        return self._store

    async def stop(self) -> None:
        """Answer what is under way, bring everything into files, and end. May be called twice."""
        self._standing = "stopping"
        server, self._server = self._server, None
        store, self._store = self._store, None
        try:
            if server is not None:
                await server.stop(self._settings.drain_s)
        finally:
            try:
                if store is not None:
                    await store.stop()
            finally:
                self._http.stop()

    async def _begin(self) -> None:
        settings, log = self._settings, self._log
        log.event("starting", data=settings.data, **self.facts())
        if settings.http is not None:
            self.http_address = await _listening(self._http.start, settings.http)
        self._store = store = await Store.open(
            settings.data,
            settings.store,
            uuid=self._identity.uuid,
            seams=self._seams,
            log=log,
            metrics=self._metrics,
            journal_metrics=self._journal_metrics,
        )
        self._status = Status(
            store,
            self._identity,
            clock=self._seams.clock,
            sync=settings.store.journal.sync,
            metrics=self._metrics,
            journal_metrics=self._journal_metrics,
        )
        self._server = server = self._make_server(store, self._status)
        store.on_pressure = lambda: server.throttle(on=bool(store.why_slow))
        store.on_pressure()
        self.address = await _listening(server.start, settings.listen)
        self._standing = ""

    def _make_server(self, store: Store, status: Status) -> Server:
        settings, identity, seams = self._settings, self._identity, self._seams
        peers = Peers(store, identity, seams.net, self._log)
        service = NodeService(store, status, peers, payload_bytes_max=settings.payload_bytes_max)
        return Server(
            seams.net,
            welcome=Welcome(
                version=PROTOCOL_VERSION,
                cluster=identity.cluster,
                node=identity.node,
                uuid=identity.uuid,
                frame_bytes_max=settings.limits.frame_bytes_max,
            ),
            handlers=service.handlers,
            authorize=authorize,
            limits=settings.limits,
            log=self._log,
            before_read=store.journal.gather,
            after_read=store.hurry,
        )

    # What it tells of itself

    def stat(self) -> NodeStat:
        """Tell how it is; it must have begun to serve."""
        assert self._status is not None, "a node that serves knows how it is"
        return self._status.stat()

    def metrics(self) -> str:
        """Write all figures as they are now."""
        if self._status is not None:
            self._status.refresh()
        self._metrics.connections = 0 if self._server is None else self._server.connections
        node = self._identity.node
        groups = (self._metrics, self._journal_metrics)
        return render_prometheus(sample for group in groups for sample in collect(group, node=node))

    def ills(self) -> Sequence[str]:
        """Say why it is not well, or not ready."""
        if self._standing or self._status is None:
            return [self._standing or "starting"]
        return self._status.problems()

    def facts(self) -> Mapping[str, object]:
        """Say what it is."""
        return {
            "cluster": self._identity.cluster,
            "node": self._identity.node,
            "uuid": self._identity.uuid_text,
        }


def authorize(peer: Peer, operation: int, request: Frame) -> None:
    """Let everybody do everything: peers are known by what they say only, and by where they are.

    Every request passes here, so that whoever gives peers credentials has one place to look at
    them. Until then a node is reached over loopback, or where somebody said that it may be.
    """
    del peer, operation, request


async def run_node(
    settings: ProcessSettings,
    identity: Identity,
    *,
    seams: Seams,
    log: Log,
    stop: asyncio.Event,
    serving: Callable[[NodeProcess], None],
) -> None:
    """Run a node until it is told to stop; `serving` is called once it takes requests."""
    process = await NodeProcess.start(settings, identity, seams=seams, log=log)
    try:
        serving(process)
        await stop.wait()
        log.event("stopping", drain_s=settings.drain_s)
    finally:
        await process.stop()
    log.event("stopped")


async def _listening(start: Callable[[Address], Awaitable[Address]], address: Address) -> Address:
    try:
        return await start(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror or error}") from error
