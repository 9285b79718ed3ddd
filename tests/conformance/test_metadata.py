"""What every metadata store does: the contract of `roost.metadata.store`.

A test is a story in which any number of store objects look at one store. Waiting is for events,
each with the deadline of its story.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from roost.errors import Closed, Compacted, Invalid, NotFound, Unavailable
from roost.metadata.election import campaign, observe, resign
from roost.metadata.operations import (
    OPERATION_BYTES,
    OPERATIONS_MAX,
    PAGE_ITEMS_MAX,
    REQUEST_BYTES_MAX,
    TTL_S_MIN,
    Absent,
    ChangedAt,
    Compare,
    CreatedAt,
    Delete,
    Event,
    Get,
    LeaseId,
    Put,
    Revision,
)
from roost.metadata.store import MetadataStore, Watch
from roost.metadata.view import View, list_all
from tests.conformance.metadata_stages import STAGES, EtcdStage, Stage
from tests.etcds import EtcdProgram

Open = Callable[[], Awaitable[MetadataStore]]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProgram]:
    program = EtcdProgram(tmp_path_factory.mktemp("etcd")).start()
    yield program
    program.stop()


@pytest.fixture(params=[*STAGES, "etcd"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    make = STAGES.get(request.param)
    stage: Stage = make() if make else EtcdStage(request.getfixturevalue("etcd"))
    yield stage
    stage.close()


def play(stage: Stage, story: Callable[[MetadataStore], Awaitable[None]]) -> None:
    """Play a story with one store object."""

    async def with_one(open_: Open) -> None:
        await story(await open_())

    stage.play(with_one)


async def events_of(watch: Watch, count: int) -> list[Event]:
    """Read so many events, and no more."""
    events: list[Event] = []
    while len(events) < count:
        events += (await anext(watch)).events
    assert len(events) == count, events
    return events


# Reading and changing


def test_what_was_put_is_read_with_its_history(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        first = await store.put("a", b"one")
        second = await store.put("a", b"two")

        item = await store.get("a")

        assert item is not None
        assert (item.value, item.created, item.changed, item.version, item.lease) == (
            b"two",
            first,
            second,
            2,
            0,
        )
        assert second > first
        assert await store.get("b") is None

    play(stage, story)


def test_values_are_any_bytes_and_keys_any_printable_text(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        value = bytes(range(256))

        for key in ("a b", "größe/日本", "~", "🦉"):
            await store.put(key, value)
            await store.put(key + "0", b"")

        for key in ("a b", "größe/日本", "~", "🦉"):
            item, empty = await store.get(key), await store.get(key + "0")
            assert item is not None
            assert (item.key, item.value) == (key, value)
            assert empty is not None
            assert empty.value == b""

    play(stage, story)


def test_a_delete_says_whether_there_was_anything(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        await store.put("a", b"")

        assert await store.delete("a")
        assert not await store.delete("a")
        assert await store.get("a") is None

    play(stage, story)


def test_what_changes_nothing_makes_no_revision(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        put = await store.put("a", b"")

        await store.delete("b")
        await store.txn([Absent("a")], [Put("a", b"")], [Get("a"), Delete("b")])

        assert (await store.range("")).revision == put
        assert await store.put("a", b"") == put + 1

    play(stage, story)


def test_a_key_that_comes_again_begins_anew(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        await store.put("a", b"")
        await store.put("a", b"")
        await store.delete("a")
        again = await store.put("a", b"")

        item = await store.get("a")

        assert item is not None
        assert (item.created, item.changed, item.version) == (again, again, 1)

    play(stage, story)


# Transactions


def test_a_transaction_compares_by_revision_and_absence(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        created = await store.put("a", b"1")
        changed = await store.put("a", b"2")
        wrong = Revision(changed + 5)

        cases: list[tuple[list[Compare], bool]] = [
            ([ChangedAt("a", changed)], True),
            ([ChangedAt("a", created)], False),
            ([CreatedAt("a", created)], True),
            ([CreatedAt("a", changed)], False),
            ([Absent("a")], False),
            ([Absent("b")], True),
            ([ChangedAt("b", wrong)], False),
            ([CreatedAt("b", wrong)], False),
            ([Absent("b"), ChangedAt("a", changed)], True),
            ([Absent("b"), ChangedAt("a", created)], False),
            ([], True),
        ]
        for compares, holds in cases:
            outcome = await store.txn(compares, [Get("a")], [Get("b"), Get("b")])

            assert outcome.succeeded == holds, compares
            assert outcome.revision == changed
            assert len(outcome.got) == (1 if holds else 2)

    play(stage, story)


def test_a_transaction_does_all_of_a_branch_in_one_revision(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        before = await store.put("old", b"")

        outcome = await store.txn(
            [ChangedAt("old", before), Absent("new")],
            [Put("new", b"n"), Delete("old"), Get("new"), Get("old"), Put("more", b"m")],
            [Delete("old")],
        )

        new = await store.get("new")
        more = await store.get("more")
        assert new is not None
        assert more is not None
        assert outcome.succeeded
        assert outcome.revision == before + 1 == new.changed == more.changed
        assert list(outcome.got) == [new, None]
        assert await store.get("old") is None

    play(stage, story)


def test_of_many_that_race_to_change_a_key_each_sees_all_before_it(stage: Stage) -> None:
    async def count(store: MetadataStore, times: int) -> None:
        while times:
            item = await store.get("counter")
            compare = ChangedAt("counter", item.changed) if item else Absent("counter")
            value = int(item.value) + 1 if item else 1
            if (await store.txn([compare], [Put("counter", b"%d" % value)])).succeeded:
                times -= 1

    async def story(open_: Open) -> None:
        stores = [await open_() for _ in range(4)]

        await asyncio.gather(*(count(store, 10) for store in stores))

        item = await stores[0].get("counter")
        assert item is not None
        assert (item.value, item.version) == (b"40", 40)

    stage.play(story)


def test_a_request_at_the_limits_is_taken(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        value = bytes(REQUEST_BYTES_MAX - 1 - OPERATION_BYTES)
        keys = [f"key-{number}" for number in range(OPERATIONS_MAX)]
        share = bytes(REQUEST_BYTES_MAX // OPERATIONS_MAX - 3 * OPERATION_BYTES - 100)

        await store.put("a", value)
        outcome = await store.txn(
            [Absent(key) for key in keys],
            [Put(key, share) for key in keys],
            [Get(key) for key in keys],
        )

        assert outcome.succeeded
        assert (await store.range("key-")).items[-1].value == share
        item = await store.get("a")
        assert item is not None
        assert item.value == value

    play(stage, story)


Ask = Callable[[MetadataStore], Awaitable[Any]]

REFUSED: list[tuple[str, Ask]] = [
    ("129 then", lambda s: s.txn((), [Get("a")] * 129)),
    ("129 orelse", lambda s: s.txn((), (), [Get("a")] * 129)),
    ("129 compares", lambda s: s.txn([Absent("a")] * 129, ())),
    ("at most 1572864", lambda s: s.put("a", bytes(REQUEST_BYTES_MAX))),
    ("twice", lambda s: s.txn((), [Put("a", b""), Delete("a")])),
    ("not empty", lambda s: s.get("")),
    ("printable", lambda s: s.put("a\0", b"")),
    ("printable", lambda s: s.put("\udc80", b"")),
    ("1025 bytes", lambda s: s.get("a" * 1025)),
    ("from 1 to 1000", lambda s: s.range("", limit=0)),
    ("from 1 to 1000", lambda s: s.range("", limit=1001)),
    ("count from 1", lambda s: s.range("", revision=Revision(0))),
    ("yet to come", lambda s: s.range("", revision=Revision(1 << 40))),
    ("count from 1", lambda s: s.txn([ChangedAt("a", Revision(0))], ())),
    ("count from 1", lambda s: s.txn([CreatedAt("a", Revision(-1))], ())),
    ("from 2 to 86400", lambda s: s.grant(1)),
    ("from 2 to 86400", lambda s: s.grant(86401)),
]


def test_what_some_store_would_refuse_all_refuse(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        for why, ask in REFUSED:
            with pytest.raises(Invalid, match=why):
                await ask(store)
        with pytest.raises(Invalid, match="count from 1"):
            store.watch("a", Revision(0))
        assert (await store.range("")).items == []

    play(stage, story)


# Listing


def test_pages_are_in_order_and_of_one_revision(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        keys = ["a", "b/", "b/1", "b/10", "b/2", "b/ä", "b/🦉", "b0", "c"]
        for key in reversed(keys):
            await store.put(key, key.encode())

        page = await store.range("b/", limit=2)
        await store.put("b/3", b"")
        await store.delete("b/ä")
        rest = await store.range("b/", after="b/1", revision=page.revision)
        now = await store.range("b/", after="b/1")

        assert [item.key for item in page.items] == ["b/", "b/1"]
        assert page.more
        assert [item.key for item in rest.items] == ["b/10", "b/2", "b/ä", "b/🦉"]
        assert (rest.revision, rest.more) == (page.revision, False)
        assert [item.key for item in now.items] == ["b/10", "b/2", "b/3", "b/🦉"]
        assert [item.key for item in (await store.range("")).items] == [
            *("a", "b/", "b/1", "b/10", "b/2", "b/3", "b/🦉", "b0", "c")
        ]
        assert (await store.range("d")).items == []

    play(stage, story)


def test_a_page_shows_values_as_they_were_at_its_revision(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        first = await store.put("a", b"1")
        second = await store.put("a", b"2")
        third = await store.put("b", b"3")
        await store.delete("a")

        pages = [(await store.range("", revision=at)).items for at in (first, second, third)]

        values = [[(item.key, item.value, item.version) for item in items] for items in pages]
        assert values == [
            [("a", b"1", 1)],
            [("a", b"2", 2)],
            [("a", b"2", 2), ("b", b"3", 1)],
        ]

    play(stage, story)


def test_more_keys_than_a_page_holds_are_listed_whole(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        keys = [f"k{number:05}" for number in range(PAGE_ITEMS_MAX + 200)]
        for begin in range(0, len(keys), OPERATIONS_MAX):
            await store.txn((), [Put(key, b"") for key in keys[begin : begin + OPERATIONS_MAX]])

        items, _ = await list_all(store, "k")

        assert [item.key for item in items] == keys

    play(stage, story)


def test_pages_of_large_values_are_listed_whole(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        for number in range(14):
            await store.put(f"k{number:02}", bytes([number]) * (1 << 20))

        items, _ = await list_all(store, "k")

        assert [item.value[:1] for item in items] == [bytes([number]) for number in range(14)]

    play(stage, story)


# Watching


def test_a_watch_tells_the_past_and_then_what_happens(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        store, other = await open_(), await open_()
        first = await store.put("a/1", b"1")
        await store.put("b", b"")
        await store.delete("a/1")

        async with store.watch("a/", first) as watch:
            past = await events_of(watch, 2)
            await other.put("c", b"")
            last = await other.put("a/2", b"2")
            (event,) = await events_of(watch, 1)

        assert [(each.key, each.revision, each.item is None) for each in past] == [
            ("a/1", first, False),
            ("a/1", first + 2, True),
        ]
        assert event.item == await store.get("a/2")
        assert event.revision == last

    stage.play(story)


def test_a_batch_never_divides_a_revision(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        store, other = await open_(), await open_()
        begin = await store.put("begin", b"")

        async def change() -> None:
            for round_ in range(20):
                keys = [f"k{number}" for number in range(OPERATIONS_MAX - round_)]
                await other.txn((), [Put(key, bytes(1000)) for key in keys])

        seen: dict[int, int] = {}
        async with asyncio.TaskGroup() as group, store.watch("k", Revision(begin + 1)) as watch:
            group.create_task(change())
            async for batch in watch:
                revisions = [event.revision for event in batch.events]
                assert revisions == sorted(revisions)
                assert not seen.keys() & set(revisions)
                for revision in revisions:
                    seen[revision] = seen.get(revision, 0) + 1
                if batch.revision == begin + 20:
                    break

        assert list(seen.values()) == [OPERATIONS_MAX - round_ for round_ in range(20)]

    stage.play(story)


def test_a_watch_of_what_is_to_come_waits_for_it(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        now = await store.put("a", b"0")

        async with store.watch("a", Revision(now + 3)) as watch:
            for number in range(1, 4):
                await store.put("a", b"%d" % number)
            (event,) = await events_of(watch, 1)

        assert event.revision == now + 3
        assert event.item is not None
        assert event.item.value == b"3"

    play(stage, story)


def test_whoever_gives_up_waiting_for_a_batch_loses_nothing(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        now = await store.put("a", b"")
        seen: list[int] = []

        async def read(watch: Watch, tries: int) -> None:
            for give_up_s in [0.0, 0.0001, 0.001, 0.003] * tries:
                try:
                    async with asyncio.timeout(give_up_s):
                        seen.extend(event.revision for event in (await anext(watch)).events)
                except TimeoutError:
                    continue

        async with store.watch("a", Revision(now + 1)) as watch:
            for _ in range(30):
                await store.put("a", b"")
                await read(watch, 1)
            while len(seen) < 30:
                await read(watch, 1)

        assert seen == list(range(now + 1, now + 31))

    play(stage, story)


def test_a_watch_from_what_is_forgotten_says_so(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        first = await store.put("a", b"1")
        await store.put("b", b"2")
        last = await store.put("a", b"3")
        await stage.compact()

        async with store.watch("a", first) as watch:
            with pytest.raises(Compacted) as forgotten:
                await anext(watch)
        with pytest.raises(Compacted):
            await store.range("", revision=first)
        items, revision = await list_all(store, "")

        assert first < forgotten.value.upto <= last
        assert [item.value for item in items] == [b"3", b"2"]
        assert revision == last
        async with store.watch("", Revision(revision + 1)) as watch:
            put = await store.put("c", b"")
            (event,) = await events_of(watch, 1)
        assert event.revision == put

    play(stage, story)


def test_a_view_follows_keys_over_a_compaction(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        store, other = await open_(), await open_()
        await store.put("a/1", b"1")
        await store.put("a/2", b"2")

        async with await View.open(store, "a/") as view:
            await other.delete("a/1")
            await other.put("a/3", b"3")
            await other.put("b", b"")
            await stage.compact()
            while view.items.keys() != {"a/2", "a/3"}:
                assert await view.changes()

    stage.play(story)


def test_a_closed_watch_ends_who_waits_for_it(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        now = await store.put("a", b"")
        watch = store.watch("a", Revision(now + 1))
        waiting = asyncio.ensure_future(anext(watch))
        await store.put("b", b"")

        await watch.close()
        await watch.close()

        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await anext(watch)

    play(stage, story)


# Leases


def test_keys_of_a_lease_stay_while_it_is_renewed_and_vanish_after(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        store, other = await open_(), await open_()
        lease = await store.grant(TTL_S_MIN)
        await store.put("b", b"", lease=lease.id)
        last = await store.put("a", b"", lease=lease.id)
        begun = lease.deadline

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * TTL_S_MIN):
                await lease.wait_lost()
        assert lease.deadline > begun
        assert not lease.lost
        assert await other.get("a") is not None
        await store.close()  # renews it no more

        await lease.wait_lost()
        async with other.watch("", Revision(last + 1)) as watch:
            events = await events_of(watch, 2)
        assert [(event.key, event.item) for event in events] == [("a", None), ("b", None)]
        assert events[0].revision == events[1].revision

    stage.play(story)


def test_a_revoked_lease_takes_its_keys_along_at_once(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        lease = await store.grant(60)
        await store.put("a", b"", lease=lease.id)
        await store.put("b", b"", lease=lease.id)
        await store.put("b", b"mine now")

        await lease.revoke()

        assert lease.lost
        await lease.wait_lost()
        assert await store.get("a") is None
        assert await store.get("b") is not None
        await lease.revoke()

    play(stage, story)


def test_nothing_is_put_with_a_lease_that_is_gone(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        lease = await store.grant(60)
        put = await store.put("a", b"", lease=lease.id)
        await lease.revoke()

        with pytest.raises(NotFound, match="lease"):
            await store.put("a", b"", lease=lease.id)
        with pytest.raises(NotFound):
            await store.txn((), [Put("b", b""), Put("c", b"", LeaseId(12345))])
        assert (await store.txn((), (), [Put("c", b"", LeaseId(12345))])).succeeded

        page = await store.range("")
        assert page.items == []
        assert page.revision == put + 1

    play(stage, story)


def test_a_lease_has_at_least_the_time_that_was_asked_for(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        short, long = await store.grant(TTL_S_MIN), await store.grant(300)

        assert short.ttl_s >= TTL_S_MIN
        assert long.ttl_s >= 300
        assert long.deadline - short.deadline > 200
        assert short.id != long.id
        assert min(short.id, long.id) > 0

    play(stage, story)


def test_a_lease_that_the_store_let_go_is_lost_as_soon_as_its_holder_hears(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        lease = await store.grant(5)
        await store.put("a", b"", lease=lease.id)

        await stage.let_go()
        await lease.wait_lost()

        assert lease.lost
        assert await store.get("a") is None

    play(stage, story)


def test_who_is_closed_is_closed_for_everything(stage: Stage) -> None:
    async def story(store: MetadataStore) -> None:
        now = await store.put("a", b"")
        lease = await store.grant(60)
        watch = store.watch("a", Revision(now + 1))
        waiting = asyncio.ensure_future(anext(watch))
        await store.get("a")

        await store.close()
        await store.close()

        assert lease.lost
        for ask in (
            lambda: store.get("a"),
            lambda: store.put("a", b""),
            lambda: store.range("a"),
            lambda: store.grant(60),
            lambda: anext(watch),
            lambda: waiting,
        ):
            with pytest.raises(Closed):
                await ask()

    play(stage, story)


# Elections


def test_of_several_candidates_one_leads_and_the_next_has_a_greater_epoch(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        stores = [await open_() for _ in range(3)]
        leases = [await store.grant(60) for store in stores]
        epochs: list[int] = []
        seen: list[bytes] = []
        told = asyncio.Event()

        async def watcher() -> None:
            async for leader in observe(stores[0], "leader"):
                seen.extend([leader.value] if leader else [])
                told.set()

        async def candidate(number: int) -> None:
            store, lease = stores[number], leases[number]
            leadership = await campaign(store, "leader", b"%d" % number, lease)
            epochs.append(leadership.epoch)
            assert (await store.txn([leadership.still], [])).succeeded
            if number % 2:
                await resign(store, leadership)
            else:
                await lease.revoke()
            assert not (await store.txn([leadership.still], [])).succeeded

        watching = asyncio.ensure_future(watcher())
        await told.wait()
        await asyncio.gather(*(candidate(number) for number in range(3)))

        assert epochs == sorted(set(epochs))
        assert len(epochs) == 3
        watching.cancel()
        await asyncio.wait([watching])
        assert len(seen) == len(set(seen))

    stage.play(story)


def test_a_leader_that_died_is_followed_once_its_lease_has_run_out(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        first, second = await open_(), await open_()
        old = await campaign(first, "leader", b"1", await first.grant(TTL_S_MIN))
        await first.close()

        new = await campaign(second, "leader", b"2", await second.grant(60))

        assert new.epoch > old.epoch
        assert not (await second.txn([old.still], [])).succeeded

    stage.play(story)


def test_a_candidate_whose_lease_is_lost_is_told(stage: Stage) -> None:
    async def story(open_: Open) -> None:
        first, second = await open_(), await open_()
        await campaign(first, "leader", b"1", await first.grant(60))
        lease = await second.grant(60)
        running = asyncio.ensure_future(campaign(second, "leader", b"2", lease))
        await second.get("leader")

        await lease.revoke()

        with pytest.raises(Unavailable, match="lost before 'leader' was won"):
            await running
        with pytest.raises(Unavailable, match="lost before 'leader' was won"):
            await campaign(second, "leader", b"2", lease)

    stage.play(story)
