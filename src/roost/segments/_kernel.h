/* The C below the compiled kernel: loads and stores that survive a lost page, and the
 * few loops that see every frame. `_kernel.pyx` is the only file that includes it.
 *
 * A load from or a store to a mapped file faults with SIGBUS where somebody else cut the file
 * short or its disk fails. Everything here that touches such memory does it between `guard_enter`
 * and `guard_leave`, and answers FAULT instead of dying. Between the two nothing allocates, takes
 * a lock or calls Python, so that jumping out of there leaves nothing half done.
 */

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../wire/_crc.h"

enum { FRAME_HEADER = 8, SLOT_PREFIX = 104, SLOT_CRC = 120, SLOT_BYTES = 128 };
enum { FAULT = -1, BROKE = -2 };

static inline uint32_t get_be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void put_be32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static inline void put_be64(uint8_t *at, uint64_t value) {
    put_be32(at, (uint32_t)(value >> 32));
    put_be32(at + 4, (uint32_t)value);
}

/* ---- The guard ------------------------------------------------------------------------------
 *
 * One handler for the process, put in front of the one that was there, which still gets every
 * SIGBUS that is not ours. A fault is raised in the thread that made it, so a thread-local
 * pointer tells the handler whether to jump, and where to. SA_NODEFER leaves the signal
 * unblocked while the handler runs, so that the jump has no mask to restore.
 */

#ifdef __GLIBC__
/* Reached from a signal handler: it must not be allocated at first use, as other models do. */
#define GUARD_LOCAL __attribute__((tls_model("initial-exec")))
#else
#define GUARD_LOCAL
#endif

static __thread sigjmp_buf *volatile guard_out GUARD_LOCAL;
static struct sigaction guard_before;

static inline void guard_enter(sigjmp_buf *out) {
    guard_out = out;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void guard_leave(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    guard_out = NULL;
}

static void guard_pass_on(int number, siginfo_t *about, void *context) {
    int sent = about->si_code <= 0;
    if (guard_before.sa_flags & SA_SIGINFO) {
        guard_before.sa_sigaction(number, about, context);
    } else if (guard_before.sa_handler != SIG_DFL && guard_before.sa_handler != SIG_IGN) {
        guard_before.sa_handler(number);
    } else if (!sent || guard_before.sa_handler == SIG_DFL) {
        /* Back from here, a faulting instruction runs again, and now it kills where it stands. */
        signal(number, SIG_DFL);
        if (sent)
            raise(number);
    }
}

static void guard_on_bus(int number, siginfo_t *about, void *context) {
    sigjmp_buf *out = guard_out;
    /* SI_TKILL: a handler that was put before ours has seen the fault, and raised it again. */
    if (out != NULL && (about->si_code > 0 || about->si_code == SI_TKILL)) {
        guard_out = NULL;
        siglongjmp(*out, 1);
    }
    guard_pass_on(number, about, context);
}

static void guard_install(void) {
    static int installed;
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    if (installed)
        return;
    ours.sa_sigaction = guard_on_bus;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, NULL, &guard_before);
    installed = sigaction(SIGBUS, &ours, NULL) == 0;
}

/* ---- Frames and slots -----------------------------------------------------------------------
 *
 * A header goes behind its payload, and a slot's checksum behind its body: a process that is
 * killed in between leaves nothing that looks whole.
 */

static inline void frame_write(uint8_t *at, const uint8_t *payload, size_t size, uint32_t crc) {
    memcpy(at + FRAME_HEADER, payload, size);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put_be64(at, (uint64_t)size << 32 | crc);
}

static int frame_store(uint8_t *at, const uint8_t *payload, size_t size) {
    uint32_t crc = crc_of(0, payload, size);
    sigjmp_buf out;
    if (sigsetjmp(out, 0))
        return FAULT;
    guard_enter(&out);
    frame_write(at, payload, size, crc);
    guard_leave();
    return 0;
}

/* Give a copy of the payload at `at` if it is whole within `room` and at most `size_max` long:
 * 1 and the copy, 0 where there is none, FAULT, or BROKE with Python's error set. The copy is
 * what is checked, so that nobody can change it between the check and the use. */
static int frame_load(const uint8_t *at, uint64_t room, uint64_t size_max, PyObject **payload) {
    uint64_t header, size;
    PyObject *volatile copy = NULL;
    sigjmp_buf out;
    if (room <= FRAME_HEADER)
        return 0;
    if (sigsetjmp(out, 0)) {
        Py_XDECREF(copy);
        return FAULT;
    }
    guard_enter(&out);
    header = (uint64_t)get_be32(at) << 32 | get_be32(at + 4);
    guard_leave();
    size = header >> 32;
    if (size == 0 || size > room - FRAME_HEADER || size > size_max)
        return 0;
    copy = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (copy == NULL)
        return BROKE;
    guard_enter(&out);
    memcpy(PyBytes_AS_STRING(copy), at + FRAME_HEADER, size);
    guard_leave();
    if (crc_of(0, (const uint8_t *)PyBytes_AS_STRING(copy), size) != (uint32_t)header) {
        Py_DECREF(copy);
        return 0;
    }
    *payload = copy;
    return 1;
}

/* Store a slot's next copy. `crc_prefix` is the checksum of the prefix, which never changes. */
static int slot_store(uint8_t *at, const uint8_t *prefix, uint32_t crc_prefix, uint64_t sequence,
                      uint64_t position) {
    uint8_t body[SLOT_CRC - SLOT_PREFIX], crc[SLOT_BYTES - SLOT_CRC] = {0};
    sigjmp_buf out;
    put_be64(body, sequence);
    put_be64(body + 8, position);
    put_be32(crc, crc_of(crc_prefix, body, sizeof body));
    if (sigsetjmp(out, 0))
        return FAULT;
    guard_enter(&out);
    memcpy(at, prefix, SLOT_PREFIX);
    memcpy(at + SLOT_PREFIX, body, sizeof body);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(at + SLOT_CRC, crc, sizeof crc);
    guard_leave();
    return 0;
}

/* ---- Walks ----------------------------------------------------------------------------------
 *
 * They look at a whole segment, where the bytes may be anything. All offsets are from `at`.
 */

/* The size of the frame at `start`, header and all; 0 if there can be none before `stop`. */
static inline uint64_t frame_span(const uint8_t *at, uint64_t start, uint64_t stop) {
    uint64_t size;
    if (stop - start <= FRAME_HEADER)
        return 0;
    size = get_be32(at + start);
    return size == 0 || size > stop - start - FRAME_HEADER ? 0 : size + FRAME_HEADER;
}

static int64_t walk_scan(const uint8_t *at, uint64_t start, uint64_t stop, uint64_t *count) {
    uint64_t span, good = 0;
    sigjmp_buf out;
    if (sigsetjmp(out, 0))
        return FAULT;
    guard_enter(&out);
    for (; (span = frame_span(at, start, stop)) != 0; start += span, good++)
        if (crc_of(0, at + start + FRAME_HEADER, span - FRAME_HEADER) != get_be32(at + start + 4))
            break;
    guard_leave();
    *count = good;
    return (int64_t)start;
}

static int64_t walk_boundary(const uint8_t *at, uint64_t start, uint64_t stop, uint64_t target) {
    uint64_t span;
    sigjmp_buf out;
    if (sigsetjmp(out, 0))
        return FAULT;
    guard_enter(&out);
    while ((span = frame_span(at, start, stop)) != 0 && span <= target - start)
        start += span;
    guard_leave();
    return (int64_t)start;
}

/* Checksums of any stretch at a price that does not grow with its length: what looks like a
 * header in the midst of other bytes claims lengths at random, and summing up each of them anew
 * would take minutes. `raw[k]` is the remainder of the first k * MARK_BYTES bytes. */
enum { MARK_BYTES = 256, MARKED_MIN = 4096 };

struct marks {
    const uint8_t *at;
    uint32_t *raw;
    uint64_t known;
};

static uint32_t marks_raw(struct marks *marks, uint64_t before) {
    uint64_t wanted = before / MARK_BYTES;
    for (; marks->known < wanted; marks->known++)
        marks->raw[marks->known + 1] = crc_raw(marks->raw[marks->known],
                                               marks->at + marks->known * MARK_BYTES, MARK_BYTES);
    return crc_raw(marks->raw[wanted], marks->at + wanted * MARK_BYTES, before % MARK_BYTES);
}

static uint32_t marks_crc(struct marks *marks, uint64_t start, uint64_t size) {
    if (size < MARKED_MIN)
        return crc_of(0, marks->at + start, size);
    return ~(marks_raw(marks, start + size) ^ crc_shift(~marks_raw(marks, start), size));
}

/* The first good frame of at most `size_max` bytes of payload; `stop` if there is none. `raw` has
 * room for a remainder every MARK_BYTES up to `stop`, and one more. */
static int64_t walk_resume(const uint8_t *at, uint64_t start, uint64_t stop, uint64_t size_max,
                           uint32_t *raw) {
    struct marks marks = {.at = at + start, .raw = raw, .known = 0};
    uint64_t begin = start;
    sigjmp_buf out;
    raw[0] = 0;
    if (sigsetjmp(out, 0))
        return FAULT;
    guard_enter(&out);
    for (; start < stop; start++) {
        uint64_t span = frame_span(at, start, stop), size = span - FRAME_HEADER;
        if (span != 0 && size <= size_max &&
            marks_crc(&marks, start - begin + FRAME_HEADER, size) == get_be32(at + start + 4))
            break;
    }
    guard_leave();
    return (int64_t)start;
}
