"""Everything that a master can be told: `roost master`.

A field's name is the key in the table `[master]` of a file; its flag and its variable follow from
it, as for a node: `grace_s`, `--grace-s`, `ROOST_MASTER_GRACE_S`.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from roost.config.node import OFF_LOOPBACK, is_loopback
from roost.config.values import (
    A_CLUSTER_OR_OFF,
    A_SWITCH,
    AN_ADDRESS_OR_OFF,
    KIB,
    MIB,
    TIB,
    About,
    LogFormat,
    LogLevel,
    a_count,
    a_size,
    seconds,
)
from roost.errors import Invalid
from roost.host.net import Address


class MasterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a master is told."""

    cluster: Annotated[
        str | None,
        About("Where the metadata of the cluster is that is to be kept whole.", A_CLUSTER_OR_OFF),
    ] = None
    http: Annotated[
        Address | None,
        About(
            "Where metrics and health are told over HTTP, to anybody who asks.",
            AN_ADDRESS_OR_OFF,
        ),
    ] = Address("127.0.0.1", 4721)
    insecure: Annotated[
        bool,
        About(
            "Tell metrics and health off loopback, too: whoever reaches the port sees them.",
            A_SWITCH,
        ),
    ] = False
    grace_s: Annotated[
        float,
        About(
            "How long a node may be away before what it has is copied elsewhere.",
            seconds(1, 30 * 86_400),
        ),
    ] = 60.0
    copies_max: Annotated[
        int, About("How many ledgers are repaired at a time.", a_count(1, 1000))
    ] = 2
    copy_bytes_per_s: Annotated[
        int,
        About("How fast all copies together may go.", a_size(64 * KIB, TIB)),
    ] = 100 * MIB
    scrub_round_s: Annotated[
        float,
        About(
            "How often everything is read again and checked; 0 for never.",
            seconds(0, 3650 * 86_400),
        ),
    ] = 7 * 86_400.0
    scrub_bytes_per_s: Annotated[
        int,
        About("How fast everything is read again.", a_size(64 * KIB, TIB)),
    ] = 20 * MIB
    collect_s: Annotated[
        float,
        About(
            "How often nodes are asked for ledgers that nobody needs any more.",
            seconds(1, 30 * 86_400),
        ),
    ] = 300.0
    tombstone_s: Annotated[
        float,
        About(
            "How long the metadata remembers a deleted ledger at least.",
            seconds(1, 3650 * 86_400),
        ),
    ] = 600.0
    ttl_s: Annotated[
        int,
        About(
            "How long it takes until another master is elected for one that died.", a_count(2, 3600)
        ),
    ] = 10
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"

    def validate(self, sources: Mapping[str, str] | None = None) -> None:
        """Refuse what cannot work; `sources` tells where each field was given."""
        if self.cluster is None:
            raise Invalid(
                "cluster is not given, or off; say with --cluster, ROOST_MASTER_CLUSTER or the key "
                f"master.cluster of a file where the metadata is: {A_CLUSTER_OR_OFF.allowed}"
            )
        if self.http is not None and not self.insecure and not is_loopback(self.http.host):
            source = (sources or {}).get("http", "given")
            raise Invalid(f"http = {self.http} ({source}): {OFF_LOOPBACK}")
