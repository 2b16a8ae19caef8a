/* soften_avx512.h: scores of a tile become softmax weights, shared by the avx512 attend files. */
#ifndef KERN_X86_SOFTEN_AVX512_H
#define KERN_X86_SOFTEN_AVX512_H

#include <immintrin.h>
#include <math.h>
#include "kern/x86/attend_batch.h"
#include "kern/x86/vec_avx512.h"

enum { TILE = KERN_TILE, LANES = 16, PARTS = TILE / LANES };

#ifdef __AVX512BF16__
enum { HAS_BF16 = 1 };

/* 64 weights as 32 pairs of bf16 at `out`; the weights become what the pairs hold. */
ZP_INLINE void round_weights(__m512 w[PARTS], float *out)
{
    ZP_UNROLL
    for (int c = 0; c < PARTS; c += 2) {
        __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(w[c + 1], w[c]);
        _mm512_store_si512(out + c / 2 * LANES, pairs);
        for (int h = 0; h < 2; h++) {
            __m256i half = h ? _mm512_extracti64x4_epi64(pairs, 1) : _mm512_castsi512_si256(pairs);
            w[c + h] =
                _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
        }
    }
}
#else
enum { HAS_BF16 = 0 };

/* 64 weights to the nearest bf16, ties to even, as floats at `out` too; NaN stays NaN, what bf16
 * has no normal number for is 0. */
ZP_INLINE void round_weights(__m512 w[PARTS], float *out)
{
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __m512i bits = _mm512_castps_si512(w[c]);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        __mmask16 normal = _mm512_cmp_ps_mask(w[c], _mm512_set1_ps(0x1p-126f), _CMP_GE_OQ);
        __mmask16 nan = _mm512_cmp_ps_mask(w[c], w[c], _CMP_UNORD_Q);
        up = _mm512_maskz_and_epi32(normal, up, _mm512_set1_epi32((int)0xffff0000));
        w[c] = _mm512_mask_mov_ps(_mm512_castsi512_ps(up), nan, w[c]);
        _mm512_store_ps(out + c * LANES, w[c]);
    }
}
#endif

/* Four rows' last four lanes each, by one of two steps: the order of sum_avx512. */
ZP_INLINE __m128 last_lanes(const __m128 v[4], bool is_max)
{
    __m128 a = _mm_unpacklo_ps(v[0], v[1]), b = _mm_unpackhi_ps(v[0], v[1]);
    __m128 c = _mm_unpacklo_ps(v[2], v[3]), d = _mm_unpackhi_ps(v[2], v[3]);
    a = is_max ? _mm_max_ps(a, b) : _mm_add_ps(a, b);
    c = is_max ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
    __m128 even = _mm_movelh_ps(a, c), odd = _mm_movehl_ps(c, a);
    return is_max ? _mm_max_ps(even, odd) : _mm_add_ps(even, odd);
}

/* Largest lanes, or sums of lanes, of the vectors of n <= 4 rows, as lanes of one: together they
 * take a third of the steps that each alone takes. */
ZP_INLINE __m128 reduce_rows(const __m512 *v, int n, bool is_max)
{
    __m128 quarter[4];
    ZP_UNROLL
    for (int r = 0; r < 4; r++) {
        if (r >= n) {
            quarter[r] = _mm_setzero_ps();
            continue;
        }
        __m256 lo = _mm512_castps512_ps256(v[r]), hi = _mm512_extractf32x8_ps(v[r], 1);
        lo = is_max ? _mm256_max_ps(lo, hi) : _mm256_add_ps(lo, hi);
        __m128 a = _mm256_castps256_ps128(lo), b = _mm256_extractf128_ps(lo, 1);
        quarter[r] = is_max ? _mm_max_ps(a, b) : _mm_add_ps(a, b);
    }
    return last_lanes(quarter, is_max);
}

/* What a row does not see becomes -infinity, biases are added; returns the largest of each lane. */
ZP_INLINE __m512 mask_scores(struct attend_batch *b, int r)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 top = none;
    bool plain = b->seen[r] == ~0ull && !b->bias[r] && !b->key_bias[r];
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __m512 s = _mm512_load_ps(b->p[r] + c * LANES);
        if (!plain) {
            __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
            if (b->bias[r])
                s = _mm512_add_ps(s, _mm512_maskz_loadu_ps(seen, b->bias[r] + c * LANES));
            if (b->key_bias[r])
                s = _mm512_add_ps(s, _mm512_maskz_loadu_ps(seen, b->key_bias[r] + c * LANES));
            s = _mm512_mask_mov_ps(none, seen, s);
            _mm512_store_ps(b->p[r] + c * LANES, s);
        }
        top = _mm512_max_ps(top, s);
    }
    return top;
}

/* Weights of one row under its maximum; returns their sum, lane by lane. */
ZP_INLINE __m512 weigh_scores(struct attend_batch *b, int r, float max, bool is_bf16)
{
    __m512 w[PARTS], all = _mm512_set1_ps(max);
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
        w[c] = exp_avx512(_mm512_sub_ps(_mm512_load_ps(b->p[r] + c * LANES), all));
        w[c] = _mm512_maskz_mov_ps(seen, w[c]);
        if (!is_bf16) _mm512_store_ps(b->p[r] + c * LANES, w[c]);
    }
    if (is_bf16) round_weights(w, b->p[r]);
    return _mm512_add_ps(_mm512_add_ps(w[0], w[1]), _mm512_add_ps(w[2], w[3]));
}

/* A state's number of rows [r0, r0 + n), n <= 4, as lanes; the rest is 0. */
ZP_INLINE __m128 gather_rows(float *const *from, int n)
{
    return _mm_setr_ps(*from[0], n > 1 ? *from[1] : 0, n > 2 ? *from[2] : 0, n > 3 ? *from[3] : 0);
}

ZP_INLINE void scatter_rows(float *const *to, int n, __m128 v)
{
    float lane[4];
    _mm_storeu_ps(lane, v);
    ZP_UNROLL
    for (int r = 0; r < n; r++) *to[r] = lane[r];
}

/* Rows [r0, r0 + n), n <= 4. */
ZP_INLINE void soften_rows(struct attend_batch *b, int r0, int n, bool is_bf16)
{
    __m512 v[4];
    float max[4];
    ZP_UNROLL
    for (int r = 0; r < n; r++) v[r] = mask_scores(b, r0 + r);
    __m128 old = gather_rows(b->m + r0, n);
    __m128 now = _mm_max_ps(reduce_rows(v, n, true), old); /* NaN: the old one stays */
    __m128 keep = _mm512_castps512_ps128(exp_avx512(_mm512_castps128_ps512(_mm_sub_ps(old, now))));
    keep = _mm_mask_mov_ps(keep, _mm_cmp_ps_mask(old, now, _CMP_EQ_OQ), _mm_set1_ps(1.0f));
    _mm_storeu_ps(max, now);
    _mm_storeu_ps(b->keep + r0, keep);
    scatter_rows(b->m + r0, n, now);
    ZP_UNROLL
    for (int r = 0; r < n; r++) v[r] = weigh_scores(b, r0 + r, max[r], is_bf16);
    __m128 l = _mm_mul_ps(gather_rows(b->l + r0, n), keep);
    scatter_rows(b->l + r0, n, _mm_add_ps(l, reduce_rows(v, n, false)));
}

/* Scores of the batch's n rows become weights, rounded to bf16 where the values are; m and l move
 * on. */
ZP_INLINE void soften(struct attend_batch *b, int n, bool is_bf16)
{
    soften_rows(b, 0, n < 4 ? n : 4, is_bf16);
    if (n > 4) soften_rows(b, 4, n - 4, is_bf16);
}

#endif
