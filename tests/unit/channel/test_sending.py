"""What a send does: order, positions, batches, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost import Closed, FileChannel, Invalid
from roost.channel.sender import Sender
from roost.segments.windows import Windows
from roost.types import Durability
from tests.unit.channel import bydocument

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


@modes
def test_messages_come_out_in_the_order_in_which_they_went_in(
    tmp_path: Path, mode: Durability
) -> None:
    sent = [b"%d" % n for n in range(100)]

    with FileChannel(tmp_path, durability=mode) as channel:
        tx, rx = channel.tx(), channel.rx()
        for message in sent:
            tx.send(message)

        assert [rx.recv(0) for _ in sent] == sent


@modes
def test_a_position_counts_the_bytes_of_frames_before_the_message(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        tx = channel.tx()

        assert [tx.send(b"a"), tx.send(b"bb"), tx.send_many([b"ccc", b"d"]), tx.send(b"e")] == [
            *(0, 9, 19, 39),
        ]
        assert channel.stat().tail == 48


@modes
def test_a_message_is_in_the_file_when_the_send_returns(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        tx = channel.tx()
        for n in range(20):
            tx.send(b"message %d" % n)

            assert bydocument.read_messages(tmp_path)[-1] == b"message %d" % n


def test_single_sends_and_batches_keep_their_order(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os") as channel:
        tx = channel.tx()
        for n in range(0, 60, 3):
            tx.send(b"%d" % n)
            tx.send_many([b"%d" % (n + 1), b"%d" % (n + 2)])

        assert channel.rx().recv_many(100) == [b"%d" % n for n in range(60)]


def test_a_batch_may_be_any_iterable(tmp_path: Path) -> None:
    def generated() -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    with FileChannel(tmp_path) as channel:
        channel.tx().send_many(generated())

        assert channel.rx().recv_many(10) == [b"one", b"two"]


def test_bytes_like_objects_and_subclasses_of_bytes_are_sent_as_bytes(tmp_path: Path) -> None:
    class Named(bytes):
        pass

    with FileChannel(tmp_path) as channel:
        tx: Sender[object] = channel.tx()  # type: ignore[assignment]  # what users do anyway
        for message in (bytearray(b"one"), memoryview(b"two"), Named(b"three")):
            tx.send(message)
        tx.send_many([bytearray(b"four"), Named(b"five")])
        got = channel.rx().recv_many(10)

    assert got == [b"one", b"two", b"three", b"four", b"five"]
    assert {type(message) for message in got} == {bytes}


@pytest.mark.parametrize("message", [None, "text", 5, 1.5, ["a"], {"a": 1}, object()])
def test_what_is_not_bytes_is_refused_by_name(tmp_path: Path, message: object) -> None:
    with FileChannel(tmp_path) as channel:
        tx: Sender[object] = channel.tx()  # type: ignore[assignment]  # what users do anyway

        with pytest.raises(Invalid, match=f"bytes, not {type(message).__name__}.*codec"):
            tx.send(message)
        with pytest.raises(Invalid, match=f"bytes, not {type(message).__name__}"):
            tx.send_many([b"good", message])
        assert channel.stat().tail == 0


def test_an_empty_message_is_refused_and_so_is_a_batch_with_one(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        tx = channel.tx()

        with pytest.raises(Invalid, match="empty message"):
            tx.send(b"")
        with pytest.raises(Invalid, match="empty message"):
            tx.send_many([b"good", b""])
        assert channel.stat().tail == 0


def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel, pytest.raises(Invalid, match="at least one"):
        channel.tx().send_many([])


@modes
def test_a_message_up_to_the_limit_goes_and_a_longer_one_is_refused(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode, message_bytes_max=1000) as channel:
        tx = channel.tx()
        tx.send(b"x" * 1000)

        with pytest.raises(Invalid, match="1001 bytes; message_bytes_max=1000"):
            tx.send(b"x" * 1001)
        with pytest.raises(Invalid, match="1001 bytes; message_bytes_max=1000"):
            tx.send_many([b"good", b"x" * 1001])
        assert channel.rx().recv_many(10) == [b"x" * 1000]


def test_the_limit_holds_for_a_message_that_would_fit_the_mapped_window(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os", message_bytes_max=10) as channel:
        tx = channel.tx()
        tx.send(b"opens it")

        with pytest.raises(Invalid, match="11 bytes; message_bytes_max=10"):
            tx.send(b"x" * 11)
        assert channel.rx().recv_many(10) == [b"opens it"]


@modes
def test_messages_longer_than_any_window_go_through(tmp_path: Path, mode: Durability) -> None:
    sent = [bytes([n]) * size for n, size in enumerate([1, 9000, 70_000, 3, 20_000, 1 << 20, 5], 1)]

    with FileChannel(tmp_path, durability=mode, windows=Windows(4096, 8192)) as channel:
        tx, rx = channel.tx(), channel.rx()
        for message in sent:
            tx.send(message)

        assert [rx.recv(0) for _ in sent] == sent


def test_every_length_around_the_end_of_a_window_goes_through(tmp_path: Path) -> None:
    sent = [bytes([1 + n % 255]) * n for n in range(1, 400)]

    with FileChannel(tmp_path, durability="os", windows=Windows(4096, 4096)) as channel:
        tx = channel.tx()
        for message in sent:
            tx.send(message)

        assert channel.rx().recv_many(1000) == sent


def test_a_sender_of_a_closed_channel_says_so(tmp_path: Path) -> None:
    channel = FileChannel(tmp_path)
    tx = channel.tx()
    tx.send(b"before")
    channel.close()

    with pytest.raises(Closed, match="was closed"):
        tx.send(b"after")
    with pytest.raises(Closed, match="was closed"):
        tx.send_many([b"after"])


def test_a_channel_goes_on_where_it_was(tmp_path: Path) -> None:
    for n in range(5):
        with FileChannel(tmp_path) as channel:
            assert channel.tx().send(b"%d" % n) == 9 * n

    with FileChannel(tmp_path) as channel:
        assert channel.rx().recv_many(10) == [b"0", b"1", b"2", b"3", b"4"]
