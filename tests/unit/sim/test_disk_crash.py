"""What a simulated disk leaves after a loss of power: anything that the contract allows.

Most tests set the same scene on many disks, each of its own seed, let them crash, and look at all
the outcomes together: each must be allowed, and each that is allowed must occur.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults, Keep
from tests.unit.sim.disks import FILE, PAGE, ROOT, SECTOR, content, created, new_disk

SEEDS = 300


def outcomes(
    story: Callable[[SimDisk], object],
    look: Callable[[SimDisk], object],
    faults: DiskFaults | None = None,
    *,
    seeds: int = SEEDS,
) -> set[object]:
    """Tell the story to many disks, and collect what they look like after a crash."""
    seen = set()
    for seed in range(seeds):
        disk = new_disk(seed, faults)
        story(disk)
        disk.crash()
        seen.add(look(disk))
    return seen


def everything(disk: SimDisk) -> object:
    names = [name for name in disk.names(ROOT) if name != "folder"]
    return tuple((name, content(disk, ROOT / name)) for name in names)


def sectors(text: bytes) -> tuple[bytes, ...]:
    """Say of each sector which byte it is filled with; more than one means torn."""
    pieces = [text[at : at + SECTOR] for at in range(0, len(text), SECTOR)]
    return tuple(bytes(sorted(set(piece))) for piece in pieces)


def test_what_was_synced_is_there_whatever_happens() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"a" * 3 * SECTOR)

    assert outcomes(story, everything) == {(("file", b"a" * 3 * SECTOR),)}


def test_each_unsynced_sector_is_old_or_new_and_nothing_else() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"a" * 3 * SECTOR).write_at(0, b"b" * 3 * SECTOR)

    seen = outcomes(story, lambda disk: sectors(content(disk)))

    assert seen == {
        (first, second, third)
        for first in (b"a", b"b")
        for second in (b"a", b"b")
        for third in (b"a", b"b")
    }


def test_both_extremes_are_common() -> None:
    outcome: list[tuple[bytes, ...]] = []

    def story(disk: SimDisk) -> None:
        created(disk, b"a" * 64 * SECTOR).write_at(0, b"b" * 64 * SECTOR)

    outcomes(story, lambda disk: outcome.append(sectors(content(disk))))

    assert outcome.count((b"a",) * 64) > SEEDS // 10
    assert outcome.count((b"b",) * 64) > SEEDS // 10
    assert len(set(outcome)) > SEEDS // 10


def test_a_store_into_a_window_is_a_write_like_any_other() -> None:
    def story(disk: SimDisk, *, sync: bool) -> None:
        file = created(disk)
        file.allocate(PAGE)
        file.sync()
        window = file.map(0, PAGE, writable=True)
        assert window is not None
        window[0:4] = b"here"
        if sync:
            file.sync()

    def look(disk: SimDisk) -> bytes:
        return content(disk)[:4]

    assert outcomes(partial(story, sync=False), look) == {b"\0\0\0\0", b"here"}
    assert outcomes(partial(story, sync=True), look) == {b"here"}


def test_a_sector_may_survive_in_a_version_between_two_syncs() -> None:
    def story(disk: SimDisk) -> None:
        file = created(disk, b"aaaa")
        file.write_at(0, b"bbbb")
        for _ in range(10):
            file.size()
        file.write_at(0, b"cccc")

    assert outcomes(story, content) == {b"aaaa", b"cccc"}
    faults = DiskFaults(writes_back=0.2)
    assert outcomes(story, content, faults) == {b"aaaa", b"bbbb", b"cccc"}


def test_a_sector_is_torn_only_if_asked_for() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"a" * SECTOR).write_at(0, b"b" * SECTOR)

    seen = outcomes(story, content, DiskFaults(tears=1.0))

    torn = seen - {b"a" * SECTOR, b"b" * SECTOR}
    assert len(torn) > SEEDS // 10
    assert {bytes(text).lstrip(b"b").rstrip(b"a") for text in torn if isinstance(text, bytes)} == {
        b""
    }


def test_an_unsynced_name_survives_or_vanishes_whatever_the_file_holds() -> None:
    def story(disk: SimDisk) -> None:
        file = disk.open(FILE, create=True)
        file.write_at(0, b"kept")
        file.sync()

    assert outcomes(story, everything) == {(), (("file", b"kept"),)}


def test_a_synced_name_says_nothing_about_what_the_file_holds() -> None:
    def story(disk: SimDisk) -> None:
        disk.open(FILE, create=True).write_at(0, b"lost")
        disk.sync_folder(ROOT)

    assert outcomes(story, everything) == {
        (("file", b""),),
        (("file", b"\0\0\0\0"),),
        (("file", b"lost"),),
    }


def test_a_rename_leaves_the_old_name_or_the_new_one() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"old", path=ROOT / "file")
        created(disk, b"new", path=ROOT / "file.ing")
        disk.rename(ROOT / "file.ing", ROOT / "file")

    assert outcomes(story, everything) == {
        (("file", b"old"), ("file.ing", b"new")),
        (("file", b"new"),),
    }


def test_of_two_renames_in_a_row_any_may_be_the_last_that_survives() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, path=ROOT / "a")
        disk.rename(ROOT / "a", ROOT / "b")
        disk.rename(ROOT / "b", ROOT / "c")

    assert outcomes(story, everything) == {(("a", b""),), (("b", b""),), (("c", b""),)}


def test_a_rename_of_what_was_not_synced_may_leave_an_empty_file() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"old", path=ROOT / "file")
        disk.open(ROOT / "file.ing", create=True).write_at(0, b"new")
        disk.rename(ROOT / "file.ing", ROOT / "file")

    seen = outcomes(story, everything)

    assert {(("file", b""),), (("file", b"new"),), (("file", b"old"),)} <= seen
    assert {len(names) for names in seen if isinstance(names, tuple)} == {1, 2}


def test_a_synced_rename_is_done() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"old", path=ROOT / "file")
        created(disk, b"new", path=ROOT / "file.ing")
        disk.rename(ROOT / "file.ing", ROOT / "file")
        disk.sync_folder(ROOT)

    assert outcomes(story, everything) == {(("file", b"new"),)}


def test_what_was_removed_may_come_back_until_its_folder_is_synced() -> None:
    def story(disk: SimDisk, *, sync: bool) -> None:
        created(disk, b"back")
        disk.unlink(FILE)
        if sync:
            disk.sync_folder(ROOT)

    unsynced = outcomes(partial(story, sync=False), everything)
    assert unsynced == {(), (("file", b"back"),)}
    assert outcomes(partial(story, sync=True), everything) == {()}


def test_changes_of_names_survive_in_any_combination() -> None:
    def story(disk: SimDisk) -> None:
        for name in "abc":
            disk.open(ROOT / name, create=True)

    assert len(outcomes(story, everything)) == 2**3


def test_a_move_to_another_folder_needs_both_to_be_synced() -> None:
    folder = ROOT / "folder"

    def story(disk: SimDisk, synced: list[Path]) -> None:
        created(disk, b"kept")
        disk.make_folder(folder)
        disk.rename(FILE, folder / "file")
        for place in synced:
            disk.sync_folder(place)

    def look(disk: SimDisk) -> object:
        return ("file" in disk.names(ROOT), "file" in disk.names(folder))

    for synced in ([], [ROOT], [folder]):
        seen = outcomes(partial(story, synced=synced), look)
        assert seen == {(True, False), (False, True)}
    assert outcomes(partial(story, synced=[ROOT, folder]), look) == {(False, True)}


def test_a_move_is_done_once_a_later_change_of_the_same_name_is_durable() -> None:
    folder = ROOT / "folder"

    def story(disk: SimDisk) -> None:
        created(disk, b"moved")
        disk.make_folder(folder)
        disk.rename(FILE, folder / "file")
        created(disk, b"follower")

    def look(disk: SimDisk) -> object:
        return content(disk), content(disk, folder / "file")

    assert outcomes(story, look) == {(b"follower", b"moved")}


def test_folders_are_durable_once_made() -> None:
    seen = outcomes(
        lambda disk: disk.make_folder(ROOT / "a" / "b"), lambda disk: disk.names(ROOT)[0]
    )

    assert seen == {"a"}


def test_a_file_may_have_any_length_that_it_had_since_the_last_sync() -> None:
    def story(disk: SimDisk) -> None:
        file = created(disk, b"aa")
        file.write_at(2, b"bb")
        file.write_at(4, b"cc")

    seen = outcomes(story, lambda disk: len(content(disk)))

    assert seen == {2, 4, 6}


def test_a_longer_file_reads_as_zeros_where_what_was_written_is_lost() -> None:
    def story(disk: SimDisk) -> None:
        created(disk).write_at(SECTOR, b"bb")

    zeros = bytes(SECTOR)
    assert outcomes(story, content) == {b"", zeros + b"\0\0", zeros + b"bb"}


def test_allocated_space_may_vanish_until_the_file_is_synced() -> None:
    def story(disk: SimDisk, *, sync: bool) -> None:
        file = created(disk, b"a")
        file.allocate(PAGE)
        if sync:
            file.sync()

    def look(disk: SimDisk) -> int:
        return len(content(disk))

    assert outcomes(partial(story, sync=False), look) == {1, PAGE}
    assert outcomes(partial(story, sync=True), look) == {PAGE}


def test_what_was_cut_off_may_come_back_until_the_file_is_synced() -> None:
    def story(disk: SimDisk, *, sync: bool) -> None:
        file = created(disk, b"a" * 2 * SECTOR)
        file.truncate(SECTOR)
        if sync:
            file.sync()

    def look(disk: SimDisk) -> object:
        return sectors(content(disk))

    unsynced = outcomes(partial(story, sync=False), look)
    assert unsynced == {(b"a",), (b"a", b"a"), (b"a", b"\0")}
    assert outcomes(partial(story, sync=True), look) == {(b"a",)}


def test_what_was_cut_off_may_show_behind_what_was_written_next() -> None:
    def story(disk: SimDisk, *, sync: bool) -> None:
        file = created(disk, b"a" * 4 * SECTOR)
        file.truncate(SECTOR)
        if sync:
            file.sync()
        file.write_at(SECTOR, b"b" * SECTOR)

    def look(disk: SimDisk) -> object:
        return sectors(content(disk))

    unsynced = outcomes(partial(story, sync=False), look)
    assert {(b"a", b"b", b"a", b"a"), (b"a", b"\0", b"a", b"a"), (b"a", b"\0")} <= unsynced
    assert outcomes(partial(story, sync=True), look) == {
        (b"a",),
        (b"a", b"\0"),
        (b"a", b"b"),
    }


def test_what_a_crash_cut_off_does_not_come_back() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"a").write_at(1, b"b")

    def look(disk: SimDisk) -> object:
        left = content(disk)
        disk.open(FILE).truncate(2)
        return left, content(disk)

    assert outcomes(story, look) == {(b"a", b"a\0"), (b"a\0", b"a\0"), (b"ab", b"ab")}


def test_a_crash_can_be_told_what_to_keep() -> None:
    def crash(keep: Keep) -> object:
        disk = new_disk()
        created(disk, b"old").write_at(0, b"new")
        disk.open(ROOT / "other", create=True)
        disk.crash(keep)
        return everything(disk)

    assert crash("none") == (("file", b"old"),)
    assert crash("all") == (("file", b"new"), ("other", b""))


def test_what_survived_once_survives_again() -> None:
    for seed in range(SEEDS):
        disk = new_disk(seed)
        file = created(disk, b"a" * 4 * SECTOR)
        file.write_at(0, b"b" * 2 * SECTOR)
        file.truncate(3 * SECTOR)
        disk.open(ROOT / "other", create=True).write_at(0, b"c")
        disk.crash()
        first = everything(disk)

        disk.crash()

        assert everything(disk) == first


def test_a_crash_may_flip_bits_of_what_was_durable() -> None:
    def story(disk: SimDisk) -> None:
        created(disk, b"\0\0")

    rotten = outcomes(story, content, DiskFaults(rots=1.0))

    assert rotten == {(1 << bit).to_bytes(2, "big") for bit in range(16)}
