"""A world does to processes and machines what reality does, and does it again for one seed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from roost.host.seams import Seams
from roost.sim.clock import SimClock
from roost.sim.nemesis import LEFT_OUT, Nemesis, draw_net_faults
from roost.sim.play import Options, play
from roost.sim.scenarios import SCENARIOS
from roost.sim.timeline import Defect, Timeline
from roost.sim.world import Process, World

SEEDS = range(10)
FILE = Path("/file")


async def idle(_seams: Seams) -> None:
    await asyncio.get_running_loop().create_future()


def run(world: World, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with world:
        world.run(story)


def test_a_process_runs_from_its_start_to_its_end() -> None:
    world = World(0)
    seen: list[str] = []

    async def main(seams: Seams) -> None:
        begin = seams.clock.now()
        await asyncio.sleep(5)
        seen.append(f"after {seams.clock.now() - begin:.0f} s")

    async def story() -> None:
        process = world.host("node").start("program", main)
        await process.ended.wait()
        assert process.finished
        assert not process.alive

    run(world, story)
    assert seen == ["after 5 s"]


def test_a_process_that_ends_by_an_exception_fails_the_run() -> None:
    world = World(0)

    async def main(_seams: Seams) -> None:
        raise LookupError("nobody home")

    async def story() -> None:
        world.host("node").start("program", main)
        await asyncio.sleep(1)

    with pytest.raises(Defect, match=r"node/program ended by an exception.*nobody home"):
        run(world, story)


def test_a_killed_process_keeps_its_page_cache() -> None:
    world = World(0)
    read: list[bytes] = []

    async def main(seams: Seams) -> None:
        file = seams.disk.open(FILE, create=True)
        read.append(file.read_at(0, 100))
        file.write_at(0, b"unsynced")
        await idle(seams)

    async def story() -> None:
        process = world.host("node").start("program", main)
        await asyncio.sleep(1)
        process.kill()
        process.restart()
        await asyncio.sleep(1)

    run(world, story)
    assert read == [b"", b"unsynced"]


def test_a_crashed_machine_forgets_what_was_not_synced() -> None:
    def lives(seed: int) -> tuple[bytes, ...]:
        world = World(seed)
        read: list[bytes] = []

        async def main(seams: Seams) -> None:
            file = seams.disk.open(FILE, create=True)
            read.append(file.read_at(0, 100))
            file.write_at(0, b"synced ")
            file.sync()
            seams.disk.sync_folder(FILE.parent)
            file.write_at(7, b"unsynced")
            await idle(seams)

        async def story() -> None:
            host = world.host("node")
            process = host.start("program", main)
            await asyncio.sleep(1)
            host.crash()
            assert not process.alive
            host.boot()
            process.restart()
            await asyncio.sleep(1)

        run(world, story)
        return tuple(read)

    texts = [lives(seed)[1] for seed in range(20)]

    assert {text[:7] for text in texts} == {b"synced "}
    assert {b"", b"unsynced"} <= {text[7:].strip(b"\0") for text in texts}


def test_power_that_goes_under_a_write_ends_the_whole_machine_at_once() -> None:
    world = World(0)
    after: list[str] = []
    written: list[int] = []

    async def writes(seams: Seams) -> None:
        file = seams.disk.open(FILE, create=True)
        try:
            for number in range(100):
                file.write_at(number, b"x")
                written.append(number)
                await asyncio.sleep(0.01)
        finally:
            # The dying callback unwinds; what it asks for is never done.
            asyncio.get_running_loop().call_soon(after.append, "lives on")

    async def beside(_seams: Seams) -> None:
        await asyncio.sleep(0.5)
        after.append("the neighbour lives on")

    async def story() -> None:
        host = world.host("node")
        writer, neighbour = host.start("writes", writes), host.start("beside", beside)
        writer.disk.lose_power_after(10)
        await writer.ended.wait()
        assert 0.05 < world.now < 0.2
        assert not neighbour.alive
        assert not host.up
        before = len(written)
        await asyncio.sleep(10)
        assert len(written) == before

        writer.restart()
        await writer.ended.wait()
        assert len(written) == before + 100

    run(world, story)
    assert after == []


def test_a_paused_process_stands_still() -> None:
    world = World(0)
    ticks: list[int] = []

    async def main(seams: Seams) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(round(seams.clock.now()))

    async def story() -> None:
        process = world.host("node").start("program", main)
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5)
        process.resume()
        await asyncio.sleep(2)
        process.pause()
        process.kill()

    run(world, story)
    assert ticks == [1, 2, 8, 9]


def test_jobs_of_a_dead_process_stay_where_they_are() -> None:
    world = World(0)
    steps: list[int] = []

    def job() -> Iterator[None]:
        try:
            for step in range(10_000):
                steps.append(step)
                yield
        finally:
            steps.append(-1)

    async def main(seams: Seams) -> None:
        seams.tasks.worker("worker").start(job())
        await idle(seams)

    async def story() -> None:
        process = world.host("node").start("program", main)
        await asyncio.sleep(0.01)
        process.kill()
        count = len(steps)
        assert 10 < count < 1000
        await asyncio.sleep(10)
        assert len(steps) == count

    run(world, story)


def test_jobs_of_two_workers_take_turns() -> None:
    world = World(0)
    steps: list[str] = []

    def job(name: str) -> Iterator[None]:
        for _ in range(50):
            steps.append(name)
            yield

    async def main(seams: Seams) -> None:
        for name in ("a", "b"):
            seams.tasks.worker(name).start(job(name))
        await asyncio.sleep(1)

    async def story() -> None:
        await world.host("node").start("program", main).ended.wait()

    run(world, story)
    turns = sum(one != other for one, other in pairwise(steps))
    assert len(steps) == 100
    assert turns > 5


def test_a_job_that_fails_fails_the_run() -> None:
    world = World(0)

    def job() -> Iterator[None]:
        yield
        raise LookupError("a job's own")

    async def main(seams: Seams) -> None:
        seams.tasks.worker("diggers").start(job())
        await idle(seams)

    async def story() -> None:
        world.host("node").start("program", main)
        await asyncio.sleep(1)

    with pytest.raises(Defect, match=r"worker diggers failed.*a job's own"):
        run(world, story)


def test_wall_clocks_are_set_and_drift_and_time_passes_all_the_same() -> None:
    timeline = Timeline(Random(0))
    clock = SimClock(timeline)
    begin = clock.wall()

    clock.step(-100)
    assert clock.wall() == begin - 100
    clock.drift(0.5)
    timeline.now += 10
    assert clock.wall() == begin - 85
    clock.drift(-0.5)
    timeline.now += 10
    assert clock.wall() == begin - 80
    assert clock.now() == 20


def test_chance_depends_on_the_seed_and_the_name_alone() -> None:
    with World(1) as one, World(1) as same, World(2) as other:
        one.host("somebody else")

        assert one.rng("node").random() == same.rng("node").random()
        assert one.rng("node").random() != one.rng("edon").random()
        assert one.rng("node").random() != other.rng("node").random()


def test_swarm_leaves_out_half_of_the_faults() -> None:
    drawn = [draw_net_faults(Random(seed)) for seed in range(400)]

    for chance in ("delays_long", "loses", "splits", "lingers"):
        absent = sum(getattr(faults, chance) == 0 for faults in drawn)
        assert absent == pytest.approx(400 * LEFT_OUT, rel=0.2)


def test_a_nemesis_does_harm_and_makes_it_good() -> None:
    seen: set[str] = set()

    async def writes(seams: Seams) -> None:
        file = seams.disk.open(FILE, create=True)
        while True:
            file.write_at(0, b"x")
            await asyncio.sleep(0.1)

    for seed in SEEDS:
        world = World(seed)

        async def story(world: World = world) -> None:
            processes: list[Process] = [
                world.host(name).start("writes", writes) for name in ("a", "b", "c")
            ]
            await Nemesis(world, world.rng("nemesis")).rage(60)
            assert all(process.alive for process in processes)
            lives = [process.lives for process in processes]
            await asyncio.sleep(100)
            assert [process.lives for process in processes] == lives

        run(world, story)
        seen |= set(world.faults)

    assert seen == {"clock", "clog", "kill", "one-way partition", "partition", "pause", "power"}


def test_what_a_story_raises_is_reported_as_a_violation() -> None:
    async def story(world: World) -> dict[str, int]:
        await asyncio.sleep(1)
        world.count("flood")
        raise LookupError("lost the plot")

    report = play("plotless", 7, Options(), story)

    assert "lost the plot" in report.violations[0]
    assert report.faults == {"flood": 1}
    assert report.virtual_s == 1.0


def test_a_fingerprint_covers_what_was_traced_to_the_byte() -> None:
    def fingerprint(**fields: object) -> str:
        world = World(0)

        async def story() -> None:
            world.trace("event", **fields)

        run(world, story)
        return world.fingerprint()

    assert fingerprint(size=1) == fingerprint(size=1)
    assert len({fingerprint(size=1), fingerprint(size=2), fingerprint(seize=1)}) == 3


def test_what_is_printed_does_not_change_the_history() -> None:
    lines: list[str] = []
    loud = SCENARIOS["echo"].run(3, Options(say=lines.append, details=True))
    quiet = SCENARIOS["echo"].run(3, Options())

    assert len(lines) > 100
    assert loud == quiet


@pytest.mark.parametrize("name", [*SCENARIOS])
def test_one_seed_gives_one_history_and_two_give_two(name: str) -> None:
    first = [SCENARIOS[name].run(seed, Options()) for seed in range(5)]
    again = [SCENARIOS[name].run(seed, Options()) for seed in range(5)]

    assert first == again
    assert len({report.fingerprint for report in first}) == 5


def test_histories_do_not_depend_on_the_process_that_plays_them() -> None:
    script = (
        "from roost.sim.play import Options; from roost.sim.scenarios import SCENARIOS\n"
        "for name in SCENARIOS:\n"
        "    for seed in range(3): print(SCENARIOS[name].run(seed, Options()).fingerprint)"
    )
    here = [
        SCENARIOS[name].run(seed, Options()).fingerprint for name in SCENARIOS for seed in range(3)
    ]

    for hash_seed in ("0", "4242"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.split() == here
