"""A flush: blocks into the log, slots into the index, in that order, whenever the power goes."""

import errno
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.host.posix import PosixDisk
from roost.node.files import HEADER_BYTES, INDEX, LOG, header_problem
from roost.node.flush import AHEAD_BYTES_MAX, LONG_BYTES, PIECE_BYTES, Flusher
from roost.node.ledgers import Stored
from roost.sim.drive import PowerLoss
from roost.types import EntryId, LedgerId
from tests.unit.node.disks import (
    LEDGERS,
    SEVEN,
    Shelf,
    a_flush,
    blocks_of,
    finish,
    sim_disk,
)

CRASHES = 40
"""More operations than the longest flush here has."""


@pytest.mark.parametrize("long", [{0}, {2}, {0, 1}, {1, 2, 3}, {0, 2, 4}, set(range(5))], ids=str)
def test_long_blocks_and_short_ones_stand_where_their_slots_say(
    long: set[int], tmp_path: Path
) -> None:
    blocks = blocks_of(range(5)) | blocks_of(sorted(long), size=LONG_BYTES)
    shelf = Shelf(PosixDisk(guarded=False), tmp_path).flush(blocks)

    answer = shelf.read(0, 5)

    assert answer.blocks == shelf.blocks
    assert len(answer.blocks) == 5
    assert not answer.suspects


def test_what_is_flushed_is_read_and_the_rest_is_missing() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of([0, 1, 2, 5, 300]))

    answer = shelf.read(0, 302)

    assert answer.blocks == shelf.blocks
    assert (len(answer.missing), answer.suspects, answer.before) == (296, [], 301)


def test_files_begin_with_headers_that_say_whose_they_are() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of([0]))

    for kind in (LOG, INDEX):
        assert header_problem(shelf.content(kind)[:HEADER_BYTES], SEVEN, kind) == ""


def test_blocks_stand_in_the_log_in_the_order_of_their_ids_as_they_came() -> None:
    blocks = blocks_of([9, 2, 4])
    shelf = Shelf(sim_disk()).flush(blocks)

    assert shelf.content(LOG)[HEADER_BYTES:] == b"".join(blocks[EntryId(e)] for e in (2, 4, 9))
    assert shelf.stored.log_end == len(shelf.content(LOG))


def test_a_flush_tells_what_is_in_the_files_then() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of([3, 5]))
    flusher = Flusher(shelf.disk, LEDGERS, files_max=4)
    flush = a_flush(blocks_of([0, 4, 5]), shelf.stored, before=77)

    stored = finish(flusher.flush(msgspec.structs.replace(flush, rewritten=1)))

    assert (stored.entries, stored.highest, stored.before, stored.at) == (4, 5, 77, 5.0)
    assert stored.log_end == HEADER_BYTES + 5 * 58


@given(st.lists(st.sets(st.integers(0, 400), min_size=1, max_size=30), min_size=1, max_size=4))
def test_flushes_in_any_order_of_ids_keep_everything(batches: list[set[int]]) -> None:
    shelf = Shelf(sim_disk())

    shelf.flush(*map(blocks_of, batches))

    shelf.check()
    assert shelf.stored.entries == sum(map(len, batches))
    assert shelf.stored.highest == max(shelf.blocks)


def test_the_log_of_an_open_ledger_is_reserved_ahead_and_that_of_a_closed_one_is_cut() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of(range(10)), blocks_of(range(10, 20)))

    ahead = len(shelf.content(LOG))
    shelf.flush(blocks_of([20]), closed=True)

    assert shelf.stored.log_end == HEADER_BYTES + 21 * 58 == len(shelf.content(LOG))
    assert HEADER_BYTES + 20 * 58 < ahead <= HEADER_BYTES + 20 * 58 + AHEAD_BYTES_MAX
    shelf.check()


def test_what_was_reserved_can_be_cut_later() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of(range(10)), blocks_of(range(10, 20)))
    flusher = Flusher(shelf.disk, LEDGERS, files_max=4)

    for _ in range(2):
        finish(flusher.cut(SEVEN, shelf.stored.log_end))

    assert len(shelf.content(LOG)) == shelf.stored.log_end
    shelf.check()


def test_a_flush_of_many_bytes_is_written_in_pieces(tmp_path: Path) -> None:
    shelf = Shelf(PosixDisk(guarded=False), tmp_path)

    shelf.flush(blocks_of(range(10), 3 * PIECE_BYTES // 4), blocks_of([10, 12]))

    shelf.check()
    assert len(shelf.read(0, 13).blocks) == 1
    assert shelf.read(12, 13).blocks == blocks_of([12])


def test_striped_entries_leave_holes_that_take_no_space(tmp_path: Path) -> None:
    shelf = Shelf(PosixDisk(guarded=False), tmp_path)

    shelf.flush(blocks_of([0, 1, 10_000_000]))

    assert shelf.path(INDEX).stat().st_size > 160_000_000
    assert shelf.path(INDEX).stat().st_blocks * 512 < 100_000
    assert shelf.read(10_000_000, 10_000_001).blocks == blocks_of([10_000_000])


@pytest.mark.parametrize("keep", ["all", "none", "some"])
def test_a_loss_of_power_anywhere_in_a_flush_leaves_what_was_there_before(keep: str) -> None:
    for operation in range(1, CRASHES):
        disk = sim_disk(operation)
        shelf = Shelf(disk).flush(blocks_of([0, 1, 2, 9]), blocks_of([4]))
        shelf.traces = blocks_of([3, 5, 6, 10, 11])
        disk.lose_power_after(operation)

        with suppress(PowerLoss):
            shelf.flush(shelf.traces)
        disk.crash(keep)  # type: ignore[arg-type]  # they are its words

        # If the flush did not end, what is known of the ledger is what was known before.
        shelf.check()


def test_a_flush_that_was_interrupted_is_done_again_over_its_traces() -> None:
    for operation in range(1, CRASHES):
        disk = sim_disk(operation)
        shelf = Shelf(disk).flush(blocks_of([0, 1, 2, 9]))
        stored = shelf.stored
        batch = blocks_of([3, 5, 6, 10, 11])
        disk.lose_power_after(operation)
        with suppress(PowerLoss):
            shelf.flush(batch)
        disk.crash()
        shelf.stored = stored

        shelf.flush(batch | blocks_of([8]))

        shelf.check()
        assert shelf.read(0, 12).blocks == shelf.blocks


def test_an_entry_is_counted_once_though_its_flush_was_interrupted() -> None:
    shelf = Shelf(sim_disk()).flush(blocks_of([0, 1, 9]))
    stored = shelf.stored
    shelf.flush(blocks_of([3, 5, 10]))
    shelf.stored = stored

    shelf.flush(blocks_of([3, 5, 10, 11]))

    assert shelf.stored.entries == 7


def test_the_first_flush_of_a_ledger_may_be_interrupted_like_any_other() -> None:
    for operation in range(1, CRASHES):
        disk = sim_disk(operation)
        shelf = Shelf(disk)
        disk.lose_power_after(operation)
        with suppress(PowerLoss):
            shelf.flush(blocks_of([0, 1, 2, 9]))
        disk.crash()
        shelf.stored = Stored()

        shelf.flush(blocks_of([0, 1, 2, 9]))
        disk.crash("none")

        shelf.check()
        assert shelf.stored.entries == 4
        for kind in (LOG, INDEX):
            assert header_problem(shelf.content(kind)[:HEADER_BYTES], SEVEN, kind) == ""


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("open", "7.log"),
        ("write", "7.log"),
        ("sync", "7.log"),
        ("open", "7.index"),
        ("read", "7.index"),
        ("write", "7.index"),
        ("sync", "7.index"),
    ],
)
def test_an_error_leaves_what_was_there_before(operation: str, name: str, code: int) -> None:
    disk = sim_disk()
    shelf = Shelf(disk).flush(blocks_of([0, 1, 2, 9]))
    disk.fail_next(operation, name, code)  # type: ignore[arg-type]  # they are its words

    shelf.traces = blocks_of([3, 5, 10])

    with pytest.raises(OSError, match=errno.errorcode[code]):
        shelf.flush(shelf.traces)

    shelf.check()


def test_a_disk_without_room_for_what_is_reserved_ahead_may_have_room_for_what_is_stored() -> None:
    disk = sim_disk()
    shelf = Shelf(disk).flush(blocks_of(range(10)))
    disk.fail_next("allocate", "7.log", errno.ENOSPC)

    shelf.flush(blocks_of(range(10, 20)))

    disk.crash("none")
    shelf.check()
    assert len(shelf.read(0, 20).blocks) == 20


def test_a_flush_that_met_a_full_disk_is_done_again_when_there_is_room() -> None:
    disk = sim_disk()
    shelf = Shelf(disk).flush(blocks_of([0]))
    for operation, name in (("write", "7.log"), ("sync", "7.log"), ("write", "7.index")):
        disk.fail_next(operation, name, errno.ENOSPC)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="ENOSPC"):
            shelf.flush(blocks_of([1, 2, 3]))

    shelf.flush(blocks_of([1, 2, 3]))

    disk.crash("none")
    shelf.check()
    assert shelf.read(0, 4).blocks == shelf.blocks


def test_removing_takes_both_files_and_no_others_and_may_be_done_again() -> None:
    disk = sim_disk()
    Shelf(disk).flush(blocks_of([0]))
    flusher = Flusher(disk, LEDGERS, files_max=4)
    other = msgspec.structs.replace(a_flush(blocks_of([0], ledger=70)), ledger=LedgerId(70))
    finish(flusher.flush(other))

    for _ in range(2):
        finish(flusher.remove(SEVEN))
    disk.crash("none")

    assert disk.names(LEDGERS) == ["70.index", "70.log"]
