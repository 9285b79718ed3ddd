"""How a simulated world misbehaves: chances and sizes, as plain values that a seed may draw."""

from typing import Literal

import msgspec

Keep = Literal["all", "none", "some"]
"""What of the unsynced a loss of power leaves; `some` draws it anew for each thing."""

Operation = Literal[
    "allocate",
    "close",
    "free_bytes",
    "lock",
    "make_folder",
    "map",
    "mapping",
    "names",
    "open",
    "read",
    "release",
    "rename",
    "size",
    "sweep",
    "sync",
    "sync_folder",
    "truncate",
    "unlink",
    "write",
]
"""What a disk is asked to do, as `SimDisk.fail_next` and the trace name it."""


class DiskFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulated disk misbehaves. By default it only forgets what was not synced.

    What has no unit is a chance from 0 to 1.
    """

    read_fails: float = 0.0
    """A read raises EIO."""

    write_fails: float = 0.0
    """A write raises EIO after any part of it was written."""

    sync_fails: float = 0.0
    """A sync of a file or folder raises EIO. What was unsynced in a file is then clean but lost."""

    writes_back: float = 0.0
    """At any operation, some unsynced sectors of one file become durable by themselves.

    So a crash may leave a version of a sector that was neither the synced nor the last one.
    """

    evicts: float = 0.0
    """At any operation on a file, one of its sectors that are clean but lost reads as before."""

    rots: float = 0.0
    """A crash flips a bit of a file; drawn for each file."""

    tears: float = 0.0
    """A crash leaves the front of the new and the back of the old version in an unsynced sector."""

    capacity_bytes: int = 1 << 40
    """What all files together may take, counted in blocks of 4096."""

    file_bytes_max: int = 256 << 10
    """What one file may take; both versions of each file are held at this size all the time."""

    mapping: str = ""
    """Why files cannot be mapped safely, or '' if they can."""
