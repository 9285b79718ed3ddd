"""What Roost counts, under which names, and how it is shown.

A group of metrics is an object with plain integer attributes: counting is `metrics.syncs += 1`, and
nothing else happens until somebody looks. `collect` turns a group into samples, `render_prometheus`
turns samples into the text that Prometheus and its like read. Every name and its meaning stands in
this file. A figure counts what has happened since the object was made, unless `GAUGE` behind its
meaning says that it is a level, which goes up and down: its owner sets it before somebody looks.
Two threads that count at once may lose one: where a figure must be exact, its owner counts under
its own lock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Literal, get_type_hints

import msgspec

Kind = Literal["counter", "gauge"]
"""A figure only grows, or goes up and down."""

GAUGE: Final[Kind] = "gauge"
"""Marks a figure of a group that goes up and down."""


@dataclass(slots=True)
class ChannelMetrics:
    """What one open channel has done."""

    prefix: ClassVar[str] = "channel"

    sent_bytes: Annotated[int, "bytes of messages sent, with the 8 of each frame"] = 0
    syncs: Annotated[int, "syncs that made sent messages durable"] = 0
    rolls: Annotated[int, "segments begun because the one before was full"] = 0
    compressed_segments: Annotated[int, "sealed segments that were compressed"] = 0
    collected_segments: Annotated[int, "segments removed because nobody needed them"] = 0
    salvaged_bytes: Annotated[int, "bytes of torn tails that were moved to salvage/"] = 0
    corrupt_reads: Annotated[int, "reads that met stored bytes which contradict their checksum"] = 0


@dataclass(slots=True)
class JournalMetrics:
    """What one node's journal has done."""

    prefix: ClassVar[str] = "journal"

    records: Annotated[int, "records that were stored"] = 0
    stored_bytes: Annotated[int, "bytes of records that were stored, with their heads"] = 0
    syncs: Annotated[int, "groups of records that were synced"] = 0
    synced_bytes: Annotated[int, "bytes of records that were made durable"] = 0
    rolls: Annotated[int, "segments that were begun"] = 0
    trimmed_segments: Annotated[int, "segments removed because nobody needed them"] = 0
    failed_trims: Annotated[int, "times that segments could not be removed"] = 0
    full: Annotated[int, "times that there was no space for another segment"] = 0
    salvaged_bytes: Annotated[int, "bytes of torn tails and damage that went to salvage/"] = 0


@dataclass(slots=True)
class NodeMetrics:
    """What one storage node has done, and how much of everything it has."""

    prefix: ClassVar[str] = "node"

    adds: Annotated[int, "entries that were stored"] = 0
    added_bytes: Annotated[int, "bytes of the entries that were stored"] = 0
    duplicate_adds: Annotated[
        int, "adds of an entry that was there already, with the same bytes"
    ] = 0
    refused_adds: Annotated[int, "adds that were refused, for whatever reason"] = 0
    conflicts: Annotated[int, "adds of an entry that was there already, with other bytes"] = 0
    throttled: Annotated[int, "times that clients had to wait because too much was under way"] = 0
    reads: Annotated[int, "read requests that were answered"] = 0
    read_entries: Annotated[int, "entries that readers got"] = 0
    read_bytes: Annotated[int, "bytes of the entries that readers got"] = 0
    cold_reads: Annotated[int, "reads that had to go to the disk"] = 0
    corrupt_reads: Annotated[
        int, "entries that contradicted their checksum when they were read"
    ] = 0
    fences: Annotated[int, "ledgers that were fenced"] = 0
    closes: Annotated[int, "ledgers that were closed"] = 0
    deletes: Annotated[int, "ledgers that were deleted"] = 0
    flushes: Annotated[int, "ledgers' entries brought from memory to their entry logs"] = 0
    flushed_bytes: Annotated[int, "bytes of the entries that were brought there"] = 0
    checkpoints: Annotated[int, "checkpoints that were written"] = 0
    ledgers: Annotated[int, "ledgers on this node", GAUGE] = 0
    memory_bytes: Annotated[int, "bytes of the entries in memory, not yet flushed", GAUGE] = 0
    journal_kept_bytes: Annotated[int, "bytes of all segments of the journal", GAUGE] = 0
    free_bytes: Annotated[int, "bytes that can still be written on the node's disk", GAUGE] = 0
    connections: Annotated[int, "connections that are open now", GAUGE] = 0


@dataclass(slots=True)
class MasterMetrics:
    """What one master has done, and what the cluster lacks, as far as it is the elected one."""

    prefix: ClassVar[str] = "master"

    elected: Annotated[int, "1 while this master is the elected one", GAUGE] = 0
    audits: Annotated[int, "times that all ledgers were looked at"] = 0
    ledgers: Annotated[int, "ledgers that there are", GAUGE] = 0
    under_replicated: Annotated[int, "closed ledgers that lack a copy", GAUGE] = 0
    waiting: Annotated[int, "open ledgers with a node that is gone", GAUGE] = 0
    unreadable: Annotated[int, "times that a ledger's document could not be read"] = 0
    copies_running: Annotated[int, "copies that are under way", GAUGE] = 0
    copies: Annotated[int, "copies that were made and named"] = 0
    failed_copies: Annotated[int, "copies that failed, or are not whole"] = 0
    copied_entries: Annotated[int, "entries that were copied"] = 0
    copied_bytes: Annotated[int, "bytes of the entries that were copied"] = 0
    collected: Annotated[int, "ledgers that nodes were told to forget"] = 0
    barred: Annotated[int, "nodes that were barred from a ledger they had been replaced in"] = 0
    tombstones_removed: Annotated[int, "documents of deleted ledgers that were removed"] = 0
    scrubbed_ledgers: Annotated[int, "ledgers that were read and checked on all their nodes"] = 0
    scrubbed_bytes: Annotated[int, "bytes that nodes read and checked for that"] = 0
    bad_entries: Annotated[int, "entries that were missing or spoilt on a node"] = 0
    repaired_entries: Annotated[int, "bad entries that were copied from another node"] = 0


Group = ChannelMetrics | JournalMetrics | NodeMetrics | MasterMetrics
"""Any group of metrics."""


class Sample(msgspec.Struct, frozen=True):
    """One figure: its full name, what it means, whom it is about, and its present value."""

    name: str
    meaning: str
    labels: Mapping[str, str]
    value: int
    kind: Kind = "counter"


def collect(metrics: Group, **labels: str) -> Iterator[Sample]:
    """Read a group as it is now; `labels` say which of several it is."""
    hints = get_type_hints(type(metrics), include_extras=True)
    for field in fields(metrics):
        meaning, *kind = hints[field.name].__metadata__
        yield Sample(
            name=f"{metrics.prefix}_{field.name}",
            meaning=meaning,
            labels=labels,
            value=getattr(metrics, field.name),
            kind=kind[0] if kind else "counter",
        )


def render_prometheus(samples: Iterable[Sample]) -> str:
    """Write samples in Prometheus' text format, those of one name together, in order of arrival."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for same in by_name.values():
        name = _full_name(same[0])
        lines.append(f"# HELP {name} {_escape(same[0].meaning)}")
        lines.append(f"# TYPE {name} {same[0].kind}")
        lines.extend(f"{name}{_labels(sample)} {sample.value}" for sample in same)
    return "".join(f"{line}\n" for line in lines)


def _full_name(sample: Sample) -> str:
    return f"roost_{sample.name}{'_total' if sample.kind == 'counter' else ''}"


def _labels(sample: Sample) -> str:
    pairs = [f'{name}="{_quoted(value)}"' for name, value in sample.labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escape(text).replace('"', '\\"')
