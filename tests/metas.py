"""`roost meta` as a process, over several lives."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tests.etcds import WAIT_S, free_ports

ROOST: Final = Path(sys.executable).with_name("roost")


class MetaProgram:
    """A served store; it has the same address in each of its lives."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.address: Final = f"127.0.0.1:{free_ports(1)[0]}"
        self._said: Final = folder / "meta.said"
        self._command: Final = [
            *(str(ROOST), "meta", "--data", str(folder / "meta"), "--listen", self.address),
            *("--log-format", "json", *options),
        ]
        self.process: subprocess.Popen[bytes]

    def start(self) -> Self:
        """Begin a life; it may take a moment until it answers."""
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(self._command, stdout=said, stderr=said)
        return self

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def end(self) -> int:
        """End it in good order; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def stop(self) -> None:
        """End it, in whatever order it likes."""
        if self.process.poll() is None:
            self.kill()

    def said(self) -> str:
        """Give all that it said, in all its lives."""
        return self._said.read_text()
