"""A full disk stops a node's adds and nothing else: all is there, and goes on once there is room.

The store runs in a process of its own, on a real file system of eight mebibytes that is mounted for
it alone.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.test_full_disk import way

CRAMPED = "tests.crash.cramped_node"
ROOT = Path(__file__).parents[2]
MOUNT = 'mount -t tmpfs -o size=8m,nr_inodes=200 roost-test "$1" && shift && exec "$@"'


@pytest.mark.parametrize(
    "scenario",
    [
        "goes_on_when_there_is_room",
        "makes_room_by_deleting",
        "opens_without_room",
        "keeps_what_is_to_be_left",
    ],
)
def test_a_node_on_a_full_disk(tmp_path: Path, scenario: str) -> None:
    command = [sys.executable, "-m", CRAMPED, scenario, str(tmp_path / "node")]

    done = subprocess.run(
        [*way(tmp_path), "sh", "-c", MOUNT, "sh", str(tmp_path), *command],
        capture_output=True,
        check=False,
        timeout=100,
        cwd=ROOT,
    )

    assert done.returncode == 0, done.stderr.decode()
