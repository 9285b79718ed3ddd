"""A simulated machine on which a node's store lives, one life after the other.

A life is a coroutine that gets the machine's seams. It ends as SIGKILL ends a process: unless it
stopped its store, the next one finds the folder as it was left. `crash` takes the power away from
what was not synced; `Machine.disk` breaks in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from roost.errors import RoostError
from roost.host.log import Log, Memory
from roost.host.metrics import JournalMetrics, NodeMetrics
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.node.ledgers import Add
from roost.node.space import Limits
from roost.node.store import NodeSettings, Store
from roost.node.views import Chunk
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults, Keep
from roost.sim.world import Process, World
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import HEAD_BYTES, encode_entry
from roost.wire.messages import READ_BYTES_MAX, Read

T = TypeVar("T")

FOLDER: Final = Path("/node")
UUID: Final = b"0123456789abcdef"
SEGMENT_BYTES: Final = 8192
SETTINGS: Final = NodeSettings(
    journal=JournalSettings(
        segment_bytes=SEGMENT_BYTES, reserve_bytes=1024, record_bytes_max=4096, retry_s=1.0
    ),
    limits=Limits(
        memory_bytes_max=1 << 20,
        journal_bytes_max=1 << 20,
        queued_bytes_max=1 << 20,
        free_bytes_min=0,
    ),
    flush_workers=2,
    files_max=4,
)
"""Small enough for a simulated disk, and no flush before somebody asks for one."""

EAGER: Final = msgspec.structs.replace(
    SETTINGS,
    journal=msgspec.structs.replace(SETTINGS.journal, quick_s=0.0),
    limits=msgspec.structs.replace(
        SETTINGS.limits, memory_bytes_max=8000, journal_bytes_max=8 * SEGMENT_BYTES
    ),
)
"""Flushes all the time, and never waits for a sync, so that time passes."""


class PowerWent(Exception):
    """The machine has lost its power in the middle of a life."""


class Machine:
    """One machine with one program and one disk."""

    def __init__(self, seed: int = 0, faults: DiskFaults | None = None) -> None:
        self.world: Final = World(seed)
        self.host: Final = self.world.host("node", faults or DiskFaults())
        self._program: Callable[[Seams], Coroutine[Any, Any, Any]]
        self._outcome: Any = None
        self._error: Exception | None = None
        self.process: Final = Process(self.host, "node", self._main)
        self.host.processes["node"] = self.process
        self.disk.make_folder(FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.world.close()

    @property
    def disk(self) -> SimDisk:
        """The disk of this machine."""
        return self.process.disk

    def live(self, program: Callable[[Seams], Coroutine[Any, Any, T]]) -> T:
        """Run a program until it ends; raises what it raised, or `PowerWent`."""
        self._program = program
        self._outcome = self._error = None

        async def story() -> None:
            self.host.boot()
            self.process.start()
            await self.process.ended.wait()

        self.world.run(story)
        if self._error is not None:
            raise self._error
        if not self.process.finished:
            raise PowerWent
        self.process.finished = False
        outcome: T = self._outcome
        return outcome

    def crash(self, keep: Keep | None = None) -> None:
        """Take the power away, and bring it back."""
        self.host.crash(keep)
        self.host.boot()

    async def _main(self, seams: Seams) -> None:
        try:
            self._outcome = await self._program(seams)
        except Exception as error:  # noqa: BLE001 (whoever called `live` gets it)
            self._error = error


def once(program: Callable[[Seams], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """Run a program on a machine of its own."""
    with Machine(seed) as machine:
        return machine.live(program)


async def opened(
    seams: Seams,
    settings: NodeSettings = SETTINGS,
    *,
    log: Log | None = None,
    metrics: NodeMetrics | None = None,
    folder: Path = FOLDER,
) -> Store:
    """Open a store."""
    return await Store.open(
        folder,
        settings,
        uuid=UUID,
        seams=seams,
        log=log or Memory(),
        metrics=metrics or NodeMetrics(),
        journal_metrics=JournalMetrics(),
    )


def payload(entry: int, size: int = 20) -> bytes:
    """Make the payload that an entry has in these tests."""
    return (b"%d " % entry).ljust(size, b".")


def an_add(
    ledger: int,
    entry: int,
    content: bytes | None = None,
    *,
    epoch: int = 1,
    lac: int | None = None,
    recovery: bool = False,
    sink: "Told",
    tag: int = 0,
) -> Add:
    """Make an add of an entry; its payload tells the entry unless it is given."""
    if lac is None:
        lac = -1 if recovery else entry - 1
    block = encode_entry(ledger, entry, payload(entry) if content is None else content)
    return Add(
        LedgerId(ledger), EntryId(entry), Epoch(epoch), EntryId(lac), block, recovery, sink, tag
    )


class Told:
    """A sink that remembers what it was told, and in which order."""

    def __init__(self) -> None:
        self.tags: list[int] = []
        self.errors: dict[int, RoostError] = {}
        self._news = asyncio.Event()

    def stored(self, tag: int) -> None:
        """Remember that an add is durable."""
        self.tags.append(tag)
        self._news.set()

    def refused(self, tag: int, error: RoostError) -> None:
        """Remember why it is not."""
        self.tags.append(tag)
        self.errors[tag] = error
        self._news.set()

    def settle(self) -> None:
        """Do nothing: who waits was told already."""

    async def wait(self, count: int) -> None:
        """Wait until so many adds were answered."""
        while len(self.tags) < count:
            self._news.clear()
            await self._news.wait()


async def add(
    store: Store,
    ledger: int,
    entry: int,
    content: bytes | None = None,
    *,
    epoch: int = 1,
    lac: int | None = None,
    recovery: bool = False,
) -> None:
    """Add one entry and wait for it; raises what refused it."""
    told = Told()
    store.add(an_add(ledger, entry, content, epoch=epoch, lac=lac, recovery=recovery, sink=told))
    await told.wait(1)
    if told.errors:
        raise told.errors[0]


async def add_all(
    store: Store, ledger: int, entries: Sequence[int], *, size: int = 20, recovery: bool = False
) -> None:
    """Add entries, as many at once as the journal of these settings has room for."""
    told = Told()
    for count, entry in enumerate(entries, 1):
        content = payload(entry, size)
        store.add(an_add(ledger, entry, content, recovery=recovery, sink=told, tag=entry))
        if count % (2000 // (100 + size) or 1) == 0:
            await told.wait(count)
    await told.wait(len(entries))
    assert not told.errors, told.errors


def a_read(
    ledger: int,
    first: int,
    upto: int,
    *,
    bytes_max: int = READ_BYTES_MAX,
    fence: int | None = None,
    wait_s: float = 0.0,
    lac: int | None = None,
) -> Read:
    """Make a read."""
    return Read(
        ledger=LedgerId(ledger),
        first=EntryId(first),
        upto=EntryId(upto),
        bytes_max=bytes_max,
        fence=None if fence is None else Epoch(fence),
        wait_s=wait_s,
        lac=None if lac is None else EntryId(lac),
    )


class Seen(msgspec.Struct):
    """What reads said about a range of ids."""

    payloads: dict[int, bytes] = {}
    suspects: list[int] = []
    absent: list[int] = []


def found(chunk: Chunk) -> dict[int, bytes]:
    """Take a chunk apart, each block checked by hand."""
    payloads: dict[int, bytes] = {}
    for piece in chunk.pieces:
        blocks, at = bytes(piece.blocks), 0
        for entry in range(piece.first, piece.first + piece.count):
            size = int.from_bytes(blocks[at + 8 : at + 12], "little")
            ledger = int.from_bytes(blocks[at + 12 : at + 20], "little")
            content = blocks[at + HEAD_BYTES : at + HEAD_BYTES + size]
            assert blocks[at : at + HEAD_BYTES + size] == encode_entry(ledger, entry, content)
            assert chunk.first <= entry < chunk.before
            assert entry not in payloads
            payloads[entry] = content
            at += HEAD_BYTES + size
        assert at == len(blocks)
    return payloads


async def read_all(
    store: Store, ledger: int, first: int, upto: int, *, bytes_max: int = READ_BYTES_MAX
) -> Seen:
    """Read a range piece by piece to its end."""
    seen = Seen()
    while first <= upto:
        chunk = await store.read(a_read(ledger, first, upto, bytes_max=bytes_max))
        assert chunk.first == first < chunk.before <= upto + 1
        payloads = found(chunk)
        seen.payloads |= payloads
        seen.suspects += chunk.suspects
        assert not payloads.keys() & {*chunk.suspects}
        told = payloads.keys() | {*chunk.suspects}
        seen.absent += [entry for entry in range(first, chunk.before) if entry not in told]
        first = chunk.before
    return seen


async def refusal(awaitable: Awaitable[object]) -> str:
    """Tell what refused something, in a word."""
    try:
        await awaitable
    except RoostError as error:
        return type(error).__name__
    return "done"


async def eased(store: Store) -> None:
    """Wait until there is not too much under way, as a server does."""
    ease = asyncio.Event()
    store.on_pressure = ease.set
    if store.why_slow:
        await ease.wait()


async def flushed(store: Store) -> None:
    """Bring everything into files."""
    await store.upkeep.flush_all()
