"""Where the outcome of a pipelined add goes: no future and no task for each."""

from typing import Protocol

from roost.errors import RoostError


class Sink(Protocol):
    """Hears of each add, by the tag that it was given, in the order of the adds."""

    def stored(self, tag: int) -> None:
        """Note that this add is durable."""

    def refused(self, tag: int, error: RoostError) -> None:
        """Note that it was refused, or, with `Unknown`, that nobody can tell."""

    def settle(self) -> None:
        """Pass on what was heard: nothing more comes for now. A connection's sinks get no call."""
