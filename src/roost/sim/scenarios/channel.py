"""The file channel on a machine that fails: the production code, through its asyncio face.

One process opens a channel, sends and receives for a while, and ends: by closing, by SIGKILL, by
a loss of power at some instant or at some operation of the disk. Then it is started again, many
times. Each seed draws how the channel is set up and how the disk misbehaves; most kinds of harm
are absent in most seeds, so that each also meets the others alone. At the end everything heals,
and every receiver must come to the end. `roost.sim.checkers.Book` knows what is promised.
"""

import asyncio
import contextlib
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec

from roost.channel.async_receiver import AsyncReceiver
from roost.channel.channel import FileChannel
from roost.channel.sender import AsyncSender
from roost.errors import Closed, Corrupt, NoRoom, RoostError, Trimmed, Unavailable, Unknown
from roost.host.seams import Seams
from roost.segments.format import FRAME_BYTES, HEADER_BYTES, decode_header, parse_name
from roost.segments.windows import Windows
from roost.sim.checkers import Book, Violation
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from roost.sim.play import Options, Report, play
from roost.sim.world import Process, World
from roost.types import Durability

FOLDER: Final = Path("/channel")
AUDIT: Final = "audit"
DEFINITE: Final = (NoRoom, Unavailable, Closed)
Ending = Literal["close", "kill", "power", "power at an operation"]


def run(seed: int, options: Options) -> Report:
    """Play it with one seed."""
    return play("channel", seed, options, story)


async def story(world: World) -> dict[str, int]:
    """Let one seed's channel live, end, and heal."""
    told = Story(world)
    world.trace("plan", **msgspec.structs.asdict(told.plan))
    await told.play()
    return {"lives": told.opened, "acked": told.book.acked, "delivered": told.book.delivered}


class Plan(msgspec.Struct, frozen=True):
    """What one seed does."""

    durability: Durability
    compression: str
    segment_bytes: int
    window_bytes: int
    message_bytes: int
    lives: int
    senders: int
    receivers: list[tuple[str, bool]]
    messages: int
    cancels: float
    harms: bool
    disk: DiskFaults


def draw(rng: Random) -> Plan:
    """Draw a plan; each kind of fault is absent in most seeds."""

    def sometimes(chance: float, most: float) -> float:
        return rng.random() * most if rng.random() < chance else 0.0

    names = ["first", "second", "third"][: rng.randrange(1, 4)]
    return Plan(
        durability=rng.choice(["fsync", "fsync", "interval", "os"]),
        compression=rng.choice(["off", "off", "snappy", "gzip", "zstd"]),
        segment_bytes=rng.choice([200, 1_000, 3_000, 12_000]),
        window_bytes=rng.choice([4_096, 8_192]),
        message_bytes=rng.choice([20, 100, 400, 3_000]),
        lives=rng.randrange(2, 6),
        senders=rng.randrange(1, 4),
        receivers=[(name, rng.random() < 0.5) for name in names],
        messages=rng.randrange(5, 40),
        cancels=sometimes(0.3, 0.3),
        harms=rng.random() < 0.15,
        disk=DiskFaults(
            read_fails=sometimes(0.1, 0.01),
            write_fails=sometimes(0.1, 0.02),
            sync_fails=sometimes(0.25, 0.05),
            writes_back=sometimes(0.3, 0.2),
            evicts=sometimes(0.3, 0.1),
            tears=sometimes(0.2, 0.5),
            capacity_bytes=rng.choice([1 << 40, 1 << 40, 1 << 40, 200_000]),
            mapping="" if rng.random() < 0.7 else "the plan says so",
        ),
    )


class Story:
    """One seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("story")
        self.plan = draw(world.rng("plan"))
        self.book = Book(fsync=self.plan.durability == "fsync")
        self._sent = 0
        self._power = False
        self._heal = False
        self.opened = 0
        self._clean = False

    async def play(self) -> None:
        """Let the process live and end as often as the plan says, then heal and look."""
        host = self._world.host("machine", self.plan.disk)
        process = host.start("owner", self._life)
        for _ in range(self.plan.lives):
            await self._end(process)
            if self.plan.harms and self._clean and self._rng.random() < 0.5:
                self._harm(process)
            process.restart()
        await self._end(process)
        process.disk.faults = DiskFaults(mapping=self.plan.disk.mapping)
        self._heal = True
        process.restart()
        await process.ended.wait()

    async def _end(self, process: Process) -> None:
        """Wait until the process ends, and see to it that it does."""
        ending: Ending = self._rng.choice(["close", "kill", "power", "power at an operation"])
        self._world.count(ending)
        if ending == "power at an operation":
            process.disk.lose_power_after(self._rng.randrange(1, 300))
        elif ending != "close":
            await asyncio.sleep(self._rng.random() ** 2 * 0.3)
            if ending == "kill":
                process.kill()
            elif process.alive:
                process.host.crash()
        await process.ended.wait()
        self._power = self._power or not process.host.up
        process.host.boot()

    def _harm(self, process: Process) -> None:
        """Flip a bit of a segment of a channel that was closed."""
        disk = process.disk
        faults, disk.faults = disk.faults, DiskFaults()
        self._flip_a_bit(disk)
        disk.faults = faults

    def _flip_a_bit(self, disk: SimDisk) -> None:
        names = [name for name in disk.names(FOLDER) if parse_name(name) is not None]
        if not names or self.opened == 0:
            return
        path = FOLDER / self._rng.choice(names)
        packed = path.suffix == ".z"
        file = disk.open(path)
        size = file.size()
        header = decode_header(file.read_at(0, HEADER_BYTES), packed=packed)
        file.close()
        if size <= HEADER_BYTES:
            return
        offset = self._rng.randrange(HEADER_BYTES, size)  # the header has no checksum to find it by
        disk.rot(path, offset, self._rng.randrange(8))
        self._world.trace("harm", file=path.name, offset=offset)
        at = header.begin + offset - HEADER_BYTES
        if packed:
            self.book.harmed(header.begin, header.end or header.begin + size)
        else:
            self.book.harmed(at, at + 1)

    # One life of the process

    async def _life(self, seams: Seams) -> None:
        try:
            channel = FileChannel[bytes](
                FOLDER,
                durability=self.plan.durability,
                compression=self.plan.compression,
                segment_bytes=self.plan.segment_bytes,
                message_bytes_max=8_000,
                interval_s=0.02,
                disk=seams.disk,
                tasks=seams.tasks,
                clock=seams.clock,
                holder="the owner",
                windows=Windows(bytes_min=4_096, bytes_max=self.plan.window_bytes),
            )
        except (Unavailable, NoRoom) as error:
            self._world.trace("not opened", error=type(error).__name__)
            return
        try:
            self._check_opened(channel)
            await self._use(channel)
            sound = channel.stat().failure == ""
            channel.close()
            self._clean = sound
        except Violation as violation:
            self._world.violate(str(violation))
        except (Unknown, Unavailable) as error:
            self._world.trace("failed", error=str(error))

    def _check_opened(self, channel: FileChannel[bytes]) -> None:
        """Compare what was recovered with what is known, from the head to the tail."""
        self.opened += 1
        self._clean = False
        stat = channel.stat()
        self._world.trace("opened", head=stat.head, tail=stat.tail, findings=len(stat.findings))
        # What a failed sync has not written, the system may forget at any time.
        lossy = self._power or self.plan.disk.sync_fails > 0
        self.book.restarted(lossy=lossy, tail=stat.tail)
        self._power = False
        rx = channel.async_rx(AUDIT)
        content: list[tuple[int, bytes]] = []
        position = rx.position
        try:
            for payload in rx.peek_many(1_000_000):
                content.append((position, payload))
                position += FRAME_BYTES + len(payload)
        except Corrupt as error:
            self.book.corrupt(str(error))
            return
        finally:
            rx.close()
            channel.remove_receiver(AUDIT)
        self.book.audited(content, head=stat.head, tail=stat.tail)

    async def _use(self, channel: FileChannel[bytes]) -> None:
        """Send and receive until the plan's messages are sent, or something fails for good."""
        rng = self._world.rng(f"life {self.opened}")
        readers = [
            asyncio.create_task(self._receive(channel, name, auto_ack=auto_ack, rng=rng))
            for name, auto_ack in self.plan.receivers
        ]
        writers = [
            asyncio.create_task(self._send(channel, rng))
            for _ in range(0 if self._heal else self.plan.senders)
        ]
        await asyncio.gather(*writers)
        if self._heal:
            channel.sync()
        await asyncio.gather(*readers)
        if self._heal and channel.stat().failure == "":
            self.book.drained(tail=channel.stat().tail)

    async def _send(self, channel: FileChannel[bytes], rng: Random) -> None:
        tx = channel.async_tx()
        for _ in range(rng.randrange(self.plan.messages)):
            payloads = [self._payload(rng) for _ in range(rng.choice([1, 1, 1, 2, 7]))]
            try:
                async with asyncio.timeout(0.001 if rng.random() < self.plan.cancels else None):
                    await self._send_once(tx, payloads)
            except TimeoutError:
                pass
            except Unknown:
                return
            self.book.durable(channel.stat().durable)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.01)

    def _payload(self, rng: Random) -> bytes:
        self._sent += 1
        payload = b"%d:" % self._sent + rng.randbytes(rng.randrange(1, self.plan.message_bytes))
        self.book.offered(payload)
        return payload

    async def _send_once(self, tx: AsyncSender[bytes], payloads: list[bytes]) -> None:
        try:
            if len(payloads) == 1:
                position = await tx.send(payloads[0])
            else:
                position = await tx.send_many(payloads)
        except DEFINITE:
            for payload in payloads:
                self.book.refused(payload)
            return
        for payload in payloads:
            self.book.accepted(payload, position)
            position += FRAME_BYTES + len(payload)

    async def _receive(
        self, channel: FileChannel[bytes], name: str, *, auto_ack: bool, rng: Random
    ) -> None:
        """Receive as one consumer, until nothing comes any more."""
        try:
            rx = channel.async_rx(name, auto_ack=auto_ack)
        except RoostError:
            return
        if not self.book.knows(name):
            self.book.reader(name, auto_ack=auto_ack, start=rx.position)
        taken: list[bytes] = []
        quiet = 0
        while quiet < (20 if self._heal else 4):
            more = await self._try_to_receive(channel, rx, rng)
            quiet += more is None
            taken += more or []
            if not auto_ack and taken and (self._heal or rng.random() < 0.5):
                taken = await self._acknowledge(rx, taken, rng)
            if rng.random() < 0.05 and not self._heal:
                rx.close()
                rx, taken = channel.async_rx(name, auto_ack=auto_ack), []
                self.book.reopened(name)

    async def _try_to_receive(
        self, channel: FileChannel[bytes], rx: AsyncReceiver[bytes], rng: Random
    ) -> list[bytes] | None:
        """Receive, or find out why not; None if nothing came."""
        try:
            return await self._receive_once(rx, rng)
        except TimeoutError:
            self.book.asked(rx.name, 0)
        except (Corrupt, Trimmed) as error:
            if not channel.stat().failure:
                self.book.corrupt(str(error))
                position = rx.position
                self.book.skipped(rx.name, rx.skip_corrupt(), position=position)
                return []
            # What was never durable may be forgotten under a reader's hands.
        except Unknown:
            self.book.in_doubt(rx.name)
        except Unavailable:
            await asyncio.sleep(0.01)
        return None

    async def _receive_once(self, rx: AsyncReceiver[bytes], rng: Random) -> list[bytes]:
        count = rng.choice([1, 1, 5, 50])
        self.book.asked(rx.name, count)
        position = rx.position
        hasty = rng.random() < self.plan.cancels and not self._heal
        timeout = 0.0005 if hasty else 0.03
        if rng.random() < 0.5:
            payloads = [await rx.recv(timeout)]
        else:
            payloads = await rx.recv_many(count, timeout)
        self.book.received(rx.name, payloads, position=position)
        return payloads

    async def _acknowledge(
        self, rx: AsyncReceiver[bytes], taken: list[bytes], rng: Random
    ) -> list[bytes]:
        count = len(taken) if self._heal else rng.randrange(len(taken)) + 1
        self.book.acknowledging(rx.name, taken[:count])
        with contextlib.suppress(Unknown):
            await rx.ack(count)
            self.book.acknowledged(rx.name)
        return taken[count:]
