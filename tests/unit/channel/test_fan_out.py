"""Receivers: each name sees every message, handles of one name share them, positions last."""

from pathlib import Path

import pytest

from roost import Closed, FileChannel, Invalid, NotFound
from roost.types import Durability
from tests.unit.channel import bydocument

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])


@modes
def test_every_receiver_sees_every_message(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        receivers = [channel.rx(name) for name in ("a", "b", "c")]
        channel.tx().send_many([b"one", b"two"])

        assert [rx.recv_many(10) for rx in receivers] == [[b"one", b"two"]] * 3


@modes
def test_handles_of_one_name_compete(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send_many([b"%d" % n for n in range(6)])
        first, second, unnamed = channel.rx("r"), channel.rx("r"), channel.rx()

        assert [first.recv(0), second.recv(0), first.recv(0)] == [b"0", b"1", b"2"]
        assert second.recv_many(10) == [b"3", b"4", b"5"]
        assert unnamed.recv_many(10) == [b"%d" % n for n in range(6)]
        assert channel.rx().try_recv() is None


@modes
def test_each_position_outlives_the_process(tmp_path: Path, mode: Durability) -> None:
    with FileChannel(tmp_path, durability=mode) as channel:
        channel.tx().send_many([b"%d" % n for n in range(6)])
        channel.rx("a").recv_many(2)
        channel.rx("b").recv_many(5)
        channel.rx("c")

    with FileChannel(tmp_path, durability=mode) as channel:
        assert channel.rx("a").recv_many(10) == [b"2", b"3", b"4", b"5"]
        assert channel.rx("b").recv_many(10) == [b"5"]
        assert len(channel.rx("c").recv_many(10)) == 6


def test_a_position_is_kept_before_the_channel_is_closed(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os") as channel:
        channel.tx().send_many([b"1", b"2", b"3"])
        rx = channel.rx("r")

        for n in range(1, 4):
            rx.recv(0)
            assert bydocument.read_positions(tmp_path) == {"r": 9 * n}


def test_each_receiver_has_a_number_of_its_own_that_lasts(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        a, b, again = channel.rx("a"), channel.rx("b"), channel.rx("a")
        assert a.id != b.id
        assert a.id == again.id
        kept = {"a": a.id, "b": b.id}

    with FileChannel(tmp_path) as channel:
        assert {rx.name: rx.id for rx in channel.receivers()} == kept
        assert channel.rx("c").id not in kept.values()


def test_receivers_are_listed_whether_open_or_not(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.rx("closed").close()
        channel.rx("open")
        channel.tx().send(b"message")

        listed = {rx.name: (rx.position, rx.behind_bytes, rx.open) for rx in channel.receivers()}

    assert listed == {"closed": (0, 15, False), "open": (0, 15, True)}


def test_a_removed_receiver_is_gone_and_its_name_begins_anew(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"one", b"two"])
        with channel.rx("r") as rx:
            rx.recv(0)
        channel.remove_receiver("r")

        assert channel.receivers() == []
        assert bydocument.read_positions(tmp_path) == {}
        assert channel.rx("r").recv(0) == b"one"


def test_what_cannot_be_removed_says_why(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        rx, other = channel.rx("r"), channel.rx("r")

        with pytest.raises(NotFound, match="no receiver 'nobody'"):
            channel.remove_receiver("nobody")
        with pytest.raises(Invalid, match="in use; close its handles first"):
            channel.remove_receiver("r")
        rx.close()
        with pytest.raises(Invalid, match="in use"):
            channel.remove_receiver("r")
        other.close()
        channel.remove_receiver("r")


def test_a_channel_keeps_255_receivers_and_refuses_one_more(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os") as channel:
        channel.tx().send_many([b"one", b"two"])
        receivers = [channel.rx(f"receiver {n}") for n in range(255)]
        for rx in receivers[::2]:
            rx.recv(0)

        with pytest.raises(Invalid, match="at most 255 receivers; remove one first"):
            channel.rx("one more")
        assert len({rx.id for rx in receivers}) == 255
        receivers[100].close()
        channel.remove_receiver("receiver 100")
        channel.rx("one more")

    with FileChannel(tmp_path) as channel:
        assert channel.rx("receiver 254").recv(0) == b"two"
        assert channel.rx("receiver 253").recv(0) == b"one"
        assert len(channel.receivers()) == 255


@pytest.mark.parametrize("name", ["x" * 88, "é" * 44, "a b/..\\c\n", "-", "default "])
def test_a_name_is_any_text_that_fits(tmp_path: Path, name: str) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"one", b"two"])
        channel.rx(name).recv(0)

    with FileChannel(tmp_path) as channel:
        assert channel.rx(name).recv(0) == b"two"
        assert [rx.name for rx in channel.receivers()] == [name]


@pytest.mark.parametrize(
    "name", ["", "x" * 89, "é" * 45, "a\0b", "\ud800", None, 5, b"bytes", ["x"]]
)
def test_a_name_that_cannot_be_kept_is_refused(tmp_path: Path, name: object) -> None:
    with FileChannel(tmp_path) as channel:
        with pytest.raises(Invalid, match="1 to 88 bytes of UTF-8 without zero bytes"):
            channel.rx(name)  # type: ignore[arg-type]  # what users do anyway
        assert channel.receivers() == []


def test_the_last_handle_of_a_name_may_be_followed_by_another(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os") as channel:
        channel.tx().send_many([b"%d" % n for n in range(4)])
        got = []
        for _ in range(4):
            with channel.rx("r") as rx:
                got.append(rx.recv(0))
            with pytest.raises(Closed):
                rx.recv(0)

    assert got == [b"0", b"1", b"2", b"3"]
