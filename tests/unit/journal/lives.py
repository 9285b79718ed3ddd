"""A journal on a simulated machine, through one life after the other, and what became of it.

The model is what a caller knows: what it appended where, and what it was told to be durable.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from roost.host.disk import Disk
from roost.host.metrics import JournalMetrics
from roost.host.seams import Seams
from roost.journal.chain import Damage, Finding, Opened
from roost.journal.plan import JournalSettings
from roost.journal.record import ADD, HEADS_BYTES, Record
from roost.journal.recover import JournalRecovery
from roost.journal.service import Journal
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults, Keep
from roost.sim.world import World
from roost.types import EntryId, Epoch, LedgerId, Position
from roost.wire.entry import check_entry, encode_entry

FOLDER: Final = Path("/data/journal")
SALVAGE: Final = Path("/data/salvage")
UUID: Final = bytes(range(16))
SMALL: Final = JournalSettings(segment_bytes=4096, reserve_bytes=512, record_bytes_max=2048)
HEALTHY: Final = DiskFaults(file_bytes_max=16 << 10)
TORN: Final = DiskFaults(file_bytes_max=16 << 10, tears=0.3, writes_back=0.05)


class Read(msgspec.Struct, frozen=True):
    """What one recovery gave."""

    records: list[Record]
    damages: list[Damage]
    findings: list[Finding]
    missing: bool
    opened: Opened


def read(disk: Disk, *, replay_from: int = 0, folder: Path = FOLDER, uuid: bytes = UUID) -> Read:
    """Recover a folder, without pause."""
    steps = steps_of(disk, replay_from=replay_from, folder=folder, uuid=uuid)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Read = end.value
            return found


def steps_of(
    disk: Disk, *, replay_from: int = 0, folder: Path = FOLDER, uuid: bytes = UUID
) -> Generator[None, None, Read]:
    """Recover a folder in steps."""
    recovery = JournalRecovery(disk, folder, uuid=uuid, replay_from=Position(replay_from))
    yield from recovery.prepare()
    records = []
    for record in recovery.records():
        records.append(record)
        yield
    return Read(
        records=records,
        damages=recovery.damages,
        findings=recovery.findings,
        missing=recovery.missing,
        opened=recovery.opened,
    )


class Life:
    """One process that has the journal open; `stored` and `lost` are what it was told."""

    def __init__(self, seams: Seams, settings: JournalSettings) -> None:
        self.seams: Final = seams
        self.stored: Final[list[Any]] = []
        self.lost: Final[list[Any]] = []
        self.errors: Final[list[OSError]] = []
        self.metrics: Final = JournalMetrics()
        self.told: Callable[[list[Any]], None] | None = None
        self.worker: Final = seams.tasks.worker("journal")
        self._settings: Final = settings
        self._changed: Final = asyncio.Event()

    async def recover(self, replay_from: int = 0) -> Read:
        """Put the folder right, on the worker."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def job() -> Iterator[None]:
            found = yield from steps_of(self.seams.disk, replay_from=replay_from)
            loop.call_soon_threadsafe(done.set_result, found)

        self.worker.start(job())
        found: Read = await done
        return found

    async def open(self, opened: Opened) -> Journal:
        """Open the journal."""
        journal = Journal(
            self.seams,
            self.worker,
            FOLDER,
            opened,
            settings=self._settings,
            uuid=UUID,
            durable=self._on_durable,
            failed=self._on_failed,
            metrics=self.metrics,
        )
        await journal.start()
        return journal

    async def until_told(self, count: int) -> None:
        """Wait until so many items came back, one way or the other."""
        while len(self.stored) + len(self.lost) < count:
            self._changed.clear()
            await self._changed.wait()

    def _on_durable(self, items: list[Any]) -> None:
        assert items, "told of nothing"
        self.stored.extend(items)
        if self.told is not None:
            self.told(items)
        self._changed.set()

    def _on_failed(self, items: list[Any], error: OSError) -> None:
        assert items, "told of nothing"
        self.lost.extend(items)
        self.errors.append(error)
        self._changed.set()


Work = Callable[[Life], Coroutine[Any, Any, None]]


class Lives:
    """One machine, and the journal on it."""

    def __init__(
        self, seed: int = 0, faults: DiskFaults = HEALTHY, settings: JournalSettings = SMALL
    ) -> None:
        self._world = World(seed)
        self._host = self._world.host("node", faults)
        self._settings = settings
        self._work: Work = self._nothing
        self._process = self._host.start("journal", self._main)
        self._world.run(self._ended)
        self.disk: Final[SimDisk] = self._process.disk
        self.last: Life | None = None

    def live(self, work: Work) -> bool:
        """Let a process do this to its end; False if the power went before."""
        self._work = work
        return self._world.run(self._restarted)

    def crash(self, keep: Keep | None = None) -> None:
        """Lose power, or say what the loss of power did."""
        self._host.crash(keep)
        self._host.boot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._world.close()
        # So that it can be looked at.
        self.disk.kill()

    async def _restarted(self) -> bool:
        self._process.restart()
        await self._process.ended.wait()
        return self._process.finished

    async def _ended(self) -> None:
        await self._process.ended.wait()

    async def _main(self, seams: Seams) -> None:
        self._process.finished = False
        self.last = Life(seams, self._settings)
        await self._work(self.last)

    async def _nothing(self, life: Life) -> None:
        pass


Act = Callable[[Life, Journal], Coroutine[Any, Any, None]]


def play(
    act: Act,
    *,
    settings: JournalSettings = SMALL,
    faults: DiskFaults = HEALTHY,
    before: Callable[[Lives], None] = lambda _: None,
) -> Lives:
    """Let a process do this with a new journal; the disk is there to be looked at."""
    with Lives(3, faults, settings) as lives:

        async def work(life: Life) -> None:
            await act(life, await life.open((await life.recover()).opened))

        before(lives)
        assert lives.live(work)
        return lives


def add(journal: Journal, item: Any = None, size: int = 100, kind: int = ADD) -> Position:
    """Append a record of this size."""
    return journal.append(kind, 1, 0, encode_entry(7, 0, bytes(size - 76)), item)


class Model:
    """What somebody who appends knows of all lives together."""

    def __init__(self) -> None:
        self.appended: Final[dict[int, set[Record]]] = {}
        """What was ever appended at a position; what was never stored may be followed by other
        records there."""
        self.stored: Final[dict[int, Record]] = {}
        """What is durable."""
        self.unneeded_before = 0
        self._entries = 0

    def append(
        self, journal: Journal, size: int, kind: int = ADD, *, recovery: bool = False
    ) -> int:
        """Append a record whose item is itself."""
        entry = self._entries
        self._entries += 1
        payload = b"%d:" % entry + b"x" * max(0, size - 10) if kind == ADD else b""
        record = Record(
            kind=kind,
            recovery=recovery,
            position=journal.tail,
            ledger=LedgerId(7),
            entry=EntryId(entry if kind == ADD else 0),
            epoch=Epoch(entry % 5),
            lac=EntryId(entry - 3),
            block=encode_entry(7, entry if kind == ADD else 0, payload),
        )
        position = journal.append(
            kind, record.epoch, record.lac, record.block, record, recovery=recovery
        )
        assert position == record.position
        self.appended.setdefault(position, set()).add(record)
        return HEADS_BYTES + len(payload)

    def on_stored(self, items: Sequence[Any]) -> None:
        """Note what was told to be durable."""
        self.stored.update({item.position: item for item in items if isinstance(item, Record)})

    def check(self, found: Read, *, replay_from: int | None = None) -> None:
        """See that a recovery gave what is durable, and nothing that nobody appended."""
        start = self.unneeded_before if replay_from is None else replay_from
        at = start
        for record in found.records:
            assert record.position == at, "a record is not where the one before it ends"
            assert record in self.appended[at], "a record was invented"
            check_entry(record.block)
            at += HEADS_BYTES - 28 + len(record.block)
        given = {int(record.position): record for record in found.records}
        wanted = {at: record for at, record in self.stored.items() if at >= start}
        assert wanted.items() <= given.items(), "a durable record is lost"
        assert found.damages == []
        assert not found.missing
        assert found.opened.begin == max(at, start)
        assert {finding.kind for finding in found.findings} <= {"torn"}
        self.stored.update(given)
