"""What every disk does, the real one and the simulated one: the contract of `roost.host.disk`.

What a disk forgets when the power goes cannot be shown on a real one; that part of the contract is
tested on the simulated disk alone.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from roost.host.disk import Disk, File, Held
from roost.host.posix import PosixDisk
from roost.sim.disk import SimDisk

PAGE = 4096


class Place(msgspec.Struct, frozen=True):
    """A disk, and an empty folder on it."""

    disk: Disk
    root: Path


def posix(tmp_path: Path) -> Place:
    return Place(PosixDisk(guarded=True), tmp_path)


def simulated(_tmp_path: Path) -> Place:
    place = Place(SimDisk(Random(7)), Path("/disk"))
    place.disk.make_folder(place.root)
    return place


@pytest.fixture(params=[posix, simulated], ids=["posix", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make: Callable[[Path], Place] = request.param
    return make(tmp_path)


@pytest.fixture
def disk(place: Place) -> Disk:
    return place.disk


@pytest.fixture
def root(place: Place) -> Path:
    return place.root


@pytest.fixture
def file(disk: Disk, root: Path) -> File:
    return disk.open(root / "file", create=True)


def content(disk: Disk, path: Path) -> bytes:
    file = disk.open(path, writable=False)
    text = file.read_at(0, file.size())
    file.close()
    return text


def write(disk: Disk, path: Path, text: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, text)
    file.close()


def test_a_missing_file_is_made_only_if_asked_for(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        disk.open(root / "file")

    assert caught.value.filename == str(root / "file")
    assert disk.names(root) == []
    assert disk.open(root / "file", create=True).size() == 0
    assert disk.names(root) == ["file"]


def test_opening_an_existing_file_to_create_it_keeps_what_it_holds(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"kept")

    assert disk.open(root / "file", create=True).read_at(0, 9) == b"kept"


def test_a_file_in_a_missing_folder_cannot_be_made(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(root / "folder" / "file", create=True)


def test_a_folder_is_not_a_file(disk: Disk, root: Path) -> None:
    with pytest.raises(IsADirectoryError):
        disk.open(root)
    with pytest.raises(IsADirectoryError):
        disk.open(root, writable=False)


def test_a_read_gives_what_was_written_and_less_only_at_the_end(file: File) -> None:
    file.write_at(0, b"one two")

    assert file.read_at(4, 3) == b"two"
    assert file.read_at(4, 100) == b"two"
    assert file.read_at(7, 1) == b""
    assert file.read_at(100, 1) == b""
    assert file.read_at(0, 0) == b""


def test_any_kind_of_bytes_can_be_written(file: File) -> None:
    file.write_at(0, b"a")
    file.write_at(1, bytearray(b"b"))
    file.write_at(2, memoryview(b"xcx")[1:2])

    assert file.read_at(0, 9) == b"abc"


def test_a_write_behind_the_end_leaves_zeros_between(file: File) -> None:
    file.write_at(3, b"x")

    assert file.read_at(0, 9) == b"\0\0\0x"


def test_a_write_of_nothing_changes_nothing(file: File) -> None:
    file.write_at(100, b"")

    assert file.size() == 0


def test_a_write_is_seen_by_every_reader_at_once(disk: Disk, root: Path, file: File) -> None:
    reader = disk.open(root / "file", writable=False)

    file.write_at(0, b"seen")

    assert reader.read_at(0, 9) == b"seen"
    assert reader.size() == 4


def test_a_file_opened_for_reading_refuses_every_change(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"kept")
    reader = disk.open(root / "file", writable=False)

    with pytest.raises(OSError, match="file"):
        reader.write_at(0, b"lost")
    with pytest.raises(OSError, match="file"):
        reader.truncate(0)
    with pytest.raises(OSError, match="file"):
        reader.allocate(100)

    assert reader.read_at(0, 9) == b"kept"


def test_what_was_cut_off_does_not_come_back(file: File) -> None:
    file.write_at(0, b"abcdef")

    file.truncate(2)
    file.truncate(4)

    assert file.read_at(0, 9) == b"ab\0\0"


def test_allocated_space_reads_as_zeros_and_never_shortens_a_file(file: File) -> None:
    file.write_at(0, b"abc")

    file.allocate(PAGE + 1)
    file.allocate(2)
    file.allocate(PAGE)

    assert file.size() == PAGE + 1
    assert file.read_at(0, PAGE + 1) == b"abc".ljust(PAGE + 1, b"\0")


def test_space_can_be_allocated_again_where_it_was_cut(file: File) -> None:
    file.allocate(2 * PAGE)
    file.write_at(PAGE, b"gone")

    file.truncate(PAGE)
    file.allocate(2 * PAGE)

    assert file.read_at(PAGE, 4) == b"\0\0\0\0"


def test_a_folder_is_mapped_exactly_where_it_gives_no_reason_against(
    disk: Disk, root: Path, file: File
) -> None:
    file.allocate(2 * PAGE)
    file.allocate(PAGE)

    window = file.map(0, PAGE, writable=True)

    assert (window is None) == bool(disk.mapping(root))


def test_a_window_and_its_file_are_the_same_bytes(disk: Disk, root: Path, file: File) -> None:
    file.allocate(3 * PAGE)
    window = file.map(PAGE, PAGE, writable=True)
    if window is None:
        return

    window[0:4] = b"mine"
    file.write_at(PAGE + 4, b"+yours")

    assert window.nbytes == PAGE
    assert bytes(window[0:10]) == b"mine+yours"
    assert disk.open(root / "file").read_at(PAGE, 10) == b"mine+yours"
    assert file.size() == 3 * PAGE


def test_a_window_for_reading_cannot_be_stored_into(file: File) -> None:
    file.write_at(0, b"abc")
    window = file.map(0, 3, writable=False)
    if window is None:
        return

    assert bytes(window) == b"abc"
    assert window.readonly


def test_a_file_opened_for_reading_has_no_window_for_stores(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"abc")
    reader = disk.open(root / "file", writable=False)
    if reader.map(0, 3, writable=False) is None:
        return

    with pytest.raises(PermissionError, match="file"):
        reader.map(0, 3, writable=True)


def test_a_window_outlives_the_file_that_it_was_made_from(
    disk: Disk, root: Path, file: File
) -> None:
    file.allocate(PAGE)
    window = file.map(0, PAGE, writable=True)
    if window is None:
        return

    file.close()
    window[0:4] = b"seen"

    assert content(disk, root / "file")[:4] == b"seen"
    disk.unlink(root / "file")
    assert bytes(window[0:4]) == b"seen"


def test_a_window_of_nothing_is_empty(file: File) -> None:
    window = file.map(0, 0, writable=False)

    assert window is None or bytes(window) == b""


def test_there_is_no_window_beyond_the_end_of_the_file(file: File) -> None:
    file.allocate(PAGE)

    assert file.map(0, PAGE + 1, writable=False) is None


def test_a_sync_changes_nothing_that_is_seen(disk: Disk, root: Path, file: File) -> None:
    file.write_at(0, b"abc")

    file.sync()
    disk.sync_folder(root)

    assert content(disk, root / "file") == b"abc"


def test_a_sweep_syncs_files_and_folders_until_it_is_closed(disk: Disk, root: Path) -> None:
    sweep = disk.sweep(root)
    assert sweep is not None
    for name in ("a", "b"):
        file = disk.open(root / name, create=True)
        file.write_at(0, b"abc")
        file.close()

    sweep.sync()
    sweep.sync()
    sweep.close()
    sweep.close()

    assert content(disk, root / "b") == b"abc"
    with pytest.raises(OSError, match=r"\[Errno 9\]"):
        sweep.sync()


def test_there_is_no_sweep_of_a_folder_that_is_not_there(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.sweep(root / "folder")


def test_a_closed_file_refuses_to_be_used(file: File) -> None:
    file.close()
    file.close()

    for use in (
        file.size,
        file.sync,
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        lambda: file.map(0, 0, writable=False),
    ):
        with pytest.raises(OSError, match="file"):
            use()


def test_names_are_sorted_and_include_folders(disk: Disk, root: Path) -> None:
    for name in ("b", "c", "a"):
        disk.open(root / name, create=True)
    disk.make_folder(root / "aa" / "deeper")

    assert disk.names(root) == ["a", "aa", "b", "c"]
    assert disk.names(root / "aa") == ["deeper"]


def test_a_missing_folder_has_no_names_and_cannot_be_synced(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.names(root / "folder")
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(root / "folder")


def test_a_folder_that_is_there_already_is_fine(disk: Disk, root: Path) -> None:
    disk.make_folder(root / "folder")
    write(disk, root / "folder" / "file", b"kept")

    disk.make_folder(root / "folder")

    assert content(disk, root / "folder" / "file") == b"kept"


def test_a_folder_cannot_stand_where_a_file_is(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"kept")

    with pytest.raises(NotADirectoryError):
        disk.make_folder(root / "file")
    with pytest.raises(NotADirectoryError):
        disk.make_folder(root / "file" / "folder")

    assert content(disk, root / "file") == b"kept"


def test_a_rename_replaces_what_had_the_name(disk: Disk, root: Path) -> None:
    write(disk, root / "old", b"old")
    write(disk, root / "new", b"new")

    disk.rename(root / "new", root / "old")

    assert disk.names(root) == ["old"]
    assert content(disk, root / "old") == b"new"


def test_a_file_cannot_take_the_name_of_a_folder(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"kept")
    disk.make_folder(root / "folder")

    with pytest.raises(IsADirectoryError):
        disk.rename(root / "file", root / "folder")
    disk.rename(root / "file", root / "file")

    assert disk.names(root) == ["file", "folder"]


def test_a_file_can_move_to_another_folder(disk: Disk, root: Path) -> None:
    write(disk, root / "file", b"kept")
    disk.make_folder(root / "folder")

    disk.rename(root / "file", root / "folder" / "moved")

    assert disk.names(root) == ["folder"]
    assert content(disk, root / "folder" / "moved") == b"kept"


def test_what_is_missing_can_be_neither_renamed_nor_removed(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.rename(root / "file", root / "other")
    with pytest.raises(FileNotFoundError):
        disk.unlink(root / "file")


def test_an_open_file_outlives_its_name(disk: Disk, root: Path) -> None:
    write(disk, root / "removed", b"removed")
    write(disk, root / "replaced", b"replaced")
    write(disk, root / "new", b"new")
    removed, replaced = disk.open(root / "removed"), disk.open(root / "replaced")

    disk.unlink(root / "removed")
    disk.rename(root / "new", root / "replaced")
    removed.write_at(7, b"!")

    assert removed.read_at(0, 99) == b"removed!"
    assert replaced.read_at(0, 99) == b"replaced"
    assert disk.names(root) == ["replaced"]


def test_a_lock_is_held_by_one_and_names_its_holder(disk: Disk, root: Path) -> None:
    lock = disk.lock(root / "lock", holder="the first, with a long name")

    with pytest.raises(Held) as caught:
        disk.lock(root / "lock", holder="the second")

    assert caught.value.holder == "the first, with a long name"
    lock.release()
    lock.release()
    disk.lock(root / "lock", holder="the third")
    assert content(disk, root / "lock") == b"the third"


def test_locks_of_two_files_do_not_meet(disk: Disk, root: Path) -> None:
    disk.lock(root / "one", holder="someone")

    disk.lock(root / "two", holder="someone else")

    assert disk.names(root) == ["one", "two"]


def test_a_disk_tells_how_much_it_still_takes(disk: Disk, root: Path) -> None:
    assert disk.free_bytes(root) > 0


def test_the_same_random_changes_leave_the_same_files(tmp_path: Path) -> None:
    real, model = posix(tmp_path), simulated(tmp_path)

    for place in (real, model):
        change_at_random(place, Random(42), changes=400)

    assert real.disk.names(real.root) == model.disk.names(model.root)
    for name in real.disk.names(real.root):
        assert content(real.disk, real.root / name) == content(model.disk, model.root / name)


def change_at_random(place: Place, rng: Random, *, changes: int) -> None:
    for _ in range(changes):
        file = place.disk.open(place.root / rng.choice("abc"), create=True)
        offset = rng.randrange(3 * PAGE)
        match rng.randrange(6):
            case 0 | 1:
                file.write_at(offset, rng.randbytes(rng.randrange(PAGE)))
            case 2:
                file.truncate(offset)
            case 3:
                file.allocate(offset)
            case 4:
                file.allocate(2 * PAGE)
                window = file.map(PAGE, PAGE, writable=True)
                piece = rng.randbytes(100)
                if window is None:
                    file.write_at(PAGE + 50, piece)
                else:
                    window[50:150] = piece
            case _:
                file.sync()
                place.disk.rename(
                    place.root / rng.choice(place.disk.names(place.root)),
                    place.root / rng.choice("abc"),
                )
        file.close()
