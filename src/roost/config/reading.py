"""Finds out which value of each field counts, and where it was given.

A flag comes before a variable, a variable before the file, the file before the default. Whatever
is given is read, also where something else comes before it, so that an error is not found only
when that is taken away.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from roost.config.master import MasterConfig
from roost.config.meta import MetaConfig
from roost.config.node import NodeConfig
from roost.config.values import About, shown
from roost.errors import Invalid

FILE_BYTES_MAX: Final = 1 << 20
DEFAULT: Final = "default"
MISSING: Final = "not given"


class Section(msgspec.Struct, frozen=True):
    """What one kind of process is told: a table of a file, and variables of one prefix."""

    name: str
    """Of the table, and of the command that starts such a process."""

    config: type[msgspec.Struct]

    @property
    def prefix(self) -> str:
        """Begin the names of its variables."""
        return f"ROOST_{self.name.upper()}_"

    @property
    def file_variable(self) -> str:
        """Name the variable that names the file, where no flag does."""
        return f"{self.prefix}CONFIG"


NODE: Final = Section("node", NodeConfig)
META: Final = Section("meta", MetaConfig)
MASTER: Final = Section("master", MasterConfig)
SECTIONS: Final = (NODE, META, MASTER)


class Field(msgspec.Struct, frozen=True):
    """One field of a section."""

    section: Section
    name: str
    about: About
    default: Any
    required: bool

    @property
    def flag(self) -> str:
        """Name its flag."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """Name its variable."""
        return f"{self.section.prefix}{self.name.upper()}"


class Chosen(msgspec.Struct, frozen=True):
    """The value of a field that counts, and where it was given."""

    field: Field
    value: Any
    source: str


@cache
def fields_of(section: Section) -> tuple[Field, ...]:
    """List the fields of a section, in order."""
    hints = get_type_hints(section.config, include_extras=True)
    return tuple(
        Field(
            section=section,
            name=field.name,
            about=hints[field.name].__metadata__[0],
            default=field.default,
            required=field.required,
        )
        for field in msgspec.structs.fields(section.config)
    )


def choose(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: Path | None = None,
    *,
    section: Section = NODE,
) -> list[Chosen]:
    """Choose a value for each field; `flags` has those that were given, by the field's name.

    Raises `Invalid` for what is not allowed, and for variables, tables and keys that nobody knows.
    """
    if file is None and environ.get(section.file_variable):
        file = Path(environ[section.file_variable])
    fields = fields_of(section)
    variables = {field.variable for field in fields}
    for name in environ:
        if name.startswith(section.prefix) and name not in (*variables, section.file_variable):
            raise _unknown("variable", name, variables)
    keys = {} if file is None else _read_file(file, section)
    _refuse_unknown_keys(keys, file, section)
    return [
        _first(
            field,
            [
                (flags.get(field.name), f"flag {field.flag}"),
                (environ.get(field.variable), f"variable {field.variable}"),
                (keys.get(field.name), f"key {section.name}.{field.name} of {file}"),
            ],
        )
        for field in fields
    ]


def node_config(chosen: Iterable[Chosen]) -> NodeConfig:
    """Make a node's configuration; `Invalid` if something is missing or does not fit together."""
    values, sources = _complete(chosen)
    config = NodeConfig(**values)
    config.validate(sources)
    return config


def meta_config(chosen: Iterable[Chosen]) -> MetaConfig:
    """Make the configuration of a metadata server, likewise."""
    values, sources = _complete(chosen)
    config = MetaConfig(**values)
    config.validate(sources)
    return config


def master_config(chosen: Iterable[Chosen]) -> MasterConfig:
    """Make the configuration of a master, likewise."""
    values, sources = _complete(chosen)
    config = MasterConfig(**values)
    config.validate(sources)
    return config


def _complete(chosen: Iterable[Chosen]) -> tuple[dict[str, Any], dict[str, str]]:
    """Give each field's value and its source, if none is missing."""
    by_name = {each.field.name: each for each in chosen}
    for each in by_name.values():
        if each.source == MISSING:
            raise Invalid(
                f"{each.field.name} is not given; give it with {each.field.flag}, "
                f"{each.field.variable}, or the key {each.field.section.name}.{each.field.name} "
                "of a file"
            )
    values = {name: each.value for name, each in by_name.items()}
    return values, {name: each.source for name, each in by_name.items()}


def _first(field: Field, given: list[tuple[object, str]]) -> Chosen:
    """Read everything that is given, and choose the first."""
    read = [
        Chosen(field, _parsed(field, value, source), source)
        for value, source in given
        if value is not None
    ]
    if read:
        return read[0]
    if field.required:
        return Chosen(field, None, MISSING)
    return Chosen(field, field.default, DEFAULT)


def _parsed(field: Field, value: object, source: str) -> Any:
    try:
        return field.about.kind.parse(value)
    except ValueError:
        told = repr(value) if isinstance(value, str) else shown(value)
        raise Invalid(
            f"{field.name} = {told} ({source}) is not allowed: give {field.about.kind.allowed}"
        ) from None


def _read_file(file: Path, section: Section) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise Invalid(f"{file} is longer than {FILE_BYTES_MAX} bytes: is it the right file?")
        tables = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{file} is not TOML: {error}") from error
    except OSError as error:
        raise Invalid(f"the configuration {file} cannot be read: {error.strerror}") from error
    known = [each.name for each in SECTIONS]
    if other := next((name for name in tables if name not in known), None):
        raise _unknown(f"the table or key of {file}", other, known)
    keys = tables.get(section.name, {})
    if not isinstance(keys, dict):
        raise Invalid(f"{file}: {section.name} is a table, written [{section.name}]")
    return keys


def _refuse_unknown_keys(keys: Iterable[str], file: Path | None, section: Section) -> None:
    known = [field.name for field in fields_of(section)]
    for name in keys:
        if name not in known:
            raise _unknown(f"the key {section.name}.* of {file}", name, known)


def _unknown(what: str, name: str, known: Iterable[str]) -> Invalid:
    near = get_close_matches(name, [*known], n=1, cutoff=0.0)
    return Invalid(f"{what}: nobody knows {name!r}; the nearest known name is {near[0]}")
