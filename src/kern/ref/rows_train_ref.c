/* rows_train_ref.c: rows of training in plain C: the definition of correct. Sums are taken in 16
 * lanes that are folded (lanes_ref.h). */
#include <float.h>
#include "kern/kern_impl.h"
#include "kern/ref/lanes_ref.h"

void scale_ref(const float *x, float scale, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = scale * x[i];
}

float row_max_ref(const float *x, size_t n, float least)
{
    float lane[LANES];
    for (size_t i = 0; i < LANES; i++) lane[i] = least;
    for (size_t i = 0; i < n; i++) lane[i % LANES] = larger_ref(x[i], lane[i % LANES]);
    return max_lanes_ref(lane);
}

float exp_row_ref(float *x, size_t n, float shift, float scale)
{
    float lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++) {
        x[i] = exp_ref(x[i] - shift) * scale;
        lane[i % LANES] += x[i];
    }
    return sum_lanes_ref(lane);
}

/* With s = 1 / (1 + exp(-u)): act = x s and act' = s + x s (1 - s) du. du: the slope of u. */
static void back(float x, float u, float du, float up, float dy, float *dgate, float *dup)
{
    float s = 1.0f / (1.0f + exp_ref(-u)), act = x * s;
    float slope = s + act * (1.0f - s) * du;
    *dgate = dy * up * slope;
    *dup = dy * act;
}

void silu_back_ref(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    for (size_t i = 0; i < n; i++) back(gate[i], gate[i], 1.0f, up[i], dy[i], dgate + i, dup + i);
}

/* u as in gelu_mul. Far out du would be infinite before 1 - s is 0. */
void gelu_back_ref(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                   size_t n)
{
    const float root = 1.5957691216057308f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], square = 0.044715f * x * x, du = root * (1.0f + 3.0f * square);
        if (du > FLT_MAX) du = FLT_MAX;
        back(x, root * (x + square * x), du, up[i], dy[i], dgate + i, dup + i);
    }
}

/* u = dy gain. */
static float before_gain(const struct kern_norm_row *a, size_t i)
{
    return a->gain ? a->dy[i] * a->gain[i] : a->dy[i];
}

void rmsnorm_back_ref(const struct kern_norm_row *a, bool add, float *dx, float *dgain)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < a->n; i++) lane[i % LANES] += (double)(before_gain(a, i) * a->x[i]);
    float mean = (float)(sum_wide_lanes_ref(lane) / (double)a->n * (double)a->r);
    for (size_t i = 0; i < a->n; i++) {
        float normed = a->x[i] * a->r, d = a->r * (before_gain(a, i) - normed * mean);
        if (dgain) dgain[i] += a->dy[i] * normed;
        dx[i] = add ? dx[i] + d : d;
    }
}
