"""Where the entries of a ledger stand in its entry log: a slot for each id, at a place of its own.

Pure. An index file is a header of 64 bytes and then slots of 16 bytes, in the order of the ids:

    offset  bytes
    0       8      offset of the entry's block in the entry log
    8       4      bytes of the block
    12      4      CRC-32 of the entry, as in its block

A slot of zeros says that the entry is not there. The place of a slot follows from the id, so
nothing is searched or moved, and striping leaves holes that take no space. The index can be made
anew from the entry log, and is never believed: a block is served only if it says itself that it is
the entry that was asked for.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Final

import msgspec

from roost.types import EntryId
from roost.wire.entry import HEAD_BYTES, PAYLOAD_BYTES_MAX
from roost.wire.kernel import adjacent, slots

SLOT: Final = Struct("<QII")
SLOT_BYTES: Final = SLOT.size
FILE_HEADER_BYTES: Final = 64
# Two runs of ids that are no farther apart are written as one; what stands between them is kept.
GAP_MAX: Final = 64
RUN_BYTES_MAX: Final = 252 << 10
"""How long a run of several entries may be. It is read, checked and sent as one piece: so much
stays in a processor's cache, and a receiver has memory at once for it and what stands before it."""


class Run(msgspec.Struct, frozen=True):
    """Entries whose ids follow one another, and whose blocks do so in the log."""

    first: EntryId
    sizes: list[int]
    offset: int

    @property
    def size(self) -> int:
        """Tell how many bytes of the log it covers."""
        return sum(self.sizes)

    @property
    def before(self) -> EntryId:
        """Tell the id behind the last one."""
        return EntryId(self.first + len(self.sizes))


def slot_offset(entry: int) -> int:
    """Tell where the slot of an entry stands in the index file."""
    return FILE_HEADER_BYTES + entry * SLOT_BYTES


def spans(entries: Sequence[EntryId]) -> Iterator[Sequence[EntryId]]:
    """Cut ids, given in order, into spans that are worth a write each."""
    if entries[-1] - entries[0] < len(entries) + GAP_MAX:  # the usual case, without a look at each
        yield entries
        return
    start = 0
    for at, (entry, following) in enumerate(pairwise(entries), 1):
        if following - entry > GAP_MAX:
            yield entries[start:at]
            start = at
    yield entries[start:]


make_slots: Final = slots
"""`make_slots(blocks, offset) -> bytes`

Make the slots of blocks that stand one behind the other from a log offset on.
"""


def fill(present: bytes, entries: Sequence[EntryId], slots: bytes) -> bytes:
    """Put slots over those that a span has; `present` may be shorter than the span."""
    first, size = entries[0], (entries[-1] - entries[0] + 1) * SLOT_BYTES
    if len(slots) == size:
        return slots
    span = bytearray(present.ljust(size, b"\0"))
    for number, entry in enumerate(entries):
        at, of = (entry - first) * SLOT_BYTES, number * SLOT_BYTES
        span[at : at + SLOT_BYTES] = slots[of : of + SLOT_BYTES]
    return bytes(span)


class Plan(msgspec.Struct, frozen=True):
    """What to read of an entry log for the ids from some first one up to `before`, exclusive."""

    runs: list[Run]
    missing: list[EntryId]
    """The ids that have no slot."""

    bad: list[EntryId]
    """The ids whose slot cannot be one, or is none that counts."""

    before: EntryId


def plan(slots: bytes, first: EntryId, *, bytes_max: int, log_end: int) -> Plan:
    """Read slots from an id on. At least one entry is taken, then what fits `bytes_max`.

    What is said to stand behind `log_end` is of a flush that does not count (yet): it may be
    written over at any time.
    """
    found: list[Run] = []
    missing: list[EntryId] = []
    bad: list[EntryId] = []
    taken, end = 0, -1
    entry, at = first, 0
    while at < len(slots):
        offset, size, crc = SLOT.unpack_from(slots, at)
        sizes = [size]
        if offset == 0 and size == 0 and crc == 0:
            missing.append(entry)
        elif not HEAD_BYTES <= size <= HEAD_BYTES + PAYLOAD_BYTES_MAX or offset >= log_end:
            bad.append(entry)
        else:
            # Where a run ended because it was long enough, what goes on is worth another long one.
            goes_on = offset == end and found[-1].before == entry
            if taken and max(size, RUN_BYTES_MAX * goes_on) > bytes_max - taken:
                break
            room = min(RUN_BYTES_MAX, bytes_max - taken, log_end - offset)
            sizes = adjacent(slots, at, room)
            run = Run(first=entry, sizes=sizes, offset=offset)
            found.append(run)
            taken += run.size
            end = offset + run.size
        entry = EntryId(entry + len(sizes))
        at += SLOT_BYTES * len(sizes)
    return Plan(runs=found, missing=missing, bad=bad, before=entry)
