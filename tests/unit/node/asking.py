"""Asking over HTTP, as a browser or a scraper does, on whichever network there is."""

import asyncio
from collections.abc import Mapping
from typing import cast

import msgspec

from roost.host.net import Address, Net


class Asker(asyncio.Protocol):
    """Sends some pieces, and keeps all that comes back."""

    def __init__(self, *pieces: bytes, ends: bool = False) -> None:
        self._pieces = pieces
        self._ends = ends
        self.received = bytearray()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        for piece in self._pieces:
            stream.write(piece)
        if self._ends:
            stream.write_eof()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.lost.set()


class Answered(msgspec.Struct, frozen=True):
    """An answer, taken apart."""

    status: str
    fields: Mapping[str, str]
    body: str


async def asked(net: Net, address: Address, *pieces: bytes, ends: bool = False) -> Answered:
    asker = Asker(*pieces, ends=ends)
    await net.connect(lambda: asker, address)
    await asker.lost.wait()
    head, _, body = bytes(asker.received).decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    assert int(fields["Content-Length"]) == len(body.encode())
    assert fields["Connection"] == "close"
    return Answered(status, fields, body)


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".encode()
