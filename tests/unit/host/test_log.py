"""Events become lines that a program or a person can read, whatever is in them."""

import io
import json
from pathlib import Path

import pytest

from roost.host.lines import Form, LineLog
from roost.host.log import Level, Log, Memory, Silence
from tests.unit.host.hand import Hand

NOON = 1_800_000_000.25


class Broken(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


class Unspeakable:
    """Something that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def line_log(stream: io.StringIO, form: Form = "json", level: Level = "info") -> LineLog:
    return LineLog(stream, clock=Hand(wall=NOON), form=form, level=level)


def test_an_event_is_one_line_of_json_with_its_fields_in_order() -> None:
    stream = io.StringIO()

    line_log(stream).event("fenced", ledger=7, ours=3, why=None, slow=True, share=0.5)

    assert stream.getvalue() == (
        '{"at":"2027-01-15T08:00:00.250000Z","level":"info","event":"fenced",'
        '"ledger":7,"ours":3,"why":null,"slow":true,"share":0.5}\n'
    )


def test_a_person_reads_columns() -> None:
    stream = io.StringIO()

    log = line_log(stream, "console")
    log.event("fenced", level="warning", ledger=7, by="node one", uuid=b"\x01\xff")

    assert stream.getvalue() == (
        "2027-01-15T08:00:00.250000Z warning fenced               "
        'ledger=7 by="node one" uuid=01ff\n'
    )


def test_a_terminal_gets_colors() -> None:
    stream = Terminal()

    line_log(stream, "console").event("fenced", ledger=7)

    assert "\x1b[1mfenced" in stream.getvalue()


@pytest.mark.parametrize(
    ("least", "kept"),
    [
        ("debug", ["debug", "info", "warning", "error", "plain", "odd"]),
        ("info", ["info", "warning", "error", "plain", "odd"]),
        ("error", ["error", "odd"]),
    ],
)
def test_what_matters_too_little_is_left_out(least: Level, kept: list[str]) -> None:
    stream = io.StringIO()
    log = line_log(stream, level=least)

    for level in ("debug", "info", "warning", "error"):
        log.event(level, level=level)
    log.event("plain")
    log.event("odd", level="catastrophe")  # what is not known may well be bad

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == kept


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "text", ['x" level=info\r\n{"event":"granted"}', "\x1b[31m", "\x9b2J", "\u2028", "\ud800"]
)
def test_a_hostile_field_neither_ends_the_line_nor_reaches_the_terminal(
    form: Form, text: str
) -> None:
    stream = io.StringIO()

    line_log(stream, form).event("refused", by=text, of={text: [text]})

    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "refused" in line


@pytest.mark.parametrize("form", ["json", "console"])
def test_any_object_is_shown_somehow(form: Form) -> None:
    stream = io.StringIO()

    line_log(stream, form).event(
        "odd", path=Path("/a"), error=OSError(5, "broken"), big=1 << 80, each=[1, "b"], of={2: "c"}
    )

    (line,) = stream.getvalue().splitlines()
    assert all(text in line for text in ("/a", "[Errno 5] broken", str(1 << 80), "1", "b", "c"))


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_field_may_have_any_name(form: Form) -> None:
    stream = io.StringIO()
    odd = {"event": 1, "at": 2, "self": 3, "exc_info": 4, "exception": 5, "stack": 6, "name": 7}

    line_log(stream, form).event("odd", **odd)

    (line,) = stream.getvalue().splitlines()
    assert "odd" in line
    assert all(str(number) in line for number in odd.values())


@pytest.mark.parametrize("form", ["json", "console"])
def test_nothing_that_goes_wrong_is_raised(form: Form) -> None:
    closed = io.StringIO()
    logs = [line_log(Broken(), form), line_log(closed, form), line_log(io.StringIO(), form)]
    closed.close()

    for log in logs:
        log.event("said", what=Unspeakable())
        log.event("said", what=1)


def test_a_memory_keeps_what_silence_forgets() -> None:
    memory = Memory()
    logs: list[Log] = [memory, Silence()]

    for log in logs:
        log.event("opened", name="inbox", level="debug")
        log.event("closed")

    assert memory.events == [("opened", {"name": "inbox", "level": "debug"}), ("closed", {})]
    assert memory.names == ["opened", "closed"]
