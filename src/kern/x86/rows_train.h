/* rows_train.h: rows of training, the same steps for registers of 8 and of 16 floats, which the
 * including file gives: vec (WIDTH floats) and wide (half as many doubles), whose operators the
 * compiler knows, and vec_*, lanes_*.
 * A step of a sum handles 16 lanes in PARTS registers. */
#ifndef KERN_X86_ROWS_TRAIN_H
#define KERN_X86_ROWS_TRAIN_H

#include <float.h>
#include "kern/kern_impl.h"

/* Values from `at` on. */
ZP_INLINE size_t left_of(size_t n, size_t at)
{
    return at < n ? n - at : 0;
}

ZP_INLINE void scale_row(const float *x, float scale, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) vec_store(y + i, n - i, scale * vec_load(x + i, n - i));
}

ZP_INLINE float largest_of_row(const float *x, size_t n, float least)
{
    vec top[PARTS];
    for (int h = 0; h < PARTS; h++) top[h] = vec_all(least);
    for (size_t i = 0; i < n; i += LANES) {
        ZP_UNROLL
        for (size_t h = 0; h < PARTS; h++) {
            size_t at = i + h * WIDTH, left = left_of(n, at);
            top[h] = vec_max(vec_first(vec_load(x + at, left), top[h], left), top[h]);
        }
    }
    return lanes_max(top);
}

ZP_INLINE float exp_of_row(float *x, size_t n, float shift, float scale)
{
    vec sum[PARTS];
    for (int h = 0; h < PARTS; h++) sum[h] = vec_all(0);
    for (size_t i = 0; i < n; i += LANES) {
        ZP_UNROLL
        for (size_t h = 0; h < PARTS; h++) {
            size_t at = i + h * WIDTH, left = left_of(n, at);
            vec e = vec_exp(vec_load(x + at, left) - shift) * scale;
            vec_store(x + at, left, e);
            sum[h] += vec_first(e, vec_all(0), left);
        }
    }
    return lanes_sum(sum);
}

ZP_INLINE void gated_back(bool is_gelu, const float *gate, const float *up, const float *dy,
                          float *dgate, float *dup, size_t n)
{
    const float root = 1.5957691216057308f;
    for (size_t i = 0; i < n; i += WIDTH) {
        size_t left = n - i;
        vec x = vec_load(gate + i, left), y = vec_load(dy + i, left), u = x, du = vec_all(1);
        if (is_gelu) {
            vec square = 0.044715f * x * x;
            u = root * (x + square * x);
            du = vec_min(vec_all(FLT_MAX), root * (1.0f + 3.0f * square)); /* NaN stays */
        }
        vec s = 1.0f / (1.0f + vec_exp(-u)), act = x * s;
        vec slope = s + act * (1.0f - s) * du;
        vec_store(dgate + i, left, y * vec_load(up + i, left) * slope);
        vec_store(dup + i, left, y * act);
    }
}

/* dy gain. */
ZP_INLINE vec before_gain(const struct kern_norm_row *a, size_t at, size_t left)
{
    vec u = vec_load(a->dy + at, left);
    if (a->gain) u *= vec_load(a->gain + at, left);
    return u;
}

ZP_INLINE void norm_back(const struct kern_norm_row *a, bool add, float *dx, float *dgain)
{
    wide sum[PARTS][2] = { 0 };
    for (size_t i = 0; i < a->n; i += LANES) {
        ZP_UNROLL
        for (size_t h = 0; h < PARTS; h++) {
            size_t at = i + h * WIDTH, left = left_of(a->n, at);
            vec term = before_gain(a, at, left) * vec_load(a->x + at, left);
            sum[h][0] += vec_low(term);
            sum[h][1] += vec_high(term);
        }
    }
    float mean = (float)(lanes_wide_sum(sum) / (double)a->n * (double)a->r);
    for (size_t i = 0; i < a->n; i += WIDTH) {
        size_t left = a->n - i;
        vec normed = vec_load(a->x + i, left) * a->r;
        vec d = a->r * (before_gain(a, i, left) - normed * mean);
        if (dgain) {
            vec term = vec_load(a->dy + i, left) * normed;
            vec_store(dgain + i, left, vec_load(dgain + i, left) + term);
        }
        if (add) d += vec_load(dx + i, left);
        vec_store(dx + i, left, d);
    }
}

#endif
