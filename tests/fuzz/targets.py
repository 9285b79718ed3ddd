"""What can be fuzzed.

Each target has inputs to begin with, changes that know what the bytes mean, and the check that an
input must pass.
"""

from collections.abc import Callable
from random import Random
from types import ModuleType

import msgspec

from tests.fuzz import (
    journal_segments,
    kernel_twins,
    offset_file,
    packed_segment,
    plain_segment,
    small_formats,
    wire_peer,
    wire_twins,
)


class Target(msgspec.Struct, frozen=True):
    """One thing to fuzz. `check` raises anything at all for an input that breaks a promise."""

    name: str
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    check: Callable[[bytes], None]


def _target(module: ModuleType) -> Target:
    name = module.__name__.rpartition(".")[2]
    return Target(name=name, seeds=module.seeds, mutate=module.mutate, check=module.check)


TARGETS = tuple(
    _target(module)
    for module in (
        plain_segment,
        packed_segment,
        offset_file,
        small_formats,
        kernel_twins,
        wire_peer,
        wire_twins,
        journal_segments,
    )
)
