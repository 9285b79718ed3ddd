"""Bugs to plant in nodes that copy from each other, or do not sync; see `tests.power.bugs`."""

from struct import Struct
from typing import Any, Final

import pytest

from roost.errors import RoostError
from roost.journal.service import Journal
from roost.node import client, reading
from roost.node.index import Plan, plan
from roost.node.known import Known
from roost.node.peer import _Copy, _Group
from roost.node.store import Store
from roost.node.unsynced import Unsynced
from roost.types import EntryId
from roost.wire.entry import HEAD_BYTES
from tests.power.bugs import Bug

Patch = pytest.MonkeyPatch
# The length, the ledger and the entry, as they stand in a block from its 8th byte on.
_HEAD: Final = Struct("<IQQ")


# Copies


def copies_count_before_they_are_durable(patch: Patch) -> None:
    """An entry counts as copied when it was handed to the journal."""

    async def wait(_self: Any) -> None:
        return

    patch.setattr(_Group, "wait", wait)


def refused_copies_count(patch: Patch) -> None:
    """An entry that this node refused counts as copied."""
    real = _Group.refused

    def refused(self: Any, tag: int, error: RoostError) -> None:
        real(self, tag, error)
        self._error = None

    patch.setattr(_Group, "refused", refused)


def bytes_of_a_source_are_trusted(patch: Patch) -> None:
    """Neither the source nor who copies from it looks at checksums; the copy gets a good one."""

    def trusting(blob: bytes, _ledger: int, _first: int, _before: int) -> dict[int, memoryview]:
        view, at = memoryview(blob), 0
        found = {}
        while at < len(view):
            size, _, entry = _HEAD.unpack_from(view, at + 8)
            found[entry] = view[at + HEAD_BYTES : at + HEAD_BYTES + size]
            at += HEAD_BYTES + size
        return found

    patch.setattr(reading, "holds", lambda *_: True)
    patch.setattr(client, "payloads", trusting)


def an_interrupted_copy_is_done(patch: Patch) -> None:
    """What was not copied when a source failed is not wanted any more."""
    real = _Copy.copy_from

    async def copy_from(self: Any, source: Any) -> None:
        try:
            await real(self, source)
        except BaseException:
            self._wanted = []
            raise

    patch.setattr(_Copy, "copy_from", copy_from)


def what_one_source_lacks_is_done(patch: Patch) -> None:
    """An entry that one source does not have is not wanted any more."""
    real = _Copy._copy_piece

    async def piece(self: Any, source: Any, first: Any, before: Any, missing: set[Any]) -> None:
        await real(self, source, first, before, missing)
        missing.clear()

    patch.setattr(_Copy, "_copy_piece", piece)


# What is not synced


def nothing_is_noted(patch: Patch) -> None:
    """The folder does not tell that there are entries which are not synced."""
    patch.setattr(Unsynced, "settle", lambda _self, **_: None)


def a_loss_of_power_is_not_noticed(patch: Patch) -> None:
    """A node that comes up on another run of its machine takes it for the same one."""
    patch.setattr(Unsynced, "lost_power", lambda _self: False)


def noted_before_the_checkpoint(patch: Patch) -> None:
    """What was learned of a loss of power is forgotten with the next crash."""
    real = Store._say_whether_synced

    async def say(self: Any, worker: Any, *, lost_power: bool) -> None:
        await real(self, worker, lost_power=lost_power and False)

    patch.setattr(Store, "_say_whether_synced", say)


def known_ledgers_distrusted_only(patch: Patch) -> None:
    """After a loss of power a ledger that is not known is not there."""

    def distrust(self: Any) -> None:
        for ledger in self.ledgers.values():
            self.distrust_one(ledger)

    patch.setattr(Known, "distrust", distrust)


def ends_not_synced(patch: Patch) -> None:
    """Fences, closes and deletions are as durable as adds."""
    patch.setattr(Journal, "demand_sync", lambda _self: None)


def synced_once(patch: Patch) -> None:
    """The timer of the syncs is never wound up again."""

    def due(self: Any) -> None:
        self._sync_due = True
        self._wake()

    patch.setattr(Journal, "_on_sync_due", due)


def flushes_that_do_not_count_are_read(patch: Patch) -> None:
    """A slot is believed wherever in the log it points to."""

    def anywhere(slots: bytes, first: EntryId, *, bytes_max: int, log_end: int) -> Plan:
        return plan(slots, first, bytes_max=bytes_max, log_end=log_end + (1 << 40))

    patch.setattr(reading, "plan", anywhere)


BUGS: Final = [
    Bug("copies count before they are durable", copies_count_before_they_are_durable, 100),
    Bug("refused copies count", refused_copies_count, 400),
    Bug("bytes of a source are trusted", bytes_of_a_source_are_trusted, 400),
    Bug("an interrupted copy is done", an_interrupted_copy_is_done, 100),
    Bug("what one source lacks is done", what_one_source_lacks_is_done, 100),
    Bug("nothing is noted", nothing_is_noted, 100),
    Bug("a loss of power is not noticed", a_loss_of_power_is_not_noticed, 100),
    Bug("noted before the checkpoint", noted_before_the_checkpoint, 800),
    Bug("known ledgers distrusted only", known_ledgers_distrusted_only, 400),
    Bug("ends not synced", ends_not_synced, 200),
    Bug("synced once", synced_once, 200),
    Bug("flushes that do not count are read", flushes_that_do_not_count_are_read, 600),
]
