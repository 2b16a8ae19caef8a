/* canary.h: which requests a candidate model answers, and when it gets more of them.
 *
 * A request is the candidate's if SipHash(salt, key) mod 10000 < share, key being its id or its
 * user: a growing share only ever takes requests over. The share grows from stage to stage when
 * every rule is met, and goes to nothing at once when one of the rules of rolling back is broken or
 * an admin says so. Times are the caller's clock, in seconds; each call's `now` is not before the
 * last one's. */
#ifndef SERVE_CANARY_H
#define SERVE_CANARY_H

#include "serve/audit.h"
#include "serve/latency.h"
#include "serve/moments.h"
#include "serve/outcome.h"

enum { CANARY_WHOLE = 10000, CANARY_MOST_STAGES = 8 }; /* shares are in 1/10000 */

#define CANARY_STATES(X)                                                                           \
    X(OFF, "off")                 /* there is no candidate */                                      \
    X(WAITING, "waiting")         /* for the baseline's calibration; share 0 */                    \
    X(RAMPING, "ramping")         /* rules may promote it and roll it back */                      \
    X(HELD, "held")               /* rules may roll it back */                                     \
    X(ROLLED_BACK, "rolled_back") /* share 0 until an admin says otherwise */

enum canary_state {
#define CANARY_ENUM(name, text) CANARY_##name,
    CANARY_STATES(CANARY_ENUM)
#undef CANARY_ENUM
};

/* Why it was rolled back. */
#define CANARY_CAUSES(X)                                                                           \
    X(ADMIN, "admin") X(ERRORS, "errors") X(LOOPS, "loops") X(PROMPT, "slow_prompts")              \
    X(TOKEN, "slow_tokens") X(BREAKER, "breaker")

enum canary_cause {
#define CANARY_ENUM(name, text) CANARY_BY_##name,
    CANARY_CAUSES(CANARY_ENUM)
#undef CANARY_ENUM
    CANARY_CAUSE_COUNT
};

/* 0: the default. */
struct canary_options {
    uint8_t salt[16];  /* secret, and the same in all replicas */
    bool sticky;       /* by user, where the request names one */
    uint32_t stages[CANARY_MOST_STAGES], n_stages; /* rising; default 100 500 2000 10000 */
    uint32_t hold_at;  /* begin at this share and stay there; default: ramp through the stages */
    /* To be promoted, all of this stage. Differences are candidate - baseline, ratios candidate /
     * baseline, shifts differences of means in the baseline's own standard deviations of a request.
     * Below 0: that rule is off. */
    double least_seconds;      /* default 600 */
    uint32_t least_requests;   /* of each variant; default 200 */
    double most_error_rise;    /* default 0.01 */
    double most_loop_rise;     /* default 0.02 */
    double most_latency_ratio; /* of prompt pace p95, token pace p90; default 1.25 */
    double most_quality_shift; /* of top1_mean and top1_std; default 0.5 */
    /* Rolled back beyond, after least_requests of both. */
    double worst_error_rise;   /* default 0.05 */
    double worst_loop_rise;    /* default 0.1 */
    double worst_latency_ratio; /* default 3 */
    uint32_t most_trips;       /* of the breaker: so many roll back; default 3 */
    struct audit *audit;       /* may be NULL */
};

/* What a variant did in this stage. */
struct canary_window {
    uint64_t requests, errors; /* without those cancelled or moved */
    uint64_t answers, loops;   /* answers of OUTCOME_LEAST_TOKENS and more */
    struct latency first, total;  /* as clients see them */
    struct latency prompt, token; /* paces (outcome.h): what the rules compare */
    struct moments sure, spread;  /* top1_mean, top1_std of those answers */
};

struct canary {
    struct canary_options o;
    enum canary_state state;
    uint32_t share;  /* 0 .. CANARY_WHOLE */
    uint64_t epoch;  /* changes when the windows begin anew */
    double since;    /* when they did */
    uint32_t trips;  /* of the breaker, since it was loaded, set or resumed */
    uint64_t promotions, rollbacks[CANARY_CAUSE_COUNT];
    struct canary_window windows[VARIANTS];
    struct audit_note last; /* the last decision */
};

#define CANARY_RULES(X)                                                                            \
    X(SECONDS, "seconds") X(REQUESTS, "requests") X(BASELINE, "baseline_requests")                 \
    X(ERRORS, "error_rise") X(LOOPS, "loop_rise") X(PROMPT, "prompt_pace_p95_ratio")               \
    X(TOKEN, "token_pace_p90_ratio") X(MEAN, "top1_mean_shift") X(STD, "top1_std_shift")

enum canary_rule {
#define CANARY_ENUM(name, text) CANARY_RULE_##name,
    CANARY_RULES(CANARY_ENUM)
#undef CANARY_ENUM
    CANARY_RULE_COUNT
};

/* A rule as it stands. value: NaN while there is too little to tell, and then it is not met. */
struct canary_check {
    double value, limit;
    bool off, met;
};

/* Fails for stages that do not rise, or shares beyond the whole. */
zp_status canary_init(struct canary *c, const struct canary_options *options, zp_err *err);
/* Whether a request of this key is the candidate's. */
bool canary_picks(const struct canary *c, const void *key, size_t size);
/* The same for any share: what canary_picks is made of. */
bool canary_in_share(const uint8_t salt[16], const void *key, size_t size, uint32_t share);

/* There is a new candidate: it waits for canary_begin. */
void canary_load(struct canary *c, double now);
void canary_unload(struct canary *c, double now);
/* The baseline is calibrated: a candidate that waits gets its first share. */
void canary_begin(struct canary *c, double now);
/* A request that began in `epoch` has ended. */
void canary_ended(struct canary *c, uint64_t epoch, enum variant v, const struct outcome *o);
/* Judges the stage: promotes, rolls back, or leaves it. Not while the breaker keeps requests
 * away. */
void canary_tick(struct canary *c, double now);
/* The breaker has tripped; it lets requests pass again. */
void canary_tripped(struct canary *c, double now);
void canary_restart(struct canary *c, double now);

/* By an admin: actor is the id of the key, why may be NULL. Fail with ZP_BAD_INPUT without a
 * candidate. set_share holds it there, calibrated or not; resume goes on through the stages above
 * the share it has, from a share of 0 through waiting. */
zp_status canary_set_share(struct canary *c, uint32_t share, const char *actor, const char *why,
                           double now, zp_err *err);
zp_status canary_hold(struct canary *c, const char *actor, const char *why, double now,
                      zp_err *err);
zp_status canary_resume(struct canary *c, const char *actor, const char *why, double now,
                        zp_err *err);
zp_status canary_roll_back(struct canary *c, const char *actor, const char *why, double now,
                           zp_err *err);

void canary_judge(const struct canary *c, double now, struct canary_check out[CANARY_RULE_COUNT]);
void canary_write(const struct canary *c, double now, const char *key, struct json_build *w);

#endif
