"""Waits, so that copies keep to their pace."""

import asyncio
from typing import Final

from roost.host.clock import Clock
from roost.ledger.pace import Pace


class Throttle:
    """One pace, and whoever keeps to it."""

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self.pace: Final = pace
        self._clock: Final = clock

    async def pay(self, spent_bytes: int) -> None:
        """Wait until so many bytes are worth their time."""
        if (wait_s := self.pace.wait_s(spent_bytes, self._clock.now())) > 0:
            await asyncio.sleep(wait_s)
