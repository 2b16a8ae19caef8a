/* rollout.h: the one place that is asked "which model, which mode, or refuse?" when a request
 * comes, and told how it ended: canary, breaker, SLA and the log of their decisions, joined.
 *
 *     if (rollout_begin(r, &ask, now, &ticket)) run it on ticket.variant ...
 *     rollout_end(r, &ticket, &outcome, now)                     once for every ticket
 *
 * A stream whose candidate fails, or is cut by a trip of the breaker, goes on at the baseline:
 *     if (rollout_is_cut(r, &ticket) || it failed and rollout_may_move(&ticket, outcome.end))
 *         rollout_end(... OUTCOME_MOVED, or how it failed ...), rollout_move(r, &ticket);
 *         then prompt + tokens already sent, on the baseline, and rollout_end once more.
 *
 * One thread. `now` is any monotonic clock in seconds and never goes back. */
#ifndef SERVE_ROLLOUT_H
#define SERVE_ROLLOUT_H

#include "serve/audit.h"
#include "serve/breaker.h"
#include "serve/canary.h"
#include "serve/sla.h"

/* 0: the defaults of the parts; their `audit` is set here. */
struct rollout_options {
    struct canary_options canary;
    struct breaker_options breaker;
    struct sla_options sla;
    struct audit_options audit;
};

/* Read it for figures; change it by the calls below only. */
struct rollout {
    struct audit audit;
    struct canary canary;
    struct breaker breaker;
    struct sla sla;
    uint64_t baselines; /* changes of it */
    uint64_t begun[VARIANTS], moved; /* requests; of them, begun again at the baseline */
    uint64_t ended[VARIANTS][OUTCOME_ENDS];
};

struct rollout_ask {
    const char *request_id, *user; /* user may be NULL */
    uint64_t n_prompt;
    bool mode_is_open; /* position_mode was not given, or is auto */
};

struct rollout_ticket {
    enum variant variant;
    enum length_class length;
    bool half;  /* run it in mode half */
    bool moved; /* it began at the candidate: its times say nothing of the baseline */
    struct breaker_pass pass;
    uint64_t canary_epoch, sla_epoch, baseline;
};

/* unix_seconds, here and below: the time of day, seconds since 1970. */
zp_status rollout_open(struct rollout **out, const struct rollout_options *options, double now,
                       double unix_seconds, zp_err *err);
void rollout_close(struct rollout *r); /* NULL is fine */

/* False: refuse it (429); it may come again after sla_retry_seconds. */
bool rollout_begin(struct rollout *r, const struct rollout_ask *ask, double now,
                   struct rollout_ticket *ticket);
/* The same of a request that no model's quality is judged by, and that is always the baseline's, in
 * the mode it asks for. Its ticket is not given to rollout_end. */
bool rollout_admits(struct rollout *r, uint64_t n_prompt, struct rollout_ticket *ticket);
void rollout_end(struct rollout *r, const struct rollout_ticket *ticket,
                 const struct outcome *outcome, double now);
/* Whether a stream under way must leave the candidate: to be asked after rollout_end, rollout_tick
 * and rollout_roll_back. */
bool rollout_is_cut(const struct rollout *r, const struct rollout_ticket *ticket);
/* Whether a request that ended so may go on at the baseline. */
bool rollout_may_move(const struct rollout_ticket *ticket, enum outcome_end end);
/* The ticket is the baseline's from now on. */
void rollout_move(struct rollout *r, struct rollout_ticket *ticket);
/* Judges stages and latencies: at least once a second. */
void rollout_tick(struct rollout *r, double now, double unix_seconds);

/* What is served has changed: another baseline; a candidate came, or went. */
void rollout_set_baseline(struct rollout *r, double now);
void rollout_set_candidate(struct rollout *r, bool present, double now);

/* By an admin, beside canary_set_share, _hold, _resume and breaker_open, which may be called on the
 * parts. cut: streams under way leave the candidate too. */
zp_status rollout_roll_back(struct rollout *r, bool cut, const char *actor, const char *why,
                            double now, zp_err *err);
void rollout_close_breaker(struct rollout *r, const char *actor, const char *why, double now);

/* {"canary": ..., "breaker": ..., "sla": ..., "requests": ..., "audit": ...} */
void rollout_write(const struct rollout *r, double now, const char *key, struct json_build *w);

#endif
