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

/* Four groups of 32 columns at a time. */
enum { GROUPS = 4, COLUMNS = 32 };

/* Largest lane of each of four vectors, as lanes of one. */
ZP_INLINE __m128i max_of_each(const __m512i v[GROUPS])
{
    __m512i a =
        _mm512_max_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b =
        _mm512_max_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    a = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i c = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    return _mm_max_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
}

/* 64 bytes of q from four vectors of 16 integers within -127..127. */
ZP_INLINE __m512i pack_bytes(const __m512i v[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i words =
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
    return _mm512_permutexvar_epi32(order, words);
}

/* Negated sums of 16 bytes each: one in the low half of every 128 bits. */
ZP_INLINE __m512i minus_16(__m512i q)
{
    __m512i eights = _mm512_sad_epu8(_mm512_xor_si512(q, _mm512_set1_epi8((char)0x80)),
                                     _mm512_setzero_si512());
    __m512i sums = _mm512_add_epi64(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC));
    return _mm512_sub_epi64(_mm512_set1_epi64(16 * 128), sums);
}

/* Up to four groups of one token; n columns of them exist, the rest is zero. */
ZP_INLINE void quantize_groups(const float *x, size_t n, struct kern_group out, size_t n_groups)
{
    __m512 v[2 * GROUPS];
    __m512i size[GROUPS];
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    ZP_UNROLL
    for (size_t i = 0; i < 2 * GROUPS; i++)
        v[i] = i * LANES < n ? _mm512_maskz_loadu_ps(lanes_from(i * LANES, n), x + i * LANES)
                             : _mm512_setzero_ps();
    ZP_UNROLL
    for (int g = 0; g < GROUPS; g++) /* floats without signs are in the order of their bits */
        size[g] = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[2 * g]), magnitude),
                                   _mm512_and_si512(_mm512_castps_si512(v[2 * g + 1]), magnitude));
    __m128 max = _mm_castsi128_ps(max_of_each(size));
    __mmask8 finite = _mm_cmp_ps_mask(max, _mm_set1_ps(3.402823466e+38f), _CMP_LE_OQ);
    __mmask8 some = finite & _mm_cmp_ps_mask(max, _mm_set1_ps(1e-30f), _CMP_GE_OQ);
    __m128 inverse = _mm_maskz_div_ps(some, _mm_set1_ps(127.0f), max);
    __m128 scale = _mm_maskz_div_ps(some, max, _mm_set1_ps(127.0f));
    scale = _mm_mask_mov_ps(_mm_set1_ps(NAN), finite, scale);
    __m512i q[2];
    ZP_UNROLL
    for (int h = 0; h < 2; h++) {
        __m512i whole[4];
        ZP_UNROLL
        for (int i = 0; i < 4; i++) {
            int g = 2 * h + i / 2;
            __m512 factor = _mm512_broadcastss_ps(_mm_permutevar_ps(inverse, _mm_set1_epi32(g)));
            __m512 y = _mm512_mul_ps(v[4 * h + i], factor);
            if (some != 0xf) y = _mm512_maskz_mov_ps(some >> g & 1 ? 0xffff : 0, y);
            whole[i] = _mm512_cvtps_epi32(y);
        }
        q[h] = pack_bytes(whole);
    }
    __m256i s0 = _mm512_cvtepi64_epi32(minus_16(q[0])), s1 = _mm512_cvtepi64_epi32(minus_16(q[1]));
    /* every second lane is a sum of 16; pairs of them are sums of 32 */
    __m256i sums = _mm256_permutex2var_epi32(s0, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), s1);
    __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
    __m128i minus32 = _mm_hadd_epi32(low, high);
    __m128i sum32 = _mm_sub_epi32(_mm_setzero_si128(), minus32);
    __m128 scaled = _mm_mul_ps(scale, _mm_cvtepi32_ps(sum32));
    if (n_groups == GROUPS) { /* masked stores are slow */
        _mm512_storeu_si512(out.q, q[0]);
        _mm512_storeu_si512(out.q + 64, q[1]);
        _mm_storeu_ps(out.scale, scale);
        _mm_storeu_ps(out.scaled32, scaled);
        _mm_storeu_si128((__m128i *)(void *)out.minus32, minus32);
        _mm256_storeu_si256((__m256i *)(void *)out.minus16, sums);
        return;
    }
    __mmask8 keep = (__mmask8)((1u << n_groups) - 1);
    _mm512_mask_storeu_epi64(out.q, n_groups < 2 ? 0xf : 0xff, q[0]);
    if (n_groups > 2) _mm512_mask_storeu_epi64(out.q + 64, 0xf, q[1]);
    _mm_mask_storeu_ps(out.scale, keep, scale);
    _mm_mask_storeu_ps(out.scaled32, keep, scaled);
    _mm_mask_storeu_epi32(out.minus32, keep, minus32);
    _mm256_mask_storeu_epi32(out.minus16, (__mmask8)((1u << 2 * n_groups) - 1), sums);
}

void act_quantize_avx512(struct kern_act *a, struct kern_part part, const float *x, size_t x_stride)
{
    size_t end = kern_part_groups(a, part);
    for (size_t t = part.t0; t < part.t1; t++, x += x_stride)
        for (size_t g = part.k0 / COLUMNS; g < end; g += GROUPS) {
            size_t k = g * COLUMNS, left = part.k1 > k ? part.k1 - k : 0;
            struct kern_group out = kern_group_at(a, t, g);
            if (left >= GROUPS * COLUMNS) /* constants: no masks */
                quantize_groups(x + (k - part.k0), GROUPS * COLUMNS, out, GROUPS);
            else
                quantize_groups(left ? x + (k - part.k0) : x, left, out,
                                end - g < GROUPS ? end - g : GROUPS);
        }
}

float rmsnorm_avx512(const float *x, const float *gain, float eps, size_t n, float *y)
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
    float inverse = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
    __m512 scale = _mm512_set1_ps(inverse);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
        if (gain) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, gain + i));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
    return inverse;
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

void add_scaled_avx512(const float *x, const float *y, float scale, float *out, size_t n)
{
    __m512 s = _mm512_set1_ps(scale);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 product = _mm512_mul_ps(s, _mm512_maskz_loadu_ps(m, y + i));
        _mm512_mask_storeu_ps(out + i, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i), product));
    }
}

void weigh_lists_avx512(const float *x, size_t step, const float *weight, size_t n_lists, float *y,
                        size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_from(i, n);
        __m512 sum = _mm512_mul_ps(_mm512_set1_ps(weight[0]), _mm512_maskz_loadu_ps(m, x + i));
        for (size_t k = 1; k < n_lists; k++) {
            __m512 list = _mm512_maskz_loadu_ps(m, x + k * step + i);
            sum = _mm512_add_ps(sum, _mm512_mul_ps(_mm512_set1_ps(weight[k]), list));
        }
        _mm512_mask_storeu_ps(y + i, m, sum);
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
