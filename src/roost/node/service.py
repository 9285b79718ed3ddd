"""What a node answers over the network: each request to the store, each outcome back.

Nothing is decided here. Adds are handed on in the order and in the turn of the loop in which they
came, with no task for each; whatever has to wait runs as a task of its connection.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from roost.errors import Invalid
from roost.node.index import RUN_BYTES_MAX
from roost.node.ledgers import Add
from roost.node.peer import Peers
from roost.node.reading import Piece
from roost.node.status import Status
from roost.node.store import Store
from roost.node.views import Chunk
from roost.rpc.session import Handler, Session
from roost.types import EntryId, Epoch
from roost.wire import messages
from roost.wire.entry import HEAD_BYTES, BadEntry, check_at
from roost.wire.frame import Frame
from roost.wire.kernel import read_add
from roost.wire.messages import (
    DONE,
    ENTRIES,
    MORE,
    RECOVERY,
    Entries,
    Read,
    decode,
    decode_add,
    encode,
)

Work = Callable[[], Coroutine[Any, Any, object]]

SUSPECT_BYTES: Final = 16
"""What an id that is suspect counts for in a read, so that a wide one ends."""


class NodeService:
    """The requests of a node."""

    def __init__(
        self, store: Store, status: Status, peers: Peers, *, payload_bytes_max: int
    ) -> None:
        self._store: Final = store
        self._add_to: Final = store.add
        self._status: Final = status
        self._peers: Final = peers
        self._block_bytes_max: Final = HEAD_BYTES + payload_bytes_max
        self.handlers: Final[Mapping[int, Handler]] = {
            messages.ADD: self._add,
            messages.READ: self._on_read,
            messages.STATE: self._on_state,
            messages.FENCE: self._on_fence,
            messages.CLOSE: self._on_close,
            messages.PLACE: self._on_place,
            messages.DELETE: self._on_delete,
            messages.LIST: self._on_list,
            messages.STAT: self._on_stat,
            messages.VERIFY: self._on_verify,
            messages.CONFIRM: self._on_confirm,
        }

    def _add(self, session: Session, frame: Frame) -> None:
        _, flags, request, body, block = frame
        add = read_add(body, block)
        if add is None:
            raise _what_is_wrong(body, block)
        ledger, entry, epoch, lac = add
        size = len(block)
        if size > self._block_bytes_max:
            raise Invalid(
                f"a payload of {size - HEAD_BYTES} bytes; this node takes "
                f"{self._block_bytes_max - HEAD_BYTES} (payload_bytes_max)"
            )
        # By place, which is quicker than by name: ledger, entry, epoch, lac, block, recovery, sink
        # and tag.
        recovery = flags & RECOVERY != 0
        self._add_to(Add(ledger, entry, epoch, lac, block, recovery, session, request))

    # Reading

    def _on_read(self, session: Session, frame: Frame) -> None:
        read = decode(frame.body, Read)
        if read.upto < read.first:
            raise Invalid(f"entries from {read.first} upto {read.upto}: there are none")
        session.spawn(frame.request, self._read(session, frame.request, read))

    async def _read(self, session: Session, request: int, read: Read) -> None:
        """Send a range piece by piece, as fast as the reader takes it.

        While a piece is on its way the next one is read.
        """
        read_bytes_max = left = read.bytes_max
        more = True
        coming = asyncio.ensure_future(self._store.read(read))
        try:
            while more:
                chunk = await coming
                size = sum(len(piece.blocks) for piece in chunk.pieces)
                size += SUSPECT_BYTES * len(chunk.suspects)
                if size > left < read_bytes_max:  # one entry always comes, and no more than fit
                    chunk = _nothing_of(chunk)
                left -= size
                more = chunk.before <= read.upto and left > 0
                if more:
                    read = Read(
                        ledger=read.ledger, first=chunk.before, upto=read.upto, bytes_max=left
                    )
                    coming = asyncio.ensure_future(self._store.read(read))
                for each in cut(chunk):
                    blocks = [piece.blocks for piece in each.pieces]
                    last = each.before == chunk.before and not more
                    session.reply(
                        request, ENTRIES, encode(_entries(each)), blocks, 0 if last else MORE
                    )
                await session.drained()
        finally:
            coming.cancel()

    def _on_state(self, session: Session, frame: Frame) -> None:
        ledger = decode(frame.body, messages.State).ledger
        session.reply(frame.request, DONE, encode(self._store.state(ledger)))

    def _on_list(self, session: Session, frame: Frame) -> None:
        wanted = decode(frame.body, messages.List)
        after = None if wanted.after < 0 else wanted.after
        states = self._store.page(after, wanted.limit)
        session.reply(frame.request, DONE, encode(messages.Ledgers(states=states)))

    def _on_stat(self, session: Session, frame: Frame) -> None:
        session.reply(frame.request, DONE, encode(self._status.stat()))

    def _on_confirm(self, session: Session, frame: Frame) -> None:
        confirm = decode(frame.body, messages.Confirm)
        self._store.confirm(confirm.ledger, confirm.epoch, confirm.lac)
        session.reply(frame.request, DONE, b"")

    # What takes its time

    def _on_fence(self, session: Session, frame: Frame) -> None:
        fence = decode(frame.body, messages.Fence)
        self._when_done(session, frame, partial(self._store.fence, fence.ledger, fence.epoch))

    def _on_close(self, session: Session, frame: Frame) -> None:
        close = decode(frame.body, messages.Close)
        self._when_done(session, frame, partial(self._store.close_ledger, close.ledger, close.last))

    def _on_delete(self, session: Session, frame: Frame) -> None:
        delete = decode(frame.body, messages.Delete)
        self._when_done(session, frame, partial(self._store.delete, delete.ledger))

    def _on_verify(self, session: Session, frame: Frame) -> None:
        verify = decode(frame.body, messages.Verify)
        self._when_done(session, frame, partial(self._store.verify, verify.ledger))

    def _on_place(self, session: Session, frame: Frame) -> None:
        place = decode(frame.body, messages.Place)
        if place.upto < place.first:
            raise Invalid(f"entries from {place.first} upto {place.upto}: there are none")
        self._when_done(session, frame, partial(self._peers.place, place))

    def _when_done(self, session: Session, frame: Frame, work: Work) -> None:
        """Answer with what it gives, unless the connection ends before it has begun."""

        async def answer() -> None:
            result = await work()
            body = b"" if result is None else encode(result)
            session.reply(frame.request, DONE, body)

        session.spawn(frame.request, answer())


def _entries(chunk: Chunk) -> Entries:
    return Entries(
        first=chunk.first,
        before=chunk.before,
        lac=chunk.lac,
        last=chunk.last,
        fenced=None if chunk.fenced is None else Epoch(chunk.fenced),
        suspects=chunk.suspects,
    )


def _what_is_wrong(body: bytes, block: bytes | memoryview) -> Invalid:
    """Say why this is no ADD of one entry."""
    decode_add(body)
    try:
        _, _, after = check_at(block, 0)
    except BadEntry as error:
        return Invalid(f"the blob of an ADD is no entry: {error}")
    return Invalid(f"an ADD of one entry, and {len(block) - after} bytes behind it")


def cut(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk into what makes good frames: long enough to be worth one, and no longer."""
    first, pieces, size = chunk.first, list[Piece](), 0
    for piece in chunk.pieces:
        size += len(piece.blocks)
        if pieces and size > RUN_BYTES_MAX:
            yield _part(chunk, first, piece.first, pieces)
            first, pieces, size = piece.first, [], len(piece.blocks)
        pieces.append(piece)
    yield _part(chunk, first, chunk.before, pieces)


def _part(chunk: Chunk, first: EntryId, before: EntryId, pieces: list[Piece]) -> Chunk:
    suspects = [entry for entry in chunk.suspects if first <= entry < before]
    return msgspec.structs.replace(
        chunk, first=first, before=before, pieces=pieces, suspects=suspects
    )


def _nothing_of(chunk: Chunk) -> Chunk:
    return msgspec.structs.replace(chunk, before=chunk.first, pieces=[], suspects=[])
