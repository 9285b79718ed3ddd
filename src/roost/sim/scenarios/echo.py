"""Clients ask an echo over a bad network; no answer is wrong, and none is owed in the end.

It exercises the simulator with the two kinds of protocols that production code has: the server is
an `asyncio.BufferedProtocol` that writes no faster than its client reads, the clients pipeline
their requests and connect again whenever a connection is lost or silent.
"""

import asyncio
import struct
from collections import deque
from random import Random
from typing import Self

from roost.host.net import Address
from roost.host.seams import Seams
from roost.sim.nemesis import Nemesis, draw_net_faults
from roost.sim.play import Options, Report, play
from roost.sim.world import World

SERVER = Address("server", 7)
CLIENTS = 3
REQUESTS = 60
IN_FLIGHT_MAX = 8
RAGE_S = 30.0
# How long a client waits for any answer before it connects again.
PATIENCE_S = 3.0
# When all faults are over, every answer has to come within this time.
LIVENESS_S = 120.0

_LENGTH = struct.Struct(">I")


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("echo", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let faults rage while clients ask, then heal everything and see that all is answered."""
    rng = world.rng("story")
    world.network.misbehave(draw_net_faults(rng))
    world.host(SERVER.host).start("echo", serve)
    tasks = [Task(world, f"client-{number}") for number in range(CLIENTS)]
    for task in tasks:
        world.host(task.name).start("asks", task.work)

    await Nemesis(world, rng).rage(RAGE_S)
    try:
        async with asyncio.timeout(LIVENESS_S):
            for task in tasks:
                await task.done.wait()
    except TimeoutError:
        for task in tasks:
            if task.owed:
                world.violate(f"{task.name}: answers {[*task.owed]} never came")
    return {
        "answered": sum(REQUESTS - len(task.owed) for task in tasks),
        "connections": sum(task.connections for task in tasks),
    }


async def serve(seams: Seams) -> None:
    """Echo whatever comes, to everybody, for ever."""
    await seams.net.listen(_Echo, SERVER)
    await asyncio.get_running_loop().create_future()


class _Echo(asyncio.BufferedProtocol):
    """Sends back what it gets, and stops to read where its client does not."""

    def __init__(self) -> None:
        self._buffer = bytearray(4096)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(memoryview(self._buffer)[:nbytes])

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()


class Task:
    """What one client has to ask, whichever of its lives asks it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.connections = 0
        self.done = asyncio.Event()
        rng = world.rng(name)
        # Requests come up all the time, some of them in bursts.
        self._begins = sorted(rng.uniform(0.0, RAGE_S) for _ in range(REQUESTS))
        self._sizes = [int(10 ** rng.uniform(0.0, 4.5)) for _ in range(REQUESTS)]
        self.owed = dict.fromkeys(range(REQUESTS))
        """The requests that have no answer yet, in order."""

    def request(self, number: int) -> bytes:
        """Make the text of a request; each has its own."""
        return Random(number).randbytes(self._sizes[number])

    def idle_s(self, number: int) -> float:
        """Tell how long it is until a request comes up."""
        return self._begins[number] - self.world.now

    def answered(self, number: int) -> None:
        """Note an answer."""
        self.owed.pop(number, None)
        if not self.owed:
            self.done.set()

    async def work(self, seams: Seams) -> None:
        """Ask until all is answered: the program of a client's process."""
        while self.owed:
            conversation = _Conversation(self)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await seams.net.connect(conversation.itself, SERVER)
            except OSError as error:
                self.world.trace("refused", client=self.name, error=type(error).__name__)
            else:
                self.connections += 1
                self.world.trace("connected", client=self.name, owed=len(self.owed))
                await conversation.hold()
            await asyncio.sleep(seams.rng.uniform(0.0, 0.5))


class _Conversation(asyncio.Protocol):
    """One connection of a client; its answers come in the order of its requests."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._unasked = deque(task.owed)
        self._asked: deque[int] = deque()
        self._text = bytearray()
        self._progress = asyncio.Event()
        self._lost = False

    def itself(self) -> Self:
        """Be the protocol of the one connection that is made for it."""
        return self

    async def hold(self) -> None:
        """Ask until all is answered, or the connection is lost or silent for too long."""
        while (self._asked or self._unasked) and not self._lost:
            self._ask()
            self._progress.clear()
            patience_s = PATIENCE_S if self._asked else self._task.idle_s(self._unasked[0])
            try:
                async with asyncio.timeout(patience_s):
                    await self._progress.wait()
            except TimeoutError:
                if self._asked:
                    self._task.world.trace("silent", client=self._task.name, asked=len(self._asked))
                    break
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._lost:
            self._task.world.violate(f"{self._task.name}: bytes came on a lost connection")
        self._text += data
        while len(self._text) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._text)[0]
            if len(self._text) < end:
                break
            self._on_answer(bytes(self._text[_LENGTH.size : end]))
            del self._text[:end]
        self._ask()
        self._progress.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._task.world.trace("lost", client=self._task.name, error=type(exc).__name__)
        self._lost = True
        self._progress.set()

    def _ask(self) -> None:
        while self._unasked and len(self._asked) < IN_FLIGHT_MAX and not self._lost:
            if self._task.idle_s(self._unasked[0]) > 0:
                break
            number = self._unasked.popleft()
            self._asked.append(number)
            text = self._task.request(number)
            self._transport.write(_LENGTH.pack(len(text)) + text)

    def _on_answer(self, text: bytes) -> None:
        number = self._asked.popleft() if self._asked else -1
        if number < 0 or text != self._task.request(number):
            self._task.world.violate(f"{self._task.name}: answer to {number} is wrong")
        else:
            self._task.answered(number)
