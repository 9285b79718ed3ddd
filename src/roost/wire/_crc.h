/* CRC-32/IEEE in C, for the compiled modules: `wire/_kernel.h` and `segments/_kernel.h` include it.
 *
 * A checksum is the remainder of a polynomial over GF(2), here with its bits reflected: bit 31
 * is x^0. What is named `raw` is that remainder alone; `crc_of` adds the inversions before and
 * after that CRC-32/IEEE asks for. Short input goes through tables, 16 bytes a step; longer input
 * is folded by carry-less multiplication where the processor has it, 64 or 256 bytes a step.
 */

#include <stddef.h>
#include <stdint.h>

static inline uint32_t get_le32(const uint8_t *at) {
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_FOLDS 1
#include <immintrin.h>
#define CRC_FOLDING __attribute__((target("pclmul,sse4.1")))
#else
#define CRC_FOLDS 0
#endif

#if CRC_FOLDS && (defined(__clang__) || __GNUC__ >= 9)
#define CRC_WIDE 1
#define CRC_WIDENING __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))
#else
#define CRC_WIDE 0
#endif

enum { CRC_POLYNOMIAL = 0xEDB88320, CRC_FOLDED_MIN = 64, CRC_WIDE_MIN = 512 };

static uint32_t crc_table[16][256]; /* [k][b]: the byte b with k zero bytes behind it */
static uint32_t crc_power[8][256];  /* [k][d]: x to the power 8 * d * 256^k */
static int crc_folds;               /* whether this processor multiplies without carries, */
static int crc_wide;                /* and whether it does so four times at once */

static inline uint32_t crc_times_x(uint32_t raw) {
    return raw >> 1 ^ ((uint32_t)CRC_POLYNOMIAL & (0U - (raw & 1)));
}

static uint32_t crc_multiply(uint32_t left, uint32_t right) {
    uint32_t product = 0;
    for (; left; left <<= 1, right = crc_times_x(right))
        product ^= right & (0U - (left >> 31));
    return product;
}

/* The remainder after `size` zero bytes behind what gave `raw`. */
static inline uint32_t crc_shift(uint32_t raw, uint64_t size) {
    for (int k = 0; size; k++, size >>= 8)
        if (size & 255)
            raw = crc_multiply(crc_power[k][size & 255], raw);
    return raw;
}

static void crc_prepare(void) {
    uint32_t step = 1U << 23; /* x^8 */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t raw = byte;
        for (int bit = 0; bit < 8; bit++)
            raw = crc_times_x(raw);
        crc_table[0][byte] = raw;
    }
    for (int k = 1; k < 16; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t raw = crc_table[k - 1][byte];
            crc_table[k][byte] = crc_table[0][raw & 255] ^ raw >> 8;
        }
    for (int k = 0; k < 8; k++) {
        crc_power[k][0] = 1U << 31; /* x^0 */
        for (int digit = 1; digit < 256; digit++)
            crc_power[k][digit] = crc_multiply(crc_power[k][digit - 1], step);
        step = crc_multiply(crc_power[k][255], step);
    }
#if CRC_FOLDS
    crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
#if CRC_WIDE
    crc_wide = crc_folds && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
#endif
}

/* Four bytes that have `behind` more bytes of this step behind them. */
static inline uint32_t crc_word(uint32_t word, int behind) {
    return crc_table[behind + 3][word & 255] ^ crc_table[behind + 2][word >> 8 & 255] ^
           crc_table[behind + 1][word >> 16 & 255] ^ crc_table[behind][word >> 24];
}

static uint32_t crc_raw_by_table(uint32_t raw, const uint8_t *at, size_t size) {
    for (; size >= 16; at += 16, size -= 16)
        raw = crc_word(raw ^ get_le32(at), 12) ^ crc_word(get_le32(at + 4), 8) ^
              crc_word(get_le32(at + 8), 4) ^ crc_word(get_le32(at + 12), 0);
    for (; size >= 4; at += 4, size -= 4)
        raw = crc_word(raw ^ get_le32(at), 0);
    for (; size; at++, size--)
        raw = crc_table[0][(raw ^ *at) & 255] ^ raw >> 8;
    return raw;
}

#if CRC_FOLDS
CRC_FOLDING static inline __m128i crc_lane(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

/* Carry a lane over the distance that `powers` stands for, and add the lane that is there. */
CRC_FOLDING static inline __m128i crc_fold(__m128i lane, __m128i powers, __m128i there) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* Four lanes side by side hide how long a multiplication takes. They end as 16 bytes that have
 * the same remainder as all before them; the tables finish those, and what is left behind. */
CRC_FOLDING static uint32_t crc_raw_by_folds(uint32_t raw, const uint8_t *at, size_t size) {
    const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x^(512-32), x^(512+32) */
    const __m128i by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x^(128-32), x^(128+32) */
    __m128i a = _mm_xor_si128(crc_lane(at), _mm_cvtsi32_si128((int)raw));
    __m128i b = crc_lane(at + 16), c = crc_lane(at + 32), d = crc_lane(at + 48);
    uint8_t rest[16];
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
        a = crc_fold(a, by_64, crc_lane(at));
        b = crc_fold(b, by_64, crc_lane(at + 16));
        c = crc_fold(c, by_64, crc_lane(at + 32));
        d = crc_fold(d, by_64, crc_lane(at + 48));
    }
    a = crc_fold(crc_fold(crc_fold(a, by_16, b), by_16, c), by_16, d);
    for (; size >= 16; at += 16, size -= 16)
        a = crc_fold(a, by_16, crc_lane(at));
    _mm_storeu_si128((__m128i *)rest, a);
    return crc_raw_by_table(crc_raw_by_table(0, rest, sizeof rest), at, size);
}
#endif

#if CRC_WIDE
CRC_WIDENING static inline __m512i crc_wide_fold(__m512i lanes, __m512i powers, const uint8_t *at) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, powers, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, powers, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(low, high), _mm512_loadu_si512(at));
}

/* The same with 256 bytes a step. They end as 256 bytes that have the same remainder. */
CRC_WIDENING static uint32_t crc_raw_by_wide_folds(uint32_t raw, const uint8_t *at, size_t size) {
    const __m512i by_256 = _mm512_broadcast_i32x4( /* x^(2048-32), x^(2048+32) */
        _mm_set_epi64x(0x1322D1430, 0x11542778A));
    __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)raw));
    __m512i a = _mm512_xor_si512(start, _mm512_loadu_si512(at));
    __m512i b = _mm512_loadu_si512(at + 64), c = _mm512_loadu_si512(at + 128);
    __m512i d = _mm512_loadu_si512(at + 192);
    uint8_t rest[256];
    for (at += 256, size -= 256; size >= 256; at += 256, size -= 256) {
        a = crc_wide_fold(a, by_256, at);
        b = crc_wide_fold(b, by_256, at + 64);
        c = crc_wide_fold(c, by_256, at + 128);
        d = crc_wide_fold(d, by_256, at + 192);
    }
    _mm512_storeu_si512(rest, a);
    _mm512_storeu_si512(rest + 64, b);
    _mm512_storeu_si512(rest + 128, c);
    _mm512_storeu_si512(rest + 192, d);
    raw = crc_raw_by_folds(0, rest, sizeof rest);
    return size < CRC_FOLDED_MIN ? crc_raw_by_table(raw, at, size)
                                 : crc_raw_by_folds(raw, at, size);
}
#endif

static inline uint32_t crc_raw(uint32_t raw, const uint8_t *at, size_t size) {
#if CRC_WIDE
    if (size >= CRC_WIDE_MIN && crc_wide)
        return crc_raw_by_wide_folds(raw, at, size);
#endif
#if CRC_FOLDS
    if (size >= CRC_FOLDED_MIN && crc_folds)
        return crc_raw_by_folds(raw, at, size);
#endif
    return crc_raw_by_table(raw, at, size);
}

static inline uint32_t crc_of(uint32_t value, const uint8_t *at, size_t size) {
    return ~crc_raw(~value, at, size);
}
