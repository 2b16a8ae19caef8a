/* gemm_quant_avx2.c: products with 8-bit and 4-bit weights without dot instructions, 8 rows a
 * register. vpmaddubsw adds two byte products in 16 bits and saturates, so operands are chosen such
 * that it cannot:
 *   8 bit  |q - 128| <= 128, |x| <= 127: |w| times x with the sign of w, 2 * 128 * 127 fits;
 *          128 * sum(x) is given back with the offset.
 *   4 bit  q <= 15: the eight pairs of a group of 32 add up to 8 * 2 * 15 * 127 = 30480.
 * Integer parts are exact, float steps are those of the avx512 file: same bits (I1). */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"

enum { R = PACK_ROWS, HALF = 8, MAX_TOK = 4 };

struct tile {
    const uint8_t *w;
    const int8_t *xq;
    const float *xs, *scaled32;
    const int32_t *minus32, *sum16;
    size_t x_stride, n_blocks, next; /* next: distance of the bytes to prefetch, 0 = none */
    struct pack_block at;
    int32_t offset; /* on top of what the byte products subtract */
    bool scale_f16, has_min;
    float *y;
    size_t y_step, n_rows;
};

ZP_INLINE __m256i broadcast4(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm256_set1_epi32(quad);
}

/* Eight rows x four k of 16-bit pair sums to 32-bit sums. */
ZP_INLINE __m256i widen_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

ZP_INLINE __m256i load_bytes(const uint8_t *from)
{
    return _mm256_load_si256((const __m256i *)(const void *)from);
}

ZP_INLINE __m256 load_scales(const uint8_t *from, int half, bool is_f16)
{
    if (is_f16)
        return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)(from + half * 16)));
    return _mm256_load_ps((const float *)(const void *)from + half * HALF);
}

/* Integer sums of one k-group of half a row group (8 rows): sum (q - 128) x. */
ZP_INLINE void dot_q8(__m256i acc[MAX_TOK], const uint8_t *block, const int8_t *x, size_t x_stride,
                      int k_group, int part, int half, int n_tok)
{
    ZP_UNROLL
    for (int v = part * (k_group / 4); v < (part + 1) * (k_group / 4); v++) {
        __m256i w =
            _mm256_xor_si256(load_bytes(block + v * 64 + half * 32), _mm256_set1_epi8((char)0x80));
        __m256i size = _mm256_abs_epi8(w); /* -128 stays 128 as unsigned */
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m256i xv = _mm256_sign_epi8(broadcast4(x + (size_t)i * x_stride + v * 4), w);
            acc[i] = _mm256_add_epi32(acc[i], widen_pairs(_mm256_maddubs_epi16(size, xv)));
        }
    }
}

/* sum q x; the group's pair sums stay in 16 bits. */
ZP_INLINE void dot_q4(__m256i acc[MAX_TOK], const uint8_t *block, const int8_t *x, size_t x_stride,
                      int k_group, int part, int half, int n_tok)
{
    const __m256i mask = _mm256_set1_epi8(15);
    int part32 = k_group == 32 ? part : part / 2;
    bool low = k_group == 32 || part % 2 == 0, high = k_group == 32 || part % 2 == 1;
    __m256i pairs[MAX_TOK];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) pairs[i] = _mm256_setzero_si256();
    ZP_UNROLL
    for (int v = 0; v < 4; v++) {
        __m256i w = load_bytes(block + (part32 * 4 + v) * 64 + half * 32);
        __m256i lo = _mm256_and_si256(w, mask),
                hi = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            const int8_t *at = x + (size_t)i * x_stride + part32 * 32 + v * 4;
            if (low)
                pairs[i] = _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(lo, broadcast4(at)));
            if (high)
                pairs[i] =
                    _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(hi, broadcast4(at + 16)));
        }
    }
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) acc[i] = _mm256_add_epi32(acc[i], widen_pairs(pairs[i]));
}

ZP_INLINE void add_group(const struct tile *t, __m256 total[MAX_TOK], enum kern_form form,
                         int k_group, const uint8_t *block, size_t b, int part, int half, int n_tok)
{
    __m256i acc[MAX_TOK];
    const int8_t *x = t->xq + b * PACK_BLOCK;
    size_t x_group = b * 2 + (size_t)(part * k_group / 32), step = t->at.scale_step;
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        size_t at = (size_t)i * (t->x_stride / 32) + x_group;
        int32_t minus = k_group == 32 ? t->minus32[at] : -t->sum16[at * 2 + (size_t)part % 2];
        acc[i] = _mm256_set1_epi32(minus * t->offset);
    }
    if (form == KERN_Q8) dot_q8(acc, block, x, t->x_stride, k_group, part, half, n_tok);
    else dot_q4(acc, block, x, t->x_stride, k_group, part, half, n_tok);
    __m256 scale = load_scales(block + t->at.scale_at + (size_t)part * step, half, t->scale_f16);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        __m256 xs = _mm256_broadcast_ss(t->xs + (size_t)i * (t->x_stride / 32) + x_group);
        total[i] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[i]), xs), scale, total[i]);
    }
    if (!t->has_min) return;
    __m256 min = load_scales(block + t->at.min_at + (size_t)part * step, half, t->scale_f16);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        size_t at = (size_t)i * (t->x_stride / 32) + x_group;
        float sum = k_group == 32 ? t->scaled32[at]
                                  : t->xs[at] * (float)t->sum16[at * 2 + (size_t)part % 2];
        total[i] = _mm256_fmadd_ps(_mm256_set1_ps(sum), min, total[i]);
    }
}

static void store_half(float *y, size_t n, __m256 v)
{
    float rows[HALF];
    _mm256_storeu_ps(rows, v);
    memcpy(y, rows, n * sizeof *y);
}

/* Eight rows: half 0 or 1 of the row group. */
ZP_INLINE void multiply_half(const struct tile *t, enum kern_form form, int k_group, int half,
                             int n_tok)
{
    __m256 total[MAX_TOK];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) total[i] = _mm256_setzero_ps();
    const uint8_t *block = t->w;
    for (size_t b = 0; b < t->n_blocks; b++, block += t->at.bytes) {
        if (t->next && half == 0)
            for (size_t line = 0; line < t->at.bytes; line += 64)
                _mm_prefetch((const char *)block + t->next + line, _MM_HINT_T1);
        for (int part = 0; part < PACK_BLOCK / k_group; part++)
            add_group(t, total, form, k_group, block, b, part, half, n_tok);
    }
    size_t first = (size_t)half * HALF;
    if (t->n_rows <= first) return;
    size_t n = t->n_rows - first < HALF ? t->n_rows - first : HALF;
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) store_half(t->y + (size_t)i * t->y_step + first, n, total[i]);
}

ZP_INLINE void multiply_tokens(const struct tile *t, enum kern_form form, int k_group, size_t n_tok)
{
    for (int half = 0; half < 2; half++) switch (n_tok) {
        case 1: multiply_half(t, form, k_group, half, 1); break;
        case 2: multiply_half(t, form, k_group, half, 2); break;
        case 3: multiply_half(t, form, k_group, half, 3); break;
        default: multiply_half(t, form, k_group, half, 4); break;
        }
}

static void multiply_form(const struct tile *t, enum kern_form form, uint32_t k_group, size_t n_tok)
{
    if (form == KERN_Q8 && k_group == 32) multiply_tokens(t, KERN_Q8, 32, n_tok);
    else if (form == KERN_Q8) multiply_tokens(t, KERN_Q8, 16, n_tok);
    else if (k_group == 32) multiply_tokens(t, KERN_Q4, 32, n_tok);
    else multiply_tokens(t, KERN_Q4, 16, n_tok);
}

static void multiply_all(const struct kern_mat *w, size_t row_begin, size_t row_end,
                         const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct tile t = { .x_stride = x->stride,
                      .n_blocks = (w->n_in + PACK_BLOCK - 1) / PACK_BLOCK,
                      .at = pack_block_of(w),
                      .offset = (int32_t)w->offset - (w->form == KERN_Q8 ? 128 : 0),
                      .scale_f16 = w->scale_f16,
                      .has_min = w->has_min,
                      .y_step = y_stride };
    for (size_t row = row_begin; row < row_end; row += R) {
        t.w = w->data + row / R * w->row_group_bytes;
        t.n_rows = row_end - row < R ? row_end - row : R;
        for (size_t i = 0; i < n_tok; i += MAX_TOK) {
            t.next = i == 0 ? w->row_group_bytes : 0;
            struct kern_group g = kern_group_at(x, i, 0);
            t.xq = g.q;
            t.xs = g.scale;
            t.scaled32 = g.scaled32;
            t.minus32 = g.minus32;
            t.sum16 = g.sum16;
            t.y = y + i * y_stride + row;
            multiply_form(&t, w->form, w->k_group, n_tok - i);
        }
    }
}

void gemm_q8_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,
                  const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride);
}

void gemm_q4_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,
                  const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride);
}
