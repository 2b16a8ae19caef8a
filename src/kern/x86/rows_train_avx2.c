/* rows_train_avx2.c: rows of training, 8 floats a register; the steps stand in rows_train.h. */
#include <immintrin.h>
#include "kern/x86/vec_avx2.h"

enum { LANES = 16, WIDTH = 8, PARTS = LANES / WIDTH };
typedef __m256 vec;
typedef __m256d wide;

/* Up to eight values; the rest are zeros. Whole registers take plain moves. */
ZP_INLINE vec vec_load(const float *x, size_t n)
{
    return n >= WIDTH ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

ZP_INLINE void vec_store(float *y, size_t n, vec v)
{
    if (n >= WIDTH) _mm256_storeu_ps(y, v);
    else _mm256_maskstore_ps(y, first_lanes(n), v);
}

ZP_INLINE vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}

/* The first n lanes of a, the others of b. */
ZP_INLINE vec vec_first(vec a, vec b, size_t n)
{
    return n >= WIDTH ? a : _mm256_blendv_ps(b, a, _mm256_castsi256_ps(first_lanes(n)));
}

/* The second where one is NaN. */
ZP_INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

ZP_INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

ZP_INLINE vec vec_exp(vec x)
{
    return exp_avx2(x);
}

ZP_INLINE wide vec_low(vec v)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}

ZP_INLINE wide vec_high(vec v)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

ZP_INLINE float lanes_sum(const vec v[PARTS])
{
    return sum_avx2(v[0], v[1]);
}

ZP_INLINE float lanes_max(const vec v[PARTS])
{
    return max_avx2(v[0], v[1]);
}

/* Low and high halves of each register. */
ZP_INLINE double lanes_wide_sum(wide v[PARTS][2])
{
    return sum_pd_avx2(v[0][0] + v[1][0], v[0][1] + v[1][1]);
}

#include "kern/x86/rows_train.h"

void scale_avx2(const float *x, float scale, float *y, size_t n)
{
    scale_row(x, scale, y, n);
}

float row_max_avx2(const float *x, size_t n, float least)
{
    return largest_of_row(x, n, least);
}

float exp_row_avx2(float *x, size_t n, float shift, float scale)
{
    return exp_of_row(x, n, shift, scale);
}

void silu_back_avx2(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    gated_back(false, gate, up, dy, dgate, dup, n);
}

void gelu_back_avx2(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    gated_back(true, gate, up, dy, dgate, dup, n);
}

void rmsnorm_back_avx2(const struct kern_norm_row *a, bool add, float *dx, float *dgain)
{
    norm_back(a, add, dx, dgain);
}
