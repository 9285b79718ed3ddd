"""The nodes of a cluster as the master sees them: listed anew each time, not followed.

A list that was read in one piece says that a node is not registered; a picture that is kept up to
date may only be behind.
"""

from collections.abc import Sequence
from typing import Final

from roost.host.clock import Clock
from roost.host.net import Address
from roost.ledger.nodes import KnownNode, known_node
from roost.master.absence import Absences
from roost.metadata.drains import draining
from roost.metadata.nodes import all_nodes
from roost.metadata.store import MetadataStore
from roost.types import NodeId


class Roster:
    """A directory of nodes, as of the last look."""

    def __init__(self, store: MetadataStore, absences: Absences, clock: Clock) -> None:
        self.absences: Final = absences
        self.draining: set[NodeId] = set()
        self.known: set[NodeId] = set()
        """All that ever registered."""
        self._store: Final = store
        self._clock: Final = clock
        self._looked_at = float("-inf")
        self._nodes: list[KnownNode] = []
        self._addresses: dict[NodeId, Address] = {}

    async def look(self, *, unless_within_s: float = 0.0) -> None:
        """List the nodes, unless that was done so lately."""
        if self._clock.now() < self._looked_at + unless_within_s:
            return
        marked = await draining(self._store)
        found = await all_nodes(self._store)
        self.draining = {NodeId(name) for name in marked}
        self.known = {NodeId(identity.node) for identity, _ in found}
        reports = [report for _, report in found if report is not None]
        self._nodes = [known_node(each, draining=each.node in marked) for each in reports]
        self._addresses |= {each.candidate.node: each.address for each in self._nodes}
        self._looked_at = self._clock.now()
        self.absences.on_look({*self.live}, self._looked_at)

    @property
    def live(self) -> list[NodeId]:
        """Name those that are registered."""
        return [each.candidate.node for each in self._nodes]

    def nodes(self) -> Sequence[KnownNode]:
        """List those that are registered."""
        return self._nodes

    def address(self, node: NodeId) -> Address | None:
        """Tell where one is, or was when it was registered last."""
        return self._addresses.get(node)
