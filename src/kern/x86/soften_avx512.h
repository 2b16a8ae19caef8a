/* soften_avx512.h: scores of a tile become softmax weights, shared by the avx512 attend files. */
#ifndef KERN_X86_SOFTEN_AVX512_H
#define KERN_X86_SOFTEN_AVX512_H

#include <immintrin.h>
#include <math.h>
#include "kern/x86/attend_batch.h"
#include "kern/x86/vec_avx512.h"

enum { TILE = KERN_TILE, LANES = 16, PARTS = TILE / LANES };

/* 64 weights as 32 pairs of bf16 at `out`; the weights become what the pairs hold. */
ZP_INLINE void round_pairs(__m512 w[PARTS], float *out)
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

/* Scores of one row become weights, bf16 pairs where the values are; m and l move on. */
ZP_INLINE void soften(struct attend_batch *b, int r, bool is_bf16)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 s[PARTS], top = none;
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
        s[c] = _mm512_load_ps(b->p[r] + c * LANES);
        if (b->bias[r])
            s[c] = _mm512_add_ps(s[c], _mm512_maskz_loadu_ps(seen, b->bias[r] + c * LANES));
        s[c] = _mm512_mask_mov_ps(none, seen, s[c]);
        top = _mm512_max_ps(top, s[c]);
    }
    float old = *b->m[r], max = max_avx512(top);
    max = max > old ? max : old;
    __m512 all = _mm512_set1_ps(max), sum[PARTS];
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
        sum[c] = _mm512_maskz_mov_ps(seen, exp_avx512(_mm512_sub_ps(s[c], all)));
        if (!is_bf16) _mm512_store_ps(b->p[r] + c * LANES, sum[c]);
    }
    if (is_bf16) round_pairs(sum, b->p[r]);
    float added =
        sum_avx512(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    float keep = max == old ? 1.0f : _mm512_cvtss_f32(exp_avx512(_mm512_set1_ps(old - max)));
    b->keep[r] = keep;
    *b->m[r] = max;
    *b->l[r] = *b->l[r] * keep + added;
}

#endif
