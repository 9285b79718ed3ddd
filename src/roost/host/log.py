"""What a program says while it runs: events with fields, never sentences.

    log.event("fenced", ledger=7, ours=3, theirs=4)

One event is one decision or one thing that happened to us, under a name that people can search
for; what it is about stands in fields. The field `level` is kept for how much it matters, `info`
unless it is given. The promise to who calls: an event costs microseconds, and never raises.
"""

from typing import Literal, Protocol

Level = Literal["debug", "info", "warning", "error"]
"""How much an event matters: to who looks for something, to all, before it is bad, as it is bad."""


class Log(Protocol):
    """Takes events, and does not say what becomes of them."""

    def event(self, name: str, /, **fields: object) -> None:
        """Note that something happened; `level` says how much it matters."""


class Silence:
    """A log that keeps nothing."""

    def event(self, name: str, /, **fields: object) -> None:
        """Forget it."""


class Memory:
    """A log that keeps everything, for who wants to look at it later."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        """Each event's name and fields, in the order in which they came."""

    def event(self, name: str, /, **fields: object) -> None:
        """Keep it."""
        self.events.append((name, fields))

    @property
    def names(self) -> list[str]:
        """Name what happened, in order."""
        return [name for name, _ in self.events]
