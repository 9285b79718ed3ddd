"""Roost: a durable log in Python.

Today: `FileChannel`, a crash-safe queue in a folder, and `connect`, which opens a cluster of
replicated ledgers.
"""

from typing import TYPE_CHECKING

from roost.channel.channel import FileChannel
from roost.errors import (
    Closed,
    Corrupt,
    Invalid,
    Missing,
    NoRoom,
    NotFound,
    Retryable,
    RoostError,
    Trimmed,
    Unavailable,
    Unknown,
)
from roost.wire.codec import Codec, json_codec, msgpack_codec

if TYPE_CHECKING:
    from roost.blocking.cluster import Cluster

__all__ = [
    "Closed",
    "Codec",
    "Corrupt",
    "FileChannel",
    "Invalid",
    "Missing",
    "NoRoom",
    "NotFound",
    "Retryable",
    "RoostError",
    "Trimmed",
    "Unavailable",
    "Unknown",
    "connect",
    "json_codec",
    "msgpack_codec",
]


def connect(url: str, *, timeout_s: float = 10.0) -> "Cluster":
    """Open a cluster of replicated ledgers, for threads: see `roost.blocking.cluster`.

    `url` says where its metadata is: etcd://host:port,host:port/prefix or meta://host:port.
    """
    from roost.blocking.cluster import connect as connected  # noqa: PLC0415  it takes a while

    return connected(url, timeout_s=timeout_s)
