"""Everything that a storage node can be told, and what has to fit together.

A field's name is the key in the table `[node]` of a file; its flag and its variable follow from it:
`memory_bytes_max`, `--memory-bytes-max`, `ROOST_NODE_MEMORY_BYTES_MAX`.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from roost.config.values import (
    A_CLUSTER_OR_OFF,
    A_PATH,
    A_SWITCH,
    A_ZONE,
    AN_ADDRESS,
    AN_ADDRESS_OR_OFF,
    GIB,
    KIB,
    MIB,
    TIB,
    About,
    LogFormat,
    LogLevel,
    a_count,
    a_size,
    one_of,
    seconds,
    shown,
)
from roost.errors import Invalid
from roost.host.net import Address

RECORD_BYTES: Final = 4 * KIB
"""More than what stands around a payload in the journal."""

_HOLDS_AN_ENTRY: Final = (
    "journal_segment_bytes",
    "memory_bytes_max",
    "queued_bytes_max",
    "connection_bytes_max",
)
_TWO_SEGMENTS: Final = (
    "the journal has to have room for two of its segments; give smaller ones or a larger journal"
)
_LONGEST: Final = (
    f"the longest entry and {shown(RECORD_BYTES)} more have to fit in; give shorter entries or "
    "more room"
)
OFF_LOOPBACK: Final = (
    "this is off loopback, where everybody may read, write and delete, since peers are not "
    "authenticated yet; listen on 127.0.0.1, or say --insecure where the network keeps others out"
)
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  nothing is bound here
_NOWHERE: Final = (
    "others cannot connect to every address of a machine: say with advertise where they find it"
)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a storage node is told."""

    data: Annotated[
        Path,
        About("The node's folder, made by `roost node format`.", A_PATH),
    ]
    listen: Annotated[Address, About("Where clients connect.", AN_ADDRESS)] = Address(
        "127.0.0.1", 4710
    )
    http: Annotated[
        Address | None,
        About(
            "Where metrics and health are told over HTTP, to anybody who asks.",
            AN_ADDRESS_OR_OFF,
        ),
    ] = Address("127.0.0.1", 4711)
    insecure: Annotated[
        bool,
        About(
            "Listen off loopback, though peers are not authenticated yet and nothing is "
            "encrypted: whoever reaches the port may read, write and delete.",
            A_SWITCH,
        ),
    ] = False
    cluster: Annotated[
        str | None,
        About(
            "Where the cluster's metadata is, in which the node registers itself.",
            A_CLUSTER_OR_OFF,
        ),
    ] = None
    zone: Annotated[
        str, About("Where the node stands: what fails together has one name.", A_ZONE)
    ] = ""
    advertise: Annotated[
        Address | None,
        About("Where others reach the node, if that is not where it listens.", AN_ADDRESS_OR_OFF),
    ] = None
    sync: Annotated[
        Literal["always", "interval", "never"],
        About(
            "When an entry counts as stored: once a sync has made it durable, or once the "
            "operating system has it, with syncs by a timer or with none. Anything but always "
            "loses acknowledged entries when the power fails; the node is suspect then.",
            one_of("always", "interval", "never"),
        ),
    ] = "always"
    interval_s: Annotated[
        float,
        About("How long an entry stays unsynced with sync interval.", seconds(0.001, 3600)),
    ] = 0.01
    journal_segment_bytes: Annotated[
        int,
        About(
            "How much one segment of the journal holds; all of it is allocated when it is made.",
            # Less would be filled by what one connection brings at once, before the next is made.
            a_size(MIB, 512 * MIB),
        ),
    ] = 64 * MIB
    journal_bytes_max: Annotated[
        int,
        About(
            "How large the journal gets: from half of it on the oldest entries are flushed, at "
            "all of it adds wait.",
            a_size(128 * KIB, 1024 * TIB),
        ),
    ] = GIB
    memory_bytes_max: Annotated[
        int,
        About(
            "How much of the entries is in memory: from a quarter of it on they are flushed, at "
            "all of it adds wait.",
            a_size(64 * KIB, 64 * TIB),
        ),
    ] = 256 * MIB
    queued_bytes_max: Annotated[
        int,
        About("How much may wait for its sync before adds wait.", a_size(64 * KIB, TIB)),
    ] = 32 * MIB
    flush_workers: Annotated[
        int,
        About("How many threads bring entries from memory to the ledgers' files.", a_count(1, 64)),
    ] = 4
    free_bytes_min: Annotated[
        int,
        About(
            "Refuse adds while the disk has less room than this; all else goes on.",
            a_size(0, 1024 * TIB),
        ),
    ] = 256 * MIB
    payload_bytes_max: Annotated[
        int, About("Refuse entries with a longer payload.", a_size(1, 16 * MIB))
    ] = 16 * MIB
    connections_max: Annotated[
        int,
        About("How many clients are connected at once; more are refused.", a_count(1, 1_000_000)),
    ] = 1000
    connection_bytes_max: Annotated[
        int,
        About(
            "How much one client may have under way before it is not read from.",
            a_size(64 * KIB, TIB),
        ),
    ] = 32 * MIB
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    drain_s: Annotated[
        float,
        About("How long a stopping node waits for what is under way.", seconds(0, 3600)),
    ] = 10.0

    def validate(self, sources: Mapping[str, str] | None = None) -> None:
        """Refuse fields that do not fit together; `sources` tells where each was given."""
        for names, why in self._misfits():
            told = [
                f"{name} = {shown(getattr(self, name))} ({(sources or {}).get(name, 'given')})"
                for name in names
            ]
            raise Invalid(f"{' and '.join(told)}: {why}")

    def _misfits(self) -> Iterator[tuple[Sequence[str], str]]:
        if self.journal_bytes_max < 2 * self.journal_segment_bytes:
            yield ("journal_segment_bytes", "journal_bytes_max"), _TWO_SEGMENTS
        longest = self.payload_bytes_max + RECORD_BYTES
        for name in _HOLDS_AN_ENTRY:
            if longest > getattr(self, name):
                yield ("payload_bytes_max", name), _LONGEST
        if self.cluster and not self.advertise and self.listen.host in _EVERYWHERE:
            yield ("listen", "cluster"), _NOWHERE
        for name in ("listen", "http"):
            address: Address | None = getattr(self, name)
            if address is not None and not self.insecure and not is_loopback(address.host):
                yield (name,), OFF_LOOPBACK


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host of this name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
