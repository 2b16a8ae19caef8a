/* canary.c: shares of requests, windows of what each variant did, and the rules between them.
 * Owns: the share, the windows of a stage. Does not know: requests under way, the breaker's rules.
 * Threads: one.
 * C1 the share rises by rule only in canary_tick, in state RAMPING, to the next stage, and when
 *    every rule is met.  C2 the windows hold requests that began since the share last changed: none
 *    of another stage.  C3 every change of share or state is in the audit log, with its numbers. */
#include "serve/canary.h"

#include <string.h>

#include "base/hash.h"
#include "serve/defaults.h"

enum { LEAST_ANSWERS = 30 }; /* of each variant, for a statement on quality */

static const char *const state_names[] = {
#define CANARY_TEXT(name, text) text,
    CANARY_STATES(CANARY_TEXT)
};
static const char *const cause_names[] = { CANARY_CAUSES(CANARY_TEXT) };
static const char *const rule_names[] = { CANARY_RULES(CANARY_TEXT) };

/* ---- options ---- */

static void complete(struct canary_options *o)
{
    static const uint32_t stages[] = { 100, 500, 2000, CANARY_WHOLE };
    if (o->n_stages == 0) {
        memcpy(o->stages, stages, sizeof stages);
        o->n_stages = sizeof stages / sizeof *stages;
    }
    default_real(&o->least_seconds, 600);
    default_count(&o->least_requests, 200);
    default_real(&o->most_error_rise, 0.01);
    default_real(&o->most_loop_rise, 0.02);
    default_real(&o->most_latency_ratio, 1.25);
    default_real(&o->most_quality_shift, 0.5);
    default_real(&o->worst_error_rise, 0.05);
    default_real(&o->worst_loop_rise, 0.1);
    default_real(&o->worst_latency_ratio, 3);
    default_count(&o->most_trips, 3);
}

zp_status canary_init(struct canary *c, const struct canary_options *options, zp_err *err)
{
    *c = (struct canary){ .o = *options };
    struct canary_options *o = &c->o;
    ZP_FAIL_IF(o->n_stages > CANARY_MOST_STAGES, err, ZP_USAGE, "%u canary stages, at most %d",
               o->n_stages, CANARY_MOST_STAGES);
    complete(o);
    for (uint32_t i = 0; i < o->n_stages; i++)
        ZP_FAIL_IF(o->stages[i] <= (i ? o->stages[i - 1] : 0) || o->stages[i] > CANARY_WHOLE, err,
                   ZP_USAGE,
                   "canary stage %u is %u of %d, expected more than %u and no more than all", i + 1,
                   o->stages[i], CANARY_WHOLE, i ? o->stages[i - 1] : 0);
    ZP_FAIL_IF(o->hold_at > CANARY_WHOLE, err, ZP_USAGE, "a canary share of %u, at most %d",
               o->hold_at, CANARY_WHOLE);
    return ZP_OK;
}

/* ---- shares ---- */

bool canary_in_share(const uint8_t salt[16], const void *key, size_t size, uint32_t share)
{
    return hash_siphash(key, size, salt) % CANARY_WHOLE < share;
}

bool canary_picks(const struct canary *c, const void *key, size_t size)
{
    return canary_in_share(c->o.salt, key, size, c->share);
}

void canary_restart(struct canary *c, double now)
{
    c->epoch++;
    c->since = now;
    memset(c->windows, 0, sizeof c->windows);
}

/* The one place where share and state change (C3). */
static void change(struct canary *c, enum canary_state state, uint32_t share,
                   struct audit_note *note)
{
    audit_number(note, "from_percent", c->share / 100.0);
    audit_number(note, "to_percent", share / 100.0);
    if (share != c->share || state != c->state) canary_restart(c, note->now); // C2
    c->state = state;
    c->share = share;
    c->last = *note;
    audit_add(c->o.audit, note);
}

void canary_load(struct canary *c, double now)
{
    struct audit_note note = audit_note(AUDIT_RULE, "canary_loaded",
                                        "a candidate waits for the baseline's calibration", now);
    c->trips = 0;
    change(c, CANARY_WAITING, 0, &note);
}

void canary_unload(struct canary *c, double now)
{
    struct audit_note note =
        audit_note(AUDIT_RULE, "canary_unloaded", "the candidate is gone", now);
    change(c, CANARY_OFF, 0, &note);
}

void canary_begin(struct canary *c, double now)
{
    if (c->state != CANARY_WAITING) return;
    struct audit_note note =
        audit_note(AUDIT_RULE, "canary_began", "the breaker can judge the candidate", now);
    if (c->o.hold_at) change(c, CANARY_HELD, c->o.hold_at, &note);
    else change(c, CANARY_RAMPING, c->o.stages[0], &note);
}

/* ---- windows ---- */

static void add_time(struct latency *l, double seconds)
{
    if (seconds > 0) latency_add(l, seconds);
}

void canary_ended(struct canary *c, uint64_t epoch, enum variant v, const struct outcome *o)
{
    struct canary_window *w = &c->windows[v];
    if (epoch != c->epoch || o->end == OUTCOME_MOVED) return; // C2
    if (outcome_has_quality(o)) {
        w->answers++;
        if (o->loop >= OUTCOME_LOOP_TOKENS) w->loops++;
        moments_add(&w->sure, o->top1_mean, 0);
        moments_add(&w->spread, o->top1_std, 0);
    }
    if (o->end == OUTCOME_CANCELLED) return;
    w->requests++;
    if (outcome_is_error(o->end)) w->errors++;
    if (o->end != OUTCOME_DONE && o->end != OUTCOME_LATE) return;
    add_time(&w->first, outcome_first(o));
    add_time(&w->total, outcome_total(o));
    add_time(&w->prompt, outcome_prompt_pace(o));
    add_time(&w->token, outcome_token_pace(o));
}

/* ---- rules ---- */

static double share_of(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : NAN;
}

static double ratio_at(const struct latency *base, const struct latency *now, double q)
{
    double below = latency_quantile(base, q);
    return below > 0 ? latency_quantile(now, q) / below : NAN;
}

static double shift_of(const struct moments *base, const struct moments *now)
{
    if (base->n < LEAST_ANSWERS || now->n < LEAST_ANSWERS) return NAN;
    return fabs(now->mean - base->mean) / fmax(moments_std(base), OUTCOME_LEAST_SIGMA);
}

void canary_judge(const struct canary *c, double now, struct canary_check out[CANARY_RULE_COUNT])
{
    const struct canary_window *base = &c->windows[VARIANT_BASELINE],
                               *cand = &c->windows[VARIANT_CANDIDATE];
    const struct canary_options *o = &c->o;
    const double values[CANARY_RULE_COUNT] = {
        [CANARY_RULE_SECONDS] = now - c->since,
        [CANARY_RULE_REQUESTS] = (double)cand->requests,
        [CANARY_RULE_BASELINE] = (double)base->requests,
        [CANARY_RULE_ERRORS] =
            share_of(cand->errors, cand->requests) - share_of(base->errors, base->requests),
        [CANARY_RULE_LOOPS] =
            share_of(cand->loops, cand->answers) - share_of(base->loops, base->answers),
        [CANARY_RULE_PROMPT] = ratio_at(&base->prompt, &cand->prompt, 0.95),
        [CANARY_RULE_TOKEN] = ratio_at(&base->token, &cand->token, 0.9),
        [CANARY_RULE_MEAN] = shift_of(&base->sure, &cand->sure),
        [CANARY_RULE_STD] = shift_of(&base->spread, &cand->spread),
    };
    const double limits[CANARY_RULE_COUNT] = {
        o->least_seconds,      o->least_requests,     o->least_requests,
        o->most_error_rise,    o->most_loop_rise,     o->most_latency_ratio,
        o->most_latency_ratio, o->most_quality_shift, o->most_quality_shift,
    };
    for (int i = 0; i < CANARY_RULE_COUNT; i++) {
        bool least = i <= CANARY_RULE_BASELINE;
        out[i] = (struct canary_check){ .value = values[i], .limit = limits[i] };
        out[i].off = limits[i] < 0;
        out[i].met = out[i].off || (least ? values[i] >= limits[i] : values[i] <= limits[i]);
    }
}

static void add_checks(struct audit_note *note, const struct canary_check *checks)
{
    for (int i = 0; i < CANARY_RULE_COUNT; i++)
        if (!checks[i].off) audit_number(note, rule_names[i], checks[i].value);
}

static void roll_back(struct canary *c, enum canary_cause cause, struct audit_note *note)
{
    c->rollbacks[cause]++;
    change(c, CANARY_ROLLED_BACK, 0, note);
}

/* True: it is rolled back. */
static bool judge_worst(struct canary *c, const struct canary_check *checks, double now)
{
    const struct {
        enum canary_rule rule;
        enum canary_cause cause;
        double limit;
        const char *why;
    } worst[] = {
        { CANARY_RULE_ERRORS, CANARY_BY_ERRORS, c->o.worst_error_rise,
          "the candidate fails more requests than the baseline" },
        { CANARY_RULE_LOOPS, CANARY_BY_LOOPS, c->o.worst_loop_rise,
          "the candidate repeats tokens more often than the baseline" },
        { CANARY_RULE_PROMPT, CANARY_BY_PROMPT, c->o.worst_latency_ratio,
          "the candidate reads prompts much slower than the baseline" },
        { CANARY_RULE_TOKEN, CANARY_BY_TOKEN, c->o.worst_latency_ratio,
          "the candidate writes much slower than the baseline" },
    };
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
        double value = checks[worst[i].rule].value, limit = worst[i].limit;
        if (limit < 0 || !(value > limit)) continue;
        struct audit_note note = audit_note(AUDIT_RULE, "canary_rolled_back", worst[i].why, now);
        audit_number(&note, "value", value);
        audit_number(&note, "limit", limit);
        add_checks(&note, checks);
        roll_back(c, worst[i].cause, &note);
        return true;
    }
    return false;
}

/* CANARY_WHOLE + 1: there is none. */
static uint32_t next_stage(const struct canary *c)
{
    for (uint32_t i = 0; i < c->o.n_stages; i++)
        if (c->o.stages[i] > c->share) return c->o.stages[i];
    return CANARY_WHOLE + 1;
}

void canary_tick(struct canary *c, double now)
{
    struct canary_check checks[CANARY_RULE_COUNT];
    if ((c->state != CANARY_RAMPING && c->state != CANARY_HELD) || c->share == 0) return;
    canary_judge(c, now, checks);
    if (checks[CANARY_RULE_REQUESTS].met && checks[CANARY_RULE_BASELINE].met
        && judge_worst(c, checks, now))
        return;
    uint32_t next = next_stage(c);
    if (c->state != CANARY_RAMPING || next > CANARY_WHOLE) return;
    for (int i = 0; i < CANARY_RULE_COUNT; i++)
        if (!checks[i].met) return; // C1
    struct audit_note note =
        audit_note(AUDIT_RULE, "canary_promoted", "every rule of the stage is met", now);
    add_checks(&note, checks);
    c->promotions++;
    change(c, CANARY_RAMPING, next, &note);
}

void canary_tripped(struct canary *c, double now)
{
    if (c->state == CANARY_OFF || c->state == CANARY_ROLLED_BACK) return;
    if (++c->trips < c->o.most_trips) return;
    struct audit_note note =
        audit_note(AUDIT_RULE, "canary_rolled_back", "the breaker tripped too often", now);
    audit_number(&note, "value", c->trips);
    audit_number(&note, "limit", c->o.most_trips);
    roll_back(c, CANARY_BY_BREAKER, &note);
}

/* ---- by hand ---- */

static zp_status check_loaded(const struct canary *c, zp_err *err)
{
    ZP_FAIL_IF(c->state == CANARY_OFF, err, ZP_BAD_INPUT,
               "there is no candidate: load one before its share is set");
    return ZP_OK;
}

zp_status canary_set_share(struct canary *c, uint32_t share, const char *actor, const char *why,
                           double now, zp_err *err)
{
    ZP_TRY(check_loaded(c, err));
    ZP_FAIL_IF(share > CANARY_WHOLE, err, ZP_BAD_INPUT, "a share of %u of %d", share, CANARY_WHOLE);
    struct audit_note note = audit_note(actor, "canary_set", why, now);
    c->trips = 0;
    change(c, CANARY_HELD, share, &note);
    return ZP_OK;
}

zp_status canary_hold(struct canary *c, const char *actor, const char *why, double now, zp_err *err)
{
    ZP_TRY(check_loaded(c, err));
    struct audit_note note = audit_note(actor, "canary_held", why, now);
    change(c, CANARY_HELD, c->share, &note);
    return ZP_OK;
}

zp_status canary_resume(struct canary *c, const char *actor, const char *why, double now,
                        zp_err *err)
{
    ZP_TRY(check_loaded(c, err));
    struct audit_note note = audit_note(actor, "canary_resumed", why, now);
    c->trips = 0;
    c->o.hold_at = 0;
    change(c, c->share ? CANARY_RAMPING : CANARY_WAITING, c->share, &note);
    return ZP_OK;
}

zp_status canary_roll_back(struct canary *c, const char *actor, const char *why, double now,
                           zp_err *err)
{
    ZP_TRY(check_loaded(c, err));
    struct audit_note note = audit_note(actor, "canary_rolled_back", why, now);
    roll_back(c, CANARY_BY_ADMIN, &note);
    return ZP_OK;
}

/* ---- the document ---- */

static void write_quantiles(const struct latency *l, const char *key, struct json_build *w)
{
    static const struct {
        const char *name;
        double q;
    } all[] = { { "p50", 0.5 }, { "p90", 0.9 }, { "p95", 0.95 }, { "p99", 0.99 } };
    json_build_object(w, key);
    json_build_uint(w, "n", l->n);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_build_real(w, all[i].name, l->n ? latency_quantile(l, all[i].q) : NAN, 4);
    json_build_object_end(w);
}

static void write_window(const struct canary_window *v, const char *key, struct json_build *w)
{
    json_build_object(w, key);
    json_build_uint(w, "requests", v->requests);
    json_build_uint(w, "errors", v->errors);
    json_build_uint(w, "answers", v->answers);
    json_build_uint(w, "loops", v->loops);
    write_quantiles(&v->first, "first_token_seconds", w);
    write_quantiles(&v->total, "total_seconds", w);
    write_quantiles(&v->prompt, "seconds_per_prompt_token", w);
    write_quantiles(&v->token, "seconds_per_token", w);
    json_build_real(w, "top1_mean", v->answers ? v->sure.mean : NAN, 6);
    json_build_real(w, "top1_std", v->answers ? v->spread.mean : NAN, 6);
    json_build_object_end(w);
}

static void write_rules(const struct canary *c, double now, struct json_build *w)
{
    struct canary_check checks[CANARY_RULE_COUNT];
    canary_judge(c, now, checks);
    json_build_array(w, "rules");
    for (int i = 0; i < CANARY_RULE_COUNT; i++) {
        if (checks[i].off) continue;
        json_build_object(w, NULL);
        json_build_text(w, "name", rule_names[i]);
        json_build_real(w, "value", checks[i].value, 6);
        json_build_real(w, "limit", checks[i].limit, 6);
        json_build_bool(w, "met", checks[i].met);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

void canary_write(const struct canary *c, double now, const char *key, struct json_build *w)
{
    json_build_object(w, key);
    json_build_text(w, "state", state_names[c->state]);
    json_build_real(w, "share_percent", c->share / 100.0, 6);
    json_build_array(w, "stages_percent");
    for (uint32_t i = 0; i < c->o.n_stages; i++)
        json_build_real(w, NULL, c->o.stages[i] / 100.0, 6);
    json_build_array_end(w);
    json_build_bool(w, "sticky", c->o.sticky);
    json_build_real(w, "stage_seconds", now - c->since, 6);
    json_build_uint(w, "breaker_trips", c->trips);
    json_build_uint(w, "promotions", c->promotions);
    json_build_object(w, "rollbacks");
    for (int i = 0; i < CANARY_CAUSE_COUNT; i++)
        json_build_uint(w, cause_names[i], c->rollbacks[i]);
    json_build_object_end(w);
    for (int v = 0; v < VARIANTS; v++)
        write_window(&c->windows[v], variant_name((enum variant)v), w);
    write_rules(c, now, w);
    audit_write_note(&c->last, "last", w);
    json_build_object_end(w);
}
