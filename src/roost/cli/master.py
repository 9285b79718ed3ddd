"""`roost master`: keep the ledgers of a cluster whole."""

from typing import Any

import click

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.settings import chosen, options_of
from roost.config.reading import MASTER, master_config


@click.command(epilog=epilog("$ roost master --cluster meta://127.0.0.1:4700"))
@options_of(MASTER)
@ends_well
def master(**options: Any) -> None:
    """Keep the ledgers of a cluster whole, until SIGTERM or SIGINT.

    It has copied what lacks a copy, empties nodes that are decommissioned, has nodes forget what
    nobody needs, and everything read again from time to time. Any number of masters may run: one is
    elected, the others wait. Events go to stderr; `elected` tells that it works. Each option has a
    variable, such as ROOST_MASTER_CLUSTER, and a key in the table [master] of the file that
    --config or ROOST_MASTER_CONFIG names.
    """
    with misused():
        config = master_config(chosen(options, MASTER))
    from roost.cli.running import run_master

    run_master(config)
