/* attend_q8_avx2.c: attention over 8-bit tiles without dot instructions, one query row at a time.
 * Scores: vpmaddubsw adds two byte products in 16 bits, |k| <= 127 times |q| <= 127 fits; the sign
 * of k goes to q. Values: bytes are widened, 15-bit weights are whole 16-bit factors of vpmaddwd.
 * Integer parts are exact, float steps those of attend_q8_avx512.c: the same bits. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx2.h"

enum { GROUP = KERN_Q8_GROUP, STEPS = GROUP / 4, EIGHTS = TILE / HALF };

ZP_INLINE __m256 load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

ZP_INLINE __m256i load_bytes(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

/* p (+)= scores of one group of channels: `steps` quads from K at k. */
static void score_group(struct attend_batch *b, int r, const uint8_t *k, size_t g, size_t width,
                        size_t steps, const uint16_t *k_scale)
{
    __m256i acc[EIGHTS];
    float q_scale;
    memcpy(&q_scale, b->q[r] + width + 4 * g, 4);
    for (int c = 0; c < EIGHTS; c++) acc[c] = _mm256_setzero_si256();
    for (size_t i = 0; i < steps; i++) {
        int32_t quad;
        memcpy(&quad, b->q[r] + g * GROUP + i * 4, 4);
        __m256i q = _mm256_set1_epi32(quad);
        for (int c = 0; c < EIGHTS; c++) {
            __m256i w = load_bytes(k + i * TILE * 4 + c * 32);
            w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
            __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
            acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
    for (int c = 0; c < EIGHTS; c++) {
        __m256 s =
            _mm256_mul_ps(_mm256_cvtepi32_ps(acc[c]), load_f16(k_scale + g * TILE + c * HALF));
        __m256 before = g == 0 ? _mm256_setzero_ps() : _mm256_load_ps(b->p[r] + c * HALF);
        _mm256_store_ps(b->p[r] + c * HALF, _mm256_fmadd_ps(s, _mm256_set1_ps(q_scale), before));
    }
}

/* The weights times V's scales, in 15 bits of the largest; returns the unit. */
static float scale_weights(const float *p, const uint16_t *v_scale, int16_t out[TILE])
{
    const __m256 zero = _mm256_setzero_ps(), limit = _mm256_set1_ps(3.402823466e+38f);
    __m256 w[EIGHTS], top = zero;
    int finite = 0xff;
    for (int c = 0; c < EIGHTS; c++) {
        __m256 x = _mm256_load_ps(p + c * HALF), some = _mm256_cmp_ps(x, zero, _CMP_NEQ_UQ);
        w[c] = _mm256_and_ps(_mm256_mul_ps(x, load_f16(v_scale + c * HALF)), some);
        __m256 good = _mm256_cmp_ps(w[c], limit, _CMP_LE_OQ);
        top = _mm256_max_ps(top, _mm256_max_ps(w[c], zero));
        w[c] = _mm256_and_ps(w[c], good);
        finite &= _mm256_movemask_ps(good);
    }
    float max = max_avx2(top, top), inverse = max < 1e-30f ? 0 : 32767.0f / max;
    for (int c = 0; c < EIGHTS; c += 2) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(w[c], _mm256_set1_ps(inverse)));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(w[c + 1], _mm256_set1_ps(inverse)));
        _mm256_storeu_si256((__m256i *)(void *)(out + c * HALF),
                            _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
    return max / 32767.0f + (finite == 0xff ? 0 : NAN);
}

/* Four channels from c of the positions' quads [q0, q1). */
ZP_INLINE __m128i dot_values(const int8_t *v, size_t width, size_t c, const int16_t *w, size_t q0,
                             size_t q1)
{
    __m256i acc = _mm256_setzero_si256();
    for (size_t i = q0; i < q1; i++) {
        int64_t quad;
        memcpy(&quad, w + 4 * i, 8);
        __m256i x = _mm256_cvtepi8_epi16(
            _mm_loadu_si128((const __m128i *)(const void *)(v + (i * width + c) * 4)));
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(x, _mm256_set1_epi64x(quad)));
    }
    return _mm_hadd_epi32(_mm256_castsi256_si128(acc), _mm256_extracti128_si256(acc, 1));
}

static void add_values(struct attend_batch *b, int r, const int8_t *v, size_t width, size_t c0,
                       size_t c1, const int16_t *w, float unit, size_t q0, size_t q1)
{
    for (size_t c = c0; c < c1; c += 4) {
        float sum[4];
        __m128i dot = dot_values(v, width, c, w, q0, q1);
        size_t n = c1 - c < 4 ? c1 - c : 4;
        float *o = b->o[r] + c;
        memcpy(sum, o, n * sizeof *o);
        memset(sum + n, 0, (4 - n) * sizeof *o);
        __m128 old = _mm_mul_ps(_mm_loadu_ps(sum), _mm_set1_ps(b->keep[r]));
        _mm_storeu_ps(sum, _mm_fmadd_ps(_mm_cvtepi32_ps(dot), _mm_set1_ps(unit), old));
        memcpy(o, sum, n * sizeof *o);
    }
}

static void attend_row(struct attend_batch *b, int r, size_t d)
{
    size_t width = kern_q8_width(d), groups = kern_q8_groups(d);
    const uint8_t *k = (const uint8_t *)b->k;
    const int8_t *v = (const int8_t *)b->v;
    const uint16_t *k_scale = (const uint16_t *)(const void *)(k + TILE * width);
    const uint16_t *v_scale = (const uint16_t *)(const void *)(v + TILE * width);
    uint64_t seen = b->seen[r];
    for (size_t g = 0; g < groups; g++) {
        size_t left = (width - g * GROUP) / 4;
        score_group(b, r, k + g * GROUP * TILE, g, width, left < STEPS ? left : STEPS, k_scale);
    }
    soften(b, r, false);
    size_t q0 = (size_t)__builtin_ctzll(seen) / 4, q1 = (67 - (size_t)__builtin_clzll(seen)) / 4;
    for (size_t g = 0; g < groups; g++) {
        int16_t w[TILE];
        size_t c0 = g * GROUP, c1 = c0 + GROUP < d ? c0 + GROUP : d;
        float unit = scale_weights(b->p[r], v_scale + g * TILE, w);
        add_values(b, r, v, width, c0, c1, w, unit, q0, q1);
    }
}

void attend_q8_avx2(const struct kern_attend *a)
{
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    while (attend_next(a, &walk, &b))
        for (int r = 0; r < b.n; r++) attend_row(&b, r, a->d);
}
