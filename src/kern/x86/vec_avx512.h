/* vec_avx512.h: exp and fixed-order reductions of 16 floats, shared by the avx512 files. In plain
 * C: ref/lanes_ref.h. */
#ifndef KERN_X86_VEC_AVX512_H
#define KERN_X86_VEC_AVX512_H

#include <immintrin.h>
#include "base/compiler.h"

/* exp(x): 2^n * (1 + r + r^2 Q(r)), x = n ln 2 + r, Q fitted for the least relative error on
 * |r| <= ln(2) / 2 (0.05 ULP of its own). Worst of every fifth float: 1.01 ULP.
 * exp(0) = 1 exactly, -inf gives 0, large x infinity, NaN stays NaN; denormal results are right. */
ZP_INLINE __m512 exp_avx512(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x); /* operand order keeps NaN */
    x = _mm512_min_ps(_mm512_set1_ps(100.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6a243ap-10f), r, _mm512_set1_ps(0x1.1239e0p-7f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5558f2p-5f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555492p-3f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fffffcp-2f));
    __m512 p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

/* Sum of 16 lanes: halves, quarters, eighths, last pair. */
ZP_INLINE float sum_avx512(__m512 x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

ZP_INLINE double sum_pd_avx512(__m512d x)
{
    __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

/* Largest lane; NaN only where every comparison happens to let it through. */
ZP_INLINE float max_avx512(__m512 x)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

#endif
