"""Other queues on disk for Python, at their defaults, against the channel: one thread, 100 B.

`persistqueue.Queue` (its FileQueue) pickles into chunk files and replaces a small file at every
put; LiteQueue inserts into SQLite, in WAL mode with synchronous NORMAL. Neither waits for an
fsync, so mode `os` is their equal; the other modes and the ways out stand in the details.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import persistqueue
from litequeue import LiteQueue

from bench.channel.bars import claim
from bench.channel.scale import Scale
from bench.harness import Claim, alternate, progress, ratio, wall_s
from roost import FileChannel

TEXT = "x" * 100
PAYLOAD = TEXT.encode()


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure puts of all, and gets beside them."""
    progress("other queues, 100 B")
    with (
        FileChannel(folder / "os", durability="os") as handed,
        FileChannel(folder / "interval", durability="interval") as timed,
        FileChannel(folder / "fsync", durability="fsync") as synced,
        closing(LiteQueue(folder / "litequeue.sqlite")) as lite,
    ):
        figures = _figures(
            scale, (handed, timed, synced), persistqueue.Queue(str(folder / "pq")), lite
        )

    def compare(name: str, theirs: str) -> Claim:
        detail = {
            "payload_bytes": len(PAYLOAD),
            "puts": scale.puts,
            "channel_puts": 100 * scale.puts,
            "unit": "microseconds",
            "channel_put": figures["put"],
            f"{theirs}_put": figures[f"{theirs}_put"],
            "beside": {
                contestant: median(values)
                for contestant, values in figures.items()
                if contestant not in {"put", "persist_queue_put", "litequeue_put"}
            },
        }
        return claim(name, ratio(figures[f"{theirs}_put"], figures["put"]), detail)

    return [compare("vs_persist_queue", "persist_queue"), compare("vs_litequeue", "litequeue")]


def _figures(
    scale: Scale,
    channels: tuple[FileChannel[bytes], FileChannel[bytes], FileChannel[bytes]],
    persisted: persistqueue.Queue,
    lite: LiteQueue,
) -> dict[str, list[float]]:
    """Time everything; microseconds a message."""
    handed, timed, synced = channels
    receiver, synced_receiver = handed.rx(), synced.rx()

    def each(times: int, work: Callable[[], object]) -> float:
        def repeat() -> None:
            for _ in range(times):
                work()

        return wall_s(repeat) * 1e6 / times

    def get_persisted() -> None:
        persisted.get()
        persisted.task_done()

    def get_lite() -> None:
        lite.done(lite.pop().message_id)

    def sending(channel: FileChannel[bytes]) -> Callable[[], object]:
        send = channel.tx().send
        return lambda: send(PAYLOAD)

    put, put_timed, put_synced = sending(handed), sending(timed), sending(synced)
    synced_puts = max(1, scale.puts // 4)
    # Every other round goes backwards: what it gets first must be there.
    for _ in range(scale.puts):
        persisted.put(PAYLOAD)
        lite.put(TEXT)
    handed.tx().send_many([PAYLOAD] * (100 * scale.puts))
    synced.tx().send_many([PAYLOAD] * synced_puts)
    return alternate(
        scale.rounds,
        {
            "put": lambda: each(100 * scale.puts, put),
            "persist_queue_put": lambda: each(scale.puts, lambda: persisted.put(PAYLOAD)),
            "litequeue_put": lambda: each(scale.puts, lambda: lite.put(TEXT)),
            "put_interval": lambda: each(100 * scale.puts, put_timed),
            "put_fsync": lambda: each(synced_puts, put_synced),
            "get": lambda: each(100 * scale.puts, receiver.recv),
            "persist_queue_get": lambda: each(scale.puts, get_persisted),
            "litequeue_get": lambda: each(scale.puts, get_lite),
            "get_fsync": lambda: each(synced_puts, synced_receiver.recv),
        },
    )
