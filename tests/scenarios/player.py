"""Plays transcripts: protocol stories in words that anyone can review.

A scenario file is paragraphs. One that holds a line `----` is a step: comments, commands, the
line, and what the commands answered. Any other paragraph is a comment of its own.

    # A slow node never holds back a quorum, and its late acks change nothing.
    stored b upto=1
    ----
    Acknowledge upto=1

A command is a verb, words, and `name=value` pairs. It calls the method of that name on a stage,
an object made for the file; the method's annotations turn the words into values. Whatever it
returns is shown, one line for each effect. An error of Roost's is shown too: it is an answer.
After each command the stage checks the invariants of its machine.
"""

import inspect
import shlex
import typing
from collections.abc import Callable
from typing import Protocol

import msgspec

from roost.errors import RoostError


class Stage(Protocol):
    """What a scenario plays on: public methods are its verbs."""

    def check(self) -> None:
        """Assert every invariant of the machine."""


class Step(msgspec.Struct, frozen=True):
    """One paragraph; `answer` is None where there is nothing to play."""

    said: tuple[str, ...]
    answer: tuple[str, ...] | None


def read(text: str) -> list[Step]:
    """Read a transcript."""
    steps = []
    for paragraph in text.strip("\n").split("\n\n"):
        lines = tuple(paragraph.split("\n"))
        if "----" in lines:
            at = lines.index("----")
            steps.append(Step(said=lines[:at], answer=lines[at + 1 :]))
        else:
            strays = [line for line in lines if not line.startswith("#")]
            assert not strays, f"{strays[0]!r} is neither a comment nor in a step with `----`"
            steps.append(Step(said=lines, answer=None))
    return steps


def write(steps: list[Step]) -> str:
    """Write a transcript, so that `read` gives the same steps."""
    paragraphs = [
        step.said if step.answer is None else (*step.said, "----", *step.answer) for step in steps
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def play(steps: list[Step], stage: Stage) -> list[Step]:
    """Play all steps on one stage, and put down what is answered now."""
    played = []
    for step in steps:
        answer: list[str] = []
        for line in step.said if step.answer is not None else ():
            if not line.startswith("#"):
                answer += perform(stage, line)
                stage.check()
        played.append(step if step.answer is None else Step(said=step.said, answer=tuple(answer)))
    return played


def perform(stage: Stage, line: str) -> list[str]:
    """Call one command, and show what came out."""
    verb, *words = shlex.split(line)
    method: Callable[..., object] | None = getattr(stage, verb, None)
    assert method is not None, f"{type(stage).__name__} knows no {verb!r}"
    try:
        return show(call(method, words))
    except RoostError as error:
        return [f"{type(error).__name__}: {error}"]


def call(method: Callable[..., object], words: list[str]) -> object:
    """Call a method with words, turned into what its annotations ask for."""
    signature = inspect.signature(method)
    types = typing.get_type_hints(method)
    named = [word.partition("=") for word in words if "=" in word]
    bound = signature.bind(
        *(word for word in words if "=" not in word), **{name: value for name, _, value in named}
    )
    for name, given in bound.arguments.items():
        several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        turned = [
            msgspec.convert(word, types[name], strict=False)
            for word in (given if several else [given])
        ]
        bound.arguments[name] = turned if several else turned[0]
    return method(*bound.args, **bound.kwargs)


def show(value: object) -> list[str]:
    """Put what a command returned into lines: none for nothing, one for each effect."""
    match value:
        case None:
            return []
        case list() | tuple():
            return [line for item in value for line in show(item)]
        case msgspec.Struct():
            fields = (f"{name}={_shown(getattr(value, name))}" for name in value.__struct_fields__)
            return [" ".join([type(value).__name__, *fields])]
        case _:
            return [str(value)]


def _shown(value: object) -> str:
    """Put a field's value into one word, where it is one."""
    return value.decode("ascii", "backslashreplace") if isinstance(value, bytes) else str(value)
