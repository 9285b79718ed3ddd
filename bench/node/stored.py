"""Reading what was flushed, from a node that was started again, against the plainest way to send.

The plain way reads the same files and sends them through one loopback socket; it does not know
where an entry begins, and checks nothing. Both find everything in the page cache, which is what is
claimed, or both have to fetch it from the disk, which stands beside it.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.node.bars import claim
from bench.node.client import Load, add_many, read_for
from bench.node.driven import Driven
from bench.node.node import Folder, Node, formatted
from bench.node.programs import Beside, Failed, settle
from bench.node.raw import socket_bytes_s
from bench.node.scale import Scale

PAYLOAD_BYTES = 4096
IN_FLIGHT = 1_000
CHUNK_BYTES = 1 << 18
"""How much the plain loop reads and sends at a time: what a node's client receives at a time."""

SMALLER_CHUNK_BYTES = 1 << 16


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure one ledger, read from its first entry to its last."""
    entries = scale.stored_bytes // PAYLOAD_BYTES
    progress(f"reading {entries} stored entries of {PAYLOAD_BYTES} B")
    place = formatted(folder / "node")
    with Beside() as client, Beside() as plain:
        with Node(place) as node:
            filler = Driven(node, client)
            ledger = filler.fresh()
            filler.ask(add_many, Load(ledger, PAYLOAD_BYTES, IN_FLIGHT), entries)
            node.stop()
        files = _logs(place, scale.stored_bytes)
        with Node(place) as node:
            driven = Driven(node, client)
            fetched: list[float] = []
            rates = alternate(
                scale.stored_rounds,
                {
                    "socket": lambda: _send(driven, plain, files, CHUNK_BYTES),
                    "reads": lambda: _read(driven, ledger, entries),
                    "socket_of_64_kib": lambda: _send(driven, plain, files, SMALLER_CHUNK_BYTES),
                    "socket_cold": lambda: _cold(
                        files, lambda: _send(driven, plain, files, CHUNK_BYTES)
                    ),
                    "reads_cold": lambda: _read_cold(driven, ledger, entries, files, fetched),
                },
            )
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "entries": entries,
        "unit": "MB/s",
        "page_cache": "warm",
        **rates,
        "socket_chunk_bytes": CHUNK_BYTES,
        "share_fetched_from_disk_cold": fetched,
        "ratio_to_64_kib": ratio(rates["reads"], rates["socket_of_64_kib"]),
        "ratio_cold": ratio(rates["reads_cold"], rates["socket_cold"]),
        "reads_median": median(rates["reads"]),
        **driven.costs("reads"),
    }
    return [claim("cold_read_vs_socket", ratio(rates["reads"], rates["socket"]), detail)]


def _read(driven: Driven, ledger: int, entries: int) -> float:
    settle(driven.node)
    return driven.turn("reads", read_for, ledger, entries, 0).per_s * PAYLOAD_BYTES / 1e6


def _read_cold(
    driven: Driven, ledger: int, entries: int, files: Sequence[Path], fetched: list[float]
) -> float:
    before = driven.node.fetched_bytes()
    rate = _cold(files, lambda: _read(driven, ledger, entries))
    fetched.append((driven.node.fetched_bytes() - before) / (entries * PAYLOAD_BYTES))
    return rate


def _send(driven: Driven, plain: Beside, files: Sequence[Path], chunk_bytes: int) -> float:
    settle(driven.node)
    return socket_bytes_s(files, chunk_bytes, plain) / 1e6


def _logs(place: Folder, least_bytes: int) -> list[Path]:
    """List the files that the entries are in now; all of them have to be there."""
    logs = sorted((place.directory / "ledgers").glob("*.log"))
    if sum(path.stat().st_size for path in logs) < least_bytes:
        raise Failed(f"{place.directory} was stopped, and does not have all entries in {logs}")
    return logs


def _cold(files: Sequence[Path], work: Callable[[], float]) -> float:
    """Have it done once the page cache holds nothing of some files."""
    os.sync()  # what is dirty would stay
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    return work()
