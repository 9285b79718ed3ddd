"""The ids and positions that everything shares, as types of their own."""

from typing import Final, Literal, NewType

Position = NewType("Position", int)
"""A place in a channel or journal: bytes before it, counted over all segments, for ever."""

LedgerId = NewType("LedgerId", int)
"""Names a ledger, in the whole cluster and for ever; from 0."""

EntryId = NewType("EntryId", int)
"""Counts the entries of one ledger, from 0."""

Epoch = NewType("Epoch", int)
"""The number of a leadership; each ledger belongs to one."""

NodeId = NewType("NodeId", str)
"""Names a storage node, in the whole cluster and for ever."""

NO_ENTRY: Final = EntryId(-1)
"""The last entry of a ledger that has none, and the LAC of one that has confirmed none."""

Durability = Literal["fsync", "interval", "os"]
"""When a send returns: after an fsync, or in the page cache, with a timer (`interval`) or none."""
