"""Says which nodes have been away for too long.

Pure. A node that comes back in time costs nothing: its entries are where they were. The promise: a
node is gone only if it was missed, without a break, in all that was seen for longer than the grace
time. While nobody looks, no time passes: who could not see the metadata for an hour knows nothing
about that hour, and nodes may have been there all the time.
"""

from collections.abc import Collection, Iterable
from typing import Final

from roost.types import NodeId


class Absences:
    """Who was seen when."""

    def __init__(self, *, grace_s: float, gap_s_max: float) -> None:
        self._grace_s: Final = grace_s
        self._gap_s_max: Final = gap_s_max
        self._live: frozenset[NodeId] = frozenset()
        self._missed_since: dict[NodeId, float] = {}
        self._began = 0.0
        """Since when there was no gap."""
        self._looked_at: float | None = None

    def on_look(self, live: Collection[NodeId], now: float) -> None:
        """Note who is registered now."""
        if self._looked_at is None or now - self._looked_at > self._gap_s_max:
            self._began = now
            self._missed_since.clear()
        else:
            for node in self._live:
                self._missed_since.setdefault(node, now)
        for node in live:
            self._missed_since.pop(node, None)
        self._live = frozenset(live)
        self._looked_at = now

    def gone(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        """Name those that are gone, as of the last look."""
        return {node for node in nodes if self._away_s(node) > self._grace_s}

    def missing(self, nodes: Iterable[NodeId]) -> set[NodeId]:
        """Name those that are not registered, for however short a time."""
        return {node for node in nodes if node not in self._live}

    def _away_s(self, node: NodeId) -> float:
        if node in self._live or self._looked_at is None:
            return 0.0
        return self._looked_at - self._missed_since.get(node, self._began)
