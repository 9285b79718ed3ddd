"""What every benchmark shares: claims, alternating rounds, medians, the report.

A claim is one figure with the bar that it has to meet, almost always a ratio of two things
measured in the same run: the machine is shared, and what slows one slows its neighbour in time
too. So contestants take turns, round by round, and the median of the rounds' ratios is what
counts; one disturbed round changes nothing.

A benchmark is a module or package of this package with

    def run(quick: bool, folder: Path) -> list[Claim]: ...

and is found by its name; `quick` asks for the same claims from smaller inputs, and `folder` is an
empty one on the disk to measure on, which is removed afterwards.
"""

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from roost.cli.commit import commit


class Claim(msgspec.Struct, frozen=True):
    """One figure and its bar; `detail` holds what it came from: raw figures, sizes, rounds."""

    name: str
    value: float
    bar: float
    better: Literal["lower", "higher"]
    detail: Mapping[str, object] = {}

    @property
    def holds(self) -> bool:
        """Whether the figure meets its bar."""
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar


class Bar(msgspec.Struct, frozen=True):
    """The figure that a claim has to meet, and which side of it is good."""

    figure: float
    better: Literal["lower", "higher"]

    def claim(self, name: str, value: float, detail: Mapping[str, object]) -> Claim:
        """Make the claim of this name."""
        return Claim(name=name, value=value, bar=self.figure, better=self.better, detail=detail)


def progress(line: str) -> None:
    """Say on stderr what is being measured; stdout belongs to the report."""
    print(line, file=sys.stderr, flush=True)


def wall_s(work: Callable[[], object]) -> float:
    """Run it once and tell how long it took by the wall."""
    return _timed(work, time.perf_counter)


def cpu_s(work: Callable[[], object]) -> float:
    """Run it once and tell how much of a core it took: what others run beside it is left out."""
    return _timed(work, time.process_time)


def alternate(
    rounds: int,
    contestants: Mapping[str, Callable[[], float]],
) -> dict[str, list[float]]:
    """Let the contestants take turns; each tells its figure, each round has one of each.

    Odd rounds go backwards, so that nobody always follows the same neighbour.
    """
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        names = list(contestants)
        for name in names if number % 2 == 0 else reversed(names):
            figures[name].append(contestants[name]())
        latest = "  ".join(f"{name} {values[-1]:.6g}" for name, values in figures.items())
        progress(f"  round {number + 1}/{rounds}: {latest}")
    return figures


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Divide round by round, and take the median."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def report(bench: str, claims: Iterable[Claim]) -> str:
    """Render the one line of JSON that a benchmark ends with."""
    return msgspec.json.encode(
        {
            "bench": bench,
            "commit": commit(),
            "machine": machine(),
            "claims": [
                {
                    "name": claim.name,
                    "value": claim.value,
                    "bar": claim.bar,
                    "better": claim.better,
                    "holds": claim.holds,
                    "detail": claim.detail,
                }
                for claim in claims
            ],
        },
    ).decode()


def machine() -> dict[str, object]:
    """Describe where the figures were taken."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    # A collection that is due from earlier rounds must not be paid by this one.
    gc.collect()
    begin = clock()
    work()
    return clock() - begin


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
