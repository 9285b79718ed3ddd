"""Tells what the bytes of a segment are: good records, damage, or a torn tail.

Pure: it looks at bytes and answers; cutting, moving and reporting is the caller's. The promises: a
good record is never given up because something before it is bad, bytes that are no record of this
very segment and place are never taken for one, and bytes below a position that a record calls
durable are never called a tail.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final

from roost.journal.chain import Damage
from roost.journal.header import HEADER_BYTES, Header
from roost.journal.record import (
    CHECKED_FROM,
    HEAD_BYTES,
    HEADS_BYTES,
    KINDS,
    MAGIC,
    MAGIC_BYTES,
    RECOVERY,
    Record,
)
from roost.types import EntryId, LedgerId, Position
from roost.wire import entry as wire
from roost.wire.checksum import crc32

# Magic, crc, kind and flags and zeros, block bytes, position, synced before, epoch, LAC, and of
# the block: magic and version and zero, crc, length, ledger, entry.
_HEADS: Final = Struct("<IIIIQQqqIIIQQ").unpack_from
_SIZE, _SYNCED_BEFORE, _BLOCK_CRC, _LEDGER, _ENTRY = 3, 5, 9, 11, 12
NOTHING: Final = Position(0)
_BLOCK_FRONT: Final = wire.MAGIC | wire.VERSION << 16
# What kind, flags and zeros may be together, and the two that they mean.
_WHAT: Final = {
    kind | flags << 8: (kind, flags == RECOVERY) for kind in KINDS for flags in (0, RECOVERY)
}


class Walk:
    """One pass over the bytes of a segment, from its header to an offset."""

    def __init__(self, content: bytes, header: Header, *, stop: int) -> None:
        self.bads: Final[list[Damage]] = []
        """What is no good record, in order: with ledger and entry where just the payload is bad."""
        self.synced_before = header.synced_before
        """The highest position that the header and the good heads so far call durable."""
        self.stop: Final = min(stop, len(content))
        """The file offset where it ends."""
        self._content: Final = content
        self._view: Final = memoryview(content)
        self._seed: Final = header.seed
        self._shift: Final = header.begin - HEADER_BYTES

    @property
    def end(self) -> Position:
        """The position where it ends."""
        return Position(self.stop + self._shift)

    def look(self) -> None:
        """Note what `records` does, and give nothing."""
        for _ in self._good():
            pass

    def records(self) -> Iterator[Record]:
        """Give the good records in order, and note the bad places between and behind them."""
        content = self._content
        block = HEAD_BYTES - self._shift
        for _, _, what, size, position, _, epoch, lac, _, _, _, ledger, entry in self._good():
            kind, recovery = _WHAT[what]
            begin = position + block
            yield Record(
                kind, recovery, position, ledger, entry, epoch, lac, content[begin : begin + size]
            )

    def _good(self) -> Iterator[tuple[Any, ...]]:
        """Give the heads of the good records."""
        view, good_heads, stop = self._view, self._good_heads, self.stop
        at = HEADER_BYTES
        while at < stop:
            heads = good_heads(at)
            if heads is None:
                again = self._search(at + 1)
                self._note(at, again)
                at = again
                continue
            block = at + HEAD_BYTES
            after = block + heads[_SIZE]
            synced_before = heads[_SYNCED_BEFORE]
            if synced_before > self.synced_before:  # noqa: PLR1730 (a call costs much more)
                self.synced_before = synced_before
            checked = view[block + wire.CHECKED_FROM : after]
            if after > stop or crc32(checked) != heads[_BLOCK_CRC]:
                self._note(at, min(after, stop), heads[_LEDGER], heads[_ENTRY])
            else:
                yield heads
            at = after

    def _good_heads(self, at: int) -> tuple[Any, ...] | None:
        """Read the two heads of the record at an offset, if that is what stands there."""
        if at + HEADS_BYTES > self.stop:
            return None
        heads = _HEADS(self._content, at)
        magic, crc, what, size, position, synced_before, _, _, front, _, length, ledger, entry = (
            heads
        )
        if (
            magic == MAGIC
            and position == at + self._shift
            and crc32(self._view[at + CHECKED_FROM : at + HEADS_BYTES], self._seed) == crc
            # A checksum is no proof against somebody who can compute one.
            and what in _WHAT
            and front == _BLOCK_FRONT
            and size == wire.HEAD_BYTES + length
            and length <= wire.PAYLOAD_BYTES_MAX
            and ledger <= wire.LEDGER_ID_MAX
            and entry <= wire.ENTRY_ID_MAX
            and synced_before <= position
        ):
            return heads
        return None

    def _search(self, at: int) -> int:
        """Find the next record with good heads; the end if there is none."""
        while True:
            at = self._content.find(MAGIC_BYTES, at, self.stop)
            if at < 0:
                return self.stop
            if self._good_heads(at) is not None:
                return at
            at += 1

    def _note(
        self, at: int, again: int, ledger: LedgerId | None = None, entry: EntryId | None = None
    ) -> None:
        self.bads.append(
            Damage(
                start=Position(at + self._shift),
                stop=Position(again + self._shift),
                ledger=ledger,
                entry=entry,
            )
        )


def judge_tail(
    bads: Iterable[Damage], *, bound: Position, unread_before: Position = NOTHING, end: Position
) -> Position:
    """Say where the last segment ends, which was read up to `end`.

    Everything below `bound` was durable: what is bad there is damage, and is never cut. The first
    bad place that reaches over it is where a torn tail begins, also where good records follow:
    after a loss of power some of those that were written together are there, and some are not.
    A bad place that begins below `unread_before` may be bad only because it could not be read.
    """
    for bad in bads:
        if bad.start >= unread_before and bad.stop > bound:
            return max(bad.start, bound)
    return end
