"""Small records, batched by who appends them, against NATS JetStream with three replicas.

Ledgers keep entries and do not look into them: the client concatenates records to entries of at
most 64 KiB. NATS gets each record as a message, with a thousand under way; what it is shipped with
acknowledges from the page cache, and nodes always sync first.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.ledger import client
from bench.ledger.bars import claim
from bench.ledger.cluster import Cluster
from bench.ledger.jetstream import REPLICAS, Servers
from bench.ledger.scale import Scale
from bench.node import jetstream
from bench.node.client import Turn
from bench.node.programs import Beside, Program, settle

RECORD_BYTES = 100
ENTRY_BYTES = 1 << 16
ENTRIES_UNDER_WAY = 64
NATS_IN_FLIGHT = 1_000


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure all three in the same rounds."""
    progress(f"records of {RECORD_BYTES} B, replicated three times")
    turns: list[Turn] = []
    nodes_cpu_s: list[float] = []
    with ExitStack() as started:
        cluster = started.enter_context(Cluster(folder, 3))
        always, default = (
            started.enter_context(Servers(folder / f"nats-{sync}", sync=sync))
            for sync in (jetstream.ALWAYS, jetstream.DEFAULT)
        )
        beside, rival = (started.enter_context(Beside()) for _ in range(2))
        programs = (*cluster.programs, *always.programs, *default.programs)
        for servers in (always, default):
            servers.open_stream(rival)

        def append() -> float:
            settle(*programs)
            before_s = sum(node.cpu_s() for node in cluster.nodes.values())
            turn = beside.run(
                client.append_records,
                cluster.url,
                RECORD_BYTES,
                ENTRY_BYTES,
                ENTRIES_UNDER_WAY,
                scale.turn_s,
            )
            nodes_cpu_s.append(sum(node.cpu_s() for node in cluster.nodes.values()) - before_s)
            turns.append(turn)
            return turn.per_s

        rates = alternate(
            scale.rounds,
            {
                "nats_always": lambda: _publish(scale, always, rival, programs),
                "nats_default": lambda: _publish(scale, default, rival, programs),
                "records": append,
            },
        )
    return _claims(scale, rates, turns, nodes_cpu_s)


def _claims(
    scale: Scale,
    rates: Mapping[str, Sequence[float]],
    turns: Sequence[Turn],
    nodes_cpu_s: Sequence[float],
) -> list[Claim]:
    return [
        claim(
            f"records_vs_{theirs}",
            ratio(rates["records"], rates[theirs]),
            {
                "record_bytes": RECORD_BYTES,
                "entry_bytes_max": ENTRY_BYTES,
                "entries_under_way": ENTRIES_UNDER_WAY,
                "quorum": "3/3/2",
                "nats_replicas": REPLICAS,
                "nats_in_flight": NATS_IN_FLIGHT,
                "nats": nats,
                "turn_s": scale.turn_s,
                "unit": "records/s",
                "records": rates["records"],
                theirs: rates[theirs],
                "records_median": median(rates["records"]),
                "mb_s_median": median(rates["records"]) * RECORD_BYTES / 1e6,
                "client_cpu_share": [turn.cpu_s / turn.took_s for turn in turns],
                "nodes_cpu_share": [
                    cpu_s / turn.took_s for cpu_s, turn in zip(nodes_cpu_s, turns, strict=True)
                ],
            },
        )
        for theirs, nats in (
            ("nats_always", "sync_interval: always"),
            ("nats_default", "as shipped: synced every two minutes"),
        )
    ]


def _publish(scale: Scale, servers: Servers, rival: Beside, programs: Sequence[Program]) -> float:
    settle(*programs)
    return rival.run(jetstream.publish, servers.leader, RECORD_BYTES, NATS_IN_FLIGHT, scale.turn_s)
