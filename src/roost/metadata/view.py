"""Follows the keys with one prefix for as long as it is wanted, whatever the store has forgotten.

    view = await View.open(store, "nodes/")
    view.items                      # as they were a moment ago
    changes = await view.changes()  # waits until something has changed

What somebody sees here is behind the store by what is under way; whoever decides anything by it
lets a transaction compare revisions.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from roost.errors import Compacted
from roost.metadata.mirror import Change, Mirror
from roost.metadata.operations import Item, Revision
from roost.metadata.store import CALL_S, MetadataStore, Watch

LISTINGS_MAX: Final = 10
"""How often a listing is begun anew because history was forgotten under it."""


async def list_all(
    store: MetadataStore, prefix: str, *, timeout_s: float = CALL_S
) -> tuple[Sequence[Item], Revision]:
    """Read all keys with a prefix, as they were at one revision; `timeout_s` is for each page."""
    for _ in range(LISTINGS_MAX - 1):
        with suppress(Compacted):
            return await _list_once(store, prefix, timeout_s)
    return await _list_once(store, prefix, timeout_s)


async def _list_once(
    store: MetadataStore, prefix: str, timeout_s: float
) -> tuple[Sequence[Item], Revision]:
    page = await store.range(prefix, timeout_s=timeout_s)
    items = [*page.items]
    while page.more:
        page = await store.range(
            prefix, after=items[-1].key, revision=page.revision, timeout_s=timeout_s
        )
        items += page.items
    return items, page.revision


class View:
    """The keys with one prefix, followed."""

    def __init__(self, store: MetadataStore, prefix: str) -> None:
        self._store: Final = store
        self._prefix: Final = prefix
        self._mirror: Final = Mirror()
        self._watch: Watch | None = None

    @classmethod
    async def open(cls, store: MetadataStore, prefix: str, *, timeout_s: float = CALL_S) -> Self:
        """List the keys, and follow them from there."""
        view = cls(store, prefix)
        await view._list(timeout_s)
        return view

    @property
    def items(self) -> Mapping[str, Item]:
        """Show the keys, by name, in no certain order."""
        return self._mirror.items

    @property
    def revision(self) -> Revision:
        """Tell of when that is."""
        return self._mirror.revision

    async def changes(self) -> Sequence[Change]:
        """Wait until something has changed, and show it; whoever gives up waiting loses nothing."""
        while True:
            if self._watch is None:
                if changes := await self._list(CALL_S):
                    return changes
                continue
            try:
                return self._mirror.on_batch(await anext(self._watch))
            except Compacted:
                await self.close()

    async def close(self) -> None:
        """Follow them no more."""
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _list(self, timeout_s: float) -> Sequence[Change]:
        items, revision = await list_all(self._store, self._prefix, timeout_s=timeout_s)
        self._watch = self._store.watch(self._prefix, Revision(revision + 1))
        return self._mirror.on_listed(items, revision)
