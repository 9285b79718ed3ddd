"""Tells how far long work is, on stderr, while somebody looks at it there.

Quick work says nothing, and so does work whose stderr is not a terminal.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from roost.cli.words import size
from roost.host.clock import Clock

QUIET_S: Final = 1.0
"""How long work takes before it says anything."""

EVERY_S: Final = 0.2


class Progress:
    """One line that is written again and again, and wiped out at the end."""

    def __init__(
        self, clock: Clock, write: Callable[[str], object], *, shown: bool, doing: str, of: str = ""
    ) -> None:
        self._clock: Final = clock
        self._write: Final = write
        self._shown: Final = shown
        self._doing: Final = doing
        self._of: Final = of
        self._begin: Final = clock.now()
        self._next = self._begin + QUIET_S
        self._length = 0

    def at(self, done: int, total: int = 0) -> None:
        """Note how much is done, and of how much if that is known: bytes, or what is counted."""
        now = self._clock.now()
        if not self._shown or now < self._next:
            return
        self._next = now + EVERY_S
        share = f"{min(100, 100 * done // total)} %, " if total else ""
        line = f"{self._doing}: {share}{self._told(done, total, now - self._begin)}"
        self._write("\r" + line.ljust(self._length))
        self._length = len(line)

    def _told(self, done: int, total: int, after_s: float) -> str:
        if self._of:
            return f"{done} of {total} {self._of}"
        return f"{size(done)}, {size(int(done / after_s))}/s"

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Wipe the line out."""
        if self._length:
            self._write("\r" + " " * self._length + "\r")
