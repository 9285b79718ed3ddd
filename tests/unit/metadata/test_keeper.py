"""The embedded store: what its folder keeps over lives, and what it says when it cannot."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.cli.machine import seams
from roost.errors import (
    Closed,
    Compacted,
    Corrupt,
    Invalid,
    NotFound,
    RoostError,
    Unavailable,
    Unknown,
)
from roost.host.log import Memory
from roost.metadata.database import NAME
from roost.metadata.keeper import Keeper
from roost.metadata.operations import Batch, Delete, Event, Get, LeaseId, Put, Revision
from tests.unit.host.hand import Hand

Story = Callable[[Keeper], Awaitable[None]]


def live(
    folder: Path,
    story: Story,
    *,
    keep_leases: bool = False,
    history_max: int = 100,
    log: Memory | None = None,
) -> None:
    """Open a folder, play, and close it."""

    async def main() -> None:
        keeper = await Keeper.open(
            folder,
            seams=seams(),
            log=log or Memory(),
            holder="test",
            keep_leases=keep_leases,
            history_max=history_max,
        )
        try:
            async with asyncio.timeout(30):
                await story(keeper)
        finally:
            await keeper.close()

    asyncio.run(main())


async def put(keeper: Keeper, key: str, value: bytes = b"", lease: int = 0) -> Revision:
    """Put a key."""
    return (await keeper.txn((), [Put(key, value, LeaseId(lease))], ())).revision


async def values(keeper: Keeper, revision: int | None = None) -> dict[str, bytes]:
    """Read everything."""
    at = None if revision is None else Revision(revision)
    page = await keeper.page("", after="", limit=1000, revision=at)
    return {item.key: item.value for item in page.items}


def damage(folder: Path, statement: str) -> None:
    """Change the file behind the store's back."""
    connection = sqlite3.connect(folder / NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def look(keeper: Keeper, first: int) -> list[Event]:
    """Read all events that are there, from a revision on."""
    events: list[Event] = []
    while isinstance(found := keeper.look("", Revision(first)), Batch):
        events += found.events
        first = found.revision + 1
    return events


def test_everything_is_there_in_the_next_life_history_and_revisions_too(tmp_path: Path) -> None:
    seen: list[Event] = []

    async def first(keeper: Keeper) -> None:
        await put(keeper, "a", b"1")
        await put(keeper, "b", bytes(100_000))
        await keeper.txn((), [Put("a", b"2"), Delete("b"), Put("ä", b"")], ())
        seen.extend(await look(keeper, 1))

    async def second(keeper: Keeper) -> None:
        assert keeper.revision == 3
        assert await look(keeper, 1) == seen
        assert await values(keeper) == {"a": b"2", "ä": b""}
        assert await values(keeper, 2) == {"a": b"1", "b": bytes(100_000)}
        assert await put(keeper, "c") == 4

    live(tmp_path / "new" / "folder", first)
    live(tmp_path / "new" / "folder", second)


def test_leases_of_the_process_before_end_with_it(tmp_path: Path) -> None:
    async def first(keeper: Keeper) -> None:
        lease = await keeper.grant(3600)
        await put(keeper, "a", b"", lease)
        await put(keeper, "b")

    async def second(keeper: Keeper) -> None:
        assert list(await values(keeper)) == ["b"]
        assert (await look(keeper, 3))[0].item is None

    live(tmp_path, first)
    live(tmp_path, second)
    live(tmp_path, second)


def test_leases_that_are_kept_begin_anew(tmp_path: Path) -> None:
    leases: list[LeaseId] = []

    async def first(keeper: Keeper) -> None:
        leases.extend([await keeper.grant(3600), await keeper.grant(3600)])
        await put(keeper, "a", b"", leases[0])
        await put(keeper, "b", b"", leases[1])
        await keeper.revoke(leases[1])

    async def second(keeper: Keeper) -> None:
        assert list(await values(keeper)) == ["a"]
        assert await keeper.renew(leases[0]) == 3600
        assert await keeper.renew(leases[1]) == 0
        await keeper.revoke(leases[0])
        assert await values(keeper) == {}

    live(tmp_path, first, keep_leases=True)
    live(tmp_path, second, keep_leases=True)


def test_history_is_bounded_and_the_file_forgets_with_it(tmp_path: Path) -> None:
    async def story(keeper: Keeper) -> None:
        for number in range(60):
            await put(keeper, f"k{number % 3}", b"%d" % number)
        await keeper.txn((), [Delete("k0")], ())
        for number in range(60):
            await put(keeper, f"m{number % 3}", b"%d" % number)
        with pytest.raises(Compacted) as forgotten:
            keeper.look("", Revision(1))
        assert 60 < forgotten.value.upto < 121

    async def again(keeper: Keeper) -> None:
        assert set(await values(keeper)) == {"k1", "k2", "m0", "m1", "m2"}
        with pytest.raises(Compacted):
            keeper.look("", Revision(60))
        assert len(await look(keeper, 115)) == 7

    live(tmp_path, story, history_max=20)
    rows = sqlite3.connect(tmp_path / NAME).execute("SELECT count(*) FROM versions").fetchone()[0]
    live(tmp_path, again)

    assert rows < 40


def test_one_process_has_a_folder_at_a_time(tmp_path: Path) -> None:
    async def story(keeper: Keeper) -> None:
        del keeper
        with pytest.raises(Unavailable, match="is in use by test"):
            await Keeper.open(
                tmp_path, seams=seams(), log=Memory(), holder="other", keep_leases=False
            )

    live(tmp_path, story)


@pytest.mark.parametrize(
    ("statement", "kind", "why"),
    [
        ("UPDATE versions SET value = x'00'", Corrupt, "key 'a' of revision 1 has another"),
        ("UPDATE versions SET version = 7", Corrupt, "another checksum"),
        ("DELETE FROM facts WHERE name = 'revision'", Corrupt, "does not tell its revision"),
        ("UPDATE facts SET value = 'x' WHERE name = 'uuid'", Corrupt, "uuid"),
        ("UPDATE facts SET value = 2 WHERE name = 'format'", Invalid, "reads up to 1"),
        ("UPDATE facts SET value = 0 WHERE name = 'revision'", Corrupt, "behind its last"),
        ("DROP TABLE leases", Corrupt, "no such table"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, statement: str, kind: type[RoostError], why: str
) -> None:
    async def first(keeper: Keeper) -> None:
        await put(keeper, "a", b"1")

    async def second(keeper: Keeper) -> None:
        del keeper

    live(tmp_path, first)
    damage(tmp_path, statement)

    with pytest.raises(kind, match=why):
        live(tmp_path, second)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"something else entirely" * 100)

    async def story(keeper: Keeper) -> None:
        del keeper

    with pytest.raises(Corrupt, match="is damaged: file is not a database"):
        live(tmp_path, story)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def story(keeper: Keeper) -> None:
        del keeper

    with pytest.raises(Unavailable, match="cannot be used for metadata"):
        live(tmp_path / "file", story)


def test_a_write_that_fails_ends_the_keeper_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    log = Memory()

    async def story(keeper: Keeper) -> None:
        await put(keeper, "a", b"1")
        locked = sqlite3.connect(tmp_path / NAME, isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")
        ask: list[Any] = [
            put(keeper, "a", b"2"),
            keeper.txn((), [Get("a")], ()),
            keeper.grant(60),
            keeper.news(),
        ]

        outcomes = await asyncio.gather(*ask, return_exceptions=True)

        locked.close()
        assert [type(each) for each in outcomes] == [Unknown, Unavailable, Unknown, type(None)]
        assert keeper.failed.is_set()
        with pytest.raises(Unavailable, match="must be opened again"):
            await put(keeper, "a", b"3")
        with pytest.raises(Unavailable, match="must be opened again"):
            keeper.look("", Revision(1))

    async def again(keeper: Keeper) -> None:
        assert await values(keeper) == {"a": b"1"}

    live(tmp_path, story, log=log)
    live(tmp_path, again)

    assert log.names == ["metadata_opened", "metadata_failed"]


def test_a_keeper_that_stood_still_lets_no_lease_run_out_for_it(tmp_path: Path) -> None:
    clock, log = Hand(), Memory()

    async def main() -> None:
        keeper = await Keeper.open(
            tmp_path,
            seams=msgspec.structs.replace(seams(), clock=clock),
            log=log,
            holder="test",
            keep_leases=False,
        )
        lease = await keeper.grant(2)
        await put(keeper, "a", b"", lease)
        clock.now_s += 100.0  # and nothing that anybody sent was looked at
        await keeper.grant(60)
        assert await keeper.renew(lease) == 2
        assert await values(keeper) == {"a": b""}
        clock.now_s += 2.5
        await keeper.grant(60)
        assert await keeper.renew(lease) == 0
        assert await values(keeper) == {}
        await keeper.close()

    asyncio.run(main())

    assert "metadata_stalled" in log.names


def test_many_changes_share_a_sync(tmp_path: Path) -> None:
    async def story(keeper: Keeper) -> None:
        revisions = await asyncio.gather(*(put(keeper, f"k{number}") for number in range(100)))

        assert revisions == list(range(1, 101))
        assert len(await values(keeper)) == 100

    live(tmp_path, story, history_max=1000)


def test_a_closed_keeper_says_so(tmp_path: Path) -> None:
    kept: list[Keeper] = []

    async def story(keeper: Keeper) -> None:
        kept.append(keeper)
        waiting = asyncio.ensure_future(keeper.news())
        late = asyncio.ensure_future(put(keeper, "late"))
        await put(keeper, "a")
        await keeper.close()
        await waiting
        assert await late == 2
        with pytest.raises(Closed):
            await put(keeper, "a")

    async def again(keeper: Keeper) -> None:
        assert set(await values(keeper)) == {"a", "late"}

    live(tmp_path, story)
    live(tmp_path, again)


def test_nothing_is_put_with_a_lease_that_nobody_granted(tmp_path: Path) -> None:
    async def story(keeper: Keeper) -> None:
        with pytest.raises(NotFound):
            await put(keeper, "a", b"", 7)

    live(tmp_path, story)
