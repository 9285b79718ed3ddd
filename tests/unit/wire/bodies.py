"""One example of each body, and the largest that there can be of those that are lists."""

from typing import Any

from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import ENTRY_ID_MAX, LEDGER_ID_MAX
from roost.wire.messages import (
    BAD_ENTRIES_MAX,
    LEDGERS_MAX,
    SUSPECTS_MAX,
    Close,
    Confirm,
    Delete,
    Entries,
    Fence,
    Hello,
    Ledgers,
    LedgerState,
    List,
    NodeStat,
    Place,
    Placed,
    Read,
    State,
    Verify,
    VerifyReport,
    Welcome,
)

L, E, T = LedgerId, EntryId, Epoch
UUID = bytes(range(16))
INT_MAX = 2**63 - 1

STATE = LedgerState(
    ledger=L(7),
    epoch=T(3),
    fenced=None,
    last=None,
    lac=E(40),
    highest=E(41),
    entries=42,
    bytes=4200,
    flushed_before=1 << 33,
    flushed_at=1.5e9,
    suspect=False,
)
STAT = NodeStat(
    node="node-1",
    cluster="test",
    uuid=UUID,
    version="0.1.0",
    health="",
    readonly="the disk is full",
    sync="always",
    uptime_s=12.5,
    ledgers=2,
    memory_bytes=1000,
    journal_kept_bytes=1 << 26,
    journal_queued_bytes=0,
    journal_tail=5000,
    journal_durable=4000,
    free_bytes=1 << 40,
    counters={"adds": 42, "syncs": 7},
)

EXAMPLES: tuple[Any, ...] = (
    Hello(version=1, cluster="test", role="client", name="me"),
    Welcome(version=1, cluster="test", node="node-1", uuid=UUID, frame_bytes_max=1 << 24),
    Read(ledger=L(7), first=E(0), upto=E(9), bytes_max=1 << 20, fence=T(4), wait_s=0.5, lac=E(-1)),
    Entries(first=E(0), before=E(10), lac=E(9), last=E(9), fenced=T(4), suspects=[E(3)]),
    State(ledger=L(7)),
    Fence(ledger=L(7), epoch=T(4)),
    Close(ledger=L(7), last=E(-1)),
    Place(ledger=L(7), epoch=T(3), first=E(0), upto=E(9), sources=["node-2:4000"]),
    Placed(ledger=L(7), entries=9, bytes=900, missing=[E(3)], missing_total=1),
    Delete(ledger=L(7)),
    List(after=L(6), limit=100),
    Ledgers(states=[STATE]),
    STATE,
    STAT,
    Verify(ledger=L(7)),
    Confirm(ledger=L(7), epoch=T(3), lac=E(-1)),
    VerifyReport(ledger=L(7), entries=42, bytes=4200, bad=[E(3)], bad_total=1, complete=True),
)

LARGEST_STATE = LedgerState(
    ledger=L(LEDGER_ID_MAX),
    epoch=T(INT_MAX),
    fenced=T(INT_MAX),
    last=E(ENTRY_ID_MAX),
    lac=E(ENTRY_ID_MAX),
    highest=E(ENTRY_ID_MAX),
    entries=INT_MAX,
    bytes=INT_MAX,
    flushed_before=INT_MAX,
    flushed_at=1.5e9,
    suspect=True,
)
LARGEST_IDS = [E(ENTRY_ID_MAX)]
LARGEST: tuple[Any, ...] = (
    Ledgers(states=[LARGEST_STATE] * LEDGERS_MAX),
    Entries(
        first=E(ENTRY_ID_MAX),
        before=E(ENTRY_ID_MAX + 1),
        lac=E(ENTRY_ID_MAX),
        last=E(ENTRY_ID_MAX),
        fenced=T(INT_MAX),
        suspects=LARGEST_IDS * SUSPECTS_MAX,
    ),
    VerifyReport(
        ledger=L(LEDGER_ID_MAX),
        entries=INT_MAX,
        bytes=INT_MAX,
        bad=LARGEST_IDS * BAD_ENTRIES_MAX,
        bad_total=INT_MAX,
        complete=True,
    ),
    Placed(
        ledger=L(LEDGER_ID_MAX),
        entries=INT_MAX,
        bytes=INT_MAX,
        missing=LARGEST_IDS * BAD_ENTRIES_MAX,
        missing_total=INT_MAX,
    ),
)
