# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
# cython: auto_pickle=False, autotestdict=False
"""The hot path of a connection and of a node, compiled: frames, blocks and the heads before them.

`roost.wire.plain` is the same in plain Python, `roost.wire.kernel` picks. Pure: bytes and numbers
in, bytes and numbers out. The promise: what is not simple is left alone. A frame that is not all
there, or is wrong, ends the walk; what is no good ADD, or no good run of blocks, is None or False.
Which of many things is wrong, and how that is said, is decided in Python, where it is rare.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.sequence cimport (
    PySequence_Fast,
    PySequence_Fast_GET_ITEM,
    PySequence_Fast_GET_SIZE,
    PySequence_GetSlice,
)
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from roost.wire.frame import Frame

cdef extern from "_kernel.h" nogil:
    void pages_large(uint8_t *at, size_t size)
    enum:
        ADD_BODY
        ADD_HEAD
        BLOCK_HEAD
        BLOCK_MAX
        FRAME_HEAD
        RECORD_HEAD
        SLOT_BYTES
    struct frame:
        uint64_t bytes
    struct block:
        uint64_t ledger
        uint64_t entry
        uint64_t bytes
    uint64_t ENTRY_MAX
    void crc_prepare()
    uint32_t get_le32(const uint8_t *at)
    uint64_t get_le64(const uint8_t *at)
    void put_le32(uint8_t *at, uint32_t value)
    void put_le64(uint8_t *at, uint64_t value)
    int frame_read(const uint8_t *at, uint64_t size, uint64_t size_max, frame *found)
    int block_read(const uint8_t *at, uint64_t size, block *found)
    int blocks_follow(
        const uint8_t *at, uint64_t size, uint64_t ledger, uint64_t entry, uint64_t before
    )
    void add_write(
        uint8_t *at, uint32_t request, uint8_t flags, uint64_t epoch, int64_t lac,
        uint64_t ledger, uint64_t entry, const uint8_t *payload, size_t size
    )
    void record_write(
        uint8_t *at, uint32_t what, uint32_t block_bytes, uint64_t position,
        uint64_t synced_before, int64_t epoch, int64_t lac, const uint8_t *block, uint32_t seed
    )

cdef extern from "_kernel.h":
    int look(Py_buffer *view, object buffer) except -1
    object frame_make(object type, const frame *found, const uint8_t *at)

crc_prepare()
cdef object frame_type = Frame


@cython.final
cdef class Frames:
    """Gives the frames that stand in a chunk from an offset on, as long as all is well.

    `at` is where the next one begins: at the end of the chunk, or before a frame that is not all
    there, not whole, or longer than `frame_bytes_max`, which may be changed at any time.
    """

    cdef bytes _chunk
    cdef readonly Py_ssize_t at
    cdef public uint64_t frame_bytes_max

    def __cinit__(self, bytes chunk not None, Py_ssize_t at, uint64_t frame_bytes_max):
        if not 0 <= at <= PyBytes_GET_SIZE(chunk):
            raise ValueError(f"{at} is no offset in {len(chunk)} bytes")
        self._chunk = chunk
        self.at = at
        self.frame_bytes_max = frame_bytes_max

    def __iter__(self):
        return self

    def __next__(self):
        cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(self._chunk) + self.at
        cdef frame found
        if not frame_read(at, PyBytes_GET_SIZE(self._chunk) - self.at, self.frame_bytes_max, &found):
            raise StopIteration
        made = frame_make(frame_type, &found, at)
        self.at += found.bytes
        return made


def blank(Py_ssize_t size):
    """Give memory that is about to be written; what is in it means nothing."""
    if size < 0:
        raise ValueError("negative count")
    made = PyByteArray_FromStringAndSize(NULL, size)
    pages_large(<uint8_t *>PyByteArray_AS_STRING(made), size)
    return made


def read_add(bytes body not None, blob):
    """Give ledger, entry, epoch and LAC of an ADD if all of it is good, its one block too."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(body)
    cdef Py_buffer view
    cdef block found
    cdef uint64_t epoch
    cdef int64_t lac
    cdef bint good
    if PyBytes_GET_SIZE(body) != ADD_BODY:
        return None
    epoch, lac = get_le64(at), <int64_t>get_le64(at + 8)
    if epoch >> 63 or lac < -1 or lac > <int64_t>ENTRY_MAX:
        return None
    look(&view, blob)
    good = block_read(<const uint8_t *>view.buf, view.len, &found) and found.bytes == view.len
    PyBuffer_Release(&view)
    return (found.ledger, found.entry, epoch, lac) if good else None


def holds(bytes blocks not None, uint64_t ledger, uint64_t first, uint64_t before):
    """Tell whether these are the good blocks of all entries [first, before), and nothing else.

    Other threads run meanwhile.
    """
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(blocks)
    cdef uint64_t size = PyBytes_GET_SIZE(blocks)
    cdef bint good
    with nogil:
        good = blocks_follow(at, size, ledger, first, before)
    return good


def adjacent(bytes slots not None, Py_ssize_t at, uint64_t bytes_max):
    """Give the lengths of the blocks from a slot on that stand one behind the other in their log.

    They end before a slot that can be none, and before there are more than `bytes_max` bytes; the
    first one is not looked at.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(slots)
    cdef Py_ssize_t stop = PyBytes_GET_SIZE(slots)
    cdef list sizes = []
    cdef uint64_t size, end
    if not 0 <= at <= stop - SLOT_BYTES:
        raise ValueError(f"{at} is no slot in {stop} bytes")
    end = get_le64(start + at)
    while True:
        size = get_le32(start + at + 8)
        sizes.append(size)
        bytes_max -= min(size, bytes_max)
        end += size
        at += SLOT_BYTES
        if at > stop - SLOT_BYTES or get_le64(start + at) != end:
            return sizes
        size = get_le32(start + at + 8)
        if size > bytes_max or not BLOCK_HEAD <= size <= BLOCK_MAX:
            return sizes


def payloads(blocks, uint64_t ledger, uint64_t first, uint64_t before):
    """Give the payloads of blocks by their entries, without a copy, if all of them are good.

    None if one is not, or is of another ledger, or of an entry that is not in [first, before).
    """
    cdef dict found = {}
    cdef Py_buffer view
    cdef block each
    cdef Py_ssize_t start = 0
    whole = PyMemoryView_FromObject(blocks)
    PyObject_GetBuffer(whole, &view, PyBUF_SIMPLE)
    try:
        while start < view.len:
            if not block_read(<const uint8_t *>view.buf + start, view.len - start, &each):
                return None
            if each.ledger != ledger or not first <= each.entry < before:
                return None
            stop = start + <Py_ssize_t>each.bytes
            found[each.entry] = PySequence_GetSlice(whole, start + BLOCK_HEAD, stop)
            start = stop
    finally:
        PyBuffer_Release(&view)
    return found


def encode_add(
    uint32_t request,
    uint8_t flags,
    uint64_t epoch,
    int64_t lac,
    uint64_t ledger,
    uint64_t entry,
    payload,
    uint64_t short_bytes,
):
    """Make an ADD as far as its payload, and with that too if it has at most `short_bytes`."""
    cdef Py_buffer view
    cdef uint8_t *at
    cdef bytes made
    cdef bint whole
    look(&view, payload)
    try:
        if view.len > UINT32_MAX - ADD_HEAD:
            raise OverflowError(f"a payload of {view.len} bytes does not fit in a frame")
        whole = <uint64_t>view.len <= short_bytes
        made = PyBytes_FromStringAndSize(NULL, ADD_HEAD + (view.len if whole else 0))
        at = <uint8_t *>PyBytes_AS_STRING(made)
        add_write(
            at, request, flags, epoch, lac, ledger, entry, <const uint8_t *>view.buf, view.len
        )
        if whole:
            memcpy(at + ADD_HEAD, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return made


def record_head(
    uint32_t what,
    uint64_t position,
    uint64_t synced_before,
    int64_t epoch,
    int64_t lac,
    block,
    uint32_t seed,
):
    """Make the head of a record that stands before a block; `what` is kind, flags and zeros."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, RECORD_HEAD)
    cdef Py_buffer view
    look(&view, block)
    try:
        if not BLOCK_HEAD <= view.len <= UINT32_MAX:
            raise ValueError(f"{view.len} bytes are no block")
        record_write(
            <uint8_t *>PyBytes_AS_STRING(made), what, view.len, position, synced_before, epoch,
            lac, <const uint8_t *>view.buf, seed
        )
    finally:
        PyBuffer_Release(&view)
    return made


def slots(blocks, uint64_t offset):
    """Make the slots of blocks that stand one behind the other from an offset of their log on."""
    cdef object items = PySequence_Fast(blocks, "blocks are given as a sequence")
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(items)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, count * SLOT_BYTES)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(made)
    cdef Py_buffer view
    for i in range(count):
        look(&view, <object>PySequence_Fast_GET_ITEM(items, i))
        if not BLOCK_HEAD <= view.len <= BLOCK_MAX:
            PyBuffer_Release(&view)
            raise ValueError(f"{view.len} bytes are no block")
        put_le64(at, offset)
        put_le32(at + 8, <uint32_t>view.len)
        memcpy(at + 12, <const uint8_t *>view.buf + 4, 4)
        offset += view.len
        at += SLOT_BYTES
        PyBuffer_Release(&view)
    return made
