/* rows_avx512.c: operations on single rows, 16 floats a register; tails by masks, no scalar loops.
 * Sums are taken in double in eight or sixteen lanes and one fixed tree. */
#include <immintrin.h>
#include <math.h>
#include "kern/kern_impl.h"
#include "kern/x86/vec_avx512.h"

enum { LANES = 16 };

/* Lanes that exist of the 16 from i. */
ZP_INLINE __mmask16 lanes_from(size_t i, size_t n)
{
    return (__mmask16)(n - i >= LANES ? 0xffff : (1u << (n - i)) - 1);
}

/* 32 columns of one token: two registers, the second may lack lanes or be empty. */
static void quantize_group(const float *x, __mmask16 m0, __mmask16 m1, int8_t *q, float *scale,
                           int32_t *sum16)
{
    __m512 a = _mm512_maskz_loadu_ps(m0, x), b = _mm512_maskz_loadu_ps(m1, x + LANES);
    __m512 abs_a = _mm512_abs_ps(a), abs_b = _mm512_abs_ps(b);
    const __m512 largest = _mm512_set1_ps(3.402823466e+38f);
    unsigned finite = _mm512_cmp_ps_mask(abs_a, largest, _CMP_LE_OQ) &
                      _mm512_cmp_ps_mask(abs_b, largest, _CMP_LE_OQ);
    float max = max_avx512(_mm512_max_ps(abs_a, abs_b));
    if (finite != 0xffff || max < 1e-30f) {
        *scale = finite == 0xffff ? 0.0f : NAN;
        sum16[0] = sum16[1] = 0;
        _mm256_storeu_si256((__m256i *)(void *)q, _mm256_setzero_si256());
        return;
    }
    __m512 inverse = _mm512_set1_ps(127.0f / max);
    __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    *scale = max / 127.0f;
    sum16[0] = _mm512_reduce_add_epi32(qa);
    sum16[1] = _mm512_reduce_add_epi32(qb);
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(void *)(q + LANES), _mm512_cvtepi32_epi8(qb));
}

void act_quantize_avx512(struct kern_act *a, size_t t0, size_t t1)
{
    size_t groups = a->stride / 32;
    for (size_t t = t0; t < t1; t++) {
        const float *x = a->f32 + t * a->f32_stride;
        for (size_t g = 0; g < groups; g++) {
            size_t k = g * 32;
            __mmask16 m0 = k < a->n_in ? lanes_from(k, a->n_in) : 0;
            __mmask16 m1 = k + LANES < a->n_in ? lanes_from(k + LANES, a->n_in) : 0;
            quantize_group(x + k, m0, m1, a->q + t * a->stride + k, a->scale + t * groups + g,
                           a->sum16 + (t * groups + g) * 2);
        }
    }
}

void rmsnorm_avx512(const float *x, const float *gain, float eps, size_t n, float *y)
{
    __m512d s0 = _mm512_setzero_pd(), s1 = _mm512_setzero_pd();
    for (size_t i = 0; i < n; i += LANES) {
        __m512 v = _mm512_maskz_loadu_ps(lanes_from(i, n), x + i);
        __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        s0 = _mm512_fmadd_pd(lo, lo, s0);
        s1 = _mm512_fmadd_pd(hi, hi, s1);
    }
    double sum = sum_pd_avx512(_mm512_add_pd(s0, s1));
    __m512 scale = _mm512_set1_ps((float)(1.0 / sqrt(sum / (double)n + (double)eps)));
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
        if (gain) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, gain + i));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

/* even lanes: a c - b s, odd lanes: b c + a s; where s = 0: x c. */
void rotate_avx512(float *x, const float *cs, size_t n_pairs)
{
    size_t n = 2 * n_pairs;
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 v = _mm512_maskz_loadu_ps(m, x + i), angle = _mm512_maskz_loadu_ps(m, cs + i);
        __m512 c = _mm512_moveldup_ps(angle), s = _mm512_movehdup_ps(angle);
        __m512 straight = _mm512_mul_ps(v, c);
        __m512 crossed = _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), s);
        __mmask16 turn = _mm512_cmp_ps_mask(s, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        __m512 r = _mm512_mask_sub_ps(straight, turn & 0x5555, straight, crossed);
        r = _mm512_mask_add_ps(r, turn & 0xaaaa, straight, crossed);
        _mm512_mask_storeu_ps(x + i, m, r);
    }
}

ZP_INLINE __m512 logistic_times(__m512 x, __m512 minus_u, __m512 up)
{
    __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0f), exp_avx512(minus_u));
    return _mm512_mul_ps(_mm512_div_ps(x, below), up);
}

void silu_mul_avx512(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 x = _mm512_maskz_loadu_ps(m, gate + i);
        __m512 minus = _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
        _mm512_mask_storeu_ps(y + i, m, logistic_times(x, minus, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

/* Same steps as gelu_mul_ref. */
void gelu_mul_avx512(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 x = _mm512_maskz_loadu_ps(m, gate + i);
        __m512 cube =
            _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.044715f), x), x), x);
        __m512 minus = _mm512_mul_ps(_mm512_set1_ps(-1.5957691216057308f), _mm512_add_ps(x, cube));
        _mm512_mask_storeu_ps(y + i, m, logistic_times(x, minus, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

void add_scaled_avx512(float *x, const float *y, float scale, size_t n)
{
    __m512 s = _mm512_set1_ps(scale);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 product = _mm512_mul_ps(s, _mm512_maskz_loadu_ps(m, y + i));
        _mm512_mask_storeu_ps(x + i, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i), product));
    }
}

/* acc += w (16 floats) in double. */
ZP_INLINE void add_wide(__m512d acc[2], __m512 w)
{
    acc[0] = _mm512_add_pd(acc[0], _mm512_cvtps_pd(_mm512_castps512_ps256(w)));
    acc[1] = _mm512_add_pd(acc[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(w, 1)));
}

void expsum_avx512(const float *x, size_t n, float *max, double *sum)
{
    __m512 top = _mm512_set1_ps(-INFINITY);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        top = _mm512_mask_max_ps(top, m, _mm512_maskz_loadu_ps(m, x + i), top); /* skips NaN */
    }
    *max = max_avx512(top);
    __m512 all = _mm512_set1_ps(*max);
    __m512d acc[2] = { _mm512_setzero_pd(), _mm512_setzero_pd() };
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), all);
        add_wide(acc, _mm512_maskz_mov_ps(m, exp_avx512(d))); /* NaN spreads here */
    }
    *sum = sum_pd_avx512(_mm512_add_pd(acc[0], acc[1]));
}

/* acc += weight * (dp - dq) in double, where the weight is not zero. */
ZP_INLINE __m512d add_terms(__m512d acc, __m256 weight, __m256 p, __m256 q, __m512d p_max,
                            __m512d q_max)
{
    __m512d w = _mm512_cvtps_pd(weight);
    __m512d dp = _mm512_sub_pd(_mm512_cvtps_pd(p), p_max);
    __m512d dq = _mm512_sub_pd(_mm512_cvtps_pd(q), q_max);
    __mmask8 counts = _mm512_cmp_pd_mask(w, _mm512_setzero_pd(), _CMP_NEQ_UQ);
    return _mm512_mask3_fmadd_pd(w, _mm512_sub_pd(dp, dq), acc, counts);
}

double kl_row_avx512(const float *p, float p_max, double p_sum, const float *q, float q_max,
                     double q_sum, size_t n)
{
    __m512 top = _mm512_set1_ps(p_max);
    __m512d p_top = _mm512_set1_pd((double)p_max), q_top = _mm512_set1_pd((double)q_max);
    __m512d a = _mm512_setzero_pd(), b = _mm512_setzero_pd();
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 vp = _mm512_maskz_loadu_ps(m, p + i), vq = _mm512_maskz_loadu_ps(m, q + i);
        __m512 w = _mm512_maskz_mov_ps(m, exp_avx512(_mm512_sub_ps(vp, top)));
        a = add_terms(a, _mm512_castps512_ps256(w), _mm512_castps512_ps256(vp),
                      _mm512_castps512_ps256(vq), p_top, q_top);
        b = add_terms(b, _mm512_extractf32x8_ps(w, 1), _mm512_extractf32x8_ps(vp, 1),
                      _mm512_extractf32x8_ps(vq, 1), p_top, q_top);
    }
    double total = sum_pd_avx512(_mm512_add_pd(a, b));
    return total / p_sum - log(p_sum) + log(q_sum);
}

/* bf16 of 16 floats, round to nearest even; the conversion instruction would flush denormals. */
ZP_INLINE __m512i to_bf16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000)); /* stays a quiet NaN */
    return _mm512_srli_epi32(up, 16);
}

void kv_append_bf16_avx512(void *k_tile, void *v_tile, size_t slot, const float *k, const float *v,
                           size_t d)
{
    uint32_t *kt = k_tile;
    uint16_t *vt = v_tile;
    ZP_ALIGN(64) uint32_t half[LANES];
    for (size_t i = 0; i < d; i += LANES) {
        __mmask16 m = lanes_from(i, d);
        __m512i pairs = to_bf16(_mm512_maskz_loadu_ps(m, k + i));
        /* even lane | next lane << 16: one 4-byte store a pair of channels */
        pairs = _mm512_or_si512(pairs, _mm512_srli_epi64(pairs, 16));
        _mm512_store_si512(half, pairs);
        for (size_t c = 0; c < LANES && i + c < d; c += 2)
            kt[(i + c) / 2 * KERN_TILE + slot] = half[c];
        _mm512_store_si512(half, to_bf16(_mm512_maskz_loadu_ps(m, v + i)));
        for (size_t c = 0; c < LANES && i + c < d; c++)
            vt[slot / 2 * (2 * d) + (i + c) * 2 + slot % 2] = (uint16_t)half[c];
    }
}
