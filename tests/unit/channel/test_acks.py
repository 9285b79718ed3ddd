"""Acknowledging by hand: what was not acknowledged comes again, and nothing is passed over."""

from pathlib import Path

import pytest

from roost import FileChannel, Invalid
from roost.types import Durability
from tests.unit.channel import bydocument
from tests.unit.channel.disks import BROKEN, Gate, WatchedDisk, every, refuse
from tests.unit.channel.threads import Running

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


def filled(folder: Path, mode: Durability = "fsync", count: int = 6) -> FileChannel[bytes]:
    """Open a channel with the messages 0, 1, 2 … of nine bytes each."""
    channel = FileChannel(folder, durability=mode)
    channel.tx().send_many([b"%d" % n for n in range(count)])
    return channel


@modes
def test_what_was_not_acknowledged_comes_again_after_a_restart(
    tmp_path: Path, mode: Durability
) -> None:
    with filled(tmp_path, mode) as channel:
        rx = channel.rx(auto_ack=False)
        assert [rx.recv(0), rx.recv(0), rx.recv(0)] == [b"0", b"1", b"2"]
        rx.ack()

    with FileChannel(tmp_path, durability=mode) as channel:
        rx = channel.rx(auto_ack=False)
        assert rx.recv_many(10) == [b"1", b"2", b"3", b"4", b"5"]
        rx.ack(4)

    with FileChannel(tmp_path, durability=mode) as channel:
        assert channel.rx(auto_ack=False).recv_many(10) == [b"5"]


@modes
def test_what_was_not_acknowledged_comes_again_after_the_last_handle_closed(
    tmp_path: Path, mode: Durability
) -> None:
    with filled(tmp_path, mode) as channel:
        first, second = channel.rx(auto_ack=False), channel.rx(auto_ack=False)
        assert [first.recv(0), second.recv(0)] == [b"0", b"1"]
        first.close()
        assert second.recv(0) == b"2"
        second.close()

        assert channel.rx(auto_ack=False).recv_many(10) == [b"%d" % n for n in range(6)]


@modes
def test_unack_count_tells_what_is_out(tmp_path: Path, mode: Durability) -> None:
    with filled(tmp_path, mode) as channel:
        rx = channel.rx(auto_ack=False)
        assert rx.unack_count == 0
        rx.recv_many(4)
        assert rx.unack_count == 4
        assert channel.receivers()[0].unacknowledged == 4
        rx.ack(3)
        assert (rx.unack_count, rx.position) == (1, 27)
        rx.ack()
        assert (rx.unack_count, rx.position) == (0, 36)


@modes
def test_the_position_is_in_the_file_when_an_ack_returns(tmp_path: Path, mode: Durability) -> None:
    with filled(tmp_path, mode) as channel:
        rx = channel.rx("r", auto_ack=False)
        rx.recv_many(6)
        for n in range(1, 7):
            assert bydocument.read_positions(tmp_path) == {"r": 9 * (n - 1)}
            rx.ack()
            assert bydocument.read_positions(tmp_path) == {"r": 9 * n}


@pytest.mark.parametrize("count", [-1, -5, 3, 10**9, 1.0, 0.5, "1", None])
def test_an_ack_of_what_was_not_received_is_refused_and_changes_nothing(
    tmp_path: Path, count: object
) -> None:
    with filled(tmp_path) as channel:
        rx = channel.rx(auto_ack=False)
        rx.recv_many(2)

        with pytest.raises(Invalid, match="2 messages were received and not acknowledged"):
            rx.ack(count)  # type: ignore[arg-type]  # what users do anyway
        assert (rx.unack_count, rx.position) == (2, 0)
        rx.ack(2)
        assert (rx.unack_count, rx.position) == (0, 18)
        with pytest.raises(Invalid, match="0 messages were received"):
            rx.ack()
        rx.ack(0)


def test_a_receiver_that_acknowledges_by_itself_is_not_acknowledged_by_hand(
    tmp_path: Path,
) -> None:
    with filled(tmp_path) as channel:
        rx = channel.rx()
        rx.recv(0)

        with pytest.raises(Invalid, match="open it with auto_ack=False"):
            rx.ack()
        assert rx.unack_count == 0


def test_handles_of_one_name_agree_on_how_they_acknowledge(tmp_path: Path) -> None:
    with filled(tmp_path) as channel:
        rx = channel.rx("r")
        with pytest.raises(Invalid, match="open with auto_ack=True"):
            channel.rx("r", auto_ack=False)
        rx.recv(0)
        rx.close()

        by_hand = channel.rx("r", auto_ack=False)
        with pytest.raises(Invalid, match="open with auto_ack=False"):
            channel.rx("r")
        assert by_hand.recv(0) == b"1"


def test_acks_reach_over_segments(tmp_path: Path) -> None:
    with FileChannel(tmp_path, segment_bytes=20) as channel:
        for n in range(30):
            channel.tx().send(b"message %d" % n)
        rx = channel.rx(auto_ack=False)
        got = rx.recv_many(30)
        rx.ack(29)

        assert len(got) == 30
        assert rx.unack_count == 1
    with FileChannel(tmp_path) as channel:
        assert channel.rx(auto_ack=False).recv_many(30) == [b"message 29"]


def test_a_receive_whose_position_cannot_be_kept_gives_the_message_to_the_next(
    tmp_path: Path,
) -> None:
    gate = Gate("sync", "offset")
    disk = WatchedDisk()

    def interrupt(operation: str, path: Path) -> None:
        if operation == "sync" and path.name == "offset":
            disk.watch = None
            raise KeyboardInterrupt

    channel = FileChannel(tmp_path, disk=disk)
    channel.tx().send_many([b"one", b"two"])
    rx, other = channel.rx(), channel.rx()
    disk.watch = every(gate, interrupt)
    interrupted = Running(lambda: rx.recv(0))
    gate.wait()
    gate.open()

    with pytest.raises(KeyboardInterrupt):
        interrupted.answer()
    assert other.recv_many(10) == [b"one"]
    assert other.recv_many(10) == [b"two"]
    channel.close()


def test_a_message_given_back_after_its_handle_closed_goes_to_the_next_handle(
    tmp_path: Path,
) -> None:
    gate = Gate("sync", "offset")
    disk = WatchedDisk()
    channel = FileChannel(tmp_path, disk=disk)
    channel.tx().send_many([b"one", b"two", b"three"])
    rx = channel.rx()
    disk.watch = every(gate, refuse(BROKEN, "sync", name="offset"))
    receiving = Running(lambda: rx.recv(0))
    gate.wait()
    rx.close()
    later = channel.rx("default", auto_ack=True)
    assert later.position == 11

    gate.open()

    with pytest.raises(Exception, match="may or may not"):
        receiving.answer()
    assert later.position == 0
    assert later.peek_many(10) == [b"one", b"two", b"three"]
    channel.close()
