/* latency.h: times of many requests in little memory, for their quantiles.
 * Not obs/histogram.h, whose bounds are data and take memory: these are values without a failure,
 * zero-initialised, which canary, breaker and SLA hold by dozens and forget by parts. */
#ifndef SERVE_LATENCY_H
#define SERVE_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

/* 16 buckets for each doubling from 60 ns (2^-24 s) to 4.6 h (2^14 s): a quantile is at most 3.2 %
 * off the time of that rank. Times below are in the first bucket, times beyond in the last. */
enum { LATENCY_STEPS = 16, LATENCY_FIRST = -24, LATENCY_LAST = 14,
       LATENCY_BUCKETS = LATENCY_STEPS * (LATENCY_LAST - LATENCY_FIRST) };

/* Zero-initialise. */
struct latency {
    uint64_t n;
    uint32_t counts[LATENCY_BUCKETS]; /* each stops at its maximum, and n with it */
};

/* INFINITY: never. */
void latency_add(struct latency *l, double seconds);
/* The time of rank ceil(q n), q in (0, 1]: the middle of its bucket, INFINITY for the last. 0: no
 * times. */
double latency_quantile(const struct latency *l, double q);

/* Those of the last `span` seconds, in parts that are forgotten one by one. Zero-initialise. */
enum { LATENCY_PARTS = 6 };
struct latency_window {
    bool begun;
    double at; /* when the newest part began */
    unsigned newest;
    struct latency parts[LATENCY_PARTS];
};

void latency_window_add(struct latency_window *w, double span, double now, double seconds);
/* *out: the sum of the parts, those of the last 5/6 to 6/6 of the span. */
void latency_window_sum(struct latency_window *w, double span, double now, struct latency *out);

#endif
