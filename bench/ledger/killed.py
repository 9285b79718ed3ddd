"""Nodes that are killed while a ledger is written to them, with one more node to go to.

The stall is the longest time without an acknowledgement, from just before a kill until two seconds
after it. It has the client's finding out, its choice of another node, one change in etcd, and the
new node's copy of all that was pending.
"""

import time
from pathlib import Path

from bench.harness import Claim, progress
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.client import Stalls
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside, Failed

PAYLOAD_BYTES = 1024
UNDER_WAY = 64
_WATCHED_S = 2.0
_WARM_S = 1.0


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Kill one node after the other, each time one that is written to."""
    progress(f"{scale.kills} kills under load")
    stop = folder / "stop"
    killed_at: list[float] = []
    with Cluster(folder, 4) as cluster, Beside() as beside, Beside() as watcher:
        load = beside.begin(client.append_until, cluster.url, PAYLOAD_BYTES, UNDER_WAY, stop)
        try:
            time.sleep(_WARM_S)
            for number in range(scale.kills):
                ensemble = watcher.run(client.open_ensemble, cluster.url)
                name = ensemble[number % len(ensemble)]
                killed_at.append(time.monotonic())
                cluster.nodes[name].kill()
                time.sleep(_WATCHED_S)
                cluster.start(name)
                time.sleep(scale.between_kills_s)
        finally:
            stop.touch()
        stalls = load.result()
    worst_ms = [1e3 * worst_gap_s(stalls, at) for at in killed_at]
    progress("  stalls: " + ", ".join(f"{each:.0f} ms" for each in worst_ms))
    if stalls.errors:
        raise Failed(f"{len(stalls.errors)} appends failed, the first with: {stalls.errors[0]}")
    if stalls.fragments < scale.kills:
        raise Failed(f"of {scale.kills} kills only {stalls.fragments - 1} changed the ensemble")
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "in_flight": UNDER_WAY,
        "nodes": 4,
        "quorum": "3/3/2",
        "kills": scale.kills,
        "stalls_ms": worst_ms,
        "worst_gap_at_any_time_ms": 1e3 * max((gap for _, gap in stalls.gaps), default=0.0),
        "acknowledged": stalls.acknowledged,
        "client_errors": len(stalls.errors),
        "fragments": stalls.fragments,
    }
    return [claim("kill_stall_ms", max(worst_ms), detail)]


def worst_gap_s(stalls: Stalls, killed_at: float) -> float:
    """Tell the longest gap that was there at a kill, or began within two seconds after it."""
    return max(
        (
            gap_s
            for began, gap_s in stalls.gaps
            if began + gap_s >= killed_at and began <= killed_at + _WATCHED_S
        ),
        default=client.STALL_S,
    )
