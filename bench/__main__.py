"""Run one benchmark: `python -m bench NAME [--quick] [--folder FOLDER]`.

Progress and a readable table go to stderr. The last line of stdout is one JSON object with every
claim, whether it holds or not; the exit code only says whether the measurement itself went well.
"""

import importlib
import pkgutil
import tempfile
from pathlib import Path

import click

import bench
from bench.harness import Claim, progress, report

NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(bench.__path__)
    if module.name not in {"__main__", "harness"}
)
BUILD = Path(__file__).resolve().parent.parent / "build"


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="Smaller inputs, the same claims.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=BUILD,
    help="On which disk to measure; what is made there is removed.  [default: build/]",
)
def main(name: str, *, quick: bool, folder: Path) -> None:
    """Measure one subject and print its claims."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        claims: list[Claim] = importlib.import_module(f"bench.{name}").run(quick, Path(place))
    for claim in claims:
        relation = "<=" if claim.better == "lower" else ">="
        verdict = "holds" if claim.holds else "FAILS"
        progress(f"{verdict}  {claim.name}: {claim.value:.6g} (bar {relation} {claim.bar:g})")
    print(report(name, claims))


if __name__ == "__main__":
    main(prog_name="python -m bench")
