"""The victim of `test_sigkill`: forks a process for each round, that sends until it is killed.

It reads one JSON object per round from its standard input. To its standard output go lines of

    pid P           the process that may be killed
    sent K N        sender K was told that its messages up to number N are in
    took NAME M     receiver NAME was given the message M
    acking M        the receiver by hand is about to acknowledge up to message M
    acked M         and has
    end             the process is gone, and everything that it wrote stands above

A line is one write of less than a pipe keeps whole. Whoever reads must go on reading.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import msgspec

from roost import FileChannel
from roost.host.posix import PosixDisk
from roost.segments.windows import Windows
from roost.types import Durability


class Round(msgspec.Struct, frozen=True):
    """How one process sends and receives."""

    folder: str
    mode: Durability
    number: int
    segment_bytes: int
    compression: str | None
    mapped: bool
    size: int


def say(text: str) -> None:
    """Write one line at once."""
    os.write(1, f"{text}\n".encode())


def opened(this: Round) -> FileChannel[bytes]:
    """Open the channel as the round says."""
    return FileChannel(
        Path(this.folder),
        durability=this.mode,
        segment_bytes=this.segment_bytes,
        compression=this.compression,
        interval_s=0.002,
        windows=Windows(4096, 16384),
        disk=PosixDisk(guarded=this.mapped),
    )


def message(this: Round, sender: int, number: int) -> bytes:
    """Make one message; its filler tells a torn one from a whole one."""
    name = b"%d.%d.%d " % (this.number, sender, number)
    return name + bytes([33 + number % 90]) * (number * 7 % this.size)


def send_singly(this: Round, channel: FileChannel[bytes], sender: int) -> None:
    """Send one message after the other."""
    tx = channel.tx()
    number = 0
    while True:
        tx.send(message(this, sender, number))
        say(f"sent {sender} {number}")
        number += 1


def send_batches(this: Round, channel: FileChannel[bytes], sender: int) -> None:
    """Send batches of growing size."""
    tx = channel.tx()
    number = 0
    while True:
        count = 1 + number % 29
        tx.send_many([message(this, sender, number + n) for n in range(count)])
        number += count
        say(f"sent {sender} {number - 1}")


def receive(channel: FileChannel[bytes]) -> None:
    """Receive messages that are acknowledged by being received."""
    rx = channel.rx("auto")
    while True:
        name = rx.recv().split()[0].decode()
        say(f"took auto {name}")


def receive_by_hand(channel: FileChannel[bytes]) -> None:
    """Receive batches, and acknowledge a part of what is out."""
    rx = channel.rx("hand", auto_ack=False)
    out: list[str] = []
    while True:
        for payload in rx.recv_many(7):
            out.append(payload.split()[0].decode())
            say(f"took hand {out[-1]}")
        count = max(1, len(out) - 3)
        say(f"acking {out[count - 1]}")
        rx.ack(count)
        say(f"acked {out[count - 1]}")
        del out[:count]


def storm(this: Round) -> None:
    """Do everything at once, until the end."""
    channel = opened(this)
    works: list[Callable[[], None]] = [
        lambda: send_singly(this, channel, 0),
        lambda: send_singly(this, channel, 1),
        lambda: send_batches(this, channel, 2),
        lambda: receive(channel),
        lambda: receive_by_hand(channel),
    ]
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    """Serve rounds until the input ends."""
    for line in sys.stdin:
        this = msgspec.convert(json.loads(line), Round)
        pid = os.fork()
        if pid == 0:
            try:
                storm(this)
            finally:
                os._exit(1)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("end")


if __name__ == "__main__":
    main()
