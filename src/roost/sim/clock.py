"""The simulated clock: virtual time, and a wall clock that goes wrong as told."""

from roost.sim.timeline import Timeline

BEGIN_S = 1_800_000_000.0
"""What people call the first moment of each simulated world."""


class SimClock:
    """The clock of one simulated machine."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._wall_s = BEGIN_S
        self._set_at = timeline.now
        self._drift = 0.0
        self._boots = 0

    def now(self) -> float:
        """Tell the virtual time; it is the same for all machines of a world."""
        return self._timeline.now

    def wall(self) -> float:
        """Tell what this machine takes for the seconds since the epoch."""
        return self._wall_s + (self._timeline.now - self._set_at) * (1.0 + self._drift)

    def boot(self) -> str:
        """Name this run of the machine."""
        return f"run {self._boots}"

    def rebooted(self) -> None:
        """Note that the machine has come up again."""
        self._boots += 1

    def step(self, step_s: float) -> None:
        """Set the wall clock forward or back."""
        self._settle()
        self._wall_s += step_s

    def drift(self, drift: float) -> None:
        """Let the wall clock gain this many seconds in each second from now on."""
        self._settle()
        self._drift = drift

    def _settle(self) -> None:
        self._wall_s, self._set_at = self.wall(), self._timeline.now
