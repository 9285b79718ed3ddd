"""The machine that commands work on: its seams, its environment, and its terminal."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click

from roost.channel.view import View
from roost.cli.progress import Progress
from roost.host import system
from roost.host.clock import Clock
from roost.host.disk import Disk
from roost.host.log import Level, Log
from roost.host.net import AsyncioNet
from roost.host.posix import PosixDisk
from roost.host.random import Rng
from roost.host.seams import Seams
from roost.host.system import SystemClock, ThreadTasks, system_rng, this_process
from roost.segments.kernel import GUARDED


def disk() -> Disk:
    """Give the disk for reading beside an owner: it maps nothing, since the owner may cut it."""
    return PosixDisk(guarded=False)


def clock() -> Clock:
    """Give the clock."""
    return SystemClock()


def rng() -> Rng:
    """Give the source of chance."""
    return system_rng()


def keep_memory(size: int) -> None:
    """Let this process keep what it frees, where the machine can."""
    system.keep_memory(size)


def seams() -> Seams:
    """Give all of it to a process that stays."""
    return Seams(clock=clock(), disk=disk(), net=AsyncioNet(), rng=rng(), tasks=ThreadTasks())


def log(form: Literal["auto", "json", "console"], level: Level) -> Log:
    """Write events to stderr."""
    from roost.host.lines import LineLog  # it takes longer to import than most commands run

    if form == "auto":
        form = "console" if sys.stderr.isatty() else "json"
    return LineLog(sys.stderr, clock=clock(), form=form, level=level)


def environment() -> Mapping[str, str]:
    """Give the variables that we were started with."""
    return os.environ


def pid() -> int:
    """Tell the number of this process."""
    return os.getpid()


def holder() -> str:
    """Say who we are, for whoever finds a lock of ours."""
    return this_process()


def view(path: Path) -> View:
    """Look at a channel's folder without its lock."""
    return View(disk(), path)


def write_path(folder: Path) -> str:
    """Say how an owner writes in this folder, and why not faster."""
    reason = PosixDisk(guarded=GUARDED).mapping(folder)
    return f"write ({reason})" if reason else "mapped"


def progress(doing: str, of: str = "") -> Progress:
    """Show how far something is, if stderr is a terminal; `of` is what is counted, if not bytes."""
    return Progress(
        clock(),
        lambda text: click.echo(text, err=True, nl=False),
        shown=sys.stderr.isatty(),
        doing=doing,
        of=of,
    )
