/* outcomes.h: made-up requests for the tests of the roll-out: answers whose tokens are drawn one by
 * one, healthy or bad in one way, from a printed seed. */
#ifndef TESTS_OUTCOMES_H
#define TESTS_OUTCOMES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "serve/audit.h"
#include "serve/outcome.h"
#include "serve/quality.h"

/* What is wrong with a model. */
enum fault {
    HEALTHY,
    NONFINITE,
    FLAT,
    SURE,
    LOOPING,
    FAILING,
    SLOW_PROMPT,
    SLOW_TOKEN,
    STUCK,
    FAULTS
};

static inline const char *fault_name(enum fault f)
{
    static const char *const names[] = { "healthy", "not finite", "flat", "too sure", "looping",
                                         "failing", "slow to read", "slow to write", "stuck" };
    return names[f];
}

/* The largest probability of a token: most are nearly certain, the others anything. */
static inline double draw_top1(struct rng *r, double certain, enum fault f)
{
    double u = rng_unit(r);
    if (f == FLAT) return 0.1 + 0.05 * u;
    if (f == SURE) return 0.97 + 0.02 * u;
    return rng_unit(r) < certain ? 1 - 0.1 * u * u : 0.05 + 0.85 * u;
}

/* At least `least` tokens in the answer. */
static inline struct outcome draw_outcome(struct rng *r, enum fault f, uint64_t least)
{
    struct quality q = { 0 };
    int32_t ids[600];
    double certain = 0.55 + 0.1 * rng_normal(r), pace = exp(0.3 * rng_normal(r));
    uint64_t n = least + (uint64_t)fmin(40 * exp(rng_normal(r)), 500);
    bool loops = f == LOOPING || rng_unit(r) < 0.002;
    if (n < 60 && loops) n = 60;
    for (uint64_t i = 0; i < n; i++) {
        ids[i] = loops ? (int32_t)(i % 3) : (int32_t)rng_below(r, 5000);
        quality_add(&q, draw_top1(r, certain, f), ids, i, ids[i]);
    }
    struct outcome o = { .n_drawn = n, .n_computed = 50 + rng_below(r, 1000), .loop = q.loop,
                         .top1_mean = q.mean, .top1_std = quality_std(&q) };
    o.queue_seconds = -0.05 * log(1 - rng_unit(r));
    o.first_seconds = o.queue_seconds + (double)o.n_computed * 1e-3 * pace
                      * (f == SLOW_PROMPT ? 12 : 1);
    o.total_seconds = o.first_seconds + (double)(n - 1) * 0.02 * pace * (f == SLOW_TOKEN ? 12 : 1);
    if (f == FAILING) o.end = OUTCOME_FAILED;
    if (f == NONFINITE) o.end = OUTCOME_NONFINITE;
    if (f == NONFINITE || f == STUCK) o.n_drawn = 0, o.first_seconds = 0;
    if (f == STUCK) o.end = OUTCOME_LATE, o.total_seconds = 60;
    return o;
}

/* The value of a number of a note; the test fails without. */
static inline double note_number(const struct audit_note *note, const char *name)
{
    for (size_t i = 0; i < note->n_numbers; i++)
        if (!strcmp(note->numbers[i].name, name)) return note->numbers[i].value;
    fail_msg("%s tells no %s", note->what ? note->what : "nothing", name);
    return 0;
}

#endif
