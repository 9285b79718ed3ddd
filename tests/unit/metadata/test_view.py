"""Views: what they show is what there is, also where history was forgotten under them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from roost.errors import Compacted, Unavailable
from roost.metadata.election import campaign
from roost.metadata.mirror import Change, Mirror
from roost.metadata.operations import Batch, Event, Item, Page, Put, Revision
from roost.metadata.store import MetadataStore
from roost.metadata.view import LISTINGS_MAX, View, list_all
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.world import World


def item(key: str, revision: int, value: bytes = b"") -> Item:
    return Item(key, value, Revision(revision), Revision(revision), 1)


def play(story: Callable[[SimMetadata], Awaitable[None]]) -> None:
    with World(5) as world:
        sim = SimMetadata(world, MetadataFaults())

        async def main() -> None:
            async with asyncio.timeout(300):
                await story(sim)

        world.run(main)


def test_a_listing_tells_what_came_changed_and_went() -> None:
    mirror = Mirror()
    one, two, three = item("a", 1), item("b", 2), item("c", 3)
    two_again = item("b", 4, b"again")
    mirror.on_listed([one, two], Revision(2))

    changes = mirror.on_listed([two_again, three], Revision(4))

    assert changes == [
        Change("a", one, None),
        Change("b", two, two_again),
        Change("c", None, three),
    ]
    assert mirror.on_listed([two_again, three], Revision(5)) == []
    assert mirror.revision == 5


def test_a_batch_tells_each_of_its_events() -> None:
    mirror = Mirror()
    one, again = item("a", 1), item("a", 2)
    mirror.on_listed([one], Revision(1))

    changes = mirror.on_batch(
        Batch([Event("a", Revision(2), again), Event("a", Revision(3), None)])
    )

    assert changes == [Change("a", one, again), Change("a", again, None)]
    assert mirror.items == {}


def test_a_view_lists_again_where_history_was_forgotten_and_tells_the_difference() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("a")
        await store.txn([], [Put("k1", b""), Put("k2", b"")])
        async with await View.open(store, "k") as view:
            sim.cut("a")
            other = sim.handle("b")
            await other.delete("k1")
            await other.put("k3", b"")
            sim.compact()
            sim.heal("a")

            changes = await view.changes()

            assert [(change.key, change.now is None) for change in changes] == [
                ("k1", True),
                ("k3", False),
            ]
            sim.compact()
            await other.put("k4", b"")
            while "k4" not in view.items:
                await view.changes()

    play(story)


def test_a_listing_that_is_forgotten_under_it_again_and_again_gives_up() -> None:
    class Forgetful:
        """A store that forgets each revision at once."""

        pages = 0

        async def range(self, prefix: str, *, after: str = "", **_: object) -> Page:
            self.pages += 1
            if after:
                raise Compacted("forgotten", upto=9)
            return Page([item(prefix, 1)], Revision(self.pages), more=True)

    store = Forgetful()

    with pytest.raises(Compacted):
        asyncio.run(list_all(store, "k"))  # type: ignore[arg-type]  # as much of one as is asked

    assert store.pages == 2 * LISTINGS_MAX


def test_a_candidate_whose_lease_the_store_let_go_is_told() -> None:
    async def story(sim: SimMetadata) -> None:
        store: MetadataStore = sim.handle("a")
        lease = await store.grant(3600)
        sim.let_go()

        with pytest.raises(Unavailable, match="was lost before 'leader' was won"):
            await campaign(store, "leader", b"", lease)

    play(story)


def test_a_candidate_tries_again_while_the_store_cannot_be_asked() -> None:
    async def story(sim: SimMetadata) -> None:
        store = sim.handle("a")
        lease = await store.grant(3600)
        sim.stop()
        running = asyncio.ensure_future(campaign(store, "leader", b"", lease))
        await asyncio.sleep(20.0)  # of virtual time
        assert not running.done()
        sim.start()

        assert (await running).key == "leader"

    play(story)
