"""Send and receive, in each of the three durability modes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from roost import FileChannel
from roost.types import Durability

SINGLES = 2_000
BATCHES, BATCH = 50, 1_000
MESSAGE = b"x" * 100


def play(folder: Path) -> Iterator[str]:
    """Send one by one and in batches, and receive all of it."""
    for durability in get_args(Durability):
        with FileChannel(folder / durability, durability=durability) as channel:
            tx, rx = channel.tx(), channel.rx("demo")
            started = time.perf_counter()
            for _ in range(SINGLES):
                tx.send(MESSAGE)
            singles = SINGLES / (time.perf_counter() - started)
            started = time.perf_counter()
            for _ in range(BATCHES):
                tx.send_many([MESSAGE] * BATCH)
            batches = BATCHES * BATCH / (time.perf_counter() - started)
            received = 0
            started = time.perf_counter()
            while received < SINGLES + BATCHES * BATCH:
                received += len(rx.recv_many(BATCH, timeout=10))
            taken = received / (time.perf_counter() - started)
        yield (
            f"{durability:8}  send {singles:>9,.0f}/s   send_many {batches:>10,.0f}/s   "
            f"recv_many {taken:>10,.0f}/s"
        )
    yield "fsync: durable before send returns; os and interval: survives SIGKILL, not power loss"
