"""A promise that no planted bug can break is not tested: each bug here must be caught.

The simulator plays seeds of the production code, with the bug in it, from seed 1 on. `make power`
prints how many each one takes.
"""

import pytest

from tests.power.bugs import BUGS, Bug
from tests.power.hunt import hunt


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught_within_its_seeds(bug: Bug) -> None:
    caught = hunt(bug)

    assert caught is not None, f"{bug.name}: not caught within {bug.seeds_max} seeds"
    assert caught.seed <= bug.seeds_max


def test_without_a_bug_the_same_seeds_break_nothing() -> None:
    healthy = Bug(name="none", plant=lambda _patch: None, seeds_max=60)

    assert hunt(healthy) is None
