"""`roost doctor`: whether all is well with this machine, and with a channel on it.

Each line is one thing that was looked at, with what to do about it if it is not well. Nothing of
a channel is changed: for the time of an fsync, a file of its own is written and removed.
"""

import contextlib
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final, Literal

import click
import msgspec

from roost.channel.channel import LOCK_NAME, SEGMENT_BYTES
from roost.cli.ending import FAILED, ends_well, epilog, said
from roost.cli.machine import clock, disk, view, write_path
from roost.cli.pipes import Pipes
from roost.cli.report import finding_text
from roost.cli.words import counted, size
from roost.errors import NotFound, RoostError
from roost.host.examine import file_system, lock_holder
from roost.segments import kernel as channel_kernel
from roost.wire import kernel as wire_kernel

Level = Literal["ok", "warn", "fail"]

PROBE_NAME: Final = "roost-doctor.probe"
PROBE_BYTES: Final = 4096
SYNCS: Final = 5
SYNC_SLOW_S: Final = 0.05
FREE_LOW_BYTES: Final = 16 * SEGMENT_BYTES
FORGETFUL: Final = ("ramfs", "tmpfs")


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    subject: str
    text: str


@click.command(epilog=epilog("$ roost doctor inbox"))
@click.argument("path", type=click.Path(path_type=Path), required=False)
@ends_well
def doctor(*, path: Path | None) -> None:
    """Tell whether all is well with this machine, and with the channel in PATH.

    Each line says ok, warn or fail; exits with 1 if one says fail. Works beside the process that
    has the channel open.
    """
    failed = False
    with Pipes() as pipes, pipes.waiting():
        for check in chain(machine_checks(), () if path is None else folder_checks(path)):
            pipes.write(f"{check.level:4}  {check.subject:11}  {check.text}\n".encode())
            failed = failed or check.level == "fail"
    if failed:
        sys.exit(FAILED)


def machine_checks() -> Iterator[Check]:
    """Look at the interpreter and at what is installed."""
    yield Check("ok", "python", platform.python_version())
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if platform.system() == "Linux":
        yield Check("ok", "platform", system)
    else:
        yield Check("warn", "platform", f"{system}: only Linux is promised")
    kernels = {"channel": channel_kernel.COMPILED, "wire": wire_kernel.COMPILED}
    plain = [name for name, compiled in kernels.items() if not compiled]
    if not plain:
        yield Check("ok", "kernels", "compiled")
    else:
        yield Check(
            "warn",
            "kernels",
            f"plain Python ({', '.join(plain)}): it does the same, slower. With a C compiler and "
            "Python's headers (Debian: gcc, python3-dev) at hand, install roost again",
        )
    try:
        yield Check("ok", "isal", version("isal"))
    except PackageNotFoundError:
        yield Check("fail", "isal", "not installed: checksums need it; pip install isal")


def folder_checks(path: Path) -> Iterator[Check]:
    """Look at a channel's folder, and at the disk that it is on, or would be on."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        yield Check("fail", "channel", f"{folder} is not a folder")
        return
    yield from _disk_checks(folder)
    yield from _channel_checks(path)


def _disk_checks(folder: Path) -> Iterator[Check]:
    kind = file_system(folder)
    if kind in FORGETFUL:
        yield Check("warn", "file system", f"{kind}: everything on it is gone with the power")
    else:
        yield Check("ok", "file system", kind or "unknown")
    way = write_path(folder)
    if way == "mapped":
        yield Check("ok", "write path", "mapped: a send is a store into memory")
    else:
        yield Check("warn", "write path", f"{way}: a send is a system call")
    free = disk().free_bytes(folder)
    level: Level = "fail" if free < SEGMENT_BYTES else "warn" if free < FREE_LOW_BYTES else "ok"
    yield Check(level, "free", f"{size(free)}; a segment takes {size(SEGMENT_BYTES)}")
    try:
        times = [1000 * time_s for time_s in sync_times(folder)]
    except OSError as error:
        yield Check("fail", "fsync", f"{folder} cannot be written: {error.strerror}")
        return
    told = f"{median(times):.2f} ms ({min(times):.2f} to {max(times):.2f}, {len(times)} of them)"
    slow = median(times) > 1000 * SYNC_SLOW_S
    yield Check("warn" if slow else "ok", "fsync", f"{told}{': slow' if slow else ''}")


def sync_times(folder: Path) -> list[float]:
    """Measure how many seconds some fsyncs take in a folder."""
    machine, now = disk(), clock().now
    probe = folder / PROBE_NAME
    file = machine.open(probe, create=True)
    try:
        times = []
        for count in range(SYNCS):
            file.write_at(count * PROBE_BYTES, bytes(PROBE_BYTES))
            begin = now()
            file.sync()
            times.append(now() - begin)
        return times
    finally:
        file.close()
        with contextlib.suppress(FileNotFoundError):  # another doctor was quicker
            machine.unlink(probe)


def _channel_checks(path: Path) -> Iterator[Check]:
    try:
        seen = view(path)
    except NotFound:
        yield Check("warn", "channel", f"there is none in {path} yet")
        return
    except (RoostError, OSError) as error:
        yield Check("fail", "channel", said(error))
        return
    with seen:
        segments = counted(len(seen.segments), "segment")
        yield Check("ok", "channel", f"positions {seen.head} to {seen.visible} in {segments}")
        yield Check("ok", "open in", lock_holder(path / LOCK_NAME) or "no process")
        if seen.durability:
            yield Check("ok", "durability", f"{seen.durability}, as its last owner chose")
        else:
            yield Check("warn", "durability", "unknown: the file offset does not say")
        for finding in seen.findings:
            yield Check("fail", "segments", finding_text(finding))
