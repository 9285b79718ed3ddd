"""How fast a ledger that has lost a node is given its third copy, against reading it once.

The copy goes from node to node; who repairs only asks for it. Each round has a ledger of its own.
"""

from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside, settle

PAYLOAD_BYTES = 1 << 16
UNDER_WAY = 64


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure both, of the same ledgers."""
    entries = scale.repaired_bytes // PAYLOAD_BYTES
    progress(f"repairing ledgers of {scale.repaired_bytes >> 20} MiB")
    with Cluster(folder, 4) as cluster, Beside() as beside:
        ledgers = [
            beside.run(client.append_bytes, cluster.url, PAYLOAD_BYTES, entries, UNDER_WAY)
            for _ in range(scale.repair_rounds)
        ]
        left = {"repair": iter(ledgers), "read": iter(ledgers)}

        def repair() -> float:
            ledger = next(left["repair"])
            gone = beside.run(client.nodes_of, cluster.url, ledger)[-1]
            settle(*cluster.programs)
            took_s = beside.run(client.repair, cluster.url, ledger, gone)
            return scale.repaired_bytes / took_s / 1e6

        def read() -> float:
            settle(*cluster.programs)
            took_s = beside.run(client.read_one_copy, cluster.url, next(left["read"]))
            return scale.repaired_bytes / took_s / 1e6

        rates = alternate(scale.repair_rounds, {"read": read, "repair": repair})
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "ledger_bytes": scale.repaired_bytes,
        "unit": "MB/s",
        "page_cache": "warm",
        **rates,
        "repair_median": median(rates["repair"]),
    }
    return [claim("repair_vs_read", ratio(rates["repair"], rates["read"]), detail)]
