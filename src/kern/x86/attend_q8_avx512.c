/* attend_q8_avx512.c: attention over 8-bit tiles by vpdpbusd, up to six query rows at a time.
 * Scores: lane = position, the unsigned bytes are K (k + 128), the signed ones q; a row's start
 * takes the 128 back. Values: lane = channel, the unsigned bytes are the weights in two parts of 8
 * and 7 bits, the signed ones V.
 *
 *   K tile of d = 64        V tile                       weights of 4 positions
 *   step 0: 64 x [c 0..3]   step 0: 64 x [pos 0..3]      high: w >> 7, low: w & 127
 *   step 15: 64 x [60..63]  step 15: 64 x [pos 60..63]   w <= 32767, int_dot = 128 high + low
 *
 * Integer parts are exact, float steps those of attend_q8_ref.c. Each row's state takes the same
 * steps whatever rows share the call (I1). */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx512.h"

enum { GROUP = KERN_Q8_GROUP, STEPS = GROUP / 4 };

/* Weights of the batch's rows for one group of channels. */
struct weights_q8 {
    ZP_ALIGN(64) uint8_t high[BATCH_ROWS][TILE], low[BATCH_ROWS][TILE];
    float unit[BATCH_ROWS];
};

ZP_INLINE __m512i dot4(__m512i acc, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

ZP_INLINE __m512i broadcast4(const void *x)
{
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm512_set1_epi32(quad);
}

ZP_INLINE __m512 load_f16(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

/* p[r] (+)= scores of group g of channels. */
ZP_INLINE void score_group(struct attend_batch *b, size_t g, size_t width, int n)
{
    const char *k_scale = b->k + TILE * (width + 2 * g);
    size_t steps = width / 4 - g * STEPS < STEPS ? width / 4 - g * STEPS : STEPS;
    __m512i acc[BATCH_ROWS][PARTS];
    size_t groups = kern_q8_groups(width);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        __m512i start = broadcast4(b->q[r] + width + 4 * groups + 4 * g);
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) acc[r][c] = start;
    }
    for (size_t i = 0; i < steps; i++) {
        size_t at = (g * STEPS + i) * TILE * 4;
        __m512i w[PARTS];
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) w[c] = _mm512_loadu_si512(b->k + at + c * 64);
        fetch_next(b->k_next, at, PARTS * 64);
        ZP_UNROLL
        for (int r = 0; r < n; r++) {
            __m512i q = broadcast4(b->q[r] + g * GROUP + i * 4);
            ZP_UNROLL
            for (int c = 0; c < PARTS; c++) acc[r][c] = dot4(acc[r][c], w[c], q);
        }
    }
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __m512 scale = load_f16(k_scale + 2 * c * LANES);
        ZP_UNROLL
        for (int r = 0; r < n; r++) {
            float q_scale;
            memcpy(&q_scale, b->q[r] + width + 4 * g, 4);
            __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][c]), scale);
            __m512 before =
                g == 0 ? _mm512_setzero_ps() : _mm512_load_ps(b->p[r] + c * LANES);
            _mm512_store_ps(b->p[r] + c * LANES,
                            _mm512_fmadd_ps(s, _mm512_set1_ps(q_scale), before));
        }
    }
}

/* The weights of row r times V's scales, in 15 bits of the largest. */
ZP_INLINE void split_weights(const struct attend_batch *b, int r, const char *v_scale,
                             struct weights_q8 *out)
{
    const __m512 zero = _mm512_setzero_ps(), limit = _mm512_set1_ps(3.402823466e+38f);
    __m512 w[PARTS], top = zero;
    unsigned finite = 0xffff;
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __m512 p = _mm512_load_ps(b->p[r] + c * LANES);
        __mmask16 some = _mm512_cmp_ps_mask(p, zero, _CMP_NEQ_UQ);
        w[c] = _mm512_maskz_mul_ps(some, p, load_f16(v_scale + 2 * c * LANES));
        __mmask16 good = _mm512_cmp_ps_mask(w[c], limit, _CMP_LE_OQ);
        top = _mm512_max_ps(top, _mm512_max_ps(w[c], zero));
        w[c] = _mm512_maskz_mov_ps(good, w[c]);
        finite &= good;
    }
    float max = max_avx512(top), inverse = max < 1e-30f ? 0 : 32767.0f / max;
    out->unit[r] = max / 32767.0f + (finite == 0xffff ? 0 : NAN);
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(w[c], _mm512_set1_ps(inverse)));
        _mm_store_si128((__m128i *)(void *)(out->high[r] + c * LANES),
                        _mm512_cvtepi32_epi8(_mm512_srli_epi32(v, 7)));
        _mm_store_si128((__m128i *)(void *)(out->low[r] + c * LANES),
                        _mm512_cvtepi32_epi8(_mm512_and_si512(v, _mm512_set1_epi32(127))));
    }
}

/* 16 * parts channels of o from c0: quads [q0, q1) of positions. */
ZP_INLINE void add_values(struct attend_batch *b, const struct weights_q8 *w, size_t width,
                          size_t c0, __mmask16 last, size_t q0, size_t q1, int n, int parts)
{
    __m512i high[BATCH_ROWS][PARTS], low[BATCH_ROWS][PARTS];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < parts; c++) high[r][c] = low[r][c] = _mm512_setzero_si512();
    }
    for (size_t i = q0; i < q1; i++) {
        size_t at = (i * width + c0) * 4;
        __m512i x[PARTS];
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            x[c] = _mm512_maskz_loadu_epi32(c == parts - 1 ? last : (__mmask16)0xffff,
                                            b->v + at + c * 64);
        fetch_next(b->v_next, at, (size_t)parts * 64);
        ZP_UNROLL
        for (int r = 0; r < n; r++) {
            __m512i h = broadcast4(w->high[r] + 4 * i), l = broadcast4(w->low[r] + 4 * i);
            ZP_UNROLL
            for (int c = 0; c < parts; c++) {
                high[r][c] = dot4(high[r][c], h, x[c]);
                low[r][c] = dot4(low[r][c], l, x[c]);
            }
        }
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        __m512 keep = _mm512_set1_ps(b->keep[r]), unit = _mm512_set1_ps(w->unit[r]);
        ZP_UNROLL
        for (int c = 0; c < parts; c++) {
            __mmask16 m = c == parts - 1 ? last : (__mmask16)0xffff;
            float *o = b->o[r] + c0 + (size_t)c * LANES;
            __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[r][c], 7), low[r][c]);
            __m512 old = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, o), keep);
            _mm512_mask_storeu_ps(o, m, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), unit, old));
        }
    }
}

ZP_INLINE void attend_step(struct attend_batch *b, size_t d, int n)
{
    size_t width = kern_q8_width(d), groups = kern_q8_groups(d);
    for (size_t g = 0; g < groups; g++) score_group(b, g, width, n);
    fetch_next(b->k_next, TILE * width, 2 * TILE);
    soften(b, n, false);
    uint64_t seen = b->seen[0];
    size_t q0 = (size_t)__builtin_ctzll(seen) / 4, q1 = (67 - (size_t)__builtin_clzll(seen)) / 4;
    for (size_t g = 0; g < groups; g++) {
        struct weights_q8 w;
        size_t c0 = g * GROUP, c1 = c0 + GROUP < d ? c0 + GROUP : d;
        int parts = n <= 3 ? PARTS : PARTS / 2; /* at most 24 accumulators */
        for (int r = 0; r < n; r++) split_weights(b, r, b->v + TILE * (width + 2 * g), &w);
        for (; c0 + (size_t)parts * LANES <= c1; c0 += (size_t)parts * LANES)
            add_values(b, &w, width, c0, 0xffff, q0, q1, n, parts);
        for (; c0 < c1; c0 += LANES)
            add_values(b, &w, width, c0,
                       (__mmask16)(c1 - c0 >= LANES ? 0xffff : (1u << (c1 - c0)) - 1), q0, q1, n,
                       1);
    }
}

void attend_q8_avx512(const struct kern_attend *a)
{
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    while (attend_next(a, &walk, &b)) {
        switch (b.n) { /* the number of rows becomes a constant */
        case 1: attend_step(&b, a->d, 1); break;
        case 2: attend_step(&b, a->d, 2); break;
        case 3: attend_step(&b, a->d, 3); break;
        case 4: attend_step(&b, a->d, 4); break;
        case 5: attend_step(&b, a->d, 5); break;
        default: attend_step(&b, a->d, 6); break;
        }
    }
}
