/* kern.h: the arithmetic operations, their contracts, and the table that holds the chosen
 * implementation of each. Knows nothing of models. Tables are const values owned by an engine,
 * never globals.
 *
 * Same bits (I1): every result row depends only on its own inputs. Reductions have a fixed order
 * that does not depend on n_tok, on the row range, on the thread or on the level: a product is an
 * exact int32 dot per group of k, then one f32 multiply-add a group in ascending k (quantised
 * forms), or one multiply-add a k in ascending k (float forms), each rounded once; sums over a row
 * have 16 lanes and one tree (ref/lanes_ref.h). The exception: in gemm_f32, gemm_f16, gemm_bf16 and
 * attend_f32 level ref rounds product and sum apart (ref/gemm_ref.c says why).
 *
 * Contracts: against arithmetic without rounding,
 *   EXACT       the steps given with the operation, bit for bit
 *   ULP(c)      c units in the last place of the true value
 *   DOT(c)      |error| <= c * 2^-24 * (2 + sqrt(k)) * sum |a_i b_i|, weights with a min counted as
 *               |scale q| + |min|, activations as quantised
 *   ATTEND(c)   |error of o / l| <= c * 2^-24 * (2 + S) * max |v|, S = largest sum of |q_i k_i| and
 *               |bias| of a visible position
 *   ATTEND_BF16(c)  the same and 2^-8 max |v|: the weights' rounding
 *   ATTEND_Q8(c)    the same and 2^-8 max |v|, against the values that rows and tiles hold
 *   REL, ABS    relative, absolute error */
#ifndef KERN_KERN_H
#define KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "kern/pack.h"

enum kern_level { KERN_REF, KERN_AVX2, KERN_AVX512, KERN_AVX512BF16, KERN_LEVEL_COUNT };

/* Each operation kind has a function type (kern_x_op, for declarations) and a pointer type
 * (kern_x_fn, for tables). */

/* Columns [k0, k1) of rows [t0, t1) into q, its scales and sums from x (t1 - t0, k1 - k0), row
 * distance x_stride. k0 is a multiple of 32, k1 too or equals n_in; then the padding is written as
 * well. Per group of 32: q = round-to-even(x * (127 / max)), scale = max / 127; a group whose max
 * is below 1e-30 gives zeros; one that holds NaN or infinity gives q = 0 and scale = NaN. EXACT. */
struct kern_part {
    size_t t0, t1, k0, k1;
};
typedef void kern_act_quantize_op(struct kern_act *a, struct kern_part part, const float *x,
                                  size_t x_stride);
typedef kern_act_quantize_op *kern_act_quantize_fn;
/* Where the results of one group of 32 go. */
struct kern_group {
    int8_t *q; /* (32) */
    float *scale, *scaled32;
    int32_t *minus32, *minus16; /* minus16 (2) */
};
ZP_INLINE struct kern_group kern_group_at(const struct kern_act *a, size_t t, size_t g)
{
    size_t at = t * (a->stride / 32) + g;
    return (struct kern_group){ a->q + at * 32, a->scale + at, a->scaled32 + at, a->minus32 + at,
                                a->minus16 + at * 2 };
}
/* Groups of 32 behind the last one that a part writes: with the last column come the padding's. */
ZP_INLINE size_t kern_part_groups(const struct kern_act *a, struct kern_part part)
{
    return part.k1 == a->n_in ? a->stride / 32 : part.k1 / 32;
}
/* Whole rows [t0, t1) of a->f32. */
ZP_INLINE void kern_act_quantize_rows(kern_act_quantize_fn quantize, struct kern_act *a, size_t t0,
                                      size_t t1)
{
    quantize(a, (struct kern_part){ t0, t1, 0, a->n_in }, a->f32 + t0 * a->f32_stride,
             a->f32_stride);
}

/* y[t * y_stride + r] = sum_k W[r][k] x[t][k] for rows [row_begin, row_end) and all n_tok tokens.
 * row_begin is a multiple of 16; row_end too or equals n_out. Nothing is read or written outside
 * those rows and tokens. Float forms read x->f32, quantised forms the rest: for each
 * k-group of the weights, in ascending k,
 *   acc = acc + (int_dot * scale_x) * scale_w
 *   acc = acc + (scale_x * sum_x) * min_w        if has_min
 * where the parenthesis is rounded, then the multiply-add once. */
typedef void kern_gemm_op(const struct kern_mat *w, size_t row_begin, size_t row_end,
                          const struct kern_act *x, size_t n_tok, float *y, size_t y_stride);
typedef kern_gemm_op *kern_gemm_fn;

/* ---- attention over 64-position tiles --------------------------------------------------------
 * One KV head, one segment of tiles. KV tiles (KERN_TILE positions), d even:
 *   f32    K (d, 64)           V (64, d)
 *   bf16   K (d/2, 64, 2)      V (32, d, 2): position pairs by channel
 *   q8     K (d4/4, 64, 4): k + 128 as bytes     V (16, d4, 4): signed, position quads by channel;
 *          d4 = d in whole fours. Behind each its f16 scales (groups, 64), one for a position's
 *          channels [64 g, 64 g + 64). A q8 tile holds 64 positions, always.
 * Row r sees position j iff j < n_sink or lo[r] <= j, and j < hi[r] (hi = own position + 1).
 * Online softmax tile by tile in ascending order; state per row: m (running max, start -INFINITY),
 * l (sum, start 0), o (d, start 0). A tile that a row does not see leaves its state untouched.
 * Masked positions count as exact zeros; what a tile holds at or beyond every row's hi is ignored.
 * bias, where not NULL: bias[r][j] is added to the logit of position j, then key_bias, where not
 * NULL: key_bias[r][j - KERN_TILE * tile_begin] (both readable for every visible j only). */
enum { KERN_TILE = 64, KERN_SEGMENT = 1024, KERN_Q8_GROUP = 64 };
ZP_INLINE size_t kern_q8_groups(size_t d)
{
    return (d + KERN_Q8_GROUP - 1) / KERN_Q8_GROUP;
}
ZP_INLINE size_t kern_q8_width(size_t d)
{
    return (d + 3) / 4 * 4;
}
/* Bytes of a K tile, and of a V tile: values, then scales. */
ZP_INLINE size_t kern_q8_tile_bytes(size_t d)
{
    return KERN_TILE * (kern_q8_width(d) + 2 * kern_q8_groups(d));
}
struct kern_attend {
    size_t d, n_rows;
    const void *q; /* (n_rows, d), softmax scale already in, as the tiles: f32, bf16, kern_q8_row */
    size_t q_stride; /* bytes from row to row */
    const uint32_t *lo, *hi; /* (n_rows) */
    uint32_t n_sink;
    const float *const *bias;  /* (n_rows) or NULL */
    const float *const *key_bias; /* (n_rows) or NULL */
    const void *const *k_tile; /* tile t of the sequence at index t */
    const void *const *v_tile;
    size_t tile_begin, tile_end;
    float *m, *l, *o; /* (n_rows), (n_rows), (n_rows, d) */
    /* kern_attend_room(d) bytes at a multiple of 64 in which a bf16 tile may be made floats, or
     * NULL */
    void *room;
};
/* 0 where a head is too wide for it to pay. */
ZP_INLINE size_t kern_attend_room(size_t d)
{
    return d <= 256 ? 2 * KERN_TILE * d * sizeof(float) : 0;
}
/* f32: all in f32. bf16: products of bf16 pairs are exact and added to f32, the odd one of a pair
 * first; weights exp(s - m) are rounded to bf16 (nearest even) before l and o take them.
 * q8: a score is, group by group, s = s + (int_dot * scale_k) * scale_q; a group of 64 channels
 * takes weights times V's scales in 15 bits of the largest of the tile, and
 * o = (o * keep) + int_dot * unit; parentheses are rounded, then the multiply-add once.
 * NaN in q makes its row NaN. vdpbf16ps takes what is below 2^-126 for 0: there attend_bf16 of
 * level avx512bf16 differs from the others. */
typedef void kern_attend_op(const struct kern_attend *a);
typedef kern_attend_op *kern_attend_fn;
/* Merges segment state b into a: both (m, l, o (d)); ascending segments. EXACT. */
typedef void kern_attend_merge_op(float *m, float *l, float *o, float mb, float lb, const float *ob,
                                  size_t d);
typedef kern_attend_merge_op *kern_attend_merge_fn;
/* One query row for q8 tiles: q int8 (d4), then per group of 64 channels its scale (f32) and -128 *
 * its sum (int32). kern_q8_row_bytes(d) bytes at a multiple of 4. A group that holds NaN or
 * infinity has scale NaN. EXACT. */
ZP_INLINE size_t kern_q8_row_bytes(size_t d)
{
    return kern_q8_width(d) + 8 * kern_q8_groups(d);
}
typedef void kern_q8_row_op(const float *q, size_t d, void *row);
typedef kern_q8_row_op *kern_q8_row_fn;
/* Makes q8 tiles of bf16 ones that are full. A scale is max / 127 rounded to f16 (infinity and NaN
 * are kept), a value round-to-even(x * (1 / scale)) within -127..127. EXACT. */
typedef void kern_kv_close_op(const void *k_bf16, const void *v_bf16, void *k_q8, void *v_q8,
                              size_t d);
typedef kern_kv_close_op *kern_kv_close_fn;
/* Writes one position (slot 0..63) of one KV head into its tiles; bf16 rounds to nearest even.
 * EXACT. */
typedef void kern_kv_append_op(void *k_tile, void *v_tile, size_t slot, const float *k,
                               const float *v, size_t d);
typedef kern_kv_append_op *kern_kv_append_fn;

/* ---- rows ------------------------------------------------------------------------------------ */
/* y = x * gain / sqrt(mean(x^2) + eps); gain may be NULL (ones). x may equal y. Returns
 * 1 / sqrt(mean(x^2) + eps). */
typedef float kern_rmsnorm_op(const float *x, const float *gain, float eps, size_t n, float *y);
typedef kern_rmsnorm_op *kern_rmsnorm_fn;
/* Rotates pairs (x[2j], x[2j+1]) by (cs[2j], cs[2j+1]) = (cos, sin), j < n_pairs, in place: four
 * products and two sums, each rounded. sin = 0 multiplies both by cos, so that (1, 0) keeps the
 * bits. EXACT. */
typedef void kern_rotate_op(float *x, const float *cs, size_t n_pairs);
typedef kern_rotate_op *kern_rotate_fn;
/* y[i] = act(gate[i]) * up[i]; y may equal gate. */
typedef void kern_gated_act_op(const float *gate, const float *up, float *y, size_t n);
typedef kern_gated_act_op *kern_gated_act_fn;
/* out[i] = x[i] + scale * y[i]: product rounded, then sum rounded. out may be x or y. EXACT. */
typedef void kern_add_scaled_op(const float *x, const float *y, float scale, float *out, size_t n);
typedef kern_add_scaled_op *kern_add_scaled_fn;
/* y[i] = sum over k < n_lists of weight[k] * x[k * step + i], in ascending k, each product rounded,
 * then the sum; n_lists >= 1; y is apart from x. EXACT. */
typedef void kern_weigh_lists_op(const float *x, size_t step, const float *weight, size_t n_lists,
                                 float *y, size_t n);
typedef kern_weigh_lists_op *kern_weigh_lists_fn;
/* y[i] = scale * x[i]; y may be x. EXACT. */
typedef void kern_scale_op(const float *x, float scale, float *y, size_t n);
typedef kern_scale_op *kern_scale_fn;
/* Largest value, and sum in double of exp(x - max) in f32. NaN anywhere: *sum is NaN (*max may be
 * any). */
typedef void kern_expsum_op(const float *x, size_t n, float *max, double *sum);
typedef kern_expsum_op *kern_expsum_fn;
/* KL(p || q) of two logit rows with their max and sums as above, weights in f32: >= -1e-7 by
 * rounding, 0 for equal rows; -inf in p counts nothing, in q alone gives infinity. */
typedef double kern_kl_row_op(const float *p, float p_max, double p_sum, const float *q,
                              float q_max, double q_sum, size_t n);
typedef kern_kl_row_op *kern_kl_row_fn;

/* ---- rows of training ------------------------------------------------------------------------ */
/* Largest of `least` and the values of x, NaN left out. EXACT. */
typedef float kern_row_max_op(const float *x, size_t n, float least);
typedef kern_row_max_op *kern_row_max_fn;
/* x[i] = exp(x[i] - shift) * scale; returns their sum, in floats. */
typedef float kern_exp_row_op(float *x, size_t n, float shift, float scale);
typedef kern_exp_row_op *kern_exp_row_fn;
/* Gradients of y = act(gate) * up from dy: dgate[i] = (dy * up) * act'(gate), dup[i] = dy *
 * act(gate). Each may be any of gate, up and dy, but not the other. Errors are those of dgate as a
 * share of |dy up|. */
typedef void kern_gated_back_op(const float *gate, const float *up, const float *dy, float *dgate,
                                float *dup, size_t n);
typedef kern_gated_back_op *kern_gated_back_fn;
/* Gradients of a row that rmsnorm made, with r = what it returned and u = dy * gain:
 * dx = r * (u - x * r * mean(u * x * r)), added to dx where `add` is set, and
 * dgain[i] += dy[i] * (x[i] * r), where not NULL. gain may be NULL (ones); dx may be dy. Errors are
 * those of dx as a share of r * (|u| + |x| r * mean |u x| r). */
struct kern_norm_row {
    size_t n;
    const float *x, *gain, *dy; /* (n) */
    float r;
};
typedef void kern_rmsnorm_back_op(const struct kern_norm_row *a, bool add, float *dx,
                                  float *dgain);
typedef kern_rmsnorm_back_op *kern_rmsnorm_back_fn;

struct kern_table {
    const char *names[64]; /* chosen implementation of each operation in kern_ops.inc order */
#define KERN_OP(op, kind, contract) kern_##kind##_fn op;
#include "kern/kern_ops.inc"
#undef KERN_OP
    enum kern_level level;
};

/* The product of a form. */
ZP_INLINE kern_gemm_fn kern_gemm_of(const struct kern_table *t, enum kern_form form)
{
    const kern_gemm_fn all[KERN_FORM_COUNT] = {
        [KERN_F32] = t->gemm_f32, [KERN_F16] = t->gemm_f16, [KERN_BF16] = t->gemm_bf16,
        [KERN_Q8] = t->gemm_q8,   [KERN_Q6] = t->gemm_q6,   [KERN_Q5] = t->gemm_q5,
        [KERN_Q4] = t->gemm_q4,   [KERN_C4] = t->gemm_c4,   [KERN_Q3] = t->gemm_q3,
        [KERN_Q2] = t->gemm_q2,
    };
    return all[form];
}

#include "kern/dispatch.h"

#endif
