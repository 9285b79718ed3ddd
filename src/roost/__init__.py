"""Roost: a durable log in Python. Today: `FileChannel`, a crash-safe queue in a folder."""

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
    "json_codec",
    "msgpack_codec",
]
