"""What only the real disk does: files for their owner, no links, locks that survive a fork."""

import errno
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.host.disk import Disk, Held
from roost.host.posix import PosixDisk

PAGE = 4096


@pytest.fixture
def disk() -> Disk:
    return PosixDisk(guarded=True)


@pytest.fixture
def umask_of_nothing() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def short_files() -> Iterator[int]:
    """Limit the size of files; a write beyond it is cut short first, and an error next."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PAGE, limits[1]))
    yield 2 * PAGE
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("umask_of_nothing")
def test_files_and_folders_are_for_their_owner_alone(disk: Disk, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "outer" / "folder")
    disk.open(tmp_path / "file", create=True)
    disk.lock(tmp_path / "lock", holder="someone")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}

    assert modes == {"outer": 0o700, "folder": 0o700, "file": 0o600, "lock": 0o600}


def test_a_link_in_place_of_a_file_is_refused(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="link") as caught:
        disk.open(tmp_path / "link", create=True)
    with pytest.raises(OSError, match="link"):
        disk.lock(tmp_path / "link", holder="someone")

    assert caught.value.errno == errno.ELOOP
    assert (tmp_path / "target").read_bytes() == b"kept"


def test_a_pipe_in_place_of_a_file_is_refused_at_once(disk: Disk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="pipe"):
        disk.open(tmp_path / "pipe", writable=False)
    with pytest.raises(OSError, match="pipe"):
        disk.lock(tmp_path / "pipe", holder="someone")


def test_a_program_that_is_started_inherits_no_file(disk: Disk, tmp_path: Path) -> None:
    disk.open(tmp_path / "file", create=True)
    disk.lock(tmp_path / "lock", holder="someone")

    inherited = {
        target.name: os.get_inheritable(int(fd.name))
        for fd in Path("/proc/self/fd").iterdir()
        if fd.exists() and (target := fd.readlink()).is_relative_to(tmp_path)
    }

    assert inherited == {"file": False, "lock": False}


def test_a_write_that_is_cut_short_goes_on_until_the_error(
    disk: Disk, tmp_path: Path, short_files: int
) -> None:
    file = disk.open(tmp_path / "file", create=True)

    with pytest.raises(OSError, match="file") as caught:
        file.write_at(PAGE, bytes(2 * PAGE))

    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "file")
    assert file.size() == short_files


def test_an_error_of_a_file_names_it(disk: Disk, tmp_path: Path, short_files: int) -> None:
    file = disk.open(tmp_path / "file", create=True)

    uses: list[Callable[[int], None]] = [file.truncate, file.allocate]
    for use in uses:
        with pytest.raises(OSError, match="file") as caught:
            use(short_files + 1)
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "file"))


def test_a_folder_that_cannot_be_synced_is_an_error(disk: Disk) -> None:
    with pytest.raises(OSError, match="/proc/self"):
        disk.sync_folder(Path("/proc/self"))


def test_space_that_is_not_there_changes_nothing(disk: Disk) -> None:
    # Shared memory says at once that it has not so much; a disk would try for long.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "file"
        file = disk.open(path, create=True)
        file.allocate(2 * PAGE)
        file.write_at(0, b"kept")

        with pytest.raises(OSError, match="file") as caught:
            file.allocate(1 << 60)

        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert file.size() == 2 * PAGE
        assert file.read_at(0, 4) == b"kept"
        assert path.stat().st_blocks * 512 == 2 * PAGE
        file.close()


def test_without_a_guard_nothing_is_mapped(tmp_path: Path) -> None:
    disk = PosixDisk(guarded=False)
    file = disk.open(tmp_path / "file", create=True)
    file.allocate(PAGE)

    assert "not guarded" in disk.mapping(tmp_path)
    assert file.map(0, PAGE, writable=True) is None


def test_a_file_system_without_files_of_its_own_is_not_mapped(disk: Disk) -> None:
    assert "proc is not known to be safe" in disk.mapping(Path("/proc/self"))


def test_allocated_space_is_taken_from_the_disk(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)

    file.allocate(64 * PAGE)

    assert (tmp_path / "file").stat().st_blocks * 512 >= 64 * PAGE


def test_a_longer_text_of_the_last_holder_leaves_no_trace(disk: Disk, tmp_path: Path) -> None:
    disk.lock(tmp_path / "lock", holder="a rather long name").release()

    disk.lock(tmp_path / "lock", holder="short")

    with pytest.raises(Held) as caught:
        disk.lock(tmp_path / "lock", holder="other")
    assert caught.value.holder == "short"


FORKS = """
import os, pathlib, sys
from roost.host.disk import Held
from roost.host.posix import PosixDisk

def attempt():
    try:
        disk.lock(path, holder="another")
        print("free")
    except Held as held:
        print("held by", held.holder)

disk, path = PosixDisk(guarded=False), pathlib.Path(sys.argv[1])
lock = disk.lock(path, holder="parent")

releasing = os.fork()
if releasing == 0:
    lock.release()
    os._exit(0)
os.waitpid(releasing, 0)
attempt()

reading, writing = os.pipe()
keeping = os.fork()
if keeping == 0:
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
lock.release()
attempt()
os.close(writing)
os.waitpid(keeping, 0)
"""


def test_a_forked_child_neither_unlocks_its_parent_nor_holds_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "lock")],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.splitlines() == ["held by parent", "free"]
