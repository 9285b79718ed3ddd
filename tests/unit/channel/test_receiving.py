"""What a receive does: waiting, batches, looking ahead, and what it leaves alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roost import Closed, FileChannel, Invalid
from roost.channel.receiver import Receiver
from roost.types import Durability
from tests.unit.channel.threads import WAIT_S, Running, until

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


@modes
def test_a_receive_waits_for_the_next_message(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        waiting = Running(lambda: channel.rx().recv(WAIT_S))

        channel.tx().send(b"hello")

        assert waiting.answer() == b"hello"


@modes
def test_a_wait_that_runs_out_is_a_timeout_and_loses_nothing(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        rx = channel.rx()

        for timeout in (0, 0.001, -1):
            with pytest.raises(TimeoutError, match=r"no message for 'default' within"):
                rx.recv(timeout)
            with pytest.raises(TimeoutError):
                rx.recv_many(10, timeout)
        channel.tx().send(b"late")
        assert rx.recv(0) == b"late"


def test_a_timeout_of_nothing_at_all_still_takes_what_is_there(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"one", b"two", b"three"])
        rx = channel.rx()

        assert rx.recv(0) == b"one"
        assert rx.recv(-5) == b"two"
        assert rx.recv_many(5, timeout=0) == [b"three"]


def test_try_recv_answers_the_default_where_nothing_is_there(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        rx = channel.rx()

        assert rx.try_recv() is None
        assert rx.try_recv(b"nothing") == b"nothing"
        channel.tx().send(b"something")
        assert rx.try_recv() == b"something"
        assert rx.try_recv() is None


@modes
def test_a_batch_takes_what_is_there_and_no_more_than_asked(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send_many([b"%d" % n for n in range(7)])
        rx = channel.rx()

        assert rx.recv_many(3) == [b"0", b"1", b"2"]
        assert rx.recv_many(100) == [b"3", b"4", b"5", b"6"]


@modes
def test_a_batch_ends_before_it_gets_too_large_but_holds_one_message(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send_many([b"a" * 100, b"b" * 100, b"c" * 100])
        rx = channel.rx()

        assert rx.recv_many(10, bytes_max=200) == [b"a" * 100, b"b" * 100]
        assert rx.recv_many(10, bytes_max=1) == [b"c" * 100]


@modes
def test_a_batch_reaches_over_segments(tmp_path: Path, mode: Durability) -> None:
    sent = [b"%03d" % n for n in range(50)]
    with FileChannel(tmp_path, durability=mode, segment_bytes=30) as channel:
        for message in sent:
            channel.tx().send(message)

        assert channel.rx().recv_many(100) == sent


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_of_less_than_one_is_refused(tmp_path: Path, count: int) -> None:
    with FileChannel(tmp_path) as channel:
        rx = channel.rx()

        with pytest.raises(Invalid, match="at least one"):
            rx.recv_many(count)
        with pytest.raises(Invalid, match="at least one"):
            rx.peek_many(count)


@modes
@pytest.mark.parametrize("auto_ack", [True, False])
def test_looking_ahead_moves_nothing(tmp_path: Path, mode: Durability, *, auto_ack: bool) -> None:
    with FileChannel(tmp_path, durability=mode, segment_bytes=20) as channel:
        rx = channel.rx(auto_ack=auto_ack)
        assert rx.peek() is None
        assert rx.peek(b"nothing") == b"nothing"
        assert rx.peek_many(5) == []
        for n in range(5):
            channel.tx().send(b"message %d" % n)

        assert rx.peek() == b"message 0"
        assert rx.peek_many(3) == [b"message 0", b"message 1", b"message 2"]
        assert rx.peek_many(100) == [b"message %d" % n for n in range(5)]
        assert rx.position == 0
        assert rx.recv(0) == b"message 0"
        assert rx.peek() == b"message 1"


def test_a_loop_over_a_receiver_ends_when_the_channel_is_closed(tmp_path: Path) -> None:
    channel = FileChannel(tmp_path)
    rx = channel.rx()
    channel.tx().send_many([b"one", b"two"])
    got: list[bytes] = []
    looping = Running(lambda: got.extend(rx))
    until(lambda: not channel.receivers()[0].behind_bytes)

    channel.close()

    looping.answer()
    assert got == [b"one", b"two"]


def test_a_loop_over_a_receiver_ends_when_its_handle_is_closed(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        rx = channel.rx()
        channel.tx().send(b"one")
        got = []
        for message in rx:
            got.append(message)
            rx.close()

    assert got == [b"one"]


@modes
def test_closing_a_handle_wakes_who_waits_with_it(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        rx = channel.rx()
        waiting = Running(lambda: rx.recv(WAIT_S))
        waiting.block()

        rx.close()

        with pytest.raises(Closed, match="handle of receiver 'default' was closed"):
            waiting.answer()


def test_a_message_that_is_held_stays_what_it_was(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os") as channel:
        channel.tx().send(b"AAAA")
        rx = channel.rx()
        held = rx.recv(0)
        channel.tx().send(b"BBBB")

        assert rx.recv(0) == b"BBBB"
        assert held == b"AAAA"


def test_a_closed_handle_neither_takes_nor_looks_nor_acknowledges(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"one")
        rx = channel.rx(auto_ack=False)
        rx.recv(0)
        rx.close()

        uses: list[Callable[[], object]] = [rx.recv, rx.try_recv, rx.peek, rx.ack, rx.skip_corrupt]
        uses += [lambda: rx.recv_many(1), lambda: rx.peek_many(1)]
        for use in uses:
            with pytest.raises(Closed, match="this handle of receiver 'default' was closed"):
                use()


@modes
def test_a_receiver_begins_at_the_head_unless_told_otherwise(
    tmp_path: Path, mode: Durability
) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send(b"one")
        second = channel.tx().send(b"two")

        assert channel.rx("from head").recv(0) == b"one"
        assert channel.rx("from there", start=second).recv(0) == b"two"
        tail = channel.rx("from tail", start="tail")
        channel.tx().send(b"three")
        assert tail.recv(0) == b"three"


@modes
def test_a_start_within_a_message_moves_back_to_its_begin(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send(b"one")
        second = channel.tx().send(b"two")

        rx = channel.rx("r", start=second + 4)

        assert rx.position == second
        assert rx.recv(0) == b"two"


@pytest.mark.parametrize("start", ["middle", -1, 12, 1.0, None, b"head"])
def test_a_start_that_is_none_is_refused_and_makes_no_receiver(
    tmp_path: Path, start: object
) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"one")

        with pytest.raises(Invalid, match=r"'head', 'tail', or a position from 0 to 11"):
            channel.rx("r", start=start)  # type: ignore[arg-type]  # what users do anyway
        assert channel.receivers() == []


def test_a_start_is_only_for_a_new_receiver(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"one", b"two"])
        channel.rx("r").recv(0)

        assert channel.rx("r", start="head").recv(0) == b"two"


def test_every_wait_of_one_receiver_ends_when_there_is_enough(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        rx: Receiver[bytes] = channel.rx()
        waiting = [Running(lambda: rx.recv(WAIT_S)) for _ in range(8)]

        channel.tx().send_many([b"%d" % n for n in range(8)])

        assert sorted(str(each.answer()) for each in waiting) == [f"b'{n}'" for n in range(8)]
