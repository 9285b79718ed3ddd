"""Options made of what a process can be told, so that none is forgotten or called otherwise."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from roost.cli.machine import environment
from roost.config.node import NodeConfig
from roost.config.reading import NODE, Chosen, Section, choose, fields_of, node_config
from roost.config.values import A_SWITCH, shown

F = TypeVar("F", bound=Callable[..., Any])

FILE_OPTION: Final = "config"


def options_of(section: Section) -> Callable[[F], F]:
    """Add an option for each field of a section, and one for the file."""

    def add(command: F) -> F:
        for field in reversed(fields_of(section)):
            switch = field.about.kind is A_SWITCH
            default = "" if field.required or switch else f"  [{shown(field.default)}]"
            command = click.option(
                field.flag,
                field.name,
                is_flag=switch,
                default=None,
                metavar=None if switch else field.name.rpartition("_")[2].upper(),
                help=field.about.text + default,
            )(command)
        return click.option(
            f"--{FILE_OPTION}",
            FILE_OPTION,
            type=click.Path(path_type=Path),
            help=f"Read the table [{section.name}] of this TOML file; flags and variables come "
            "first.",
        )(command)

    return add


def chosen(options: Mapping[str, Any], section: Section = NODE) -> list[Chosen]:
    """Choose the value of each field, from the options that were given and elsewhere."""
    flags = {name: value for name, value in options.items() if name != FILE_OPTION}
    return choose(flags, environment(), options.get(FILE_OPTION), section=section)


def configured(options: Mapping[str, Any]) -> NodeConfig:
    """Make a node's configuration."""
    return node_config(chosen(options))
