"""What Roost counts, under which names, and how it is shown.

A group of metrics is an object with plain integer attributes: counting is `metrics.syncs += 1`, and
nothing else happens until somebody looks. `collect` turns a group into samples, `render_prometheus`
turns samples into the text that Prometheus and its like read. Every name and its meaning stands in
this file; all are counters since the object was made. Two threads that count at once may lose one:
where a figure must be exact, its owner counts under its own lock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, get_type_hints

import msgspec


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


Group = ChannelMetrics
"""Any group of metrics."""


class Sample(msgspec.Struct, frozen=True):
    """One figure: its full name, what it means, whom it is about, and its present value."""

    name: str
    meaning: str
    labels: Mapping[str, str]
    value: int


def collect(metrics: Group, **labels: str) -> Iterator[Sample]:
    """Read a group as it is now; `labels` say which of several it is."""
    hints = get_type_hints(type(metrics), include_extras=True)
    for field in fields(metrics):
        yield Sample(
            name=f"{metrics.prefix}_{field.name}",
            meaning=hints[field.name].__metadata__[0],
            labels=labels,
            value=getattr(metrics, field.name),
        )


def render_prometheus(samples: Iterable[Sample]) -> str:
    """Write samples in Prometheus' text format, those of one name together, in order of arrival."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, same in by_name.items():
        lines.append(f"# HELP roost_{name}_total {_escape(same[0].meaning)}")
        lines.append(f"# TYPE roost_{name}_total counter")
        lines.extend(f"roost_{name}_total{_labels(sample)} {sample.value}" for sample in same)
    return "".join(f"{line}\n" for line in lines)


def _labels(sample: Sample) -> str:
    pairs = [f'{name}="{_quoted(value)}"' for name, value in sample.labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escape(text).replace('"', '\\"')
