"""Time as an argument: what has passed, and what people call this moment.

The two never mix. `now` measures spans and deadlines and only moves forward, but starts anywhere;
`wall` is for files and people, and may jump whenever somebody sets the clock. No decision that
data depends on reads `wall`. `boot` tells one run of the machine from the next.
"""

from typing import Protocol


class Clock(Protocol):
    """Tells the time of one machine."""

    def now(self) -> float:
        """Tell the seconds since some fixed moment; never less than it told before."""

    def wall(self) -> float:
        """Tell the seconds since the epoch, as far as this machine knows."""

    def boot(self) -> str:
        """Name this run of the machine: what it held in memory only is there while it is named so.

        Where the machine does not tell, each call gives another name.
        """
