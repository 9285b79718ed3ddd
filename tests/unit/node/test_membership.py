"""A node's place in its cluster: when it registers, what it reports, and what ends it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from roost.cli.machine import seams
from roost.errors import Conflict
from roost.host.log import Memory
from roost.host.net import Address
from roost.metadata.nodes import LiveNodes, all_nodes
from roost.metadata.opening import open_store
from roost.node.identity import Identity
from roost.node.membership import MembershipSettings, Reporter, be_member
from roost.wire.messages import NodeStat
from tests.unit.host.hand import Hand

ALICE = Identity(cluster="prod", node="alice", uuid=bytes(range(16)))
STAT = NodeStat(
    node="alice",
    cluster="prod",
    uuid=ALICE.uuid,
    version="0.1",
    health="",
    readonly="",
    sync="always",
    uptime_s=1.0,
    ledgers=3,
    memory_bytes=0,
    journal_kept_bytes=0,
    journal_queued_bytes=0,
    journal_tail=0,
    journal_durable=0,
    free_bytes=1 << 30,
    counters={"node_added_bytes": 1000, "node_read_bytes": 0},
)
LONG_S = 60.0


def settings(folder: Path) -> MembershipSettings:
    return MembershipSettings(url=f"dir://{folder}", address=Address("here", 1), zone="z")


class Heard(Memory):
    """A log that says when it has heard of something."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted = wanted
        self.heard = asyncio.Event()

    def event(self, name: str, /, **fields: object) -> None:
        super().event(name, **fields)
        if name == self.wanted:
            self.heard.set()


async def register(folder: Path, identity: Identity) -> None:
    """Be a member until registered, and leave."""
    stop, log = asyncio.Event(), Heard("registered")
    running = asyncio.ensure_future(
        be_member(
            settings(folder),
            identity,
            lambda: STAT,
            seams=seams(),
            log=log,
            holder="test",
            stop=stop,
        )
    )
    async with asyncio.timeout(LONG_S):
        heard = asyncio.ensure_future(log.heard.wait())
        await asyncio.wait([heard, running], return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        stop.set()
        await running


def test_a_member_is_known_after_it_has_left(tmp_path: Path) -> None:
    async def main() -> None:
        await register(tmp_path, ALICE)
        store = await open_store(f"dir://{tmp_path}", seams=seams(), log=Memory(), holder="test")
        ((identity, report),) = await all_nodes(store)
        nodes = await LiveNodes.open(store)
        assert (identity.node, identity.uuid, identity.address) == (
            "alice",
            ALICE.uuid.hex(),
            "here:1",
        )
        assert report is None
        assert not nodes.reports
        await nodes.close()
        await store.close()

    asyncio.run(main())


def test_another_folder_of_its_name_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        await register(tmp_path, ALICE)
        other = msgspec.structs.replace(ALICE, uuid=bytes(16))

        with pytest.raises(Conflict, match="does not hold what that node holds"):
            await register(tmp_path, other)

    asyncio.run(main())


def test_a_member_waits_for_its_metadata_until_it_stops(tmp_path: Path) -> None:
    async def main() -> None:
        log, stop = Heard("not_registered"), asyncio.Event()
        url = f"dir://{tmp_path}"
        store = await open_store(url, seams=seams(), log=Memory(), holder="test")
        running = asyncio.ensure_future(
            be_member(
                settings(tmp_path),
                ALICE,
                lambda: STAT,
                seams=seams(),
                log=log,
                holder="other",
                stop=stop,
            )
        )
        async with asyncio.timeout(LONG_S):
            await log.heard.wait()
            stop.set()
            await running
        await store.close()

    asyncio.run(main())


def test_rates_are_averages_since_the_last_report() -> None:
    clock = Hand()
    now = [STAT]
    reporter = Reporter(settings(Path("x")), lambda: now[0], clock)

    clock.now_s += 10.0
    now[0] = msgspec.structs.replace(
        STAT, counters={"node_added_bytes": 6000, "node_read_bytes": 100}
    )
    first = reporter.report()
    clock.now_s += 5.0
    second = reporter.report()

    assert (first.added_bytes_per_s, first.read_bytes_per_s) == (500.0, 10.0)
    assert (second.added_bytes_per_s, second.read_bytes_per_s) == (0.0, 0.0)
    assert (first.address, first.zone, first.roost, first.ledgers) == ("here:1", "z", "0.1", 3)
