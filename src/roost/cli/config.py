"""`roost config`: what can be told to a node, and what is told to it here."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import click

from roost.cli.ending import ends_well, epilog, misused
from roost.cli.pipes import Pipes
from roost.cli.settings import chosen, options_of
from roost.config.reading import DEFAULT, MISSING, NODE, Chosen, node_config
from roost.config.values import shown

_WIDTH: Final = 98


@click.group(epilog=epilog())
def config() -> None:
    """Tell what can be configured, and what is."""


@config.command(epilog=epilog("$ roost config explain --data /srv/node > roost.toml"))
@options_of(NODE)
@ends_well
def explain(**options: Any) -> None:
    """Show every field of a node's configuration: what for, what is allowed, its value, from where.

    Takes what `roost node` takes, and reads the same variables and file. The output is a file for
    --config that says the same. Exits with 2 if a node would refuse to start with it.
    """
    with Pipes() as pipes, pipes.waiting(), misused():
        present = chosen(options)
        pipes.write("\n".join(_explained(present)).encode(errors="surrogateescape"))
        if all(each.source != MISSING for each in present):
            node_config(present)


def _explained(present: list[Chosen]) -> Iterator[str]:
    yield f"# For `roost node --config FILE`, or {NODE.file_variable}=FILE."
    yield f"[{NODE.name}]"
    for each in present:
        field = each.field
        default = "none" if field.required else shown(field.default)
        yield ""
        yield from _comment(field.about.text)
        yield from _comment(f"Allowed: {field.about.kind.allowed}. Default: {default}.")
        yield from _comment(f"Flag {field.flag}, variable {field.variable}.")
        if each.source == MISSING:
            yield f"# {field.name} =   # {MISSING}, and needed"
        else:
            source = DEFAULT if each.source == DEFAULT else f"by {ascii(each.source)[1:-1]}"
            yield f"{field.name} = {_toml(each.value)}  # {source}"
    yield ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _toml(value: object) -> str:
    """Write a value as TOML; a JSON string is one of TOML, too."""
    text = shown(value)
    bare = isinstance(value, bool | float) or (isinstance(value, int) and text.isdecimal())
    return text if bare else json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
