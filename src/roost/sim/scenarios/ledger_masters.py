"""Masters in the scenario `ledger`: two at once, both of which believe to be elected.

They run in some seeds only, and draw from chances of their own, so that the other seeds are what
they were. Who is registered says a registrar, which sees late what has become of a node, and
sometimes takes one that is well for gone. Masters are killed, stand still and are cut off like
everybody else; and ledgers are deleted, open ones, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from roost.errors import NotFound, RoostError
from roost.host.metrics import MasterMetrics
from roost.host.seams import Seams
from roost.ledger.client import Ledgers
from roost.master.auditing import AuditSettings
from roost.master.collecting import CollectSettings
from roost.master.scrubbing import ScrubSettings
from roost.master.service import Master, MasterSettings
from roost.metadata.drains import NODE_DRAIN, NodeDrain
from roost.metadata.layout import drain_key, identity_key, live_key
from roost.metadata.node_documents import NODE_IDENTITY, NODE_REPORT, NodeIdentity, NodeReport
from roost.metadata.operations import Delete, Put
from roost.sim.medium import NetFaults
from roost.sim.metadata import SimMetadata
from roost.sim.scenarios.ledger_clients import CLUSTER, PORT, Work
from roost.sim.world import Process, World
from roost.types import LedgerId

SHARE: Final = 0.3
"""Of how many seeds there are masters."""

NAMES: Final = ("master-0", "master-1")
LIVENESS_S: Final = 60.0
TICK_S: Final = 0.02
CHURN_TICKS: Final = 60
QUICK: Final = MasterSettings(
    grace_s=0.1,
    look_s=0.04,
    audit=AuditSettings(audit_s=0.05, mend_s=1.0, rest_s=0.2),
    collect=CollectSettings(collect_s=0.05, tombstone_s=0.3),
    scrub=ScrubSettings(round_s=0.2, look_s=0.1, keep_s=0.05),
)


class Masters:
    """Two masters, and what happens to them and because of them."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._rng: Final = world.rng("masters")
        self._there: Final = self._rng.random() < SHARE
        self._deletes: Final = self._there and self._rng.random() < 0.5
        self._masters: dict[str, Process] = {}
        self._nodes: Mapping[str, Process] = {}
        self._listed: set[str] = set()
        self._hidden: dict[str, int] = {}
        """Nodes that are taken for gone, and for how many more ticks."""
        self._raging: asyncio.Task[None] | None = None
        self._work: Work
        self._metadata: SimMetadata
        self._holders: Callable[[LedgerId], list[str]]

    @property
    def there(self) -> bool:
        """Tell whether there are any in this seed."""
        return self._there

    @property
    def nodes_more(self) -> int:
        """Tell how many more nodes there are: else no copy that is left behind is ever barred."""
        return 2 if self._there else 0

    def use(
        self, work: Work, metadata: SimMetadata, holders: Callable[[LedgerId], list[str]]
    ) -> None:
        """Take what the story is made of."""
        self._work, self._metadata, self._holders = work, metadata, holders

    def begin(self, nodes: Mapping[str, Process]) -> None:
        """Start them, if there are any."""
        if not self._there:
            return
        self._nodes = nodes
        self._register(lies=0.0)
        for name in NAMES:
            self._masters[name] = self._world.host(name).start("master", partial(self._main, name))
        if self._deletes:
            self._world.host("deleter").start("client", self._delete_some)
        self._raging = asyncio.get_running_loop().create_task(self._rage(lies=0.005))

    async def _main(self, name: str, seams: Seams) -> None:
        await self.master(name, seams).work()

    def master(self, name: str, seams: Seams) -> Master:
        """Make a master of this process."""
        return Master(
            self._work.told(self._metadata.handle(name, seams.clock)),
            QUICK,
            seams=seams,
            cluster=CLUSTER,
            name=name,
            log=self._work.said(name),
            metrics=MasterMetrics(),
        )

    # What happens

    async def _rage(self, *, lies: float) -> None:
        rng = self._rng
        while True:
            await asyncio.sleep(TICK_S)
            self._register(lies=lies)
            process = self._masters[rng.choice(NAMES)]
            event = rng.random()
            if event < 0.03:
                process.kill()
                await asyncio.sleep(TICK_S * rng.random())
                process.restart()
            elif event < 0.06:
                process.pause()
                await asyncio.sleep(10 * TICK_S * rng.random())
                process.resume()
            elif event < 0.08:
                self._metadata.cut(process.host.name)
                await asyncio.sleep(5 * TICK_S * rng.random())
                self._metadata.heal(process.host.name)

    def _register(self, *, lies: float) -> None:
        """Say who is there, as far as anybody knows; some are taken for gone for a while."""
        rng, puts = self._rng, list[Put | Delete]()
        for name, process in self._nodes.items():
            if rng.random() < lies:
                self._hidden[name] = rng.randrange(1, 20)
            hidden = lies and self._hidden.get(name, 0) > 0
            self._hidden[name] = self._hidden.get(name, 0) - 1
            listed = process.alive and not hidden
            if listed and name not in self._listed:
                identity = NodeIdentity(name, "0" * 32, f"{name}:{PORT}", 0.0)
                puts.append(Put(identity_key(name), NODE_IDENTITY.encode(identity)))
                puts.append(Put(live_key(name), NODE_REPORT.encode(_report(name))))
                self._listed.add(name)
            elif not listed and name in self._listed:
                puts.append(Delete(live_key(name)))
                self._listed.remove(name)
        if puts:
            self._metadata.versions.txn((), puts, ())

    async def churn(self) -> None:
        """Let nodes come and go when all ledgers are closed, and then let all be well again."""
        rng = self._rng
        if not self._there:
            return
        self._world.network.misbehave(NetFaults(delay_mean_s=0.003))
        self._raging = asyncio.get_running_loop().create_task(self._rage(lies=0.03))
        for _ in range(CHURN_TICKS):
            await asyncio.sleep(TICK_S)
            name = rng.choice([*self._nodes])
            process, event = self._nodes[name], rng.random()
            if event < 0.05 and process.alive:
                process.host.crash()
                self._world.count("power of a node")
                await asyncio.sleep(TICK_S * rng.randrange(1, 10))
                process.host.boot()
                process.restart()
            elif event < 0.1:
                put = Put(drain_key(name), NODE_DRAIN.encode(NodeDrain(name, 0.0)))
                self._metadata.versions.txn((), [put], ())
            elif event < 0.2:
                self._metadata.versions.txn((), [Delete(drain_key(name))], ())
        for name in self._nodes:
            self._metadata.versions.txn((), [Delete(drain_key(name))], ())
        self.heal()

    # The end

    def heal(self) -> None:
        """Let all be well."""
        if self._raging is None:
            return
        self._raging.cancel()
        for name, process in self._masters.items():
            self._metadata.heal(name)
            process.resume()
            if not process.alive:
                process.restart()
        self._register(lies=0.0)

    async def finish(self) -> None:
        """Require that what is deleted is forgotten everywhere."""
        if not self._there:
            return
        try:
            async with asyncio.timeout(LIVENESS_S):
                while self._garbage():
                    self._register(lies=0.0)
                    await asyncio.sleep(0.5)
        except TimeoutError:
            self._world.violate(f"liveness: not collected: {self._garbage()}")
        for process in self._masters.values():
            process.kill()

    def _garbage(self) -> list[tuple[LedgerId, list[str]]]:
        found = [(ledger, self._holders(ledger)) for ledger in sorted(self._work.deleted)]
        return [(ledger, holders) for ledger, holders in found if holders]

    async def _delete_some(self, seams: Seams) -> None:
        """Delete ledgers, once in a while, until all is over."""
        work, rng = self._work, self._rng
        ledgers = work.client("deleter", seams)
        while not work.over:
            await asyncio.sleep(5 * TICK_S * rng.random())
            left = [each for each in work.ledgers if each not in work.deleted]
            if left and rng.random() < 0.1:
                await self._delete(rng.choice(left), ledgers)
        await asyncio.Event().wait()

    async def _delete(self, ledger: LedgerId, ledgers: Ledgers) -> None:
        """Delete one; if the metadata cannot be reached, ask again until it is done."""
        work = self._work
        work.deleted.add(ledger)
        while True:
            try:
                await ledgers.delete(ledger)
            except NotFound:
                return
            except RoostError as error:
                self._world.trace("not deleted", ledger=ledger, error=str(error))
                await asyncio.sleep(TICK_S)
            else:
                work.look()
                return


def _report(node: str) -> NodeReport:
    return NodeReport(
        node=node,
        address=f"{node}:{PORT}",
        zone="",
        roost="sim",
        health="",
        readonly="",
        free_bytes=1 << 30,
        ledgers=0,
        added_bytes_per_s=0.0,
        read_bytes_per_s=0.0,
        reported_at=0.0,
    )
