"""How much is measured: the same claims from more or from less of everything."""

from typing import Final

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Sizes of the inputs; a turn is what one contestant does in one round."""

    rounds: int
    turn_s: float
    """How long one contestant appends or publishes with many under way."""

    sync_rounds: int
    sync_turn_s: float
    """How long one contestant appends one by one."""

    kills: int
    between_kills_s: float
    unconfirmed: int
    """Entries of a ledger that is recovered, of which nobody knows whether they were confirmed."""

    recovery_rounds: int
    repaired_bytes: int
    """Payloads of a ledger that is repaired."""

    repair_rounds: int
    amplified_bytes: int
    """Payloads that are appended while all that is written is counted."""


FULL: Final = Scale(
    rounds=7,
    turn_s=3.0,
    sync_rounds=7,
    sync_turn_s=3.0,
    kills=5,
    between_kills_s=2.0,
    unconfirmed=10_000,
    recovery_rounds=5,
    repaired_bytes=1 << 28,
    repair_rounds=5,
    amplified_bytes=1 << 29,
)
QUICK: Final = Scale(
    rounds=3,
    turn_s=1.5,
    sync_rounds=3,
    sync_turn_s=1.0,
    kills=5,
    between_kills_s=1.0,
    unconfirmed=10_000,
    recovery_rounds=3,
    repaired_bytes=1 << 27,
    repair_rounds=3,
    amplified_bytes=1 << 27,
)
