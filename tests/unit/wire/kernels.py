"""The wire's kernel and its twin, and what their tests build by the documents alone."""

import struct
import zlib

import pytest

from roost.wire import _kernel, plain

LEDGER = 7

implementations = pytest.mark.parametrize("made", [_kernel, plain], ids=["compiled", "plain"])


def frame(kind: int, request: int, body: bytes = b"", blob: bytes = b"", flags: int = 0) -> bytes:
    """Write a frame."""
    checked = struct.pack("<BBHI", kind, flags, len(body), request) + body
    return struct.pack("<II", 4 + len(checked) + len(blob), zlib.crc32(checked)) + checked + blob


def block(entry: int, payload: bytes, ledger: int = LEDGER) -> bytes:
    """Write the block of an entry."""
    checked = struct.pack("<IQQ", len(payload), ledger, entry) + payload
    return struct.pack("<HBBI", 0xE27A, 1, 0, zlib.crc32(checked)) + checked


def blocks(first: int, *payloads: bytes) -> bytes:
    """Write the blocks of entries that follow one another."""
    return b"".join(block(entry, payload) for entry, payload in enumerate(payloads, first))
