"""The stories that the simulator can play, one module each.

To add a scenario, write a module `NAME.py` here, whose docstring begins with what happens in it,
with

    def run(seed: int, options: Options) -> Report:
        return play("NAME", seed, options, story)

    async def story(world: World) -> dict[str, int]: ...

and name it in `SCENARIOS` below. The story makes hosts, starts processes on them, lets a `Nemesis`
rage, heals, waits with a deadline for all to be well, and calls `world.violate` for every promise
that it finds broken; it answers with figures of what was done. Whatever it draws, it draws from
`world.rng(NAME)`, and whatever a reader should see, it says with `world.trace(event, ...)`. It
looks into the processes as much as it likes, but does nothing to them that a user could not do.
"""

from typing import Protocol

from roost.sim.play import Options, Report
from roost.sim.scenarios import channel, echo, ledger, metadata, node, node_group


class Scenario(Protocol):
    """A module of this package."""

    __doc__: str | None

    def run(self, seed: int, options: Options) -> Report:
        """Play it with one seed."""


SCENARIOS: dict[str, Scenario] = {
    "channel": channel,
    "echo": echo,
    "ledger": ledger,
    "metadata": metadata,
    "node": node,
    "node_group": node_group,
}
