"""A journal as it was written, and then cut or changed anywhere: no byte that was not stored.

What was synced before something else was written is told to be damaged; only of what was written
last nobody can say whether it was ever there.
"""

from functools import cache
from pathlib import Path
from random import Random
from shutil import rmtree

import msgspec
import pytest

from roost.journal.plan import JournalSettings
from roost.journal.record import HEAD_BYTES, Record
from roost.sim.disk import SimDisk
from tests.unit.channel.disks import quick
from tests.unit.journal.lives import FOLDER, HEALTHY, SMALL, Life, Lives, Model, read
from tests.unit.sim.disks import content, new_disk

FLIPS = 600
LAST_BYTES = 4096
ROOMY = JournalSettings(segment_bytes=7000, reserve_bytes=512, record_bytes_max=2048)


class Written(msgspec.Struct, frozen=True):
    """A journal that nobody closed: its files, what it holds, and where its last group begins."""

    files: dict[str, bytes]
    records: list[Record]
    last_group: int

    def hit(self, position: int) -> Record | None:
        """Give the record that has a byte at a position."""
        at = [r for r in self.records if r.position <= position < end_of(r)]
        return at[0] if at else None


def end_of(record: Record) -> int:
    return record.position + HEAD_BYTES + len(record.block)


@cache
def written(settings: JournalSettings = SMALL) -> Written:
    """Write it."""
    model = Model()
    groups: list[int] = []

    async def work(life: Life) -> None:
        life.told = model.on_stored
        journal = await life.open((await life.recover()).opened)
        for number in range(30):
            groups.append(journal.tail)
            for size in (10, 400, 150)[: 1 + number % 3]:
                model.append(journal, size)
            while journal.queued_bytes:
                await life.until_told(len(life.stored) + 1)

    with Lives(0, HEALTHY, settings) as lives:
        assert lives.live(work)
    names = [name for name in lives.disk.names(FOLDER) if name.endswith(".journal")]
    return Written(
        files={name: content(lives.disk, FOLDER / name) for name in names},
        records=[record for _, record in sorted(model.stored.items())],
        last_group=groups[-1],
    )


def disk_with(files: dict[str, bytes]) -> SimDisk:
    disk = new_disk(faults=HEALTHY)
    disk.make_folder(FOLDER)
    for name, whole in files.items():
        disk.open(FOLDER / name, create=True).write_at(0, whole)
    return disk


def test_one_flipped_bit_never_gives_other_bytes_and_is_told_where_it_can_be() -> None:
    journal = written()
    assert len(journal.files) >= 3
    for seed in range(FLIPS):
        rng = Random(seed)
        name = rng.choice(sorted(journal.files))
        changed = bytearray(journal.files[name])
        at = rng.randrange(len(changed))
        changed[at] ^= 1 << rng.randrange(8)
        hit = journal.hit(int.from_bytes(changed[32:40], "little") + at - 64) if at >= 64 else None

        found = read(disk_with(journal.files | {name: bytes(changed)}))

        lost = [record for record in journal.records if record not in found.records]
        assert len(found.records) + len(lost) == len(journal.records), "a record was invented"
        for record in lost:
            told = any(d.start <= record.position < d.stop for d in found.damages)
            assert told or record.position >= journal.last_group, "it was lost in silence"
        if at >= 64 and (hit is None or hit.position < journal.last_group):
            assert lost == [hit][: hit is not None]


@pytest.mark.parametrize("filler", [b"", b"\0", b"\xff"])
def test_a_cut_at_any_byte_of_the_last_pages_gives_what_is_whole(
    tmp_path: Path, filler: bytes
) -> None:
    journal, disk = written(ROOMY), quick()
    folder = tmp_path / "journal"
    folder.mkdir()
    for name, whole in journal.files.items():
        (folder / name).write_bytes(whole)
    last = folder / max(journal.files)
    begin = int.from_bytes(journal.files[last.name][32:40], "little")
    size = 64 + end_of(journal.records[-1]) - begin
    assert size > LAST_BYTES
    for kept in range(size - LAST_BYTES, size, 1 if not filler else 13):
        last.write_bytes(journal.files[last.name][:kept] + filler * (size - kept))
        wanted = [record for record in journal.records if end_of(record) - begin <= kept - 64]

        found = read(disk, folder=folder)

        # Where just zeros were cut, and are there again, more is whole.
        assert len(found.records) == len(wanted) or filler == b"\0"
        assert found.records == journal.records[: max(len(wanted), len(found.records))]
        assert found.damages == []
        assert found.opened.begin == end_of(found.records[-1])
        rmtree(tmp_path / "salvage", ignore_errors=True)
