"""How long a node with very many ledgers takes to start, and how much memory it has then.

Each ledger has a few entries. The node is killed once they are stored, which is the harder start;
then it is stopped as it should be, which brings every ledger to files of its own; and what a start
takes after that is what is claimed.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from bench.harness import Claim, progress
from bench.node.bars import claim
from bench.node.client import Load, add_many, stat
from bench.node.driven import Driven
from bench.node.node import Folder, Node, formatted
from bench.node.programs import Beside, Failed, settle
from bench.node.scale import Scale

PAYLOAD_BYTES = 100
IN_FLIGHT = 1_000
ENTRIES_EACH = 3
_REMOVERS = 8


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure both, after a kill and after stops."""
    progress(f"starting with {scale.ledgers} ledgers")
    place = formatted(folder / "node")
    try:
        with Beside() as client:
            with Node(place) as node:
                load = Load(1, PAYLOAD_BYTES, IN_FLIGHT, scale.ledgers)
                Driven(node, client).ask(add_many, load, scale.ledgers * ENTRIES_EACH)
                node.kill()
            starts = [_start(scale, place, client) for _ in range(1 + scale.start_rounds)]
    finally:
        _remove_files(place.directory / "ledgers")
    killed, *stopped = starts
    detail = {
        "ledgers": scale.ledgers,
        "entries_each": ENTRIES_EACH,
        "payload_bytes": PAYLOAD_BYTES,
        "start_s": [start_s for start_s, _, _ in stopped],
        "rss_mib": [rss_mib for _, rss_mib, _ in stopped],
        "stop_s": [stop_s for _, _, stop_s in starts],
        "after_kill_start_s": killed[0],
        "after_kill_rss_mib": killed[1],
    }
    return [
        claim("start_100k_s", median(start_s for start_s, _, _ in stopped), detail),
        claim("rss_100k_mib", median(rss_mib for _, rss_mib, _ in stopped), detail),
    ]


def _start(scale: Scale, place: Folder, client: Beside) -> tuple[float, float, float]:
    """Start, look and stop: seconds until it answered, MiB then, seconds until it had stopped."""
    settle()
    began = time.perf_counter()
    with Node(place) as node:
        found = client.run(stat, node.address).ledgers
        took_s = time.perf_counter() - began
        rss_mib = node.figure("VmRSS") / 1024
        if found != scale.ledgers:
            raise Failed(f"of {scale.ledgers} ledgers {found} came back")
        stop_s = node.stop()
    progress(f"  up in {took_s:.2f} s with {rss_mib:.0f} MiB, down in {stop_s:.2f} s")
    return took_s, rss_mib, stop_s


def _remove_files(folder: Path) -> None:
    """Remove what would take minutes one by one: some file systems wait for the disk each time."""
    if not folder.is_dir():
        return
    with ThreadPoolExecutor(_REMOVERS) as removers:
        for _ in removers.map(Path.unlink, [*folder.iterdir()]):
            pass
