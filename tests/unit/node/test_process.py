"""A node from its start to its end: what it serves, what it tells, and what it leaves behind."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import pytest

from roost.errors import Unavailable, Unknown
from roost.host.log import Log, Memory
from roost.host.net import Address
from roost.host.seams import Seams
from roost.node.client import NodeClient
from roost.node.identity import Identity
from roost.node.process import NodeProcess, ProcessSettings, run_node
from roost.rpc.client import Connection
from roost.sim.faults import DiskFaults
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.messages import PROTOCOL_VERSION, Hello
from tests.unit.node.asking import Answered, asked, get
from tests.unit.node.lives import FOLDER, SETTINGS, UUID, Machine

ALICE: Final = Identity("prod", "alice", UUID)
RUNNING: Final = ProcessSettings(
    data=FOLDER,
    listen=Address("127.0.0.1", 4710),
    http=Address("127.0.0.1", 4711),
    store=SETTINGS,
    payload_bytes_max=2048,
)
LEDGER: Final = LedgerId(7)
EPOCH: Final = Epoch(1)


async def started(
    seams: Seams, settings: ProcessSettings = RUNNING, log: Log | None = None
) -> NodeProcess:
    return await NodeProcess.start(settings, ALICE, seams=seams, log=log or Memory())


async def client(seams: Seams, process: NodeProcess) -> NodeClient:
    assert process.address is not None
    hello = Hello(version=PROTOCOL_VERSION, cluster="prod", role="client", name="test")
    return NodeClient(await Connection.open(seams.net, process.address, hello, timeout_s=5.0))


async def add(node: NodeClient, *payloads: bytes) -> None:
    for entry, payload in enumerate(payloads):
        await node.add(LEDGER, EntryId(entry), payload, epoch=EPOCH)


async def told(seams: Seams, process: NodeProcess, target: str) -> Answered:
    assert process.http_address is not None
    return await asked(seams.net, process.http_address, get(target))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_node_serves_its_folder_and_leaves_nothing_to_recover(machine: Machine) -> None:
    log = Memory()

    async def first(seams: Seams) -> None:
        process = await started(seams)
        node = await client(seams, process)
        await add(node, b"a", b"b")
        await node.connection.close()
        await process.stop()

    async def second(seams: Seams) -> bytes:
        process = await started(seams, log=log)
        node = await client(seams, process)
        batch = await node.read_one(LEDGER, EntryId(1))
        await process.stop()
        return bytes(batch.found[EntryId(1)])

    with machine:
        machine.live(first)
        machine.crash("none")
        assert machine.live(second) == b"b"

    (recovered,) = (fields for name, fields in log.events if name == "recovered")
    assert recovered["replayed"] == 0


def test_a_node_tells_its_health_from_its_start_to_its_end(machine: Machine) -> None:
    async def life(seams: Seams) -> list[tuple[str, object]]:
        process = NodeProcess(RUNNING, ALICE, seams=seams, log=Memory())
        healths: list[tuple[str, object]] = [("made", process.ills())]
        process = await started(seams)
        answer = await told(seams, process, "/health")
        healths.append((answer.status, msgspec.json.decode(answer.body)["reasons"]))
        node = await client(seams, process)
        await add(node, b"a")
        machine.disk.faults = DiskFaults(sync_fails=1.0)
        with suppress(Unknown):
            await node.add(LEDGER, EntryId(1), b"b", epoch=EPOCH)
        answer = await told(seams, process, "/health")
        healths.append((answer.status, len(msgspec.json.decode(answer.body)["reasons"])))
        await process.stop()
        healths.append(("stopped", process.ills()))
        return healths

    with machine:
        assert machine.live(life) == [
            ("made", ["starting"]),
            ("HTTP/1.1 200 OK", []),
            ("HTTP/1.1 503 Service Unavailable", 1),
            ("stopped", ["stopping"]),
        ]


def test_a_recovering_node_says_so_and_takes_no_requests(machine: Machine) -> None:
    async def life(seams: Seams) -> tuple[str, list[str]]:
        starting = asyncio.get_running_loop().create_task(started(seams))
        answer = None
        while answer is None:
            try:
                answer = await asked(seams.net, Address("127.0.0.1", 4711), get("/health"))
            except OSError:
                await asyncio.sleep(0.0001)
        process = await starting
        await process.stop()
        return answer.status, msgspec.json.decode(answer.body)["reasons"]

    with machine:
        machine.world.step_mean_s = 1.0
        assert machine.live(life) == ("HTTP/1.1 503 Service Unavailable", ["starting"])


def test_metrics_are_of_this_very_moment(machine: Machine) -> None:
    async def life(seams: Seams) -> list[str]:
        process = await started(seams)
        node = await client(seams, process)
        await add(node, b"a", b"b")
        lines = (await told(seams, process, "/metrics")).body.splitlines()
        await process.stop()
        return lines

    with machine:
        lines = machine.live(life)

    assert {
        'roost_node_adds_total{node="alice"} 2',
        'roost_node_ledgers{node="alice"} 1',
        'roost_node_connections{node="alice"} 1',
        'roost_journal_records_total{node="alice"} 2',
    } <= set(lines)


def test_a_stopping_node_answers_what_is_under_way(machine: Machine) -> None:
    async def life(seams: Seams) -> int:
        process = await started(seams)
        node = await client(seams, process)
        adds = [
            asyncio.ensure_future(node.add(LEDGER, EntryId(entry), b"x" * 1000, epoch=EPOCH))
            for entry in range(100)
        ]
        await adds[0]
        await process.stop()
        outcomes = await asyncio.gather(*adds, return_exceptions=True)
        for address in (RUNNING.listen, Address("127.0.0.1", 4711)):
            with pytest.raises(ConnectionRefusedError):
                await seams.net.connect(asyncio.Protocol, address)
        return sum(outcome is None for outcome in outcomes)

    async def after(seams: Seams) -> int:
        process = await started(seams)
        state = await (await client(seams, process)).state(LEDGER)
        await process.stop()
        return state.entries

    with machine:
        answered = machine.live(life)
        assert machine.live(after) >= answered > 0


def test_writers_wait_while_too_much_is_in_memory(machine: Machine) -> None:
    limits = msgspec.structs.replace(SETTINGS.limits, memory_bytes_max=1000)
    store = msgspec.structs.replace(SETTINGS, limits=limits)
    settings = msgspec.structs.replace(RUNNING, store=store)

    async def life(seams: Seams) -> int:
        process = await started(seams, settings)
        node = await client(seams, process)
        for entry in range(10):
            await node.add(LEDGER, EntryId(entry), b"x" * 1000, epoch=EPOCH)
        counters = (await node.stat()).counters
        await process.stop()
        return counters["node_throttled"]

    with machine:
        assert machine.live(life) > 0


@pytest.mark.parametrize("name", ["listen", "http"])
def test_a_node_that_cannot_listen_leaves_nothing_behind(machine: Machine, name: str) -> None:
    async def life(seams: Seams) -> str:
        taken = await seams.net.listen(asyncio.Protocol, getattr(RUNNING, name))
        with pytest.raises(Unavailable) as caught:
            await started(seams)
        taken.close()
        await (await started(seams)).stop()
        return str(caught.value)

    with machine:
        address = getattr(RUNNING, name)
        assert machine.live(life).startswith(f"cannot listen on {address}: ")


def test_a_node_that_is_told_to_stop_says_when_it_has(machine: Machine) -> None:
    async def life(seams: Seams, delay_s: float) -> list[str]:
        stop, log, served = asyncio.Event(), Memory(), list[Address | None]()
        asyncio.get_running_loop().call_later(delay_s, stop.set)
        await run_node(
            *(RUNNING, ALICE),
            seams=seams,
            log=log,
            stop=stop,
            serving=lambda process: served.append(process.address),
        )
        assert served == [RUNNING.listen]
        return log.names

    with machine:
        for delay_s in (0.0, 5.0):  # while it starts, and while it serves
            names = machine.live(partial(life, delay_s=delay_s))
            told = [name for name in names if name in ("starting", "stopping", "stopped")]
            assert told == ["starting", "stopping", "stopped"]
            assert names[-1] == "stopped"


def test_a_node_without_http_listens_once(machine: Machine) -> None:
    async def life(seams: Seams) -> Address | None:
        process = await started(seams, msgspec.structs.replace(RUNNING, http=None))
        await process.stop()
        await process.stop()
        return process.http_address

    with machine:
        assert machine.live(life) is None
