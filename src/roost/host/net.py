"""The network as Roost sees it: byte streams between addresses, in asyncio's terms.

Production code brings an `asyncio.Protocol` or, to be handed its bytes without a copy, an
`asyncio.BufferedProtocol`, and gets an `asyncio.Transport`; which event loop is below is none of
its business. The contract that both implementations keep:

- Bytes arrive whole, once and in order, or the connection is lost; how they were cut into writes
  is not kept.
- A connection that is lost says so to `connection_lost`, if anybody can tell: after a loss of
  power or of the way, the other end knows nothing until it writes, and then only late. Whoever
  must know keeps deadlines.
- What was written before a connection was lost may have arrived or not, and may still arrive
  after a new connection was made.
- `connect` raises `OSError`: `ConnectionRefusedError` where nobody listens, `TimeoutError` where
  nobody answers. It may wait for minutes; whoever cannot, limits it.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Protocol, Self

import msgspec

from roost.errors import Invalid

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
"""Makes the protocol of one connection: an `asyncio.Protocol` or `asyncio.BufferedProtocol`."""

PORT_MAX = 65535

_HOST_AND_PORT = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]+)", re.ASCII
)


class Address(msgspec.Struct, frozen=True, order=True):
    """Where somebody listens; port 0 asks for any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host:port`; an IPv6 address stands in brackets, as in `[::1]:4000`."""
        found = _HOST_AND_PORT.fullmatch(text)
        if found is None:
            raise Invalid(f"address {text!r}: give host:port, as in 127.0.0.1:4000 or [::1]:4000")
        port = int(found["port"])
        if port > PORT_MAX:
            raise Invalid(f"address {text!r}: the port is at most {PORT_MAX}")
        return cls(host=found["six"] or found["host"], port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Protocol):
    """Accepts connections until it is closed."""

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was really taken."""

    def close(self) -> None:
        """Accept no more; the connections that exist stay. Closing twice does nothing."""


class Net(Protocol):
    """The network of one machine."""

    async def connect(
        self, protocol_factory: ProtocolFactory, address: Address
    ) -> asyncio.Transport:
        """Connect; `connection_made` has been called when this returns."""

    async def listen(self, protocol_factory: ProtocolFactory, address: Address) -> Listener:
        """Accept connections at an address of this machine, each with a protocol of its own.

        Raises `OSError` (EADDRINUSE) if somebody listens there.
        """


class AsyncioNet:
    """The machine's network, through whichever event loop runs."""

    async def connect(
        self, protocol_factory: ProtocolFactory, address: Address
    ) -> asyncio.Transport:
        """Connect over TCP."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(protocol_factory, address.host, address.port)
        return transport

    async def listen(self, protocol_factory: ProtocolFactory, address: Address) -> Listener:
        """Listen on TCP."""
        loop = asyncio.get_running_loop()
        return _ServerListener(
            await loop.create_server(protocol_factory, address.host, address.port), address.host
        )


class _ServerListener:
    """An asyncio server as a listener."""

    def __init__(self, server: asyncio.Server, host: str) -> None:
        self._server = server
        # A closed server forgets its sockets.
        self._address = Address(host=host, port=server.sockets[0].getsockname()[1])

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        self._server.close()
