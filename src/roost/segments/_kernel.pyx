# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
# cython: auto_pickle=False, autotestdict=False
"""The hot path of the file channel, compiled: frames into and out of mapped windows.

`roost.segments.plain` is the same in plain Python, `roost.segments.kernel` picks. The promises:

- *The interpreter's lock is the lock.* Between its first look at shared state and its last store
  a method calls nothing that could let another thread run. So it takes no lock, and any number
  of threads share one `Appender` or compete for one `Cursor`; who changes a window or a position
  on a slow path does it by one such method too. Only the walks, which have no state, let other
  threads run meanwhile. (On a free-threaded build, importing this module brings the lock back.)
- *All or nothing.* What answers -1 or None, or raises, has moved nothing. A frame and its header,
  a slot and its checksum are stored in an order in which a kill leaves nothing that looks whole.
- *A lost page is an error.* Where another program cut the mapped file short, or its disk fails,
  the call raises `OSError` (EIO) and the process lives on. This takes a handler of SIGBUS: it is
  installed once, with the first view of foreign memory, and hands on what is not its own.

Positions count the bytes of frames, as in `docs/formats/channel.md`.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE
from libc.errno cimport EIO
from libc.stdint cimport UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from "_kernel.h" nogil:
    enum:
        FRAME_HEADER
        MARK_BYTES
        SLOT_BYTES
        SLOT_PREFIX
    void crc_prepare()
    uint32_t crc_of(uint32_t value, const uint8_t *at, size_t size)
    void guard_install()
    void frame_write(uint8_t *at, const uint8_t *payload, size_t size, uint32_t crc)
    # A negative answer of these is a fault, and nothing was moved.
    int frame_store(uint8_t *at, const uint8_t *payload, size_t size)
    int slot_store(
        uint8_t *at, const uint8_t *prefix, uint32_t crc_prefix, uint64_t sequence, uint64_t position
    )
    int64_t walk_scan(const uint8_t *at, uint64_t start, uint64_t stop, uint64_t *count)
    int64_t walk_boundary(const uint8_t *at, uint64_t start, uint64_t stop, uint64_t target)
    int64_t walk_resume(
        const uint8_t *at, uint64_t start, uint64_t stop, uint64_t size_max, uint32_t *raw
    )

cdef extern from "_kernel.h":
    int frame_load(const uint8_t *at, uint64_t room, uint64_t size_max, PyObject **payload) except -2

GUARDED = True
crc_prepare()


cdef int fault(str doing) except -1:
    raise OSError(
        EIO, f"cannot {doing} the mapped file: another program cut it short, or its disk failed"
    )


cdef int borrow(Py_buffer *seen, object view, int flags) except -1:
    """Look into foreign memory, which the guard must stand before."""
    PyObject_GetBuffer(view, seen, flags)
    guard_install()
    return 0


# A range of positions in foreign memory.
cdef struct Window:
    Py_buffer view
    uint64_t begin


cdef int open_at(Window *held, object view, uint64_t begin, int flags) except -1:
    """Look through `view` from now on; the position `begin` is its first byte."""
    cdef Py_buffer fresh
    cdef Py_buffer old
    borrow(&fresh, view, flags)
    if <uint64_t>fresh.len > UINT64_MAX - begin:
        PyBuffer_Release(&fresh)
        raise OverflowError("the window's end is no position: positions have 64 bits")
    old = held.view
    held.view = fresh
    held.begin = begin
    # Last: it may unmap the old one, and that lets other threads look through the new one.
    PyBuffer_Release(&old)
    return 0


cdef int drop(Py_buffer *held) except -1:
    cdef Py_buffer old = held[0]
    memset(held, 0, sizeof(old))
    PyBuffer_Release(&old)
    return 0


cdef inline uint8_t *payload_of(object payload):
    return <uint8_t *>PyBytes_AS_STRING(payload)


def crc32(data, uint32_t value=0):
    """Continue the CRC-32/IEEE `value` over `data`: what `zlib.crc32` answers."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = crc_of(value, <const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return value


def frame(payload):
    """Give the frame of one payload."""
    return frames((payload,))


def frames(payloads):
    """Give the frames of all payloads, one after the other.

    TypeError for what is not bytes, ValueError for an empty payload or one of 4 GiB.
    """
    cdef object items = PySequence_Fast(payloads, "payloads are given as a sequence of bytes")
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(items)
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size, i
    cdef PyObject *payload
    for i in range(count):
        payload = PySequence_Fast_GET_ITEM(items, i)
        if not PyBytes_Check(<object>payload):
            raise TypeError(f"a payload is bytes, not {type(<object>payload).__name__}")
        size = PyBytes_GET_SIZE(<object>payload)
        if not 0 < size <= UINT32_MAX:
            raise ValueError(f"a payload has 1 to {UINT32_MAX} bytes, not {size}")
        total += FRAME_HEADER + size
    cdef bytes written = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = payload_of(written)
    for i in range(count):
        payload = PySequence_Fast_GET_ITEM(items, i)
        size = PyBytes_GET_SIZE(<object>payload)
        frame_write(at, payload_of(<object>payload), size, crc_of(0, payload_of(<object>payload), size))
        at += FRAME_HEADER + size
    return written


@cython.final
cdef class Ends:
    """Where frames end: `written` in the files, `visible` for receivers; shared by a channel."""

    cdef public uint64_t written
    cdef public uint64_t visible

    def __cinit__(self):
        self.written = 0
        self.visible = 0


# Hidden from the garbage collector, as all classes here are: where it sees that a window's view
# is referred to from garbage alone, it clears the view before the window gives the buffer back.
@cython.final
@cython.no_gc
cdef class Appender:
    """Stores frames into the window that is open, at `ends.written`.

    With `publish` a stored frame is visible at once.
    """

    cdef Ends _ends
    cdef bint _publish
    cdef Window _window

    def __cinit__(self, Ends ends not None, *, bint publish):
        self._ends = ends
        self._publish = publish

    def __dealloc__(self):
        drop(&self._window.view)

    def open_window(self, view, uint64_t begin):
        """Store into `view` from now on; the position `begin` is its first byte."""
        open_at(&self._window, view, begin, PyBUF_WRITABLE)

    def close_window(self):
        """Let go of the window; without one `append` answers -1."""
        drop(&self._window.view)

    def append(self, payload):
        """Store one frame and answer its position, or -1 where the slow path must decide."""
        cdef uint64_t at = self._ends.written
        cdef uint64_t offset = at - self._window.begin
        cdef uint64_t room = self._window.view.len
        cdef uint64_t size
        if not PyBytes_CheckExact(payload) or at < self._window.begin or offset > room:
            return -1
        room -= offset
        size = PyBytes_GET_SIZE(payload)
        if size == 0 or size > UINT32_MAX or room < FRAME_HEADER or size > room - FRAME_HEADER:
            return -1
        if frame_store(<uint8_t *>self._window.view.buf + offset, payload_of(payload), size) < 0:
            fault("write")
        self._ends.written = at + FRAME_HEADER + size
        if self._publish:
            self._ends.visible = self._ends.written
        return at


@cython.final
@cython.no_gc
cdef class Slot:
    """A position kept in a file: two copies of 128 bytes, written in turn."""

    cdef bytes _prefix
    cdef uint32_t _crc_prefix
    cdef Py_buffer _copies[2]
    cdef readonly uint64_t sequence
    cdef readonly uint64_t position

    def __cinit__(
        self, bytes prefix not None, first, second, *, uint64_t sequence, uint64_t position
    ):
        if len(prefix) != SLOT_PREFIX:
            raise ValueError(f"a slot's prefix has {SLOT_PREFIX} bytes, not {len(prefix)}")
        self._prefix = prefix
        self._crc_prefix = crc_of(0, payload_of(prefix), SLOT_PREFIX)
        borrow(&self._copies[0], first, PyBUF_WRITABLE)
        borrow(&self._copies[1], second, PyBUF_WRITABLE)
        if self._copies[0].len != SLOT_BYTES or self._copies[1].len != SLOT_BYTES:
            raise ValueError(f"each copy of a slot has {SLOT_BYTES} bytes")
        self.sequence = sequence
        self.position = position

    def __dealloc__(self):
        drop(&self._copies[0])
        drop(&self._copies[1])

    def store(self, uint64_t position):
        """Write the next copy, which then is the one that counts."""
        self.keep(position)

    cdef int keep(self, uint64_t position) except -1:
        cdef uint64_t sequence = self.sequence + 1
        cdef uint8_t *at = <uint8_t *>self._copies[sequence & 1].buf
        if slot_store(at, payload_of(self._prefix), self._crc_prefix, sequence, position) < 0:
            fault("write")
        self.sequence = sequence
        self.position = position
        return 0


@cython.final
@cython.no_gc
cdef class Cursor:
    """Gives the messages from `position` on, up to `ends.visible` and the end of the window.

    With a `slot`, each call that moves the position keeps it there before it returns.
    """

    cdef Ends _ends
    cdef readonly uint64_t position
    cdef public Slot slot
    cdef Window _window

    def __cinit__(self, Ends ends not None, *, uint64_t position, Slot slot):
        self._ends = ends
        self.position = position
        self.slot = slot

    def __dealloc__(self):
        drop(&self._window.view)

    def seek(self, uint64_t position):
        """Go on from `position`; the slot is not written."""
        self.position = position

    def open_window(self, view, uint64_t begin):
        """Read from `view` from now on; the position `begin` is its first byte."""
        open_at(&self._window, view, begin, PyBUF_SIMPLE)

    def close_window(self):
        """Let go of the window; without one there is nothing to read."""
        drop(&self._window.view)

    def next(self):
        """Give the message at the position and move behind it; None where there is no whole one."""
        cdef uint64_t at = self.position
        cdef object payload = self.load(&at, UINT64_MAX)
        if payload is not None:
            self.move(at)
        return payload

    def take(self, Py_ssize_t count_max, Py_ssize_t bytes_max):
        """Give what `next` would, up to `count_max` messages and `bytes_max` bytes of payload.

        One message is given even if it alone is longer. The slot is written once.
        """
        # Made first: a new list may collect garbage, and that may let another thread run.
        cdef list taken = []
        cdef uint64_t at = self.position
        cdef uint64_t room = UINT64_MAX
        cdef object payload
        while count_max > 0:
            payload = self.load(&at, room)
            if payload is None:
                break
            taken.append(payload)
            if room == UINT64_MAX:
                room = max(bytes_max, 0)
            room -= min(room, PyBytes_GET_SIZE(payload))
            count_max -= 1
        if taken:
            self.move(at)
        return taken

    cdef inline object load(self, uint64_t *at, uint64_t size_max):
        """Give the message at `at`, and move `at` behind it."""
        cdef uint64_t offset = at[0] - self._window.begin
        cdef uint64_t room = self._window.view.len
        cdef PyObject *copy = NULL
        cdef object payload
        cdef int found
        if at[0] < self._window.begin or offset > room or at[0] > self._ends.visible:
            return None
        room = min(room - offset, self._ends.visible - at[0])
        found = frame_load(<const uint8_t *>self._window.view.buf + offset, room, size_max, &copy)
        if found == 0:
            return None
        if found < 0:
            fault("read")
        payload = <object>copy
        Py_DECREF(payload)
        at[0] += FRAME_HEADER + PyBytes_GET_SIZE(payload)
        return payload

    cdef inline int move(self, uint64_t position) except -1:
        if self.slot is not None:
            self.slot.keep(position)
        self.position = position
        return 0


cdef int survey(Py_buffer *seen, object view, Py_ssize_t start, Py_ssize_t stop) except -1:
    borrow(seen, view, PyBUF_SIMPLE)
    if not 0 <= start <= stop <= seen.len:
        PyBuffer_Release(seen)
        raise ValueError(f"{start} to {stop} is no range of the view")
    return 0


def scan(view, Py_ssize_t start, Py_ssize_t stop):
    """Walk from `start` while frames are good; the offset behind the last one, and their count."""
    cdef Py_buffer seen
    cdef uint64_t count = 0
    cdef int64_t end
    survey(&seen, view, start, stop)
    with nogil:
        end = walk_scan(<const uint8_t *>seen.buf, start, stop, &count)
    PyBuffer_Release(&seen)
    if end < 0:
        fault("read")
    return end, count


def boundary(view, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t target):
    """Hop from `start` by lengths alone; the last boundary of frames at or before `target`."""
    cdef Py_buffer seen
    cdef int64_t found
    if target < start:
        raise ValueError(f"the target {target} lies before the start {start}")
    survey(&seen, view, start, stop)
    with nogil:
        found = walk_boundary(<const uint8_t *>seen.buf, start, stop, target)
    PyBuffer_Release(&seen)
    if found < 0:
        fault("read")
    return found


def resume(view, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t bytes_max):
    """Search the first good frame at or after `start`; -1 if there is none before `stop`.

    Frames of more than `bytes_max` bytes of payload are passed over.
    """
    cdef Py_buffer seen
    cdef int64_t found
    cdef uint32_t *raw
    survey(&seen, view, start, stop)
    raw = <uint32_t *>malloc(sizeof(uint32_t) * (<size_t>(stop - start) // MARK_BYTES + 1))
    if raw == NULL:
        PyBuffer_Release(&seen)
        raise MemoryError
    with nogil:
        found = walk_resume(<const uint8_t *>seen.buf, start, stop, max(bytes_max, 0), raw)
        free(raw)
    PyBuffer_Release(&seen)
    if found < 0:
        fault("read")
    return -1 if found == stop else found
