/* The C below the compiled kernel of the wire: the fields of frames and blocks, read and written.
 * `_kernel.pyx` is the only file that includes it; the layouts are those of `frame.py`, `entry.py`
 * and, for the head of a record, `roost/journal/record.py`. Nothing here knows Python, but for
 * `look` and `frame_make`, so that other threads may run meanwhile.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "_crc.h"

enum { LARGE_MIN = 256 << 10 };
enum { FRAME_HEAD = 16, FRAME_CHECKED = 8, FRAME_COUNTED = 4 };
enum { BLOCK_HEAD = 28, BLOCK_CHECKED = 8, BLOCK_FRONT = 0x01E27A, PAYLOAD_MAX = 16 << 20 };
enum { BLOCK_MAX = BLOCK_HEAD + PAYLOAD_MAX, SLOT_BYTES = 16 };
enum { ADD_KIND = 2, ADD_BODY = 16, ADD_HEAD = FRAME_HEAD + ADD_BODY + BLOCK_HEAD };
enum { RECORD_HEAD = 48, RECORD_CHECKED = 8, RECORD_MAGIC = 0x6A526F7E };

static const uint64_t ENTRY_MAX = ((uint64_t)1 << 36) - 1;

/* Let the system give large memory in large pages, where it does that for who asks: to clear a page
 * of 4 KiB when it is first written costs as much as to fill it. */
static inline void pages_large(uint8_t *at, size_t size) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t page = 4096, from = (uintptr_t)at & ~(page - 1);
    if (size >= LARGE_MIN)
        (void)madvise((void *)from, (uintptr_t)at + size - from, MADV_HUGEPAGE);
#else
    (void)at;
    (void)size;
#endif
}

static inline uint64_t get_le64(const uint8_t *at) {
    return get_le32(at) | (uint64_t)get_le32(at + 4) << 32;
}

static inline void put_le32(uint8_t *at, uint32_t value) {
    for (int k = 0; k < 4; k++)
        at[k] = (uint8_t)(value >> 8 * k);
}

static inline void put_le64(uint8_t *at, uint64_t value) {
    put_le32(at, (uint32_t)value);
    put_le32(at + 4, (uint32_t)(value >> 32));
}

/* See bytes at once, and everything else by asking it; `PyBuffer_Release` ends both. */
static inline int look(Py_buffer *view, PyObject *buffer) {
    if (!PyBytes_CheckExact(buffer))
        return PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE);
    view->buf = PyBytes_AS_STRING(buffer);
    view->len = PyBytes_GET_SIZE(buffer);
    view->obj = NULL;
    return 0;
}

/* ---- Frames ------------------------------------------------------------------------------- */

struct frame {
    uint32_t request, body_bytes, bytes; /* the last from its first byte to its last */
    uint8_t kind, flags;
};

/* Read the frame at the start of `size` bytes: 1 if it is all there, whole, and not too long. */
static inline int frame_read(const uint8_t *at, uint64_t size, uint64_t size_max,
                             struct frame *found) {
    uint64_t bytes, body_bytes;
    if (size < FRAME_HEAD)
        return 0;
    bytes = (uint64_t)get_le32(at) + FRAME_COUNTED;
    body_bytes = (uint64_t)at[10] | (uint64_t)at[11] << 8;
    if (bytes > size || bytes > size_max || bytes < FRAME_HEAD + body_bytes)
        return 0;
    if (crc_of(0, at + FRAME_CHECKED, FRAME_HEAD - FRAME_CHECKED + body_bytes) != get_le32(at + 4))
        return 0;
    found->kind = at[8];
    found->flags = at[9];
    found->body_bytes = (uint32_t)body_bytes;
    found->request = get_le32(at + 12);
    found->bytes = (uint32_t)bytes;
    return 1;
}

/* Give the frame as a named tuple. Its own constructor takes several times as long. */
static PyObject *frame_make(PyObject *type, const struct frame *found, const uint8_t *at) {
    PyTypeObject *kind = (PyTypeObject *)type;
    const char *body = (const char *)at + FRAME_HEAD, *blob = body + found->body_bytes;
    PyObject *made = kind->tp_alloc(kind, 5);
    if (made == NULL)
        return NULL;
    PyTuple_SET_ITEM(made, 0, PyLong_FromLong(found->kind));
    PyTuple_SET_ITEM(made, 1, PyLong_FromLong(found->flags));
    PyTuple_SET_ITEM(made, 2, PyLong_FromUnsignedLong(found->request));
    PyTuple_SET_ITEM(made, 3, PyBytes_FromStringAndSize(body, found->body_bytes));
    PyTuple_SET_ITEM(made, 4, PyBytes_FromStringAndSize(
        blob, found->bytes - FRAME_HEAD - found->body_bytes));
    for (int k = 0; k < 5; k++)
        if (PyTuple_GET_ITEM(made, k) == NULL) {
            Py_DECREF(made);
            return NULL;
        }
    return made;
}

/* ---- Blocks of entries -------------------------------------------------------------------- */

struct block {
    uint64_t ledger, entry, bytes; /* the last from its first byte to its last */
};

/* Read the block at the start of `size` bytes: 1 if it is one, and good to its last byte. */
static inline int block_read(const uint8_t *at, uint64_t size, struct block *found) {
    uint64_t length;
    if (size < BLOCK_HEAD)
        return 0;
    length = get_le32(at + 8);
    found->ledger = get_le64(at + 12);
    found->entry = get_le64(at + 20);
    found->bytes = BLOCK_HEAD + length;
    return get_le32(at) == BLOCK_FRONT && length <= PAYLOAD_MAX && found->bytes <= size &&
           found->ledger >> 63 == 0 && found->entry <= ENTRY_MAX &&
           crc_of(0, at + BLOCK_CHECKED, found->bytes - BLOCK_CHECKED) == get_le32(at + 4);
}

/* Tell whether `size` bytes are good blocks of entries that follow one another, and nothing else. */
static int blocks_follow(const uint8_t *at, uint64_t size, uint64_t ledger, uint64_t entry,
                         uint64_t before) {
    struct block found;
    for (; size; at += found.bytes, size -= found.bytes, entry++)
        if (!block_read(at, size, &found) || found.ledger != ledger || found.entry != entry)
            return 0;
    return entry == before;
}

static inline void block_write(uint8_t *at, uint64_t ledger, uint64_t entry,
                               const uint8_t *payload, size_t size) {
    put_le32(at, BLOCK_FRONT);
    put_le32(at + 8, (uint32_t)size);
    put_le64(at + 12, ledger);
    put_le64(at + 20, entry);
    put_le32(at + 4, crc_of(crc_of(0, at + BLOCK_CHECKED, BLOCK_HEAD - BLOCK_CHECKED),
                            payload, size));
}

/* ---- What is sent and what is journaled --------------------------------------------------- */

/* Write an ADD as far as the head of its block. */
static void add_write(uint8_t *at, uint32_t request, uint8_t flags, uint64_t epoch, int64_t lac,
                      uint64_t ledger, uint64_t entry, const uint8_t *payload, size_t size) {
    put_le32(at, (uint32_t)(ADD_HEAD - FRAME_COUNTED + size));
    at[8] = ADD_KIND;
    at[9] = flags;
    at[10] = ADD_BODY;
    at[11] = 0;
    put_le32(at + 12, request);
    put_le64(at + 16, epoch);
    put_le64(at + 24, (uint64_t)lac);
    put_le32(at + 4, crc_of(0, at + FRAME_CHECKED, FRAME_HEAD - FRAME_CHECKED + ADD_BODY));
    block_write(at + FRAME_HEAD + ADD_BODY, ledger, entry, payload, size);
}

/* Write the head of a record; `block` has the head of a block at least. */
static void record_write(uint8_t *at, uint32_t what, uint32_t block_bytes, uint64_t position,
                         uint64_t synced_before, int64_t epoch, int64_t lac, const uint8_t *block,
                         uint32_t seed) {
    put_le32(at, RECORD_MAGIC);
    put_le32(at + 8, what);
    put_le32(at + 12, block_bytes);
    put_le64(at + 16, position);
    put_le64(at + 24, synced_before);
    put_le64(at + 32, (uint64_t)epoch);
    put_le64(at + 40, (uint64_t)lac);
    put_le32(at + 4, crc_of(crc_of(seed, at + RECORD_CHECKED, RECORD_HEAD - RECORD_CHECKED),
                            block, BLOCK_HEAD));
}
