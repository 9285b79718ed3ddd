"""What every clock and every source of chance does: `roost.host.clock` and `roost.host.random`."""

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import pytest

from roost.host.clock import Clock
from roost.host.random import Rng
from roost.host.system import SystemClock, system_rng
from roost.sim.clock import SimClock
from roost.sim.timeline import Timeline


def simulated() -> Clock:
    return SimClock(Timeline(Random(7)))


CLOCKS: dict[str, Callable[[], Clock]] = {"system": SystemClock, "sim": simulated}
RNGS: dict[str, Callable[[], Rng]] = {"system": system_rng, "seeded": lambda: Random(7)}


@pytest.fixture(params=[*CLOCKS.values()], ids=[*CLOCKS])
def clock(request: pytest.FixtureRequest) -> Clock:
    make: Callable[[], Clock] = request.param
    return make()


@pytest.fixture(params=[*RNGS.values()], ids=[*RNGS])
def rng(request: pytest.FixtureRequest) -> Rng:
    make: Callable[[], Rng] = request.param
    return make()


def test_time_never_goes_back(clock: Clock) -> None:
    times = [clock.now() for _ in range(1000)]

    assert times == sorted(times)


def test_the_wall_shows_a_moment_after_this_was_written(clock: Clock) -> None:
    assert clock.wall() > datetime(2024, 1, 1, tzinfo=UTC).timestamp()


def test_draws_stay_within_their_bounds(rng: Rng) -> None:
    for _ in range(1000):
        assert 0 <= rng.random() < 1
        assert rng.randrange(3) in {0, 1, 2}
        assert rng.randrange(5, 7) in {5, 6}
        assert rng.randrange(0, 10, 5) in {0, 5}
        assert 1.5 <= rng.uniform(1.5, 2.5) <= 2.5
        assert rng.choice("ab") in {"a", "b"}
        assert 0 <= rng.getrandbits(3) < 8


def test_every_outcome_is_drawn_sooner_or_later(rng: Rng) -> None:
    assert {rng.randrange(4) for _ in range(1000)} == {0, 1, 2, 3}
    assert {rng.choice("abcd") for _ in range(1000)} == set("abcd")


def test_a_shuffle_keeps_what_it_orders(rng: Rng) -> None:
    items = list(range(100))

    rng.shuffle(items)

    assert items != list(range(100))
    assert sorted(items) == list(range(100))


def test_random_bytes_are_as_many_as_asked_for_and_differ(rng: Rng) -> None:
    assert rng.randbytes(0) == b""
    assert len(rng.randbytes(16)) == 16
    assert rng.randbytes(16) != rng.randbytes(16)


def test_the_system_never_repeats_itself() -> None:
    assert system_rng().randbytes(16) != system_rng().randbytes(16)


def test_one_run_of_a_machine_has_one_name(clock: Clock) -> None:
    assert clock.boot() == clock.boot() != ""
