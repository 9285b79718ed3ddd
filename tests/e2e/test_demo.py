"""The tour keeps what it promises: it fails by itself if anything it shows is not so."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tour_runs_to_its_end() -> None:
    command = [sys.executable, "-W", "error", "-m", "demo"]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
