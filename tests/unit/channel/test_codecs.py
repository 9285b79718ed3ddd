"""Codecs: objects in, objects out, and what cannot be written or read is an error, not a loss."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost import Codec, FileChannel, Invalid, json_codec, msgpack_codec
from roost.types import Durability
from roost.wire.codec import CodecName

modes = pytest.mark.parametrize("mode", ["fsync", "interval", "os"])
OBJECT = {"text": "é", "numbers": [1, -2.5, None, True], "nested": {"a": {}}}


class Point(msgspec.Struct):
    """A typed message."""

    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("codec", "message"),
    [("bytes", b"\x00\xff"), ("str", "é\n\0"), ("json", OBJECT), ("msgpack", OBJECT | {"b": b"x"})],
)
def test_what_goes_in_comes_out(tmp_path: Path, codec: CodecName, message: object) -> None:
    with FileChannel(tmp_path, codec=codec) as channel:
        channel.tx().send(message)
        channel.tx().send_many([message, message])
        rx = channel.rx()

        assert rx.peek() == message
        assert rx.recv(0) == message
        assert rx.try_recv() == message
        assert rx.recv_many(10) == [message]


def test_a_codec_may_know_the_type_of_its_messages(tmp_path: Path) -> None:
    codecs: list[Codec[Point]] = [json_codec(Point), msgpack_codec(Point)]
    for codec in codecs:
        with FileChannel(tmp_path / codec.name, codec=codec) as channel:
            channel.tx().send(Point(1, 2))

            assert channel.rx().recv(0) == Point(1, 2)


def test_a_codec_of_ones_own_is_two_functions(tmp_path: Path) -> None:
    codec: Codec[int] = Codec("int", encode=lambda n: b"%d" % n, decode=int)

    with FileChannel(tmp_path, codec=codec) as channel:
        channel.tx().send_many(range(5))

        assert channel.rx().recv_many(10) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("str", b"bytes"),
        ("str", "\ud800"),
        ("str", ""),
        ("json", object()),
        ("json", "\ud800"),
        ("json", {1: float}),
        ("msgpack", 1 << 70),
        ("msgpack", object()),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_sent(
    tmp_path: Path, codec: CodecName, message: object
) -> None:
    with FileChannel(tmp_path, codec=codec) as channel:
        with pytest.raises(Invalid):
            channel.tx().send(message)
        with pytest.raises(Invalid):
            channel.tx().send_many(["good", message])
        assert channel.stat().tail == 0


def test_an_object_that_contains_itself_is_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)

    names: list[CodecName] = ["json", "msgpack"]
    for name in names:
        with FileChannel(tmp_path / name, codec=name) as channel, pytest.raises(Invalid):
            channel.tx().send(endless)


def test_a_codec_that_makes_no_bytes_is_refused(tmp_path: Path) -> None:
    bad: Codec[Any] = Codec("bad", encode=lambda message: message)

    with FileChannel(tmp_path, codec=bad) as channel:
        with pytest.raises(Invalid, match="bytes, not str"):
            channel.tx().send("text")
        with pytest.raises(Invalid, match="bytes, not str"):
            channel.tx().send_many(["text"])


@pytest.mark.parametrize("codec", ["pickle", "", "JSON", None, 5, json_codec])
def test_an_unknown_codec_is_refused_before_anything_is_made(tmp_path: Path, codec: object) -> None:
    with pytest.raises(Invalid, match="choose bytes, str, json or msgpack, or pass a Codec"):
        FileChannel(tmp_path / "q", codec=codec)  # type: ignore[call-overload]

    assert not (tmp_path / "q").exists()


@modes
@pytest.mark.parametrize("auto_ack", [True, False])
def test_what_cannot_be_read_stops_the_receiver_and_is_not_lost(
    tmp_path: Path, mode: Durability, *, auto_ack: bool
) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"1", b"2", b"{", b"3"])

    with FileChannel(tmp_path, durability=mode, codec="json") as channel:
        rx = channel.rx(auto_ack=auto_ack)
        assert rx.recv_many(10) == [1, 2]
        for _ in range(2):
            with pytest.raises(Invalid, match=r"not JSON.*read it as bytes"):
                rx.recv(0)
            with pytest.raises(Invalid, match="not JSON"):
                rx.recv_many(10)
            with pytest.raises(Invalid, match="not JSON"):
                rx.try_recv()
            with pytest.raises(Invalid, match="not JSON"):
                rx.peek()
        if not auto_ack:
            rx.ack(2)
        assert (rx.position, rx.unack_count) == (18, 0)

    with FileChannel(tmp_path, durability=mode) as channel:
        assert channel.rx(auto_ack=auto_ack).recv_many(10) == [b"{", b"3"]


def test_what_cannot_be_read_is_not_lost_by_a_task_either(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send_many([b"1", b"\xff", b"2"])

    async def read() -> None:
        with FileChannel(tmp_path, codec="str") as channel:
            rx = channel.async_rx()
            assert await rx.recv_many(10) == ["1"]
            with pytest.raises(Invalid, match=r"not UTF-8 text.*read it as bytes"):
                await rx.recv(1)
            with pytest.raises(Invalid, match="not UTF-8"):
                await rx.try_recv()

    asyncio.run(read())
    with FileChannel(tmp_path) as channel:
        assert channel.rx().recv_many(10) == [b"\xff", b"2"]


def test_a_decoder_that_is_interrupted_loses_nothing(tmp_path: Path) -> None:
    def interrupted(payload: bytes) -> bytes:
        if payload == b"3" and not seen:
            seen.append(payload)
            raise KeyboardInterrupt
        return payload

    seen: list[bytes] = []
    with FileChannel(tmp_path, codec=Codec("mine", decode=interrupted)) as channel:
        channel.tx().send_many([b"1", b"2", b"3"])
        rx = channel.rx()
        with pytest.raises(KeyboardInterrupt):
            rx.recv_many(10)

        assert [rx.recv(0), *rx.recv_many(10)] == [b"1", b"2", b"3"]
