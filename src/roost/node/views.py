"""What readers see of a node's ledgers: memory and files as one, and waiting for what comes next.

A read answers for the ids [first, before) and no more: each is found, suspect or absent, and the
next read goes on at `before`. The promise: only what is durable is given out, only bytes that hold,
and an id is absent only if this node can tell that it never had it.

What was in memory when a read began is kept in sight until it ends: an entry that is flushed
meanwhile is found in one of the two places.
"""

import asyncio
from collections.abc import Generator
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from roost.errors import NotFound
from roost.host.jobs import begin
from roost.host.log import Log
from roost.host.metrics import NodeMetrics
from roost.host.seams import Seams
from roost.node.known import Known
from roost.node.layout import LEDGERS
from roost.node.ledgers import Block, Ledger, Stored
from roost.node.reading import SLOTS_MAX, Found, Piece, Reader
from roost.types import NO_ENTRY, EntryId, LedgerId
from roost.wire.messages import BAD_ENTRIES_MAX, LedgerState, Read, VerifyReport

CHUNK_BYTES_MAX: Final = 1 << 20
"""What one piece of a read takes from memory or from the disk at most, but for a single entry."""


class Chunk(msgspec.Struct, frozen=True):
    """What there is of the ids [first, before)."""

    first: EntryId
    before: EntryId
    pieces: list[Piece]
    suspects: list[EntryId]
    lac: EntryId
    last: EntryId | None
    fenced: int | None

    @property
    def entries(self) -> int:
        """Count the entries that were found."""
        return sum(piece.count for piece in self.pieces)


class Memory(msgspec.Struct, frozen=True):
    """A ledger's durable entries in memory, as of one moment: flushes take nothing out of it."""

    memtable: dict[EntryId, Block]
    frozen: dict[EntryId, Block]

    def get(self, entry: EntryId) -> Block | None:
        """Give an entry's block."""
        return self.memtable.get(entry) or self.frozen.get(entry)


class Views:
    """The reading side of a store."""

    def __init__(
        self,
        folder: Path,
        known: Known,
        *,
        seams: Seams,
        files_max: int,
        log: Log,
        metrics: NodeMetrics,
    ) -> None:
        self.watched: Final[dict[LedgerId, dict[asyncio.Future[None], None]]] = {}
        """Ledgers that somebody waits for, and who, in the order in which they came."""
        self._known: Final = known
        self._log: Final = log
        self._metrics: Final = metrics
        self._reader: Final = Reader(seams.disk, folder / LEDGERS, files_max=files_max)
        self._worker: Final = seams.tasks.worker("roost-read")

    async def read(self, read: Read) -> Chunk:
        """Read one piece, waiting for it to come if that was asked for."""
        self._metrics.reads += 1
        try:
            async with asyncio.timeout(read.wait_s or None):
                while read.wait_s and not self._worth_an_answer(read):
                    await self._change(read.ledger)
        except TimeoutError:
            pass
        ledger = self._known.ledgers.get(read.ledger)
        if ledger is None:
            return self._of_unknown(read)
        chunk = await self._piece(ledger, read)
        self._metrics.read_entries += chunk.entries
        self._metrics.read_bytes += sum(len(piece.blocks) for piece in chunk.pieces)
        return chunk

    def _worth_an_answer(self, read: Read) -> bool:
        ledger = self._known.ledgers.get(read.ledger)
        if ledger is None:
            return read.ledger in self._known.deleted
        if read.lac is not None:
            return ledger.lac > read.lac or ledger.last is not None
        return ledger.highest >= read.first or ledger.last is not None

    async def _change(self, ledger: LedgerId) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self.watched.setdefault(ledger, {})
        waiters[waiter] = None
        try:
            await waiter
        finally:
            waiters.pop(waiter, None)
            if not waiters and self.watched.get(ledger) is waiters:
                del self.watched[ledger]

    def changed(self, ledger: LedgerId) -> None:
        """Let those who wait for a ledger look again."""
        for waiter in self.watched.pop(ledger, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _of_unknown(self, read: Read) -> Chunk:
        if read.ledger not in self._known.deleted and self._known.forgetful:
            # It may have been here. Nobody can say that what it held is absent.
            before = EntryId(min(read.upto + 1, read.first + SLOTS_MAX))
            return Chunk(
                first=read.first,
                before=before,
                pieces=[],
                suspects=[EntryId(entry) for entry in range(read.first, before)],
                lac=NO_ENTRY,
                last=None,
                fenced=None,
            )
        self._known.find(read.ledger)
        raise NotFound(f"ledger {read.ledger} is not on this node")

    async def _piece(self, ledger: Ledger, read: Read) -> Chunk:
        first, end = read.first, EntryId(read.upto + 1)
        # Behind this everything is absent, if anything is.
        reach = end if ledger.suspect else min(end, ledger.highest + 1)
        if ledger.last is not None:
            reach = min(reach, ledger.last + 1)
        before = EntryId(max(first, min(reach, first + SLOTS_MAX)))
        bytes_max = min(read.bytes_max, CHUNK_BYTES_MAX)
        memory = Memory(memtable=ledger.memtable, frozen=ledger.frozen)
        found = _from_memory(
            memory, first, before, above=ledger.stored.highest, bytes_max=bytes_max
        )
        if found.before == first < before:
            self._metrics.cold_reads += 1
            found = await self._cold(ledger, memory, first, before, bytes_max)
            self._report(ledger, found)
        if found.before >= reach:
            found = msgspec.structs.replace(found, before=end)
        return _chunk(ledger, first, found)

    async def _cold(
        self, ledger: Ledger, memory: Memory, first: EntryId, before: EntryId, bytes_max: int
    ) -> Found:
        """Read from the files, and put what is in memory in the place of what is not whole there.

        An entry that was added meanwhile, below others, may stand behind the end of the log as it
        was when the read began: it is in memory now, or its flush has ended, and it counts then.
        """
        while True:
            stored = ledger.stored
            found = await begin(
                self._worker, self._from_files(ledger.id, stored, first, before, bytes_max)
            )
            for each in (memory, Memory(memtable=ledger.memtable, frozen=ledger.frozen)):
                found = _merge(found, each, bytes_max=bytes_max)
            if not found.suspects or ledger.stored is stored:
                return found

    def _from_files(
        self, ledger: LedgerId, stored: Stored, first: EntryId, before: EntryId, bytes_max: int
    ) -> Generator[None, None, Found]:
        yield
        return self._reader.read(ledger, stored, first, before, bytes_max=bytes_max)

    def _report(self, ledger: Ledger, found: Found) -> None:
        if found.suspects:
            self._metrics.corrupt_reads += len(found.suspects)
            self._log.event(
                "entries_suspect",
                level="error",
                ledger=ledger.id,
                first=found.suspects[0],
                count=len(found.suspects),
            )

    async def look(self, ledger: Ledger, entry: EntryId) -> tuple[bytes | None, bool]:
        """Give what the files have under an id, and whether that cannot be told."""
        stored = ledger.stored
        found = await begin(
            self._worker, self._from_files(ledger.id, stored, entry, EntryId(entry + 1), 1)
        )
        if ledger.stored is stored:  # or it is asked again
            self._report(ledger, found)
        block = bytes(found.pieces[0].blocks) if found.pieces else None
        return block, bool(found.suspects)

    async def verify(self, ledger: Ledger) -> VerifyReport:
        """Read every entry, and say which are not good."""
        entries = size = bad_total = 0
        bad: list[EntryId] = []
        first = EntryId(0)
        while first <= ledger.highest:
            read = Read(
                ledger=ledger.id, first=first, upto=ledger.highest, bytes_max=CHUNK_BYTES_MAX
            )
            chunk = await self._piece(ledger, read)
            entries += chunk.entries
            size += sum(len(piece.blocks) for piece in chunk.pieces)
            bad_total += len(chunk.suspects)
            bad.extend(chunk.suspects[: BAD_ENTRIES_MAX - len(bad)])
            if chunk.before == first:
                break
            first = chunk.before
        return VerifyReport(
            ledger=ledger.id,
            entries=entries,
            bytes=size,
            bad=bad,
            bad_total=bad_total,
            complete=not bad_total and not ledger.suspect,
        )

    def state(self, ledger: Ledger) -> LedgerState:
        """Tell how a ledger is."""
        return LedgerState(
            ledger=ledger.id,
            # Before there is a durable entry, it is only that of an add that is under way.
            epoch=None if ledger.highest == NO_ENTRY else ledger.epoch,
            fenced=ledger.fenced,
            last=ledger.last,
            lac=ledger.lac,
            highest=ledger.highest,
            entries=ledger.entries,
            bytes=ledger.stored.log_end,
            flushed_before=ledger.stored.before,
            flushed_at=ledger.stored.at,
            suspect=ledger.suspect,
        )

    def drop(self, ledger: LedgerId) -> None:
        """Close the files of a ledger that was deleted."""

        def drop() -> Generator[None, None, None]:
            yield
            self._reader.drop(ledger)

        self._worker.start(drop())

    def close(self) -> None:
        """End; nobody reads any more."""
        self._worker.stop()
        self._reader.close()


def _from_memory(
    memory: Memory, first: EntryId, before: EntryId, *, above: EntryId, bytes_max: int
) -> Found:
    """Take entries from memory, up to the first id that the files may have."""
    pieces: list[Piece] = []
    missing: list[EntryId] = []
    size = 0
    entry = first
    while entry < before:
        block = memory.get(entry)
        if block is not None:
            size += len(block)
            if pieces and size > bytes_max:
                break
            pieces.append(Piece(first=entry, count=1, blocks=block))
        elif entry <= above:
            break
        else:
            missing.append(entry)
        entry = EntryId(entry + 1)
    return Found(pieces=pieces, missing=missing, suspects=[], before=entry)


def _merge(found: Found, memory: Memory, *, bytes_max: int) -> Found:
    """Put what was in memory in the place of what the files do not have, or not whole.

    It ends before the first piece that would make it too long.
    """
    unsure = {*found.missing, *found.suspects}
    inside = {entry: block for entry in unsure if (block := memory.get(entry)) is not None}
    if not inside:
        return found
    pieces = [Piece(first=entry, count=1, blocks=block) for entry, block in inside.items()]
    pieces = sorted([*found.pieces, *pieces], key=lambda piece: piece.first)
    sizes = accumulate(len(piece.blocks) for piece in pieces)
    fitting = max(1, sum(size <= bytes_max for size in sizes))
    before = pieces[fitting].first if fitting < len(pieces) else found.before
    return Found(
        pieces=pieces[:fitting],
        missing=[entry for entry in found.missing if entry < before and entry not in inside],
        suspects=[entry for entry in found.suspects if entry < before and entry not in inside],
        before=before,
    )


def _chunk(ledger: Ledger, first: EntryId, found: Found) -> Chunk:
    suspects = found.suspects
    if ledger.suspect and found.missing:
        suspects = sorted([*suspects, *found.missing])
    return Chunk(
        first=first,
        before=found.before,
        pieces=found.pieces,
        suspects=suspects,
        lac=ledger.lac,
        last=ledger.last,
        fenced=ledger.fenced,
    )
