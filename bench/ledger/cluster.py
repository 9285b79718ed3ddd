"""A cluster as an operator runs it: an etcd, and nodes that register there."""

import os
import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.node.node import Folder, Node, event, formatted
from bench.node.programs import Failed, Program

NAMES = ("alice", "bob", "carol", "dave")
_FETCHED = Path(__file__).resolve().parents[2] / ".venv-boot" / "etcd" / "usr" / "bin"


def free_ports(count: int) -> list[int]:
    """Find ports that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Etcd(Program):
    """One etcd, alone in its cluster, as it is shipped: it syncs what it acknowledges."""

    def __init__(self, folder: Path) -> None:
        port, peer_port = free_ports(2)
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        command = [
            *(_etcd(), "--data-dir", str(folder / "etcd"), "--logger", "zap", "--name", "one"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"one={peer}"),
        ]
        super().__init__(command, folder / "etcd.said")
        self.url = f"etcd://127.0.0.1:{port}/bench"
        try:
            self.await_line(lambda line: "serving client" in line or None)
        except BaseException:
            self.kill()
            raise


def _etcd() -> str:
    found = shutil.which("etcd", path=f"{os.environ.get('PATH', '')}{os.pathsep}{_FETCHED}")
    if found is None:
        raise Failed("there is no etcd: `make venv` fetches Debian's, or install etcd-server")
    return found


class Cluster:
    """An etcd and some nodes; leaving its context kills them."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._stack = ExitStack()
        self._folder = folder
        self.folders: dict[str, Folder] = {}
        self.nodes: dict[str, Node] = {}
        try:
            self.etcd = self._stack.enter_context(Etcd(folder))
            for name in NAMES[:nodes]:
                self.folders[name] = formatted(folder / name, name)
                self.start(name)
        except BaseException:
            self._stack.close()
            raise

    @property
    def url(self) -> str:
        """Tell what clients open."""
        return self.etcd.url

    @property
    def programs(self) -> Sequence[Program]:
        """List all that runs."""
        return (self.etcd, *self.nodes.values())

    def start(self, name: str) -> None:
        """Start a node, and wait until it is registered."""
        node = self._stack.enter_context(Node(self.folders[name], "--cluster", self.url))
        node.await_line(lambda line: event(line).get("event") == "registered" or None)
        self.nodes[name] = node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
