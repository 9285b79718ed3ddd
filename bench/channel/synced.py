"""Sends that return once an fsync has covered them, against `pwrite` and `fdatasync` themselves.

A raw file has no readers, no positions and one writer that knows its whole group beforehand; what
it does not have to do, the channel may take its share of the time for. One sender is a thread
where threads are compared, and a task where tasks are: a task hands each sync to a worker, since
it must not block its loop, and so takes longer alone.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.channel.bars import claim
from bench.channel.baselines import BATCH, RawFile, pack
from bench.channel.scale import Scale
from bench.harness import Claim, alternate, progress, ratio, wall_s
from roost import FileChannel

PAYLOAD = bytes(range(100))
SENDERS = 64


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure one sender, 64 of both kinds, and batches."""
    progress("durability fsync, 100 B")
    raw = {name: RawFile(folder / f"raw-{name}") for name in ("singly", "group", "bulk")}
    try:
        syncs = max(scale.syncs_min, _syncs_within(scale.sync_turn_s, raw["singly"]))
        with FileChannel(folder / "channel", durability="fsync") as channel:
            rates = _rates(channel, raw, rounds=scale.rounds, syncs=syncs)
    finally:
        for file in raw.values():
            file.close()

    def compare(name: str, ours: str, theirs: str, **more: object) -> Claim:
        detail = {
            "payload_bytes": len(PAYLOAD),
            "durability": "fsync",
            "syncs_of_one_sender": syncs,
            "unit": "messages/s",
            ours: rates[ours],
            theirs: rates[theirs],
            **more,
        }
        return claim(name, ratio(rates[ours], rates[theirs]), detail)

    against_thread = ratio(rates["tasks"], rates["one"])
    return [
        compare("fsync_one_vs_raw", "one", "raw_singly"),
        compare("fsync_vs_raw", "tasks", "raw_group", senders=SENDERS),
        compare(
            "fsync_group_gain", "tasks", "one_task", senders=SENDERS, against_thread=against_thread
        ),
        compare("fsync_thread_gain", "threads", "one", senders=SENDERS),
        compare("fsync_bulk_vs_raw", "bulk", "raw_bulk", batch=BATCH),
    ]


def _rates(
    channel: FileChannel[bytes], raw: Mapping[str, RawFile], *, rounds: int, syncs: int
) -> dict[str, list[float]]:
    """Time everything; messages a second."""
    sender, tasks_sender = channel.tx(), channel.async_tx()
    batch = [PAYLOAD] * BATCH
    one, group_frames, bulk_frames = pack([PAYLOAD]), pack([PAYLOAD] * SENDERS), pack(batch)
    # Groups and batches take longer: so all turns are about as long.
    larger = max(1, syncs // 4)

    def rate(messages: int, work: Callable[[], object]) -> float:
        return messages / wall_s(work)

    def send(times: int) -> None:
        for _ in range(times):
            sender.send(PAYLOAD)

    def send_bulks() -> None:
        for _ in range(larger):
            sender.send_many(batch)

    async def send_in_tasks(tasks: int, times: int) -> None:
        async def send_in_task() -> None:
            for _ in range(times):
                await tasks_sender.send(PAYLOAD)

        async with asyncio.TaskGroup() as running:
            for _ in range(tasks):
                running.create_task(send_in_task())

    return alternate(
        rounds,
        {
            "raw_singly": lambda: rate(syncs, lambda: raw["singly"].write(one, syncs)),
            "one": lambda: rate(syncs, lambda: send(syncs)),
            "one_task": lambda: rate(syncs, lambda: asyncio.run(send_in_tasks(1, syncs))),
            "raw_group": lambda: rate(
                larger * SENDERS, lambda: raw["group"].write(group_frames, larger)
            ),
            "tasks": lambda: rate(
                larger * SENDERS, lambda: asyncio.run(send_in_tasks(SENDERS, larger))
            ),
            "threads": lambda: rate(larger * SENDERS, lambda: _in_threads(lambda: send(larger))),
            "raw_bulk": lambda: rate(
                larger * BATCH, lambda: raw["bulk"].write(bulk_frames, larger)
            ),
            "bulk": lambda: rate(larger * BATCH, send_bulks),
        },
    )


def _syncs_within(turn_s: float, file: RawFile) -> int:
    """Tell about how often this disk syncs in such a time, after a few that nobody counts."""
    tried = 20
    sync_s = wall_s(lambda: file.write(pack([PAYLOAD]), tried)) / tried
    return round(turn_s / sync_s)


def _in_threads(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
