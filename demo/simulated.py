"""The same code in the simulator: power losses, torn writes, failing disks, from a seed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SEEDS = 20


def play(folder: Path) -> Iterator[str]:
    """Run a few seeds of the channel's scenario; nothing of it touches the real disk."""
    assert not folder.exists()
    command = ["sim", "--scenario", "channel", "--seed", "1", "--seeds", str(SEEDS)]
    roost = Path(sys.executable).with_name("roost")
    done = subprocess.run([roost, *command], capture_output=True, text=True, check=True)
    yield f"$ roost {' '.join(command)}"
    yield from done.stdout.splitlines()
