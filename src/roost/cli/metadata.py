"""`roost meta`: serve a metadata store to the processes of one machine."""

from typing import Any

import click

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.settings import chosen, options_of
from roost.config.reading import META, meta_config


@click.command(epilog=epilog("$ roost meta --data /srv/meta --listen 127.0.0.1:4700"))
@options_of(META)
@ends_well
def meta(**options: Any) -> None:
    """Serve a metadata store in a folder, until SIGTERM or SIGINT.

    Processes of this machine share it as meta://HOST:PORT. It is durable, and it is one process: a
    cluster of several machines needs etcd. Events go to stderr; `listening` tells where it takes
    requests. Each option has a variable, such as ROOST_META_LISTEN, and a key in the table [meta]
    of the file that --config or ROOST_META_CONFIG names.
    """
    with misused():
        config = meta_config(chosen(options, META))
    from roost.cli.running import run_metadata

    run_metadata(config)
