/* gemm_ref.c: matrix products in plain C: the definition of correct. Plain multiply and add,
 * ascending k. */
#include <string.h>
#include "base/num.h"
#include "kern/kern_impl.h"

enum { R = PACK_ROWS };

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

/* The 64 x 16 weights of a block as (k, row) bytes. */
static void expand_block(const struct kern_mat *w, const uint8_t *block, uint8_t q[PACK_BLOCK][R])
{
    for (size_t k = 0; k < PACK_BLOCK; k++)
        for (size_t r = 0; r < R; r++) {
            if (w->form == KERN_Q8) {
                q[k][r] = block[k / 4 * 64 + r * 4 + k % 4];
            } else {
                uint8_t pair = block[(k / 32 * 4 + k % 16 / 4) * 64 + r * 4 + k % 4];
                q[k][r] = k % 32 < 16 ? pair & 15 : pair >> 4;
            }
        }
}

static void load_scales(const uint8_t *from, bool is_f16, float out[R])
{
    if (is_f16) widen((const uint16_t *)(const void *)from, true, out);
    else memcpy(out, from, R * sizeof *out);
}

/* One k-group of one block for one token: exact int dot, then the two rounded steps of the contract
 * in kern.h. */
static void add_group(const struct kern_mat *w, uint8_t q[PACK_BLOCK][R], size_t k0,
                      const float scale[R], const float min[R], const int8_t *xq, float x_scale,
                      float acc[R])
{
    int32_t dot[R] = { 0 }, sum = 0;
    for (size_t k = k0; k < k0 + w->k_group; k++) {
        sum += xq[k];
        for (size_t r = 0; r < R; r++) dot[r] += (int32_t)q[k][r] * xq[k];
    }
    for (size_t r = 0; r < R; r++) acc[r] += (float)(dot[r] - w->offset * sum) * x_scale * scale[r];
    if (!w->has_min) return;
    float x_sum = x_scale * (float)sum;
    for (size_t r = 0; r < R; r++) acc[r] += x_sum * min[r];
}

static void gemm_quantised(const struct kern_mat *w, size_t row_begin, size_t row_end,
                           const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct pack_block at = pack_block_of(w);
    size_t n_blocks = (w->n_in + PACK_BLOCK - 1) / PACK_BLOCK, groups = PACK_BLOCK / w->k_group;
    for (size_t row = row_begin; row < row_end; row += R) {
        const uint8_t *group = w->data + row / R * w->row_group_bytes;
        for (size_t t = 0; t < n_tok; t++) {
            float acc[R] = { 0 };
            for (size_t b = 0; b < n_blocks; b++) {
                const uint8_t *block = group + b * at.bytes;
                uint8_t q[PACK_BLOCK][R];
                expand_block(w, block, q);
                for (size_t g = 0; g < groups; g++) {
                    float scale[R], min[R] = { 0 };
                    load_scales(block + at.scale_at + g * at.scale_step, w->scale_f16, scale);
                    if (w->has_min)
                        load_scales(block + at.min_at + g * at.scale_step, w->scale_f16, min);
                    size_t k0 = g * w->k_group;
                    float x_scale = x->scale[t * (x->stride / 32) + b * 2 + k0 / 32];
                    add_group(w, q, k0, scale, min, x->q + t * x->stride + b * PACK_BLOCK, x_scale,
                              acc);
                }
            }
            store_rows(y + t * y_stride, acc, row, row_end);
        }
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
