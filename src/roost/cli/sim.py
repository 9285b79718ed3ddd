"""`roost sim`: play scenarios with seeds, print what happened, and say how to see it again."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
import msgspec

from roost.cli.commit import commit
from roost.sim.play import Options, Report
from roost.sim.scenarios import SCENARIOS

# Of so many seeds one is played twice, to see that one seed gives one history.
AGAIN_EVERY = 100
# How many seeds a process takes at once, and how often progress is shown.
SEEDS_AT_ONCE = 8
PROGRESS_S = 2.0


@click.command()
@click.option("--scenario", metavar="NAME", help="Which one to play.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed, or the first.")
@click.option("--seeds", type=click.IntRange(1), help="Play so many seeds and sum up.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--trace", is_flag=True, help="With one seed: each operation of disk and net, too.")
@click.option("--list", "listed", is_flag=True, help="List the scenarios.")
def sim(
    *, scenario: str | None, seed: int, seeds: int | None, jobs: int, trace: bool, listed: bool
) -> None:
    """Play a scenario in a deterministic world, under faults.

    One seed gives one history, so that a failure can be seen again. Exits with 1 if a promise was
    broken.
    """
    if listed:
        for name, module in SCENARIOS.items():
            click.echo(f"{name:10} {(module.__doc__ or '').splitlines()[0]}")
    elif scenario not in SCENARIOS:
        raise click.UsageError(f"Name a --scenario: {', '.join(SCENARIOS)}.")
    elif seeds is None:
        _play_one(scenario, seed, details=trace)
    else:
        _play_many(scenario, range(seed, seed + seeds), jobs)


def _play_one(scenario: str, seed: int, *, details: bool) -> None:
    report = SCENARIOS[scenario].run(seed, Options(say=click.echo, details=details))
    click.echo(
        f"{scenario} seed {seed}: {report.virtual_s:.1f} s simulated, "
        f"{report.callbacks} callbacks, history {report.fingerprint}\n"
        f"  done: {_counts(report.figures)}\n"
        f"  faults: {_counts(report.faults)}"
    )
    if report.violations:
        click.echo(_failure(report))
        sys.exit(1)


def _play_many(scenario: str, seeds: range, jobs: int) -> None:
    begin = shown = time.monotonic()
    faults: Counter[str] = Counter()
    figures: Counter[str] = Counter()
    callbacks = played = failed = 0
    virtual_s = 0.0
    for report in _reports(scenario, seeds, jobs):
        played += 1
        callbacks += report.callbacks
        virtual_s += report.virtual_s
        faults.update(report.faults)
        figures.update(report.figures)
        if report.violations:
            failed += 1
            click.echo(_failure(report))
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            rate = played / (shown - begin)
            click.echo(f"{played}/{len(seeds)} seeds, {rate:.1f}/s, {failed} failed", err=True)
    click.echo(
        f"{scenario}: {played} seeds from {seeds.start}, {failed} failed; "
        f"{virtual_s / 3600:.2f} h simulated in {time.monotonic() - begin:.1f} s, "
        f"{callbacks} callbacks\n"
        f"  done: {_counts(figures)}\n"
        f"  faults: {_counts(faults)}\n"
        f"  commit: {commit()}"
    )
    if failed:
        sys.exit(1)


def _reports(scenario: str, seeds: Iterable[int], jobs: int) -> Iterator[Report]:
    """Play seeds, in this process or in some, and give their reports in the seeds' order."""
    play = partial(_play_quietly, scenario)
    if jobs == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(play, seeds, chunksize=SEEDS_AT_ONCE)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _play_quietly(scenario: str, seed: int) -> Report:
    report = SCENARIOS[scenario].run(seed, Options())
    if seed % AGAIN_EVERY == 0:
        again = SCENARIOS[scenario].run(seed, Options())
        if again.fingerprint != report.fingerprint:
            other = f"played again, it gave another history: {again.fingerprint}"
            return msgspec.structs.replace(report, violations=[*report.violations, other])
    return report


def _failure(report: Report) -> str:
    broken = "\n    ".join("\n".join(report.violations).splitlines())
    return (
        f"FAILED {report.scenario} seed {report.seed} at {report.virtual_s:.6f} s\n"
        f"  broken: {broken}\n"
        f"  faults: {_counts(report.faults)}\n"
        f"  commit: {commit()}\n"
        f"  replay: roost sim --scenario {report.scenario} --seed {report.seed} --trace"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
