"""A deterministic world: machines, the processes on them, and all that may happen to them.

    world = World(seed)
    node = world.host("node")
    server = node.start("server", main)      # main(seams) is production code
    world.run(story)                         # story() starts, breaks, heals and looks on

Each process has an event loop and seams of its own; nothing but the network joins two of them. The
story runs beside the world, on a loop that nothing happens to. All chance comes from one seed, by
the name of who draws it: another host or another fault does not change what the rest draws.

A process ends as in reality: *killed*, it leaves its disk's page cache, and its kernel ends its
connections; when the *power* goes, its machine forgets what was not synced and answers nothing.
Neither runs any `finally` of the program. A *paused* process stands still while time goes on.

What is simulated is one program on each disk: two processes of one host have a disk each, and meet
over the network. A process that ends by itself, or by an exception, is gone for its peers as a
killed one; the exception fails the run.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from hashlib import blake2b
from random import Random
from typing import Any, Self, TypeVar

from roost.host.seams import Seams
from roost.sim.clock import SimClock
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults, Keep
from roost.sim.loop import SimLoop
from roost.sim.medium import Medium
from roost.sim.net import Network, SimNet
from roost.sim.tasks import SimTasks
from roost.sim.timeline import Timeline
from roost.sim.trace import Trace

T = TypeVar("T")

_HEALTHY = DiskFaults()
# How coarsely the loop of a process looks at its timers; drawn for each life.
TICKS_S = (0.0, 0.001, 0.001, 0.01)


Main = Callable[[Seams], Coroutine[Any, Any, None]]
"""What a process runs, from its start to its end."""


class World:
    """All machines, what lies between them, and the one seed behind everything."""

    def __init__(
        self,
        seed: int,
        *,
        say: Callable[[str], None] | None = None,
        details: bool = False,
    ) -> None:
        self.seed = seed
        self.hosts: dict[str, Host] = {}
        self.faults: dict[str, int] = {}
        """What was done to the world, and how often."""
        self.violations: list[str] = []
        """The promises that were broken."""
        self.step_mean_s = 50e-6
        """How long a step of a worker's job waits on average."""
        self._trace = Trace(say, details=details)
        self.timeline = Timeline(self.rng("time"))
        self._story = SimLoop(self.timeline, name="story")
        kernel = SimLoop(self.timeline, name="kernel")
        self._medium = Medium(
            self.timeline, self.rng("network"), kernel, count=self.count, tell=self.detail
        )
        self.network = Network(self._medium)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def now(self) -> float:
        """The virtual time."""
        return self.timeline.now

    def rng(self, name: str) -> Random:
        """Make a source of chance that depends on the seed and on this name alone."""
        return Random(blake2b(f"{self.seed} {name}".encode(), digest_size=16).digest())

    def host(self, name: str, disk: DiskFaults = _HEALTHY) -> "Host":
        """Make a machine; `disk` says how the disks of its processes misbehave."""
        assert name not in self.hosts, f"there is a host {name} already"
        self.hosts[name] = host = Host(self, name, disk)
        return host

    def trace(self, event: str, **fields: object) -> None:
        """Note an event; what is traced is a part of the history that the fingerprint covers."""
        self._trace.add(self.now, event, fields)

    def detail(self, line: str) -> None:
        """Note something that is only worth reading when one looks closely."""
        self._trace.add_detail(self.now, line)

    def post(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Let something happen at an instant, beside all processes."""
        self._medium.post(when, callback, *args)

    def count(self, fault: str) -> None:
        """Note that something was done to the world."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def violate(self, promise: str) -> None:
        """Note that a promise was broken; the run goes on, and has failed."""
        self.violations.append(promise)
        self.trace("VIOLATION", promise=promise)

    def run(self, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Let the world turn until the story ends; raises what nobody handled in it."""
        result = self._story.run_until_complete(story())
        self.timeline.settle()
        return result

    def fingerprint(self) -> str:
        """Digest the history: events, instants, and the bytes that went over the network."""
        return self._trace.fingerprint(
            self.timeline.fingerprint(), self._medium.carried.to_bytes(4, "big")
        )

    def close(self) -> None:
        """Unwind whatever is still suspended; nothing of that is part of the history."""
        self._trace.end()
        for host in self.hosts.values():
            for process in host.processes.values():
                process.bury()
        for loop in self.timeline.loops:
            loop.close()


class Host:
    """One machine: it has power or not, a clock, and processes."""

    def __init__(self, world: World, name: str, disk: DiskFaults) -> None:
        self.world = world
        self.name = name
        self.disk_faults = disk
        self.clock = SimClock(world.timeline)
        self.processes: dict[str, Process] = {}
        self.up = True
        self.dark_at = 0.0
        """When the power went last."""
        self._drawn = True

    def start(self, name: str, main: Main) -> "Process":
        """Start a program that was never started here before."""
        assert name not in self.processes, f"{self.name} has a process {name}: restart it"
        self.processes[name] = process = Process(self, name, main)
        process.start()
        return process

    def crash(self, keep: Keep | None = None) -> None:
        """Lose power: what was not synced is drawn, or kept as said, and nobody is told."""
        self.go_dark()
        self._drawn = True
        self.world.trace("crash", host=self.name)
        for process in self.processes.values():
            process.disk.crash(keep)

    def boot(self) -> None:
        """Come back after the power went, with nothing running."""
        if not self.up:
            if not self._drawn:
                self.crash()
            self.up = True
            self.clock.rebooted()
            self.world.network.power(self.name, up=True)
            self.world.trace("boot", host=self.name)

    def go_dark(self) -> None:
        """End all processes as the power goes; `crash` then says what it did to the disks."""
        if self.up:
            self.up = False
            self.dark_at = self.world.now
            self._drawn = False
            self.world.network.power(self.name, up=False)
            self.world.trace("power", host=self.name)
            self.world.count("power")
            for process in self.processes.values():
                process.end(SimNet.vanish)


class Process:
    """One program on a host; it may be ended and started again."""

    def __init__(self, host: Host, name: str, main: Main) -> None:
        self.name = f"{host.name}/{name}"
        self.host = host
        self.alive = False
        self.paused = False
        self.finished = False
        """Whether the program came to its own end."""
        self.lives = 0
        self.ended = asyncio.Event()
        """Set while it is not alive."""
        world = host.world
        self.disk = SimDisk(
            world.rng(f"{self.name} disk"), host.disk_faults, trace=self._on_disk_operation
        )
        self.disk.when_halted(self._on_disk_halted)
        self._main = main
        self._remains: list[SimTasks] = []

    def start(self) -> None:
        """Start the program, on a machine that has power."""
        host, world = self.host, self.host.world
        assert host.up, f"{host.name} has no power"
        assert not self.alive, f"{self.name} runs"
        self.lives += 1
        self.alive = True
        self.paused = False
        self.ended.clear()
        rng = world.rng(f"{self.name} life {self.lives}")
        self._loop = SimLoop(world.timeline, name=self.name, tick_s=rng.choice(TICKS_S))
        self._net = world.network.attach(host.name, self._loop)
        self._tasks = SimTasks(self._loop, rng, step_mean_s=world.step_mean_s)
        seams = Seams(host.clock, self.disk, self._net, rng, self._tasks)
        world.trace("start", process=self.name, life=self.lives)
        # A loop refers to its tasks only weakly, and nothing else refers to this one.
        self._task = self._loop.create_task(self._run(seams), name=self.name, context=Context())

    def restart(self) -> None:
        """Start the program again, after whatever has ended it."""
        self.host.boot()
        self.start()

    def kill(self) -> None:
        """End it as SIGKILL does."""
        if self.alive:
            self.host.world.trace("kill", process=self.name)
            self.host.world.count("kill")
            self.end(SimNet.kill)
            self.disk.kill()

    def pause(self) -> None:
        """Stop it as SIGSTOP does."""
        if self.alive and not self.paused:
            self.paused = True
            self.host.world.trace("pause", process=self.name)
            self.host.world.count("pause")
            self._loop.suspend()

    def resume(self) -> None:
        """Let it go on."""
        if self.alive and self.paused:
            self.paused = False
            self.host.world.trace("resume", process=self.name)
            self._loop.resume()

    def end(self, fate: Callable[[SimNet], None]) -> None:
        """Let nothing of it run again; `fate` is what becomes of its connections."""
        if self.alive:
            self.alive = False
            self._loop.kill()
            self._remains.append(self._tasks)
            fate(self._net)
            self.ended.set()

    def bury(self) -> None:
        """Unwind what was suspended for ever."""
        self.end(SimNet.vanish)
        self.disk.halt()
        for tasks in self._remains:
            tasks.bury()

    async def _run(self, seams: Seams) -> None:
        try:
            await self._main(seams)
        except Exception as error:  # noqa: BLE001 (it ends the process, and the run)
            self._loop.call_exception_handler(
                {"message": f"{self.name} ended by an exception", "exception": error}
            )
        self.finished = True
        self.host.world.trace("exit", process=self.name)
        self.end(SimNet.kill)
        self.disk.kill()

    def _on_disk_operation(self, line: str) -> None:
        self.host.world.detail(f"{self.name} disk {line}")

    def _on_disk_halted(self) -> None:
        # A disk that halts under a program that runs has lost its power, and so has the machine.
        if self.alive:
            self.host.go_dark()
