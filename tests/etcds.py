"""etcd as a process: Debian's, or whatever `etcd` the path leads to, started for a test."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

WAIT_S: Final = 30.0

MISSING: Final = (
    "This test needs etcd, 3.4.22 or newer: `make venv` fetches Debian's where there is apt-get "
    "and a list of packages; else bring it onto the path, as by `apt-get install etcd-server`."
)


def binary() -> str:
    """Find etcd; its absence is a failure, and is never passed over."""
    fetched = Path(__file__).resolve().parents[1] / ".venv-boot" / "etcd" / "usr" / "bin"
    found = shutil.which("etcd", path=f"{os.environ.get('PATH', '')}{os.pathsep}{fetched}")
    assert found, MISSING
    return found


def free_ports(count: int) -> list[int]:
    """Find ports that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class EtcdProgram:
    """One member of an etcd, over several lives; alone unless it is told its cluster."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "one",
        ports: Sequence[int] | None = None,
        cluster: str = "",
        options: Sequence[str] = (),
        scheme: str = "http",
    ) -> None:
        self.client_port, peer_port = ports or free_ports(2)
        self.endpoint: Final = f"127.0.0.1:{self.client_port}"
        client, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{peer_port}"
        self._said: Final = folder / f"{name}.said"
        self._command: Final = [
            binary(),
            *("--name", name, "--data-dir", str(folder / name), "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster or f"{name}={peer}"),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
            *options,
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

    def pause(self) -> None:
        """Let it stand still as SIGSTOP does."""
        self.process.send_signal(signal.SIGSTOP)
        while not self._stands_still():  # the signal is on its way
            os.sched_yield()

    def _stands_still(self) -> bool:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return all(") T " in (task / "stat").read_text() for task in tasks)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, in whatever order it likes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(WAIT_S)
