"""Options made of what a node can be told, so that none is forgotten or called otherwise."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from roost.cli.machine import environment
from roost.config.node import NodeConfig
from roost.config.reading import Chosen, choose, node_config, node_fields
from roost.config.values import A_SWITCH, shown

F = TypeVar("F", bound=Callable[..., Any])

FILE_OPTION: Final = "config"


def node_options(command: F) -> F:
    """Add an option for each field, and one for the file."""
    for field in reversed(node_fields()):
        default = (
            "" if field.required or field.about.kind is A_SWITCH else f"  [{shown(field.default)}]"
        )
        command = click.option(
            field.flag,
            field.name,
            is_flag=field.about.kind is A_SWITCH,
            default=None,
            metavar=None if field.about.kind is A_SWITCH else field.name.rpartition("_")[2].upper(),
            help=field.about.text + default,
        )(command)
    return click.option(
        f"--{FILE_OPTION}",
        FILE_OPTION,
        type=click.Path(path_type=Path),
        help="Read the table [node] of this TOML file; flags and variables come first.",
    )(command)


def chosen(options: Mapping[str, Any]) -> list[Chosen]:
    """Choose the value of each field, from the options that were given and elsewhere."""
    flags = {name: value for name, value in options.items() if name != FILE_OPTION}
    return choose(flags, environment(), options.get(FILE_OPTION))


def configured(options: Mapping[str, Any]) -> NodeConfig:
    """Make a node's configuration."""
    return node_config(chosen(options))
