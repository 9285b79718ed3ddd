"""The process's three streams and its signals.

A signal to end (SIGINT, SIGTERM) ends a command only where it waits for input, for output or for
time to pass; what it is doing to a channel meanwhile is finished. A second one ends it at once. A
command that only reads may be ended at any time, and says that it waits all the while.
Output is never buffered here: what was written is out, so that it may be acknowledged.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, Self

CHUNK_BYTES: Final = 1 << 20
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The process was told to end. It is no `Exception`, since nothing goes on after it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number: Final = number


class Pipes:
    """Standard input and output, and the moments at which a signal may end us."""

    def __init__(self) -> None:
        self._input: Final[Any] = sys.stdin.buffer
        # Below the buffer: what is left in one would be written when the interpreter ends.
        self._output: Final[Any] = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
        self._poll: Final = select.poll()
        with contextlib.suppress(OSError):  # it may be no file, but memory
            self._poll.register(self._output.fileno(), 0)
        self._waiting = False
        self._caught = 0

    def __enter__(self) -> Self:
        """Take the signals over."""
        self._before = [signal.signal(number, self._on_signal) for number in _ENDING]
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for number, handler in zip(_ENDING, self._before, strict=True):
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        again, self._caught = self._caught, number
        if self._waiting or again:
            raise Interrupted(number)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal end us while this lasts, or now if it has come."""
        before, self._waiting = self._waiting, True
        try:
            if self._caught:
                raise Interrupted(self._caught)
            yield
        finally:
            self._waiting = before

    def chunks(self) -> Iterator[bytes]:
        """Yield the input as it arrives, until it ends."""
        while True:
            with self.waiting():
                chunk: bytes = self._input.read1(CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    def input_bytes(self) -> int:
        """Say how long the input is; 0 where nobody knows."""
        try:
            return os.fstat(self._input.fileno()).st_size
        except OSError:
            return 0

    def write(self, text: bytes) -> None:
        """Write all of it, and return when the operating system has it."""
        rest = memoryview(text)
        with self.waiting():
            while rest:
                written = self._output.write(rest)
                if written is None:  # somebody made it non-blocking
                    select.select([], [self._output], [])
                else:
                    rest = rest[written:]

    def pause(self, delay_s: float) -> None:
        """Let time pass; `BrokenPipeError` if whoever reads the output goes away meanwhile."""
        with self.waiting():
            if self._poll.poll(max(0.0, delay_s) * 1000):
                raise BrokenPipeError
