"""Which code this is: the checkout's description, or the installed version.

A failure that names its seed is worth nothing without the code that the seed belongs to.
"""

import subprocess
from importlib.metadata import version
from pathlib import Path

import roost


def commit() -> str:
    """Describe the running code: `git describe` in a checkout of Roost, else its version."""
    root = Path(roost.__file__).parents[2]
    # An installed copy may lie inside somebody else's repository: theirs is not ours to name.
    if not (root / ".git").exists() or not (root / "src" / "roost").is_dir():
        return version("roost")
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--tags"],  # noqa: S607 (git is on the PATH or we do without)
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return version("roost")
    return described.stdout.strip()
