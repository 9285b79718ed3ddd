"""Replicated ledgers against one node, against NATS JetStream, and under kills; see `bars`.

Three or four node processes, a real etcd, one client process, loopback, one disk that all of them
share, and every acknowledged entry synced. What starts here ends here, whatever happens.
"""

import shutil
from pathlib import Path

from bench.harness import Claim
from bench.ledger import amplified, awaited, killed, recovered, repaired, replicated
from bench.ledger.bars import BARS
from bench.ledger.scale import FULL, QUICK, Scale
from bench.node.programs import ended_by_signals


def run(quick: bool, folder: Path) -> list[Claim]:  # noqa: FBT001  every benchmark has this form
    """Measure all claims of ledgers, in a folder on the disk that is to be measured."""
    with ended_by_signals():
        return measure(QUICK if quick else FULL, folder)


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure all claims in the sizes of one scale, in the order of the bars."""
    found: dict[str, Claim] = {}
    # What waits for single syncs first, while nothing is on its way to the disk.
    for subject in (awaited, replicated, killed, recovered, repaired, amplified):
        place = folder / subject.__name__.rpartition(".")[2]
        place.mkdir()
        try:
            found |= {claim.name: claim for claim in subject.measure(scale, place)}
        finally:
            shutil.rmtree(place)
    return [found[name] for name in BARS]
