"""Plays seeds with a bug planted until something is found; run as a program, prints the table."""

import sys

import msgspec
import pytest

from roost.sim.play import Options
from roost.sim.scenarios import channel
from tests.power.bugs import BUGS, Bug


class Caught(msgspec.Struct, frozen=True):
    """Where a bug was caught, and what gave it away."""

    seed: int
    violation: str


def hunt(bug: Bug) -> Caught | None:
    """Play seeds from 1 on with the bug in the code; None if its seeds find nothing."""
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        for seed in range(1, bug.seeds_max + 1):
            violations = channel.run(seed, Options()).violations
            if violations:
                return Caught(seed=seed, violation=violations[0].splitlines()[-1])
    return None


def main() -> None:
    """Print for each bug how many seeds it takes, and what is broken then."""
    missed = 0
    for bug in BUGS:
        caught = hunt(bug)
        missed += caught is None
        seeds = "missed" if caught is None else str(caught.seed)
        said = "" if caught is None else caught.violation[:90]
        sys.stdout.write(f"{bug.name:36} {seeds:>6} of {bug.seeds_max:<5} {said}\n")
        sys.stdout.flush()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
