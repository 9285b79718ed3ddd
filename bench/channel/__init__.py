"""The file channel against the plainest way to do the same; `bars` lists what it is held to.

Only what everybody has is measured: `FileChannel`, its senders and its receivers.
"""

import shutil
from pathlib import Path

from bench.channel import footprint, handed, rivals, synced
from bench.channel.bars import BARS
from bench.channel.scale import FULL, QUICK, Scale
from bench.harness import Claim


def run(quick: bool, folder: Path) -> list[Claim]:  # noqa: FBT001  every benchmark has this form
    """Measure all claims of the channel, in a folder on the disk that is to be measured."""
    return measure(QUICK if quick else FULL, folder)


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure all claims in the sizes of one scale, in the order of the bars."""
    found: dict[str, Claim] = {}
    # Syncs first, while nothing that others left behind is on its way to the disk.
    for subject in (synced, handed, rivals, footprint):
        place = folder / subject.__name__.rpartition(".")[2]
        place.mkdir()
        try:
            found |= {claim.name: claim for claim in subject.measure(scale, place)}
        finally:
            shutil.rmtree(place)
    return [found[name] for name in BARS]
