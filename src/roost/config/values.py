"""The kinds of values that a field may have: how each is read, and what is allowed.

A value comes as text, from a flag, a variable or a file, or as what TOML has for it. Reading raises
`ValueError` for what is not allowed, and `shown` writes a value so that it is read as the same one.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from roost.errors import Invalid
from roost.host.net import Address
from roost.metadata.address import parse_url

N = TypeVar("N", int, float)

ZONE_CHARACTERS_MAX: Final = 64

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40

_BINARY: Final = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB}
_DECIMAL: Final[dict[str, int]] = {
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
    "": 1,
}
_UNITS: Final = {unit.lower(): size for unit, size in (_BINARY | _DECIMAL).items()}
_QUANTITY: Final = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))? ?([A-Za-z]*)", re.ASCII)
_WHOLE: Final = re.compile(r"[0-9]{1,20}", re.ASCII)


class Kind(msgspec.Struct, frozen=True):
    """One kind of value."""

    parse: Callable[[object], Any]
    """Reads what was typed or stands in a file; `ValueError` if that is not allowed."""

    allowed: str
    """What is, for people."""


class About(msgspec.Struct, frozen=True):
    """What a field is for, and which kind of value it has."""

    text: str
    kind: Kind


def a_size(least: int, most: int) -> Kind:
    """Allow a number of bytes: `1048576`, `64MiB`, `1.5 GiB`."""

    def parse(value: object) -> int:
        found = _QUANTITY.fullmatch(_text(value))
        if found is None or found[3].lower() not in _UNITS:
            raise ValueError
        unit, billionths = _UNITS[found[3].lower()], int((found[2] or "0").ljust(9, "0"))
        size = int(found[1]) * unit + billionths * unit // 1_000_000_000
        return _within(size, least, most)

    return Kind(
        parse, f"a size from {shown(least)} to {shown(most)}, as in 1048576, 64MiB or 1.5GiB"
    )


def a_count(least: int, most: int) -> Kind:
    """Allow a whole number."""

    def parse(value: object) -> int:
        text = _text(value)
        if not _WHOLE.fullmatch(text):
            raise ValueError
        return _within(int(text), least, most)

    return Kind(parse, f"a whole number from {least} to {most}")


def seconds(least: float, most: float) -> Kind:
    """Allow a time."""

    def parse(value: object) -> float:
        return _within(float(_text(value)), least, most)

    return Kind(parse, f"a number of seconds from {least:g} to {most:g}")


def one_of(*names: str) -> Kind:
    """Allow some words."""

    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind(parse, f"{', '.join(names[:-1])} or {names[-1]}")


def _switch(value: object) -> bool:
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ValueError


def _path(value: object) -> Path:
    text = str(value)
    if not isinstance(value, str | Path) or not text or "\0" in text:
        raise ValueError
    return Path(text)


def _address(value: object) -> Address:
    try:
        return Address.parse(str(value))
    except Invalid as error:
        raise ValueError from error


def _address_or_off(value: object) -> Address | None:
    return None if value == "off" else _address(value)


def _cluster_or_off(value: object) -> str | None:
    if value in (None, "off"):
        return None
    try:
        parse_url(str(value))
    except Invalid as error:
        raise ValueError from error
    return str(value)


def _zone(value: object) -> str:
    text = _text(value)
    if len(text) > ZONE_CHARACTERS_MAX or not text.isprintable():
        raise ValueError
    return text


A_SWITCH: Final = Kind(_switch, "true or false")
A_PATH: Final = Kind(_path, "a path")
AN_ADDRESS: Final = Kind(
    _address, "host:port, as in 127.0.0.1:4710 or [::1]:4710, and port 0 for any that is free"
)
AN_ADDRESS_OR_OFF: Final = Kind(_address_or_off, f"{AN_ADDRESS.allowed}; or off")
A_CLUSTER_OR_OFF: Final = Kind(
    _cluster_or_off, "etcd://host:port,host:port/prefix, meta://host:port or dir://path; or off"
)
A_ZONE: Final = Kind(_zone, f"printable text of at most {ZONE_CHARACTERS_MAX} characters")


def shown(value: object) -> str:
    """Write a value as one would give it."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        unit = next((unit for unit, size in _BINARY.items() if value and value % size == 0), "")
        return f"{value // _BINARY[unit]}{unit}" if unit else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


LogFormat = Annotated[
    Literal["auto", "json", "console"],
    About(
        "How events are written to stderr; auto is console on a terminal, json elsewhere.",
        one_of("auto", "json", "console"),
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    About(
        "Which events are left out: what matters less.",
        one_of("debug", "info", "warning", "error"),
    ),
]


def _text(value: object) -> str:
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 (one error for all that is not allowed)
    return str(value).strip()


def _within(value: N, least: float, most: float) -> N:
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError
    return value
