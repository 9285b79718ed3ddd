"""A log as lines of text: JSON for programs, columns for people.

Each line has the time, the level and the name of the event, then its fields in the order in which
they were given. What a field holds never ends a line or moves a cursor: it may come from a peer.
The promise of the seam is kept here: whatever is wrong with a field, or with who reads the lines,
the program goes on.
"""

import contextlib
import json
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec
import structlog

from roost.host.clock import Clock
from roost.host.log import Level

Form = Literal["json", "console"]
"""How a line is written."""

_LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# What structlog takes for its own; a field of this name gets an underscore behind it.
_KEPT: Final = frozenset(
    ("at", "event", "exc_info", "exception", "level", "logger", "logger_name", "self", "stack")
)
_NAME_WIDTH: Final = 20

_Fields = MutableMapping[str, Any]


class LineLog:
    """Writes each event that matters enough as one line."""

    def __init__(self, stream: TextIO, *, clock: Clock, form: Form, level: Level) -> None:
        shape = [_json] if form == "json" else [_plain, _columns(colors=stream.isatty())]
        logger: Any = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[_stamp(clock), *shape],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        ).bind()
        self._write: Final[dict[str, Callable[..., object]]] = {
            name: getattr(logger, name) for name in _LEVELS
        }

    def event(self, name: str, /, **fields: object) -> None:
        """Note that something happened; `level` says how much it matters."""
        write = self._write.get(str(fields.pop("level", "info")), self._write["error"])
        if not _KEPT.isdisjoint(fields):
            fields = {f"{key}_" if key in _KEPT else key: held for key, held in fields.items()}
        # Nobody reads the lines, or the disk that they go to is full, or a field's own code fails:
        # there is nothing to be done about it, and nobody to tell.
        with contextlib.suppress(Exception):
            write(name, **fields)


def _stamp(clock: Clock) -> Callable[[object, str, _Fields], _Fields]:
    def stamped(_: object, level: str, fields: _Fields) -> _Fields:
        at = datetime.fromtimestamp(clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"at": at, "level": level, "event": fields.pop("event"), **fields}

    return stamped


def _json(_: object, __: str, fields: _Fields) -> str:
    try:
        text = msgspec.json.encode(fields, enc_hook=str).decode()
        # JSON lets through what a terminal obeys, such as the C1 controls.
        return text if text.isprintable() else json.dumps(json.loads(text))
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A surrogate, a number of more than 64 bits, a key that is no text: rare, and no reason
        # to lose the line.
        return json.dumps({key: str(held) for key, held in fields.items()})


def _plain(_: object, __: str, fields: _Fields) -> _Fields:
    for key, held in fields.items():
        if isinstance(held, bytes):
            fields[key] = held.hex()
        elif not isinstance(held, int | float):
            fields[key] = str(held)
    return fields


def _shown(held: object) -> str:
    """Show what a field holds so that one sees where it ends."""
    text = str(held)
    bare = text.isascii() and text.isprintable() and not set(text) & set(" \"'=")
    return text if bare and text else json.dumps(text, ensure_ascii=not text.isprintable())


def _columns(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    dim, bold, cyan, off = ("\x1b[2m", "\x1b[1m", "\x1b[36m", "\x1b[0m") if colors else [""] * 4
    column, formatter = structlog.dev.Column, structlog.dev.KeyValueColumnFormatter
    return structlog.dev.ConsoleRenderer(
        columns=[
            column("", formatter(cyan, "", off, _shown)),
            column("at", formatter(None, dim, off, str)),
            column("level", formatter(None, "", off, str, width=7)),
            column("event", formatter(None, bold, off, _shown, width=_NAME_WIDTH)),
        ],
        sort_keys=False,
    )
