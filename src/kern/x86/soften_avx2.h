/* soften_avx2.h: scores of a tile become softmax weights, shared by the avx2 attend files. */
#ifndef KERN_X86_SOFTEN_AVX2_H
#define KERN_X86_SOFTEN_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "base/num.h"
#include "kern/x86/attend_batch.h"
#include "kern/x86/vec_avx2.h"

enum { TILE = KERN_TILE, LANES = 16, HALF = 8, SLICES = TILE / LANES };

/* All ones in the lanes of eight bits. */
ZP_INLINE __m256i lanes_of_bits(uint32_t bits)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), bit), bit);
}

/* To the nearest bf16, ties to even; NaN stays NaN, what bf16 has no normal number for is 0. */
ZP_INLINE __m256 round_bf16(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    __m256i up = _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(bits, 16), one),
                                  _mm256_set1_epi32(0x7fff));
    up = _mm256_and_si256(_mm256_add_epi32(bits, up), _mm256_set1_epi32((int)0xffff0000));
    __m256 normal = _mm256_cmp_ps(x, _mm256_set1_ps(0x1p-126f), _CMP_GE_OQ);
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_or_ps(_mm256_and_ps(_mm256_castsi256_ps(up), normal), _mm256_and_ps(x, nan));
}

/* The 64 weights of a row as bf16 pairs, in place. */
ZP_INLINE void pack_pairs(float p[TILE])
{
    uint32_t pairs[TILE / 2];
    for (int i = 0; i < TILE / 2; i++)
        pairs[i] = f32_bits(p[2 * i]) >> 16 | (f32_bits(p[2 * i + 1]) & 0xffff0000u);
    memcpy(p, pairs, sizeof pairs);
}

/* Scores of one row become weights, rounded to bf16 where the values are; m and l move on. */
ZP_INLINE void soften(struct attend_batch *b, int r, bool is_bf16)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 s[TILE / HALF], top[2] = { none, none };
    __m256i seen[TILE / HALF];
    for (int c = 0; c < TILE / HALF; c++) {
        seen[c] = lanes_of_bits((uint32_t)(b->seen[r] >> (c * HALF)) & 0xff);
        s[c] = _mm256_load_ps(b->p[r] + c * HALF);
        if (b->bias[r])
            s[c] = _mm256_add_ps(s[c], _mm256_maskload_ps(b->bias[r] + c * HALF, seen[c]));
        if (b->key_bias[r])
            s[c] = _mm256_add_ps(s[c], _mm256_maskload_ps(b->key_bias[r] + c * HALF, seen[c]));
        s[c] = _mm256_blendv_ps(none, s[c], _mm256_castsi256_ps(seen[c]));
        top[c % 2] = _mm256_max_ps(top[c % 2], s[c]);
    }
    float old = *b->m[r], max = max_avx2(top[0], top[1]);
    max = max > old ? max : old;
    for (int c = 0; c < TILE / HALF; c++) {
        s[c] = exp_avx2(_mm256_sub_ps(s[c], _mm256_set1_ps(max)));
        s[c] = _mm256_and_ps(s[c], _mm256_castsi256_ps(seen[c]));
        if (is_bf16) s[c] = round_bf16(s[c]);
        _mm256_store_ps(b->p[r] + c * HALF, s[c]);
    }
    __m256 low = _mm256_add_ps(_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[4], s[6]));
    __m256 high = _mm256_add_ps(_mm256_add_ps(s[1], s[3]), _mm256_add_ps(s[5], s[7]));
    float keep = max == old ? 1.0f : _mm256_cvtss_f32(exp_avx2(_mm256_set1_ps(old - max)));
    b->keep[r] = keep;
    *b->m[r] = max;
    *b->l[r] = *b->l[r] * keep + sum_avx2(low, high);
}

#endif
