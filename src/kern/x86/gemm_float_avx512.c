/* gemm_float_avx512.c: products with f32, f16 and bf16 weights, f32 arithmetic, 16 rows a register.
 * Every output is one chain of fused multiply-adds in ascending k, whatever the tile (I1).
 *
 * Tile 64 rows x 6 tokens = 24 accumulators. k is cut in slices so that the slice of a 64-row panel
 * stays in L2 while all tokens pass over it; the chain goes on from the value stored in y.
 * Reached on a core whose peak is 117 GFLOPS: 106 to 113 from 16 tokens on, 98 with 6. */
#include <immintrin.h>
#include "kern/kern_impl.h"

enum {
    R = PACK_ROWS,
    MAX_TOK = 6,
    MAX_GROUPS = 4,
    K_SLICE = 1024,         /* 64 rows x 1024 x 4 bytes = 256 KiB */
    TOKEN_BYTES = 384 << 10 /* of activations that stay in L2 */
};

struct tile {
    const uint8_t *w; /* first row group at the slice's first k */
    size_t w_step;    /* bytes from one row group to the next */
    const float *x;   /* first token at the slice's first k */
    size_t x_step, n_k;
    float *y;
    size_t y_step;
    __mmask16 last_rows; /* rows of the last group that exist */
    bool first;          /* the slice is the first one: chains start at zero */
    bool fetch_next;     /* prefetch the next panel of rows into L2 */
};

ZP_INLINE __m512 load_weights(const uint8_t *w, size_t k, enum kern_form form)
{
    if (form == KERN_F32) return _mm512_load_ps(w + k * R * 4);
    __m256i half = _mm256_load_si256((const __m256i *)(const void *)(w + k * R * 2));
    if (form == KERN_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

ZP_INLINE __mmask16 rows_of(const struct tile *t, int g, int n_groups)
{
    return g == n_groups - 1 ? t->last_rows : (__mmask16)0xffff;
}

/* The same place of the next panel. */
ZP_INLINE void fetch_panel(const uint8_t *w, size_t w_step, size_t at, int n_groups)
{
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++)
        _mm_prefetch((const char *)w + (size_t)(n_groups + g) * w_step + at, _MM_HINT_T1);
}

ZP_INLINE void multiply(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    __m512 acc[MAX_GROUPS][MAX_TOK];
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++)
            acc[g][i] = t->first ? _mm512_setzero_ps()
                                 : _mm512_maskz_loadu_ps(rows_of(t, g, n_groups),
                                                         t->y + (size_t)i * t->y_step + g * R);
    }
    const uint8_t *w = t->w;
    const float *x = t->x;
    size_t k_bytes = R * (form == KERN_F32 ? 4 : 2);
    size_t w_step = t->w_step, x_step = t->x_step, n_k = t->n_k;
    for (size_t k = 0; k < n_k; k++) {
        __m512 wk[MAX_GROUPS];
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++) wk[g] = load_weights(w + (size_t)g * w_step, k, form);
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m512 xk = _mm512_set1_ps(x[(size_t)i * x_step + k]);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++) acc[g][i] = _mm512_fmadd_ps(wk[g], xk, acc[g][i]);
        }
        if (t->fetch_next) fetch_panel(w, w_step, k * k_bytes, n_groups);
    }
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++)
            _mm512_mask_storeu_ps(t->y + (size_t)i * t->y_step + g * R, rows_of(t, g, n_groups),
                                  acc[g][i]);
    }
}

/* The row and token counts of a tile become constants here; rows come in panels of 4, 2 or 1. */
ZP_INLINE void multiply_tokens(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    switch (n_tok) {
    case 1: multiply(t, form, n_groups, 1); break;
    case 2: multiply(t, form, n_groups, 2); break;
    case 3: multiply(t, form, n_groups, 3); break;
    case 4: multiply(t, form, n_groups, 4); break;
    case 5: multiply(t, form, n_groups, 5); break;
    default: multiply(t, form, n_groups, 6); break;
    }
}

ZP_INLINE void multiply_tile(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    switch (n_groups) {
    case 4: multiply_tokens(t, form, 4, n_tok); break;
    case 2: multiply_tokens(t, form, 2, n_tok); break;
    default: multiply_tokens(t, form, 1, n_tok); break;
    }
}

struct job {
    const struct kern_mat *w;
    const struct kern_act *x;
    size_t n_tok, row_end;
    float *y;
    size_t y_stride;
};

ZP_INLINE void multiply_panel(const struct job *j, enum kern_form form, size_t row, int n_groups)
{
    size_t k_bytes = R * (form == KERN_F32 ? 4 : 2), n_in = j->w->n_in;
    size_t left = j->row_end - row - (size_t)(n_groups - 1) * R;
    struct tile t = { .w_step = j->w->row_group_bytes,
                      .x_step = j->x->f32_stride,
                      .y_step = j->y_stride,
                      .last_rows = (__mmask16)(left >= R ? 0xffff : (1u << left) - 1) };
    for (size_t k = 0; k < n_in; k += K_SLICE) {
        t.w = j->w->data + row / R * j->w->row_group_bytes + k * k_bytes;
        t.n_k = n_in - k < K_SLICE ? n_in - k : K_SLICE;
        t.first = k == 0;
        for (size_t i = 0; i < j->n_tok; i += MAX_TOK) {
            size_t n = j->n_tok - i < MAX_TOK ? j->n_tok - i : MAX_TOK;
            t.x = j->x->f32 + i * j->x->f32_stride + k;
            t.y = j->y + i * j->y_stride + row;
            t.fetch_next = i == 0;
            multiply_tile(&t, form, n_groups, (int)n);
        }
    }
}

ZP_INLINE void multiply_rows(const struct job *j, enum kern_form form, size_t row_begin)
{
    size_t row = row_begin;
    while (row < j->row_end) {
        size_t groups = (j->row_end - row + R - 1) / R;
        int n = groups >= 4 ? 4 : groups >= 2 ? 2 : 1;
        multiply_panel(j, form, row, n);
        row += (size_t)n * R;
    }
}

/* Tokens in blocks whose rows stay in L2 beside a panel: every panel reads them again. With 1024
 * tokens of 576 the products went from 36..51 to 108 GFLOPS of 118 peak (one core). */
ZP_INLINE void multiply_all(const struct job *all, enum kern_form form, size_t row_begin)
{
    size_t block = TOKEN_BYTES / (all->w->n_in * sizeof(float)) / MAX_TOK * MAX_TOK;
    if (block < MAX_TOK) block = MAX_TOK;
    struct kern_act x = *all->x;
    struct job j = *all;
    j.x = &x;
    for (size_t i = 0; i < all->n_tok; i += block) {
        x.f32 = all->x->f32 + i * x.f32_stride;
        j.y = all->y + i * all->y_stride;
        j.n_tok = all->n_tok - i < block ? all->n_tok - i : block;
        multiply_rows(&j, form, row_begin);
    }
}

void gemm_f32_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,
                     const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct job j = { w, x, n_tok, row_end, y, y_stride };
    multiply_all(&j, KERN_F32, row_begin);
}

void gemm_f16_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,
                     const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct job j = { w, x, n_tok, row_end, y, y_stride };
    multiply_all(&j, KERN_F16, row_begin);
}

void gemm_bf16_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,
                      const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct job j = { w, x, n_tok, row_end, y, y_stride };
    multiply_all(&j, KERN_BF16, row_begin);
}
