"""The stages on which the metadata suite plays: each kind of store, and how to run a story on it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from roost.metadata.store import MetadataStore
from roost.sim.metadata import SimMetadata
from roost.sim.world import World

Story = Callable[[Callable[[], Awaitable[MetadataStore]]], Awaitable[None]]
"""Takes a function that opens one more store object on the same store."""


class Stage(Protocol):
    """One kind of store."""

    def play(self, story: Story) -> None:
        """Run a story on an empty store, and end."""

    def compact(self) -> None:
        """Forget all history, while a story runs."""


class SimStage:
    """The simulated store."""

    def __init__(self) -> None:
        self._world = World(7)
        self._store = SimMetadata(self._world)

    def play(self, story: Story) -> None:
        stores: list[MetadataStore] = []

        async def open_() -> MetadataStore:
            stores.append(self._store.handle(f"process-{len(stores)}"))
            return stores[-1]

        async def main() -> None:
            try:
                async with asyncio.timeout(100):
                    await story(open_)
            finally:
                for store in stores:
                    await store.close()

        with self._world:
            self._world.run(main)

    async def compact(self) -> None:
        self._store.compact()
