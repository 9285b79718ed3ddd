"""How much is measured: the same claims from more or from fewer messages."""

from typing import Final

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Sizes of the inputs; a turn is what one contestant does in one round."""

    rounds: int
    messages: int
    """Sent or received in a turn where nobody waits for an fsync; also the backlog's size."""
    syncs: int
    """Syncs in a turn of one sender."""
    group_sends: int
    """Messages that each of 64 senders sends in a turn."""
    puts: int
    """Puts in a turn of another queue; the channel makes ten times as many."""
    growth_messages: int
    folder_bytes: int


FULL: Final = Scale(
    rounds=15,
    messages=100_000,
    syncs=1_000,
    group_sends=300,
    puts=2_000,
    growth_messages=2_000_000,
    folder_bytes=1 << 30,
)
QUICK: Final = Scale(
    rounds=7,
    messages=100_000,
    syncs=500,
    group_sends=150,
    puts=1_000,
    growth_messages=2_000_000,
    folder_bytes=1 << 30,
)
