/* gemm_ref.c: matrix products in plain C: the definition of correct. Ascending k; quantised forms
 * fuse the multiply-add of a group, which all levels give the same bits of. Float forms multiply,
 * then add, where the other levels fuse: a call of fmaf for each weight takes 12 times as long, and
 * 150 times where the processor has no such instruction. */
#include <math.h>
#include <string.h>
#include "base/num.h"
#include "kern/kern_impl.h"

enum { R = PACK_ROWS, CHUNK = 16 };

static void store_rows(float *y, const float acc[R], size_t row, size_t row_end)
{
    size_t n = row_end - row < R ? row_end - row : R;
    memcpy(y + row, acc, n * sizeof *y);
}

void gemm_f32_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,
                  const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    for (size_t row = row_begin; row < row_end; row += R) {
        const float *group = (const float *)(const void *)(w->data + row / R * w->row_group_bytes);
        for (size_t t = 0; t < n_tok; t++) {
            const float *xt = x->f32 + t * x->f32_stride;
            float acc[R] = { 0 };
            for (size_t k = 0; k < w->n_in; k++)
                for (size_t r = 0; r < R; r++) acc[r] += group[k * R + r] * xt[k];
            store_rows(y + t * y_stride, acc, row, row_end);
        }
    }
}

/* 16-bit weights of one k, widened exactly. */
static void widen(const uint16_t *half, bool is_f16, float out[R])
{
    for (size_t r = 0; r < R; r++) out[r] = is_f16 ? f16_to_f32(half[r]) : bf16_to_f32(half[r]);
}

static void gemm_16bit(const struct kern_mat *w, size_t row_begin, size_t row_end,
                       const struct kern_act *x, size_t n_tok, float *y, size_t y_stride,
                       bool is_f16)
{
    for (size_t row = row_begin; row < row_end; row += R) {
        const uint16_t *group =
            (const uint16_t *)(const void *)(w->data + row / R * w->row_group_bytes);
        for (size_t t = 0; t < n_tok; t++) {
            const float *xt = x->f32 + t * x->f32_stride;
            float acc[R] = { 0 }, wide[R];
            for (size_t k = 0; k < w->n_in; k++) {
                widen(group + k * R, is_f16, wide);
                for (size_t r = 0; r < R; r++) acc[r] += wide[r] * xt[k];
            }
            store_rows(y + t * y_stride, acc, row, row_end);
        }
    }
}

void gemm_f16_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,
                  const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    gemm_16bit(w, row_begin, row_end, x, n_tok, y, y_stride, true);
}

void gemm_bf16_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,
                   const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    gemm_16bit(w, row_begin, row_end, x, n_tok, y, y_stride, false);
}

/* One block of 32 k of a row group, taken apart. */
struct wide_block {
    uint8_t q[8][64];             /* byte 4 r + i of vector v: k = 4 v + i of row r */
    float scale[2][R], min[2][R]; /* (k-group, row) */
};

/* One k-group of a block for one token: exact int dot, then the steps of the contract in kern.h. */
static void add_group(const struct kern_mat *w, const struct wide_block *b, size_t g,
                      const int8_t *xq, float x_scale, float acc[R])
{
    size_t k_group = pack_forms[w->form].k_group;
    int32_t dot[R] = { 0 }, sum = 0;
    for (size_t k = g * k_group; k < (g + 1) * k_group; k++) {
        sum += xq[k];
        for (size_t r = 0; r < R; r++) dot[r] += b->q[k / 4][r * 4 + k % 4] * xq[k];
    }
    const int offset = w->has_min ? 0 : pack_forms[w->form].offset;
    for (size_t r = 0; r < R; r++)
        acc[r] = fmaf((float)(dot[r] - offset * sum) * x_scale, b->scale[g][r], acc[r]);
    if (!w->has_min) return;
    float x_sum = x_scale * (float)sum;
    for (size_t r = 0; r < R; r++) acc[r] = fmaf(x_sum, b->min[g][r], acc[r]);
}

/* Sums of up to CHUNK tokens from t0 with one slice of a row group. */
static void add_slice(const struct kern_mat *w, const struct pack_slice *s,
                      const uint8_t *row_group, const struct kern_act *x, size_t t0, size_t n,
                      size_t first_block, float acc[CHUNK][R])
{
    size_t groups = PACK_BLOCK / pack_forms[w->form].k_group;
    for (size_t b = 0; b < s->n_blocks; b++) {
        struct wide_block wide;
        pack_widen_block(w, s, row_group, b, wide.q);
        for (size_t g = 0; g < groups; g++)
            pack_widen_scales(w, s, row_group, b * groups + g, wide.scale[g], wide.min[g]);
        for (size_t t = 0; t < n; t++) {
            struct kern_group at = kern_group_at(x, t0 + t, first_block + b);
            for (size_t g = 0; g < groups; g++)
                add_group(w, &wide, g, at.q, *at.scale, acc[t]);
        }
    }
}

static void gemm_quantised(const struct kern_mat *w, size_t row_begin, size_t row_end,
                           const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    for (size_t row = row_begin; row < row_end; row += R)
        for (size_t t0 = 0; t0 < n_tok; t0 += CHUNK) {
            float acc[CHUNK][R] = { { 0 } };
            size_t n = n_tok - t0 < CHUNK ? n_tok - t0 : CHUNK;
            for (size_t s = 0; s < pack_slices(w); s++) {
                struct pack_slice slice = pack_slice_of(w, s);
                add_slice(w, &slice, w->data + row / R * w->row_group_bytes, x, t0, n,
                          s * (PACK_SLICE / PACK_BLOCK), acc);
            }
            for (size_t t = 0; t < n; t++)
                store_rows(y + (t0 + t) * y_stride, acc[t], row, row_end);
        }
}

#define FORM(name)                                                                                 \
    void gemm_##name##_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,             \
                           const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)      \
    {                                                                                              \
        gemm_quantised(w, row_begin, row_end, x, n_tok, y, y_stride);                              \
    }
FORM(q8)
FORM(q6)
FORM(q5)
FORM(q4)
FORM(c4)
FORM(q3)
FORM(q2)
