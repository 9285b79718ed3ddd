"""The server's side of one connection.

Frames are handed to handlers as they come, in their order, in the turn of the loop in which they
arrived; a handler answers at once, or later, or through a task (`spawn`). Each request is under way
until its last answer, and the bytes of all that are under way are counted: above a limit nothing
more is read from this peer, and neither while it does not read its answers. So a peer that wants
more than it gets waits in its own kernel, and costs nobody else anything.

A peer that breaks the protocol is told why, if it still listens, and cut off. What goes wrong in a
handler is answered and concerns that request only.
"""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from roost.errors import Closed, Invalid, RoostError, Throttled, Unavailable
from roost.host.log import Log
from roost.rpc.handshake import check_hello
from roost.rpc.limits import Limits
from roost.rpc.output import Output
from roost.rpc.receive import Receiver
from roost.wire.errors import encode_error
from roost.wire.frame import HELLO_BYTES_MAX, BadFrame, Frame, encode_head
from roost.wire.messages import (
    ADDED,
    ADDED_BODY,
    CANCEL,
    ERROR,
    HELLO,
    KINDS,
    MORE,
    WELCOME,
    Hello,
    Welcome,
    decode,
    encode,
)

LINGER_S: Final = 1.0
"""How long a peer that was turned away may take to read why, and to close."""

REQUEST_BYTES: Final = 256
"""What a request under way takes besides its blob, about."""

# Why no request is taken from a peer. At its end what it sends is read and dropped, since nobody
# hears of a connection that was lost without reading from it.
_OUTPUT, _HELD, _THROTTLED, _ENDING = 1, 2, 4, 8
_UNREAD: Final = _OUTPUT | _HELD | _THROTTLED
_NO_RUN: Final = -1


class Peer(msgspec.Struct, frozen=True):
    """Who is at the other end, as they say."""

    role: str
    name: str
    address: str


Handler = Callable[["Session", Frame], None]
"""Begins what a request asks for. Raises `RoostError` to refuse it, or answers, now or later."""

Authorize = Callable[[Peer, int, Frame], None]
"""Lets a peer do something (the kind of request, and the request itself, whose body says what it is
about), or raises `Denied`. It is called for every request, so it has to be quick."""


class Offer(msgspec.Struct, frozen=True):
    """What a server does for its peers, the same for all."""

    welcome: Welcome
    handlers: Mapping[int, Handler]
    authorize: Authorize
    limits: Limits
    log: Log
    before_read: Callable[[], None] = lambda: None
    """Called before all that came with one read is handed on."""
    after_read: Callable[[], None] = lambda: None
    """Called when all of that was handed on."""


class Session(asyncio.BufferedProtocol):
    """One connection, from the server's point of view."""

    def __init__(
        self,
        offer: Offer,
        *,
        began: Callable[["Session"], RoostError | None],
        ended: Callable[["Session"], None],
    ) -> None:
        self.peer = Peer(role="", name="", address="")
        self._offer = offer
        self._limits = offer.limits
        self._held_bytes_max = offer.limits.held_bytes_max
        self._on_began = began
        self._on_ended = ended
        self._handlers: Mapping[int, Handler] = {}
        self._authorize = offer.authorize
        self._receiver = Receiver(HELLO_BYTES_MAX)
        self._output = Output(
            output_bytes_max=offer.limits.output_bytes_max, about_to=self._end_run
        )
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._welcomed = False
        self._throttled = False
        self._ended = False
        self._pauses = 0
        self._reading = True
        # Requests by id, each with the bytes that it holds, until their last answer.
        self._under_way: dict[int, int] = {}
        # The tasks that run, and those that owe a request its last answer.
        self._running: dict[asyncio.Task[None], None] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held = 0
        # The requests [first, before) are stored, and their ADDED is not written yet.
        self._run_first = _NO_RUN
        self._run_before = _NO_RUN

    # What handlers call.

    def reply(
        self,
        request: int,
        kind: int,
        body: bytes = b"",
        blob: Sequence[bytes | memoryview] = (),
        flags: int = 0,
    ) -> None:
        """Answer a request; without the flag MORE it is the last answer."""
        if self._ended:
            return
        blob_bytes = sum(map(len, blob))
        head = encode_head(kind, request, body, blob_bytes, flags)
        if not flags & MORE:
            self._answered(request)
        self._end_run()
        self._output.add(head, blob, blob_bytes)

    def refused(self, tag: int, error: RoostError) -> None:
        """Answer a request with an error."""
        self.reply(tag, ERROR, encode_error(error))

    def stored(self, tag: int) -> None:
        """Answer an ADD: it is durable. Those whose ids follow each other share a frame.

        It goes out with the next `settle`.
        """
        size = self._under_way.pop(tag, 0)
        if not size:
            assert self._ended, f"request {tag} was answered before"
            return
        self._held -= size
        if tag == self._run_before:
            self._run_before = tag + 1
        else:
            self._end_run()
            self._run_first = tag
            self._run_before = tag + 1
        if self._pauses:
            self._ease()

    def settle(self) -> None:
        """Send what was answered."""
        self._output.flush()

    def spawn(self, request: int, coro: Coroutine[Any, Any, None]) -> None:
        """Answer a request from a task, which ends with the connection, or when it is given up."""
        if self._ended:
            coro.close()
            return
        if len(self._running) >= self._limits.tasks_max:
            coro.close()
            raise Throttled(
                f"{len(self._running)} requests are under way on this connection: "
                "wait until some of them are answered"
            )
        task = asyncio.get_running_loop().create_task(coro)
        self._running[task] = None
        self._tasks[request] = task
        task.add_done_callback(partial(self._on_task_done, request))

    async def drained(self) -> None:
        """Wait until the peer has read most of what it was sent; or is gone."""
        await self._output.drained()

    # What the server calls.

    def throttle(self, *, on: bool) -> None:
        """Take no requests from this peer, or go on; a new one is made welcome nevertheless."""
        self._throttled = on
        if not on:
            self._unpause(_THROTTLED)
        elif self._welcomed:
            self._pause(_THROTTLED)

    def end(self) -> None:
        """Take no more requests, and close once all that are under way have been answered."""
        self._pauses |= _ENDING
        self._ease()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and wait for the peer's first word."""
        # What uvloop brings is a transport, and no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._output.begin(self._transport)
        self.peer = Peer(role="", name="", address=_address_of(self._transport))
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._limits.hello_s, self._on_silence)
        if refusal := self._on_began(self):
            self._turn_away(refusal)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Say where to put what comes."""
        return self._receiver.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Deal with all that came."""
        if not self._pauses & _ENDING:
            self._receiver.took(nbytes)
            self._work()

    def pause_writing(self) -> None:
        """Wait for the peer to read before it may ask for more."""
        self._output.pause()
        self._pause(_OUTPUT)

    def resume_writing(self) -> None:
        """Go on."""
        self._output.resume()
        self._unpause(_OUTPUT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server."""
        self._finish()
        self._offer.log.event(
            "session_ended", level="debug", peer=self.peer.address, error=str(exc or "")
        )
        self._on_ended(self)

    # How it works.

    def _work(self) -> None:
        # All that came together is one turn of its own: a turn of the loop more would cost as much
        # as a good part of a sync.
        self._output.gather()
        self._offer.before_read()
        try:
            for frame in self._receiver.frames():
                self._on_frame(frame)
                if self._pauses:
                    break
        except BadFrame as error:
            self._turn_away(Invalid(str(error)))
        finally:
            self._offer.after_read()
            self._output.flush()

    def _on_frame(self, frame: Frame) -> None:
        kind, _, request, _, blob = frame
        handler = self._handlers.get(kind)
        if handler is None:
            self._on_other(frame)
            return
        if request in self._under_way or not request:
            raise BadFrame(f"a request has the id {request}, which is taken")
        self._under_way[request] = size = REQUEST_BYTES + len(blob)
        self._held += size
        if self._held > self._held_bytes_max:
            self._pause(_HELD)
        try:
            self._authorize(self.peer, kind, frame)
            handler(self, frame)
        except RoostError as error:
            self.refused(request, error)
        except Exception as error:  # noqa: BLE001 (one request must not end the others)
            defect = self._defect(request, error)
            if request in self._under_way:
                self.refused(request, defect)

    def _on_other(self, frame: Frame) -> None:
        """Deal with what is no request for a handler."""
        if not self._welcomed:
            if frame.kind != HELLO or frame.request:
                raise BadFrame(
                    f"the first frame is of kind {frame.kind}, request {frame.request}: "
                    "begin with HELLO, request 0"
                )
            self._on_hello(frame)
        elif frame.kind == CANCEL:
            if task := self._tasks.get(frame.request):
                task.cancel()
        elif frame.kind == HELLO or frame.request in self._under_way or not frame.request:
            raise BadFrame(f"a frame of kind {frame.kind} has no place here")
        else:
            name = KINDS.get(frame.kind, str(frame.kind))
            error = Invalid(f"requests of kind {name} are not answered here")
            self._end_run()
            self._output.add(encode_head(ERROR, frame.request, encode_error(error)), (), 0)

    def _on_hello(self, frame: Frame) -> None:
        welcome = self._offer.welcome
        try:
            hello = decode(frame.body, Hello)
            check_hello(hello, welcome)
        except RoostError as error:
            self._turn_away(error)
            return
        self._timer.cancel()
        self._welcomed = True
        self._handlers = self._offer.handlers
        self._receiver.limit(self._limits.frame_bytes_max)
        self.peer = Peer(role=hello.role, name=hello.name, address=self.peer.address)
        self._output.add(encode_head(WELCOME, 0, encode(welcome)), (), 0)
        self.throttle(on=self._throttled)

    def _on_silence(self) -> None:
        self._turn_away(
            Unavailable(f"there was no HELLO within {self._limits.hello_s:g} s: connect again")
        )

    def _turn_away(self, error: RoostError) -> None:
        """Say why, and hear no more of this peer."""
        if self._ended:
            return
        self._offer.log.event(
            "session_refused",
            level="warning",
            peer=self.peer.address,
            name=self.peer.name,
            error=f"{type(error).__name__}: {error}",
        )
        self._end_run()
        self._output.add(encode_head(ERROR, 0, encode_error(error)), (), 0)
        self._output.flush()
        # Not closed at once: with something unread left, TCP would take back what was just said.
        if not self._transport.is_closing():
            self._transport.write_eof()
        self._finish()
        self._timer = self._loop.call_later(LINGER_S, self._transport.abort)

    def _finish(self) -> None:
        """Give up whatever is still under way."""
        self._ended = True
        self._pauses |= _ENDING
        self._timer.cancel()
        self._output.end()
        self._under_way.clear()
        self._tasks.clear()
        for task in self._running:
            task.cancel()

    def _on_task_done(self, request: int, task: asyncio.Task[None]) -> None:
        del self._running[task]
        # Once a request was answered, another one may have its id.
        owing = self._tasks.get(request) is task
        if owing:
            del self._tasks[request]
            owing = request in self._under_way
        error = Closed("the request was given up") if task.cancelled() else task.exception()
        if error is None and owing:
            error = AssertionError("its task ended without a last answer")
        if error is not None and not isinstance(error, RoostError):
            error = self._defect(request, error)
        if error is not None and owing:
            self.refused(request, error)

    def _defect(self, request: int, error: BaseException) -> RoostError:
        """Note a defect of ours, and tell what can be said of it."""
        kind = type(error).__name__
        self._offer.log.event(
            "request_failed",
            level="error",
            peer=self.peer.address,
            request=request,
            error=f"{kind}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )
        node = self._offer.welcome.node
        return Unavailable(f"node {node} failed at this: {kind}; see its log")

    def _answered(self, request: int) -> None:
        size = self._under_way.pop(request, 0)
        assert size, f"request {request} was answered before"
        self._tasks.pop(request, None)
        self._held -= size
        if self._pauses:
            self._ease()

    def _end_run(self) -> None:
        """Write the ADDED of what was stored."""
        first = self._run_first
        if first != _NO_RUN:
            count = ADDED_BODY.pack(self._run_before - first)
            self._output.add(encode_head(ADDED, first, count), (), 0)
            self._run_first = self._run_before = _NO_RUN

    def _ease(self) -> None:
        """See whether what was waited for has come."""
        if self._held <= self._held_bytes_max // 2:
            self._unpause(_HELD)
        if self._pauses & _ENDING and not self._under_way:
            # The last answer is still on its way to the output.
            self._loop.call_soon(self._close)

    def _close(self) -> None:
        """Send what there is to be sent, and end."""
        if not self._ended:
            self._output.flush()
            self._transport.close()

    def _pause(self, reason: int) -> None:
        self._pauses |= reason
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _unpause(self, reason: int) -> None:
        if self._pauses & reason:
            self._pauses &= ~reason
            if not self._pauses & _UNREAD:
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Deal with what had come when reading was paused, and then with more."""
        if not self._pauses:
            self._work()
        if not (self._pauses & _UNREAD or self._reading or self._transport.is_closing()):
            self._reading = True
            self._transport.resume_reading()


def _address_of(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
