"""Which segments a folder holds, seen without its lock.

An owner may roll, compress and collect while we look. A name that was listed and is gone when it
is opened was compressed or collected: then everything is listed again. Headers never change, so
each file's is read once. Nothing is removed or put right here; what recovery would do about a
file is only said.
"""

from pathlib import Path
from typing import Final

import msgspec

from roost.channel.recover import Finding, in_order
from roost.errors import NotFound, Unavailable
from roost.host.disk import Disk
from roost.segments.compress import method_of
from roost.segments.file import Segment, read_header
from roost.segments.format import HEADER_BYTES, packed_name, parse_name, plain_name

LOOKS_MAX: Final = 1000
"""How often something may vanish under a reader before it gives up; each time it is news."""


class Listing(msgspec.Struct, frozen=True):
    """The segments in order, the last one without an end if it may grow, and what is odd."""

    segments: list[Segment]
    findings: list[Finding]


class Folder:
    """One channel's folder, looked at again and again."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path: Final = path
        self._disk: Final = disk
        self._known: Final[dict[str, Segment]] = {}
        self._first: int | None = None

    def look(self) -> Listing:
        """List the segments as they are now."""
        for _ in range(LOOKS_MAX):
            listing = self._list()
            if listing is not None:
                return listing
        raise restless(self.path)

    def _list(self) -> Listing | None:
        """List the segments; None if one went while we looked."""
        parsed = {name: parse_name(name) for name in self._names()}
        there = {name: found for name, found in parsed.items() if found and not found.making}
        for name in self._known.keys() - there.keys():
            del self._known[name]
        listed = {found.segment for found in there.values()}
        last = max(listed, default=0)
        segments: list[Segment] = []
        findings: list[Finding] = []
        for number in self._candidates(listed):
            try:
                segments.append(self._segment(number))
            except FileNotFoundError:
                if number in listed:
                    return None
            except _BadHeader as error:
                if number < last or error.size > HEADER_BYTES:
                    findings.append(error.finding(self.path))
        self._first = segments[0].number if segments else None
        return Listing(segments=_ended(in_order(segments, self.path)), findings=findings)

    def _candidates(self, listed: set[int]) -> list[int]:
        """Add the numbers that may be there and not be listed.

        The system lists names one by one: one that is renamed meanwhile may be missing under both
        its names. So a segment that is compressed just now would seem to be gone.
        """
        if not listed:
            return []
        first = max(0, min(listed) - 1)
        if self._first is not None:
            first = min(first, self._first)
        numbers = range(first, max(listed) + 1)
        return [*numbers] if len(numbers) <= len(listed) + LOOKS_MAX else sorted(listed)

    def _names(self) -> list[str]:
        try:
            return self._disk.names(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"there is no channel in {self.path}") from error

    def _segment(self, number: int) -> Segment:
        """Find a segment in whichever form is there: the second may take the first one's place."""
        packed, plain = packed_name(number), plain_name(number)
        bad: _BadHeader | None = None
        for name in (packed, plain, packed):
            try:
                return self._read(name, number)
            except FileNotFoundError:
                continue
            except _BadHeader as error:
                bad = error
        raise bad if bad is not None else FileNotFoundError(plain)

    def _read(self, name: str, number: int) -> Segment:
        known = self._known.get(name)
        if known is not None:
            return known
        packed = name == packed_name(number)
        file = self._disk.open(self.path / name, writable=False)
        try:
            header = read_header(file, packed=packed)
            method = None if header.method is None else method_of(header.method)
            size = file.size()
        except ValueError as error:
            raise _BadHeader(name, file.size(), str(error)) from error
        finally:
            file.close()
        if header.segment != number:
            raise _BadHeader(name, size, f"the header is that of segment {header.segment}")
        segment = Segment(number=number, begin=header.begin, end=header.end, method=method)
        self._known[name] = segment
        return segment


class _BadHeader(Exception):
    """A segment file that does not begin as one."""

    def __init__(self, name: str, size: int, reason: str) -> None:
        super().__init__(name)
        self.name: Final = name
        self.size: Final = size
        self.reason: Final = reason

    def finding(self, folder: Path) -> Finding:
        return Finding(
            kind="corrupt", file=str(folder / self.name), offset=0, size=self.size, text=self.reason
        )


def _ended(segments: list[Segment]) -> list[Segment]:
    """Give each plain segment the end that its place gives it: where the next one begins."""
    ended = list(segments)
    for at, following in enumerate(segments[1:]):
        if ended[at].method is None:
            ended[at] = msgspec.structs.replace(ended[at], end=following.begin)
    return ended


def restless(path: Path) -> Unavailable:
    """Make the error for a folder that never stays the same for as long as a look takes."""
    return Unavailable(f"{path} changes faster than it can be read; try again")
