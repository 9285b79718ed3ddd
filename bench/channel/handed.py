"""Sends and receives that nobody waits for a disk for: durability `os`, one thread.

Each of them is compared with the plainest Python loop over the same messages, in the same round.
Claims are about messages of 64 bytes; 16 and 512 stand beside them in the details, since others
publish those.
"""

import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.channel.bars import claim
from bench.channel.baselines import BATCH, pack, pack_all, unpack_all
from bench.channel.scale import Scale
from bench.harness import Claim, alternate, progress, ratio, wall_s
from roost import FileChannel

CLAIMED_BYTES = 64
OTHER_BYTES = (16, 512)


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure sending, receiving, and both in turn."""
    figures = _figures(scale, folder, payload_bytes=CLAIMED_BYTES, messages=scale.messages)
    # The others only give an impression: fewer messages keep the disk out of it.
    others = {
        size: _figures(scale, folder, payload_bytes=size, messages=max(BATCH, scale.messages // 5))
        for size in OTHER_BYTES
    }

    def compare(name: str, ours: str, *loops: str) -> Claim:
        loop_ns = [sum(ns) for ns in zip(*(figures[loop] for loop in loops), strict=True)]
        detail = {
            "payload_bytes": CLAIMED_BYTES,
            "messages": scale.messages,
            "backlog": scale.messages if loops == ("unpack",) else 0,
            "durability": "os",
            "channel_ns": figures[ours],
            "loop_ns": loop_ns,
            "other_sizes_ns": {
                str(size): {kind: median(other[kind]) for kind in (ours, *loops)}
                for size, other in others.items()
            },
        }
        return claim(name, ratio(figures[ours], loop_ns), detail)

    return [
        compare("send_many_vs_python_loop", "send_many", "pack"),
        compare("recv_many_vs_python_loop", "recv_many", "unpack"),
        compare("send_vs_python_loop", "send", "pack"),
        compare("recv_vs_python_loop", "recv", "unpack"),
        compare("pingpong_vs_python_loop", "pingpong", "pack", "unpack"),
    ]


def _figures(
    scale: Scale, folder: Path, *, payload_bytes: int, messages: int
) -> dict[str, list[float]]:
    """Time everything with messages of one size; nanoseconds a message."""
    progress(f"one thread, durability os, {payload_bytes} B")
    rng = random.Random(payload_bytes)
    payloads = [rng.randbytes(payload_bytes) for _ in range(messages)]
    batches = [payloads[at : at + BATCH] for at in range(0, messages, BATCH)]
    framed = bytes(pack(payloads))

    def timed(work: Callable[[], object]) -> float:
        return wall_s(work) * 1e9 / messages

    # One channel for each kind, which goes on from round to round as a long-lived one does.
    with (
        FileChannel(folder / f"send-{payload_bytes}", durability="os") as singly,
        FileChannel(folder / f"send-many-{payload_bytes}", durability="os") as batched,
        FileChannel(folder / f"recv-{payload_bytes}", durability="os") as backlog,
        FileChannel(folder / f"pingpong-{payload_bytes}", durability="os") as pingpong,
    ):
        send, send_many = singly.tx().send, batched.tx().send_many
        sender, receiver = pingpong.tx(), pingpong.rx()
        _send_batches(backlog.tx().send_many, batches)
        return alternate(
            scale.rounds,
            {
                "pack": lambda: timed(lambda: pack_all(batches)),
                "send_many": lambda: timed(lambda: _send_batches(send_many, batches)),
                "send": lambda: timed(lambda: _send_each(send, payloads)),
                "unpack": lambda: timed(lambda: unpack_all(framed)),
                "recv_many": lambda: _received(backlog, _receive_batches, messages),
                "recv": lambda: _received(backlog, _receive_each, messages),
                "pingpong": lambda: timed(
                    lambda: _pingpong(sender.send, receiver.recv, payloads),
                ),
            },
        )


def _received(
    backlog: FileChannel[bytes],
    receive: Callable[[FileChannel[bytes], str, int], float],
    messages: int,
) -> float:
    """Let a new receiver take the whole backlog; it has to end with its position behind all."""
    taken_s = receive(backlog, "turn", messages)
    stat = next(stat for stat in backlog.receivers() if stat.name == "turn")
    assert stat.behind_bytes == 0, "the position was not kept"
    backlog.remove_receiver("turn")
    return taken_s * 1e9 / messages


def _receive_each(backlog: FileChannel[bytes], name: str, messages: int) -> float:
    def work() -> None:
        for _ in range(messages):
            recv()

    with backlog.rx(name) as receiver:
        recv = receiver.recv
        return wall_s(work)


def _receive_batches(backlog: FileChannel[bytes], name: str, messages: int) -> float:
    def work() -> None:
        missing = messages
        while missing:
            missing -= len(recv_many(BATCH))

    with backlog.rx(name) as receiver:
        recv_many = receiver.recv_many
        return wall_s(work)


def _send_batches(send_many: Callable[[list[bytes]], int], batches: list[list[bytes]]) -> None:
    for batch in batches:
        send_many(batch)


def _send_each(send: Callable[[bytes], int], payloads: list[bytes]) -> None:
    for payload in payloads:
        send(payload)


def _pingpong(
    send: Callable[[bytes], int], recv: Callable[[], bytes], payloads: list[bytes]
) -> None:
    for payload in payloads:
        send(payload)
        recv()
