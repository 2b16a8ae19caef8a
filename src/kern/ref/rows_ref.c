/* rows_ref.c: operations on single rows in plain C: the definition of correct. Sums are taken in
 * double, in 16 lanes that are folded (lanes_ref.h). */
#include <math.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/ref/lanes_ref.h"

enum { GROUP = 32 };

/* Largest magnitude; false for a group that holds NaN or infinity. */
static bool group_max(const float *x, size_t n, float *max)
{
    bool finite = true;
    *max = 0;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        finite &= v <= 3.402823466e+38f;
        if (v > *max) *max = v;
    }
    return finite;
}

static void quantize_group(const float *x, size_t n, struct kern_group out)
{
    float max;
    memset(out.q, 0, GROUP);
    out.minus16[0] = out.minus16[1] = *out.minus32 = 0;
    *out.scale = *out.scaled32 = 0;
    if (!group_max(x, n, &max)) {
        /* every product with this group is NaN: seen, not hidden */
        *out.scale = *out.scaled32 = NAN;
        return;
    }
    if (max < 1e-30f) return; /* 127 / max would overflow */
    float inverse = 127.0f / max;
    *out.scale = max / 127.0f;
    for (size_t i = 0; i < n; i++) {
        out.q[i] = (int8_t)lrintf(x[i] * inverse);
        out.minus16[i / 16] -= out.q[i];
    }
    *out.minus32 = out.minus16[0] + out.minus16[1];
    *out.scaled32 = *out.scale * (float)-*out.minus32;
}

void act_quantize_ref(struct kern_act *a, struct kern_part part, const float *x, size_t x_stride)
{
    size_t end = kern_part_groups(a, part);
    for (size_t t = part.t0; t < part.t1; t++, x += x_stride)
        for (size_t g = part.k0 / GROUP; g < end; g++) {
            size_t from = g * GROUP, left = part.k1 > from ? part.k1 - from : 0;
            quantize_group(left ? x + (from - part.k0) : x, left < GROUP ? left : GROUP,
                           kern_group_at(a, t, g));
        }
}

float rmsnorm_ref(const float *x, const float *gain, float eps, size_t n, float *y)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++) lane[i % LANES] += (double)x[i] * x[i]; /* exact products */
    float scale = (float)(1.0 / sqrt(sum_wide_lanes_ref(lane) / (double)n + (double)eps));
    for (size_t i = 0; i < n; i++) y[i] = gain ? x[i] * scale * gain[i] : x[i] * scale;
    return scale;
}

void rotate_ref(float *x, const float *cs, size_t n_pairs)
{
    for (size_t j = 0; j < n_pairs; j++) {
        float a = x[2 * j], b = x[2 * j + 1], c = cs[2 * j], s = cs[2 * j + 1];
        x[2 * j] = s == 0 ? a * c : a * c - b * s;
        x[2 * j + 1] = s == 0 ? b * c : b * c + a * s;
    }
}

void silu_mul_ref(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + exp_ref(-gate[i])) * up[i];
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3); the right
 * side loses no digits where tanh comes near -1. */
void gelu_mul_ref(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], u2 = 1.5957691216057308f * (x + 0.044715f * x * x * x);
        y[i] = x / (1.0f + exp_ref(-u2)) * up[i];
    }
}

void add_scaled_ref(const float *x, const float *y, float scale, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = x[i] + scale * y[i];
}

void weigh_lists_ref(const float *x, size_t step, const float *weight, size_t n_lists, float *y,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = weight[0] * x[i];
        for (size_t k = 1; k < n_lists; k++) sum += weight[k] * x[k * step + i];
        y[i] = sum;
    }
}

void expsum_ref(const float *x, size_t n, float *max, double *sum)
{
    float top = -INFINITY;
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++)
        if (x[i] > top) top = x[i]; /* skips NaN, which spreads below */
    for (size_t i = 0; i < n; i++) lane[i % LANES] += (double)exp_ref(x[i] - top);
    *max = top;
    *sum = sum_wide_lanes_ref(lane);
}

/* sum p_i (log p_i - log q_i) with log p_i = p - p_max - log(p_sum); weights in float, the rest in
 * double. */
double kl_row_ref(const float *p, float p_max, double p_sum, const float *q, float q_max,
                  double q_sum, size_t n)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++) {
        double dp = (double)p[i] - (double)p_max, dq = (double)q[i] - (double)q_max;
        float weight = exp_ref(p[i] - p_max);
        if (weight != 0) /* -inf logits of p count nothing */
            lane[i % LANES] = fma((double)weight, dp - dq, lane[i % LANES]);
    }
    return sum_wide_lanes_ref(lane) / p_sum - log(p_sum) + log(q_sum);
}
