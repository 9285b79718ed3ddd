"""Everything that a metadata server can be told: `roost meta`.

A field's name is the key in the table `[meta]` of a file; its flag and its variable follow from it,
as for a node: `history_max`, `--history-max`, `ROOST_META_HISTORY_MAX`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from roost.config.node import OFF_LOOPBACK, is_loopback
from roost.config.values import (
    A_PATH,
    A_SWITCH,
    AN_ADDRESS,
    About,
    LogFormat,
    LogLevel,
    a_count,
    seconds,
)
from roost.errors import Invalid
from roost.host.net import Address


class MetaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a metadata server is told."""

    data: Annotated[Path, About("The folder of the store; it is made if it is missing.", A_PATH)]
    listen: Annotated[Address, About("Where processes find the store.", AN_ADDRESS)] = Address(
        "127.0.0.1", 4700
    )
    insecure: Annotated[
        bool,
        About(
            "Listen off loopback, though peers are not authenticated yet and nothing is "
            "encrypted: whoever reaches the port may read, write and delete.",
            A_SWITCH,
        ),
    ] = False
    history_max: Annotated[
        int,
        About(
            "How many changes are kept for watches; who missed more reads everything again.",
            a_count(100, 10_000_000),
        ),
    ] = 20_000
    connections_max: Annotated[
        int,
        About("How many processes are connected at once; more are refused.", a_count(1, 1_000_000)),
    ] = 1000
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    drain_s: Annotated[
        float,
        About("How long a stopping server waits for what is under way.", seconds(0, 3600)),
    ] = 5.0

    def validate(self, sources: Mapping[str, str] | None = None) -> None:
        """Refuse to listen where others are; `sources` tells where each field was given."""
        if not self.insecure and not is_loopback(self.listen.host):
            source = (sources or {}).get("listen", "given")
            raise Invalid(f"listen = {self.listen} ({source}): {OFF_LOOPBACK}")
