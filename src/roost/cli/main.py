"""The `roost` command: its groups, and nothing of what they do.

What a group needs is imported when it is called, so that `roost --help` is there at once, however
much the groups grow.
"""

from collections.abc import Callable

import click


def _channel() -> click.Command:
    from roost.cli.channel import channel

    return channel


def _cluster() -> click.Command:
    from roost.cli.cluster import cluster

    return cluster


def _config() -> click.Command:
    from roost.cli.config import config

    return config


def _doctor() -> click.Command:
    from roost.cli.doctor import doctor

    return doctor


def _inspect() -> click.Command:
    from roost.cli.inspect import inspect

    return inspect


def _ledger() -> click.Command:
    from roost.cli.ledger import ledger

    return ledger


def _master() -> click.Command:
    from roost.cli.master import master

    return master


def _meta() -> click.Command:
    from roost.cli.metadata import meta

    return meta


def _node() -> click.Command:
    from roost.cli.node import node

    return node


def _sim() -> click.Command:
    from roost.cli.sim import sim

    return sim


# Name, what it is for, and where it comes from; they are listed in this order.
COMMANDS: dict[str, tuple[str, Callable[[], click.Command]]] = {
    "channel": ("Send to a channel in a folder, receive from it, look at it.", _channel),
    "cluster": ("Look at a whole cluster.", _cluster),
    "config": ("Tell what can be configured, and what is.", _config),
    "doctor": ("Tell whether all is well with this machine and a channel.", _doctor),
    "inspect": ("Show what stands in a stopped node's files.", _inspect),
    "ledger": ("Make, write, read, end, repair and delete replicated ledgers.", _ledger),
    "master": ("Keep the ledgers of a cluster whole.", _master),
    "meta": ("Serve the metadata of a cluster to this machine.", _meta),
    "node": ("Run a storage node, make its folder, check it.", _node),
    "sim": ("Play scenarios in a deterministic world, under faults.", _sim),
}


class _Groups(click.Group):
    """The groups of the table above."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS[cmd_name][1]() if cmd_name in COMMANDS else None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import them all to ask for their help.
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (what, _) in COMMANDS.items()])


@click.group(cls=_Groups, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="roost", message="%(prog)s %(version)s")
def main() -> None:
    """Roost: a durable log in Python."""
