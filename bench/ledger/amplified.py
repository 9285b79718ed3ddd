"""How many bytes the nodes write for each acknowledged byte of each copy.

What counts is `wchar` of /proc/PID/io: all bytes that a process has handed to write calls of any
kind, be it to a file or to a connection. It is read once a node was told to end, and has brought
everything into the ledgers' files: nothing is still owed.
"""

from pathlib import Path

from bench.harness import Claim, progress
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.cluster import Cluster
from bench.ledger.scale import Scale
from bench.node.programs import Beside

PAYLOAD_BYTES = 1 << 14
UNDER_WAY = 64
COPIES = 3


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Append, end the nodes, and count."""
    entries = scale.amplified_bytes // PAYLOAD_BYTES
    progress(f"counting what is written for {scale.amplified_bytes >> 20} MiB")
    with Cluster(folder, COPIES) as cluster, Beside() as beside:
        before = {name: node.written_bytes() for name, node in cluster.nodes.items()}
        beside.run(client.append_bytes, cluster.url, PAYLOAD_BYTES, entries, UNDER_WAY)
        running = {name: node.written_bytes() for name, node in cluster.nodes.items()}
        after = {name: node.written_bytes_when_stopped() for name, node in cluster.nodes.items()}
    written = sum(after[name] - before[name] for name in before)
    acked = entries * PAYLOAD_BYTES
    detail = {
        "payload_bytes": PAYLOAD_BYTES,
        "acked_bytes": acked,
        "copies": COPIES,
        "counted": "wchar of /proc/PID/io of the nodes, until they have stopped",
        "written_bytes": written,
        "amplification_before_the_stop": sum(running[name] - before[name] for name in before)
        / (acked * COPIES),
    }
    return [claim("write_amplification", written / (acked * COPIES), detail)]
