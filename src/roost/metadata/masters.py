"""What the elected master says of itself: who it is, and what the cluster lacks."""

from typing import Final

import msgspec

from roost.metadata.documents import Kind
from roost.metadata.layout import MASTER
from roost.metadata.store import MetadataStore


class MasterReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the master is; it vanishes with the master's lease."""

    name: str
    address: str = ""
    """Where it tells of itself over HTTP; '' for nowhere."""

    reported_at: float
    """By its own wall."""

    audits: int = 0
    """How often it has looked at all ledgers since it was elected; 0 says that it knows nothing."""

    ledgers: int = 0
    under_replicated: int = 0
    """Closed ledgers of which a node lacks what it is named for, or is gone."""

    waiting: int = 0
    """Open ledgers with a node that is gone: their writers replace it, or whoever ends them."""

    copies_running: int = 0
    copied_bytes: int = 0
    """Since it was elected."""

    gone: tuple[str, ...] = ()
    """Nodes that are named for something, and away for longer than they may."""

    draining: dict[str, int] = {}
    """Nodes that are to be emptied, and how many ledgers still name each."""


class ScrubPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far the master has come with reading everything again, and what it found."""

    after: int = -1
    """The last ledger that was read in this round."""

    began_at: float = 0.0
    """When the round began, by the wall."""

    ended_at: float = 0.0
    """When the last whole round ended, by the wall; 0 for never."""

    ledgers: int = 0
    """In this round, and so are the others."""

    bytes: int = 0
    bad: int = 0
    repaired: int = 0


SCRUB_PLACE: Final = Kind("scrub", ScrubPlace)
MASTER_REPORT: Final = Kind("master", MasterReport)


async def master_of(store: MetadataStore) -> MasterReport | None:
    """Tell who the master is; None if there is none now."""
    item = await store.get(MASTER)
    return MASTER_REPORT.decode(MASTER, item.value) if item else None
