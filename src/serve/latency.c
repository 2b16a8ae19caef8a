/* latency.c: a histogram with log-linear buckets, as HdrHistogram's, and a window of some in a
 * ring.
 * Owns: nothing. Threads: one at a time.
 * L1 n is the sum of the counts.  L2 all parts of a window but the newest are whole, and none of
 *    them began more than `span` before the newest ends. */
#include "serve/latency.h"

#include <math.h>
#include <string.h>

static unsigned bucket_of(double seconds)
{
    int exponent;
    if (!(seconds < ldexp(1, LATENCY_LAST))) return LATENCY_BUCKETS - 1; /* NaN among them */
    if (seconds < ldexp(1, LATENCY_FIRST)) return 0;
    double m = frexp(seconds, &exponent); /* [1/2, 1) */
    return (unsigned)(exponent - 1 - LATENCY_FIRST) * LATENCY_STEPS
           + (unsigned)((2 * m - 1) * LATENCY_STEPS);
}

static double middle_of(unsigned bucket)
{
    double step = bucket % LATENCY_STEPS + 0.5;
    int octave = (int)(bucket / LATENCY_STEPS) + LATENCY_FIRST;
    return bucket == LATENCY_BUCKETS - 1 ? INFINITY : ldexp(1 + step / LATENCY_STEPS, octave);
}

void latency_add(struct latency *l, double seconds)
{
    uint32_t *count = &l->counts[bucket_of(seconds)];
    if (*count == UINT32_MAX) return;
    ++*count;
    l->n++;
}

double latency_quantile(const struct latency *l, double q)
{
    double rank = ceil(q * (double)l->n);
    uint64_t before = 0;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        before += l->counts[i];
        if (l->counts[i] && (double)before >= rank) return middle_of(i);
    }
    return 0;
}

/* Begins as many parts as time has passed. */
static void turn(struct latency_window *w, double span, double now)
{
    double part = span / LATENCY_PARTS;
    if (!w->begun || now - w->at >= 2 * span) {
        memset(w, 0, sizeof *w);
        w->begun = true;
        w->at = now;
    }
    for (; now - w->at >= part; w->at += part) {
        w->newest = (w->newest + 1) % LATENCY_PARTS;
        w->parts[w->newest] = (struct latency){ 0 };
    }
}

void latency_window_add(struct latency_window *w, double span, double now, double seconds)
{
    turn(w, span, now);
    latency_add(&w->parts[w->newest], seconds);
}

void latency_window_sum(struct latency_window *w, double span, double now, struct latency *out)
{
    turn(w, span, now);
    *out = (struct latency){ 0 };
    for (unsigned p = 0; p < LATENCY_PARTS; p++) {
        out->n += w->parts[p].n;
        for (unsigned i = 0; i < LATENCY_BUCKETS; i++) out->counts[i] += w->parts[p].counts[i];
    }
}
