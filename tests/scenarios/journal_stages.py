"""Stages for a node's journal: who syncs, what a group takes along, what recovery makes of it."""

from pathlib import Path
from random import Random

from roost.journal.group import SyncGroup
from roost.journal.header import HEADER_BYTES, Header, encode_header, segment_name
from roost.journal.plan import Group, JournalSettings, Plan, Planned
from roost.journal.record import ADD, DELETE, FENCE, encode_head
from roost.journal.recover import JournalRecovery
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from roost.types import Position
from roost.wire.entry import encode_entry, payload_of

UUID = bytes(16)
FOLDER = Path("/node/journal")
SALVAGE = FOLDER.parent / "salvage"
# A record of no payload takes 76 bytes; those of the stories take a hundred.
RECORD_BYTES = 100
PAYLOAD_BYTES = 24
KINDS = {"add": ADD, "fence": FENCE, "delete": DELETE}


class Syncs:
    """Writers of one file, and whoever syncs for them."""

    def __init__(self) -> None:
        self._group = SyncGroup(durable=0)
        self._written = 0
        self._synced = 0
        self._in_flight: list[int] = []

    def check(self) -> None:
        """See that nothing is durable but what was written before a sync that succeeded."""
        assert self._group.durable <= self._synced

    def write(self, size: int) -> str:
        """Write some bytes."""
        self._written += size
        return f"written {self._written}"

    def claim(self) -> str:
        """Try to become the one who syncs."""
        return "syncs" if self._group.claim() else "does not sync"

    def begin(self) -> None:
        """Begin a sync of what is written."""
        self._in_flight.append(self._written)
        self._group.begin(self._written)

    def done(self) -> str:
        """Learn that the sync succeeded that began first."""
        self._synced = self._in_flight.pop(0)
        return f"durable {self._group.done()}"

    def fail(self) -> str:
        """Learn that the sync failed."""
        self._group.fail()
        return f"durable {self._group.durable}"

    def release(self) -> None:
        """Stop being the one who syncs."""
        self._group.release()


class Commits:
    """A journal whose segments take three records, and a reserve of one fence or delete."""

    def __init__(self) -> None:
        settings = JournalSettings(
            segment_bytes=3 * RECORD_BYTES, reserve_bytes=80, record_bytes_max=RECORD_BYTES
        )
        self._said: list[str] = []
        self._plan = Plan(
            uuid=UUID,
            begin=Position(0),
            settings=settings,
            wake=lambda: self._said.append("the first that waits"),
            wanted=lambda: self._said.append("another segment is wanted"),
        )
        self._group = SyncGroup(durable=0)
        self._taken: Group | None = None
        self._made = 0
        self._appended: list[str] = []
        self._back: list[str] = []

    def check(self) -> None:
        """See that items come back in order, and nothing but what was appended."""
        assert self._back == self._appended[: len(self._back)]
        assert self._group.durable <= self._plan.tail

    def make(self) -> None:
        """Have the next segment made."""
        self._made += 1
        self._plan.on_made(Planned(number=self._made, nonce=self._made))

    def full(self) -> None:
        """Find no room for the next segment."""
        self._plan.on_no_room("the disk is full")

    def append(self, kind: str, *names: str) -> list[str]:
        """Append records; their names are the items."""
        for name in names:
            payload = name.encode().ljust(PAYLOAD_BYTES) if kind == "add" else b""
            at = self._plan.append(KINDS[kind], 1, 0, encode_entry(7, 0, payload), name)
            self._appended.append(name)
            self._said.append(f"{name} at {at}")
        return self._answer()

    def barrier(self, name: str) -> list[str]:
        """Want to hear when everything before it is durable."""
        self._plan.barrier(name)
        self._appended.append(name)
        return self._answer()

    def write(self) -> list[str]:
        """Take along what waits, and begin its sync."""
        if not self._group.claim():
            return ["nothing: a sync is in flight, or has failed"]
        self._taken = self._plan.take()
        self._group.begin(self._taken.upto)
        return [
            f"{'begin' if part.header else 'go on in'} segment {part.number}: "
            f"{part.begin} to {part.end}"
            for part in self._taken.parts
        ]

    def synced(self) -> list[str]:
        """Learn that the sync succeeded."""
        assert self._taken is not None, "nothing was taken"
        self._plan.synced_before = Position(self._group.done())
        self._group.release()
        self._plan.rest()
        self._back += self._taken.items
        return [f"durable before {self._group.durable}: {' '.join(self._taken.items)}"]

    def failed(self) -> list[str]:
        """Learn that it failed."""
        assert self._taken is not None, "nothing was taken"
        self._group.fail()
        self._group.release()
        self._plan.stop("the journal failed", closed=False)
        items = [*self._taken.items, *self._plan.take().items]
        self._back += items
        return [f"durable before {self._group.durable}; nobody knows: {' '.join(items)}"]

    def room(self) -> str:
        """Ask whether adds have room."""
        return self._plan.why_no_room or "there is room"

    def _answer(self) -> list[str]:
        said, self._said = self._said, []
        return said


class Folder:
    """A journal's folder, as writes and accidents leave it; each record takes a hundred bytes."""

    def __init__(self) -> None:
        self._disk = SimDisk(Random(0), DiskFaults())
        self._disk.make_folder(FOLDER)
        self._headers: list[Header] = []
        self._tail = 0
        self._durable = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}
        self._harmed: set[str] = set()
        self._told: list[str] | None = None
        self._asked_from = 0

    def check(self) -> None:
        """See that whatever was durable and is unharmed comes back, and nothing else does."""
        told, self._told = self._told, None
        if told is not None:
            asked = [name for name, end in self._ends.items() if end > self._asked_from]
            durable = {name for name in asked if self._ends[name] <= self._durable}
            assert durable - self._harmed <= {*told}
            assert not self._harmed & {*told}
            assert told == [name for name in asked if name in told]

    def segment(self) -> str:
        """Begin the next segment; what was before it is durable then."""
        number = len(self._headers) + 1
        self._durable = self._tail
        header = Header(
            uuid=UUID,
            number=number,
            begin=Position(self._tail),
            nonce=number,
            synced_before=Position(self._tail),
        )
        self._headers.append(header)
        self._write(number, 0, encode_header(header))
        return f"segment {number} begins at {self._tail}"

    def group(self, *names: str) -> list[str]:
        """Write records that are synced together."""
        header, synced_before, said = self._headers[-1], self._durable, []
        for name in names:
            block = encode_entry(7, len(self._places), name.encode().ljust(PAYLOAD_BYTES))
            head = encode_head(ADD, self._tail, synced_before, 1, 0, block, header.seed)
            offset = HEADER_BYTES + self._tail - header.begin
            self._places[name] = (header.number, offset)
            self._write(header.number, offset, head + block)
            said.append(f"{name} at {self._tail}")
            self._tail += RECORD_BYTES
            self._ends[name] = self._tail
        return said

    def synced(self) -> str:
        """Learn that what was written is durable; the next group says so."""
        self._durable = self._tail
        return f"durable before {self._durable}"

    def lose(self, name: str) -> None:
        """Let a record never have reached the disk."""
        self._overwrite(name, 0, bytes(RECORD_BYTES))

    def tear(self, name: str) -> None:
        """Let the second half of a record never have reached the disk."""
        self._overwrite(name, RECORD_BYTES // 2, bytes(RECORD_BYTES // 2))

    def scratch(self, name: str, where: str) -> None:
        """Change a byte of a record's head or payload."""
        self._overwrite(name, {"head": 20, "payload": 80}[where], b"!")

    def remove(self, number: int) -> None:
        """Let a segment's file be gone."""
        self._disk.unlink(FOLDER / segment_name(number))
        self._harmed |= {name for name, place in self._places.items() if place[0] == number}

    def recover(self, replay_from: int = 0) -> list[str]:
        """Put the folder right, and read it."""
        self._asked_from = replay_from
        recovery = JournalRecovery(self._disk, FOLDER, uuid=UUID, replay_from=Position(replay_from))
        for _ in recovery.prepare():
            pass
        self._told = [bytes(payload_of(r.block)).decode().strip() for r in recovery.records()]
        said = [f"records: {' '.join(self._told) or 'none'}"]
        for damage in recovery.damages:
            whose = "" if damage.entry is None else f", entry {damage.entry}"
            said.append(f"damaged: {damage.start} to {damage.stop}{whose}")
        if recovery.missing:
            said.append("segments are missing")
        if "salvage" in self._disk.names(SALVAGE.parent):
            said += [f"salvage: {name.lstrip('0')}" for name in self._disk.names(SALVAGE)]
        opened = recovery.opened
        return [*said, f"goes on with segment {opened.number} at {opened.begin}"]

    def _overwrite(self, name: str, at: int, content: bytes) -> None:
        self._harmed.add(name)
        number, offset = self._places[name]
        self._write(number, offset + at, content)

    def _write(self, number: int, offset: int, content: bytes) -> None:
        file = self._disk.open(FOLDER / segment_name(number), create=True)
        file.write_at(offset, content)
        file.sync()
        self._disk.sync_folder(FOLDER)
