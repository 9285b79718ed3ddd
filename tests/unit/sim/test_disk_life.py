"""How a program ends on a simulated disk, and that one seed gives one history."""

import errno
from random import Random

import pytest

from roost.host.disk import Held
from roost.sim.disk import SimDisk
from roost.sim.drive import PowerLoss
from roost.sim.faults import DiskFaults
from tests.unit.sim.disks import FILE, PAGE, ROOT, content, created, fail_sync, new_disk, window


def test_a_kill_leaves_what_is_visible_and_nothing_that_was_held() -> None:
    disk = new_disk()
    file = disk.open(FILE, create=True)
    view = window(file)
    view[0:4] = b"kept"
    lock = disk.lock(ROOT / "lock", holder="the first")

    disk.kill()
    view[0:4] = b"late"

    assert content(disk)[:4] == b"kept"
    disk.lock(ROOT / "lock", holder="the second")
    for use in (file.size, file.sync, file.close, lock.release):
        with pytest.raises(PowerLoss):
            use()
    with pytest.raises(Held, match="the second"):
        disk.lock(ROOT / "lock", holder="the third")


def test_a_program_that_was_halted_changes_nothing_more() -> None:
    disk = new_disk()
    file = created(disk)
    view = window(file)
    file.sync()

    disk.halt()
    view[0:4] = b"late"
    for use in (
        file.sync,
        lambda: file.write_at(0, b"late"),
        lambda: disk.unlink(FILE),
        lambda: disk.open(FILE),
    ):
        with pytest.raises(PowerLoss):
            use()

    disk.crash("all")
    assert content(disk) == bytes(PAGE)


def test_whoever_asked_for_it_hears_that_a_program_ended() -> None:
    disk = new_disk()
    heard: list[str] = []
    disk.when_halted(lambda: heard.append("halted"))

    disk.lose_power_after(1)
    with pytest.raises(PowerLoss):
        disk.names(ROOT)
    disk.halt()

    assert heard == ["halted"]


def test_no_program_handles_its_own_end() -> None:
    assert not issubclass(PowerLoss, Exception)


def program(disk: SimDisk) -> None:
    """Replace a file as one should, with one operation after the other."""
    lock = disk.lock(ROOT / "lock", holder="program")
    file = disk.open(ROOT / "file.ing", create=True)
    file.allocate(PAGE)
    file.write_at(0, b"new")
    file.truncate(3)
    file.sync()
    file.close()
    disk.rename(ROOT / "file.ing", FILE)
    disk.sync_folder(ROOT)
    disk.names(ROOT)
    lock.release()


OPERATIONS = 11


def test_power_can_go_before_and_after_each_operation() -> None:
    effects = set()
    for seed in range(40):
        for operation in range(1, OPERATIONS + 1):
            disk = new_disk(seed)
            created(disk, b"old").close()
            disk.lose_power_after(operation)
            with pytest.raises(PowerLoss):
                program(disk)
            with pytest.raises(PowerLoss):
                disk.names(ROOT)
            disk.kill()
            effects.add((operation, "file.ing" in disk.names(ROOT), content(disk)))

            disk.crash()

            assert content(disk) in {b"old", b"new"}
    assert {effect[1:] for effect in effects if effect[0] == 2} == {(False, b"old"), (True, b"old")}
    assert {effect[1:] for effect in effects if effect[0] == 8} == {(True, b"old"), (False, b"new")}


def test_power_stays_on_if_fewer_operations_follow() -> None:
    disk = new_disk()
    created(disk, b"old").close()

    disk.lose_power_after(OPERATIONS + 1)
    program(disk)

    disk.crash("none")
    assert content(disk) == b"new"


# One seed, one history.


def test_the_same_seed_gives_the_same_history() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)


def history(seed: int) -> list[str]:
    lines: list[str] = []
    rng = Random(seed)
    faults = DiskFaults(
        read_fails=0.1,
        write_fails=0.1,
        sync_fails=0.1,
        writes_back=0.1,
        evicts=0.1,
        rots=0.1,
        tears=0.1,
        capacity_bytes=8 * PAGE,
    )
    disk = SimDisk(rng, faults, trace=lines.append)
    disk.make_folder(ROOT)
    for _ in range(30):
        disk.lose_power_after(rng.randrange(1, 30))
        try:
            while True:
                use_at_random(disk, rng)
        except PowerLoss:
            rng.choice([disk.crash, disk.kill])()
    return lines


def use_at_random(disk: SimDisk, rng: Random) -> None:
    names = disk.names(ROOT)
    path = ROOT / rng.choice("abcd")
    try:
        match rng.randrange(4):
            case 0 if names:
                disk.rename(ROOT / rng.choice(names), path)
            case 1 if names:
                disk.unlink(ROOT / rng.choice(names))
            case 2:
                disk.sync_folder(ROOT)
            case _:
                file = disk.open(path, create=True)
                file.write_at(rng.randrange(PAGE), rng.randbytes(rng.randrange(PAGE)))
                file.read_at(0, 100)
                file.sync()
                file.close()
    except OSError as error:
        if error.errno not in {errno.EIO, errno.ENOSPC}:
            raise


def test_the_trace_tells_each_operation_and_its_outcome() -> None:
    lines: list[str] = []
    disk = SimDisk(Random(1), trace=lines.append)
    disk.make_folder(ROOT)
    file = disk.open(FILE, create=True)
    file.write_at(3, b"abc")
    fail_sync(disk, file)
    disk.rename(FILE, ROOT / "other")
    disk.crash("all")

    assert lines == [
        "make_folder /disk",
        "open /disk/file",
        "write /disk/file 3+3 352441c2",
        "sync /disk/file EIO",
        "rename /disk/file /disk/other",
        "crash keeps all",
        "  /disk/other 6 b1c2a1a3",
    ]
