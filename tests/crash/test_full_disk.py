"""A full disk is a clean error: nothing is lost, receiving goes on, and so does sending with room.

The channel runs in a process of its own, on a real file system of one mebibyte that is mounted for
it alone. Besides, a limit on the size of files is met everywhere, without any mount.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from roost.types import Durability

CRAMPED = Path(__file__).with_name("cramped.py")
MOUNT = 'mount -t tmpfs -o size=1m,nr_inodes=100 roost-test "$1" && shift && exec "$@"'
WAYS = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])


def way(folder: Path) -> list[str]:
    """Find out how to mount a file system that nobody else sees."""
    said = []
    for unshare in WAYS:
        tried = subprocess.run(
            [*unshare, "sh", "-c", MOUNT, "sh", str(folder), "true"],
            capture_output=True,
            check=False,
            timeout=30,
        )
        if tried.returncode == 0:
            return unshare
        said.append(f"{' '.join(unshare)}: {tried.stderr.decode().strip()}")
    pytest.fail(
        "No small file system can be mounted here. Run the tests as root, or let users make "
        "namespaces (sysctl kernel.unprivileged_userns_clone=1), and install util-linux.\n"
        + "\n".join(said)
    )


def run(command: list[str]) -> None:
    """Run a scenario to its end."""
    done = subprocess.run(command, capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("mode", ["fsync", "interval", "os"])
@pytest.mark.parametrize("path", ["mapped", "written"])
@pytest.mark.parametrize(
    "scenario",
    [
        "stays_usable",
        "makes_room_itself",
        "opens_without_room",
        "leaves_what_it_cannot_compress",
    ],
)
def test_a_channel_on_a_full_disk(
    tmp_path: Path, scenario: str, path: str, mode: Durability
) -> None:
    command = [sys.executable, str(CRAMPED), scenario, str(tmp_path / "q"), path, mode]

    run([*way(tmp_path), "sh", "-c", MOUNT, "sh", str(tmp_path), *command])


@pytest.mark.parametrize("path", ["mapped", "written"])
def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path, path: str) -> None:
    run([sys.executable, str(CRAMPED), "meets_a_limit", str(tmp_path / "q"), path, "os"])
