"""The machine that commands work on: its disk and its clock."""

import sys
from pathlib import Path

import click

from roost.channel.view import View
from roost.cli.progress import Progress
from roost.host.clock import Clock
from roost.host.disk import Disk
from roost.host.posix import PosixDisk
from roost.host.system import SystemClock
from roost.segments.kernel import GUARDED


def disk() -> Disk:
    """Give the disk for reading beside an owner: it maps nothing, since the owner may cut it."""
    return PosixDisk(guarded=False)


def clock() -> Clock:
    """Give the clock."""
    return SystemClock()


def view(path: Path) -> View:
    """Look at a channel's folder without its lock."""
    return View(disk(), path)


def write_path(folder: Path) -> str:
    """Say how an owner writes in this folder, and why not faster."""
    reason = PosixDisk(guarded=GUARDED).mapping(folder)
    return f"write ({reason})" if reason else "mapped"


def progress(doing: str) -> Progress:
    """Show how far something is, if stderr is a terminal."""
    return Progress(
        clock(),
        lambda text: click.echo(text, err=True, nl=False),
        shown=sys.stderr.isatty(),
        doing=doing,
    )
