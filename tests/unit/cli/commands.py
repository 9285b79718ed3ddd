"""Running `roost`: in this process, or as a process of its own where that matters."""

import subprocess
import sys
from pathlib import Path
from typing import IO, Final, Self

import msgspec
from click.testing import CliRunner

from roost.cli.main import main

WAIT_S: Final = 30.0
"""No process is waited for longer."""

COMMAND: Final = [sys.executable, "-W", "error", "-c", "from roost.cli.main import main; main()"]


class Ran(msgspec.Struct, frozen=True):
    """How a command ended, and what it said."""

    code: int
    out: bytes
    err: str


def roost(*arguments: str | Path, given: bytes = b"") -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(main, [*map(str, arguments)], input=given)
    return Ran(code=result.exit_code, out=result.stdout_bytes, err=result.stderr)


class Process:
    """A command in a process of its own; it is killed if the test ends before it does."""

    def __init__(
        self, *arguments: str | Path, stdin: int | None = None, stdout: int | None = None
    ) -> None:
        self._popen: Final = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        """Use it for a while."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and close all pipes."""
        self._popen.kill()
        self._popen.communicate()

    @property
    def output(self) -> IO[bytes]:
        """What it writes."""
        assert self._popen.stdout is not None, "its output goes elsewhere"
        return self._popen.stdout

    def line(self) -> bytes:
        """Wait for the next line that it writes."""
        return self.output.readline()

    def error_line(self) -> bytes:
        """Wait for the next line that it says on stderr."""
        assert self._popen.stderr is not None, "its stderr goes elsewhere"
        return self._popen.stderr.readline()

    def give(self, text: bytes) -> None:
        """Give it input."""
        assert self._popen.stdin is not None, "its input comes from elsewhere"
        self._popen.stdin.write(text)
        self._popen.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def ended(self, given: bytes | None = None) -> Ran:
        """Give it the rest of its input, and wait for its end."""
        out, err = self._popen.communicate(given, timeout=WAIT_S)
        return Ran(code=self._popen.returncode, out=out or b"", err=err.decode())
