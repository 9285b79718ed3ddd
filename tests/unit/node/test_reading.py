"""Reading files back: never other bytes, and never "missing" for what was stored."""

import errno
from pathlib import Path
from random import Random

import pytest

from roost.host.disk import Disk
from roost.host.posix import PosixDisk
from roost.node.files import HEADER_BYTES, INDEX, LOG
from roost.node.index import SLOT, slot_offset
from roost.node.reading import SLOTS_MAX
from roost.types import EntryId
from roost.wire.entry import encode_entry
from tests.unit.node.disks import LEDGERS, SEVEN, Shelf, blocks_of, sim_disk

ENTRIES = (0, 1, 2, 3, 7, 8)
SIZE = 12


@pytest.fixture(params=["sim", "posix"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    disk: Disk = sim_disk() if request.param == "sim" else PosixDisk(guarded=False)
    folder = LEDGERS if request.param == "sim" else tmp_path
    shelf = Shelf(disk, folder)
    return shelf.flush(blocks_of((0, 1, 8), SIZE), blocks_of((2, 3, 7), SIZE))


def test_entries_are_read_from_any_id_to_any_other(shelf: Shelf) -> None:
    for first in range(10):
        for before in range(first + 1, 11):
            answer = shelf.read(first, before)

            assert [*answer.blocks] == [e for e in ENTRIES if first <= e < answer.before]
            assert answer.suspects == []
            assert answer.before == (before if first > 8 else min(before, 9))


def test_a_read_takes_as_much_as_it_may_and_at_least_one_entry(shelf: Shelf) -> None:
    assert [*shelf.read(0, 9, bytes_max=0).blocks] == [0]
    assert [*shelf.read(0, 9, bytes_max=3 * 40).blocks] == [0, 1, 2]
    assert shelf.read(4, 9, bytes_max=1).before == 8


def test_one_read_covers_so_many_ids_and_no_more() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of([0, SLOTS_MAX, SLOTS_MAX + 5], 1))

    answers = [shelf.read(first, 1 << 20) for first in (0, SLOTS_MAX, SLOTS_MAX + 6)]

    assert [answer.before for answer in answers] == [
        SLOTS_MAX,
        SLOTS_MAX + 6,
        2 * SLOTS_MAX + 6,
    ]
    shelf.check()


def flips(content: bytes, start: int) -> list[int]:
    return [*range(8 * start, 8 * len(content))]


@pytest.mark.parametrize("kind", [LOG, INDEX])
def test_one_flipped_bit_anywhere_costs_at_most_the_entries_that_it_hits(kind: str) -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of((0, 1, 5), SIZE), blocks_of((2, 3), SIZE))
    content = shelf.content(kind)
    unseen = 0

    for bit in flips(content, 0):
        shelf.disk.rot(shelf.path(kind), bit // 8, bit % 8)  # type: ignore[attr-defined]
        suspects = shelf.check(suspects=True)
        shelf.disk.rot(shelf.path(kind), bit // 8, bit % 8)  # type: ignore[attr-defined]
        assert len(suspects) <= 1
        unseen += not suspects

    # Headers and what was reserved are nobody's entries, nor is an empty slot that is none now.
    assert unseen < 8 * (len(content) - 5 * (16 if kind == INDEX else 40)) + 5 * 64


@pytest.mark.parametrize("offset", range(4))
def test_every_byte_of_a_block_is_that_of_the_client_or_the_entry_is_suspect(
    shelf: Shelf, offset: int
) -> None:
    shelf.overwrite(LOG, HEADER_BYTES + offset, b"\x55")

    assert shelf.check(suspects=True) == [0]


@pytest.mark.parametrize(
    "slot",
    [
        SLOT.pack((1 << 64) - 1, 40, 1),
        SLOT.pack(1 << 63, 40, 1),
        SLOT.pack((1 << 63) - 1, 40, 1),
        SLOT.pack((1 << 63) - 41, 40, 1),
        SLOT.pack(1 << 40, 40, 1),
        SLOT.pack(64, (16 << 20) + 28, 1),
        SLOT.pack(64, (1 << 32) - 1, 1),
        SLOT.pack(64, 1, 1),
        SLOT.pack(0, 0, 1),
        SLOT.pack(0, 40, 0),
        SLOT.pack(HEADER_BYTES + 40, 40, 1),
    ],
)
def test_an_absurd_slot_makes_one_entry_suspect_and_no_noise(shelf: Shelf, slot: bytes) -> None:
    shelf.overwrite(INDEX, slot_offset(3), slot)

    assert shelf.check(suspects=True) == [3]


def test_a_slot_that_points_to_another_entry_gives_out_neither(shelf: Shelf) -> None:
    one = shelf.content(INDEX)[slot_offset(1) : slot_offset(2)]
    shelf.overwrite(INDEX, slot_offset(0), one)

    assert shelf.check(suspects=True) == [0]


def test_a_block_of_another_ledger_or_id_is_not_given_out(shelf: Shelf) -> None:
    for other in (encode_entry(70, 0, b"0 ".ljust(SIZE)), encode_entry(7, 1, b"0 ".ljust(SIZE))):
        shelf.overwrite(LOG, HEADER_BYTES, other)

        assert shelf.check(suspects=True) == [0]


def test_a_size_that_is_wrong_in_the_slot_is_right_in_the_block(shelf: Shelf) -> None:
    offset, size, crc = SLOT.unpack(shelf.content(INDEX)[slot_offset(2) : slot_offset(3)])
    for wrong in (size - 1, size + 1, size + 5000):
        shelf.overwrite(INDEX, slot_offset(2), SLOT.pack(offset, wrong, crc))

        assert shelf.read(2, 3).blocks == {2: shelf.blocks[EntryId(2)]}


def test_zeros_in_the_index_of_a_ledger_without_holes_are_damage() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of(range(6)))
    shelf.overwrite(INDEX, slot_offset(2), bytes(32))

    assert shelf.check(suspects=True) == [2, 3]


@pytest.mark.parametrize("size", [0, 63, 64, 65, 64 + 16 * 3, 64 + 16 * 3 + 5])
def test_what_an_index_that_was_cut_does_not_tell_any_more_is_suspect(
    shelf: Shelf, size: int
) -> None:
    file = shelf.disk.open(shelf.path(INDEX))
    file.truncate(size)
    file.close()
    whole = max(0, size - 64) // 16

    assert shelf.check(suspects=True) == [*range(whole, 9)]


def test_what_a_log_that_was_cut_does_not_hold_any_more_is_suspect(shelf: Shelf) -> None:
    file = shelf.disk.open(shelf.path(LOG))
    for size, lost in ((64 + 4 * 40, [3, 7]), (64 + 40 + 39, [1, 2, 3, 7, 8]), (0, [*ENTRIES])):
        file.truncate(size)

        assert shelf.check(suspects=True) == lost


@pytest.mark.parametrize("kind", [LOG, INDEX])
def test_a_file_that_is_gone_makes_everything_in_it_suspect(shelf: Shelf, kind: str) -> None:
    shelf.disk.unlink(shelf.path(kind))

    assert {*shelf.check(suspects=True)} >= {*ENTRIES}


@pytest.mark.parametrize(
    ("operation", "kind"), [("read", LOG), ("read", INDEX), ("open", LOG), ("open", INDEX)]
)
def test_a_read_error_makes_entries_suspect_and_is_not_remembered(
    operation: str, kind: str
) -> None:
    disk = sim_disk()
    shelf = Shelf(disk).flush(blocks_of((0, 1, 8), SIZE), blocks_of((2, 3, 7), SIZE))

    disk.fail_next(operation, f"7.{kind}", errno.EIO)  # type: ignore[arg-type]  # its words
    shelf.check(suspects=True)

    shelf.check()


def test_one_bad_sector_of_a_log_costs_no_other_sector() -> None:
    disk = sim_disk()
    shelf = Shelf(disk).flush(blocks_of(range(3), SIZE))
    disk.fail_next("read", "7.log", errno.EIO)
    disk.fail_next("read", "7.log", errno.EIO)

    assert shelf.check(suspects=True) == [0]


def test_random_damage_never_gives_out_other_bytes() -> None:
    rng = Random("damage")
    for seed in range(200):
        shelf = Shelf(sim_disk(seed)).flush(blocks_of(range(0, 20, 2)), blocks_of(range(1, 9, 2)))
        for _ in range(rng.randrange(1, 6)):
            kind = rng.choice((LOG, INDEX))
            size = rng.choice((1, 2, 8, 16, 100))
            offset = rng.randrange(len(shelf.content(kind)))
            shelf.overwrite(kind, offset, rng.choice((rng.randbytes(size), b"\xff" * size)))

        shelf.check(suspects=True)

    assert SEVEN == 7
