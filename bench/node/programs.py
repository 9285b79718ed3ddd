"""Programs that are measured: started as a user starts them, heard, and stopped by their own ids.

What a program says on stderr goes to a file, so that it never waits for whoever reads it, and is
shown when it fails. Whatever ends the measurement, an error or a signal, everything that was
started ends with it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import FrameType, TracebackType
from typing import Never, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

START_S = 120.0
STOP_S = 600.0
_LOOK_EVERY_S = 0.001
_SETTLE_S = 10.0
_SETTLE_LOOK_S = 0.2
_SHOWN_BYTES = 2_000


class Failed(Exception):
    """A program did not do what it was started for; the text holds the end of what it said."""


class Program:
    """One running process. Leaving its context kills it, unless it was stopped before."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        self._name = " ".join(command[:6])
        with log.open("wb") as said:
            # A session of its own: an interrupt from the terminal is ours to pass on.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def await_line(self, find: Callable[[str], T | None], timeout_s: float = START_S) -> T:
        """Give what is found in the first line of stderr that has it, as soon as it was written."""
        deadline = time.monotonic() + timeout_s
        with self._log.open("r", encoding="utf-8", errors="replace") as said:
            partial = ""
            while True:
                partial += (line := said.readline())
                if partial.endswith("\n"):
                    if (found := find(partial)) is not None:
                        return found
                    partial = ""
                elif not line:
                    if self._process.poll() is not None:
                        raise Failed(self._story(f"ended with {self._process.returncode}"))
                    if time.monotonic() > deadline:
                        raise Failed(self._story(f"was not ready after {timeout_s:.0f} s"))
                    time.sleep(_LOOK_EVERY_S)

    def stop(self) -> float:
        """Ask it to end, wait until it has, and tell how long that took."""
        began = time.monotonic()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failed(self._story(f"did not stop within {STOP_S:.0f} s")) from error
        if code not in {0, -signal.SIGTERM}:
            raise Failed(self._story(f"ended with {code} when asked to stop"))
        return time.monotonic() - began

    def kill(self) -> None:
        """End it as a loss of power would end it, but for what the kernel still has."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def figure(self, name: str) -> int:
        """Read a figure of its /proc/PID/status, such as `VmRSS`, in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1])

    def cpu_s(self) -> float:
        """Tell how much of the processors it has used, in all its threads."""
        text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        fields = text.rpartition(")")[2].split()  # the name before it may hold anything
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def fetched_bytes(self) -> int:
        """Tell how much it had to fetch from a disk, since no cache had it."""
        return self._moved("read_bytes")

    def written_bytes(self) -> int:
        """Tell how much it has handed to write calls, of files and of connections."""
        return self._moved("wchar")

    def written_bytes_when_stopped(self) -> int:
        """Ask it to end, and tell how much it had written by then."""
        self._process.terminate()
        # It has ended and nobody has asked how: until then the system remembers what it did.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        written = self._moved("wchar")
        self.stop()
        return written

    def _moved(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/io").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1])

    def _story(self, what: str) -> str:
        said = self._log.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")
        return f"{self._name} {what}; it said last:\n{said}"


class Beside:
    """A process of its own that runs what it is given, one after the other."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it there, and give what it returns."""
        return self.begin(work, *args, **kwargs).result()

    def begin(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it there, while something else runs elsewhere."""
        return self._pool.submit(work, *args, **kwargs)


def settle(*programs: Program) -> None:
    """Bring to the disk what others left behind, and wait until nobody has anything to do."""
    os.sync()
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        before = sum(program.cpu_s() for program in programs)
        time.sleep(_SETTLE_LOOK_S)
        if sum(program.cpu_s() for program in programs) - before <= _SETTLE_LOOK_S / 10:
            return


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a SIGTERM end the measurement as an interrupt does: everything started is stopped."""

    def end(number: int, _frame: FrameType | None) -> Never:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
