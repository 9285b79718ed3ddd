"""NATS JetStream, the rival: one server process, one stream in files, one client process.

The server keeps what it acknowledged in the page cache and syncs every two minutes as it is
shipped; with `sync_interval: always` it syncs before it acknowledges, as a storage node does. The
client is its own, on the same event loop as ours; it publishes with so many acknowledgements
outstanding.
"""

import asyncio
import gc
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError

from bench.node.programs import Failed, Program

T = TypeVar("T")

ALWAYS = "always"
DEFAULT = "default"
SUBJECT = "bench"
_READY_S = 30.0
_LOOK_S = 0.2
_LISTENING = re.compile(r"Listening for client connections on (\S+:\d+)")


class Server(Program):
    """A NATS server whose store lies in a folder."""

    def __init__(
        self, folder: Path, *, sync: str, listen: str = "127.0.0.1:-1", more: Sequence[str] = ()
    ) -> None:
        folder.mkdir()
        lines = ["jetstream {", f'  store_dir: "{folder / "store"}"']
        if sync != DEFAULT:
            lines.append(f"  sync_interval: {sync}")
        lines += ["}", f"listen: {listen}", *more]
        config = folder / "server.conf"
        config.write_text("\n".join(lines), encoding="utf-8")
        super().__init__([_server(), "-c", str(config)], folder / "log")
        try:
            self.address = self.await_line(_address)
            self.await_line(lambda line: "Server is ready" in line or None)
        except BaseException:
            self.kill()
            raise


def open_stream(address: str, replicas: int = 1) -> str:
    """Make the stream that the turns publish into; names the server that leads it, if one does."""

    async def make() -> str:
        client = await _connected(address)
        stream = StreamConfig(
            name=SUBJECT, subjects=[SUBJECT], storage=StorageType.FILE, num_replicas=replicas
        )
        made = await _when_ready(lambda: client.jetstream().add_stream(stream))
        await client.close()
        return (made.cluster and made.cluster.leader) or ""

    return _run(make())


async def _when_ready(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the servers have found each other."""
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            return await ask()
        except (APIError, NatsError) as error:
            if time.monotonic() > deadline:
                raise Failed(f"NATS makes no stream: {error}") from error
            await asyncio.sleep(_LOOK_S)


def publish(address: str, payload_bytes: int, in_flight: int, turn_s: float) -> float:
    """Publish for so long; messages a second that were acknowledged and that the stream holds."""

    async def turn() -> float:
        client = await _connected(address)
        stream = client.jetstream(publish_async_max_pending=in_flight)
        payload = bytes(payload_bytes)
        publish_async, clock = stream.publish_async, time.perf_counter
        held = (await stream.stream_info(SUBJECT)).state.messages
        await stream.publish(SUBJECT, payload)  # its first use subscribes to the answers
        await (await publish_async(SUBJECT, payload))
        published = 2
        gc.collect()
        began = clock()
        end = began + turn_s
        while clock() < end:
            await publish_async(SUBJECT, payload)
            published += 1
        await stream.publish_async_completed()
        took_s = clock() - began
        # What was refused has an acknowledgement too: the stream knows what it took.
        now_held = (await stream.stream_info(SUBJECT)).state.messages
        await client.close()
        if now_held - held != published:
            raise Failed(f"of {published} messages NATS took {now_held - held}")
        return (published - 2) / took_s

    return _run(turn())


async def _connected(address: str) -> Client:
    client = Client()
    await client.connect(f"nats://{address}", allow_reconnect=False)
    return client


def _run(turn: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(turn)


def _address(line: str) -> str | None:
    found = _LISTENING.search(line)
    return found[1] if found else None


def _server() -> str:
    # The package brings the program itself, beside this environment's Python.
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Failed("there is no nats-server: install the development dependencies")
    return found
