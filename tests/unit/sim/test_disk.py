"""How a simulated disk fails while a program runs: syncs that lie, no room, errors and rot."""

import errno
from collections.abc import Callable

import msgspec
import pytest

from roost.host.disk import File
from roost.sim.faults import DiskFaults, Operation
from tests.unit.sim.disks import (
    FILE,
    PAGE,
    ROOT,
    SECTOR,
    content,
    created,
    fail_sync,
    new_disk,
    window,
)

# A sync that failed.


def after_a_failed_sync(seed: int, then: Callable[[File], None], new: bytes = b"b") -> bytes:
    """Say what is left of `new` over "a" in 8 sectors after a failed sync, a good one, a crash."""
    disk = new_disk(seed)
    file = created(disk, b"a" * 8 * SECTOR)
    file.write_at(0, new * 8 * SECTOR)
    fail_sync(disk, file)
    then(file)
    file.sync()
    disk.crash("all")
    return content(disk)


def test_a_sync_after_a_failed_one_succeeds_and_lies() -> None:
    seen = [after_a_failed_sync(seed, lambda _: None) for seed in range(50)]

    assert any(b"a" in text for text in seen)
    assert any(b"b" in text for text in seen)
    assert len(set(seen)) > 10


def test_what_a_failed_sync_lost_is_still_read() -> None:
    disk = new_disk()
    file = created(disk, b"a" * 8 * SECTOR)
    file.write_at(0, b"b" * 8 * SECTOR)

    fail_sync(disk, file)

    assert file.read_at(0, PAGE) == b"b" * PAGE


def test_what_is_written_again_is_stored_by_the_next_sync() -> None:
    seen = {
        after_a_failed_sync(seed, lambda file: file.write_at(0, b"b" * 8 * SECTOR))
        for seed in range(50)
    }

    assert seen == {b"b" * 8 * SECTOR}


def test_only_a_store_that_changes_something_is_stored_by_the_next_sync() -> None:
    def store_same(file: File) -> None:
        window(file)[:] = b"b" * PAGE

    def store_other(file: File) -> None:
        window(file)[::SECTOR] = b"c" * 8

    same = [after_a_failed_sync(seed, store_same) for seed in range(50)]
    other = {after_a_failed_sync(seed, store_other) for seed in range(50)}

    assert any(b"a" in text for text in same)
    assert other == {(b"c" + b"b" * (SECTOR - 1)) * 8}


def test_what_was_cut_off_and_allocated_again_is_stored_by_the_next_sync() -> None:
    def cut(file: File) -> None:
        file.truncate(0)
        file.allocate(PAGE)

    assert {after_a_failed_sync(seed, cut) for seed in range(50)} == {bytes(PAGE)}
    assert {after_a_failed_sync(seed, cut, b"\0") for seed in range(50)} == {bytes(PAGE)}


def test_a_change_that_is_undone_later_is_stored_both_times() -> None:
    def change_twice(file: File) -> None:
        view = window(file)
        view[:] = b"c" * PAGE
        file.sync()
        view[:] = b"b" * PAGE

    assert {after_a_failed_sync(seed, change_twice) for seed in range(50)} == {b"b" * PAGE}


def test_a_crash_ends_the_lie() -> None:
    for seed in range(50):
        disk = new_disk(seed)
        file = created(disk, b"a" * 8 * SECTOR)
        file.write_at(0, b"b" * 8 * SECTOR)
        fail_sync(disk, file)
        disk.crash()
        file = disk.open(FILE)
        window(file)[:] = b"b" * PAGE

        file.sync()

        disk.crash("none")
        assert content(disk) == b"b" * PAGE


def test_what_was_lost_is_gone_even_if_a_crash_keeps_all() -> None:
    seen = {after_a_failed_sync(seed, lambda file: file.truncate(PAGE)) for seed in range(50)}

    disk = new_disk()
    file = created(disk, b"a" * 8 * SECTOR)
    file.write_at(0, b"b" * 8 * SECTOR)
    fail_sync(disk, file)
    disk.crash("all")
    assert content(disk) in seen
    assert b"a" in content(disk)


def test_what_a_failed_sync_lost_may_be_read_as_it_was_before() -> None:
    disk = new_disk(faults=DiskFaults(evicts=1.0))
    file = created(disk, b"a" * 8 * SECTOR)
    file.write_at(0, b"b" * 8 * SECTOR)
    fail_sync(disk, file)

    for _ in range(8):
        file.size()

    text = file.read_at(0, PAGE)
    disk.crash("all")
    assert b"a" in text
    assert content(disk) == text


def test_what_a_failed_sync_lost_stays_lost_when_the_process_ends() -> None:
    seen = set()
    for seed in range(50):
        disk = new_disk(seed)
        file = created(disk, b"a" * SECTOR)
        file.write_at(0, b"b" * SECTOR)
        fail_sync(disk, file)
        disk.kill()
        disk.open(FILE).sync()
        disk.crash("all")
        seen.add(content(disk))

    assert seen == {b"a" * SECTOR, b"b" * SECTOR}


def test_a_failed_sync_of_a_folder_stores_nothing_for_sure() -> None:
    seen = set()
    for seed in range(50):
        disk = new_disk(seed)
        disk.open(FILE, create=True)
        disk.fail_next("sync_folder", "/disk", errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            disk.sync_folder(ROOT)
        disk.crash()
        seen.add(tuple(disk.names(ROOT)))

    assert seen == {(), ("file",)}


# A disk that is full, and other errors.


def test_space_that_is_not_there_is_not_allocated() -> None:
    disk = new_disk(faults=DiskFaults(capacity_bytes=4 * PAGE))
    file = created(disk, b"kept")

    with pytest.raises(OSError, match="file") as caught:
        file.allocate(5 * PAGE)

    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(FILE)
    assert content(disk) == b"kept"
    assert disk.free_bytes(ROOT) == 3 * PAGE


def test_a_write_fills_the_disk_and_fails() -> None:
    disk = new_disk(faults=DiskFaults(capacity_bytes=2 * PAGE))
    file = created(disk)

    with pytest.raises(OSError, match="ENOSPC"):
        file.write_at(100, b"x" * 3 * PAGE)

    assert disk.free_bytes(ROOT) == 0
    assert content(disk) == bytes(100) + b"x" * (2 * PAGE - 100)


def test_what_was_allocated_takes_bytes_on_a_full_disk() -> None:
    disk = new_disk(faults=DiskFaults(capacity_bytes=2 * PAGE))
    file = created(disk)
    view = window(file, 2 * PAGE)
    with pytest.raises(OSError, match="ENOSPC"):
        disk.open(ROOT / "other", create=True).write_at(0, b"x")

    view[PAGE:] = b"s" * PAGE
    file.write_at(0, b"w" * PAGE)
    file.sync()

    assert content(disk) == b"w" * PAGE + b"s" * PAGE


def test_space_comes_back_when_it_is_cut_or_nobody_refers_to_it() -> None:
    disk = new_disk(faults=DiskFaults(capacity_bytes=4 * PAGE))
    file = created(disk)
    file.allocate(4 * PAGE)

    file.truncate(PAGE + 1)
    assert disk.free_bytes(ROOT) == 2 * PAGE
    disk.unlink(FILE)
    assert disk.free_bytes(ROOT) == 2 * PAGE
    file.close()
    assert disk.free_bytes(ROOT) == 4 * PAGE


def test_there_is_room_again_when_the_disk_grows() -> None:
    disk = new_disk(faults=DiskFaults(capacity_bytes=PAGE))
    file = created(disk)
    with pytest.raises(OSError, match="ENOSPC"):
        file.allocate(2 * PAGE)

    disk.faults = msgspec.structs.replace(disk.faults, capacity_bytes=2 * PAGE)

    file.allocate(2 * PAGE)


def test_a_file_has_a_greatest_size() -> None:
    disk = new_disk(faults=DiskFaults(file_bytes_max=2 * PAGE))
    file = created(disk, b"x" * 2 * PAGE)

    uses: list[Callable[[], None]] = [
        lambda: file.write_at(2 * PAGE, b"x"),
        lambda: file.allocate(2 * PAGE + 1),
        lambda: file.truncate(2 * PAGE + 1),
    ]
    for use in uses:
        with pytest.raises(OSError, match="EFBIG"):
            use()


def test_a_failed_write_has_written_any_part() -> None:
    seen = set()
    for seed in range(100):
        disk = new_disk(seed)
        file = created(disk)
        disk.fail_next("write", "/file", errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            file.write_at(0, b"abc")
        seen.add(content(disk))

    assert seen == {b"", b"a", b"ab", b"abc"}


def test_reads_writes_and_syncs_fail_as_often_as_they_are_told_to() -> None:
    disk = new_disk()
    file = created(disk, b"text")
    disk.faults = DiskFaults(read_fails=0.5, write_fails=0.5, sync_fails=0.5)

    for use in (
        lambda: file.read_at(0, 4),
        lambda: file.write_at(0, b"text"),
        file.sync,
        lambda: disk.sync_folder(ROOT),
    ):
        assert 30 < sum(fails(use) for _ in range(100)) < 70


def fails(use: Callable[[], object]) -> bool:
    try:
        use()
    except OSError as error:
        return (error.errno, error.filename) in {(errno.EIO, str(FILE)), (errno.EIO, str(ROOT))}
    return False


def test_a_failure_that_was_ordered_hits_the_next_such_operation_only() -> None:
    disk = new_disk()
    file = created(disk)
    disk.fail_next("rename", "/target", errno.EACCES)
    disk.fail_next("open", "/file", errno.EMFILE)

    assert disk.names(ROOT) == ["file"]
    with pytest.raises(OSError, match="EMFILE"):
        disk.open(FILE)
    with pytest.raises(PermissionError):
        disk.rename(FILE, ROOT / "target")

    disk.rename(FILE, ROOT / "target")
    disk.open(ROOT / "target")
    assert file.size() == 0


def test_a_bit_that_rots_is_rotten_for_everybody_and_for_ever() -> None:
    disk = new_disk()
    file = created(disk, b"\0\0")
    view = window(file)

    disk.rot(FILE, 1, 7)

    assert file.read_at(0, 2) == b"\0\x80"
    assert bytes(view[0:2]) == b"\0\x80"
    disk.crash("none")
    assert content(disk) == b"\0\x80"


def test_rot_makes_nothing_dirty() -> None:
    def rotten(seed: int) -> set[bytes]:
        disk = new_disk(seed)
        file = created(disk, b"a")
        file.write_at(0, b"b")
        fail_sync(disk, file)
        disk.rot(FILE, 0, 7)
        file.sync()
        seen = content(disk)
        disk.crash("all")
        return {seen, content(disk)}

    seen = {frozenset(rotten(seed)) for seed in range(20)}

    assert seen == {frozenset({b"\xe2"}), frozenset({b"\xe2", b"\xe1"})}


def test_any_operation_can_be_made_to_fail() -> None:
    disk = new_disk()
    file = created(disk, b"text")
    uses: dict[Operation, Callable[[], object]] = {
        "allocate": lambda: file.allocate(PAGE),
        "close": lambda: disk.open(FILE).close(),
        "free_bytes": lambda: disk.free_bytes(ROOT),
        "lock": lambda: disk.lock(FILE, holder="someone"),
        "make_folder": lambda: disk.make_folder(ROOT),
        "map": lambda: file.map(0, 4, writable=False),
        "mapping": lambda: disk.mapping(ROOT),
        "names": lambda: disk.names(ROOT),
        "open": lambda: disk.open(FILE),
        "read": lambda: file.read_at(0, 4),
        "rename": lambda: disk.rename(FILE, FILE),
        "size": file.size,
        "sync": file.sync,
        "sync_folder": lambda: disk.sync_folder(ROOT),
        "truncate": lambda: file.truncate(0),
        "unlink": lambda: disk.unlink(FILE),
        "write": lambda: file.write_at(0, b"text"),
    }

    for operation, use in uses.items():
        disk.fail_next(operation, "", errno.EMFILE)
        with pytest.raises(OSError, match="EMFILE"):
            use()


# Windows.


def test_a_disk_that_gives_a_reason_gives_no_windows() -> None:
    disk = new_disk(faults=DiskFaults(mapping="because"))
    file = created(disk, b"text")

    assert disk.mapping(ROOT) == "because"
    assert file.map(0, 4, writable=False) is None


def test_a_window_into_space_that_was_not_allocated_is_a_defect() -> None:
    file = created(new_disk())
    file.truncate(PAGE)

    with pytest.raises(AssertionError, match="allocated before it is mapped"):
        file.map(0, PAGE, writable=True)


def test_a_store_into_what_was_cut_off_is_a_defect() -> None:
    file = created(new_disk())
    view = window(file, 2 * PAGE)
    file.truncate(1)

    view[PAGE] = 1

    with pytest.raises(AssertionError, match="part of the file that was cut"):
        file.sync()


def test_a_store_behind_the_end_within_its_page_has_no_effect() -> None:
    disk = new_disk()
    file = created(disk)
    view = window(file)
    file.truncate(1)

    view[0:2] = b"ab"
    file.allocate(2)

    assert content(disk) == b"a\0"
