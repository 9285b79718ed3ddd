"""What a planted bug is: it breaks one promise, as a slip of the hand would.

A bug is a function that patches the production code through pytest's `MonkeyPatch`. What it
replaces is written out in full where that is short, so that one can see that nothing else is
changed. The bugs of each scenario have a module of their own.
"""

from collections.abc import Callable

import msgspec
import pytest


class Bug(msgspec.Struct, frozen=True):
    """One bug, how to plant it, and within how many seeds the simulator must catch it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    seeds_max: int

    rare: bool = False
    """Whether so many take minutes, so that only `make power` looks; a transcript or a test of its
    own then catches it in every run."""
