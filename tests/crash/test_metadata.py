"""Metadata stores that are killed while programs change them and watch: nothing is lost or doubled.

Two programs count one key up by compare and swap, each value naming who put it; a third watches.
The server is killed and started again in the midst of it, several times.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pytest

from roost.errors import Retryable, Unknown
from roost.host.net import Address, AsyncioNet
from roost.host.system import SystemClock
from roost.metadata.etcd import EtcdStore
from roost.metadata.operations import (
    TTL_S_MIN,
    Absent,
    ChangedAt,
    Event,
    Item,
    Put,
    Revision,
)
from roost.metadata.remote import RemoteStore
from roost.metadata.store import MetadataStore
from tests.etcds import EtcdProgram, free_ports
from tests.metas import MetaProgram

T = TypeVar("T")

KILLS: Final = 5
ACKED_BETWEEN: Final = 60
LONG_S: Final = 100.0
CALL_S: Final = 2.0


class Program(Protocol):
    """A server that can be killed and started again."""

    def start(self) -> object:
        """Begin a life."""

    def kill(self) -> None:
        """End it as SIGKILL does."""

    def stop(self) -> None:
        """End it for good."""


class Served:
    """Programs that serve one store, and how to reach it."""

    def __init__(
        self, programs: list[Program], open_: Callable[[], Awaitable[MetadataStore]]
    ) -> None:
        self.programs: Final = programs
        self.open: Final = open_

    def kill_and_start(self, turn: int) -> None:
        program = self.programs[turn % len(self.programs)]
        program.kill()
        program.start()


def meta(folder: Path) -> Served:
    program = MetaProgram(folder)

    async def open_() -> MetadataStore:
        return RemoteStore(AsyncioNet(), Address.parse(program.address), clock=SystemClock())

    return Served([program], open_)


def etcd(folder: Path) -> Served:
    return etcds(folder, 1)


def three_etcds(folder: Path) -> Served:
    return etcds(folder, 3)


def etcds(folder: Path, count: int) -> Served:
    ports = [free_ports(2) for _ in range(count)]
    cluster = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(ports))
    programs = [
        EtcdProgram(folder, name=f"m{n}", ports=pair, cluster=cluster)
        for n, pair in enumerate(ports)
    ]

    async def open_() -> MetadataStore:
        endpoints = [program.endpoint for program in programs]
        return await EtcdStore.open(endpoints, "crash/", clock=SystemClock(), timeout_s=30.0)

    return Served([*programs], open_)


@pytest.fixture(params=[meta, etcd, three_etcds], ids=lambda make: make.__name__)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    served: Served = request.param(tmp_path)
    for program in served.programs:
        program.start()
    yield served
    for program in served.programs:
        program.stop()


class Counting:
    """Programs that count one key up, and all that was acknowledged to them."""

    def __init__(self, served: Served) -> None:
        self.acked: list[bytes] = []
        self.unknown = 0
        self.more = asyncio.Event()
        self._served = served
        self.over = False

    async def count(self, name: str) -> None:
        store = await self._served.open()
        for turn in itertools.count():
            if self.over:
                break
            try:
                item = await store.get("counter", timeout_s=CALL_S)
                number = int(item.value.split()[0]) + 1 if item else 1
                value = f"{number} {name} {turn}".encode()
                compare = ChangedAt("counter", item.changed) if item else Absent("counter")
                put = Put("counter", value)
                outcome = await store.txn([compare], [put], timeout_s=CALL_S)
                if outcome.succeeded:
                    self.acked.append(value)
                    self.more.set()
            except Retryable:
                await asyncio.sleep(0.01)
            except Unknown:
                self.unknown += 1
        await store.close()

    async def until(self, acked: int) -> None:
        while len(self.acked) < acked:
            self.more.clear()
            await self.more.wait()


async def watched(store: MetadataStore, seen: list[Event]) -> None:
    """Watch the counter from its beginning until a key says that it is over."""
    async with store.watch("counter", Revision(1)) as watch:
        async for batch in watch:
            seen += batch.events
            if any(event.key == "counter-over" for event in batch.events):
                return


def test_nothing_acknowledged_is_lost_and_a_watch_tells_all_of_it_once(served: Served) -> None:
    async def main() -> tuple[Counting, list[Event], Item | None]:
        counting = Counting(served)
        seen: list[Event] = []
        store = await served.open()
        async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as group:
            counters = [group.create_task(counting.count(name)) for name in ("a", "b")]
            watching = group.create_task(watched(store, seen))
            for turn in range(KILLS):
                await counting.until((turn + 1) * ACKED_BETWEEN)
                served.kill_and_start(turn)
            await counting.until((KILLS + 1) * ACKED_BETWEEN)
            counting.over = True
            await asyncio.wait(counters)
            await insisting(lambda: store.put("counter-over", b""))
            await watching
        item = await store.get("counter")
        await store.close()
        return counting, seen, item

    counting, seen, item = asyncio.run(main())

    values = [event.item.value for event in seen if event.item and event.key == "counter"]
    revisions = [event.revision for event in seen]
    assert item is not None
    assert (item.value, item.version) == (values[-1], len(values))
    assert revisions == sorted(set(revisions))
    assert [int(value.split()[0]) for value in values] == list(range(1, len(values) + 1))
    assert set(counting.acked) <= set(values)
    assert len(values) <= len(counting.acked) + counting.unknown


async def insisting(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer."""
    while True:
        try:
            return await ask()
        except (Retryable, Unknown):
            await asyncio.sleep(0.01)


def test_a_lease_outlives_a_restart_and_is_lost_in_time_without_one(served: Served) -> None:
    async def main() -> None:
        store = await served.open()
        lease = await insisting(lambda: store.grant(4))
        await store.put("mine", b"", lease=lease.id)

        for turn in range(len(served.programs)):
            before = lease.deadline
            served.kill_and_start(turn)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(TTL_S_MIN):
                    await lease.wait_lost()
            assert lease.deadline > before
        assert await store.get("mine") is not None

        for program in served.programs:
            program.kill()
        async with asyncio.timeout(LONG_S):
            await lease.wait_lost()
        assert lease.lost
        await store.close()

    asyncio.run(main())
