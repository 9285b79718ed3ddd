"""Accepts connections, and makes a session of each."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from roost.errors import RoostError, Throttled, Unavailable
from roost.host.log import Log
from roost.host.net import Address, Listener, Net
from roost.rpc.limits import Limits
from roost.rpc.session import Authorize, Handler, Offer, Session
from roost.wire.messages import Welcome

_LIMITS: Final = Limits()


class Server:
    """Answers requests at an address, by the handlers that it was given."""

    def __init__(
        self,
        net: Net,
        *,
        welcome: Welcome,
        handlers: Mapping[int, Handler],
        authorize: Authorize,
        log: Log,
        limits: Limits = _LIMITS,
        before_read: Callable[[], None] = lambda: None,
        after_read: Callable[[], None] = lambda: None,
    ) -> None:
        assert welcome.frame_bytes_max == limits.frame_bytes_max, "peers are told what is taken"
        self._net = net
        self._log = log
        self._offer: Final = Offer(
            welcome, handlers, authorize, limits, log, before_read, after_read
        )
        self._listener: Listener | None = None
        # In the order in which they came.
        self._sessions: dict[Session, None] = {}
        self._throttled = False
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def connections(self) -> int:
        """Tell how many connections are open."""
        return len(self._sessions)

    async def start(self, address: Address) -> Address:
        """Accept connections; returns where, with the port that was really taken."""
        self._listener = await self._net.listen(self._session, address)
        return self._listener.address

    def throttle(self, *, on: bool) -> None:
        """Take no requests from anybody, or go on; peers wait, and are not refused."""
        self._throttled = on
        for session in self._sessions:
            session.throttle(on=on)

    async def stop(self, timeout_s: float) -> None:
        """Take no more, answer what is under way for at most so long, and close everything."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for session in self._sessions:
            session.end()
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            self._log.event("server_cut_off", level="warning", connections=self.connections)
        finally:
            for session in list(self._sessions):
                session.abort()
        await self._empty.wait()

    def _session(self) -> Session:
        return Session(self._offer, began=self._on_began, ended=self._on_ended)

    def _on_began(self, session: Session) -> RoostError | None:
        """Take a session into the list, and say what there is against it, if anything."""
        refusal: RoostError | None = None
        node = self._offer.welcome.node
        limit = self._offer.limits.connections_max
        if self._stopping:
            refusal = Unavailable(f"node {node} is stopping: try another, or later")
        elif len(self._sessions) >= limit:
            refusal = Throttled(f"node {node} has {limit} connections, and takes no more: wait")
        self._sessions[session] = None
        self._empty.clear()
        session.throttle(on=self._throttled)
        return refusal

    def _on_ended(self, session: Session) -> None:
        del self._sessions[session]
        if not self._sessions:
            self._empty.set()
