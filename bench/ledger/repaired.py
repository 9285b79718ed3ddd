"""How fast a ledger that has lost a node is given its third copy, against reading it once.

The copy goes from node to node; who repairs only asks for it. Each round has a ledger of its own.
What is repaired is old, as a rule: it lies on disks, and nobody has it in memory. So both begin
there. What reading takes from memory, and what the disk itself takes durably, stands beside it.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside, settle
from bench.node.raw import RawFile

PAYLOAD_BYTES = 1 << 16
UNDER_WAY = 64
RAW_BYTES = 1 << 20
RAW_FILE_BYTES = 1 << 26


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure both, of the same ledgers."""
    entries = scale.repaired_bytes // PAYLOAD_BYTES
    progress(f"repairing ledgers of {scale.repaired_bytes >> 20} MiB")
    with ExitStack() as started:
        cluster = started.enter_context(Cluster(folder, 4))
        beside = started.enter_context(Beside())
        raw = started.enter_context(closing(RawFile(folder / "raw", RAW_FILE_BYTES)))
        ledgers = [
            beside.run(client.append_bytes, cluster.url, PAYLOAD_BYTES, entries, UNDER_WAY)
            for _ in range(scale.repair_rounds)
        ]
        for name, node in [*cluster.nodes.items()]:
            node.stop()  # which brings everything into the ledgers' files
            cluster.start(name)
        left = {name: iter(ledgers) for name in ("repair", "read", "read_warm")}

        def repair() -> float:
            ledger = next(left["repair"])
            gone = beside.run(client.nodes_of, cluster.url, ledger)[-1]
            settle(*cluster.programs)
            _forget(folder)
            took_s = beside.run(client.repair, cluster.url, ledger, gone)
            return scale.repaired_bytes / took_s / 1e6

        def read(kind: str) -> float:
            settle(*cluster.programs)
            if kind == "read":
                _forget(folder)
            took_s = beside.run(client.read_one_copy, cluster.url, next(left[kind]))
            return scale.repaired_bytes / took_s / 1e6

        def write() -> float:
            settle(*cluster.programs)
            return raw.bytes_s(bytes(RAW_BYTES), scale.repaired_bytes // RAW_BYTES) / 1e6

        rates = alternate(
            scale.repair_rounds,
            {
                "read": lambda: read("read"),
                "repair": repair,
                "read_warm": lambda: read("read_warm"),
                "pwrite_fdatasync": write,
            },
        )
    return [_claim(scale, rates)]


def _claim(scale: Scale, rates: Mapping[str, Sequence[float]]) -> Claim:
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "ledger_bytes": scale.repaired_bytes,
        "unit": "MB/s",
        "page_cache": "cold",
        **rates,
        "ratio_to_raw_write": ratio(rates["repair"], rates["pwrite_fdatasync"]),
        "ratio_to_warm": ratio(rates["repair"], rates["read_warm"]),
        "repair_median": median(rates["repair"]),
    }
    return claim("repair_vs_read", ratio(rates["repair"], rates["read"]), detail)


def _forget(folder: Path) -> None:
    """Have the page cache hold nothing of the ledgers' files."""
    os.sync()  # what is dirty would stay
    for path in folder.glob("*/data/ledgers/*"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
