"""The ids and positions that everything shares, as types of their own."""

from typing import Literal, NewType

Position = NewType("Position", int)
"""A place in a channel: bytes of frames before it, counted over all segments, for ever."""

Durability = Literal["fsync", "interval", "os"]
"""When a send returns: after an fsync, or in the page cache, with a timer (`interval`) or none."""
