/* quant_fit.c: choosing scale and min of a group. A handful of starting scales is tried; for each,
 * nearest codes are assigned and the scale (and min) that fit these codes best are solved for.
 * Sums run over 8 lanes in a fixed order, so that they vectorise and always give the same bits. */
#include "kern/quant_fit.h"

#include <math.h>
#include <string.h>

#define LANES 8

static float lane_sum(const float *v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

void fit_load(struct fit_group *g, const float *src, int n)
{
    bool zero = false;
    float amax = 0, low = src[0], high = src[0], energy = 0;
    for (int i = 0; i < n; i++) {
        float a = fabsf(src[i]);
        amax = a > amax ? a : amax;
        low = src[i] < low ? src[i] : low;
        high = src[i] > high ? src[i] : high;
        zero |= src[i] == 0;
    }
    /* The smallest half is 2^-24, and no grid has steps finer than 2^-13 of its scale's span. */
    if (amax < 0x1p-60f) {
        memset(g, 0, sizeof *g);
        g->n = n;
        return;
    }
    for (int i = 0; i < n; i++) {
        g->x[i] = src[i] / amax;
        energy += g->x[i] * g->x[i];
    }
    for (int i = 0; i < n; i++)
        g->w[i] = 3 * energy / (float)n + g->x[i] * g->x[i];
    g->n = n;
    g->amax = amax;
    g->low = low / amax;
    g->high = high / amax;
    g->zero_inside = zero && low < 0;
    g->zero_lowest = low == 0;
}

/* q = x * inverse + shift, rounded and kept in 0..top. */
static void assign(const struct fit_group *g, float inverse, float shift, int top,
                   float *restrict q)
{
    const float limit = (float)top;
    for (int i = 0; i < g->n; i++) {
        float v = g->x[i] * inverse + shift;
        v = v > 0 ? v : 0; /* also where v is NaN, for which a conversion would be undefined */
        v = v < limit ? v : limit;
        q[i] = (float)(int32_t)(v + 0.5f);
    }
}

void fit_assign(const struct fit_group *g, struct fit_grid grid, float *restrict q)
{
    float inverse = grid.scale != 0 ? 1 / grid.scale : 0;
    assign(g, inverse, -grid.min * inverse, grid.top, q);
}

static float error_of(const struct fit_group *g, struct fit_grid grid, const float *restrict q)
{
    float sum[LANES] = {0};
    for (int i = 0; i < g->n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float e = grid.scale * q[i + l] + grid.min - g->x[i + l];
            sum[l] += g->w[i + l] * e * e;
        }
    }
    return lane_sum(sum);
}

float fit_error(const struct fit_group *g, struct fit_grid grid)
{
    float q[FIT_MAX];
    fit_assign(g, grid, q);
    return error_of(g, grid, q);
}

/* Scale that fits codes q around `zero` best; *gain = the squared error it saves against all 0. */
static float solve_scale(const struct fit_group *g, int zero, const float *restrict q, float *gain)
{
    float xq[LANES] = {0}, qq[LANES] = {0};
    const float z = (float)zero;
    for (int i = 0; i < g->n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float v = q[i + l] - z, wv = g->w[i + l] * v;
            xq[l] += wv * g->x[i + l];
            qq[l] += wv * v;
        }
    }
    float a = lane_sum(xq), b = lane_sum(qq);
    *gain = b > 0 ? a * a / b : 0;
    return b > 0 ? a / b : 0;
}

/* Assigns codes by the inverse scale, solves for the scale, keeps it in *best if it gains more. */
static bool try_scale(const struct fit_group *g, float inverse, int zero, struct fit_grid *best,
                      float *best_gain)
{
    float q[FIT_MAX], gain, scale;
    assign(g, inverse, (float)zero, best->top, q);
    scale = solve_scale(g, zero, q, &gain);
    if (!(gain > *best_gain) || !(scale * inverse > 0)) return false;
    *best_gain = gain;
    best->scale = scale;
    return true;
}

struct fit_grid fit_symmetric(const struct fit_group *g, int top, int zero, bool both_signs)
{
    struct fit_grid best = {0, 0, top};
    const float steps_up = (float)(top - zero), steps_down = (float)zero;
    const float steps = steps_up > steps_down ? steps_up : steps_down;
    float gain = 0;
    for (int sign = both_signs ? -1 : 1; sign <= 1; sign += 2) {
        float up = sign > 0 ? g->high : -g->low, down = sign > 0 ? -g->low : g->high;
        float need = steps_up > 0 ? up / steps_up : 0; /* the scale at which nothing is cut off */
        if (steps_down > 0 && down / steps_down > need) need = down / steps_down;
        for (int i = -4; i <= 4 && need > 0; i++) /* up to one step less or more than that */
            try_scale(g, (float)sign * (1 + 0.25f * (float)i / steps) / need, zero, &best, &gain);
    }
    for (int round = 0; round < 3 && best.scale != 0; round++) {
        if (!try_scale(g, 1 / best.scale, zero, &best, &gain)) break;
    }
    best.min = -(float)zero * best.scale;
    return best;
}

/* Scale and min that fit codes q best, min not above max_min. False: no positive scale does. */
static bool solve_both(const struct fit_group *g, const float *restrict q, float max_min,
                       struct fit_grid *grid)
{
    float w[LANES] = {0}, wx[LANES] = {0}, wq[LANES] = {0}, xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < g->n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float a = g->w[i + l], x = g->x[i + l], v = q[i + l];
            w[l] += a;
            wx[l] += a * x;
            wq[l] += a * v;
            xq[l] += a * v * x;
            qq[l] += a * v * v;
        }
    }
    float sw = lane_sum(w), sx = lane_sum(wx), sq = lane_sum(wq), sxq = lane_sum(xq);
    float sqq = lane_sum(qq), det = sw * sqq - sq * sq;
    if (!(det > 0)) return false;
    grid->scale = (sw * sxq - sx * sq) / det;
    grid->min = (sqq * sx - sq * sxq) / det;
    if (grid->min > max_min) {
        grid->min = max_min;
        grid->scale = (sxq - max_min * sq) / sqq;
    }
    return grid->scale > 0;
}

/* Assigns codes by the grid, solves for scale and min, keeps them in *best if the error falls. */
static bool try_both(const struct fit_group *g, float max_min, struct fit_grid grid,
                     struct fit_grid *best, float *best_error)
{
    float q[FIT_MAX];
    fit_assign(g, grid, q);
    if (!solve_both(g, q, max_min, &grid)) return false;
    float error = error_of(g, grid, q);
    if (!(error < *best_error)) return false;
    *best_error = error;
    *best = grid;
    return true;
}

struct fit_grid fit_affine(const struct fit_group *g, int top, float max_min)
{
    const float low = g->low < max_min ? g->low : max_min;
    struct fit_grid best = {(g->high - low) / (float)top, low, top};
    float best_error;
    if (!(best.scale > 0)) {
        best.scale = 0;
        return best;
    }
    best_error = fit_error(g, best);
    const float range = g->high - low;
    for (int i = 0; i <= 20; i += 2) { /* from one step fewer to one more across the range */
        struct fit_grid grid = {range / ((float)top - 1 + 0.1f * (float)i), low, top};
        try_both(g, max_min, grid, &best, &best_error);
    }
    for (int round = 0; round < 3; round++) {
        if (!try_both(g, max_min, best, &best, &best_error)) break;
    }
    return best;
}

int fit_zero_code(const struct fit_group *g, int top)
{
    float range = (g->high > 0 ? g->high : 0) - g->low;
    int code = range > 0 ? (int)(-g->low / range * (float)top + 0.5f) : 0;
    return code < 0 ? 0 : code > top ? top : code;
}
