"""How much is measured: the same claims from more or from fewer messages."""

from typing import Final

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Sizes of the inputs; a turn is what one contestant does in one round."""

    rounds: int
    messages: int
    """Sent or received in a turn where nobody waits for an fsync; also the backlog's size."""
    sync_turn_s: float
    """How long one sender syncs in a turn: disks differ more than processors do."""
    syncs_min: int
    puts: int
    """Puts in a turn of another queue; the channel makes a hundred times as many."""
    growth_messages: int
    folder_bytes: int


FULL: Final = Scale(
    rounds=15,
    messages=100_000,
    sync_turn_s=0.1,
    syncs_min=100,
    puts=1_000,
    growth_messages=2_000_000,
    folder_bytes=1 << 30,
)
QUICK: Final = Scale(
    rounds=7,
    messages=100_000,
    sync_turn_s=0.1,
    syncs_min=100,
    puts=200,
    growth_messages=2_000_000,
    folder_bytes=1 << 30,
)
