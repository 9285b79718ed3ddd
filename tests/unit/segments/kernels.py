"""The kernel and its twin, and what their tests build: frames, slots, and one of each class."""

import struct
import zlib
from types import ModuleType
from typing import Any

import pytest

from roost.segments import _kernel, plain

MIB = 1 << 20
PREFIX = bytes(range(104))

implementations = pytest.mark.parametrize("made", [_kernel, plain], ids=["compiled", "plain"])


def framed(*payloads: bytes) -> bytes:
    """Write frames by the document, without the code under test."""
    return b"".join(struct.pack(">II", len(p), zlib.crc32(p)) + p for p in payloads)


def slot_copy(sequence: int, position: int) -> bytes:
    """Write one copy of a slot by the document."""
    body = PREFIX + struct.pack(">QQ", sequence, position)
    return body + struct.pack(">II", zlib.crc32(body), 0)


def appender(
    made: ModuleType, window: Any, begin: int = 0, *, publish: bool = True
) -> tuple[Any, Any]:
    """Make an appender that stands at the begin of its window, and its ends."""
    ends = made.Ends()
    ends.written = ends.visible = begin
    made_one = made.Appender(ends, publish=publish)
    made_one.open_window(memoryview(window), begin)
    return made_one, ends


def cursor(made: ModuleType, window: Any, begin: int = 0, slot: Any = None) -> Any:
    """Make a cursor that stands at the begin of its window, all of which is visible."""
    ends = made.Ends()
    ends.written = ends.visible = begin + len(window)
    reader = made.Cursor(ends, position=begin, slot=slot)
    reader.open_window(window, begin)
    return reader


def slot(made: ModuleType, memory: bytearray, sequence: int = 0, position: int = 0) -> Any:
    """Make a slot over the first and the second 128 bytes of a memory."""
    views = memoryview(memory)[:128], memoryview(memory)[128:256]
    return made.Slot(PREFIX, *views, sequence=sequence, position=position)
