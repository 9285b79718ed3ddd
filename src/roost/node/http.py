"""What a node tells over HTTP: its metrics, its health, and a page that says what it is.

It is there for monitoring and for the curious, so it is as small as can be: GET only, one request a
connection, nothing of a request but its first line is looked at. Whoever asks is a stranger: a
request has 8 KiB and the whole exchange some seconds, and only so many strangers are listened to at
once. The promise: whatever they send or leave unsent, the node goes on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Final, cast

import msgspec

from roost.host.log import Log
from roost.host.net import Address, Listener, Net

REQUEST_BYTES_MAX: Final = 8 << 10
DEADLINE_S: Final = 5.0
CONNECTIONS_MAX: Final = 64

_VERSIONS: Final = ("HTTP/1.0", "HTTP/1.1")
_PLAIN: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"


class Answer(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: HTTPStatus
    kind: str
    body: bytes

    def encode(self) -> bytes:
        """Write it down."""
        allow = "Allow: GET\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.kind}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            f"{allow}"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + self.body


class Told(msgspec.Struct, frozen=True):
    """Where the answers come from; each is asked when somebody asks us."""

    metrics: Callable[[], str]
    """The text that Prometheus reads."""

    ills: Callable[[], Sequence[str]]
    """Why the node is not well; nothing if it is."""

    facts: Callable[[], Mapping[str, object]]
    """What the node is, for its page and beside its health."""

    title: str = "Roost storage node"

    def answer(self, target: str) -> Answer:
        """Answer to what was asked for."""
        match target.partition("?")[0]:
            case "/metrics":
                return Answer(HTTPStatus.OK, _METRICS, self.metrics().encode())
            case "/health":
                ills = [*self.ills()]
                told = {"healthy": not ills, "reasons": ills, **self.facts()}
                status = HTTPStatus.SERVICE_UNAVAILABLE if ills else HTTPStatus.OK
                return Answer(status, _JSON, msgspec.json.encode(told, enc_hook=str) + b"\n")
            case "/":
                return Answer(HTTPStatus.OK, _HTML, _page(self.title, self.facts()).encode())
            case _:
                return _failed(HTTPStatus.NOT_FOUND)


class HttpServer:
    """Listens, and answers whoever asks."""

    def __init__(
        self,
        net: Net,
        told: Told,
        *,
        log: Log,
        deadline_s: float = DEADLINE_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._net: Final = net
        self._told: Final = told
        self._log: Final = log
        self._deadline_s: Final = deadline_s
        self._connections_max: Final = connections_max
        self._open: Final[set[_Exchange]] = set()
        self._listener: Listener | None = None

    async def start(self, address: Address) -> Address:
        """Listen, and tell where that is."""
        self._listener = await self._net.listen(self._exchange, address)
        return self._listener.address

    def stop(self) -> None:
        """Listen no more, and end what is going on. Stopping twice does nothing."""
        if self._listener is not None:
            self._listener.close()
        for exchange in [*self._open]:
            exchange.abort()

    def _exchange(self) -> "_Exchange":
        full = len(self._open) >= self._connections_max
        exchange = _Exchange(
            self._open, self._deadline_s, self._refuse_all if full else self._answer
        )
        self._open.add(exchange)
        return exchange

    def _refuse_all(self, _: str) -> Answer:
        return _failed(HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, first_line: str) -> Answer:
        method, _, rest = first_line.partition(" ")
        target, _, version = rest.partition(" ")
        if not target.startswith("/") or not version.startswith("HTTP/"):
            return _failed(HTTPStatus.BAD_REQUEST)
        if version not in _VERSIONS:
            return _failed(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if method != "GET":
            return _failed(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return self._told.answer(target)
        except Exception as error:  # noqa: BLE001 (a defect here must not end the node)
            self._log.event("http_failed", level="error", target=target, error=repr(error))
            return _failed(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Exchange(asyncio.Protocol):
    """One connection: a request, its answer, and the end."""

    def __init__(
        self, among: "set[_Exchange]", deadline_s: float, answer: Callable[[str], Answer]
    ) -> None:
        self._among: Final = among
        self._deadline_s: Final = deadline_s
        self._answer: Final = answer
        self._received = bytearray()
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's, though they behave as one.
        self._transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return  # whoever sends more than a request is not listened to
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end >= 0 and end <= REQUEST_BYTES_MAX:
            first_line = self._received.partition(b"\r\n")[0]
            self._reply(self._answer(first_line.decode("latin-1")))
        elif len(self._received) > REQUEST_BYTES_MAX:
            self._reply(_failed(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def eof_received(self) -> bool:
        if not self._answered and self._received:
            self._reply(_failed(HTTPStatus.BAD_REQUEST))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._deadline.cancel()
        self._among.discard(self)

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    def _reply(self, answer: Answer) -> None:
        """Answer, and wait until the other side has it: closing at once could take it back."""
        self._answered = True
        self._received.clear()
        self._transport.write(answer.encode())
        self._transport.write_eof()


def _failed(status: HTTPStatus) -> Answer:
    return Answer(status, _PLAIN, f"{status.value} {status.phrase}\n".encode())


def _page(title: str, facts: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr><th align=left>{escape(name)}<td>{escape(str(fact))}\n"
        for name, fact in facts.items()
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title>\n"
        f"<h1>{escape(title)}</h1>\n"
        f"<table>\n{rows}</table>\n"
        '<p><a href="/health">health</a> <a href="/metrics">metrics</a>\n'
    )
