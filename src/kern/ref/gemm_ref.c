/* gemm_ref.c: matrix products in plain C: the definition of correct. Plain multiply and add,
 * ascending k. */
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

/* One block of a row group, taken apart. */
struct wide_block {
    int16_t q[PACK_BLOCK][R];     /* (k, row) */
    float scale[4][R], min[4][R]; /* (k-group, row) */
};

static void load_scales(const uint8_t *from, bool is_f16, float out[R])
{
    if (is_f16) widen((const uint16_t *)(const void *)from, true, out);
    else memcpy(out, from, R * sizeof *out);
}

static void expand_block(const struct kern_mat *w, const uint8_t *block, struct wide_block *out)
{
    struct pack_block at = pack_block_of(w);
    for (size_t k = 0; k < PACK_BLOCK; k++)
        for (size_t r = 0; r < R; r++) {
            if (w->form == KERN_Q8) {
                out->q[k][r] = block[k / 4 * 64 + r * 4 + k % 4];
            } else {
                uint8_t pair = block[(k / 32 * 4 + k % 16 / 4) * 64 + r * 4 + k % 4];
                out->q[k][r] = k % 32 < 16 ? pair & 15 : pair >> 4;
            }
        }
    for (size_t g = 0; g < PACK_BLOCK / w->k_group; g++) {
        load_scales(block + at.scale_at + g * at.scale_step, w->scale_f16, out->scale[g]);
        if (w->has_min)
            load_scales(block + at.min_at + g * at.scale_step, w->scale_f16, out->min[g]);
    }
}

/* One k-group of a block for one token: exact int dot, then the two rounded steps of the contract
 * in kern.h. */
static void add_group(const struct kern_mat *w, const struct wide_block *b, size_t g,
                      const int8_t *xq, float x_scale, float acc[R])
{
    int32_t dot[R] = { 0 }, sum = 0;
    for (size_t k = g * w->k_group; k < (g + 1) * w->k_group; k++) {
        sum += xq[k];
        for (size_t r = 0; r < R; r++) dot[r] += b->q[k][r] * xq[k];
    }
    for (size_t r = 0; r < R; r++)
        acc[r] += (float)(dot[r] - w->offset * sum) * x_scale * b->scale[g][r];
    if (!w->has_min) return;
    float x_sum = x_scale * (float)sum;
    for (size_t r = 0; r < R; r++) acc[r] += x_sum * b->min[g][r];
}

/* Sums of up to CHUNK tokens from t0 with one row group. */
static void add_tokens(const struct kern_mat *w, const uint8_t *group, const struct kern_act *x,
                       size_t t0, size_t n, float acc[CHUNK][R])
{
    size_t block_bytes = pack_block_of(w).bytes, groups = PACK_BLOCK / w->k_group;
    for (size_t b = 0; b < (w->n_in + PACK_BLOCK - 1) / PACK_BLOCK; b++) {
        struct wide_block wide;
        expand_block(w, group + b * block_bytes, &wide);
        for (size_t t = t0; t < t0 + n; t++) {
            const float *scale = x->scale + t * (x->stride / 32) + b * 2;
            const int8_t *q = x->q + t * x->stride + b * PACK_BLOCK;
            for (size_t g = 0; g < groups; g++)
                add_group(w, &wide, g, q, scale[g * w->k_group / 32], acc[t - t0]);
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
            add_tokens(w, w->data + row / R * w->row_group_bytes, x, t0, n, acc);
            for (size_t t = 0; t < n; t++)
                store_rows(y + (t0 + t) * y_stride, acc[t], row, row_end);
        }
}

void gemm_q8_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,
                 const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    gemm_quantised(w, row_begin, row_end, x, n_tok, y, y_stride);
}

void gemm_q4_ref(const struct kern_mat *w, size_t row_begin, size_t row_end,
                 const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    gemm_quantised(w, row_begin, row_end, x, n_tok, y, y_stride);
}
