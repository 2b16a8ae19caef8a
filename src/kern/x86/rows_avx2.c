/* rows_avx2.c: operations on single rows; a step handles 16 floats in two registers and does what
 * rows_avx512.c does, so that both levels give the same bits. */
#include <immintrin.h>
#include <math.h>
#include "kern/kern_impl.h"
#include "kern/x86/vec_avx2.h"

enum { LANES = 16, HALF = 8 };

/* Half 0 or 1 of the 16 floats from i; lanes beyond n are zero, their memory untouched. */
ZP_INLINE __m256i lanes_of(size_t i, int half, size_t n)
{
    size_t at = i + (size_t)half * HALF;
    return first_lanes(at < n ? n - at : 0);
}

/* Whole registers take plain moves: masked stores cost a dozen cycles on some processors. */
ZP_INLINE __m256 load8(const float *x, size_t i, int half, size_t n)
{
    size_t at = i + (size_t)half * HALF;
    return at + HALF <= n ? _mm256_loadu_ps(x + at)
                          : _mm256_maskload_ps(x + at, lanes_of(i, half, n));
}

ZP_INLINE void store8(float *y, size_t i, int half, size_t n, __m256 v)
{
    size_t at = i + (size_t)half * HALF;
    if (at + HALF <= n) _mm256_storeu_ps(y + at, v);
    else _mm256_maskstore_ps(y + at, lanes_of(i, half, n), v);
}

ZP_INLINE __m256 keep_lanes(__m256 v, size_t i, int half, size_t n)
{
    return _mm256_and_ps(v, _mm256_castsi256_ps(lanes_of(i, half, n)));
}

ZP_INLINE int32_t sum_epi32(__m256i a)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

/* 16 columns: 8-bit values to q, their sum returned. */
static int32_t quantize_half(__m256 a, __m256 b, __m256 inverse, int8_t *q)
{
    __m256i qa = _mm256_cvtps_epi32(_mm256_mul_ps(a, inverse));
    __m256i qb = _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse));
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(qa, qb), 0xd8);
    __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)q, bytes);
    return sum_epi32(_mm256_add_epi32(qa, qb));
}

static void quantize_group(const float *x, size_t n, struct kern_group out)
{
    __m256 v[4], largest = _mm256_setzero_ps();
    const __m256 sign = _mm256_set1_ps(-0.0f), limit = _mm256_set1_ps(3.402823466e+38f);
    int finite = 0xff;
    ZP_UNROLL
    for (int c = 0; c < 4; c++) {
        v[c] = load8(x, 0, c, n);
        __m256 size = _mm256_andnot_ps(sign, v[c]);
        finite &= _mm256_movemask_ps(_mm256_cmp_ps(size, limit, _CMP_LE_OQ));
        largest = _mm256_max_ps(largest, size);
    }
    float max = max_avx2(largest, largest);
    if (finite != 0xff || max < 1e-30f) {
        *out.scale = *out.scaled32 = finite == 0xff ? 0.0f : NAN;
        out.minus16[0] = out.minus16[1] = *out.minus32 = 0;
        _mm256_storeu_si256((__m256i *)(void *)out.q, _mm256_setzero_si256());
        return;
    }
    __m256 inverse = _mm256_set1_ps(127.0f / max);
    *out.scale = max / 127.0f;
    out.minus16[0] = -quantize_half(v[0], v[1], inverse, out.q);
    out.minus16[1] = -quantize_half(v[2], v[3], inverse, out.q + LANES);
    *out.minus32 = out.minus16[0] + out.minus16[1];
    *out.scaled32 = *out.scale * (float)-*out.minus32;
}

void act_quantize_avx2(struct kern_act *a, struct kern_part part, const float *x, size_t x_stride)
{
    size_t end = kern_part_groups(a, part);
    for (size_t t = part.t0; t < part.t1; t++, x += x_stride)
        for (size_t g = part.k0 / 32; g < end; g++) {
            size_t k = g * 32, left = part.k1 > k ? part.k1 - k : 0;
            quantize_group(left ? x + (k - part.k0) : x, left, kern_group_at(a, t, g));
        }
}

float rmsnorm_avx2(const float *x, const float *gain, float eps, size_t n, float *y)
{
    __m256d sum[2][2] = { { _mm256_setzero_pd(), _mm256_setzero_pd() },
                          { _mm256_setzero_pd(), _mm256_setzero_pd() } };
    for (size_t i = 0; i < n; i += LANES) {
        ZP_UNROLL
        for (int h = 0; h < 2; h++) {
            __m256 v = load8(x, i, h, n);
            __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
            __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
            sum[h][0] = _mm256_fmadd_pd(lo, lo, sum[h][0]);
            sum[h][1] = _mm256_fmadd_pd(hi, hi, sum[h][1]);
        }
    }
    double total =
        sum_pd_avx2(_mm256_add_pd(sum[0][0], sum[1][0]), _mm256_add_pd(sum[0][1], sum[1][1]));
    float inverse = (float)(1.0 / sqrt(total / (double)n + (double)eps));
    __m256 scale = _mm256_set1_ps(inverse);
    for (size_t i = 0; i < n; i += HALF) {
        __m256 v = _mm256_mul_ps(load8(x, i, 0, n), scale);
        if (gain) v = _mm256_mul_ps(v, load8(gain, i, 0, n));
        store8(y, i, 0, n, v);
    }
    return inverse;
}

/* even lanes: a c - b s, odd lanes: b c + a s; where s = 0: x c. */
void rotate_avx2(float *x, const float *cs, size_t n_pairs)
{
    size_t n = 2 * n_pairs;
    for (size_t i = 0; i < n; i += HALF) {
        __m256 v = load8(x, i, 0, n), angle = load8(cs, i, 0, n);
        __m256 c = _mm256_moveldup_ps(angle), s = _mm256_movehdup_ps(angle);
        __m256 straight = _mm256_mul_ps(v, c);
        __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), s);
        __m256 turn = _mm256_cmp_ps(s, _mm256_setzero_ps(), _CMP_NEQ_UQ);
        __m256 turned = _mm256_addsub_ps(straight, crossed);
        store8(x, i, 0, n, _mm256_blendv_ps(straight, turned, turn));
    }
}

ZP_INLINE __m256 logistic_times(__m256 x, __m256 minus_u, __m256 up)
{
    __m256 below = _mm256_add_ps(_mm256_set1_ps(1.0f), exp_avx2(minus_u));
    return _mm256_mul_ps(_mm256_div_ps(x, below), up);
}

void silu_mul_avx2(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += HALF) {
        __m256 x = load8(gate, i, 0, n), minus = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
        store8(y, i, 0, n, logistic_times(x, minus, load8(up, i, 0, n)));
    }
}

/* Same steps as gelu_mul_ref. */
void gelu_mul_avx2(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += HALF) {
        __m256 x = load8(gate, i, 0, n);
        __m256 cube =
            _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), x), x), x);
        __m256 minus = _mm256_mul_ps(_mm256_set1_ps(-1.5957691216057308f), _mm256_add_ps(x, cube));
        store8(y, i, 0, n, logistic_times(x, minus, load8(up, i, 0, n)));
    }
}

void add_scaled_avx2(const float *x, const float *y, float scale, float *out, size_t n)
{
    __m256 s = _mm256_set1_ps(scale);
    for (size_t i = 0; i < n; i += HALF) {
        __m256 product = _mm256_mul_ps(s, load8(y, i, 0, n));
        store8(out, i, 0, n, _mm256_add_ps(load8(x, i, 0, n), product));
    }
}

void weigh_lists_avx2(const float *x, size_t step, const float *weight, size_t n_lists, float *y,
                      size_t n)
{
    for (size_t i = 0; i < n; i += HALF) {
        __m256 sum = _mm256_mul_ps(_mm256_set1_ps(weight[0]), load8(x, i, 0, n));
        for (size_t k = 1; k < n_lists; k++) {
            __m256 list = load8(x + k * step, i, 0, n);
            sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(weight[k]), list));
        }
        store8(y, i, 0, n, sum);
    }
}

ZP_INLINE void add_wide(__m256d acc[2], __m256 w)
{
    acc[0] = _mm256_add_pd(acc[0], _mm256_cvtps_pd(_mm256_castps256_ps128(w)));
    acc[1] = _mm256_add_pd(acc[1], _mm256_cvtps_pd(_mm256_extractf128_ps(w, 1)));
}

void expsum_avx2(const float *x, size_t n, float *max, double *sum)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 top = none;
    for (size_t i = 0; i < n; i += HALF) {
        __m256 v =
            _mm256_blendv_ps(none, load8(x, i, 0, n), _mm256_castsi256_ps(lanes_of(i, 0, n)));
        top = _mm256_max_ps(v, top); /* skips NaN */
    }
    *max = max_avx2(top, top);
    __m256 all = _mm256_set1_ps(*max);
    __m256d acc[2][2] = { { _mm256_setzero_pd(), _mm256_setzero_pd() },
                          { _mm256_setzero_pd(), _mm256_setzero_pd() } };
    for (size_t i = 0; i < n; i += LANES) {
        ZP_UNROLL
        for (int h = 0; h < 2; h++) {
            __m256 w = exp_avx2(_mm256_sub_ps(load8(x, i, h, n), all));
            add_wide(acc[h], keep_lanes(w, i, h, n)); /* NaN spreads here */
        }
    }
    *sum = sum_pd_avx2(_mm256_add_pd(acc[0][0], acc[1][0]), _mm256_add_pd(acc[0][1], acc[1][1]));
}

/* acc += weight * (dp - dq) in double, where the weight is not zero. */
ZP_INLINE __m256d add_terms(__m256d acc, __m128 weight, __m128 p, __m128 q, __m256d p_max,
                            __m256d q_max)
{
    __m256d w = _mm256_cvtps_pd(weight);
    __m256d dp = _mm256_sub_pd(_mm256_cvtps_pd(p), p_max);
    __m256d dq = _mm256_sub_pd(_mm256_cvtps_pd(q), q_max);
    __m256d counts = _mm256_cmp_pd(w, _mm256_setzero_pd(), _CMP_NEQ_UQ);
    return _mm256_blendv_pd(acc, _mm256_fmadd_pd(w, _mm256_sub_pd(dp, dq), acc), counts);
}

double kl_row_avx2(const float *p, float p_max, double p_sum, const float *q, float q_max,
                   double q_sum, size_t n)
{
    __m256 top = _mm256_set1_ps(p_max);
    __m256d p_top = _mm256_set1_pd((double)p_max), q_top = _mm256_set1_pd((double)q_max);
    __m256d acc[2][2] = { { _mm256_setzero_pd(), _mm256_setzero_pd() },
                          { _mm256_setzero_pd(), _mm256_setzero_pd() } };
    for (size_t i = 0; i < n; i += LANES) {
        ZP_UNROLL
        for (int h = 0; h < 2; h++) {
            __m256 vp = load8(p, i, h, n), vq = load8(q, i, h, n);
            __m256 w = keep_lanes(exp_avx2(_mm256_sub_ps(vp, top)), i, h, n);
            acc[h][0] = add_terms(acc[h][0], _mm256_castps256_ps128(w), _mm256_castps256_ps128(vp),
                                  _mm256_castps256_ps128(vq), p_top, q_top);
            acc[h][1] =
                add_terms(acc[h][1], _mm256_extractf128_ps(w, 1), _mm256_extractf128_ps(vp, 1),
                          _mm256_extractf128_ps(vq, 1), p_top, q_top);
        }
    }
    double total =
        sum_pd_avx2(_mm256_add_pd(acc[0][0], acc[1][0]), _mm256_add_pd(acc[0][1], acc[1][1]));
    return total / p_sum - log(p_sum) + log(q_sum);
}
