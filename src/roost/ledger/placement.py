"""Chooses the nodes that a ledger lives on: at random, by free space, one for each zone.

Always taking the node with the most room sends everything there at once, all new ledgers of all
clients, until it has the least. So a node is drawn, with its free space as its weight. Zones are
what fails together, a rack or a machine: no two nodes of an ensemble share one, as long as there
are enough. A node that has just failed is left alone for a while, longer each time.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from roost.host.random import Rng
from roost.types import NodeId


class Candidate(msgspec.Struct, frozen=True):
    """A registered node, as far as placing things on it goes."""

    node: NodeId
    free_bytes: int
    zone: str = ""
    """Where it stands: what fails together has one name, and '' is a zone, too."""

    writable: bool = True
    """Whether it takes adds."""


def choose(
    candidates: Iterable[Candidate],
    count: int,
    *,
    rng: Rng,
    excluded: Collection[NodeId] = (),
    zones_taken: Collection[str] = (),
    free_bytes_min: int = 0,
) -> list[NodeId]:
    """Draw so many nodes, or fewer if there are not enough; first from zones not yet taken."""
    left = [
        each
        for each in sorted(candidates, key=lambda each: each.node)
        if each.writable and each.free_bytes >= free_bytes_min and each.node not in excluded
    ]
    taken = set(zones_taken)
    chosen: list[NodeId] = []
    while left and len(chosen) < count:
        apart = [each for each in left if each.zone not in taken]
        drawn = _draw(apart or left, rng)
        chosen.append(drawn.node)
        taken.add(drawn.zone)
        left.remove(drawn)
    return chosen


def _draw(candidates: Sequence[Candidate], rng: Rng) -> Candidate:
    """Draw one; a node without any room still has a chance, if it was let in here."""
    at = rng.random() * sum(each.free_bytes + 1 for each in candidates)
    for each in candidates:
        at -= each.free_bytes + 1
        if at < 0:
            return each
    return candidates[-1]


FIRST_S: Final = 0.5
MOST_S: Final = 5.0
CALM_S: Final = 60.0
"""Who has not failed for so long begins at the shortest pause again."""


class BackOff:
    """Remembers which nodes failed lately, and until when each is left alone."""

    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._first_s: Final = first_s
        self._most_s: Final = most_s
        self._pauses: dict[NodeId, tuple[float, float]] = {}

    def failed(self, node: NodeId, now: float) -> None:
        """Note that a node failed: it is left alone for twice as long as the last time."""
        pause_s, until = self._pauses.get(node, (0.0, now))
        if now < until:
            return
        if now > until + CALM_S:
            pause_s = 0.0
        pause_s = min(max(self._first_s, 2 * pause_s), self._most_s)
        self._pauses[node] = (pause_s, now + pause_s)

    def worked(self, node: NodeId) -> None:
        """Note that it works."""
        self._pauses.pop(node, None)

    def resting(self, now: float) -> set[NodeId]:
        """Name the nodes that are left alone now."""
        return {node for node, (_, until) in self._pauses.items() if now < until}

    def until(self, node: NodeId) -> float:
        """Tell until when a node is left alone."""
        return self._pauses.get(node, (0.0, 0.0))[1]
