"""The three modes: what a return promises, what receivers see, and what a failed sync means."""

from pathlib import Path

import pytest

from roost import FileChannel, Unavailable, Unknown
from roost.types import Durability
from tests.unit.channel import bydocument
from tests.unit.channel.disks import BROKEN, Gate, WatchedDisk, every, refuse
from tests.unit.channel.threads import WAIT_S, Running, together, until

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


def counting(counted: list[str], operation: str, name: str) -> WatchedDisk:
    """Make a disk that notes each such operation."""

    def watch(done: str, path: Path) -> None:
        if done == operation and path.name.startswith(name):
            counted.append(path.name.removesuffix(".ing"))

    return WatchedDisk(watch)


# fsync


def test_fsync_a_send_returns_after_the_sync_of_its_segment(tmp_path: Path) -> None:
    gate = Gate("sync", "segment")
    disk = WatchedDisk()
    with FileChannel(tmp_path, disk=disk) as channel:
        disk.watch = gate
        sending = Running(lambda: channel.tx().send(b"one"))
        gate.wait()
        sending.block()

        gate.open()

        assert sending.answer() == 0


def test_fsync_receivers_see_a_message_only_once_it_is_durable(tmp_path: Path) -> None:
    gate = Gate("sync", "segment")
    disk = WatchedDisk()
    with FileChannel(tmp_path, disk=disk) as channel:
        rx = channel.rx()
        disk.watch = gate
        sending = Running(lambda: channel.tx().send(b"one"))
        gate.wait()

        assert channel.stat().tail == 11
        assert channel.stat().durable == 0
        assert rx.try_recv() is None
        assert rx.peek() is None
        with pytest.raises(TimeoutError):
            rx.recv(0)

        gate.open()
        sending.answer()
        assert rx.recv(0) == b"one"


def test_fsync_a_receive_returns_after_the_sync_of_its_position(tmp_path: Path) -> None:
    gate = Gate("sync", "offset")
    disk = WatchedDisk()
    with FileChannel(tmp_path, disk=disk) as channel:
        channel.tx().send(b"one")
        rx, acking = channel.rx(), channel.rx("acking", auto_ack=False)
        acking.recv(0)
        disk.watch = gate
        receiving, acknowledging = Running(lambda: rx.recv(0)), Running(acking.ack)
        gate.wait()
        receiving.block()
        acknowledging.block()

        gate.open()

        assert receiving.answer() == b"one"
        acknowledging.answer()


def test_fsync_senders_that_wait_share_the_next_sync(tmp_path: Path) -> None:
    synced: list[str] = []
    gate = Gate("sync", "segment")
    disk = counting(synced, "sync", "segment")
    with FileChannel(tmp_path, disk=disk) as channel:
        disk.watch = every(gate, disk.watch or gate)
        synced.clear()
        sending = [Running(lambda: channel.tx().send(b"x"))]
        gate.wait()
        sending += [Running(lambda: channel.tx().send(b"x")) for _ in range(15)]
        until(lambda: channel.stat().tail == 16 * 9)

        gate.open()
        for each in sending:
            each.answer()

        assert len(synced) == 2


def test_fsync_a_batch_takes_one_sync(tmp_path: Path) -> None:
    synced: list[str] = []
    disk = counting(synced, "sync", "segment")
    with FileChannel(tmp_path, disk=disk) as channel:
        synced.clear()
        channel.tx().send_many([b"x"] * 1000)

        assert synced == ["segment.0"]


def test_senders_that_leave_the_sync_to_the_last_one_woken_all_come_to_an_end(
    tmp_path: Path,
) -> None:
    with FileChannel(tmp_path, durability="fsync") as channel:

        def send() -> None:
            tx = channel.tx()
            for _ in range(20):
                tx.send(b"message")

        for _ in range(5):
            together(*[send] * 12)

        stat = channel.stat()
        assert stat.durable == stat.tail == 5 * 12 * 20 * (8 + len(b"message"))


def test_an_interrupted_send_leaves_nobody_else_waiting(tmp_path: Path) -> None:
    gate = Gate("sync", "segment")
    disk = WatchedDisk()

    def interrupt_once(operation: str, path: Path) -> None:
        gate(operation, path)
        if operation == "sync" and path.name.startswith("segment"):
            disk.watch = None
            raise KeyboardInterrupt

    with FileChannel(tmp_path, disk=disk) as channel:
        disk.watch = interrupt_once
        interrupted = Running(lambda: channel.tx().send(b"first"))
        gate.wait()
        other = Running(lambda: channel.tx().send(b"second"))
        other.block()

        gate.open()

        with pytest.raises(KeyboardInterrupt):
            interrupted.answer()
        assert other.answer() == 13
        channel.tx().send(b"third")
        assert channel.rx().recv_many(10) == [b"first", b"second", b"third"]


# interval and os


def test_interval_the_durable_end_follows(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="interval", interval_s=0.001) as channel:
        for n in range(5):
            channel.tx().send(b"message %d" % n)

            until(lambda: channel.stat().durable == channel.stat().tail)
        assert channel.stat().durable == 85
        assert channel.stat().failure == ""


def test_interval_a_position_becomes_durable_without_another_call(tmp_path: Path) -> None:
    synced: list[str] = []
    disk = counting(synced, "sync", "offset")
    with FileChannel(tmp_path, durability="interval", interval_s=0.001, disk=disk) as channel:
        channel.tx().send(b"message")
        rx = channel.rx()
        until(lambda: channel.stat().durable == 15)
        before = len(synced)
        rx.recv(0)

        until(lambda: len(synced) > before)


def test_os_nothing_is_synced_until_somebody_asks(tmp_path: Path) -> None:
    synced: list[str] = []
    disk = counting(synced, "sync", "")
    with FileChannel(tmp_path, durability="os", disk=disk) as channel:
        rx = channel.rx()
        synced.clear()
        for _ in range(100):
            channel.tx().send(b"message")
            rx.recv(0)
        assert synced == []
        assert channel.stat().durable == 0

        channel.sync()

        assert sorted(synced) == ["offset", "segment.0"]
        assert channel.stat().durable == channel.stat().tail == 1500


def test_two_who_sync_at_once_in_mode_os_both_get_an_end(tmp_path: Path) -> None:
    positions, sealed = Gate("sync", "offset"), Gate("sync", "segment.0")
    disk = WatchedDisk()
    with FileChannel(tmp_path, durability="os", segment_bytes=1, disk=disk) as channel:
        channel.tx().send(b"one")
        disk.watch = positions
        first = Running(channel.sync)
        positions.wait()
        disk.watch = every(positions, sealed)
        channel.tx().send(b"two")  # rolls, so that a worker syncs what was sealed
        sealed.wait()
        second = Running(channel.sync)
        second.block()

        positions.open()
        first.answer()
        sealed.open()

        second.answer()
        assert channel.stat().durable == 22


@pytest.mark.parametrize("mode", ["interval", "os"])
def test_without_fsync_receivers_see_a_message_at_once(tmp_path: Path, mode: Durability) -> None:
    gate = Gate("sync", "segment")
    disk = WatchedDisk()
    with FileChannel(tmp_path, durability=mode, interval_s=0.001, disk=disk) as channel:
        disk.watch = gate
        channel.tx().send(b"one")

        assert channel.rx().recv(0) == b"one"
        gate.open()


# Failures


def test_after_a_failed_sync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    channel.tx().send(b"durable")
    rx = channel.rx(auto_ack=False)
    disk.watch = refuse(BROKEN, "sync", name="segment")

    with pytest.raises(Unknown, match=r"may or may not.*open it again"):
        channel.tx().send(b"unknown")
    disk.watch = None
    with pytest.raises(Unavailable, match="Nothing was sent"):
        channel.tx().send(b"x")
    with pytest.raises(Unavailable, match="Nothing was sent"):
        channel.tx().send_many([b"x"])
    assert "Input/output error" in channel.stat().failure
    assert rx.recv(0) == b"durable"
    with pytest.raises(Unavailable, match="nothing more arrives"):
        rx.recv(0)
    channel.close()


def test_all_who_share_a_failed_sync_hear_of_it(tmp_path: Path) -> None:
    gate = Gate("sync", "segment")
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    disk.watch = every(gate, refuse(BROKEN, "sync", name="segment"))
    sending = [Running(lambda: channel.tx().send(b"x")) for _ in range(8)]
    gate.wait()
    receiving = Running(lambda: channel.rx().recv(WAIT_S))
    until(lambda: channel.stat().tail == 72)

    gate.open()

    for each in sending:
        with pytest.raises(Unknown):
            each.answer()
    with pytest.raises((Unknown, Unavailable)):
        receiving.answer()
    channel.close()


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    synced: list[str] = []
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    disk.watch = refuse(BROKEN, "sync", name="segment")
    with pytest.raises(Unknown):
        channel.tx().send(b"one")
    disk.watch = counting(synced, "sync", "segment").watch

    with pytest.raises(Unknown):
        channel.sync()
    channel.close()

    assert synced == []


def test_what_a_failed_sync_left_open_is_written_again_by_the_next_open(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    channel.tx().send(b"durable")
    disk.watch = refuse(BROKEN, "sync", name="segment")
    with pytest.raises(Unknown):
        channel.tx().send(b"unknown")
    channel.close()
    written: list[str] = []

    with FileChannel(tmp_path, disk=counting(written, "write", "segment.0")) as again:
        assert written == ["segment.0"]
        assert again.rx().recv_many(10) == [b"durable", b"unknown"]


def test_a_failed_write_is_unknown_and_the_next_open_knows(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, durability="os", disk=disk)
    channel.tx().send(b"before")
    disk.watch = refuse(BROKEN, "write", name="segment")

    with pytest.raises(Unknown, match=r"Input/output error.*segment\.0"):
        channel.tx().send_many([b"one", b"two"])
    with pytest.raises(Unavailable):
        channel.tx().send(b"x")
    channel.close()

    with FileChannel(tmp_path) as again:
        assert again.rx().recv_many(10) == [b"before"]


def test_a_position_whose_sync_failed_is_unknown_and_its_message_comes_again(
    tmp_path: Path,
) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    channel.tx().send_many([b"one", b"two"])
    rx = channel.rx()
    disk.watch = refuse(BROKEN, "sync", name="offset")

    with pytest.raises(Unknown, match="the position may or may not be durable"):
        rx.recv(0)
    channel.close()

    with FileChannel(tmp_path) as again:
        assert again.rx().recv_many(10) == [b"one", b"two"]


@modes
def test_a_close_whose_sync_fails_says_so_and_loses_nothing(
    tmp_path: Path, mode: Durability
) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, durability=mode, disk=disk, interval_s=3600)
    channel.tx().send(b"one")
    disk.watch = refuse(BROKEN, "sync")

    with pytest.raises(Unknown, match="open it again"):
        channel.close()

    with FileChannel(tmp_path) as again:
        assert again.rx().recv(0) == b"one"


@modes
def test_a_sync_makes_everything_durable_in_every_mode(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode, segment_bytes=20, interval_s=3600) as channel:
        for _ in range(10):
            channel.tx().send(b"message")
        channel.sync()
        stat = channel.stat()

        assert stat.durable == stat.tail == 150
        assert bydocument.read_bound(tmp_path) == 150
        channel.sync()


@modes
def test_the_mode_is_named_in_the_folder_and_in_the_stat(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        assert channel.stat().durability == mode
        assert bydocument.read_slots(tmp_path)[0].name == mode
