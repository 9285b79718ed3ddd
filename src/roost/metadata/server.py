"""A served store, from its start to its end: `roost meta`.

It takes its folder, listens, and serves until it is told to stop or its store fails. The promise: a
process that ends in either way leaves what it acknowledged, and who starts it again has it. Leases
live on over a restart, and begin anew: their holders live elsewhere.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from roost.errors import Unavailable
from roost.host.log import Log
from roost.host.net import Address
from roost.host.seams import Seams
from roost.metadata.keeper import HISTORY_EVENTS, Keeper
from roost.metadata.service import MetadataService, authorize
from roost.rpc.limits import Limits
from roost.rpc.server import Server
from roost.wire.messages import PROTOCOL_VERSION, Welcome

NAME: Final = "metadata"
"""What the server calls itself, where a node would say its id."""

Serving = Callable[[Keeper, Address], None]
"""Hears what is served, and where."""


class MetaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is served."""

    data: Path
    listen: Address
    limits: Limits = Limits()
    history_max: int = HISTORY_EVENTS
    drain_s: float = 5.0


async def run_meta(
    settings: MetaSettings,
    *,
    seams: Seams,
    log: Log,
    holder: str,
    stop: asyncio.Event,
    serving: Serving,
) -> None:
    """Serve a store until told to stop; `serving` is called once it takes requests."""
    keeper = await Keeper.open(
        settings.data,
        seams=seams,
        log=log,
        holder=holder,
        keep_leases=True,
        history_max=settings.history_max,
    )
    try:
        await _serve(settings, keeper, seams=seams, log=log, stop=stop, serving=serving)
    finally:
        await keeper.close()
    log.event("stopped")


async def _serve(
    settings: MetaSettings,
    keeper: Keeper,
    *,
    seams: Seams,
    log: Log,
    stop: asyncio.Event,
    serving: Serving,
) -> None:
    service = MetadataService(keeper, frame_bytes_max=settings.limits.frame_bytes_max)
    server = Server(
        seams.net,
        welcome=Welcome(
            version=PROTOCOL_VERSION,
            cluster="",
            node=NAME,
            uuid=keeper.uuid,
            frame_bytes_max=settings.limits.frame_bytes_max,
        ),
        handlers=service.handlers,
        authorize=authorize,
        limits=settings.limits,
        log=log,
    )
    try:
        address = await server.start(settings.listen)
    except OSError as error:
        told = error.strerror or error
        raise Unavailable(f"cannot listen on {settings.listen}: {told}") from error
    try:
        serving(keeper, address)
        await _first_of(stop, keeper.failed)
    finally:
        log.event("stopping", drain_s=settings.drain_s)
        service.stop()
        await server.stop(settings.drain_s)
    keeper.check()


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
