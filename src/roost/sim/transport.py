"""An asyncio transport over one end of a simulated connection.

It behaves as asyncio's own over a socket: what the kernel does not take stays in a buffer, whose
size pauses and resumes the protocol; `close` sends what is there, `abort` does not; after either,
nothing is received and writes are ignored; `connection_lost` is called exactly once.
"""

import asyncio
from collections import deque
from contextvars import Context
from typing import Any

from roost.host.net import Address
from roost.sim.connection import End
from roost.sim.handles import SimHandle
from roost.sim.loop import SimLoop

RECEIVE_BYTES_MAX = 256 << 10
"""The most that asyncio hands to a protocol at once."""

HIGH_WATER_BYTES = 64 << 10


class SimTransport(asyncio.Transport):
    """What a protocol of a simulated process writes to and is fed by."""

    def __init__(
        self,
        end: End,
        loop: SimLoop,
        context: Context,
        *,
        ours: Address,
        theirs: Address,
    ) -> None:
        super().__init__(
            {"sockname": (ours.host, ours.port), "peername": (theirs.host, theirs.port)}
        )
        self.end = end
        """The kernel's side of it."""
        self._loop = loop
        self._context = context
        self._protocol: Any = None
        self._buffered_protocol = False
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._high_water = HIGH_WATER_BYTES
        self._low_water = HIGH_WATER_BYTES // 4
        self._paused_writing = False
        self._paused_reading = False
        self._eof_written = False
        self._closing = False
        self._lost = False
        # Guards the hot path: whether a write needs more than to be handed to the kernel.
        self._write_hindered = False
        self._readable = SimHandle(self._on_readable, (), loop, context)
        end.attach(
            readable=self._readable,
            writable=SimHandle(self._on_writable, (), loop, context),
            failed=self._on_failed,
        )

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the new connection to its protocol."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._read_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it, or keep it until there is room."""
        end = self.end
        if (
            self._write_hindered
            or type(data) is not bytes
            or not data
            or len(data) > end.window - end.outstanding
        ):
            self._write_against_odds(data)
        else:
            end.send(data)

    def writelines(self, list_of_data: Any) -> None:
        """Send all of it."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Send no more, but go on to receive."""
        if not (self._closing or self._eof_written):
            self._eof_written = self._write_hindered = True
            if not self._buffer:
                self.end.end()

    def can_write_eof(self) -> bool:
        """Tell that a stream can be ended on one side."""
        return True

    def close(self) -> None:
        """Receive no more, send what is there, and end."""
        if not self._closing:
            self._closing = self._write_hindered = True
            if not self._buffer:
                self._let_go(None)

    def abort(self) -> None:
        """End now; what is in the buffer is dropped."""
        if not (self._closing and not self._buffer):
            self._closing = self._write_hindered = True
            self._drop_buffer()
            self._let_go(None)

    def is_closing(self) -> bool:
        """Tell whether it is closed, or about to."""
        return self._closing

    def pause_reading(self) -> None:
        """Let what arrives wait; soon the peer has to wait too."""
        self._paused_reading = True

    def resume_reading(self) -> None:
        """Go on to receive."""
        if self._paused_reading:
            self._paused_reading = False
            self._read_soon()

    def is_reading(self) -> bool:
        """Tell whether what arrives is handed on."""
        return not (self._paused_reading or self._closing)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Tell who is fed."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Feed another protocol from now on."""
        self._protocol = protocol
        self._buffered_protocol = isinstance(protocol, asyncio.BufferedProtocol)

    def get_write_buffer_size(self) -> int:
        """Tell how much the kernel has not taken."""
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Tell at which sizes of the buffer the protocol is resumed and paused."""
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say at which sizes of the buffer the protocol is paused and resumed."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError(
                f"high ({high}) must be at least low ({low}), which must be at least 0"
            )
        self._high_water, self._low_water = high, low
        self._pause_if_full()

    def _write_against_odds(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a transport takes bytes-like objects, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if data and not self._closing:
            # The caller may use its buffer again at once.
            self._buffer.append(bytes(data))
            self._buffer_bytes += len(self._buffer[-1])
            self._flush()

    def _flush(self) -> None:
        end, buffer = self.end, self._buffer
        while buffer and (room := end.window - end.outstanding) > 0:
            piece = buffer.popleft()
            if len(piece) > room:
                buffer.appendleft(piece[room:])
                piece = piece[:room]
            self._buffer_bytes -= len(piece)
            end.send(piece)
        end.wants_room = bool(buffer)
        self._write_hindered = bool(buffer) or self._closing or self._eof_written
        self._pause_if_full()

    def _on_writable(self) -> None:
        self._flush()
        if self._paused_writing and self._buffer_bytes <= self._low_water:
            self._paused_writing = False
            self._protocol.resume_writing()
        if not self._buffer:
            if self._closing:
                self._let_go(None)
            elif self._eof_written:
                self.end.end()

    def _on_readable(self) -> None:
        if self._lost:
            # The end is closed; what it receives, it answers with a reset.
            self.end.receive(0)
        if not self.is_reading() or self._protocol is None:
            return
        if self._buffered_protocol:
            self._feed_buffer()
            return
        piece = self.end.receive(RECEIVE_BYTES_MAX)
        if piece:
            self._protocol.data_received(piece)
        elif piece is not None:
            self._on_end()

    def _feed_buffer(self) -> None:
        buffer = self._protocol.get_buffer(-1)
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        piece = self.end.receive(len(buffer))
        if piece:
            buffer[: len(piece)] = piece
            self._protocol.buffer_updated(len(piece))
        elif piece is not None:
            self._on_end()

    def _on_end(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def _on_failed(self, error: OSError) -> None:
        self._loop.call_soon(self._give_up, error, context=self._context)

    def _give_up(self, error: OSError) -> None:
        self._closing = self._write_hindered = True
        self._drop_buffer()
        self._let_go(error)

    def _let_go(self, error: OSError | None) -> None:
        self.end.close()
        if not self._lost:
            self._lost = True
            if self._protocol is None:
                # Nobody waits any more for the connection that was made.
                return
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._buffer_bytes = 0
        self.end.wants_room = False

    def _read_soon(self) -> None:
        self._loop.timeline.at(self._loop.time(), self._readable)

    def _pause_if_full(self) -> None:
        if not self._paused_writing and self._buffer_bytes > self._high_water:
            self._paused_writing = True
            self._protocol.pause_writing()
