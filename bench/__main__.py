"""Run one benchmark: `python -m bench NAME [--quick]`.

Progress and a readable table go to stderr. The last line of stdout is one JSON object with every
claim, whether it holds or not; the exit code only says whether the measurement itself went well.
"""

import importlib
import pkgutil

import click

import bench
from bench.harness import Claim, progress, report

NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(bench.__path__)
    if module.name not in {"__main__", "harness"}
)


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="Smaller inputs, the same claims.")
def main(name: str, *, quick: bool) -> None:
    """Measure one subject and print its claims."""
    claims: list[Claim] = importlib.import_module(f"bench.{name}").run(quick)
    for claim in claims:
        relation = "<=" if claim.better == "lower" else ">="
        verdict = "holds" if claim.holds else "FAILS"
        progress(f"{verdict}  {claim.name}: {claim.value:.6g} (bar {relation} {claim.bar:g})")
    print(report(name, claims))


if __name__ == "__main__":
    main(prog_name="python -m bench")
