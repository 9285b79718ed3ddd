"""One storage node's process in a simulation: it opens its folder, serves, and ends by itself.

Whatever it finds in its folder when it comes up is told to the book before it serves anybody.
"""

import asyncio
from pathlib import Path
from typing import Final

from roost.errors import NotFound, RoostError
from roost.host.net import Address
from roost.host.seams import Seams
from roost.node.identity import format_node, load_identity, take
from roost.node.process import NodeProcess, ProcessSettings
from roost.node.store import NodeSettings
from roost.node.verify import verify_all
from roost.sim.checkers import Violation
from roost.sim.disk import SimDisk
from roost.sim.ledger_book import LedgerBook
from roost.sim.scenarios.node_asks import audit
from roost.sim.world import Process, World

FOLDER: Final = Path("/node")
CLUSTER: Final = "sim"


class NodeLife:
    """The lives of one node; `main` is its process."""

    def __init__(
        self,
        world: World,
        book: LedgerBook,
        *,
        name: str,
        listen: Address,
        settings: NodeSettings,
        payload_bytes_max: int,
    ) -> None:
        self.book: Final = book
        self.listen = listen
        """Where it takes requests from its next start on."""
        self.opened = 0
        self.figures: dict[str, int] = {}
        self.failure = ""
        """Why it only read at the end of its last life, or ''."""
        self.snapshot: list[object] = []
        """What it held when it came up."""
        self.looked: Final = asyncio.Event()
        """Set when that has been looked at; whoever waits for it clears it."""
        self.replayed = -1
        self._world = world
        self._name = name
        self._settings = settings
        self._payload_bytes_max = payload_bytes_max
        self._stop: asyncio.Event | None = None
        self._stopping = False

    async def end(self, process: Process) -> None:
        """Have the process end by itself."""
        self._stopping = True
        if self._stop is not None:
            self._stop.set()
        await process.ended.wait()
        self._stopping = False

    async def main(self, seams: Seams) -> None:
        """Live once."""
        self._stop = asyncio.Event()
        if self._stopping:
            self._stop.set()
        try:
            await self._serve(seams, self._stop)
        except Violation as violation:
            self._world.violate(str(violation))
        except (RoostError, OSError) as error:
            self._world.trace("failed", error=type(error).__name__, text=str(error))

    async def _serve(self, seams: Seams, stop: asyncio.Event) -> None:
        """Be a node until told to stop."""
        self.failure = ""
        try:
            load_identity(seams.disk, FOLDER)
        except NotFound:
            wall = seams.clock.wall()
            format_node(
                seams.disk, FOLDER, cluster=CLUSTER, node=self._name, rng=seams.rng, wall=wall
            )
        identity, lock = take(seams.disk, FOLDER, holder="the node")
        settings = ProcessSettings(
            data=FOLDER,
            listen=self.listen,
            store=self._settings,
            payload_bytes_max=self._payload_bytes_max,
            drain_s=1.0,
        )
        process = await NodeProcess.start(settings, identity, seams=seams, log=self)
        store = process.store
        assert store is not None, "it takes requests"
        self.snapshot = await audit(store, self.book)
        self.opened += 1
        self.looked.set()
        await stop.wait()
        await process.stop()
        self.failure = store.failure
        lock.release()
        for name in ("flushes", "checkpoints", "throttled"):
            self._count(name, getattr(store.metrics, name))
        for name in ("rolls", "trimmed_segments", "full"):
            self._count(name, getattr(store.journal.metrics, name))

    def _count(self, figure: str, more: int) -> None:
        self.figures[figure] = self.figures.get(figure, 0) + more

    def event(self, name: str, /, **fields: object) -> None:
        """Hear what the node says of itself."""
        if fields.get("level") == "debug":
            return
        if "replayed" in fields:
            self.replayed = int(str(fields["replayed"]))
        if name == "request_failed":
            self._world.violate(f"{fields['error']}\n{fields['traceback']}")
        fields.pop("traceback", None)
        self._world.trace(f"{self._name}: {name}", **fields)

    def check_stopped(self, disk: SimDisk) -> None:
        """See that a clean stop left nothing to recover, and nothing that does not hold."""
        names = disk.names(FOLDER / "journal")
        if len(names) > 1:
            self._world.violate(f"nothing is left to recover: there are {names}")
        for checked in verify_all(disk, FOLDER):
            for problem in checked.problems:
                self.book.damage(f"{problem}")
