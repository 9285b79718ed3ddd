"""Opens a cluster by its URL: the metadata, the nodes that are registered there, their ledgers.

    async with await Cluster.open("etcd://10.0.0.5:2379/prod", seams=seams, name="me") as cluster:
        writer = await cluster.ledgers.create(epoch=Epoch(1))

Its nodes are followed while it is open. The metadata may be away meanwhile: what it said last is
gone by until it is back.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from roost.errors import NotFound, RoostError
from roost.host.log import Log, Silence
from roost.host.seams import Seams
from roost.ledger.append import AppendSettings
from roost.ledger.client import DEFAULT_APPEND, Ledgers
from roost.ledger.nodes import PATIENT, Patience, RegisteredNodes
from roost.metadata.nodes import cluster_of
from roost.metadata.opening import open_store
from roost.metadata.store import CALL_S, MetadataStore

FOLLOW_AGAIN_S: Final = 1.0


class Cluster:
    """One cluster's ledgers, and what they are reached by; whoever opens it closes it."""

    def __init__(
        self, name: str, store: MetadataStore, directory: RegisteredNodes, ledgers: Ledgers
    ) -> None:
        self.name: Final = name
        self.store: Final = store
        self.ledgers: Final = ledgers
        self.directory: Final = directory
        self._following: Final = asyncio.get_running_loop().create_task(self._follow())

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        seams: Seams,
        name: str,
        log: Log | None = None,
        timeout_s: float = CALL_S,
        appending: AppendSettings = DEFAULT_APPEND,
        patience: Patience = PATIENT,
    ) -> Self:
        """Open it; `name` says to nodes who we are."""
        log = log or Silence()
        store = await open_store(url, seams=seams, log=log, holder=name, timeout_s=timeout_s)
        try:
            cluster = await _name(store, url)
            directory = await RegisteredNodes.open(store)
        except BaseException:
            await store.close()
            raise
        ledgers = Ledgers(
            store,
            directory,
            net=seams.net,
            clock=seams.clock,
            rng=seams.rng,
            cluster=cluster,
            name=name,
            log=log,
            appending=appending,
            patience=patience,
        )
        return cls(cluster, store, directory, ledgers)

    async def _follow(self) -> None:
        while True:
            with suppress(RoostError):
                await self.directory.run()
            await asyncio.sleep(FOLLOW_AGAIN_S)

    async def close(self) -> None:
        """End all connections; writers end before."""
        self._following.cancel()
        await asyncio.wait([self._following])
        await self.ledgers.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _name(store: MetadataStore, url: str) -> str:
    document = await cluster_of(store)
    if document is None:
        raise NotFound(f"no node has ever registered at {url}: look at the address")
    return document.cluster
