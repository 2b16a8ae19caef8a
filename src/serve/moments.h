/* moments.h: mean and variance of a series as it comes. */
#ifndef SERVE_MOMENTS_H
#define SERVE_MOMENTS_H

#include <math.h>
#include <stdint.h>

/* Zero-initialise. */
struct moments {
    uint64_t n; /* values taken in, ever */
    double mean, variance;
};

/* Of the last `memory` values or so, older ones counting less and less; even over the first of
 * them. memory 0: of all. Welford's method; with memory, West's (Updating mean and variance
 * estimates, 1979). */
static inline void moments_add(struct moments *m, double x, double memory)
{
    double n = (double)++m->n, weight = 1 / (memory > 0 && memory < n ? memory : n);
    double away = x - m->mean;
    m->mean += weight * away;
    m->variance = (1 - weight) * (m->variance + weight * away * away);
}

static inline double moments_std(const struct moments *m)
{
    return sqrt(m->variance);
}

#endif
