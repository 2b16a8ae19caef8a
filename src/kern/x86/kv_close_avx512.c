/* kv_close_avx512.c: query rows for 8-bit tiles, and bf16 tiles into 8-bit ones. bf16 numbers
 * without signs are in the order of their bits: maxima are taken of 16-bit integers, two at a time.
 *   K   a lane is a position in both tiles: a step takes two pairs of channels to one quad
 *   V   a lane is a channel in both tiles: a step takes two pairs of positions to one quad */
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/vec_avx512.h"

enum { TILE = KERN_TILE, LANES = 16, PARTS = TILE / LANES, GROUP = KERN_Q8_GROUP };

ZP_INLINE __mmask16 lanes_up_to(size_t n)
{
    return (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1);
}

/* Halves of bf16 pairs as floats. */
ZP_INLINE __m512 low_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

ZP_INLINE __m512 high_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

ZP_INLINE __m512i magnitudes(__m512i pairs)
{
    return _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff));
}

/* f16 scales of largest magnitudes, stored at `out`; returns what values are multiplied by. */
ZP_INLINE __m512 store_scales(__m512 max, uint16_t *out)
{
    __mmask16 nan = _mm512_cmp_ps_mask(max, max, _CMP_UNORD_Q);
    __m512 y = _mm512_mask_mov_ps(_mm512_div_ps(max, _mm512_set1_ps(127)), nan,
                                  _mm512_set1_ps(NAN));
    __m256i half = _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)out, half);
    __m512 scale = _mm512_cvtph_ps(half);
    __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_GT_OQ) &
                     _mm512_cmp_ps_mask(scale, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    return _mm512_maskz_div_ps(some, _mm512_set1_ps(1), scale);
}

/* round(x * inverse) within -127..127, or 0 where there is no scale. */
ZP_INLINE __m512i to_int8(__m512 x, __m512 inverse)
{
    __mmask16 some = _mm512_cmp_ps_mask(inverse, _mm512_setzero_ps(), _CMP_GT_OQ);
    __m512i q = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(some, x, inverse));
    q = _mm512_min_epi32(q, _mm512_set1_epi32(127));
    return _mm512_max_epi32(q, _mm512_set1_epi32(-127));
}

/* Four bytes a lane. */
ZP_INLINE __m512i quads(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i byte = _mm512_set1_epi32(255);
    __m512i low = _mm512_or_si512(_mm512_and_si512(a, byte),
                                  _mm512_slli_epi32(_mm512_and_si512(b, byte), 8));
    __m512i high = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(c, byte), 16),
                                   _mm512_slli_epi32(d, 24));
    return _mm512_or_si512(low, high);
}

/* Channels [c0, c1) of 16 positions from lane `at` on. */
static void close_k(const uint32_t *k, size_t c0, size_t c1, size_t at, uint8_t *out,
                    uint16_t *scales)
{
    __m512i top = _mm512_setzero_si512();
    for (size_t i = c0 / 2; i < c1 / 2; i++)
        top = _mm512_max_epu16(top, magnitudes(_mm512_loadu_si512(k + i * TILE + at)));
    __m512i max = _mm512_max_epu32(_mm512_slli_epi32(top, 16),
                                   _mm512_and_si512(top, _mm512_set1_epi32((int)0xffff0000)));
    __m512 inverse = store_scales(_mm512_castsi512_ps(max), scales + at);
    for (size_t i = c0 / 2; i < c1 / 2; i += 2) {
        __m512i a = _mm512_loadu_si512(k + i * TILE + at), b = _mm512_setzero_si512();
        if (i + 1 < c1 / 2) b = _mm512_loadu_si512(k + (i + 1) * TILE + at);
        __m512i q = quads(to_int8(low_half(a), inverse), to_int8(high_half(a), inverse),
                          to_int8(low_half(b), inverse), to_int8(high_half(b), inverse));
        q = _mm512_xor_si512(q, _mm512_set1_epi8((char)0x80)); /* + 128 */
        _mm512_storeu_si512(out + (i / 2 * TILE + at) * 4, q);
    }
}

/* Largest magnitude of channels [c0, c1) of the pair of positions at v. */
ZP_INLINE uint32_t largest_pair(const uint32_t *v, size_t c0, size_t c1)
{
    __m512i top = _mm512_setzero_si512();
    for (size_t c = c0; c < c1; c += LANES)
        top = _mm512_max_epu16(
            top, magnitudes(_mm512_maskz_loadu_epi32(lanes_up_to(c1 - c), v + c)));
    __m256i a = _mm256_max_epu16(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
    __m128i b = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu16(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu16(b, _mm_shuffle_epi32(b, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(b);
}

/* Channels [c0, c1) of all positions. */
static void close_v(const uint32_t *v, size_t d, size_t c0, size_t c1, int8_t *out,
                    uint16_t *scales)
{
    ZP_ALIGN(64) float max[TILE], inverse[TILE];
    for (size_t i = 0; i < TILE / 2; i++) {
        uint32_t pair = largest_pair(v + i * d, c0, c1), low = pair << 16,
                 high = pair & 0xffff0000u;
        memcpy(&max[2 * i], &low, 4);
        memcpy(&max[2 * i + 1], &high, 4);
    }
    for (size_t j = 0; j < TILE; j += LANES)
        _mm512_store_ps(inverse + j, store_scales(_mm512_load_ps(max + j), scales + j));
    size_t width = kern_q8_width(d);
    for (size_t j = 0; j < TILE; j += 4)
        for (size_t c = c0; c < c1; c += LANES) {
            __mmask16 m = lanes_up_to(c1 - c);
            __m512i a = _mm512_maskz_loadu_epi32(m, v + j / 2 * d + c);
            __m512i b = _mm512_maskz_loadu_epi32(m, v + (j / 2 + 1) * d + c);
            __m512i q = quads(to_int8(low_half(a), _mm512_set1_ps(inverse[j])),
                              to_int8(high_half(a), _mm512_set1_ps(inverse[j + 1])),
                              to_int8(low_half(b), _mm512_set1_ps(inverse[j + 2])),
                              to_int8(high_half(b), _mm512_set1_ps(inverse[j + 3])));
            _mm512_mask_storeu_epi32(out + (j / 4 * width + c) * 4, m, q);
        }
}

void kv_close_avx512(const void *k_bf16, const void *v_bf16, void *k_q8, void *v_q8, size_t d)
{
    size_t width = kern_q8_width(d);
    uint8_t *k = k_q8;
    int8_t *v = v_q8;
    uint16_t *k_scale = (uint16_t *)(void *)(k + TILE * width),
             *v_scale = (uint16_t *)(void *)(v + TILE * width);
    if (width != d) memset(v, 0, TILE * width);
    for (size_t g = 0; g < kern_q8_groups(d); g++) {
        size_t c0 = g * GROUP, c1 = c0 + GROUP < d ? c0 + GROUP : d;
        for (size_t at = 0; at < TILE; at += LANES)
            close_k(k_bf16, c0, c1, at, k, k_scale + g * TILE);
        close_v(v_bf16, d, c0, c1, v, v_scale + g * TILE);
    }
}

void q8_row_avx512(const float *x, size_t d, void *row)
{
    size_t width = kern_q8_width(d), groups = kern_q8_groups(d);
    uint8_t *q = row, *scales = q + width, *starts = scales + 4 * groups;
    for (size_t g = 0; g < groups; g++) {
        size_t c0 = g * GROUP, n = d - c0 < GROUP ? d - c0 : GROUP;
        __m512 v[PARTS], top = _mm512_setzero_ps();
        __m512i sum = _mm512_setzero_si512();
        unsigned finite = 0xffff;
        for (size_t c = 0; c < PARTS; c++) {
            v[c] = c * LANES < n ? _mm512_maskz_loadu_ps(lanes_up_to(n - c * LANES),
                                                         x + c0 + c * LANES)
                                 : _mm512_setzero_ps();
            __m512 size = _mm512_abs_ps(v[c]);
            finite &= _mm512_cmp_ps_mask(size, _mm512_set1_ps(3.402823466e+38f), _CMP_LE_OQ);
            top = _mm512_max_ps(size, top);
        }
        float max = max_avx512(top), scale = finite == 0xffff ? max / 127.0f : NAN;
        bool some = finite == 0xffff && max >= 1e-30f;
        __m512 inverse = _mm512_set1_ps(some ? 127.0f / max : 0);
        for (size_t c = 0; c < PARTS && c * LANES < n; c++) {
            __m512i y = _mm512_setzero_si512();
            if (some) y = _mm512_cvtps_epi32(_mm512_mul_ps(v[c], inverse));
            sum = _mm512_add_epi32(sum, y);
            size_t left = width - c0 - c * LANES; /* padding of up to three bytes is zero */
            _mm_mask_storeu_epi8(q + c0 + c * LANES, lanes_up_to(left), _mm512_cvtepi32_epi8(y));
        }
        int32_t start = -128 * _mm512_reduce_add_epi32(sum);
        memcpy(scales + 4 * g, &scale, 4);
        memcpy(starts + 4 * g, &start, 4);
    }
}
