"""`roost inspect`: what stands in a stopped node's files, one line for each thing."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import click
import msgspec

from roost.cli import framing
from roost.cli.ending import ends_well, epilog
from roost.cli.listing import Row, journal_rows, ledger_rows
from roost.cli.machine import disk
from roost.cli.pipes import Pipes

_PATH: Final = click.argument("path", type=click.Path(path_type=Path))
_COUNT: Final = click.option("--count", "-n", type=click.IntRange(0), help="Show at most so many.")
_FORMAT: Final = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text"
)
_PAYLOAD: Final = click.option("--payload", is_flag=True, help="Show what entries carry, too.")


@click.group(epilog=epilog())
def inspect() -> None:
    """Show what stands in a stopped node's files, and change nothing.

    What is no good record or entry is shown as `bad`, with the reason; whether that is a problem
    says `roost node verify`.
    """


@inspect.command(epilog=epilog("$ roost inspect journal /srv/node --count 1"))
@_PATH
@click.option("--from", "start", type=click.IntRange(0), default=0, help="Begin at this position.")
@_COUNT
@_PAYLOAD
@_FORMAT
@ends_well
def journal(*, path: Path, start: int, count: int | None, payload: bool, form: str) -> None:
    """List the records of a journal in order.

    PATH is a node's folder, the `journal` in it, or one segment.
    """
    _show(journal_rows(disk(), path, start), count, form, payload=payload)


@inspect.command(epilog=epilog("$ roost inspect ledger /srv/node/ledgers/7.log --count 1"))
@_PATH
@click.option("--from", "start", type=click.IntRange(0), default=0, help="Begin at this entry.")
@_COUNT
@_PAYLOAD
@_FORMAT
@ends_well
def ledger(*, path: Path, start: int, count: int | None, payload: bool, form: str) -> None:
    """List the entries of a ledger.

    PATH is its entry log, such as 7.log, which is shown in the order in which it was written, or
    its index, such as 7.index, which is shown by entry, each with what it points at.
    """
    _show(ledger_rows(disk(), path, start), count, form, payload=payload)


def _show(rows: Iterator[Row], count: int | None, form: str, *, payload: bool) -> None:
    write = _json if form == "json" else _text
    with Pipes() as pipes, pipes.waiting():
        for row in islice(rows, count):
            pipes.write(write(row, row.payload if payload else None))


def _text(row: Row, payload: bytes | None) -> bytes:
    told = [row.what, *(f"{name}={_value(value)}" for name, value in row.fields.items())]
    if payload is not None:
        told.append(framing.shown(payload))
    return (" ".join(told) + "\n").encode()


def _value(value: object) -> str:
    if isinstance(value, str) and not value.isalnum():
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(row: Row, payload: bytes | None) -> bytes:
    fields = {"what": row.what, **row.fields}
    if payload is not None:
        return framing.json_object(fields, payload)
    return msgspec.json.encode(fields) + b"\n"
