"""Waiting for messages in a folder, without its lock.

A command that follows a channel holds the folder only while there is something to take, so that
others can send meanwhile. In between it looks at the folder as any reader does, and more rarely
the longer nothing comes.
"""

from collections.abc import Callable
from typing import Final

from roost.cli.pipes import Pipes
from roost.host.clock import Clock

PAUSE_MIN_S: Final = 0.005
PAUSE_MAX_S: Final = 0.1


class Patience:
    """How long one wait may still take; it begins anew whenever something came."""

    def __init__(self, clock: Clock, pipes: Pipes, *, timeout_s: float | None) -> None:
        self._clock: Final = clock
        self._pipes: Final = pipes
        self._timeout_s: Final = timeout_s
        self.renew()

    def renew(self) -> None:
        """Begin anew."""
        self._begin = self._clock.now()

    def until(self, there: Callable[[], bool]) -> bool:
        """Wait until something is there; False if the time is over before it is."""
        pause_s = PAUSE_MIN_S
        while not there():
            left_s = self._left_s()
            if left_s <= 0:
                return False
            self._pipes.pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return True

    def _left_s(self) -> float:
        if self._timeout_s is None:
            return PAUSE_MAX_S
        return self._begin + self._timeout_s - self._clock.now()
