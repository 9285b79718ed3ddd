"""A lease in the hands of its holder: one task renews it until it is lost or given up.

The same for all stores, which bring two calls: how to renew, and how to revoke.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from roost.errors import RoostError
from roost.host.clock import Clock
from roost.metadata.operations import LeaseId
from roost.metadata.store import CALL_S
from roost.metadata.term import LeaseTerm

Renew = Callable[[LeaseId, float], Awaitable[float]]
"""Renews a lease, within a time; returns what it has then, 0 if it is gone."""

Revoke = Callable[[LeaseId, float], Awaitable[None]]
"""Ends a lease, within a time."""


class HeldLease:
    """One lease, renewed by a task of its own."""

    def __init__(
        self, lease: LeaseId, term: LeaseTerm, *, renew: Renew, revoke: Revoke, clock: Clock
    ) -> None:
        self._id: Final = lease
        self._term: Final = term
        self._renew: Final = renew
        self._revoke: Final = revoke
        self._clock: Final = clock
        self._over: Final = asyncio.Event()
        self._task: Final = asyncio.get_running_loop().create_task(self._run())

    @property
    def id(self) -> LeaseId:
        """Name it."""
        return self._id

    @property
    def ttl_s(self) -> float:
        """Tell how long the store keeps it."""
        return self._term.ttl_s

    @property
    def lost(self) -> bool:
        """Tell whether it is lost, now: also if our task had no turn for long."""
        return self._term.lost(self._clock.now())

    @property
    def deadline(self) -> float:
        """Tell until when it holds."""
        return self._term.deadline

    async def wait_lost(self) -> None:
        """Wait until it is lost."""
        await self._over.wait()

    async def revoke(self, *, timeout_s: float = CALL_S) -> None:
        """Give it up."""
        self.let_go()
        await self._revoke(self._id, timeout_s)

    def let_go(self) -> None:
        """Renew it no more, and count it as lost."""
        self._term.on_revoked()
        self._over.set()
        self._task.cancel()

    async def ended(self) -> None:
        """Wait until its task has ended, after `let_go`."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        term, now = self._term, self._clock.now
        while not term.lost(now()):
            if (wait_s := term.renew_at - now()) > 0:
                await asyncio.sleep(wait_s)
                continue
            sent_at = now()
            try:
                # The deadline may come while nothing does: it counts without an answer.
                async with asyncio.timeout(term.deadline - sent_at):
                    left_s = await self._renew(self._id, term.deadline - sent_at)
            except (RoostError, TimeoutError):
                term.on_failure(now())
            else:
                term.on_answer(ttl_s=left_s, sent_at=sent_at, now=now())
        self._over.set()


class Leases:
    """The leases that one store object renews."""

    def __init__(self) -> None:
        self._held: Final[dict[HeldLease, None]] = {}

    def add(self, lease: HeldLease) -> None:
        """Note one, and forget those that are over."""
        for each in [each for each in self._held if each.lost]:
            del self._held[each]
        self._held[lease] = None

    async def close(self) -> None:
        """Let all of them go."""
        for lease in self._held:
            lease.let_go()
        for lease in self._held:
            await lease.ended()
        self._held.clear()
