"""A picture of some keys, kept up to date from listings and batches.

Pure. The promise: after each call it shows the keys as they were at `revision`, and the changes
that a call returns, put together, lead from what it showed before to what it shows now; also where
history was forgotten in between, and a listing had to bridge the gap.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from roost.metadata.operations import Batch, Item, Revision


class Change(msgspec.Struct, frozen=True):
    """A key is not what it was: None is before it came, or after it went."""

    key: str
    before: Item | None
    now: Item | None


class Mirror:
    """The keys with one prefix."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._revision = Revision(0)

    @property
    def items(self) -> Mapping[str, Item]:
        """Show the keys that there are; of no certain order."""
        return self._items

    @property
    def revision(self) -> Revision:
        """Tell when it was so; a watch goes on one later."""
        return self._revision

    def on_listed(self, items: Iterable[Item], revision: Revision) -> Sequence[Change]:
        """Hear of all keys, as they were at a revision."""
        assert revision >= self._revision, "a listing is never older than what was seen"
        listed = {item.key: item for item in items}
        changes = [
            Change(key, self._items.get(key), listed.get(key))
            for key in sorted(self._items.keys() | listed.keys())
            if self._items.get(key) != listed.get(key)
        ]
        self._items = listed
        self._revision = revision
        return changes

    def on_batch(self, batch: Batch) -> Sequence[Change]:
        """Hear what happened next; every event is a change, also one that the next takes back."""
        changes = []
        for event in batch.events:
            assert event.revision > self._revision, "a watch goes on behind what was seen"
            changes.append(Change(event.key, self._items.pop(event.key, None), event.item))
            if event.item is not None:
                self._items[event.key] = event.item
        self._revision = batch.revision
        return changes
