"""A store that another process of this machine serves: `meta://host:port`.

One connection, made when something is asked and there is none. A change whose connection was lost
before its answer came is `Unknown`; a watch asks again, behind the last event that it delivered.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Self

import msgspec

from roost.errors import Closed, Denied, Retryable, Unavailable
from roost.host.clock import Clock
from roost.host.net import Address, Net
from roost.metadata.answers import changes_anything, readable, unanswered
from roost.metadata.gate import Gate
from roost.metadata.held import HeldLease, Leases
from roost.metadata.operations import (
    PAGE_ITEMS_MAX,
    Batch,
    Compare,
    LeaseId,
    Operation,
    Outcome,
    Page,
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
from roost.metadata.store import CALL_S, Lease, MetadataStore
from roost.metadata.term import LeaseTerm
from roost.rpc.client import Connection
from roost.wire import messages
from roost.wire.frame import Frame
from roost.wire.messages import PROTOCOL_VERSION, Hello

LookUp = Callable[[str, Revision], Coroutine[Any, Any, Found]]
"""Asks what happened."""

WATCH_S: Final = 20.0
"""How long a watch waits at the server's side before it asks again."""

RETRY_S: Final = 0.2
"""How long a watch waits before it asks again where nobody answers."""


class Link:
    """The connection to one server, made anew when it is needed and lost."""

    def __init__(self, net: Net, address: Address, *, name: str) -> None:
        self._net: Final = net
        self._address: Final = address
        self._hello: Final = Hello(PROTOCOL_VERSION, "", "client", name)
        self._making: Final = asyncio.Lock()
        self._connection: Connection | None = None
        self._uuid: bytes | None = None

    async def connection(self) -> Connection:
        """Give the connection."""
        async with self._making:
            if self._connection is None or self._connection.lost.is_set():
                self._connection = None
                self._connection = await self._open()
            return self._connection

    async def close(self) -> None:
        """End it."""
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> Connection:
        made = await Connection.open(self._net, self._address, self._hello, timeout_s=CALL_S)
        self._uuid = self._uuid or made.welcome.uuid
        if made.welcome.uuid != self._uuid:
            made.abort()
            raise Denied(
                f"the metadata store at {self._address} is another one than before: its folder "
                "was replaced. Start this process anew once it is the right one."
            )
        return made


class RemoteStore(MetadataStore):
    """A store behind a connection."""

    def __init__(self, net: Net, address: Address, *, clock: Clock, name: str = "") -> None:
        self._link: Final = Link(net, address, name=name)
        self._clock: Final = clock
        self._gate: Final = Gate()
        self._leases: Final = Leases()

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = PAGE_ITEMS_MAX,
        revision: Revision | None = None,
        timeout_s: float = CALL_S,
    ) -> Page:
        """Read a page."""
        check_page(prefix, after, limit, revision)
        asked = Range(prefix, after, limit, revision)
        what = f"reading {prefix!r}"
        frame = await self._ask(messages.RANGE, asked, what, timeout_s)
        return readable(partial(unpack, frame, Page), what, changes=False)

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float = CALL_S,
    ) -> Outcome:
        """Carry out a transaction."""
        check_txn(compares, then, orelse)
        what, changes = "a transaction", changes_anything(then, orelse)
        asked = Txn(compares, then, orelse)
        frame = await self._ask(messages.TXN, asked, what, timeout_s, changes=changes)
        return readable(partial(unpack, frame, Outcome), what, changes=changes)

    def watch(self, prefix: str, first: Revision) -> "RemoteWatch":
        """Watch some keys."""
        check_watch(prefix, first)
        return RemoteWatch(self._look, prefix, first, store=self._gate)

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        """Begin a lease."""
        check_ttl(ttl_s)
        sent_at = self._clock.now()
        what = "granting a lease"
        frame = await self._ask(messages.GRANT, Grant(ttl_s), what, timeout_s)
        lease = readable(partial(unpack, frame, Granted), what, changes=False).lease
        term = LeaseTerm(ttl_s=ttl_s, sent_at=sent_at)
        held = HeldLease(lease, term, renew=self._renew, revoke=self._revoke, clock=self._clock)
        self._leases.add(held)
        return held

    async def close(self) -> None:
        """End."""
        self._gate.close()
        await self._leases.close()
        await self._link.close()

    async def _renew(self, lease: LeaseId, timeout_s: float) -> float:
        what = "renewing a lease"
        frame = await self._ask(messages.RENEW, Renew(lease), what, timeout_s)
        return readable(partial(unpack, frame, Left), what, changes=False).ttl_s

    async def _revoke(self, lease: LeaseId, timeout_s: float) -> None:
        asked = Revoke(lease)
        await self._ask(messages.REVOKE, asked, "revoking a lease", timeout_s, changes=True)

    async def _look(self, prefix: str, first: Revision) -> Found:
        frame = await self._ask(
            messages.WATCH, Look(prefix, first, WATCH_S), "a watch", WATCH_S + CALL_S
        )
        return readable(partial(unpack, frame, Found), "a watch", changes=False)

    async def _ask(
        self,
        kind: int,
        message: msgspec.Struct,
        what: str,
        timeout_s: float,
        *,
        changes: bool = False,
    ) -> Frame:
        asked = self._answer(kind, message, what, changes=changes)
        return await self._gate.ask(asked, what, timeout_s, changes=changes)

    async def _answer(
        self, kind: int, message: msgspec.Struct, what: str, *, changes: bool
    ) -> Frame:
        connection = await self._link.connection()
        body, blob = pack(message)
        # Who gives up waiting gives up the request, too.
        with connection.stream(kind, body, [blob]) as answer:
            try:
                return await anext(answer)
            except (Unavailable, Closed) as error:
                if connection.lost.is_set():
                    raise unanswered(what, f"({error})", changes=changes) from error
                raise


class RemoteWatch:
    """A watch over a connection, or over several, one after the other."""

    def __init__(self, look: LookUp, prefix: str, first: Revision, *, store: Gate) -> None:
        self._look: Final = look
        self._prefix: Final = prefix
        self._first = first
        self._gate: Final = Gate(store)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while True:
            try:
                found = await self._gate.wait(self._look(self._prefix, self._first))
            except Retryable:
                await self._gate.wait(asyncio.sleep(RETRY_S))
                continue
            self._first = found.first
            if found.events:
                return Batch(found.events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Watch no more."""
        self._gate.close()
