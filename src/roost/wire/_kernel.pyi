from collections.abc import Iterator, Sequence
from typing import TypeAlias, final

from roost.types import EntryId, Epoch, LedgerId
from roost.wire.frame import Frame

_Readable: TypeAlias = bytes | bytearray | memoryview

@final
class Frames:
    frame_bytes_max: int
    def __init__(self, chunk: bytes, at: int, frame_bytes_max: int) -> None: ...
    @property
    def at(self) -> int: ...
    def __iter__(self) -> Iterator[Frame]: ...

def adjacent(slots: bytes, at: int, bytes_max: int) -> list[int]: ...
def blank(size: int) -> bytearray: ...
def read_add(body: bytes, blob: _Readable) -> tuple[LedgerId, EntryId, Epoch, EntryId] | None: ...
def holds(blocks: bytes, ledger: int, first: int, before: int) -> bool: ...
def payloads(
    blocks: _Readable, ledger: int, first: int, before: int
) -> dict[EntryId, memoryview] | None: ...
def encode_add(
    request: int,
    flags: int,
    epoch: int,
    lac: int,
    ledger: int,
    entry: int,
    payload: _Readable,
    short_bytes: int,
) -> bytes: ...
def record_head(
    what: int,
    position: int,
    synced_before: int,
    epoch: int,
    lac: int,
    block: _Readable,
    seed: int,
) -> bytes: ...
def slots(blocks: Sequence[_Readable], offset: int) -> bytes: ...
