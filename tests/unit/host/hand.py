"""A clock that is moved by hand."""


class Hand:
    """Tells the times that it is set to."""

    def __init__(self, *, now: float = 100.0, wall: float = 0.0) -> None:
        self.now_s = now
        self.wall_s = wall

    def now(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return self.wall_s

    def boot(self) -> str:
        """Name the one run of this machine."""
        return "run 0"
