"""The storage node against raw disks, raw sockets and NATS JetStream; `bars` lists what it must do.

One node process, one client process, loopback, and every acknowledged entry synced. What starts
here ends here, whatever happens.
"""

import shutil
from pathlib import Path

from bench.harness import Claim
from bench.node import awaited, pipelined, recovery, starting, stored
from bench.node.bars import BARS
from bench.node.programs import ended_by_signals
from bench.node.scale import FULL, QUICK, Scale


def run(quick: bool, folder: Path) -> list[Claim]:  # noqa: FBT001  every benchmark has this form
    """Measure all claims of the node, in a folder on the disk that is to be measured."""
    with ended_by_signals():
        return measure(QUICK if quick else FULL, folder)


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure all claims in the sizes of one scale, in the order of the bars."""
    found: dict[str, Claim] = {}
    # What waits for single syncs first, while nothing is on its way to the disk.
    for subject in (awaited, pipelined, stored, recovery, starting):
        place = folder / subject.__name__.rpartition(".")[2]
        place.mkdir()
        try:
            found |= {claim.name: claim for claim in subject.measure(scale, place)}
        finally:
            shutil.rmtree(place)
    return [found[name] for name in BARS]
