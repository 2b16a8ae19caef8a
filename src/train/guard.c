/* guard.c: verdicts on a training step's numbers.
 * Owns: nothing. Does not know: the loop, checkpoints, where numbers come from.
 * Threads: a struct belongs to one.
 * All ranks of a run must judge the same numbers: the loop reduces them first. */
#include "train/guard.h"

#include <math.h>

static double or_default(double x, double standard)
{
    return x > 0 ? x : standard;
}

static uint32_t count_or_default(uint32_t x, uint32_t standard)
{
    return x ? x : standard;
}

enum guard_verdict guard_step(struct guard *g, double loss, double grad_norm)
{
    if (isfinite(loss) && isfinite(grad_norm)) {
        g->in_a_row = 0;
        return GUARD_GO;
    }
    g->bad++;
    if (++g->in_a_row < count_or_default(g->options.bad_in_a_row, 3)) return GUARD_SKIP;
    g->in_a_row = 0; /* the steps after going back are counted anew */
    g->roll_backs++;
    return g->roll_backs > count_or_default(g->options.roll_backs, 3) ? GUARD_STOP
                                                                      : GUARD_ROLL_BACK;
}

/* Exponential mean and variance (West, Updating mean and variance estimates, 1979), even over the
 * first losses. */
static void take_in(struct guard *g, double loss, double memory)
{
    double n = (double)++g->n_loss, weight = 1 / (n < memory ? n : memory);
    double away = loss - g->mean, step = weight * away;
    g->mean += step;
    g->variance = (1 - weight) * (g->variance + away * step);
}

bool guard_is_spike(struct guard *g, double loss)
{
    enum { LEAST = 10 }; /* fewer losses say nothing about their spread */
    if (!isfinite(loss)) return false;
    double memory = or_default(g->options.memory, 100);
    if (memory < 2) memory = 2;
    /* Losses that hardly spread (a constant one) leave a little room. */
    double sigma = fmax(sqrt(g->variance), 1e-3 * fabs(g->mean));
    double limit = g->mean + or_default(g->options.spike_sigmas, 6) * sigma;
    if (g->n_loss < LEAST || loss <= limit) {
        g->in_spike = 0;
        take_in(g, loss, memory);
        return false;
    }
    g->spikes++;
    if (++g->in_spike < memory) return true;
    g->n_loss = g->in_spike = 0;
    g->mean = g->variance = 0;
    take_in(g, loss, memory);
    return true;
}

static double growth(double start, double now)
{
    if (!isfinite(now)) return INFINITY;
    return start > 0 ? now / start : 0;
}

struct guard_growth guard_compare_norms(const struct guard *g, const struct guard_norms *start,
                                        const struct guard_norms *now, size_t n_layer,
                                        double harmless)
{
    struct guard_growth worst = { .layer = n_layer };
    size_t layer = n_layer;
    for (size_t i = 0; i < n_layer; i++) {
        double room = fmax(1, sqrt(harmless / (start[i].q * start[i].k)));
        double q = growth(start[i].q * room, now[i].q), k = growth(start[i].k * room, now[i].k);
        double most = q > k ? q : k;
        if (most <= worst.factor) continue;
        layer = i;
        worst.of_keys = k > q;
        worst.factor = most;
    }
    if (worst.factor > or_default(g->options.growth, 4)) worst.layer = layer;
    return worst;
}
