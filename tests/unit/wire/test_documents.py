"""docs/formats/wire.md says what the code does: kinds, fields, errors and limits."""

import re
from pathlib import Path
from typing import get_args

import pytest

from roost.rpc.limits import Limits
from roost.rpc.session import REQUEST_BYTES
from roost.wire.errors import ATTRIBUTES, CODES, TEXT_BYTES_MAX
from roost.wire.frame import BODY_BYTES_MAX, HELLO_BYTES_MAX
from roost.wire.messages import (
    BAD_ENTRIES_MAX,
    KINDS,
    LEDGERS_MAX,
    SOURCES_MAX,
    SUSPECTS_MAX,
    Body,
    Hello,
    Welcome,
)

TEXT = (Path(__file__).parents[3] / "docs" / "formats" / "wire.md").read_text()


def rows(pattern: str) -> list[tuple[str, ...]]:
    return [found.groups() for found in re.finditer(rf"^\| {pattern}", TEXT, re.MULTILINE)]


def test_the_table_of_kinds_is_whole() -> None:
    listed = {int(number): name for number, name in rows(r"(\d+) \| ([A-Z]+) \|")}

    assert listed == KINDS


def test_the_table_of_errors_is_whole() -> None:
    listed = {
        int(code): (name, [*filter(None, attributes.split(", "))])
        for code, name, attributes in rows(r"(\d+) \| ([A-Z][A-Za-z]+) \| ?([a-z, ]*?) ?\|$")
    }

    assert listed == {
        code: (kind.__name__, [*ATTRIBUTES.get(kind, {})]) for code, kind in CODES.items()
    }


@pytest.mark.parametrize("body", get_args(Body), ids=lambda body: body.__name__)
def test_fields_stand_in_their_order(body: type[Hello]) -> None:
    if body in (Hello, Welcome):
        section = TEXT[TEXT.index(f"| {body.__name__.upper()} | |") :].split("\n\n")[0]
        listed = re.findall(r"^\| ([a-z_]+) \|", section, re.MULTILINE)
    else:
        ((text,),) = rows(rf"{body.__name__} \| (.*) \|$")
        outside = re.sub(r"\([^)]*\)", "", text.split(". ")[0])
        listed = re.findall(r"(?:^|, )([a-z_]+)", outside)

    assert tuple(listed) == body.__struct_fields__


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()

    for number in (HELLO_BYTES_MAX, SUSPECTS_MAX, BAD_ENTRIES_MAX, LEDGERS_MAX, SOURCES_MAX):
        assert re.search(rf"\b{number}\b", TEXT), number
    assert f"{BODY_BYTES_MAX:,} bytes" in TEXT
    assert limits.frame_bytes_max == (16 << 20) + (64 << 10)
    assert f"within {limits.hello_s:g} seconds" in TEXT
    assert f"above {limits.held_bytes_max >> 20} MiB" in TEXT
    assert f"has {limits.output_bytes_max >> 10} KiB of answers" in TEXT
    assert f"than {limits.stream_bytes_max >> 20} MiB of one answer" in TEXT
    assert f"than {limits.tasks_max} requests" in TEXT
    assert f"each with {REQUEST_BYTES} more" in TEXT
    assert f"at most {TEXT_BYTES_MAX} bytes" in TEXT
