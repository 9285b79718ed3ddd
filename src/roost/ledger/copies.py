"""What the copies of a closed ledger should have, and what has to be fetched to mend one.

Pure. A copy is mended where it is: its node asks the others of each fragment that it is in for all
of it, takes what it lacks or cannot vouch for, and passes over the rest.
"""

from collections.abc import Sequence

import msgspec

from roost.ledger.quorum import named_entries
from roost.metadata.ledgers import LedgerDocument
from roost.types import EntryId, NodeId


class Copy(msgspec.Struct, frozen=True):
    """What one node has of a ledger, by its own account after it has read everything."""

    node: NodeId
    wanted: int
    """How many entries it is named for."""

    entries: int = 0
    bytes: int = 0
    bad: int = 0
    """How many do not hold."""

    error: str = ""
    """Why it could not be asked."""

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return not self.error and not self.bad and self.entries >= self.wanted


class Fetch(msgspec.Struct, frozen=True):
    """A range, and who has it; the best first."""

    first: EntryId
    upto: EntryId
    sources: tuple[NodeId, ...]


def wanted_entries(document: LedgerDocument, node: NodeId) -> int:
    """Count the entries that a node is named for."""
    wanted = 0
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        if node in fragment.nodes and upto is not None:
            slot = fragment.nodes.index(node)
            wanted += named_entries(slot, fragment.first, upto, document.quorum)
    return wanted


def fetches(document: LedgerDocument, node: NodeId) -> Sequence[Fetch]:
    """List what a node fetches to mend its copy."""
    found = []
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        if node not in fragment.nodes or upto is None or upto < fragment.first:
            continue
        others = [each for each in fragment.nodes if each != node]
        # Who may lack something is asked last.
        others.sort(key=lambda each: each in document.laggards)
        found.append(Fetch(fragment.first, upto, tuple(others)))
    return found
