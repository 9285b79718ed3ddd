"""The simulated metadata store: what can be done to it, and what its users see of that."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from roost.errors import Unavailable, Unknown
from roost.metadata.operations import Put, Revision
from roost.metadata.view import View
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.play import Options
from roost.sim.scenarios import SCENARIOS
from roost.sim.world import World

LONG_S = 300.0
Story = Callable[[World, SimMetadata], Awaitable[None]]


def play(story: Story, seed: int = 1, **faults: float) -> None:
    with World(seed) as world:
        store = SimMetadata(world, MetadataFaults(**faults))

        async def main() -> None:
            async with asyncio.timeout(LONG_S):
                await story(world, store)

        world.run(main)


def test_a_change_whose_answer_is_lost_is_unknown_and_done() -> None:
    async def story(_: World, sim: SimMetadata) -> None:
        with pytest.raises(Unknown):
            await sim.handle("a").put("k", b"1")
        with pytest.raises(Unavailable):
            await sim.handle("a").get("k")
        assert sim.versions.get("k") is not None

    play(story, forgets=1.0)


def test_a_change_that_is_lost_is_unknown_and_never_done() -> None:
    async def story(_: World, sim: SimMetadata) -> None:
        with pytest.raises(Unknown, match="within 1 s"):
            await sim.handle("a").put("k", b"1", timeout_s=1.0)
        assert sim.versions.get("k") is None

    play(story, loses=1.0)


def test_a_change_may_be_done_long_after_it_was_given_up() -> None:
    async def story(_: World, sim: SimMetadata) -> None:
        with pytest.raises(Unknown):
            await sim.handle("a").put("k", b"1", timeout_s=0.001)
        assert sim.versions.get("k") is None
        await asyncio.sleep(LONG_S / 2)  # of virtual time
        assert sim.versions.get("k") is not None

    play(story, delays_long=1.0, delay_mean_s=0.01)


def test_what_is_refused_is_not_done() -> None:
    async def story(_: World, sim: SimMetadata) -> None:
        store = sim.handle("a")
        for _try in range(10):
            with pytest.raises((Unavailable, Unknown)):
                await store.put("k", b"1", timeout_s=1.0)
        assert sim.versions.get("k") is None

    play(story, refuses=1.0)


def test_who_is_cut_off_loses_its_lease_by_its_own_clock_first() -> None:
    async def story(world: World, sim: SimMetadata) -> None:
        one, two = sim.handle("one"), sim.handle("two")
        lease = await one.grant(5)
        await one.put("k", b"1", lease=lease.id)
        sim.cut("one")

        await lease.wait_lost()
        lost_at = world.now
        assert await two.get("k") is not None
        async with await View.open(two, "k") as view:
            while view.items:
                await view.changes()

        assert world.now > lost_at
        with pytest.raises((Unavailable, Unknown)):
            await one.put("k", b"2", timeout_s=1.0)
        sim.heal("one")
        await one.put("k", b"2")

    play(story)


def test_a_store_that_is_away_begins_leases_anew_when_it_is_back() -> None:
    async def story(_: World, sim: SimMetadata) -> None:
        store = sim.handle("one")
        lease = await store.grant(5)
        watch = store.watch("", Revision(1))
        sim.stop()
        await lease.wait_lost()
        with pytest.raises((Unavailable, Unknown)):
            await store.put("k", b"", timeout_s=1.0)
        sim.start()

        await asyncio.sleep(4.9)  # of virtual time
        assert lease.id in sim.versions.leases
        await asyncio.sleep(1.0)
        assert lease.id not in sim.versions.leases
        outcome = await store.txn([], [Put("k", b"")])
        assert (await anext(watch)).revision == outcome.revision

    play(story)


def test_leases_that_are_let_go_and_history_that_is_forgotten_by_chance() -> None:
    report = SCENARIOS["metadata"].run(11, Options())

    assert report.violations == []
    assert report.figures["terms"] > 0
