"""When a record comes alone, and the loop may wait for its sync itself.

Pure. To hand a group to the worker and to be woken again takes as long as a quick sync, so a group
of one small record is written and synced on the spot, unless the disk was slow the last time. The
promise: the loop waits at most once a turn. Whoever comes behind such a record in the same turn
shares a sync, as those do who come while the worker writes.
"""

import math
from typing import Final

from roost.journal.plan import Group, JournalSettings

ALONE_BYTES: Final = 16 << 10
"""A record that is longer is handed over in any case."""


class Alone:
    """What is known of the syncs of one journal."""

    def __init__(self, settings: JournalSettings) -> None:
        self.waited = False
        """Whether the loop has waited for a sync in this turn."""
        self._always: Final = settings.sync == "always"
        self._quick_s: Final = settings.quick_s
        self._last_s = math.inf

    def synced(self, took_s: float) -> None:
        """Note how long writing and syncing a group took."""
        self._last_s = took_s

    def allows(self, group: Group) -> bool:
        """Tell whether the loop may write this group itself."""
        if not self._always or self._last_s > self._quick_s:
            return False
        if len(group.items) != 1 or len(group.parts) != 1:
            return False
        part = group.parts[0]
        return part.header is None and part.end - part.begin <= ALONE_BYTES
