"""The file of an embedded metadata store: its versions and leases, in SQLite.

One table holds every version of every key that is not forgotten, in the order in which they came to
be; the store is what one gets by reading it from the beginning. Each row carries a checksum, since
SQLite's pages have none. The tables are in docs/formats/metadata.md.

Every method blocks, the writing ones for a sync: they are called on a worker. The promise: what
`commit` was given is there, all of it, once it has returned, whatever happens to the process or to
the power; and if it raises, none of it is.
"""

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

import msgspec

from roost.errors import Corrupt, Invalid, NoRoom, RoostError, Unavailable
from roost.metadata.operations import Event, Item, LeaseId, Revision
from roost.wire.checksum import crc32

NAME: Final = "metadata.sqlite"
FORMAT: Final = 1

_TABLES: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (lease INTEGER PRIMARY KEY, ttl_s INTEGER NOT NULL);
CREATE TABLE versions (
    revision INTEGER NOT NULL,
    place INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB,
    created INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    crc32 INTEGER NOT NULL,
    PRIMARY KEY (revision, place)
);
CREATE INDEX of_key ON versions (key, revision);
"""

# Of each key its last version of then stays, if it was one and no deletion.
_FORGET: Final = """
DELETE FROM versions WHERE revision <= :upto AND (value IS NULL OR EXISTS (
    SELECT 1 FROM versions AS later
    WHERE later.key = versions.key AND later.revision > versions.revision
    AND later.revision <= :upto))
"""

_NUMBERS: Final = Struct("<qqqqq?")
_COUNTS: Final = ("format", "revision", "compacted")
_UUID: Final = re.compile(r"[0-9a-f]{32}")


class Loaded(msgspec.Struct, frozen=True):
    """What a file holds."""

    uuid: bytes
    """Drawn when the file was made: another file is another store."""

    events: Sequence[Event]
    revision: Revision
    compacted: Revision
    leases: Mapping[LeaseId, int]
    """Each with the seconds that it lasts after a renewal."""


class Pending(msgspec.Struct, frozen=True):
    """What is to become durable, all together."""

    events: Sequence[Event]
    revision: Revision
    compacted: Revision
    """Forget up to there."""

    granted: Mapping[LeaseId, int]
    ended: Collection[LeaseId]


class Database:
    """One open file."""

    def __init__(self, folder: Path) -> None:
        self._path: Final = folder / NAME
        self._compacted = Revision(0)
        with self._telling():
            # Several threads, one after the other: who opens it, and the worker.
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=1.0
            )

    def load(self, *, uuid: bytes) -> Loaded:
        """Read everything, and check it; a new file is made first, with this uuid."""
        with self._telling():
            run = self._connection.execute
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
            if not run("SELECT 1 FROM sqlite_master").fetchone():
                self._make(uuid)
            if (told := run("PRAGMA quick_check").fetchone()[0]) != "ok":
                raise self._corrupt(str(told))
            facts = dict(run("SELECT name, value FROM facts").fetchall())
            self._check(facts)
            self._compacted = facts["compacted"]
            leases = dict(run("SELECT lease, ttl_s FROM leases ORDER BY lease").fetchall())
            events = [*self._read()]
            if events and events[-1].revision > facts["revision"]:
                raise self._corrupt(f"its revision {facts['revision']} is behind its last version")
            made = bytes.fromhex(facts["uuid"])
            return Loaded(made, events, facts["revision"], self._compacted, leases)

    def commit(self, pending: Pending) -> None:
        """Make it durable."""
        with self._telling():
            run, run_each = self._connection.execute, self._connection.executemany
            run("BEGIN IMMEDIATE")
            try:
                run_each("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _rows(pending))
                run_each("INSERT INTO leases VALUES (?, ?)", pending.granted.items())
                run_each("DELETE FROM leases WHERE lease = ?", [(each,) for each in pending.ended])
                if pending.compacted > self._compacted:
                    run(_FORGET, {"upto": pending.compacted})
                run_each(
                    "UPDATE facts SET value = ? WHERE name = ?",
                    [(pending.revision, "revision"), (pending.compacted, "compacted")],
                )
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise
            self._compacted = pending.compacted

    def close(self) -> None:
        """Let go of the file."""
        with self._telling():
            self._connection.close()

    def _make(self, uuid: bytes) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            run(statement)
        facts = [*((name, FORMAT if name == "format" else 0) for name in _COUNTS)]
        self._connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
        run("INSERT INTO facts VALUES ('uuid', ?)", (uuid.hex(),))
        run("COMMIT")

    def _check(self, facts: Mapping[str, Any]) -> None:
        if missing := [name for name in _COUNTS if not isinstance(facts.get(name), int)]:
            raise self._corrupt(f"it does not tell its {missing[0]}")
        if not _UUID.fullmatch(str(facts.get("uuid"))):
            raise self._corrupt("it does not tell its uuid")
        if facts["format"] > FORMAT:
            raise Invalid(
                f"{self._path} has format {facts['format']}, and this version of Roost reads up "
                f"to {FORMAT}: use the version that wrote it, or a newer one"
            )

    def _read(self) -> Iterator[Event]:
        for row in self._connection.execute("SELECT * FROM versions ORDER BY revision, place"):
            revision, place, key, value, created, version, lease, crc = row
            item = None if value is None else Item(key, value, created, revision, version, lease)
            event = Event(key, revision, item)
            if crc != _crc(event, place):
                raise self._corrupt(f"key {key!r} of revision {revision} has another checksum")
            yield event

    def _telling(self) -> "_Telling":
        return _Telling(self._path)

    def _corrupt(self, why: str) -> Corrupt:
        return corrupt(self._path, why)


class _Telling:
    """Says what SQLite had to say in our own words."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise _told(self._path, error) from error


def corrupt(path: Path, why: str) -> Corrupt:
    """Say that a file is damaged."""
    return Corrupt(
        f"{path} is damaged: {why}. Nothing was changed; bring it back from a copy.",
        file=str(path),
        offset=0,
    )


def _told(path: Path, error: sqlite3.Error) -> RoostError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A table that is not there is SQLITE_ERROR, as any statement that does not fit the file.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return corrupt(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return NoRoom(f"{path} cannot be written, since its disk is full: {error}")
    return Unavailable(f"{path} cannot be used: {error}")


def _rows(pending: Pending) -> Iterator[tuple[object, ...]]:
    revision, place = Revision(0), 0
    for event in pending.events:
        place = place + 1 if event.revision == revision else 0
        revision = event.revision
        value = None if event.item is None else event.item.value
        numbers = _numbers(event)
        yield (revision, place, event.key, value, *numbers, _crc(event, place))


def _numbers(event: Event) -> tuple[int, int, int]:
    item = event.item
    return (0, 0, 0) if item is None else (item.created, item.version, item.lease)


def _crc(event: Event, place: int) -> int:
    """Compute what stands in the last column, from all others."""
    value = b"" if event.item is None else event.item.value
    head = _NUMBERS.pack(event.revision, place, *_numbers(event), event.item is None)
    return crc32(value, crc32(event.key.encode(), crc32(head)))
