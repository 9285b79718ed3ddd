"""Closing: once, twice, from everywhere, in the middle of everything; and what stays behind."""

import gc
from pathlib import Path
from threading import Event

import pytest

from roost import Closed, FileChannel, Unavailable
from roost.types import Durability
from tests.unit.channel import bydocument
from tests.unit.channel.disks import Gate, WatchedDisk
from tests.unit.channel.threads import WAIT_S, Running, restless, until

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


@modes
def test_closing_twice_does_nothing(tmp_path: Path, mode: Durability) -> None:
    channel = FileChannel(tmp_path, durability=mode)
    channel.tx().send(b"one")
    channel.close()
    before = bydocument.snapshot(tmp_path)

    channel.close()
    with channel:
        pass

    assert bydocument.snapshot(tmp_path) == before


@modes
def test_a_closed_channel_says_so_in_every_call(tmp_path: Path, mode: Durability) -> None:
    channel = FileChannel(tmp_path, durability=mode)
    tx, rx, acking = channel.tx(), channel.rx(), channel.rx("acking", auto_ack=False)
    tx.send_many([b"one", b"two"])
    acking.recv(0)
    channel.close()

    for use in (
        lambda: tx.send(b"x"),
        lambda: tx.send_many([b"x"]),
        lambda: rx.recv(0),
        lambda: rx.recv_many(1, 0),
        rx.try_recv,
        rx.peek,
        rx.skip_corrupt,
        acking.ack,
        lambda: channel.rx("new"),
        lambda: channel.remove_receiver("acking"),
        channel.sync,
    ):
        with pytest.raises(Closed, match="was closed"):
            use()
    for handle in (rx, acking):
        handle.close()


@modes
def test_whoever_waits_for_a_message_is_told_that_none_will_come(
    tmp_path: Path, mode: Durability
) -> None:
    channel = FileChannel(tmp_path, durability=mode)
    rx = channel.rx()
    waiting = [Running(lambda: rx.recv(WAIT_S)) for _ in range(3)]
    waiting += [Running(lambda: channel.rx("other").recv_many(5, WAIT_S))]
    for each in waiting:
        each.block()

    channel.close()

    for each in waiting:
        with pytest.raises(Closed):
            each.answer()


@modes
def test_a_clean_close_leaves_the_frames_and_nothing_else(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send(b"one")
        assert (tmp_path / "segment.0").stat().st_size > 1000

    assert (tmp_path / "segment.0").read_bytes() == (
        bydocument.plain_header(0, 0) + bydocument.frames(b"one")
    )
    assert bydocument.read_bound(tmp_path) == 11
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "offset", "segment.0"}


def test_the_folder_is_held_until_the_close_is_done_whoever_closes_too(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, durability="os", disk=disk)
    channel.tx().send(b"one")
    gate = Gate("sync", "segment")
    disk.watch = gate
    first = Running(channel.close)
    gate.wait()
    second = Running(channel.close)
    second.block()

    with pytest.raises(Unavailable, match="in use"):
        FileChannel(tmp_path)

    gate.open()
    first.answer()
    second.answer()
    with FileChannel(tmp_path) as again:
        assert again.rx().recv(0) == b"one"


def test_a_send_that_waits_for_its_sync_is_kept_by_the_close(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    gate = Gate("sync", "segment")
    disk.watch = gate
    sending = [Running(lambda n=n: channel.tx().send(b"%d" % n)) for n in range(4)]  # type: ignore[misc]
    gate.wait()
    until(lambda: channel.stat().tail == 36)
    closing = Running(channel.close)

    gate.open()

    closing.answer()
    assert sorted(str(each.answer()) for each in sending) == ["0", "18", "27", "9"]
    assert sorted(bydocument.read_messages(tmp_path)) == [b"0", b"1", b"2", b"3"]


@modes
def test_closing_in_a_storm_keeps_all_that_was_acknowledged(
    tmp_path: Path, mode: Durability
) -> None:
    channel = FileChannel(tmp_path, durability=mode, segment_bytes=2000, compression="snappy")
    acknowledged: list[bytes] = []
    received: list[bytes] = []
    begun = Event()

    def send(name: bytes) -> None:
        tx = channel.tx()
        for n in range(1_000_000):
            message = b"%s %d" % (name, n)
            try:
                tx.send(message) if n % 7 else tx.send_many([message])
            except Closed:
                return
            acknowledged.append(message)
            if n == 200:
                begun.set()

    # Opened before the storm, which may be over before a thread of theirs has begun.
    receivers = [channel.rx("r"), channel.rx("r")]

    with restless():
        running = [Running(lambda name=name: send(name)) for name in (b"a", b"b", b"c")]  # type: ignore[misc]
        running += [Running(lambda rx=rx: received.extend(rx)) for rx in receivers]  # type: ignore[misc]
        assert begun.wait(WAIT_S)
        channel.close()
        for each in running:
            each.answer()

    with FileChannel(tmp_path, durability=mode) as again:
        left = again.rx("r").recv_many(10_000_000) if again.receivers()[0].behind_bytes else []
    assert sorted(received + left) == sorted(acknowledged)


def test_the_close_does_not_wait_until_everything_is_compressed(tmp_path: Path) -> None:
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, durability="os", segment_bytes=1, compression="gzip", disk=disk)
    gate = Gate("rename", "segment.0.z")
    disk.watch = gate
    for n in range(20):
        channel.tx().send(b"message %d" % n)
    gate.wait()
    closing = Running(channel.close)
    closing.block()

    gate.open()

    closing.answer()
    packed = [path.name for path in tmp_path.glob("*.z")]
    assert packed == ["segment.0.z"]
    assert not list(tmp_path.glob("*.ing"))
    assert bydocument.read_messages(tmp_path) == [b"message %d" % n for n in range(20)]


@modes
def test_a_channel_can_be_closed_and_opened_many_times_with_idle_receivers(
    tmp_path: Path, mode: Durability
) -> None:
    for n in range(10):
        with FileChannel(tmp_path, durability=mode, segment_bytes=20) as channel:
            channel.rx("idle")
            channel.tx().send(b"message %d" % n)
            assert channel.rx("busy").recv(0) == b"message %d" % n

    with FileChannel(tmp_path) as channel:
        assert channel.rx("idle").recv_many(100) == [b"message %d" % n for n in range(10)]


def test_a_handle_that_outlives_its_channel_harms_nobody(tmp_path: Path) -> None:
    first = FileChannel(tmp_path)
    first.tx().send_many([b"one", b"two"])
    old = first.rx("r", auto_ack=False)
    old.recv(0)
    first.close()

    with FileChannel(tmp_path) as second:
        new = second.rx("r", auto_ack=False)
        new.recv(0)
        old.close()
        with pytest.raises(Closed):
            old.ack()
        assert new.position == 0
        assert new.unack_count == 1


def test_a_failed_open_lets_go_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "offset").mkdir()
    with pytest.raises(Unavailable, match="cannot be opened"):
        FileChannel(tmp_path)
    gc.collect()
    (tmp_path / "offset").rmdir()

    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"works")
