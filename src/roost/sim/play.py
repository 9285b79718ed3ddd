"""Playing a scenario with one seed, and what is reported of it."""

import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from roost.sim.world import World


class Options(msgspec.Struct, frozen=True):
    """How a scenario is played; nothing of it changes the history."""

    say: Callable[[str], None] | None = None
    """Hears each event as one line."""

    details: bool = False
    """Whether it hears of single operations of disks and connections, too."""


class Report(msgspec.Struct, frozen=True):
    """What became of one seed."""

    scenario: str
    seed: int
    fingerprint: str
    """Equal for equal histories."""

    callbacks: int
    virtual_s: float
    faults: dict[str, int]
    """What was done to the world, and how often."""

    figures: dict[str, int]
    """What the program got done, in the scenario's own terms."""

    violations: list[str]
    """The promises that were broken; none if all is well."""


Story = Callable[[World], Coroutine[Any, Any, dict[str, int]]]
"""What happens in a world, told as a coroutine function; it answers with the figures."""


def play(scenario: str, seed: int, options: Options, story: Story) -> Report:
    """Tell a story in a new world; whatever it raises is a violation."""
    figures: dict[str, int] = {}
    with World(seed, say=options.say, details=options.details) as world:
        try:
            figures = world.run(lambda: story(world))
        except Exception as error:  # noqa: BLE001 (the report is where it is handled)
            # Its text may name addresses in memory, so that only its kind belongs to the history.
            world.trace("FAILED", error=type(error).__name__)
            world.violations.append("".join(traceback.format_exception(error)).rstrip())
        return Report(
            scenario=scenario,
            seed=seed,
            fingerprint=world.fingerprint(),
            callbacks=world.timeline.callbacks,
            virtual_s=world.now,
            faults=dict(sorted(world.faults.items())),
            figures=figures,
            violations=world.violations,
        )
