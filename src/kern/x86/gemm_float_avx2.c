/* gemm_float_avx2.c: products with f32, f16 and bf16 weights, f32 arithmetic, 8 rows a register.
 * Tile 16 rows x 6 tokens = 12 accumulators of the 16 registers. Every output is one chain of fused
 * multiply-adds in ascending k, whatever the tile (I1): the bits equal those of the avx512 file. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"

enum { R = PACK_ROWS, HALF = 8, MAX_TOK = 6 };

struct tile {
    const uint8_t *w, *w_next; /* row group, and the one to prefetch or NULL */
    const float *x;            /* first token */
    size_t x_step, n_k;
    float *y;
    size_t y_step, n_rows; /* rows of the group that exist */
};

ZP_INLINE __m256 load_half(const uint8_t *w, size_t at, enum kern_form form)
{
    if (form == KERN_F32) return _mm256_load_ps((const float *)(const void *)w + at);
    __m128i half = _mm_load_si128((const __m128i *)(const void *)(w + at * 2));
    if (form == KERN_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static void store_rows(float *y, size_t n_rows, __m256 a, __m256 b)
{
    if (n_rows == R) {
        _mm256_storeu_ps(y, a);
        _mm256_storeu_ps(y + HALF, b);
        return;
    }
    float rows[R];
    _mm256_storeu_ps(rows, a);
    _mm256_storeu_ps(rows + HALF, b);
    memcpy(y, rows, n_rows * sizeof *y);
}

ZP_INLINE void multiply(const struct tile *t, enum kern_form form, int n_tok)
{
    __m256 acc[MAX_TOK][2];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    const uint8_t *w = t->w;
    const float *x = t->x;
    size_t x_step = t->x_step, k_bytes = R * (form == KERN_F32 ? 4 : 2);
    for (size_t k = 0; k < t->n_k; k++) {
        __m256 w0 = load_half(w, k * R, form), w1 = load_half(w, k * R + HALF, form);
        if (t->w_next) _mm_prefetch((const char *)t->w_next + k * k_bytes, _MM_HINT_T1);
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m256 xk = _mm256_broadcast_ss(x + (size_t)i * x_step + k);
            acc[i][0] = _mm256_fmadd_ps(w0, xk, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(w1, xk, acc[i][1]);
        }
    }
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++)
        store_rows(t->y + (size_t)i * t->y_step, t->n_rows, acc[i][0], acc[i][1]);
}

ZP_INLINE void multiply_tokens(const struct tile *t, enum kern_form form, size_t n_tok)
{
    switch (n_tok) {
    case 1: multiply(t, form, 1); break;
    case 2: multiply(t, form, 2); break;
    case 3: multiply(t, form, 3); break;
    case 4: multiply(t, form, 4); break;
    case 5: multiply(t, form, 5); break;
    default: multiply(t, form, 6); break;
    }
}

/* One group of 16 rows over all tokens: at k = 1536 its 96 KiB stay in L2. */
ZP_INLINE void multiply_all(const struct kern_mat *w, size_t row_begin, size_t row_end,
                            const struct kern_act *x, size_t n_tok, float *y, size_t y_stride,
                            enum kern_form form)
{
    struct tile t = { .x_step = x->f32_stride, .n_k = w->n_in, .y_step = y_stride };
    for (size_t row = row_begin; row < row_end; row += R) {
        t.w = w->data + row / R * w->row_group_bytes;
        t.n_rows = row_end - row < R ? row_end - row : R;
        for (size_t i = 0; i < n_tok; i += MAX_TOK) {
            t.w_next = i == 0 ? t.w + w->row_group_bytes : NULL;
            t.x = x->f32 + i * x->f32_stride;
            t.y = y + i * y_stride + row;
            multiply_tokens(&t, form, n_tok - i);
        }
    }
}

void gemm_f32_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,
                   const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride, KERN_F32);
}

void gemm_f16_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,
                   const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride, KERN_F16);
}

void gemm_bf16_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,
                    const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    multiply_all(w, row_begin, row_end, x, n_tok, y, y_stride, KERN_BF16);
}
