"""NATS JetStream, the rival: three servers in one cluster, and a stream with three replicas.

The client publishes to the server that leads the stream, which is the shortest way.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.ledger.cluster import free_ports
from bench.node import jetstream
from bench.node.programs import Beside, Program

REPLICAS = 3


class Servers:
    """Three servers; leaving the context kills them."""

    def __init__(self, folder: Path, *, sync: str) -> None:
        folder.mkdir()
        self._stack = ExitStack()
        self._servers: dict[str, jetstream.Server] = {}
        ports, routes = free_ports(REPLICAS), free_ports(REPLICAS)
        known = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        try:
            for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
                name = f"{sync}-{number}"
                more = [
                    f"server_name: {name}",
                    "cluster {",
                    f"  name: {sync}",
                    f"  listen: 127.0.0.1:{route}",
                    f"  routes: [{known}]",
                    "}",
                ]
                self._servers[name] = self._stack.enter_context(
                    jetstream.Server(
                        folder / name, sync=sync, listen=f"127.0.0.1:{port}", more=more
                    )
                )
        except BaseException:
            self._stack.close()
            raise
        self.leader = next(iter(self._servers.values())).address

    def open_stream(self, rival: Beside) -> None:
        """Make the stream, and find who leads it."""
        name = rival.run(jetstream.open_stream, self.leader, REPLICAS)
        self.leader = self._servers[name].address

    @property
    def programs(self) -> tuple[Program, ...]:
        """List all that runs."""
        return tuple(self._servers.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
