"""Appends that are waited for one by one: three nodes of which two must answer, against one node.

The three share one disk here, and so do their syncs; so what replication costs is what it costs at
worst.
"""

from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.client import Times
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside, settle

PAYLOAD_BYTES = 1024


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure the median and the slowest hundredth in the same rounds."""
    progress(f"appends of {PAYLOAD_BYTES} B, one in flight")
    found: dict[str, list[Times]] = {"append": [], "add": []}
    with Cluster(folder, 3) as cluster, Beside() as beside:

        def append() -> float:
            settle(*cluster.programs)
            turn = beside.run(
                client.append_one_by_one, cluster.url, PAYLOAD_BYTES, scale.sync_turn_s
            )
            found["append"].append(turn)
            return turn.p50_us

        def add() -> float:
            settle(*cluster.programs)
            ledger = len(found["add"])
            turn = beside.run(
                client.add_one_by_one, cluster.url, ledger, PAYLOAD_BYTES, scale.sync_turn_s
            )
            found["add"].append(turn)
            return turn.p50_us

        alternate(scale.sync_rounds, {"add": add, "append": append})
    p50, p99 = (
        {name: [getattr(each, field) for each in turns] for name, turns in found.items()}
        for field in ("p50_us", "p99_us")
    )
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "quorum": "3/3/2",
        "in_flight": 1,
        "turn_s": scale.sync_turn_s,
        "unit": "microseconds",
        "p50": p50,
        "p99": p99,
        "appends_in_a_turn": [each.count for each in found["append"]],
        "append_p50_median": median(p50["append"]),
        "append_p99_median": median(p99["append"]),
    }
    return [
        claim("depth1_vs_node", ratio(p50["append"], p50["add"]), detail),
        claim("p99_vs_node", ratio(p99["append"], p99["add"]), detail),
    ]
