"""How long it takes to end a ledger whose writer is gone, when all its entries are in doubt.

No node knows a LAC: every entry has to be read, judged, and written back to two nodes.
"""

from pathlib import Path
from statistics import median

from bench.harness import Claim, progress
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside, settle

PAYLOAD_BYTES = 100


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Recover one ledger after the other."""
    progress(f"recovering {scale.unconfirmed} unconfirmed entries")
    turns = []
    with Cluster(folder, 3) as cluster, Beside() as beside:
        for _ in range(scale.recovery_rounds):
            ledger = beside.run(
                client.leave_unconfirmed, cluster.url, PAYLOAD_BYTES, scale.unconfirmed
            )
            settle(*cluster.programs)
            turns.append(beside.run(client.recover, cluster.url, ledger, scale.unconfirmed))
            progress(f"  {turns[-1].took_s:.3f} s, {turns[-1].cpu_s:.3f} s of the client's core")
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "unconfirmed_entries": scale.unconfirmed,
        "quorum": "3/3/2",
        "recovery_s": [turn.took_s for turn in turns],
        "client_cpu_s": [turn.cpu_s for turn in turns],
    }
    return [claim("recovery_s", median(turn.took_s for turn in turns), detail)]
