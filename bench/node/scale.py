"""How much is measured: the same claims from more or from less of everything."""

from typing import Final

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Sizes of the inputs; a turn is what one contestant does in one round."""

    rounds: int
    turn_s: float
    """How long one contestant adds or publishes with many under way."""

    sync_turn_s: float
    """How long one contestant writes small entries one by one."""

    large_adds: int
    """Large entries in a turn. They are counted, since disks have a budget for bursts."""

    tail_entries: int
    """How many entries are read from memory, again and again."""

    stored_bytes: int
    """Payloads that are read from the ledgers' files."""

    stored_rounds: int
    journal_bytes: int
    """Payloads of 4 KiB that a journal holds when the node is killed."""

    journal_entries: int
    """Entries of 100 B that a journal holds when the node is killed."""

    recovery_rounds: int
    ledgers: int
    """What a node holds when it is started with many ledgers."""

    start_rounds: int


FULL: Final = Scale(
    rounds=9,
    turn_s=3.0,
    sync_turn_s=1.0,
    large_adds=256,
    tail_entries=100_000,
    stored_bytes=1 << 30,
    stored_rounds=9,
    journal_bytes=1 << 30,
    journal_entries=3_000_000,
    recovery_rounds=5,
    ledgers=100_000,
    start_rounds=3,
)
QUICK: Final = Scale(
    rounds=3,
    turn_s=1.2,
    sync_turn_s=0.4,
    large_adds=96,
    tail_entries=50_000,
    stored_bytes=1 << 28,
    stored_rounds=3,
    journal_bytes=1 << 28,
    journal_entries=600_000,
    recovery_rounds=3,
    ledgers=100_000,
    start_rounds=1,
)
