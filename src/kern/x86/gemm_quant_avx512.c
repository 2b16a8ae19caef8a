/* gemm_quant_avx512.c: products with 8-bit and 4-bit weights, unsigned weights times signed
 * activations by vpdpbusd, one zmm lane = one row.
 *
 * Tile 32 rows x 6 tokens: 12 integer and 12 float accumulators stay in registers. A k-group starts
 * at -offset * sum(x) (offsets are powers of two: a shift), so that offsets cost next to nothing.
 * Every output takes the steps of the contract in kern.h, scale and min each as one fused
 * multiply-add, in ascending k whatever the tile (I1). Reached on a core whose peak is 467 GOPS:
 * Q4_1 300 to 317, Q4_0 and Q8_0 320 to 360; a k-group of 32 costs 8 dot products and 2 or 3 float
 * steps, which bounds it at 80 or 73 %. vpdpbusd is written as one-instruction asm: gcc 12 copies
 * the accumulator around its builtin. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"

enum {
    R = PACK_ROWS,
    MAX_TOK = 6,
    MAX_GROUPS = 2 /* groups of 16 rows */
};

struct tile {
    const uint8_t *w; /* first row group */
    size_t w_step;    /* bytes from one row group to the next */
    const int8_t *xq; /* first token */
    const float *xs, *scaled32;
    const int32_t *minus32, *sum16;
    size_t x_stride, n_blocks;
    struct pack_block at;
    int32_t offset;
    int offset_bits; /* offset = 1 << offset_bits where it is not 0 */
    bool scale_f16, has_min;
    float *y;
    size_t y_step;
    __mmask16 last_rows; /* rows of the last group that exist */
    bool fetch_next;     /* prefetch the next panel of rows */
};

ZP_INLINE __m512i dot4(__m512i acc, __m512i weights, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(x));
    return acc;
}

ZP_INLINE __m512i broadcast4(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm512_set1_epi32(quad);
}

ZP_INLINE __m512 load_scales(const uint8_t *from, bool is_f16)
{
    if (is_f16) return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)from));
    return _mm512_load_ps((const float *)(const void *)from);
}

/* Adds the products of one k-group (number `part` of its block) to the integer accumulators. */
ZP_INLINE void dot_q8(__m512i acc[MAX_GROUPS][MAX_TOK], const uint8_t *block, size_t w_step,
                      const int8_t *x, size_t x_stride, int k_group, int part, int n_groups,
                      int n_tok)
{
    ZP_UNROLL
    for (int v = part * (k_group / 4); v < (part + 1) * (k_group / 4); v++) {
        __m512i w[MAX_GROUPS];
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++)
            w[g] = _mm512_load_si512(block + (size_t)g * w_step + v * 64);
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m512i xv = broadcast4(x + (size_t)i * x_stride + v * 4);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++) acc[g][i] = dot4(acc[g][i], w[g], xv);
        }
    }
}

/* Groups of 32 take both nibbles of four vectors, groups of 16 the low or the high ones. */
ZP_INLINE void dot_q4(__m512i acc[MAX_GROUPS][MAX_TOK], const uint8_t *block, size_t w_step,
                      const int8_t *x, size_t x_stride, int k_group, int part, int n_groups,
                      int n_tok)
{
    const __m512i mask = _mm512_set1_epi8(15);
    int half = k_group == 32 ? part : part / 2;
    bool low = k_group == 32 || part % 2 == 0, high = k_group == 32 || part % 2 == 1;
    ZP_UNROLL
    for (int v = 0; v < 4; v++) {
        __m512i lo[MAX_GROUPS], hi[MAX_GROUPS];
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++) {
            __m512i w = _mm512_load_si512(block + (size_t)g * w_step + (half * 4 + v) * 64);
            lo[g] = _mm512_and_si512(w, mask);
            hi[g] = _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);
        }
        ZP_UNROLL
        for (int i = 0; i < n_tok && low; i++) {
            __m512i xv = broadcast4(x + (size_t)i * x_stride + half * 32 + v * 4);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++) acc[g][i] = dot4(acc[g][i], lo[g], xv);
        }
        ZP_UNROLL
        for (int i = 0; i < n_tok && high; i++) {
            __m512i xv = broadcast4(x + (size_t)i * x_stride + half * 32 + 16 + v * 4);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++) acc[g][i] = dot4(acc[g][i], hi[g], xv);
        }
    }
}

/* What the integer accumulators of a k-group start at: - offset * sum(x). */
ZP_INLINE __m512i start_of(const struct tile *t, int i, size_t x_group, int k_group, int part)
{
    size_t at = (size_t)i * (t->x_stride / 32) + x_group;
    if (t->offset == 0) return _mm512_setzero_si512();
    if (k_group == 16) return _mm512_set1_epi32(-t->sum16[at * 2 + part % 2] * t->offset);
    return _mm512_sll_epi32(_mm512_set1_epi32(t->minus32[at]), _mm_cvtsi32_si128(t->offset_bits));
}

/* scale * sum(x) of a k-group. */
ZP_INLINE __m512 scaled_sum(const struct tile *t, int i, size_t x_group, int k_group, int part)
{
    size_t at = (size_t)i * (t->x_stride / 32) + x_group;
    if (k_group == 32) return _mm512_set1_ps(t->scaled32[at]);
    return _mm512_set1_ps(t->xs[at] * (float)t->sum16[at * 2 + part % 2]);
}

/* One k-group of all rows and tokens of the tile. */
ZP_INLINE void add_group(const struct tile *t, __m512 total[MAX_GROUPS][MAX_TOK],
                         enum kern_form form, int k_group, const uint8_t *block, size_t b, int part,
                         int n_groups, int n_tok)
{
    __m512i acc[MAX_GROUPS][MAX_TOK];
    const int8_t *x = t->xq + b * PACK_BLOCK;
    size_t step = t->scale_f16 ? R * 2 : R * 4, x_group = b * 2 + (size_t)(part * k_group / 32);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        acc[0][i] = start_of(t, i, x_group, k_group, part);
        if (n_groups == 2) acc[1][i] = acc[0][i];
    }
    if (form == KERN_Q8)
        dot_q8(acc, block, t->w_step, x, t->x_stride, k_group, part, n_groups, n_tok);
    else dot_q4(acc, block, t->w_step, x, t->x_stride, k_group, part, n_groups, n_tok);
    __m512 scale[MAX_GROUPS];
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++)
        scale[g] = load_scales(block + (size_t)g * t->w_step + t->at.scale_at + (size_t)part * step,
                               t->scale_f16);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        __m512 xs = _mm512_set1_ps(t->xs[(size_t)i * (t->x_stride / 32) + x_group]);
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++)
            total[g][i] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[g][i]), xs),
                                          scale[g], total[g][i]);
    }
    if (!t->has_min) return;
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++)
        scale[g] = load_scales(block + (size_t)g * t->w_step + t->at.min_at + (size_t)part * step,
                               t->scale_f16);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        __m512 sum = scaled_sum(t, i, x_group, k_group, part);
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++)
            total[g][i] = _mm512_fmadd_ps(sum, scale[g], total[g][i]);
    }
}

/* The first tile of a panel pulls the next panel into L2 while it computes. Two to six tokens from
 * memory: 22 to 29 GB/s on a core that reads 33, without it 8 to 22. */
ZP_INLINE void fetch_lines(const uint8_t *from, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)from + line, _MM_HINT_T1);
}

ZP_INLINE void multiply(const struct tile *t, enum kern_form form, int k_group, int n_groups,
                        int n_tok)
{
    __m512 total[MAX_GROUPS][MAX_TOK];
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) total[g][i] = _mm512_setzero_ps();
    }
    const uint8_t *block = t->w;
    for (size_t b = 0; b < t->n_blocks; b++, block += t->at.bytes) {
        if (t->fetch_next)
            fetch_lines(t->w + (size_t)n_groups * (t->w_step + b * t->at.bytes),
                        (size_t)n_groups * t->at.bytes);
        for (int part = 0; part < PACK_BLOCK / k_group; part++) /* one or two */
            add_group(t, total, form, k_group, block, b, part, n_groups, n_tok);
    }
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++)
            _mm512_mask_storeu_ps(t->y + (size_t)i * t->y_step + g * R,
                                  g == n_groups - 1 ? t->last_rows : (__mmask16)0xffff,
                                  total[g][i]);
    }
}

ZP_INLINE void multiply_tokens(const struct tile *t, enum kern_form form, int k_group, int n_groups,
                               int n_tok)
{
    switch (n_tok) {
    case 1: multiply(t, form, k_group, n_groups, 1); break;
    case 2: multiply(t, form, k_group, n_groups, 2); break;
    case 3: multiply(t, form, k_group, n_groups, 3); break;
    case 4: multiply(t, form, k_group, n_groups, 4); break;
    case 5: multiply(t, form, k_group, n_groups, 5); break;
    default: multiply(t, form, k_group, n_groups, 6); break;
    }
}

/* The form's constants; one function each keeps the compiler's register allocation apart. */
static ZP_NOINLINE void tile_32(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    if (form == KERN_Q8) {
        if (n_groups == 2) multiply_tokens(t, KERN_Q8, 32, 2, n_tok);
        else multiply_tokens(t, KERN_Q8, 32, 1, n_tok);
    } else {
        if (n_groups == 2) multiply_tokens(t, KERN_Q4, 32, 2, n_tok);
        else multiply_tokens(t, KERN_Q4, 32, 1, n_tok);
    }
}

static ZP_NOINLINE void tile_16(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    if (form == KERN_Q8) {
        if (n_groups == 2) multiply_tokens(t, KERN_Q8, 16, 2, n_tok);
        else multiply_tokens(t, KERN_Q8, 16, 1, n_tok);
    } else {
        if (n_groups == 2) multiply_tokens(t, KERN_Q4, 16, 2, n_tok);
        else multiply_tokens(t, KERN_Q4, 16, 1, n_tok);
    }
}

/* Few tokens: one row group at a time is one ascending stream, which the hardware's prefetcher
 * carries best: 30 to 33 GB/s on a core that reads 33 (huge pages), 23 as panels of two. */
static bool is_stream(const struct kern_mat *w, size_t n_tok)
{
    return n_tok <= (w->form == KERN_Q8 ? 3 : 1);
}

/* All rows for tokens [t0, t1), which stay in L2 beside a panel of rows. */
static void multiply_block(struct tile *t, const struct kern_mat *w, size_t row_begin,
                           size_t row_end, const struct kern_act *x, size_t t0, size_t t1, float *y)
{
    bool stream = is_stream(w, t1 - t0);
    for (size_t row = row_begin; row < row_end;) {
        int n_groups = row_end - row > R && !stream ? 2 : 1;
        size_t left = row_end - row - (size_t)(n_groups - 1) * R;
        t->w = w->data + row / R * w->row_group_bytes;
        t->last_rows = (__mmask16)(left >= R ? 0xffff : (1u << left) - 1);
        for (size_t i = t0; i < t1; i += MAX_TOK) {
            int n = (int)(t1 - i < MAX_TOK ? t1 - i : MAX_TOK);
            struct kern_group g = kern_group_at(x, i, 0);
            t->xq = g.q;
            t->xs = g.scale;
            t->scaled32 = g.scaled32;
            t->minus32 = g.minus32;
            t->sum16 = g.sum16;
            t->y = y + i * t->y_step + row;
            t->fetch_next = i == t0 && !stream;
            if (w->k_group == 32) tile_32(t, w->form, n_groups, n);
            else tile_16(t, w->form, n_groups, n);
        }
        row += (size_t)n_groups * R;
    }
}

static void multiply_all(const struct kern_mat *w, size_t row_begin, size_t row_end,
                         const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    enum { X_BYTES = 384 << 10 };
    struct tile t = { .w_step = w->row_group_bytes,
                      .x_stride = x->stride,
                      .n_blocks = (w->n_in + PACK_BLOCK - 1) / PACK_BLOCK,
                      .at = pack_block_of(w),
                      .offset = w->offset,
                      .offset_bits = w->offset ? __builtin_ctz(w->offset) : 0,
                      .scale_f16 = w->scale_f16,
                      .has_min = w->has_min,
                      .y_step = y_stride };
    size_t most = X_BYTES / kern_act_bytes(1, w->n_in) / MAX_TOK * MAX_TOK;
    if (most == 0) most = MAX_TOK;
    for (size_t i = 0, n; i < n_tok; i += n) {
        n = n_tok - i < most ? n_tok - i : most;
        multiply_block(&t, w, row_begin, row_end, x, i, i + n, y);
    }
}

void gemm_q8_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,
                    const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride);
}

void gemm_q4_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,
                    const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride);
}
