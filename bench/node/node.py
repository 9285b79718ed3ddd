"""A storage node as an operator runs it: formatted, started, found by what it logs.

Its address is the one that the event `listening` tells. It serves once it has answered a request,
and that is what a start is timed by.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.node.programs import Failed, Program

CLUSTER = "bench"
_ROOST = str(Path(sys.executable).with_name("roost"))

ROOMY = ("--memory-bytes-max", "16GiB", "--journal-bytes-max", "16GiB")
"""Options for a node that keeps in memory, and in its journal, all that it gets for a while."""


class Folder(msgspec.Struct, frozen=True):
    """Where a node keeps its data, and beside it what it says."""

    path: Path
    name: str = "one"

    @property
    def directory(self) -> Path:
        """The node's own directory."""
        return self.path / "data"

    def format(self) -> None:
        """Make it a node's."""
        self.path.mkdir()
        command = [_ROOST, "node", "format", "--data", str(self.directory)]
        done = subprocess.run(
            [*command, "--cluster-id", CLUSTER, "--node-id", self.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"roost node format: {done.stderr.decode(errors='replace')}")

    def log(self) -> Path:
        """Name a new file for what a process says."""
        return self.path / f"log.{time.monotonic_ns()}"


class Node(Program):
    """One running node, which syncs before it says that an entry is stored."""

    def __init__(self, folder: Folder, *options: str) -> None:
        self._said = folder.log()
        command = [_ROOST, "node", "--data", str(folder.directory), "--listen", "127.0.0.1:0"]
        super().__init__(
            [*command, "--http", "off", "--sync", "always", "--log-format", "json", *options],
            self._said,
        )
        try:
            self.address = self.await_line(listening)
        except BaseException:
            self.kill()
            raise

    def events(self, name: str) -> list[dict[str, object]]:
        """List the events of a name that it logged so far."""
        events = [event(line) for line in self._said.read_text(errors="replace").splitlines()]
        return [each for each in events if each.get("event") == name]


def formatted(path: Path, name: str = "one") -> Folder:
    """Make a new folder for a node."""
    folder = Folder(path, name)
    folder.format()
    return folder


def event(line: str) -> dict[str, object]:
    """Read one line of the log; what is no event has no fields."""
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def listening(line: str) -> str | None:
    """Tell where clients connect, if this line does."""
    fields = event(line)
    return str(fields["address"]) if fields.get("event") == "listening" else None
