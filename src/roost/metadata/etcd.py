"""etcd as a metadata store: `etcd://host:port,host:port/prefix`.

A thin client: gRPC carries bytes, `etcd_messages` makes and reads them, `etcd_errors` says what a
failure means. Three things are what it is for, since others get them wrong:

- A watch goes on behind the last event that was *delivered*; never at the revision that stands in
  an answer's header, which is the store's, and may be ahead of what a watch has told.
- A transaction whose answer was lost is `Unknown`, and is never sent a second time.
- A renewal that is answered without a time means that the lease is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

import grpc
import grpc.aio

from roost.errors import Compacted, NotFound, RoostError, Unavailable
from roost.host.clock import Clock
from roost.metadata import etcd_messages
from roost.metadata.answers import changes_anything, readable
from roost.metadata.etcd_channels import Channels, Credentials
from roost.metadata.etcd_errors import LOG_IN, TooLong, verdict
from roost.metadata.etcd_messages import Keys
from roost.metadata.etcd_watch import RETRY_S, RETRY_S_MAX, EtcdWatch
from roost.metadata.gate import Gate
from roost.metadata.held import HeldLease, Leases
from roost.metadata.operations import (
    PAGE_ITEMS_MAX,
    Compare,
    Get,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Revision,
    check_page,
    check_ttl,
    check_txn,
    check_watch,
)
from roost.metadata.protobuf import Fields, decode, number_of
from roost.metadata.store import CALL_S, Lease, MetadataStore
from roost.metadata.term import LeaseTerm

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 32 << 20
"""The longest answer that is taken; a page that would be longer is asked for in smaller ones."""

SHRINK: Final = 8
"""How many times fewer keys are asked for at once, where a page was too long."""

LEAST_S: Final = 0.001
SHARE: Final = 0.95
"""gRPC's own deadline comes a little before ours, so that we hear which it was."""

_ABOUT_THE_ENDPOINT: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)


class EtcdStore(MetadataStore):
    """The keys of an etcd that lie below a prefix."""

    def __init__(self, channels: Channels, prefix: str, *, clock: Clock) -> None:
        self._channels: Final = channels
        self._keys: Final = Keys(prefix)
        self._clock: Final = clock
        self._gate: Final = Gate()
        self._leases: Final = Leases()
        self._page_max = PAGE_ITEMS_MAX

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        prefix: str,
        *,
        clock: Clock,
        credentials: Credentials | None = None,
        timeout_s: float = CALL_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Self:
        """Connect, log in, and refuse an etcd that is too old; one endpoint that answers is enough.

        Endpoints are `host:port`. All keys are below `prefix`, which is part of no key here.
        """
        channels = Channels(
            endpoints, credentials or Credentials(), answer_bytes_max=answer_bytes_max
        )
        store = cls(channels, prefix, clock=clock)
        try:
            await store._check_versions(timeout_s)
            await store._ask("logging in", timeout_s, channels.log_in, changes=False)
        except BaseException:
            await store.close()
            raise
        return store

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = PAGE_ITEMS_MAX,
        revision: Revision | None = None,
        timeout_s: float = CALL_S,
    ) -> Page:
        """Read a page."""
        check_page(prefix, after, limit, revision)
        while True:
            asked = min(limit, self._page_max)
            request = self._keys.range(prefix, after, asked, revision)
            try:
                answer = await self._unary(
                    etcd_messages.RANGE, request, f"reading {prefix!r}", timeout_s
                )
            except TooLong:
                if asked == 1:
                    raise
                self._page_max = max(1, asked // SHRINK)
                continue
            except Compacted as error:
                # etcd does not say how far; as far as was asked for, at least.
                raise Compacted(str(error), upto=revision or 0) from error
            return self._keys.page(answer, revision)

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float = CALL_S,
    ) -> Outcome:
        """Carry out a transaction."""
        check_txn(compares, then, orelse)
        changes = changes_anything(then, orelse)
        request = self._keys.txn(compares, then, orelse)
        answer = await self._unary(
            etcd_messages.TXN, request, "a transaction", timeout_s, changes=changes
        )
        branch = then if number_of(answer, 2) else orelse
        reads = [isinstance(each, Get) for each in branch]
        return readable(
            partial(self._keys.outcome, answer, reads), "a transaction", changes=changes
        )

    def watch(self, prefix: str, first: Revision) -> "EtcdWatch":
        """Watch some keys."""
        check_watch(prefix, first)
        return EtcdWatch(self._channels, self._keys, prefix, first, store=self._gate)

    async def grant(self, ttl_s: int, *, timeout_s: float = CALL_S) -> Lease:
        """Begin a lease."""
        check_ttl(ttl_s)
        sent_at = self._clock.now()
        request = etcd_messages.lease_grant(ttl_s)
        answer = await self._unary(etcd_messages.GRANT, request, "granting a lease", timeout_s)
        lease, granted_s = etcd_messages.lease_answer(answer)
        term = LeaseTerm(ttl_s=granted_s, sent_at=sent_at)
        held = HeldLease(lease, term, renew=self._renew, revoke=self._revoke, clock=self._clock)
        self._leases.add(held)
        return held

    async def close(self) -> None:
        """End."""
        self._gate.close()
        await self._leases.close()
        await self._channels.close()

    async def _renew(self, lease: LeaseId, timeout_s: float) -> float:
        async def renewed(left_s: float) -> float:
            stream = self._channels.stream(etcd_messages.KEEP_ALIVE, left_s)
            try:
                await stream.write(etcd_messages.lease_request(lease))
                answer = await stream.read()
            finally:
                stream.cancel()
            if answer is grpc.aio.EOF:
                raise Unavailable("etcd ended a renewal without an answer")
            return float(etcd_messages.lease_answer(decode(answer))[1])

        return await self._ask("renewing a lease", timeout_s, renewed, changes=False)

    async def _revoke(self, lease: LeaseId, timeout_s: float) -> None:
        request = etcd_messages.lease_request(lease)
        with suppress(NotFound):
            await self._unary(
                etcd_messages.REVOKE, request, "revoking a lease", timeout_s, changes=True
            )

    async def _check_versions(self, timeout_s: float) -> None:
        """Ask every endpoint for its version until one has answered; what is down is not asked."""
        until = self._clock.now() + timeout_s
        why = ""
        for retry_s in _pauses(1):
            left_s = max(LEAST_S, until - self._clock.now())
            why = await self._ask_versions(left_s / self._channels.count)
            if not why:
                return
            if self._clock.now() + retry_s >= until:
                break
            await asyncio.sleep(retry_s)
        raise Unavailable(
            f"no etcd answers at {', '.join(self._channels.endpoints)}: {why}; look whether it "
            "runs and is reached from here"
        )

    async def _ask_versions(self, timeout_s: float) -> str:
        """Ask each for its version; returns why none has answered, if none has."""
        why, answered = "", False
        for endpoint in self._channels.endpoints:
            try:
                answer = await self._channels.unary(etcd_messages.STATUS, b"", timeout_s)
            except grpc.aio.AioRpcError as error:
                why = f"{error.details()}"
            else:
                etcd_messages.check_version(answer, endpoint)
                answered = True
            self._channels.go_on()
        return "" if answered else why

    async def _unary(
        self, method: str, request: bytes, what: str, timeout_s: float, *, changes: bool = False
    ) -> Fields:
        async def asked(left_s: float) -> Fields:
            raw = await self._channels.unary(method, request, left_s)
            answer = readable(partial(decode, raw), what, changes=changes)
            cluster = readable(partial(etcd_messages.cluster_of, answer), what, changes=changes)
            self._channels.check_cluster(cluster)
            return answer

        return await self._ask(what, timeout_s, asked, changes=changes)

    async def _ask(
        self,
        what: str,
        timeout_s: float,
        call: Callable[[float], Awaitable[T]],
        *,
        changes: bool,
    ) -> T:
        tried = self._try(what, timeout_s, call, changes=changes)
        return await self._gate.ask(tried, what, timeout_s, changes=changes)

    async def _try(
        self,
        what: str,
        timeout_s: float,
        call: Callable[[float], Awaitable[T]],
        *,
        changes: bool,
    ) -> T:
        """Ask one endpoint after the other, as long as that is safe and there is time."""
        until = self._clock.now() + timeout_s
        # A change is sent once; a read has time for each endpoint that does not answer.
        share = SHARE if changes else SHARE / self._channels.count
        told: str | None = None
        for retry_s in _pauses(self._channels.count):
            left_s = max(LEAST_S, until - self._clock.now())
            try:
                return await call(left_s * share)
            except grpc.aio.AioRpcError as error:
                told = error.details()
                why = verdict(error.code().name, str(told), what=what, changes=changes)
                if why == LOG_IN:
                    # Whether it worked shows when we ask again.
                    with suppress(grpc.aio.AioRpcError):
                        await self._channels.log_in(left_s)
                elif error.code() in _ABOUT_THE_ENDPOINT:
                    self._channels.go_on()
                if isinstance(why, RoostError):
                    raise why from error
            if self._clock.now() + retry_s >= until:
                break
            await asyncio.sleep(retry_s)
        raise Unavailable(
            f"{what}: no etcd could be asked at {', '.join(self._channels.endpoints)} ({told}); "
            "nothing was changed"
        )


def _pauses(endpoints: int) -> Iterator[float]:
    """Tell how long to wait after each failure: none until all have been asked, then longer."""
    retry_s = RETRY_S
    while True:
        yield from [0.0] * (endpoints - 1)
        yield retry_s
        retry_s = min(2 * retry_s, RETRY_S_MAX)
