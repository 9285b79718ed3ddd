"""The growing end of a channel: appends frames, reserves room, rolls to a new segment.

Every method is called with the channel's lock held; only the compiled `Appender.append` runs
without it, and it answers -1 whenever its window is closed. So whoever writes around the window
closes it first and opens it again after.

The promise: `ends.written` moves only behind frames that the operating system has whole, and a
full disk leaves everything as it was.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roost.channel.recover import Recovered
from roost.channel.settings import Settings
from roost.errors import NoRoom
from roost.host.disk import Disk, File
from roost.segments.file import Segment, create_segment
from roost.segments.format import HEADER_BYTES, MAKING, plain_name
from roost.segments.kernel import Appender, Ends, frame

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Tail:
    """Writes the last segment."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        recovered: Recovered,
        *,
        ends: Ends,
        settings: Settings,
        sealed: Callable[[Segment, Segment], None],
    ) -> None:
        self._publish: Final = not settings.fsync
        self.appender: Final = Appender(ends, publish=self._publish)
        self.segment = recovered.segments[-1]
        # What fits a window is short enough, unless the limit is less than a window.
        within = settings.message_bytes_max >= settings.windows.bytes_max
        self.store: Final = self.appender.append if within else self._store_if_short
        self.sync_all = settings.durability != "os"
        self._disk: Final = disk
        self._folder: Final = folder
        self._file = recovered.tail
        self._ends: Final = ends
        self._segment_bytes: Final = settings.segment_bytes
        self._message_bytes_max: Final = settings.message_bytes_max
        self._windows: Final = settings.windows
        self._mapped: Final = not settings.unmapped_because
        self._sealed: Final = sealed
        self._reserved = 0
        self._unsynced: list[tuple[File, int]] = []
        self._view: tuple[memoryview, int] | None = None

    @property
    def full(self) -> bool:
        """Whether the next message begins a new segment."""
        return self._ends.written - self.segment.begin >= self._segment_bytes

    def _store_if_short(self, payload: bytes) -> int:
        too_long = type(payload) is bytes and len(payload) > self._message_bytes_max
        return -1 if too_long else self.appender.append(payload)

    def roll_if_full(self) -> None:
        """Begin a new segment if the next message does."""
        if self.full:
            self._roll()

    def append(self, payload: bytes) -> int:
        """Store one frame, whatever it takes, and return where it begins."""
        self.roll_if_full()
        self._open_window()
        begin = self.appender.append(payload)
        return begin if begin >= 0 else self._write(frame(payload))

    def append_many(self, framed: bytes) -> int:
        """Store frames that stand one behind the other with one write, and return where."""
        self.roll_if_full()
        return self._write(framed)

    def _write(self, framed: bytes) -> int:
        self.appender.close_window()
        begin = self._ends.written
        offset = self._offset(begin)
        self._reserve(offset, offset + len(framed))
        try:
            self._file.write_at(offset, framed)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._file.truncate(offset)
            self._reserved = 0
            raise self._no_room(error, len(framed)) from error
        self._ends.written = begin + len(framed)
        if self._publish:
            self._ends.visible = self._ends.written
        if self._view is not None:
            self._use_view()
        return begin

    def _offset(self, position: int) -> int:
        return HEADER_BYTES + position - self.segment.begin

    def _reserve(self, offset: int, stop: int) -> None:
        """Have room up to the file offset `stop`, a window's worth at once if there is so much."""
        if stop <= self._reserved:
            return
        start, size = self._windows.around(max(offset, stop - 1))
        for target in (start + size, stop):
            try:
                self._file.allocate(target)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if target == stop:
                    raise self._no_room(error, stop - offset) from error
            else:
                self._reserved = target
                return

    def _no_room(self, error: OSError, wanted: int) -> NoRoom:
        free = self._disk.free_bytes(self._folder)
        return NoRoom(
            f"no room for {wanted} more bytes in {self._folder} ({free} bytes free): "
            f"{error.strerror}. Nothing was sent; it works again when there is room."
        )

    def _open_window(self) -> None:
        """Map the window around the end, so that the next sends are plain stores."""
        if not self._mapped:
            return
        offset = self._offset(self._ends.written)
        start, size = self._windows.around(offset)
        header = max(0, HEADER_BYTES - start)
        begin = self.segment.begin + start + header - HEADER_BYTES
        if self._view is None or self._view[1] != begin:
            self._view = None
            self._reserve(offset, offset + 1)
            if self._reserved < start + size:
                return  # room for a message or two, but not for a window
            view = self._file.map(start, size, writable=True)
            if view is None:
                return
            self._view = (view[header:], begin)
        self._use_view()

    def _use_view(self) -> None:
        assert self._view is not None
        view, begin = self._view
        limit = self.segment.begin + self._segment_bytes - begin
        self.appender.open_window(view[: max(0, limit)], begin)

    def _roll(self) -> None:
        """Seal the last segment and begin the next one."""
        self.close_window()
        end = self._ends.written
        self._file.truncate(self._offset(end))
        self._reserved = 0
        number = self.segment.number + 1
        try:
            file = create_segment(self._disk, self._folder, number=number, begin=end)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            making = self._folder / (plain_name(number) + MAKING)
            if making.name in self._disk.names(self._folder):
                self._disk.unlink(making)
            raise self._no_room(error, HEADER_BYTES) from error
        self._unsynced.append((self._file, end))
        sealed = Segment(number=self.segment.number, begin=self.segment.begin, end=end)
        self._file, self.segment = file, Segment(number=number, begin=end)
        self._sealed(sealed, self.segment)

    def close_window(self) -> None:
        """Send everybody through the lock until a window is opened again."""
        self.appender.close_window()
        self._view = None

    def pending(self) -> tuple[int, list[File]]:
        """Say how far it is written, and which files to sync, in order, to make that durable.

        Where nobody waits for an fsync, that is asked only of segments that were sealed.
        """
        sealed = [file for file, _ in self._unsynced]
        if self.sync_all:
            return self._ends.written, [*sealed, self._file]
        return (self._unsynced[-1][1] if self._unsynced else 0), sealed

    def settled(self, durable: int) -> None:
        """Let go of the sealed files that are durable now."""
        while self._unsynced and self._unsynced[0][1] <= durable:
            self._unsynced.pop(0)[0].close()

    def cut(self) -> None:
        """Give back the room reserved ahead, before a clean close."""
        self.close_window()
        self._file.truncate(self._offset(self._ends.written))
        self._reserved = 0

    def close(self) -> None:
        """Let go of all files."""
        self.close_window()
        for file, _ in self._unsynced:
            file.close()
        self._unsynced.clear()
        self._file.close()
