"""Plays seeds with a bug planted until something is found; run as a program, prints the table."""

import sys
from typing import Final

import msgspec
import pytest

from roost.sim.play import Options
from roost.sim.scenarios import SCENARIOS, Scenario
from tests.power import (
    channel_bugs,
    ledger_bugs,
    master_bugs,
    metadata_bugs,
    node_bugs,
    node_group_bugs,
    recovery_model,
)
from tests.power.bugs import Bug

BUGS: Final = {
    "channel": channel_bugs.BUGS,
    "metadata": metadata_bugs.BUGS,
    "node": node_bugs.BUGS,
    "node_group": node_group_bugs.BUGS,
    "ledger": [*ledger_bugs.BUGS, *master_bugs.BUGS],
    "recovery": ledger_bugs.RECOVERY_BUGS,
}
"""The bugs of each scenario."""

PLAYED: Final[dict[str, Scenario]] = {**SCENARIOS, "recovery": recovery_model}
"""What plays seeds: the simulator's scenarios, and a model of one machine alone."""


class Caught(msgspec.Struct, frozen=True):
    """Where a bug was caught, and what gave it away."""

    seed: int
    violation: str


def hunt(scenario: str, bug: Bug) -> Caught | None:
    """Play seeds from 1 on with the bug in the code; None if its seeds find nothing."""
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        for seed in range(1, bug.seeds_max + 1):
            violations = PLAYED[scenario].run(seed, Options()).violations
            if violations:
                return Caught(seed=seed, violation=_gist(violations[0]))
    return None


def _gist(violation: str) -> str:
    """Give the line that says what happened: of a traceback the last one."""
    lines = violation.splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0]


def main() -> None:
    """Print for each bug how many seeds it takes, and what is broken then."""
    missed = 0
    for scenario, bugs in BUGS.items():
        sys.stdout.write(f"{scenario}\n")
        for bug in bugs:
            caught = hunt(scenario, bug)
            missed += caught is None
            seeds = "missed" if caught is None else str(caught.seed)
            said = "" if caught is None else caught.violation[:90]
            sys.stdout.write(f"  {bug.name:40} {seeds:>6} of {bug.seeds_max:<5} {said}\n")
            sys.stdout.flush()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
