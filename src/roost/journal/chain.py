"""How the segments of a journal follow one another, by their headers alone.

Pure: it gets what was read of each file and says which of them count, where each one has to stop,
and what is missing between them. The promise: a place in the journal that was once written and is
not there any more is never passed over in silence.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from roost.journal.header import HEADER_BYTES, SEGMENT_BYTES_MAX, Header
from roost.types import EntryId, LedgerId, Position


class Finding(msgspec.Struct, frozen=True):
    """Something that recovery met and that an operator may want to know.

    Kinds: `torn` a tail that was never made durable and was cut; `corrupt` bytes that contradict
    their checksum; `unreadable` bytes that the disk does not give; `foreign` a segment of another
    node; `missing` a segment that is not there.
    """

    kind: str
    file: str
    offset: int
    size: int
    text: str


class Damage(msgspec.Struct, frozen=True):
    """A range of positions that held records and cannot be read; of whom, where that is known."""

    start: Position
    stop: Position
    ledger: LedgerId | None = None
    entry: EntryId | None = None


class Segment(msgspec.Struct, frozen=True):
    """A segment on the disk: where its records begin and end, and what its file takes."""

    number: int
    begin: Position
    end: Position
    file_bytes: int
    damaged: bool = False


class Opened(msgspec.Struct, frozen=True):
    """A journal that is in order again: where it goes on, and the segments that it has."""

    number: int = 1
    begin: Position = Position(0)
    segments: tuple[Segment, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """What was read of one file: its header, or why it counts for nothing."""

    number: int
    file_bytes: int
    header: Header | None
    kind: str = ""
    text: str = ""


class Link(msgspec.Struct, frozen=True):
    """A segment in its place: from `begin` before `stop`, where the next one begins.

    Behind the last good header these are what the sizes of the files allow at most. `needed` tells
    whether it may hold something that recovery is asked for.
    """

    seen: Seen
    begin: Position
    stop: Position
    needed: bool


class Chain(msgspec.Struct, frozen=True):
    """All segments in their places, and where some are missing that must be there."""

    links: tuple[Link, ...]
    missing: tuple[str, ...]


def follow(seen: Sequence[Seen], *, replay_from: Position) -> Chain:
    """Put segments, in the order of their numbers, into their places."""
    counted = _forwards(seen)
    begins = [None if each.header is None else each.header.begin for each in counted]
    first = max(
        (at for at, begin in enumerate(begins) if begin is not None and begin <= replay_from),
        default=0,
    )
    links: list[Link] = []
    reached = Position(0)
    for at, each in enumerate(counted):
        nexts = (begin for begin in begins[at + 1 :] if begin is not None)
        held = max(0, min(each.file_bytes, SEGMENT_BYTES_MAX) - HEADER_BYTES)
        begin = reached if each.header is None else each.header.begin
        reached = next(nexts, Position(begin + held))
        links.append(Link(seen=each, begin=begin, stop=reached, needed=at >= first))
    return Chain(links=tuple(links), missing=tuple(_missing(links, replay_from)))


def _forwards(seen: Sequence[Seen]) -> list[Seen]:
    """Leave out the headers by which positions would run backwards."""
    counted: list[Seen] = []
    lowest = Position(0)
    for each in seen:
        if each.header is not None and each.header.begin < lowest:
            text = f"it says that it begins at {each.header.begin}, before one before it"
            counted.append(replace(each, header=None, kind="corrupt", text=text))
            continue
        counted.append(each)
        if each.header is not None:
            lowest = each.header.begin
    return counted


def _missing(links: Sequence[Link], replay_from: Position) -> Iterator[str]:
    """Say which segments are gone that recovery is asked for."""
    needed = [link for link in links if link.needed]
    if not needed:
        if replay_from > 0:
            yield f"no segment is left, and records up to {replay_from} were in some"
        return
    if needed[0].begin > replay_from:
        yield f"records from {replay_from} on stood before segment {needed[0].seen.number}"
    for before, after in pairwise(needed):
        if after.seen.number != before.seen.number + 1:
            yield f"what was between segments {before.seen.number} and {after.seen.number} is gone"
