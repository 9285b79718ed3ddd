"""A lock's holder is named without taking the lock, and a folder's file system by its mount."""

from pathlib import Path

from roost.host.examine import HeldLock, file_system, lock_holder, parse_locks
from roost.host.posix import PosixDisk

TABLE = """
1: POSIX  ADVISORY  READ  11 fe:00:100 128 128
2: FLOCK  ADVISORY  WRITE 12 fe:0a:200 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:0a:200 0 EOF
3: OFDLCK ADVISORY  READ -1 00:06:400 0 EOF
4: FLOCK  ADVISORY  READ  14 00:2b:300 0 EOF
""".strip()


def test_only_locks_of_whole_files_that_are_held_count() -> None:
    assert parse_locks(TABLE) == [
        HeldLock(device="254:10", inode=200, pid=12),
        HeldLock(device="0:43", inode=300, pid=14),
    ]


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    nobody = lock_holder(lock)

    held = PosixDisk(guarded=False).lock(lock, holder="somebody here")
    during = lock_holder(lock)
    held.release()

    assert (nobody, during, lock_holder(lock)) == ("", "somebody here", "")


def test_a_lock_without_a_name_is_held_by_a_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    held = PosixDisk(guarded=False).lock(lock, holder="")

    assert lock_holder(lock).startswith("process ")
    held.release()


def test_the_file_system_of_a_folder_has_a_name(tmp_path: Path) -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(tmp_path) != ""
