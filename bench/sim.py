"""How fast the simulator turns: an echo between two simulated hosts.

What is counted are callbacks that a loop has run: a round trip is one for the request, one for the
answer, and one for the task that waits for it. Time is that of the core alone, since whoever plays
many seeds plays them on all cores.
"""

import asyncio
import statistics
from pathlib import Path

import msgspec

from bench.harness import Claim, cpu_s, progress
from roost.host.net import Address
from roost.host.seams import Seams
from roost.sim.world import World

SERVER = Address("server", 7)
BAR_PER_S = 200_000.0
CONNECTIONS = 8
MESSAGE = bytes(100)
ROUNDS = 5


class Turns(msgspec.Struct, frozen=True):
    """What one round counted."""

    callbacks: int
    virtual_s: float


def run(quick: bool, folder: Path) -> list[Claim]:  # noqa: ARG001, FBT001  every benchmark has this form
    """Measure the echo in some rounds, and take the median."""
    round_trips = (20_000 if quick else 100_000) // CONNECTIONS * CONNECTIONS
    rates = []
    counted = []
    for number in range(ROUNDS):
        took_s = cpu_s(lambda: counted.append(echo(round_trips)))
        rates.append(counted[-1].callbacks / took_s)
        progress(f"  round {number + 1}/{ROUNDS}: {rates[-1]:,.0f} callbacks/s")
    return [
        Claim(
            name="sim_callbacks_per_s",
            value=statistics.median(rates),
            bar=BAR_PER_S,
            better="higher",
            detail={
                "rounds": rates,
                "callbacks": counted[0].callbacks,
                "virtual_s": counted[0].virtual_s,
                "round_trips": round_trips,
                "connections": CONNECTIONS,
                "in_flight_per_connection": 1,
                "message_bytes": len(MESSAGE),
            },
        )
    ]


def echo(round_trips: int) -> Turns:
    """Let clients of one host ask another so often, and count what that took."""
    with World(0) as world:

        async def story() -> None:
            world.host("server").start("server", _serve)
            client = world.host("client").start("client", ask)
            await client.ended.wait()

        async def ask(seams: Seams) -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(_ask(seams, round_trips // CONNECTIONS))

        world.run(story)
        return Turns(world.timeline.callbacks, world.now)


async def _serve(seams: Seams) -> None:
    await seams.net.listen(_Server, SERVER)
    await asyncio.get_running_loop().create_future()


async def _ask(seams: Seams, times: int) -> None:
    client = _Client()
    transport = await seams.net.connect(lambda: client, SERVER)
    for _ in range(times):
        client.answer = asyncio.get_running_loop().create_future()
        transport.write(MESSAGE)
        await client.answer
    transport.close()


class _Server(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write

    def data_received(self, data: bytes) -> None:
        self._write(data)


class _Client(asyncio.Protocol):
    """Hands each answer to who waits for it."""

    answer: asyncio.Future[bytes]

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)
