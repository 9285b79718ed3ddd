"""Walks over the messages of a channel, from window to window and from segment to segment.

A `Cursor` hands out what lies whole in its window; the walk gives it the next window, and says
`Corrupt` where no message can be had. Competing consumers may move the cursor, without the lock,
while the walk looks: what is known about a position is checked again before it is used.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from roost.channel.catalogue import Catalogue
from roost.errors import Corrupt, RoostError
from roost.host.disk import File
from roost.segments.compress import BadStream
from roost.segments.file import Segment, Source, damaged, decompressed
from roost.segments.format import FRAME_BYTES, HEADER_BYTES
from roost.segments.kernel import Cursor, Ends, Slot, scan
from roost.segments.scan import frame_boundary, next_good
from roost.segments.stream import boundary_in, frame_end_in, next_good_in


class Walk:
    """One cursor's way through a channel. Every method is called with the channel's lock held."""

    def __init__(
        self,
        catalogue: Catalogue,
        ends: Ends,
        *,
        position: int,
        slot: Slot | None = None,
        left: Callable[[], None] | None = None,
    ) -> None:
        self.cursor: Final = Cursor(ends, position=position, slot=slot)
        self._catalogue: Final = catalogue
        self._ends: Final = ends
        self._left: Final = left
        self._source: Source | None = None

    def next(self) -> bytes | None:
        """Give the next message, or None where readable messages end."""
        payload = self.cursor.next()
        while payload is None and self._refill():
            payload = self.cursor.next()
        return payload

    def take(self, count_max: int, bytes_max: int) -> list[bytes]:
        """Give the next messages, at least one unless there is none."""
        taken: list[bytes] = []
        fresh = False
        while len(taken) < count_max and bytes_max > 0:
            try:
                more = self.cursor.take(count_max - len(taken), bytes_max)
            except OSError:
                if fresh:
                    raise
                # The window lost a page: a new look at the file says what is wrong with it.
                self.cursor.close_window()
                more = []
            taken += more
            bytes_max -= sum(map(len, more))
            if more:
                continue
            try:
                if not self._refill():
                    break
            except (RoostError, OSError):
                if taken:  # the cursor is behind them: who asks again gets the error
                    break
                raise
            fresh = True
        return taken

    def _refill(self) -> bool:
        """Open the window that holds the next message; False if there is none."""
        while True:
            position = self.cursor.position
            if position >= self._ends.visible:
                return False
            source = self._source_at(position)
            before = source.segment.end
            view, begin = source.window(position, self._ends.visible if before is None else before)
            if self.cursor.position != position:
                continue
            self.cursor.open_window(view, begin)
            if self.cursor.position == position:
                self._check_frame(view, position - begin, position)
            return True

    def _check_frame(self, view: memoryview, at: int, position: int) -> None:
        """Make sure that the cursor will find a message here, or say what is wrong."""
        segment = self.segment
        assert segment is not None, "a window without a segment"
        path = self._catalogue.folder / segment.name
        size = _size(view, at)
        try:
            good = position + size <= self._ends.visible and scan(view, at, at + size)[1] == 1
        except OSError as error:
            error.filename = str(path)
            raise
        if not good:
            raise damaged(
                path,
                HEADER_BYTES + position - segment.begin,
                "the message's checksum does not hold",
            )

    @property
    def segment(self) -> Segment | None:
        """The segment that is open."""
        return None if self._source is None else self._source.segment

    def _source_at(self, position: int) -> Source:
        source = self._source
        if source is not None:
            segment = source.segment
            if segment.begin <= position and (segment.end is None or position < segment.end):
                return source
        segment = self._catalogue.find(position)
        if segment.end is not None and position >= segment.end:
            raise Corrupt(
                f"the messages from position {position} on are missing behind {segment.name} in "
                f"{self._catalogue.folder}. Restore what was removed, or go on behind the gap "
                "with skip_corrupt().",
                file=str(self._catalogue.folder / segment.name),
                offset=HEADER_BYTES + position - segment.begin,
            )
        opened = self._catalogue.source(segment)
        self.close()
        self._source = opened
        if source is not None and self._left is not None:
            self._left()
        return opened

    def sealed(self, segment: Segment) -> None:
        """Note that the growing segment got its end: its window may reach behind that."""
        if self._source is not None and self._source.segment.number == segment.number:
            self.cursor.close_window()
            self._source.segment = segment

    def close(self) -> None:
        """Let go of the window and the file."""
        self.cursor.close_window()
        if self._source is not None:
            self._source.close()
            self._source = None

    # Damage

    def behind_damage(self) -> int:
        """Find where the next good message begins, from a position where none can be had."""
        position = self.cursor.position
        if position < self._catalogue.head:
            return self._catalogue.head
        if position >= self._ends.visible:
            return position
        segment = self._catalogue.find(position)
        end = self._ends.visible if segment.end is None else segment.end
        if position < end:
            found = self._good_after(segment, position, end)
            if found is not None:
                return found
        following = self._catalogue.after(segment)
        return end if following is None else following.begin

    def _good_after(self, segment: Segment, position: int, end: int) -> int | None:
        """Find the first good message at or behind `position` in one segment."""
        file = self._catalogue.open(segment)
        try:
            if segment.method is None:
                stop = min(file.size(), HEADER_BYTES + end - segment.begin)
                view = file.map(0, stop, writable=False)
                view = view if view is not None else memoryview(file.read_at(0, stop))
            else:
                return self._good_after_packed(file, segment, position)
        finally:
            file.close()
        at = HEADER_BYTES + position - segment.begin
        if at >= len(view):
            return None
        after, good = scan(view, at, min(len(view), at + _size(view, at)))
        if good:
            too_long = after - at - FRAME_BYTES > self._catalogue.message_bytes_max
            return position + after - at if too_long else position
        found = next_good(view, at, len(view), self._catalogue.message_bytes_max)
        return None if found < 0 else segment.begin + found - HEADER_BYTES

    def _good_after_packed(self, file: File, segment: Segment, position: int) -> int | None:
        at, bytes_max = position - segment.begin, self._catalogue.message_bytes_max
        after = frame_end_in(_readable(decompressed(file, segment)), at)
        if after >= 0:
            return segment.begin + after if after - at - FRAME_BYTES > bytes_max else position
        found = next_good_in(_readable(decompressed(file, segment)), at, bytes_max)
        return None if found < 0 else segment.begin + found


def _size(view: memoryview, at: int) -> int:
    return FRAME_BYTES + int.from_bytes(view[at : at + 4], "big")


def _readable(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Give the chunks of a stream up to where it is damaged."""
    with suppress(BadStream):
        yield from chunks


def aligned(catalogue: Catalogue, position: int, visible: int) -> int:
    """Find the message boundary at or before a position that somebody wrote down."""
    if position >= visible or position < catalogue.head:
        return position
    segment = catalogue.find(position)
    if position == segment.begin or (segment.end is not None and position >= segment.end):
        return position
    file = catalogue.open(segment)
    try:
        if segment.method is not None:
            return _aligned_packed(decompressed(file, segment), segment, position)
        end = visible if segment.end is None else segment.end
        stop = min(file.size(), HEADER_BYTES + end - segment.begin)
        view = file.map(0, stop, writable=False)
        at = frame_boundary(
            view if view is not None else memoryview(file.read_at(0, stop)),
            stop=stop,
            target=HEADER_BYTES + position - segment.begin,
        )
        return segment.begin + at - HEADER_BYTES
    finally:
        file.close()


def _aligned_packed(chunks: Iterator[bytes], segment: Segment, position: int) -> int:
    try:
        return segment.begin + boundary_in(chunks, position - segment.begin)
    except BadStream:
        return position  # the receiver comes to the damage, and says so
