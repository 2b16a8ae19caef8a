/* gates_learned.c: gates under a penalty.
 *   l1  loss + lambda sum |g|, by proximal steps in a metric of its own for each unit (the root of
 *       its mean squared gradient, as in Adam)
 *   l0  hard concrete gates (Louizos, Welling, Kingma 2018, arXiv:1712.01312): with u uniform,
 *       s = sigmoid((ln u - ln(1 - u) + log alpha) / beta), g = clamp(s (zeta - gamma) + gamma),
 *       loss + lambda sum P(g > 0), P(g > 0) = sigmoid(log alpha - beta ln(-gamma / zeta))
 * What stands at 0 for t_cool steps closes, and so does a head whose gradient fell asleep.
 * Owns: nothing; gates.c has the memory. */
#include "train/gates_learned.h"

#include <math.h>

#include "train/schedule.h"

enum { CALIBRATION = 8 }; /* steps in which gradients are measured and nothing moves */
static const double STEP = 0.03, BETA_MEAN = 0.8, BETA_SQUARE = 0.99;
static const double GAMMA = -0.1, ZETA = 1.1, BETA = 2.0 / 3, LOG_ALPHA = 3, ALPHA_STEP = 0.1;

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

float gates_learned_start(enum gates_policy policy)
{
    return policy == GATES_L0 ? (float)LOG_ALPHA : 1.0f;
}

/* s of hard concrete at a step. */
static double stretch(const struct gates *g, uint64_t step, size_t unit)
{
    double u = clamp(gates_draw(g, step, unit), 1e-6, 1 - 1e-6);
    return sigmoid((log(u) - log(1 - u) + (double)g->learned[unit]) / BETA);
}

float gates_learned_value(const struct gates *g, uint64_t step, size_t unit)
{
    if (g->options.policy != GATES_L0) return g->learned[unit];
    return (float)clamp(stretch(g, step, unit) * (ZETA - GAMMA) + GAMMA, 0, 1);
}

float gates_learned_mean(const struct gates *g, size_t unit)
{
    if (g->options.policy != GATES_L0) return g->learned[unit];
    return (float)clamp(sigmoid((double)g->learned[unit]) * (ZETA - GAMMA) + GAMMA, 0, 1);
}

/* Adam's move for a gradient d, penalty apart: *metric is the root of the mean square. */
static double smooth(struct gates *g, size_t i, double d, double steps, double *metric)
{
    g->mean[i] = (float)(BETA_MEAN * (double)g->mean[i] + (1 - BETA_MEAN) * d);
    g->square[i] = (float)(BETA_SQUARE * (double)g->square[i] + (1 - BETA_SQUARE) * d * d);
    *metric = sqrt((double)g->square[i] / (1 - pow(BETA_SQUARE, steps)));
    if (!(*metric > 0)) *metric = 1;
    return (double)g->mean[i] / (1 - pow(BETA_MEAN, steps));
}

static void move_l1(struct gates *g, size_t i, double d, double lambda, double steps)
{
    double metric, mean = smooth(g, i, d, steps, &metric);
    double move = clamp(STEP * (mean + lambda) / metric, -STEP, STEP);
    g->learned[i] = (float)clamp((double)g->learned[i] - move, 0, 1);
}

static void move_l0(struct gates *g, uint64_t step, size_t i, double d, double lambda, double steps)
{
    double s = stretch(g, g->options.begin + step, i), wide = s * (ZETA - GAMMA) + GAMMA, metric;
    double slope = wide > 0 && wide < 1 ? (ZETA - GAMMA) * s * (1 - s) / BETA : 0;
    double p = sigmoid((double)g->learned[i] - BETA * log(-GAMMA / ZETA));
    double mean = smooth(g, i, d * slope + lambda * p * (1 - p), steps, &metric);
    double move = clamp(ALPHA_STEP * mean / metric, -ALPHA_STEP, ALPHA_STEP);
    g->learned[i] = (float)clamp((double)g->learned[i] - move, -8, 8);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* The units of a head are [at, at + size): all pairs of a KV head, or one bias. */
static size_t head_size(const struct gates *g, size_t at)
{
    return at < g->n_pairs ? g->position->n_pair : 1;
}

static bool is_asleep(const struct gates *g, size_t at, double d_scale, double unit)
{
    bool first = gates_place_of(g, at).layer * 2 < g->position->n_layer;
    double eps = first ? g->options.eps_first : g->options.eps_rest, sum = 0, n = 0;
    for (size_t i = at; i < at + head_size(g, at); i++)
        if (g->may[i] && !g->closed[i]) sum += fabs((double)g->d[i] * d_scale), n++;
    return n > 0 && sum < eps * unit * n;
}

static void measure_scale(struct gates *g, double d_scale)
{
    double sum = 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->exists[i]) sum += fabs((double)g->d[i] * d_scale);
    g->scale[0] += sum / (double)g->n_open;
    g->scale[1] += 1;
}

static void step_unit(struct gates *g, uint64_t step, size_t i, double d, double lambda,
                      bool asleep)
{
    const struct gates_options *o = &g->options;
    double steps = step - CALIBRATION + 1.0;
    if (o->policy == GATES_L0) move_l0(g, step, i, d, lambda, steps);
    else move_l1(g, i, d, lambda, steps);
    bool idle = asleep || gates_learned_mean(g, i) == 0.0f;
    g->idle[i] = idle ? g->idle[i] + 1 : 0;
    if (g->idle[i] >= o->t_cool && g->n_closed < g->n_close && g->reopened[i] < 2)
        gates_close_unit(g, g->options.begin + step, i, asleep ? "no gradient" : "at zero");
}

uint64_t gates_learned_fastest(const struct gates_options *o)
{
    bool l0 = o->policy == GATES_L0; /* its gate is 0 from here down: gates_learned_mean */
    double way = l0 ? LOG_ALPHA - log(-GAMMA / ZETA) : 1;
    return CALIBRATION + (uint64_t)ceil(way / (l0 ? ALPHA_STEP : STEP)) + o->t_cool + 1;
}

void gates_learned_step(struct gates *g, uint64_t step, uint64_t ramp, double d_scale)
{
    const struct gates_options *o = &g->options;
    if (step < CALIBRATION) {
        measure_scale(g, d_scale);
        return;
    }
    double unit = g->scale[1] > 0 ? g->scale[0] / g->scale[1] : 0;
    double lambda = unit * schedule_geometric(o->lambda / 100, o->lambda, ramp - CALIBRATION,
                                              step - CALIBRATION);
    for (size_t at = 0; at < g->n; at += head_size(g, at)) {
        bool asleep = is_asleep(g, at, d_scale, unit);
        for (size_t i = at; i < at + head_size(g, at); i++)
            if (g->may[i] && !g->closed[i])
                step_unit(g, step, i, (double)g->d[i] * d_scale, lambda, asleep);
    }
}
