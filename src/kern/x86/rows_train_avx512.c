/* rows_train_avx512.c: rows of training, 16 floats a register; the steps stand in rows_train.h. */
#include <immintrin.h>
#include <stddef.h>
#include "kern/x86/vec_avx512.h"

enum { LANES = 16, WIDTH = 16, PARTS = LANES / WIDTH };
typedef __m512 vec;
typedef __m512d wide;

ZP_INLINE __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

/* Up to 16 values; the rest are zeros. Whole registers take plain moves. */
ZP_INLINE vec vec_load(const float *x, size_t n)
{
    return n >= WIDTH ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(first_lanes(n), x);
}

ZP_INLINE void vec_store(float *y, size_t n, vec v)
{
    if (n >= WIDTH) _mm512_storeu_ps(y, v);
    else _mm512_mask_storeu_ps(y, first_lanes(n), v);
}

ZP_INLINE vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}

/* The first n lanes of a, the others of b. */
ZP_INLINE vec vec_first(vec a, vec b, size_t n)
{
    return n >= WIDTH ? a : _mm512_mask_mov_ps(b, first_lanes(n), a);
}

/* The second where one is NaN. */
ZP_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

ZP_INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

ZP_INLINE vec vec_exp(vec x)
{
    return exp_avx512(x);
}

ZP_INLINE wide vec_low(vec v)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}

ZP_INLINE wide vec_high(vec v)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}

ZP_INLINE float lanes_sum(const vec v[PARTS])
{
    return sum_avx512(v[0]);
}

ZP_INLINE float lanes_max(const vec v[PARTS])
{
    return max_avx512(v[0]);
}

/* Low and high halves of each register. */
ZP_INLINE double lanes_wide_sum(wide v[PARTS][2])
{
    return sum_pd_avx512(v[0][0] + v[0][1]);
}

#include "kern/x86/rows_train.h"

void scale_avx512(const float *x, float scale, float *y, size_t n)
{
    scale_row(x, scale, y, n);
}

float row_max_avx512(const float *x, size_t n, float least)
{
    return largest_of_row(x, n, least);
}

float exp_row_avx512(float *x, size_t n, float shift, float scale)
{
    return exp_of_row(x, n, shift, scale);
}

void silu_back_avx512(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    gated_back(false, gate, up, dy, dgate, dup, n);
}

void gelu_back_avx512(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    gated_back(true, gate, up, dy, dgate, dup, n);
}

void rmsnorm_back_avx512(const struct kern_norm_row *a, bool add, float *dx, float *dgain)
{
    norm_back(a, add, dx, dgain);
}
