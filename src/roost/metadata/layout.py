"""Which keys there are below a cluster's prefix; docs/formats/metadata.md has the table.

Pure. One key for each thing that there is one of, never one for each record or commit, and none
that grows without bound.
"""

from typing import Final

CLUSTER: Final = "cluster"
"""Which cluster this is."""

IDENTITIES: Final = "nodes/"
"""Begins the keys of all nodes that ever registered."""

LIVE_NODES: Final = "live/nodes/"
"""Begins the keys of the nodes that are well; each vanishes with its node's lease."""

COUNTERS: Final = "ids/"
"""Begins the keys of the counters that ids are taken from."""

LEDGERS: Final = "ledgers/"
"""Begins the keys of all ledgers."""

DRAINS: Final = "drains/"
"""Begins the keys of the nodes that are to be emptied."""

MASTER: Final = "live/master"
"""Who the elected master is, and how far it is; it vanishes with that master's lease."""

SCRUB: Final = "scrub"
"""How far the master has come with reading everything again."""


def identity_key(node: str) -> str:
    """Name the key of who a node is."""
    return IDENTITIES + node


def live_key(node: str) -> str:
    """Name the key of how a node is."""
    return LIVE_NODES + node


def ledger_key(ledger: int) -> str:
    """Name the key of a ledger; keys have the order of the ids."""
    return f"{LEDGERS}{ledger:020}"


def counter_key(kind: str) -> str:
    """Name the key of the counter for one kind of ids."""
    return COUNTERS + kind


def drain_key(node: str) -> str:
    """Name the key that says that a node is to be emptied."""
    return DRAINS + node
