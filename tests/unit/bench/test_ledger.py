"""The ledgers' benchmark counts as it says; the figures are its own business."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bench.harness import report
from bench.ledger import measure
from bench.ledger.bars import BARS
from bench.ledger.client import STALL_S, Stalls
from bench.ledger.killed import worst_gap_s
from bench.ledger.scale import Scale
from bench.node.programs import Program

TINY = Scale(
    rounds=1,
    turn_s=0.1,
    sync_rounds=1,
    sync_turn_s=0.1,
    kills=1,
    between_kills_s=0.0,
    unconfirmed=100,
    recovery_rounds=1,
    repaired_bytes=1 << 20,
    repair_rounds=1,
    amplified_bytes=1 << 20,
)


def test_the_bars_are_those_that_ledgers_are_held_to() -> None:
    assert {name: (bar.figure, bar.better) for name, bar in BARS.items()} == {
        "records_vs_nats_always": (5, "higher"),
        "records_vs_nats_default": (1.5, "higher"),
        "depth1_vs_node": (2, "lower"),
        "p99_vs_node": (5, "lower"),
        "kill_stall_ms": (400, "lower"),
        "recovery_s": (1, "lower"),
        "repair_vs_read": (0.5, "higher"),
        "write_amplification": (2.2, "lower"),
    }


def stalls(*gaps: tuple[float, float]) -> Stalls:
    return Stalls(acknowledged=1, gaps=gaps, errors=(), fragments=1)


def test_the_stall_of_a_kill_is_the_longest_gap_at_it_or_soon_after() -> None:
    found = stalls((1.0, 0.9), (9.99, 0.05), (10.5, 0.03), (12.5, 0.8))

    assert worst_gap_s(found, killed_at=10.0) == 0.05


def test_a_gap_that_had_begun_before_the_kill_counts_if_it_lasted() -> None:
    assert worst_gap_s(stalls((9.0, 2.0)), killed_at=10.0) == 2.0


def test_a_kill_that_nobody_noticed_stalled_for_less_than_what_is_noted() -> None:
    assert worst_gap_s(stalls((1.0, 0.9)), killed_at=10.0) == STALL_S


def test_what_a_program_has_written_is_known_after_it_has_ended(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys, time\n"
        f"path = pathlib.Path({str(tmp_path / 'file')!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: (path.write_bytes(bytes(100_000)), sys.exit(0)))"
        "\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(60)"
    )
    with Program([sys.executable, "-c", script], tmp_path / "log") as program:
        program.await_line(lambda line: line)
        before = program.written_bytes()
        after = program.written_bytes_when_stopped()

    assert 100_000 <= after - before < 110_000
    assert not Path(f"/proc/{program.pid}").exists()


@pytest.mark.slow
def test_every_bar_is_measured_and_reported_and_nothing_is_left_behind(tmp_path: Path) -> None:
    claims = measure(TINY, tmp_path)

    assert list(tmp_path.iterdir()) == []
    told = json.loads(report("ledger", claims))
    assert [claim["name"] for claim in told["claims"]] == list(BARS)
    for claim in told["claims"]:
        assert claim["value"] > 0
        assert claim["detail"]
    assert not [each for each in commands() if str(tmp_path) in each]


def commands() -> list[str]:
    """List what runs on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found
