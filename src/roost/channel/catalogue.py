"""The segments of an open channel, in order: where a position stands, and how to read there.

Every method is called with the channel's lock held. A source stays readable when its segment is
compressed or collected meanwhile: an open file outlives its name.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Final

from roost.errors import Trimmed
from roost.host.disk import Disk, File
from roost.segments.file import PackedSource, PlainSource, Segment, Source
from roost.segments.format import packed_name, plain_name
from roost.segments.windows import Windows


class Catalogue:
    """Which segments there are; the last one grows, all others have an end."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        segments: list[Segment],
        *,
        windows: Windows,
        message_bytes_max: int,
    ) -> None:
        self.folder: Final = folder
        self.segments: Final = segments
        self.message_bytes_max: Final = message_bytes_max
        self._disk: Final = disk
        self._windows: Final = windows

    @property
    def head(self) -> int:
        """The first position that is still there."""
        return self.segments[0].begin

    def find(self, position: int) -> Segment:
        """Find the segment in whose range a position lies."""
        at = bisect_right(self.segments, position, key=lambda segment: segment.begin)
        if at == 0:
            raise Trimmed(
                f"position {position} of {self.folder} is gone: the channel begins at "
                f"{self.head}. Go on there with skip_corrupt().",
                head=self.head,
            )
        return self.segments[at - 1]

    def after(self, segment: Segment) -> Segment | None:
        """Find the segment behind this one."""
        at = bisect_right(self.segments, segment.begin, key=lambda other: other.begin)
        return self.segments[at] if at < len(self.segments) else None

    def source(self, segment: Segment) -> Source:
        """Open a segment for reading, in whichever form is there."""
        path = self.folder / segment.name
        file = self._disk.open(path, writable=False)
        if segment.method is None:
            return PlainSource(
                file,
                segment,
                path=path,
                windows=self._windows,
                message_bytes_max=self.message_bytes_max,
            )
        return PackedSource(file, segment, path=path, message_bytes_max=self.message_bytes_max)

    def open(self, segment: Segment) -> File:
        """Open a segment's file as it is."""
        return self._disk.open(self.folder / segment.name, writable=False)

    def sealed(self, segment: Segment, growing: Segment) -> None:
        """Note that the growing segment got its end, and another one begins."""
        assert self.segments[-1].number == segment.number, "sealed what was not growing"
        self.segments[-1] = segment
        self.segments.append(growing)

    def replace(self, segment: Segment) -> None:
        """Note that a segment is stored in another form now."""
        numbers = [other.number for other in self.segments]
        self.segments[numbers.index(segment.number)] = segment

    def renew(self, segments: list[Segment]) -> None:
        """Take over what a fresh look at the folder found."""
        self.segments[:] = segments

    def drop_first(self) -> None:
        """Forget the oldest segment; it is about to be removed."""
        assert len(self.segments) > 1, "the growing segment is never removed"
        del self.segments[0]

    def disk_bytes(self) -> int:
        """Add up what the segments take on the disk."""
        names = set(self._disk.names(self.folder))
        total = 0
        for segment in self.segments:
            for name in (plain_name(segment.number), packed_name(segment.number)):
                if name in names:
                    file = self._disk.open(self.folder / name, writable=False)
                    total += file.size()
                    file.close()
        return total
