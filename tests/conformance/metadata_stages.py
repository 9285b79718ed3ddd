"""The stages on which the metadata suite plays: each kind of store, and how to play on it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import grpc.aio

from roost.cli.machine import seams
from roost.host.log import Silence
from roost.host.net import Address, AsyncioNet
from roost.host.system import SystemClock
from roost.metadata.etcd import EtcdStore
from roost.metadata.keeper import Keeper
from roost.metadata.local import LocalStore
from roost.metadata.protobuf import all_of, decode, encode, number_of, one_of
from roost.metadata.remote import RemoteStore
from roost.metadata.server import MetaSettings, run_meta
from roost.metadata.store import MetadataStore
from roost.sim.metadata import SimMetadata
from roost.sim.world import World
from tests.etcds import EtcdProgram

LONG_S: Final = 60.0
"""How long a story takes at most."""

Open = Callable[[], Awaitable[MetadataStore]]
Story = Callable[[Open], Awaitable[None]]
"""Takes a function that opens one more store object on the same store."""


class Stage(Protocol):
    """One kind of store, and what can be done to it while a story plays."""

    def play(self, story: Story) -> None:
        """Play a story on an empty store."""

    async def compact(self) -> None:
        """Forget all history."""

    async def let_go(self) -> None:
        """End all leases behind their holders' backs."""

    def close(self) -> None:
        """Remove what is left."""


async def play_out(story: Story, open_: Open) -> None:
    """Play a story, and close every store that it opened."""
    stores: list[MetadataStore] = []

    async def opened() -> MetadataStore:
        stores.append(await open_())
        return stores[-1]

    try:
        async with asyncio.timeout(LONG_S):
            await story(opened)
    finally:
        for store in stores:
            await store.close()


class SimStage:
    """The simulated store."""

    def __init__(self) -> None:
        self._world = World(7)
        self._store = SimMetadata(self._world)
        self._handles = 0

    def play(self, story: Story) -> None:
        self._world.run(lambda: play_out(story, self._open))

    async def compact(self) -> None:
        self._store.compact()

    async def let_go(self) -> None:
        self._store.let_go()

    def close(self) -> None:
        self._world.close()

    async def _open(self) -> MetadataStore:
        self._handles += 1
        return self._store.handle(f"process-{self._handles}")


class FolderStage:
    """The embedded store, in this process."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._keeper: Keeper

    def play(self, story: Story) -> None:
        asyncio.run(self._main(story))

    async def compact(self) -> None:
        self._keeper.compact(self._keeper.revision)

    async def let_go(self) -> None:
        await self._keeper.let_go()

    def close(self) -> None:
        self._folder.cleanup()

    async def _main(self, story: Story) -> None:
        self._keeper = await Keeper.open(
            Path(self._folder.name), seams=seams(), log=Silence(), holder="test", keep_leases=False
        )
        try:
            await play_out(story, self._open)
        finally:
            await self._keeper.close()

    async def _open(self) -> MetadataStore:
        return LocalStore(self._keeper, clock=SystemClock())


class ServedStage(FolderStage):
    """The embedded store, served over loopback in this process."""

    async def _main(self, story: Story) -> None:
        self._serving: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        serving = asyncio.create_task(
            run_meta(
                MetaSettings(data=Path(self._folder.name), listen=Address("127.0.0.1", 0)),
                seams=seams(),
                log=Silence(),
                holder="test",
                stop=stop,
                serving=self._on_serving,
            )
        )
        try:
            await play_out(story, self._open)
        finally:
            stop.set()
            await serving

    def _on_serving(self, keeper: Keeper, address: Address) -> None:
        self._keeper = keeper
        self._serving.set_result(address)

    async def _open(self) -> MetadataStore:
        return RemoteStore(AsyncioNet(), await self._serving, clock=SystemClock())


class EtcdStage:
    """A real etcd, of which each story has a prefix of its own."""

    _stories = itertools.count()

    def __init__(self, etcd: EtcdProgram) -> None:
        self._etcd = etcd
        self._prefix = f"story-{next(self._stories)}/"

    def play(self, story: Story) -> None:
        asyncio.run(play_out(story, self._open))

    async def compact(self) -> None:
        async with self._raw() as ask:
            header = one_of(decode(await ask("KV/Range", encode([(1, b"any")]))), 1)
            await ask("KV/Compact", encode([(1, number_of(header, 3)), (2, 1)]))

    async def let_go(self) -> None:
        async with self._raw() as ask:
            for lease in all_of(decode(await ask("Lease/LeaseLeases", b"")), 2):
                await ask("Lease/LeaseRevoke", encode([(1, number_of(lease, 1))]))

    def close(self) -> None:
        # What is left of a story's leases must not end in the next one.
        asyncio.run(self.let_go())

    async def _open(self) -> MetadataStore:
        return await EtcdStore.open(
            [self._etcd.endpoint], self._prefix, clock=SystemClock(), timeout_s=LONG_S
        )

    @asynccontextmanager
    async def _raw(self) -> AsyncIterator[Callable[[str, bytes], Awaitable[bytes]]]:
        async with grpc.aio.insecure_channel(self._etcd.endpoint) as channel:

            async def ask(method: str, request: bytes) -> bytes:
                answer: bytes = await channel.unary_unary(f"/etcdserverpb.{method}")(request)
                return answer

            yield ask


STAGES: dict[str, Callable[[], Stage]] = {
    "sim": SimStage,
    "folder": FolderStage,
    "served": ServedStage,
}
