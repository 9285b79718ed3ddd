"""Options that several commands of `roost channel` share, and what they mean together."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from roost.cli import framing
from roost.errors import Invalid

Cut = Callable[[Iterable[bytes], int], Iterator[list[bytes]]]
"""Cuts an input into messages of at most so many bytes."""

NEWLINE: Final = b"\n"


class _Start(click.ParamType[int | str]):
    """A place in a channel, as it is typed."""

    name = "head|tail|position"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        text = str(value)
        if text in ("head", "tail"):
            return text
        if text.isascii() and text.isdecimal():
            return int(text)
        raise click.BadParameter(
            f"{text!r} is neither head, tail, nor a position", ctx=ctx, param=param
        )


START: Final = _Start()
CHANNEL: Final = click.argument("path", type=click.Path(path_type=Path))

delimiter_option: Final = click.option(
    "--delimiter",
    metavar="BYTES",
    help=r"What stands behind each message, \n if not given; \r \t \0 \\ \xHH mean a byte.",
)
prefix_option: Final = click.option(
    "--length-prefixed",
    is_flag=True,
    help="Each message stands behind its length, a big endian u32; for messages of any bytes.",
)
skip_option: Final = click.option(
    "--skip-corrupt", is_flag=True, help="Report damage, and go on behind it."
)


def input_framing(delimiter: str | None, *, length_prefixed: bool, whole: bool) -> Cut:
    """Choose how the input is cut."""
    if length_prefixed + whole + (delimiter is not None) > 1:
        raise click.UsageError("Choose one of --delimiter, --length-prefixed and --whole.")
    if whole:
        return framing.whole
    if length_prefixed:
        return framing.prefixed
    return partial(_delimited, _delimiter(delimiter))


def _delimited(delimiter: bytes, chunks: Iterable[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    return framing.delimited(chunks, delimiter, bytes_max)


def output_framing(form: str, delimiter: str | None, *, length_prefixed: bool) -> framing.Write:
    """Choose how messages are written."""
    if (form == "json") + length_prefixed + (delimiter is not None) > 1:
        raise click.UsageError("Choose one of --delimiter, --length-prefixed and --format json.")
    if form == "json":
        return framing.json_line
    return framing.with_prefix if length_prefixed else framing.raw(_delimiter(delimiter))


def _delimiter(text: str | None) -> bytes:
    if text is None:
        return NEWLINE
    try:
        return framing.delimiter_bytes(text)
    except Invalid as error:
        raise click.UsageError(str(error)) from error
