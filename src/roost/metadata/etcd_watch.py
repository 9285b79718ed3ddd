"""A watch of an etcd's keys: over one stream, or over several, one after the other.

A task of its own reads, so that giving up waiting for a batch does not end the stream; it reads no
further once some batches wait for their reader, and etcd then keeps what follows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, Self

import grpc.aio

from roost.errors import Compacted, Denied, Retryable, RoostError, Unavailable
from roost.metadata import etcd_messages
from roost.metadata.answers import readable
from roost.metadata.etcd_channels import Channels
from roost.metadata.etcd_errors import LOG_IN, verdict
from roost.metadata.etcd_messages import Keys, Watched
from roost.metadata.gate import Gate
from roost.metadata.operations import Batch, Event, Revision
from roost.metadata.protobuf import decode
from roost.metadata.store import CALL_S

BATCHES_MAX: Final = 4
"""How many batches wait for their reader before no more are read."""

RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 2.0

_ASKS: Final = "a watch"


class EtcdWatch:
    """The changes of some keys."""

    def __init__(
        self, channels: Channels, keys: Keys, prefix: str, first: Revision, *, store: Gate
    ) -> None:
        self._channels: Final = channels
        self._keys: Final = keys
        self._prefix: Final = prefix
        self._gate: Final = Gate(store)
        # The reader's: from where it goes on.
        self._first = first
        self._batches: Final[deque[Batch]] = deque()
        self._why_over: RoostError | None = None
        self._news: Final = asyncio.Event()
        self._room: Final = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._reader is None and not self._gate.is_closed:
            self._reader = asyncio.get_running_loop().create_task(self._read())
        while self._gate.is_closed or not self._batches:
            if self._why_over is not None and not self._batches:
                raise self._why_over
            self._news.clear()
            await self._gate.wait(self._news.wait())
        # Nothing waits from here on, so that no batch is taken and lost.
        self._room.set()
        return self._batches.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Watch no more."""
        self._gate.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        """Read, over as many streams as it takes, until history is forgotten or we may not."""
        retry_s = RETRY_S
        while not self._gate.is_closed:
            try:
                async with aclosing(self._stream()) as batches:
                    async for batch in batches:
                        retry_s = RETRY_S
                        await self._keep(batch)
            except Retryable:
                self._channels.go_on()
            except RoostError as error:
                self._why_over = error
                self._news.set()
                return
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX)

    async def _keep(self, batch: Batch) -> None:
        """Keep a batch until it is asked for, once there is room."""
        while len(self._batches) >= BATCHES_MAX:
            self._room.clear()
            await self._room.wait()
        self._batches.append(batch)
        self._first = Revision(batch.revision + 1)
        self._news.set()

    async def _stream(self) -> AsyncGenerator[Batch, None]:
        """Read one stream to its end, from where the one before has ended."""
        stream = self._channels.stream(etcd_messages.WATCH)
        pending: list[Event] = []
        try:
            await stream.write(self._keys.watch(self._prefix, self._first))
            while (answer := await stream.read()) is not grpc.aio.EOF:
                watched = readable(partial(self._watched, answer), _ASKS, changes=False)
                self._check(watched)
                pending += watched.events
                # What comes in fragments is one, since a revision is never divided.
                if pending and not watched.fragment:
                    yield Batch(pending)
                    pending = []
        except grpc.aio.AioRpcError as error:
            await self._on_error(error.code().name, str(error.details()))
        finally:
            stream.cancel()

    def _watched(self, answer: bytes) -> Watched:
        return self._keys.watched(decode(answer))

    def _check(self, watched: Watched) -> None:
        self._channels.check_cluster(watched.cluster)
        if watched.compacted:
            raise Compacted(
                f"what happened in revision {self._first} is forgotten, as is all up to "
                f"{watched.compacted}: list {self._prefix!r} again, and watch behind that",
                upto=watched.compacted,
            )
        if watched.canceled and "permission denied" in watched.reason:
            raise Denied(f"etcd does not let us watch {self._prefix!r}: {watched.reason}")
        if watched.canceled:
            raise Unavailable(f"etcd ended a watch: {watched.reason}")
        if watched.events and watched.events[0].revision < self._first:
            raise Unavailable(f"etcd told of the past where {self._first} was to come")

    async def _on_error(self, code: str, details: str) -> None:
        why = verdict(code, details, what=_ASKS, changes=False)
        if why == LOG_IN:
            with suppress(grpc.aio.AioRpcError):
                await self._channels.log_in(CALL_S)
        if isinstance(why, RoostError):
            raise why
        raise Unavailable(f"a watch was lost ({details})")
