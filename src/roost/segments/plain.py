"""The hot path of the file channel in plain Python: the twin of `roost.segments._kernel`.

It takes over where the kernel could not be compiled, slower, and says in the tests what the
kernel has to do: same names, same answers, same bytes. Two things differ. The lock is one of its
own in each object instead of the interpreter's. And a lost page cannot be survived from here, so
a window must not be a mapped file: `GUARDED` tells the disk.

Positions count the bytes of frames, as in `docs/formats/channel.md`.
"""

import struct
from collections.abc import Iterator, Sequence
from operator import index
from threading import Lock
from typing import Final, final

from isal import isal_zlib

GUARDED: Final = False

Readable = bytes | bytearray | memoryview

_HEADER: Final = struct.Struct(">II")
_SLOT_BODY: Final = struct.Struct(">QQ")
_SLOT_CRC: Final = struct.Struct(">I4x")
_SLOT_PREFIX_BYTES: Final = 104
_SLOT_BYTES: Final = 128
_PAYLOAD_BYTES_MAX: Final = 2**32 - 1
_POSITION_MAX: Final = 2**64 - 1


def crc32(data: Readable, value: int = 0) -> int:
    """Continue the CRC-32/IEEE `value` over `data`: what `zlib.crc32` answers."""
    if not 0 <= value < 2**32:
        raise OverflowError(f"a checksum has 32 bits, which {value} does not fit")
    crc: int = isal_zlib.crc32(data, value)
    return crc


def frame(payload: bytes) -> bytes:
    """Give the frame of one payload."""
    return frames((payload,))


def frames(payloads: Sequence[bytes]) -> bytes:
    """Give the frames of all payloads, one after the other.

    TypeError for what is not bytes, ValueError for an empty payload or one of 4 GiB.
    """
    parts: list[bytes] = []
    for payload in payloads:
        if not isinstance(payload, bytes):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
        if not 0 < len(payload) <= _PAYLOAD_BYTES_MAX:
            raise ValueError(f"a payload has 1 to {_PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")
        parts += (_HEADER.pack(len(payload), crc32(payload)), payload)
    return b"".join(parts)


@final
class Ends:
    """Where frames end: `written` in the files, `visible` for receivers; shared by a channel."""

    def __init__(self) -> None:
        self._written = 0
        self._visible = 0

    @property
    def written(self) -> int:
        """The position behind the last frame that was stored."""
        return self._written

    @written.setter
    def written(self, position: int) -> None:
        self._written = _position(position)

    @property
    def visible(self) -> int:
        """The position where receivers stop."""
        return self._visible

    @visible.setter
    def visible(self, position: int) -> None:
        self._visible = _position(position)


class _Window:
    """A view of frames, and the position of its first byte."""

    def __init__(self) -> None:
        self.view = memoryview(b"")
        self.begin = 0

    def open(self, view: Readable, begin: int, *, writable: bool) -> None:
        """Hold another view; where that fails, the old one stays."""
        begin = _position(begin)
        fresh = _look(view, writable=writable)
        if begin + len(fresh) > _POSITION_MAX:
            raise OverflowError("the window's end is no position: positions have 64 bits")
        self.view.release()
        self.view, self.begin = fresh, begin

    def close(self) -> None:
        """Let go of the view; an empty one takes its place, where nothing fits."""
        self.view.release()
        self.view = memoryview(b"")


@final
class Appender:
    """Stores frames into the window that is open, at `ends.written`.

    With `publish` a stored frame is visible at once.
    """

    def __init__(self, ends: Ends, *, publish: bool) -> None:
        self._ends = _are_ends(ends)
        self._publish = publish
        self._window = _Window()
        self._lock = Lock()

    def open_window(self, view: memoryview, begin: int) -> None:
        """Store into `view` from now on; the position `begin` is its first byte."""
        with self._lock:
            self._window.open(view, begin, writable=True)

    def close_window(self) -> None:
        """Let go of the window; without one `append` answers -1."""
        with self._lock:
            self._window.close()

    def append(self, payload: bytes) -> int:
        """Store one frame and answer its position, or -1 where the slow path must decide."""
        if type(payload) is not bytes or not 0 < len(payload) <= _PAYLOAD_BYTES_MAX:
            return -1
        crc = crc32(payload)
        with self._lock:
            at = self._ends.written
            start = at - self._window.begin
            stop = start + _HEADER.size + len(payload)
            if start < 0 or stop > len(self._window.view):
                return -1
            # The header goes last: killed in between, nothing looks whole.
            self._window.view[start + _HEADER.size : stop] = payload
            _HEADER.pack_into(self._window.view, start, len(payload), crc)
            self._ends.written = self._window.begin + stop
            if self._publish:
                self._ends.visible = self._ends.written
            return at


@final
class Slot:
    """A position kept in a file: two copies of 128 bytes, written in turn."""

    def __init__(
        self, prefix: bytes, first: memoryview, second: memoryview, *, sequence: int, position: int
    ) -> None:
        if len(prefix) != _SLOT_PREFIX_BYTES:
            raise ValueError(f"a slot's prefix has {_SLOT_PREFIX_BYTES} bytes, not {len(prefix)}")
        self._prefix = prefix
        self._crc_prefix = crc32(prefix)
        self._copies = (_look(first, writable=True), _look(second, writable=True))
        if {len(copy) for copy in self._copies} != {_SLOT_BYTES}:
            raise ValueError(f"each copy of a slot has {_SLOT_BYTES} bytes")
        self._sequence = _position(sequence)
        self._position = _position(position)
        self._lock = Lock()

    @property
    def sequence(self) -> int:
        """The number of the copy that counts."""
        return self._sequence

    @property
    def position(self) -> int:
        """What the copy that counts says."""
        return self._position

    def store(self, position: int) -> None:
        """Write the next copy, which then is the one that counts."""
        with self._lock:
            sequence = self._sequence + 1
            body = _SLOT_BODY.pack(sequence, _position(position))
            crc = _SLOT_CRC.pack(crc32(body, self._crc_prefix))
            copy = self._copies[sequence % 2]
            copy[: -len(crc)] = self._prefix + body
            copy[-len(crc) :] = crc
            self._sequence, self._position = sequence, position


@final
class Cursor:
    """Gives the messages from `position` on, up to `ends.visible` and the end of the window.

    With a `slot`, each call that moves the position keeps it there before it returns.
    """

    def __init__(self, ends: Ends, *, position: int, slot: Slot | None) -> None:
        self._ends = _are_ends(ends)
        self._position = _position(position)
        self._slot = _maybe_slot(slot)
        self._window = _Window()
        self._lock = Lock()

    @property
    def position(self) -> int:
        """Where the next message begins."""
        return self._position

    @property
    def slot(self) -> Slot | None:
        """Where the position is kept."""
        return self._slot

    @slot.setter
    def slot(self, slot: Slot | None) -> None:
        with self._lock:
            self._slot = _maybe_slot(slot)

    def seek(self, position: int) -> None:
        """Go on from `position`; the slot is not written."""
        with self._lock:
            self._position = _position(position)

    def open_window(self, view: Readable, begin: int) -> None:
        """Read from `view` from now on; the position `begin` is its first byte."""
        with self._lock:
            self._window.open(view, begin, writable=False)

    def close_window(self) -> None:
        """Let go of the window; without one there is nothing to read."""
        with self._lock:
            self._window.close()

    def next(self) -> bytes | None:
        """Give the message at the position and move behind it; None where there is no whole one."""
        with self._lock:
            found = next(self._load(), None)
            if found is None:
                return None
            payload, after = found
            self._move(after)
            return payload

    def take(self, count_max: int, bytes_max: int) -> list[bytes]:
        """Give what `next` would, up to `count_max` messages and `bytes_max` bytes of payload.

        One message is given even if it alone is longer. The slot is written once.
        """
        taken: list[bytes] = []
        with self._lock:
            position = self._position
            for payload, after in self._load():
                bytes_max -= len(payload)
                if len(taken) >= count_max or (taken and bytes_max < 0):
                    break
                taken.append(payload)
                position = after
            if taken:
                self._move(position)
        return taken

    def _load(self) -> Iterator[tuple[bytes, int]]:
        """Give one message after the other, and the position behind each."""
        view, begin = self._window.view, self._window.begin
        start = self._position - begin
        stop = min(len(view), self._ends.visible - begin)
        while start >= 0 and (size := _frame_size(view, start, stop)):
            # A copy is checked, so that nobody can change it between the check and the use.
            payload = bytes(view[start + _HEADER.size : start + size])
            if crc32(payload) != _HEADER.unpack_from(view, start)[1]:
                return
            start += size
            yield payload, begin + start

    def _move(self, position: int) -> None:
        if self._slot is not None:
            self._slot.store(position)
        self._position = position


def scan(view: Readable, start: int, stop: int) -> tuple[int, int]:
    """Walk from `start` while frames are good; the offset behind the last one, and their count."""
    seen = _survey(view, start, stop)
    count = 0
    while size := _good_size(seen, start, stop):
        start += size
        count += 1
    return start, count


def boundary(view: Readable, start: int, stop: int, target: int) -> int:
    """Hop from `start` by lengths alone; the last boundary of frames at or before `target`."""
    if target < start:
        raise ValueError(f"the target {target} lies before the start {start}")
    seen = _survey(view, start, stop)
    while (size := _frame_size(seen, start, stop)) and start + size <= target:
        start += size
    return start


def resume(view: Readable, start: int, stop: int, bytes_max: int) -> int:
    """Search the first good frame at or after `start`; -1 if there is none before `stop`.

    Frames of more than `bytes_max` bytes of payload are passed over.
    """
    seen = _survey(view, start, stop)
    for at in range(start, stop):
        if _frame_size(seen, at, stop) <= _HEADER.size + bytes_max and _good_size(seen, at, stop):
            return at
    return -1


def _frame_size(view: memoryview, start: int, stop: int) -> int:
    """Tell the size of the frame at `start`, header and all; 0 if none fits before `stop`."""
    if stop - start <= _HEADER.size:
        return 0
    length: int = _HEADER.unpack_from(view, start)[0]
    return _HEADER.size + length if 0 < length <= stop - start - _HEADER.size else 0


def _good_size(view: memoryview, start: int, stop: int) -> int:
    """Tell the size of the frame at `start` if it is good, else 0."""
    size = _frame_size(view, start, stop)
    if size == 0:
        return 0
    payload = view[start + _HEADER.size : start + size]
    return size if crc32(payload) == _HEADER.unpack_from(view, start)[1] else 0


def _survey(view: Readable, start: int, stop: int) -> memoryview:
    seen = _look(view, writable=False)
    if not 0 <= start <= stop <= len(seen):
        raise ValueError(f"{start} to {stop} is no range of the view")
    return seen


def _look(view: Readable, *, writable: bool) -> memoryview:
    """Hold a view of one's own, byte by byte, as the kernel does."""
    seen = memoryview(view)
    if not seen.c_contiguous:
        raise BufferError("the view is not one stretch of memory")
    if writable and seen.readonly:
        raise BufferError("the view is not writable")
    return seen.cast("B")


def _position(value: int) -> int:
    """Refuse what is no position, as the kernel's 64 bits do."""
    value = index(value)
    if not 0 <= value <= _POSITION_MAX:
        raise OverflowError(f"a position has 64 bits, which {value} does not fit")
    return value


def _are_ends(ends: Ends) -> Ends:
    if not isinstance(ends, Ends):
        raise TypeError(f"ends are Ends, not {type(ends).__name__}")
    return ends


def _maybe_slot(slot: Slot | None) -> Slot | None:
    if slot is not None and not isinstance(slot, Slot):
        raise TypeError(f"a slot is a Slot or None, not {type(slot).__name__}")
    return slot
