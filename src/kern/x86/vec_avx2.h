/* vec_avx2.h: exp and fixed-order reductions of 8 floats. A pair of registers stands for one of 16
 * lanes, and every step is that of vec_avx512.h: the two levels give the same bits. */
#ifndef KERN_X86_VEC_AVX2_H
#define KERN_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"

/* The first n (0..8) lanes set; for masked loads and stores. */
ZP_INLINE __m256i first_lanes(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), lane);
}

ZP_INLINE __m256 power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* exp as in vec_avx512.h; 2^n in two factors, the first exact, so that denormals round once. */
ZP_INLINE __m256 exp_avx2(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-150.0f), x); /* operand order keeps NaN */
    x = _mm256_min_ps(_mm256_set1_ps(100.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(0x1.6a243ap-10f), r, _mm256_set1_ps(0x1.1239e0p-7f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.5558f2p-5f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.555492p-3f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.fffffcp-2f));
    __m256 p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    p = _mm256_mul_ps(_mm256_add_ps(p, _mm256_set1_ps(1.0f)), power_of_two(half));
    return _mm256_mul_ps(p, power_of_two(_mm256_sub_epi32(whole, half)));
}

ZP_INLINE float sum_avx2(__m256 low, __m256 high)
{
    __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

ZP_INLINE double sum_pd_avx2(__m256d low, __m256d high)
{
    __m256d a = _mm256_add_pd(low, high);
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

ZP_INLINE float max_avx2(__m256 low, __m256 high)
{
    __m256 a = _mm256_max_ps(low, high);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

#endif
