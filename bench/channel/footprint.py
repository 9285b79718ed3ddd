"""What an open channel takes: memory while messages pass through, and time to open.

Memory is looked at in a process of its own, whose memory nothing else has touched. Opening is
compared with a scan of the last segment, which no recovery could do without. It syncs a few files
too; what one sync takes on this disk at that time stands in the details.
"""

import mmap
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from bench.channel.bars import claim
from bench.channel.baselines import BATCH, RawFile
from bench.channel.scale import Scale
from bench.harness import Claim, alternate, progress, wall_s
from roost import FileChannel
from roost.segments.format import HEADER_BYTES
from roost.segments.kernel import scan

PAYLOAD_BYTES = 64


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure both."""
    return [_growth(scale, folder / "growth"), _opening(scale, folder / "opening")]


def _growth(scale: Scale, folder: Path) -> Claim:
    progress("memory")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        samples = processes.submit(rss_bytes_over, scale.growth_messages, folder).result()
    grown_mib = (max(samples) - samples[0]) / (1 << 20)
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "messages": scale.growth_messages,
        "durability": "os",
        "first_mib": samples[0] / (1 << 20),
        "last_mib": samples[-1] / (1 << 20),
        "samples": len(samples),
    }
    return claim("rss_growth_mib", grown_mib, detail)


def rss_bytes_over(messages: int, folder: Path) -> list[int]:
    """Send and receive so many messages, and tell what this process took in between."""
    payload = bytes(PAYLOAD_BYTES)
    with FileChannel(folder, durability="os") as channel:
        send, recv = channel.tx().send, channel.rx().recv
        send(payload)
        recv()
        samples = [_rss_bytes()]
        for _ in range(messages // BATCH):
            for _ in range(BATCH):
                send(payload)
            for _ in range(BATCH):
                recv()
            samples.append(_rss_bytes())
    return samples


def _rss_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _opening(scale: Scale, folder: Path) -> Claim:
    progress(f"opening {scale.folder_bytes >> 20} MiB")
    batch = [bytes(PAYLOAD_BYTES)] * BATCH
    with FileChannel(folder, durability="os") as channel:
        send_many = channel.tx().send_many
        while send_many(batch) < scale.folder_bytes:
            pass
        channel.rx()
    number = max(int(path.suffix[1:]) for path in folder.glob("segment.*"))
    last = folder / f"segment.{number}"
    raw = RawFile(folder.with_name("raw"))
    times = alternate(
        scale.rounds,
        {
            "open": lambda: _open_ms(folder),
            "scan": lambda: _scan_ms(last),
            "sync": lambda: wall_s(lambda: raw.write(batch[0], times=1)) * 1e3,
        },
    )
    raw.close()
    beyond = [whole - scan for whole, scan in zip(times["open"], times["scan"], strict=True)]
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "folder_bytes": scale.folder_bytes,
        "segments": number + 1,
        "last_segment_bytes": last.stat().st_size,
        "durability": "fsync",
        "open_ms": times["open"],
        "scan_ms": times["scan"],
        "one_sync_ms": times["sync"],
    }
    return claim("open_1gib_ms", median(beyond), detail)


def _open_ms(folder: Path) -> float:
    opened: list[FileChannel[bytes]] = []
    taken_s = wall_s(lambda: opened.append(FileChannel(folder)))
    opened[0].close()
    return taken_s * 1e3


def _scan_ms(segment: Path) -> float:
    def work() -> None:
        with (
            segment.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            end, _ = scan(view, HEADER_BYTES, len(view))
            assert end == len(view), "the last segment is not whole"

    return wall_s(work) * 1e3
