"""What befalls a world: faults of all kinds at random times, drawn by swarm.

Each seed draws which kinds of faults there are and how frequent each is; half of them are left
out. So one seed has nothing but pauses, another one a lossy network and crashes: a bug that needs
a rare combination, and one that a certain fault would hide, are both found in time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from roost.sim.medium import NetFaults
from roost.sim.world import Host, Process, World

# The chance that a kind of fault is left out of a seed.
LEFT_OUT = 0.5
# How long a fault lasts on average, and how often one kind strikes at most.
LASTS_S = 2.0
RATE_PER_S_MAX = 0.5


def draw_net_faults(rng: Random) -> NetFaults:
    """Draw how the network of a seed misbehaves."""

    def chance(most: float) -> float:
        return 0.0 if rng.random() < LEFT_OUT else rng.random() * most

    return NetFaults(
        delay_mean_s=10 ** rng.uniform(-4.0, -1.5),
        delays_long=chance(0.02),
        loses=chance(0.05),
        splits=chance(0.5),
        lingers=chance(1.0),
        window_bytes=rng.choice((1 << 10, 16 << 10, 256 << 10)),
    )


class Nemesis:
    """Does harm to the hosts and processes of a world, and makes good at the end."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        kinds: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": self._kill,
            "crash": self._crash,
            "power": self._cut_power,
            "pause": self._pause,
            "partition": self._partition,
            "clog": self._clog,
            "narrow": self._narrow,
            "clock": self._set_clock,
        }
        self.rates = {
            kind: 0.0 if rng.random() < LEFT_OUT else rng.random() * RATE_PER_S_MAX
            for kind in kinds
        }
        """How often each kind strikes, in times a second."""
        self._kinds = kinds

    async def rage(self, for_s: float) -> None:
        """Do harm for some time, then make good all that was done."""
        rate = sum(self.rates.values())
        try:
            async with asyncio.timeout(for_s), asyncio.TaskGroup() as harms:
                while rate:
                    await asyncio.sleep(self._rng.expovariate(rate))
                    (kind,) = self._rng.choices([*self.rates], weights=[*self.rates.values()])
                    harms.create_task(self._kinds[kind]())
                await asyncio.sleep(for_s)
        except TimeoutError:
            self.heal()

    def heal(self) -> None:
        """Make good: all is up, runs and is connected."""
        world = self._world
        world.trace("heal")
        world.network.heal()
        for host in world.hosts.values():
            host.boot()
            for process in host.processes.values():
                self._revive(process)

    async def _kill(self) -> None:
        if process := self._victim():
            process.kill()
            await self._while()
            self._revive(process)

    async def _crash(self) -> None:
        if process := self._victim():
            process.host.crash()
            await self._while()
            self._boot(process.host)

    async def _cut_power(self) -> None:
        """Let the power go in the midst of a disk operation, if there is one in time."""
        if process := self._victim():
            self._world.trace("power goes soon", process=process.name)
            process.disk.lose_power_after(self._rng.randrange(1, 30))
            try:
                await asyncio.wait_for(process.ended.wait(), self._rng.expovariate(1.0 / LASTS_S))
            except TimeoutError:
                pass
            finally:
                # It must not go later, when all is said to be well.
                process.host.crash()
            await self._while()
            self._boot(process.host)

    async def _pause(self) -> None:
        if process := self._victim():
            process.pause()
            await self._while()
            process.resume()

    async def _partition(self) -> None:
        if not (pair := self._two_hosts()):
            return
        source, target = pair
        both = self._rng.random() < LEFT_OUT
        self._world.trace("partition", source=source, target=target, both=both)
        self._world.network.block(source, target, both=both)
        await self._while()
        self._world.trace("partition ends", source=source, target=target)
        self._world.network.unblock(source, target)

    async def _clog(self) -> None:
        if not (pair := self._two_hosts()):
            return
        source, target = pair
        for_s = self._rng.expovariate(1.0 / LASTS_S)
        self._world.trace("clog", source=source, target=target, for_s=round(for_s, 3))
        self._world.network.clog(source, target, for_s=for_s)

    async def _narrow(self) -> None:
        if not (pair := self._two_hosts()):
            return
        source, target = pair
        bytes_per_s = self._rng.randrange(10_000, 1_000_000)
        self._world.trace("narrow", source=source, target=target, bytes_per_s=bytes_per_s)
        self._world.network.narrow(source, target, bytes_per_s=bytes_per_s)
        await self._while()
        self._world.network.narrow(source, target, bytes_per_s=0)

    async def _set_clock(self) -> None:
        host = self._rng.choice([*self._world.hosts.values()])
        step_s = round(self._rng.gauss(0.0, 100.0), 3)
        self._world.trace("clock", host=host.name, step_s=step_s)
        self._world.count("clock")
        host.clock.step(step_s)
        host.clock.drift(self._rng.gauss(0.0, 0.001))

    async def _while(self) -> None:
        await asyncio.sleep(self._rng.expovariate(1.0 / LASTS_S))

    def _victim(self) -> Process | None:
        processes = [
            process
            for host in self._world.hosts.values()
            for process in host.processes.values()
            if process.alive
        ]
        return self._rng.choice(processes) if processes else None

    def _two_hosts(self) -> list[str]:
        hosts = [*self._world.hosts]
        return self._rng.sample(hosts, 2) if len(hosts) > 1 else []

    def _boot(self, host: Host) -> None:
        host.boot()
        for process in host.processes.values():
            self._revive(process)

    def _revive(self, process: Process) -> None:
        process.resume()
        if not process.alive and not process.finished:
            process.restart()
