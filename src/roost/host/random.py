"""Chance as an argument, so that a history can be repeated from one seed.

`Rng` names the few methods that Roost draws with; `random.Random(seed)` has them all and is what
the simulator passes.
"""

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """A source of chance; each method draws as the standard library's of the same name."""

    def random(self) -> float:
        """Draw from [0, 1)."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1, /) -> int:
        """Draw from what `range` with the same arguments holds."""

    def uniform(self, a: float, b: float, /) -> float:
        """Draw from [a, b]."""

    def choice(self, items: Sequence[T], /) -> T:
        """Draw one of `items`, which are not empty."""

    def shuffle(self, items: MutableSequence[Any], /) -> None:
        """Put `items` into any order, in place."""

    def randbytes(self, size: int, /) -> bytes:
        """Draw `size` bytes."""

    def getrandbits(self, bits: int, /) -> int:
        """Draw a number of so many bits."""
