"""A promise that no planted bug can break is not tested: each bug here must be caught.

The simulator plays seeds of the production code, with the bug in it, from seed 1 on. `make power`
prints how many each one takes.
"""

import pytest

from tests.power.bugs import Bug
from tests.power.hunt import BUGS, hunt

ALL = [
    pytest.param(scenario, bug, id=f"{scenario}: {bug.name}")
    for scenario, bugs in BUGS.items()
    for bug in bugs
    if not bug.rare
]


@pytest.mark.parametrize(("scenario", "bug"), ALL)
def test_a_planted_bug_is_caught_within_its_seeds(scenario: str, bug: Bug) -> None:
    caught = hunt(scenario, bug)

    assert caught is not None, f"{bug.name}: not caught within {bug.seeds_max} seeds"
    assert caught.seed <= bug.seeds_max


@pytest.mark.parametrize("scenario", [*BUGS])
def test_without_a_bug_the_same_seeds_break_nothing(scenario: str) -> None:
    healthy = Bug(name="none", plant=lambda _patch: None, seeds_max=60)

    assert hunt(scenario, healthy) is None
