"""When the loop may wait for a sync itself."""

from typing import Any

import msgspec
import pytest

from roost.journal.alone import ALONE_BYTES, Alone
from roost.journal.header import Header
from roost.journal.plan import Group, JournalSettings, Part
from roost.types import Position

SETTINGS = JournalSettings(quick_s=0.001)
PART = Part(number=1, header=None, offset=64, begin=Position(0), end=Position(100), pieces=[])
GROUP = Group(parts=(PART,), items=["one"], upto=Position(100))
HEADER = Header(uuid=bytes(16), number=2, begin=Position(0), nonce=7, synced_before=Position(0))


def test_it_is_not_known_before_the_first_sync() -> None:
    alone = Alone(SETTINGS)

    assert not alone.allows(GROUP)
    alone.synced(0.001)
    assert alone.allows(GROUP)


def test_a_slow_sync_ends_it_and_a_quick_one_brings_it_back() -> None:
    alone = Alone(SETTINGS)

    alone.synced(0.0011)
    assert not alone.allows(GROUP)
    alone.synced(0.0001)
    assert alone.allows(GROUP)


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_what_is_not_synced_is_never_waited_for(sync: Any) -> None:
    alone = Alone(msgspec.structs.replace(SETTINGS, sync=sync))
    alone.synced(0.0)

    assert not alone.allows(GROUP)


@pytest.mark.parametrize(
    "group",
    [
        Group(parts=(PART,), items=["one", "two"], upto=Position(100)),
        Group(parts=(), items=["one"], upto=Position(100)),
        Group(parts=(PART, PART), items=["one"], upto=Position(100)),
        Group(
            parts=(msgspec.structs.replace(PART, header=HEADER),), items=[""], upto=Position(100)
        ),
        Group(
            parts=(msgspec.structs.replace(PART, end=Position(ALONE_BYTES + 1)),),
            items=["one"],
            upto=Position(ALONE_BYTES + 1),
        ),
    ],
)
def test_only_one_small_record_in_the_present_segment_is_alone(group: Group) -> None:
    alone = Alone(SETTINGS)
    alone.synced(0.0)

    assert not alone.allows(group)
