"""`roost sim` prints histories that a reader can follow, and says how to see a failure again."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from roost.cli.commit import commit
from roost.cli.main import main
from roost.sim.play import Options, Report, play
from roost.sim.scenarios import SCENARIOS
from roost.sim.world import World


class Broken:
    """A scenario that breaks its promise with every third seed."""

    def run(self, seed: int, options: Options) -> Report:
        async def story(world: World) -> dict[str, int]:
            world.trace("promised", thing="gold")
            world.count("flood")
            if seed % 3 == 0:
                world.violate("it was lead")
            return {"promises": 1}

        return play("broken", seed, options, story)


class Moody:
    """A scenario that is not the same each time."""

    def __init__(self) -> None:
        self._plays = 0

    def run(self, seed: int, options: Options) -> Report:
        async def story(world: World) -> dict[str, int]:
            self._plays += 1
            world.trace("played", times=self._plays)
            return {}

        return play("moody", seed, options, story)


@pytest.fixture(autouse=True)
def _scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "broken", Broken())
    monkeypatch.setitem(SCENARIOS, "moody", Moody())


def roost(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_one_seed_tells_its_events_and_a_summary() -> None:
    code, output = roost("sim", "--scenario", "echo", "--seed", "5")

    assert code == 0
    assert "start process=server/echo life=1" in output
    assert "echo seed 5:" in output
    assert "done: answered 180" in output


def test_single_operations_are_told_if_asked_for() -> None:
    _, brief = roost("sim", "--scenario", "echo", "--seed", "5")
    _, full = roost("sim", "--scenario", "echo", "--seed", "5", "--trace")

    assert "> server:7 connects" not in brief
    assert "> server:7 connects" in full
    assert brief.splitlines()[-3:] == full.splitlines()[-3:]


def test_a_failure_names_seed_faults_commit_and_replay() -> None:
    code, output = roost("sim", "--scenario", "broken", "--seed", "3")

    assert code == 1
    assert "VIOLATION promise=it was lead" in output
    assert "FAILED broken seed 3" in output
    assert "broken: it was lead" in output
    assert "faults: flood 1" in output
    assert f"commit: {commit()}" in output
    assert "replay: roost sim --scenario broken --seed 3 --trace" in output


def test_a_range_is_summed_up_and_lists_its_failures() -> None:
    code, output = roost("sim", "--scenario", "broken", "--seed", "1", "--seeds", "7")

    assert code == 1
    assert "FAILED broken seed 3" in output
    assert "FAILED broken seed 6" in output
    assert "FAILED broken seed 4" not in output
    assert "7 seeds from 1, 2 failed" in output
    assert "done: promises 7" in output
    assert "faults: flood 7" in output


def test_a_range_without_failures_ends_well() -> None:
    code, output = roost("sim", "--scenario", "echo", "--seeds", "3")

    assert code == 0
    assert "echo: 3 seeds from 0, 0 failed" in output


@pytest.mark.slow
def test_processes_share_a_range() -> None:
    alone = roost("sim", "--scenario", "echo", "--seed", "1", "--seeds", "16")[1]
    shared = roost("sim", "--scenario", "echo", "--seed", "1", "--seeds", "16", "--jobs", "2")[1]

    assert [line for line in alone.splitlines() if "done" in line or "faults" in line] == [
        line for line in shared.splitlines() if "done" in line or "faults" in line
    ]


def test_a_seed_that_gives_two_histories_fails() -> None:
    code, output = roost("sim", "--scenario", "moody", "--seed", "100", "--seeds", "2")

    assert code == 1
    assert "FAILED moody seed 100" in output
    assert "another history" in output
    assert "1 failed" in output


def test_the_scenarios_are_listed_with_what_happens_in_them() -> None:
    code, output = roost("sim", "--list")

    assert code == 0
    assert "echo       Clients ask an echo" in output


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    code, output = roost("sim", "--scenario", "nonsense")

    assert code == 2
    assert "echo" in output


def test_help_lists_the_groups_without_importing_them() -> None:
    script = (
        "import sys; from roost.cli.main import main; main(['--help'], standalone_mode=False); "
        "print('roost.cli.sim' in sys.modules)"
    )

    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "sim  " in result.stdout
    assert result.stdout.splitlines()[-1] == "False"


def test_the_version_is_told() -> None:
    assert roost("--version")[1].split()[-1] == version("roost")
