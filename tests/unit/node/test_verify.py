"""Verifying a stopped node's folder: every damage is named, nothing is changed, nothing made up."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from roost.errors import NotFound
from roost.host.seams import Seams
from roost.node.identity import format_node
from roost.node.verify import Checked, Problem, size_of, verify_all
from roost.sim.disk import SimDisk
from roost.types import EntryId, LedgerId
from tests.unit.node.lives import FOLDER, Machine, add_all, flushed, opened

JOURNAL = FOLDER / "journal"
LOG = FOLDER / "ledgers/7.log"
INDEX = FOLDER / "ledgers/7.index"


async def life(seams: Seams) -> None:
    """Leave entries in files, and more of them in two segments of the journal."""
    store = await opened(seams)
    await add_all(store, 7, range(10))
    await flushed(store)
    await add_all(store, 7, range(10, 80), size=100)
    await add_all(store, 8, range(3))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine() as machine:
        format_node(machine.disk, FOLDER, cluster="prod", node="alice", rng=Random(0), wall=0.0)
        machine.live(life)
        yield machine


def files(disk: SimDisk) -> dict[Path, bytes]:
    found: dict[Path, bytes] = {}
    for folder in (FOLDER, JOURNAL, FOLDER / "ledgers"):
        try:
            names = disk.names(folder)
        except FileNotFoundError:
            continue
        for name in names:
            try:
                file = disk.open(folder / name, writable=False)
            except IsADirectoryError:
                continue
            found[folder / name] = file.read_at(0, file.size())
            file.close()
    return found


def verified(disk: SimDisk) -> list[Checked]:
    """Verify everything, and see that this changed nothing."""
    before = files(disk)
    checked = [*verify_all(disk, FOLDER)]
    assert files(disk) == before
    return checked


def problems(disk: SimDisk) -> list[Problem]:
    return [problem for checked in verified(disk) for problem in checked.problems]


def change(disk: SimDisk, path: Path, act: Callable[[bytearray], object]) -> None:
    file = disk.open(path)
    content = bytearray(file.read_at(0, file.size()))
    act(content)
    file.truncate(0)
    file.write_at(0, bytes(content))
    file.sync()
    file.close()


def flip(at: int) -> Callable[[bytearray], object]:
    def act(content: bytearray) -> None:
        content[at] ^= 0x10

    return act


def segment(machine: Machine, which: int) -> Path:
    names = [name for name in machine.disk.names(JOURNAL) if name.endswith(".journal")]
    return JOURNAL / names[which]


def test_a_whole_folder_has_no_problems_and_all_of_it_is_looked_at(machine: Machine) -> None:
    checked = verified(machine.disk)

    assert not any(each.problems for each in checked)
    assert sum(each.entries for each in checked) == 10
    assert sum(each.bytes for each in checked) <= size_of(machine.disk, FOLDER) * 1.01 + 1000


def test_a_folder_that_is_no_nodes_is_refused() -> None:
    disk = SimDisk(Random(0))
    disk.make_folder(FOLDER)

    with pytest.raises(NotFound, match="never formatted"):
        next(verify_all(disk, FOLDER))


def test_a_node_that_was_never_started_has_no_problem_but_no_checkpoint_either() -> None:
    disk = SimDisk(Random(0))
    format_node(disk, FOLDER, cluster="prod", node="alice", rng=Random(0), wall=0.0)

    assert {problem.file for problem in problems(disk)} <= {str(FOLDER / "checkpoint")}
    assert size_of(disk, FOLDER) == 0


def test_a_damaged_entry_is_named_with_its_ledger(machine: Machine) -> None:
    change(machine.disk, LOG, flip(64 + 3 * 48 + 30))

    assert problems(machine.disk) == [
        Problem(
            file=str(LOG), ledger=LedgerId(7), entry=EntryId(3), text="this entry cannot be read"
        )
    ]


def test_slots_that_are_gone_are_damage(machine: Machine) -> None:
    def act(content: bytearray) -> None:
        content[64 + 16 * 4 : 64 + 16 * 6] = bytes(32)

    change(machine.disk, INDEX, act)

    assert [problem.entry for problem in problems(machine.disk)] == [4, 5]


def test_fewer_entries_than_were_stored_are_a_problem_even_if_there_are_holes() -> None:
    async def holes(seams: Seams) -> None:
        store = await opened(seams)
        await add_all(store, 7, [0, 2, 4])
        await store.stop()

    with Machine() as machine:
        format_node(machine.disk, FOLDER, cluster="prod", node="a", rng=Random(0), wall=0.0)
        machine.live(holes)

        def act(content: bytearray) -> None:
            content[64 + 32 : 64 + 48] = bytes(16)

        change(machine.disk, INDEX, act)
        (problem,) = problems(machine.disk)

    assert problem.text == "3 entries were stored, and 2 are found"


@pytest.mark.parametrize("path", [LOG, INDEX])
def test_a_header_that_is_another_or_gone_is_named(machine: Machine, path: Path) -> None:
    change(machine.disk, path, flip(3))
    (damaged,) = problems(machine.disk)
    machine.disk.fail_next("read", path.name, errno.EIO)
    (unread, *_) = [p for each in verify_all(machine.disk, FOLDER) for p in each.problems]
    machine.disk.unlink(path)
    gone = problems(machine.disk)[0]

    assert (damaged.file, damaged.offset, damaged.ledger) == (str(path), 0, 7)
    assert "cannot be read" in unread.text
    assert (gone.file, gone.text) == (str(path), "it is missing")


def test_a_damaged_checkpoint_is_named(machine: Machine) -> None:
    change(machine.disk, FOLDER / "checkpoint", flip(40))
    (damaged,) = problems(machine.disk)
    machine.disk.unlink(FOLDER / "checkpoint")
    (missing,) = problems(machine.disk)

    assert damaged.file == missing.file == str(FOLDER / "checkpoint")
    assert ("rows" in damaged.text, missing.text) == (True, "it is missing")


def test_a_damaged_record_is_named_by_its_offset_and_its_entry(machine: Machine) -> None:
    path = segment(machine, 0)
    at = files(machine.disk)[path].find(b"12 .....")
    change(machine.disk, path, flip(at))

    (problem,) = problems(machine.disk)

    assert (problem.file, problem.ledger, problem.entry) == (str(path), 7, 12)
    assert problem.offset == at - 28 - 48


def test_a_damaged_head_is_named_though_nobody_can_tell_whose_it_was(machine: Machine) -> None:
    path = segment(machine, 0)
    at = files(machine.disk)[path].find(b"12 .....") - 28 - 20
    change(machine.disk, path, flip(at))

    (problem,) = problems(machine.disk)

    assert (problem.file, problem.ledger) == (str(path), None)


def test_a_damaged_header_of_a_segment_is_named(machine: Machine) -> None:
    path = segment(machine, 0)
    change(machine.disk, path, flip(5))

    (problem,) = problems(machine.disk)

    assert (problem.file, problem.offset) == (str(path), 0)


def test_what_the_last_group_left_behind_the_end_is_no_problem(machine: Machine) -> None:
    change(machine.disk, segment(machine, -1), lambda content: content.extend(b"torn" * 50))
    change(machine.disk, LOG, lambda content: content.extend(b"torn" * 50))
    change(machine.disk, INDEX, lambda content: content.extend(b"torn" * 50))

    assert problems(machine.disk) == []
