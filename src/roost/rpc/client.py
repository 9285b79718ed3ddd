"""The client's side of one connection: requests go out as they come, answers find their way back.

Nothing waits for anything: any number of requests are under way at once, and are answered in any
order. An add has neither a future nor a task; its outcome goes to a `Sink`. Three things can become
of a request: its answer; the error that the server had; or the connection is lost first, and then
an add's outcome is `Unknown`, for it may have been stored, and everything else is `Unavailable`,
for it may be asked again. A server that breaks the protocol counts as a lost connection.

Nothing here keeps deadlines: who must know in time puts a `timeout` around what it waits for. A
connection whose other end vanished without a word is lost only when the kernel says so.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Self, cast

from roost.errors import Closed, Invalid, RoostError, Unavailable, Unknown
from roost.host.net import Address, Net
from roost.rpc.handshake import check_welcome
from roost.rpc.limits import Limits
from roost.rpc.output import Output
from roost.rpc.receive import Receiver
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import HEAD_BYTES as BLOCK_HEAD_BYTES
from roost.wire.errors import decode_error
from roost.wire.frame import (
    HEAD_BYTES,
    HELLO_BYTES_MAX,
    REQUEST_MASK,
    BadFrame,
    Frame,
    encode_head,
)
from roost.wire.kernel import encode_add
from roost.wire.messages import (
    ADD,
    ADD_BODY,
    ADDED,
    ADDED_BODY,
    CANCEL,
    DONE,
    ENTRIES,
    ERROR,
    HELLO,
    MORE,
    WELCOME,
    Hello,
    Welcome,
    decode,
    encode,
)
from roost.wire.sink import Sink

CLOSE_S: Final = 5.0
FRAME_MEMORY_BYTES: Final = 256
"""What a frame takes besides what is in it, about."""

ADD_HEAD_BYTES: Final = HEAD_BYTES + ADD_BODY.size + BLOCK_HEAD_BYTES
"""What stands before the payload in the frame of an ADD."""

SHORT_BYTES: Final = 1 << 10
"""Upto this size a payload is copied behind its head: that is quicker than to send two pieces."""

_LIMITS: Final = Limits()


class Connection(asyncio.BufferedProtocol):
    """One connection to a server."""

    def __init__(self, hello: Hello, address: Address, limits: Limits) -> None:
        self.welcome: Welcome
        """What the server said of itself."""

        self.address: Final = address
        self.lost: Final = asyncio.Event()
        """Set when nothing will come of this connection any more."""

        self._hello = hello
        self._limits = limits
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiver = Receiver(HELLO_BYTES_MAX)
        self._output = Output(output_bytes_max=limits.output_bytes_max)
        self._transport: asyncio.Transport | None = None
        # Why nothing more can be asked; and whether that was our own wish.
        self._why_over = ""
        self._closing = False
        self._next = 1
        self._adds: dict[int, tuple[Sink, int]] = {}
        self._calls: dict[int, asyncio.Future[Frame] | Stream] = {}

    @classmethod
    async def open(
        cls, net: Net, address: Address, hello: Hello, *, timeout_s: float, limits: Limits = _LIMITS
    ) -> Self:
        """Connect and say hello. Raises what the server had against it, or `Unavailable`."""
        connection = cls(hello, address, limits)
        try:
            async with asyncio.timeout(timeout_s):
                await net.connect(lambda: connection, address)
                await connection._greeted
        except TimeoutError as error:
            raise Unavailable(f"{address} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise Unavailable(f"{address} cannot be reached: {error}") from error
        finally:
            if not connection._greeted.done() or connection._greeted.cancelled():
                connection.abort()
        return connection

    def call(
        self, kind: int, body: bytes = b"", blob: Sequence[bytes | memoryview] = (), flags: int = 0
    ) -> asyncio.Future[Frame]:
        """Ask for something that has one answer. Raises if it cannot even be sent."""
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._ask(kind, body, blob, flags, future)
        return future

    def stream(
        self, kind: int, body: bytes = b"", blob: Sequence[bytes | memoryview] = ()
    ) -> "Stream":
        """Ask for something whose answer comes in several frames, or that may be given up."""
        stream = Stream(self)
        stream.request = self._ask(kind, body, blob, 0, stream)
        return stream

    def add(
        self,
        body: bytes,
        blob: Sequence[bytes | memoryview],
        sink: Sink,
        tag: int,
        flags: int = 0,
    ) -> None:
        """Add an entry. Raises if it cannot even be sent; else the sink hears what became of it."""
        if self._why_over:
            self._raise_over()
        request = self._free_request()
        blob_bytes = sum(map(len, blob))
        head = encode_head(ADD, request, body, blob_bytes, flags)
        if len(head) + blob_bytes > self.welcome.frame_bytes_max:
            self._raise_too_long(len(head) + blob_bytes)
        self._adds[request] = (sink, tag)
        self._output.add(head, blob, blob_bytes)

    def add_entry(  # noqa: PLR0917 (by place, which is quicker than by name)
        self,
        flags: int,
        epoch: Epoch,
        lac: EntryId,
        ledger: LedgerId,
        entry: EntryId,
        payload: bytes | memoryview,
        sink: Sink,
        tag: int,
    ) -> None:
        """Add an entry that is no block yet."""
        if self._why_over:
            self._raise_over()
        size = len(payload)
        if ADD_HEAD_BYTES + size > self.welcome.frame_bytes_max:
            self._raise_too_long(ADD_HEAD_BYTES + size)
        request = self._next
        if request in self._calls or request in self._adds or request > REQUEST_MASK:
            request = self._free_request()
        self._next = request + 1
        made = encode_add(request, flags, epoch, lac, ledger, entry, payload, SHORT_BYTES)
        self._adds[request] = (sink, tag)
        if size <= SHORT_BYTES:
            self._output.add(made, (), 0)
        else:
            self._output.add(made, (payload,), size)

    async def drained(self) -> None:
        """Wait until most of what was asked is on its way; or the connection is lost."""
        await self._output.drained()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send what is gathered, and end; what has no answer yet will have none."""
        self._over("it was closed", closing=True)
        if self._transport is None or self.lost.is_set():
            return
        self._output.flush()
        self._transport.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self.lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self.lost.wait()

    def abort(self) -> None:
        """End now."""
        self._over("it was closed", closing=True)
        if self._transport is not None and not self.lost.is_set():
            self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        # What uvloop brings is a transport, and no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._output.begin(self._transport)
        self._output.add(encode_head(HELLO, 0, encode(self._hello)), (), 0)
        self._output.flush()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Say where to put what comes."""
        return self._receiver.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Deal with all that came."""
        self._receiver.took(nbytes)
        # What the answers lead to goes out at once, and not one turn of the loop later.
        self._output.gather()
        try:
            for frame in self._receiver.frames():
                if self._why_over:
                    return
                if frame[0] == ADDED:
                    self._on_added(frame)
                else:
                    self._on_frame(frame)
        except (BadFrame, Invalid) as error:
            self._end(f"it broke the protocol: {error}")
        finally:
            self._output.flush()

    def pause_writing(self) -> None:
        """Let `drained` wait."""
        self._output.pause()

    def resume_writing(self) -> None:
        """Let it go on."""
        self._output.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for an answer."""
        self._over(f"it was lost ({exc})" if exc else "the other side ended it")
        self._output.end()
        self.lost.set()
        adds, self._adds = self._adds, {}
        calls, self._calls = self._calls, {}
        if not self._greeted.done():
            self._greeted.set_exception(self._error_over())
        for call in calls.values():
            _fail(call, self._error_over())
        if adds:
            unknown = Unknown(
                f"the connection to {self.address} ended before the add was answered "
                f"({self._why_over}): it may or may not be stored"
            )
            for sink, tag in adds.values():
                sink.refused(tag, unknown)

    # How it works.

    def _ask(
        self,
        kind: int,
        body: bytes,
        blob: Sequence[bytes | memoryview],
        flags: int,
        call: "asyncio.Future[Frame] | Stream",
    ) -> int:
        if self._why_over:
            self._raise_over()
        request = self._free_request()
        blob_bytes = sum(map(len, blob))
        head = encode_head(kind, request, body, blob_bytes, flags)
        if len(head) + blob_bytes > self.welcome.frame_bytes_max:
            self._raise_too_long(len(head) + blob_bytes)
        self._calls[request] = call
        self._output.add(head, blob, blob_bytes)
        return request

    def give_up(self, request: int) -> None:
        """Tell the server that nobody waits for the rest of an answer."""
        if not self._why_over:
            self._output.add(encode_head(CANCEL, request), (), 0)

    def _free_request(self) -> int:
        """Find an id that no request has that is under way; 0 is the connection's own."""
        request = self._next
        while request > REQUEST_MASK or request in self._calls or request in self._adds:
            request = 1 if request >= REQUEST_MASK else request + 1
        self._next = request + 1
        return request

    def _on_added(self, frame: Frame) -> None:
        _, _, first, body, _ = frame
        adds = self._adds
        if len(body) != ADDED_BODY.size:
            raise BadFrame(f"an ADDED with a body of {len(body)} bytes")
        (count,) = ADDED_BODY.unpack(body)
        if not 0 < count <= len(adds):
            raise BadFrame(f"{count} adds are answered, and {len(adds)} are under way")
        requests = range(first, first + count)
        try:
            answered = [adds[request] for request in requests]
        except KeyError as error:
            raise BadFrame(f"request {error} is answered, and is no add under way") from error
        for request in requests:
            del adds[request]
        for sink, tag in answered:
            sink.stored(tag)

    def _on_frame(self, frame: Frame) -> None:
        kind, request = frame.kind, frame.request
        if not self._greeted.done():
            self._on_greeting(frame)
        elif kind == ERROR:
            self._on_error(request, decode_error(frame.body))
        elif kind not in (DONE, ENTRIES):
            raise BadFrame(f"a frame of kind {kind} has no place here")
        elif (call := self._calls.get(request)) is None:
            raise BadFrame(f"request {request} is answered, and is not under way")
        elif isinstance(call, Stream):
            call.put(frame, self._limits.stream_bytes_max)
            if not frame.flags & MORE:
                del self._calls[request]
        elif frame.flags & MORE:
            raise BadFrame(f"request {request} has one answer, and more are announced")
        else:
            del self._calls[request]
            if not call.done():
                call.set_result(frame)

    def _on_greeting(self, frame: Frame) -> None:
        if frame.kind == ERROR:
            self._on_error(0, decode_error(frame.body))
            return
        if frame.kind != WELCOME or frame.request:
            raise BadFrame(f"a HELLO was answered by a frame of kind {frame.kind}")
        welcome = decode(frame.body, Welcome)
        try:
            check_welcome(welcome, self._hello)
        except RoostError as error:
            self._on_error(0, error)
            return
        self.welcome = welcome
        self._receiver.limit(self._limits.frame_bytes_max)
        self._greeted.set_result(None)

    def _on_error(self, request: int, error: RoostError) -> None:
        if not request:
            if not self._greeted.done():
                self._greeted.set_exception(error)
            self._end(f"the server ended it: {error}")
        elif add := self._adds.pop(request, None):
            sink, tag = add
            sink.refused(tag, error)
        elif (call := self._calls.pop(request, None)) is not None:
            _fail(call, error)
        else:
            raise BadFrame(f"request {request} is refused, and is not under way") from error

    def _end(self, why: str) -> None:
        """Be done with a server that did not keep to the protocol, or does not want us."""
        self._over(why)
        assert self._transport is not None
        self._transport.abort()

    def _over(self, why: str, *, closing: bool = False) -> None:
        """Ask nothing more; the first reason counts."""
        if not self._why_over:
            self._why_over = why
            self._closing = closing

    def _error_over(self) -> RoostError:
        kind = Closed if self._closing else Unavailable
        return kind(f"the connection to {self.address} is no more: {self._why_over}")

    def _raise_over(self) -> None:
        raise self._error_over()

    def _raise_too_long(self, size: int) -> None:
        raise Invalid(
            f"a request of {size} bytes: {self.address} takes at most "
            f"{self.welcome.frame_bytes_max}"
        )


class Stream:
    """The frames of one answer, as they come; left early, in a `with`, the rest is given up."""

    def __init__(self, connection: Connection) -> None:
        self.request = 0
        self._connection = connection
        self._frames: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._complete = False
        self._left = False
        self._error: RoostError | None = None
        self._news: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while not self._frames:
            if self._error is not None:
                raise self._error
            if self._complete or self._left:
                raise StopAsyncIteration
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        frame = self._frames.popleft()
        self._waiting_bytes -= _size(frame)
        return frame

    def close(self) -> None:
        """Want no more of it."""
        if not (self._left or self._complete):
            self._connection.give_up(self.request)
        self._left = True
        self._frames.clear()
        self._wake()

    # What the connection calls.

    def put(self, frame: Frame, bytes_max: int) -> None:
        """Keep a frame until it is asked for."""
        self._complete = not frame.flags & MORE
        if not self._left:
            self._frames.append(frame)
            self._waiting_bytes += _size(frame)
            if self._waiting_bytes > bytes_max:
                raise BadFrame(f"more than {bytes_max} bytes of an answer that nobody has read")
            self._wake()

    def fail(self, error: RoostError) -> None:
        """End with an error, behind the frames that have come."""
        self._complete = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _size(frame: Frame) -> int:
    return FRAME_MEMORY_BYTES + len(frame.body) + len(frame.blob)


def _fail(call: asyncio.Future[Frame] | Stream, error: RoostError) -> None:
    if isinstance(call, Stream):
        call.fail(error)
    elif not call.done():
        call.set_exception(error)
