"""A storage node on a machine that fails: production code from the client's call to the disk.

One process opens its folder, serves clients over the network for a while, and ends: by a clean
stop, by SIGKILL, by a loss of power at some instant or at some operation of the disk, also while it
recovers. Then it is started again, many times. Segments and limits are so small that it rolls,
flushes, checkpoints and trims all the time. Each seed draws what the clients ask for, and how disk
and network misbehave; most kinds of harm are absent in most seeds, so that each also meets the
others alone. Each time the node comes up all that it has is looked at, and at the end everything
heals: all that was asked must be answered, the node must stop cleanly, and nothing may be left to
recover. `roost.sim.ledger_book` knows what is promised.
"""

import asyncio
from errno import errorcode
from pathlib import Path
from typing import Final, Literal

import msgspec

from roost.host.net import Address
from roost.journal.header import MAKING, parse_name
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from roost.sim.ledger_book import LedgerBook
from roost.sim.play import Options, Report, play
from roost.sim.scenarios.node_client import NODE, Client, Work
from roost.sim.scenarios.node_life import FOLDER, NodeLife
from roost.sim.scenarios.node_plan import FILE_BYTES_MAX, STRIKES, Strike, draw
from roost.sim.world import Process, World

# Where no client looks for it.
ELSEWHERE: Final = Address(NODE.host, NODE.port + 1)
# When all faults are over, everything has to be answered within this time.
LIVENESS_S: Final = 60.0
# How long a life lasts in which nothing is asked.
IDLE_S: Final = 4.0
Ending = Literal["stop", "kill", "power", "power at an operation"]


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("node", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let one seed's node live, end, and heal."""
    told = Story(world)
    world.trace("plan", **msgspec.structs.asdict(told.plan))
    await told.play()
    return {
        "lives": told.life.opened,
        "acked": told.book.acked,
        "refused": told.book.refused,
        "found": told.book.found,
        **told.life.figures,
    }


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Wait for the first of two events."""
    waits = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _paths(disk: SimDisk) -> list[Path]:
    """List the files of a node that may be harmed without its being taken for a torn tail."""
    try:
        names = [name for name in disk.names(FOLDER / "journal") if parse_name(name)]
        paths = [FOLDER / "journal" / name for name in names if not name.endswith(MAKING)][:-1]
        paths += [FOLDER / "ledgers" / name for name in disk.names(FOLDER / "ledgers")]
        paths += [FOLDER / name for name in disk.names(FOLDER) if name == "checkpoint"]
    except FileNotFoundError:
        return []
    return paths


class Story:
    """One seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("story")
        self.plan = draw(world.rng("plan"))
        self.book = LedgerBook(payload_bytes_max=self.plan.orders.payload_bytes_max)
        self.life = NodeLife(
            world,
            self.book,
            name="node",
            listen=NODE,
            settings=self.plan.settings,
            payload_bytes_max=self.plan.orders.payload_bytes_max,
        )
        self._work = Work(world, self.plan.orders, self.book)
        self._clients = [Client(self._work, f"client-{n}") for n in range(self.plan.clients)]
        self._struck = False

    async def play(self) -> None:
        """Let the process live and end as often as the plan says, then heal and look."""
        plan, world = self.plan, self._world
        if plan.disk.read_fails:
            self.book.harmed()
        world.network.misbehave(plan.net)
        host = world.host(NODE.host, plan.disk)
        for client in self._clients:
            world.host(client.name).start("client", client.main)
        process = host.start("node", self.life.main)
        for _ in range(plan.lives):
            await self._live(process)
            if plan.harms and self._rng.random() < 0.7:
                self._harm(process.disk)
            process.restart()
        await self._live(process)
        await self._heal(process)

    async def _live(self, process: Process) -> None:
        """Let the process live, and see to it that it ends."""
        rng = self._rng
        ending: Ending = rng.choice(["stop", "kill", "power", "power at an operation"])
        early = ending in {"kill", "power"} and rng.random() < 0.25
        strike = rng.choice(STRIKES) if self.plan.strikes and rng.random() < 0.7 else None
        # What a failed sync has left in the page cache is what is interesting: that it is seen
        # after a kill, and gone after a loss of power.
        if self._struck and rng.random() < 0.6:
            ending, early = "power", True
        elif strike is not None and rng.random() < 0.5:
            ending, early = "kill", False
        self._struck = strike is not None and ending == "kill"
        self._world.count(ending)
        requests = rng.randrange(self.plan.requests)
        self._work.grant(requests)
        if ending == "power at an operation":
            process.disk.lose_power_after(rng.randrange(1, rng.choice([20, 60, 200, 500])))
        async with asyncio.TaskGroup() as group:
            harms = [group.create_task(self._trouble(process))]
            if strike is not None:
                harms.append(group.create_task(self._strike(process, strike)))
            await self._wait_for_the_end(process, early=early)
            for harm in harms:
                harm.cancel()
        if ending == "stop" and process.alive:
            await self.life.end(process)
        elif ending == "kill":
            process.kill()
        elif process.alive:
            process.host.crash()
        process.host.boot()

    async def _wait_for_the_end(self, process: Process, *, early: bool) -> None:
        """Wait for the moment at which it is to end, if it does not by itself."""
        try:
            async with asyncio.timeout(IDLE_S):
                if early:
                    await asyncio.sleep(self._rng.random() ** 2 * 0.05)
                    return
                await _either(self._work.used, process.ended)
            await asyncio.sleep(self._rng.random() ** 2 * 0.05)
        except TimeoutError:
            pass

    async def _strike(self, process: Process, strike: Strike) -> None:
        """Let one operation of the disk fail, some time."""
        operation, suffix, code = strike
        await self._work.mark(self._rng.randrange(self._work.left + 1)).wait()
        self._world.trace("strike", operation=operation, suffix=suffix, code=errorcode[code])
        self._world.count("strike")
        process.disk.fail_next(operation, suffix, code)

    async def _trouble(self, process: Process) -> None:
        """Do something to the process, or to its connections, that passes."""
        rng, network = self._rng, self._world.network
        if not self.plan.troubles:
            return
        await asyncio.sleep(rng.random() ** 2 * 0.1)
        for_s = rng.choice([0.01, 0.3, 4.0])
        client = rng.choice(self._clients).name
        ways = [client, NODE.host] if rng.random() < 0.5 else [NODE.host, client]
        match rng.randrange(4):
            case 0:
                process.pause()
            case 1:
                network.block(*ways, both=rng.random() < 0.5)
            case 2:
                network.clog(*ways, for_s=for_s)
            case _:
                network.narrow(*ways, bytes_per_s=rng.randrange(3_000, 100_000))
        try:
            await asyncio.sleep(for_s)
        finally:
            process.resume()
            network.unblock(*ways)
            network.narrow(*ways, bytes_per_s=0)

    def _harm(self, disk: SimDisk) -> None:
        """Flip a bit of a file of the node that rests."""
        faults, disk.faults = disk.faults, DiskFaults()
        if paths := _paths(disk):
            path = self._rng.choice(paths)
            file = disk.open(path, writable=False)
            if size := file.size():
                offset = self._rng.randrange(size)
                self._world.trace("harm", file=path.name, offset=offset)
                self.book.harmed()
                disk.rot(path, offset, self._rng.randrange(8))
            file.close()
        disk.faults = faults

    # The end

    async def _heal(self, process: Process) -> None:
        """Make good all that was done, and require that all goes well."""
        world = self._world
        process.disk.faults = DiskFaults(file_bytes_max=FILE_BYTES_MAX)
        process.disk.fail_none()
        world.network.heal()
        world.trace("heal")
        self._work.grant(self._rng.randrange(self.plan.requests))
        self._work.over = True
        process.restart()
        try:
            async with asyncio.timeout(LIVENESS_S):
                for client in self._clients:
                    await client.done.wait()
        except TimeoutError:
            world.violate("liveness: not all that was asked was answered")
        await self.life.end(process)
        if self.life.failure:
            world.violate(f"liveness: all is well, and yet: {self.life.failure}")
        await self._start_twice(process)
        self.life.check_stopped(process.disk)

    async def _start_twice(self, process: Process) -> None:
        """See that a start by itself changes nothing, and recovers nothing after a clean stop."""
        seen: list[list[object]] = []
        # What a client gave up may still arrive and would be taken.
        life = self.life
        life.listen = ELSEWHERE
        for last in (False, True):
            life.looked.clear()
            process.restart()
            await _either(life.looked, process.ended)
            await asyncio.sleep(self._rng.random() ** 2 * 0.02)
            seen.append(life.snapshot)
            if life.replayed:
                self._world.violate(
                    f"nothing is left to recover: {life.replayed} records were replayed"
                )
            if last:
                await life.end(process)
            elif self._rng.random() < 0.5:
                process.kill()
            else:
                process.host.crash()
            process.host.boot()
        if seen[0] != seen[1]:
            self._world.violate(f"a start changes nothing: {seen[0]} and then {seen[1]}")
