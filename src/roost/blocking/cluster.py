"""Replicated ledgers for who does not use asyncio.

    with roost.connect("etcd://10.0.0.5:2379/prod") as cluster:
        with cluster.create() as writer:
            writer.append(b"hello")              # durable on two nodes of three
        for payload in cluster.read(writer.ledger):
            ...

Each call waits for its end, `timeout_s` at most. What is thread-safe below is so here: threads may
share a cluster, and append to one writer.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from roost.blocking.loop import LoopThread
from roost.errors import Unknown
from roost.host.log import Log
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks, system_rng, this_process
from roost.ledger import opening
from roost.ledger.client import DEFAULT_QUORUM, Ledgers
from roost.ledger.copies import Copy
from roost.ledger.reading import FIRST, LedgerReader, Piece
from roost.ledger.writer import LedgerWriter
from roost.metadata.ledgers import LedgerDocument, Quorum
from roost.types import EntryId, Epoch, LedgerId, NodeId

T = TypeVar("T")

OPEN_S: Final = 10.0
CALL_S: Final = 60.0
COPY_S: Final = 3600.0
"""For copies and checks, which take as long as there is something to copy or check."""

CLOSE_S: Final = 30.0
FIRST_EPOCH: Final = Epoch(1)


def connect(url: str, *, timeout_s: float = OPEN_S, log: Log | None = None) -> "Cluster":
    """Open a cluster by where its metadata is: etcd://host:port/prefix, or meta://host:port."""
    loop = LoopThread("roost")
    try:
        return Cluster(loop, loop.run(partial(_open, url, timeout_s, log), timeout_s))
    except BaseException:
        loop.close()
        raise


async def _open(url: str, timeout_s: float, log: Log | None) -> opening.Cluster:
    seams = Seams(
        clock=SystemClock(),
        disk=PosixDisk(guarded=False),
        net=AsyncioNet(),
        rng=system_rng(),
        tasks=ThreadTasks(),
    )
    return await opening.Cluster.open(
        url, seams=seams, name=this_process(), log=log, timeout_s=timeout_s
    )


class Cluster:
    """One cluster's ledgers; whoever opens it closes it."""

    def __init__(self, loop: LoopThread, opened: opening.Cluster) -> None:
        self._loop: Final = loop
        self._opened: Final = opened

    @property
    def name(self) -> str:
        """Name the cluster."""
        return self._opened.name

    @property
    def _ledgers(self) -> Ledgers:
        return self._opened.ledgers

    def create(
        self,
        *,
        quorum: Quorum = DEFAULT_QUORUM,
        epoch: Epoch = FIRST_EPOCH,
        timeout_s: float = CALL_S,
    ) -> "Writer":
        """Make a ledger, and be its writer."""
        made = self._loop.run(partial(self._ledgers.create, epoch=epoch, quorum=quorum), timeout_s)
        return Writer(self._loop, made)

    def claim(self, ledger: int, *, timeout_s: float = CALL_S) -> "Writer":
        """Be the writer of a ledger that was made, and that nobody has written to."""
        claimed = self._loop.run(partial(self._ledgers.claim, LedgerId(ledger)), timeout_s)
        return Writer(self._loop, claimed)

    def ask(self, ledger: int, entry: int, *, timeout_s: float = CALL_S) -> dict[NodeId, str]:
        """Tell what each node that is named for an entry has of it, or says, right now."""
        work = partial(self._ledgers.ask, LedgerId(ledger), EntryId(entry))
        return self._loop.run(work, timeout_s)

    def read(
        self, ledger: int, first: int = FIRST, *, timeout_s: float = CALL_S
    ) -> Iterator[bytes | memoryview]:
        """Read a ledger's entries, from `first` to the last one that may be read now."""
        reader = self.open(ledger, timeout_s=timeout_s)
        while first <= reader.upto:
            piece = reader.read(first, timeout_s=timeout_s)
            yield from piece.payloads
            first = piece.before

    def open(self, ledger: int, *, timeout_s: float = CALL_S) -> "Reader":
        """Read a ledger piece by piece, and wait for what comes."""
        opened = self._loop.run(partial(self._ledgers.open, LedgerId(ledger)), timeout_s)
        return Reader(self._loop, opened)

    def recover(
        self,
        ledger: int,
        *,
        epoch: Epoch | None = None,
        accept_loss: bool = False,
        timeout_s: float = CALL_S,
    ) -> LedgerDocument:
        """Stop a ledger's writer for good, and close the ledger; give its document."""
        named = LedgerId(ledger)
        if epoch is None:
            epoch = Epoch(self.describe(ledger, timeout_s=timeout_s).epoch + 1)
        work = partial(
            self._ledgers.recover,
            named,
            epoch=epoch,
            timeout_s=timeout_s,
            accept_loss=accept_loss,
        )
        # It ends by itself, and says why it could not be done; the margin is for saying it.
        return self._loop.run(work, timeout_s + CALL_S)

    def describe(self, ledger: int, *, timeout_s: float = CALL_S) -> LedgerDocument:
        """Give a ledger's document."""
        return self._loop.run(partial(self._ledgers.describe, LedgerId(ledger)), timeout_s)

    def ledgers(self, *, timeout_s: float = CALL_S) -> list[LedgerDocument]:
        """List all ledgers, in the order of their ids."""

        async def listed() -> list[LedgerDocument]:
            return [document async for document in self._ledgers.list_all()]

        return self._loop.run(listed, timeout_s)

    def delete(self, ledger: int, *, timeout_s: float = CALL_S) -> list[NodeId]:
        """Delete a ledger for good; names the nodes that could not be told: ask again then."""
        return self._loop.run(partial(self._ledgers.delete, LedgerId(ledger)), timeout_s)

    def repair(self, ledger: int, *, gone: Collection[str] = (), timeout_s: float = COPY_S) -> bool:
        """Give a closed ledger the copies that it lacks; tells whether nothing is left to do."""
        nodes = [NodeId(name) for name in gone]
        return self._loop.run(
            partial(self._ledgers.repair, LedgerId(ledger), gone=nodes), timeout_s
        )

    def verify(self, ledger: int, *, timeout_s: float = COPY_S) -> list[Copy]:
        """Have every copy of a closed ledger read, and every checksum computed."""
        return self._loop.run(partial(self._ledgers.verify, LedgerId(ledger)), timeout_s)

    def mend(self, ledger: int, *, timeout_s: float = COPY_S) -> list[Copy]:
        """Mend the copies of a closed ledger that do not hold; tells how all are then."""
        return self._loop.run(partial(self._ledgers.mend, LedgerId(ledger)), timeout_s)

    def close(self) -> None:
        """End all connections, and the thread; writers end before."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._opened.close, CLOSE_S)
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Writer:
    """The one writer of a ledger. Left without an error, its context closes the ledger."""

    def __init__(self, loop: LoopThread, writer: LedgerWriter) -> None:
        self.ledger: Final = writer.ledger
        self._loop: Final = loop
        self._writer: Final = writer

    @property
    def document(self) -> LedgerDocument:
        """The ledger's document, as this writer knows it."""
        return self._writer.document

    def append(self, payload: bytes, *, timeout_s: float = CALL_S) -> EntryId:
        """Append an entry, and wait until it is durable.

        `Unknown`: it may be in the ledger, and whoever recovers that will know.
        """
        return self._wait(partial(self._writer.write, payload, timeout_s=timeout_s), timeout_s)

    def append_many(self, payloads: Iterable[bytes], *, timeout_s: float = CALL_S) -> list[EntryId]:
        """Append entries, all under way at once, and wait until all are durable.

        If that fails those that come first may be in the ledger, and the others are not.
        """

        async def written() -> list[EntryId]:
            waiting = []
            for payload in payloads:
                await self._writer.room()
                waiting.append(self._writer.append(payload))
            return [await each for each in waiting]

        return self._wait(written, timeout_s)

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        try:
            return self._loop.run(work, timeout_s)
        except TimeoutError as error:
            raise Unknown(
                f"ledger {self.ledger}: what was appended was not confirmed within {timeout_s:g} "
                "s, and may or may not be there once the ledger is closed"
            ) from error

    def close(self, *, timeout_s: float = CLOSE_S) -> LedgerDocument:
        """Wait until all is confirmed, and close the ledger; raises if that cannot be."""
        return self._loop.run(partial(self._writer.close, timeout_s=timeout_s), timeout_s + CLOSE_S)

    def abandon(self, *, timeout_s: float = CLOSE_S) -> None:
        """Write no more, without closing: whoever wants to read its end recovers it."""
        self._loop.run(self._writer.abandon, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


class Reader:
    """One ledger, for who reads it."""

    def __init__(self, loop: LoopThread, reader: LedgerReader) -> None:
        self.ledger: Final = reader.ledger
        self._loop: Final = loop
        self._reader: Final = reader

    @property
    def upto(self) -> EntryId:
        """The last entry that may be read, as far as is known."""
        return self._reader.upto

    @property
    def closed(self) -> bool:
        """Whether the ledger has an end, as far as is known."""
        return self._reader.closed

    def read(self, first: int, *, timeout_s: float = CALL_S) -> Piece:
        """Read what comes at once from `first` on: nothing if nothing may be read there."""
        work = partial(self._reader.read, EntryId(first), timeout_s=timeout_s)
        return self._loop.run(work, timeout_s)

    def wait(self, known: int, *, timeout_s: float = CALL_S) -> bool:
        """Wait until more than `known` may be read, or the ledger has ended; tells whether."""
        work = partial(self._reader.wait, EntryId(known), timeout_s=timeout_s)
        return self._loop.run(work, timeout_s + CALL_S)
