/* breaker.h: takes a candidate that misbehaves out of service within a few requests, and tries it
 * again later.
 *
 * Closed: requests pass. Open: none do, until a time of back-off is over. Half-open: one at a time
 * passes; some good ones in a row close it, a bad one opens it for twice as long. Trips, each with
 * its numbers in the audit log, on
 *     non_finite   one request whose logits were NaN or infinite;
 *     top1_std     5 in a row whose top-1 probability has a standard deviation more than 4 sigma
 *                  from the mean of the baseline's requests; or above a fixed limit;
 *     loops        so many in a row with a loop as the baseline shows once in 10^8 times;
 *     errors       5 of the last 20 failed, and more where the baseline fails too;
 *     slow         5 in a row slower than twice the baseline's p95 of the same kind (paces.h).
 * Times are the caller's clock, in seconds; each call's `now` is not before the last one's. */
#ifndef SERVE_BREAKER_H
#define SERVE_BREAKER_H

#include "serve/audit.h"
#include "serve/latency.h"
#include "serve/moments.h"
#include "serve/outcome.h"
#include "serve/paces.h"

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

/* Of several that trip at the same request the first is the cause. */
#define BREAKER_CAUSES(X)                                                                          \
    X(NONFINITE, "non_finite", "logits of the candidate were NaN or infinite")                     \
    X(STD, "top1_std", "the spread of the candidate's top-1 probability left the baseline's")      \
    X(LOOPS, "loops", "the candidate repeats tokens, request after request")                       \
    X(ERRORS, "errors", "too many of the candidate's last requests failed")                        \
    X(SLOW, "slow", "the candidate is slow, request after request")                                \
    X(ADMIN, "admin", "opened by hand")

enum breaker_cause {
#define BREAKER_ENUM(name, text, why) BREAKER_BY_##name,
    BREAKER_CAUSES(BREAKER_ENUM)
#undef BREAKER_ENUM
    BREAKER_CAUSE_COUNT
};

/* 0: the default. */
struct breaker_options {
    double most_std;        /* a fixed limit of a request's top-1 standard deviation; default: none,
                             * but what the baseline's calibration gives */
    double sigmas;          /* default 4 */
    uint32_t in_a_row;      /* for top1_std and slow; default 5 */
    uint32_t least_sample;  /* answers of the baseline before it is calibrated; default 100 */
    double memory;          /* requests that the baseline's figures look back; default 1000 */
    uint32_t error_window;  /* requests; default 20, at most 64 */
    double error_rise;      /* of them, beyond the baseline's share; default 0.25 */
    struct pace_options slow; /* default 2 times; 600 s back; 0.05 s; 20 times */
    double back_off, most_back_off; /* seconds; default 30, doubled up to 960 */
    double calm;            /* closed so long, the back-off is short again; default 600 */
    uint32_t probes;        /* good ones in a row that close it; default 5 */
    struct audit *audit;    /* may be NULL */
};

/* Goes with a request that passed. */
struct breaker_pass {
    uint64_t epoch;
    bool probe;
};

struct breaker {
    struct breaker_options o;
    enum breaker_state state;
    uint64_t epoch;     /* changes with the state */
    uint64_t cut_epoch; /* requests that passed before it go on at the baseline */
    double since, until; /* of the state; when an open one may be tried */
    uint32_t reopened;  /* trips without a calm time between */
    bool probing;       /* a request of the half-open state is under way */
    uint32_t good;      /* ones of the half-open state */
    uint64_t trips[BREAKER_CAUSE_COUNT], closings;
    struct audit_note last; /* the last decision */
    /* the baseline */
    struct moments spread;        /* top1_std of its answers */
    struct moments loops, errors; /* 1 or 0 for each */
    uint64_t beyond; /* bits, the newest lowest: answers that were too far off themselves */
    struct paces paces;
    /* the candidate, since it closed */
    uint32_t off, looped, slow; /* in a row */
    uint64_t failed;            /* bits, the newest lowest */
};

void breaker_init(struct breaker *b, const struct breaker_options *options);
/* A new baseline: its figures begin anew. A new candidate: closed, nothing is known of it. */
void breaker_new_baseline(struct breaker *b);
void breaker_new_candidate(struct breaker *b, double now);
/* Whether answers of the candidate can be judged by their spread. */
bool breaker_is_ready(const struct breaker *b);

/* Whether a request may go to the candidate. If so, breaker_ended follows, once. */
bool breaker_admit(struct breaker *b, double now, struct breaker_pass *pass);
/* True: its state has changed. */
bool breaker_ended(struct breaker *b, const struct breaker_pass *pass, enum length_class length,
                   const struct outcome *o, double now);
void breaker_baseline_ended(struct breaker *b, enum length_class length, const struct outcome *o,
                            double now);
/* Whether a stream of the candidate must go on at the baseline: it passed before a trip for what it
 * writes (all causes but slow), or before breaker_cut. */
bool breaker_cuts(const struct breaker *b, const struct breaker_pass *pass);
void breaker_cut(struct breaker *b);

/* By an admin: actor is the id of the key, why may be NULL. Open until the back-off is over; closed
 * (rollout_close_breaker, where there is a canary). */
void breaker_open(struct breaker *b, const char *actor, const char *why, double now);
void breaker_close(struct breaker *b, const char *actor, const char *why, double now);

void breaker_write(const struct breaker *b, double now, const char *key, struct json_build *w);

#endif
