"""A taste of the fuzzing in every run: the inputs to begin with, and changes of them from seeds."""

from random import Random

import pytest

from tests.fuzz.targets import TARGETS, Target

CHANGED = 1000
INPUT_BYTES_MAX = 8192

each_target = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


@each_target
def test_what_fuzzing_begins_with_passes(target: Target) -> None:
    for seed in target.seeds():
        target.check(seed)


@each_target
def test_what_is_changed_a_few_times_passes(target: Target) -> None:
    seeds = target.seeds()
    for number in range(CHANGED):
        rng = Random(number)
        raw = rng.choice(seeds)
        for _ in range(rng.randrange(1, 6)):
            raw = target.mutate(raw, rng)[:INPUT_BYTES_MAX]
        target.check(raw)
