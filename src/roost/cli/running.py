"""Runs a node, a master or a metadata server as a process: loop, lock, and signals that end it.

The first SIGTERM or SIGINT stops the node in good order. From then on they mean what the system
means by them, so that a second one ends the process at once, whatever it is doing: the node then
recovers when it is started next.
"""

import asyncio
import gc
import signal
import sys
import traceback
from typing import Any, Final

import uvloop

from roost.cli.machine import holder, keep_memory, log, pid, seams
from roost.config.master import MasterConfig
from roost.config.meta import MetaConfig
from roost.config.node import NodeConfig
from roost.host.log import Log
from roost.host.net import Address
from roost.host.seams import Seams
from roost.journal.plan import JournalSettings
from roost.journal.record import HEADS_BYTES
from roost.master.auditing import AuditSettings
from roost.master.collecting import CollectSettings
from roost.master.process import MasterProcess
from roost.master.process import ProcessSettings as MasterProcessSettings
from roost.master.scrubbing import ScrubSettings
from roost.master.service import MasterSettings
from roost.metadata.keeper import Keeper
from roost.metadata.opening import open_store
from roost.metadata.server import MetaSettings, run_meta
from roost.metadata.store import MetadataStore
from roost.node.identity import Identity, take
from roost.node.membership import MembershipSettings, be_member
from roost.node.process import NodeProcess, ProcessSettings, run_node
from roost.node.space import Limits as SpaceLimits
from roost.node.store import NodeSettings
from roost.rpc.limits import Limits

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def run(config: NodeConfig) -> None:
    """Run a node until it is told to end; returns once everything is in files."""
    events = log(config.log_format, config.log_level)
    machine = seams()
    identity, lock = take(machine.disk, config.data, holder=holder())
    _tune(config.memory_bytes_max)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(config, identity, machine, events))
    finally:
        lock.release()


def _tune(memory_bytes_max: int) -> None:
    """Set the interpreter to what a node does all day."""
    keep_memory(memory_bytes_max)
    # While a flush computes, the loop gets its turn ten times as soon as usual.
    sys.setswitchinterval(0.0005)
    # Requests leave hardly any cycles behind, and looking through all that is in memory is dear.
    gc.set_threshold(50_000, 20, 100)


def run_metadata(config: MetaConfig) -> None:
    """Serve a metadata store until told to end."""
    events = log(config.log_format, config.log_level)

    async def main() -> None:
        await run_meta(
            MetaSettings(
                data=config.data,
                listen=config.listen,
                limits=Limits(connections_max=config.connections_max),
                history_max=config.history_max,
                drain_s=config.drain_s,
            ),
            seams=seams(),
            log=events,
            holder=holder(),
            stop=_told_to_stop(events),
            serving=serving,
        )

    def serving(_: Keeper, address: Address) -> None:
        events.event("listening", address=str(address), data=config.data, pid=pid())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def run_master(config: MasterConfig) -> None:
    """Run a master until told to end."""
    events = log(config.log_format, config.log_level)
    machine, settings = seams(), master_settings(config, holder())
    url = config.cluster
    assert url is not None, "it was validated"

    async def opening() -> MetadataStore:
        return await open_store(url, seams=machine, log=events, holder=settings.name)

    async def main() -> None:
        process = MasterProcess(settings, opening, seams=machine, log=events)
        await process.run(_told_to_stop(events), serving=serving)
        events.event("stopped")

    def serving(process: MasterProcess) -> None:
        http = None if process.http_address is None else str(process.http_address)
        events.event("standing", http=http, **process.facts(), pid=pid())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def master_settings(config: MasterConfig, name: str) -> MasterProcessSettings:
    """Hand out what a master was configured to be."""
    return MasterProcessSettings(
        http=config.http,
        name=name,
        ttl_s=config.ttl_s,
        master=MasterSettings(
            grace_s=config.grace_s,
            copy_bytes_per_s=config.copy_bytes_per_s,
            scrub_bytes_per_s=config.scrub_bytes_per_s,
            look_s=min(2.0, config.grace_s / 4),
            audit=AuditSettings(
                audit_s=min(10.0, config.grace_s / 2), copies_max=config.copies_max
            ),
            collect=CollectSettings(collect_s=config.collect_s, tombstone_s=config.tombstone_s),
            scrub=ScrubSettings(round_s=config.scrub_round_s),
        ),
    )


def _told_to_stop(events: Log) -> asyncio.Event:
    """Give an event that the first signal sets; it also reports what nobody handles."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _report(events, context))
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        events.event("signal", name=number.name)
        for each in _ENDING:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for number in _ENDING:
        loop.add_signal_handler(number, on_signal, number)
    return stop


async def _main(config: NodeConfig, identity: Identity, machine: Seams, events: Log) -> None:
    stop = _told_to_stop(events)
    joining: list[asyncio.Task[None]] = []

    def serving(process: NodeProcess) -> None:
        if config.cluster is not None:
            joined = _join(config, identity, process, machine=machine, events=events, stop=stop)
            joining.append(asyncio.get_running_loop().create_task(joined))
        events.event(
            "listening",
            address=str(process.address),
            http=None if process.http_address is None else str(process.http_address),
            **process.facts(),
            pid=pid(),
        )

    try:
        await run_node(
            process_settings(config),
            identity,
            seams=machine,
            log=events,
            stop=stop,
            serving=serving,
        )
    finally:
        stop.set()
        for task in joining:
            await task


async def _join(
    config: NodeConfig,
    identity: Identity,
    process: NodeProcess,
    *,
    machine: Seams,
    events: Log,
    stop: asyncio.Event,
) -> None:
    """Keep a node registered; one that is refused stops in good order, and then says why."""
    assert config.cluster is not None, "only a node with a cluster joins it"
    assert process.address is not None, "a node that serves has an address"
    address = config.advertise or process.address
    settings = MembershipSettings(url=config.cluster, address=address, zone=config.zone)
    try:
        await be_member(
            settings, identity, process.stat, seams=machine, log=events, holder=holder(), stop=stop
        )
    finally:
        stop.set()


def process_settings(config: NodeConfig) -> ProcessSettings:
    """Hand out what was configured to those who are concerned."""
    return ProcessSettings(
        data=config.data,
        listen=config.listen,
        http=config.http,
        payload_bytes_max=config.payload_bytes_max,
        drain_s=config.drain_s,
        limits=Limits(
            connections_max=config.connections_max, held_bytes_max=config.connection_bytes_max
        ),
        store=NodeSettings(
            journal=JournalSettings(
                segment_bytes=config.journal_segment_bytes,
                sync=config.sync,
                interval_s=config.interval_s,
                record_bytes_max=HEADS_BYTES + config.payload_bytes_max,
            ),
            limits=SpaceLimits(
                memory_bytes_max=config.memory_bytes_max,
                journal_bytes_max=config.journal_bytes_max,
                queued_bytes_max=config.queued_bytes_max,
                free_bytes_min=config.free_bytes_min,
            ),
            flush_workers=config.flush_workers,
        ),
    )


def _report(events: Log, context: dict[str, Any]) -> None:
    """Note what nobody handled: a defect of ours, which the node outlives if it can."""
    error = context.get("exception")
    trace = traceback.format_exception(error) if isinstance(error, BaseException) else []
    events.event(
        "defect", level="error", what=str(context.get("message")), trace="".join(trace).rstrip()
    )
