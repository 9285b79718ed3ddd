"""How a command ends: with an exit code that a script can tell apart, and one clear line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec

import click

from roost.cli.pipes import Interrupted
from roost.errors import Invalid, RoostError

P = ParamSpec("P")

FAILED: Final = 1
MISUSED: Final = 2
TIMED_OUT: Final = 3
SIGNALLED: Final = 128
SIGPIPE: Final = 13

_EXIT_CODES: Final = """
\b
Exit codes:
    0  done
    1  failed, with the reason on stderr; or problems were found
    2  wrong usage
    3  recv: the time ran out before --count messages came
  130  interrupted (143 by SIGTERM)
  141  whoever read the output has gone
"""


def epilog(*example: str) -> str:
    """Write what stands below a command's options: an example, and the exit codes."""
    shown = "".join(f"  {line}\n" for line in example)
    return (f"\b\nExample:\n{shown}" if example else "") + _EXIT_CODES


def ends_well(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into its exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Interrupted as error:
            sys.exit(SIGNALLED + error.number)
        except BrokenPipeError:
            sys.exit(SIGNALLED + SIGPIPE)
        except (RoostError, OSError) as error:
            click.echo(f"roost: {said(error)}", err=True)
            sys.exit(FAILED)

    return run


@contextmanager
def misused() -> Iterator[None]:
    """End with the exit code of wrong usage if something that was given is not allowed."""
    try:
        yield
    except Invalid as error:
        click.echo(f"roost: {said(error)}", err=True)
        sys.exit(MISUSED)


def said(error: Exception) -> str:
    """Say an error on one line, with what a command's user does where a program makes a call."""
    return str(error).replace("skip_corrupt()", "--skip-corrupt")
