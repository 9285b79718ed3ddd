"""Answers processes of one machine that share an embedded store: each request to the keeper.

A watch asks again for each of its batches, and waits at our side for it. So nothing is gathered for
a watcher that is slow: what it has missed stands in the store's history until that is forgotten,
and then it is told so.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from roost.errors import Invalid, Unknown
from roost.metadata.answers import changes_anything
from roost.metadata.keeper import Keeper
from roost.metadata.operations import (
    Batch,
    Revision,
    check_page,
    check_ttl,
    check_txn,
    check_watch,
)
from roost.metadata.protocol import (
    Found,
    Grant,
    Granted,
    Left,
    Look,
    Range,
    Renew,
    Revoke,
    Txn,
    pack,
    unpack,
)
from roost.rpc.session import Handler, Peer, Session
from roost.wire import messages
from roost.wire.frame import Frame
from roost.wire.messages import DONE

HEAD_ROOM_BYTES: Final = 1 << 10
"""What is around a message in its frame, at most."""


class MetadataService:
    """The requests of a served store."""

    def __init__(self, keeper: Keeper, *, frame_bytes_max: int) -> None:
        self._keeper: Final = keeper
        self._answer_bytes_max: Final = frame_bytes_max - HEAD_ROOM_BYTES
        self._stopping = False
        self.handlers: Final[Mapping[int, Handler]] = {
            messages.TXN: self._on_txn,
            messages.RANGE: self._on_range,
            messages.WATCH: self._on_watch,
            messages.GRANT: self._on_grant,
            messages.RENEW: self._on_renew,
            messages.REVOKE: self._on_revoke,
        }

    def stop(self) -> None:
        """Let no watch wait any longer."""
        self._stopping = True
        self._keeper.nudge()

    def _on_txn(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Txn)
        check_txn(asked.compares, asked.then, asked.orelse)
        session.spawn(frame.request, self._txn(session, frame.request, asked))

    async def _txn(self, session: Session, request: int, asked: Txn) -> None:
        outcome = await self._keeper.txn(asked.compares, asked.then, asked.orelse)
        body, blob = pack(outcome)
        if len(blob) > self._answer_bytes_max:
            told = f"the answer of a transaction has {len(blob)} bytes: read fewer keys in one"
            if changes_anything(asked.then, asked.orelse):
                raise Unknown(f"{told}; what it changed is changed")
            raise Invalid(told)
        session.reply(request, DONE, body, [blob])

    def _on_range(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Range)
        check_page(asked.prefix, asked.after, asked.limit, asked.revision)
        page = self._keeper.page(
            asked.prefix, after=asked.after, limit=asked.limit, revision=asked.revision
        )
        self._answer(session, frame, page)

    def _on_watch(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Look)
        check_watch(asked.prefix, asked.first)
        self._answer(session, frame, self._look(asked))

    async def _look(self, asked: Look) -> Found:
        first = asked.first
        with suppress(TimeoutError):
            async with asyncio.timeout(asked.wait_s):
                while True:
                    found = self._keeper.look(asked.prefix, first)
                    if isinstance(found, Batch):
                        return Found(found.events, Revision(found.revision + 1))
                    first = found
                    if self._stopping:
                        break
                    await self._keeper.news()
        return Found((), first)

    def _on_grant(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Grant)
        check_ttl(asked.ttl_s)

        async def granted() -> Granted:
            return Granted(await self._keeper.grant(asked.ttl_s))

        self._answer(session, frame, granted())

    def _on_renew(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Renew)

        async def left() -> Left:
            return Left(float(await self._keeper.renew(asked.lease)))

        self._answer(session, frame, left())

    def _on_revoke(self, session: Session, frame: Frame) -> None:
        asked = unpack(frame, Revoke)

        async def revoked() -> None:
            await self._keeper.revoke(asked.lease)
            session.reply(frame.request, DONE)

        _spawn(session, frame, revoked())

    def _answer(
        self, session: Session, frame: Frame, work: Coroutine[Any, Any, msgspec.Struct]
    ) -> None:
        """Answer with what a coroutine gives."""

        async def answer() -> None:
            body, blob = pack(await work)
            session.reply(frame.request, DONE, body, [blob])
            await session.drained()

        _spawn(session, frame, answer(), work)


def authorize(peer: Peer, operation: int, request: Frame) -> None:
    """Let everybody do everything: peers are known by what they say only, and by where they are."""
    del peer, operation, request


def _spawn(
    session: Session,
    frame: Frame,
    task: Coroutine[Any, Any, None],
    work: Coroutine[Any, Any, Any] | None = None,
) -> None:
    try:
        session.spawn(frame.request, task)
    except Exception:
        if work is not None:
            work.close()
        raise
