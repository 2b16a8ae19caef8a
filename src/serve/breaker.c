/* breaker.c: verdicts on each request of the candidate, and the states they lead to.
 * Owns: figures of the baseline, runs of the candidate. Does not know: shares, streams.
 * Threads: one.
 * B1 each verdict is good, bad or none; none neither makes a run longer nor ends it.
 * B2 the candidate's requests count in the state in which they passed, in no later one.
 * B3 at most one request is a probe at a time.
 * B4 every change of state is in the audit log, with its numbers. */
#include "serve/breaker.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "serve/defaults.h"

enum verdict { NONE, GOOD, BAD };

/* Runs of loops are so long that a candidate like the baseline makes one in so many requests. The
 * baseline's share begins as if it had looped once in PRIOR requests. */
#define CHANCE 1e-8
#define PRIOR 50

/* If half of the baseline's last answers are too far off as well, the traffic has changed. */
enum { SHIFT_WINDOW = 16, SHIFT_MOST = 8 };

/* ---- options, models ---- */

void breaker_init(struct breaker *b, const struct breaker_options *options)
{
    *b = (struct breaker){ .o = *options };
    struct breaker_options *o = &b->o;
    default_real(&o->sigmas, 4);
    default_count(&o->in_a_row, 5);
    default_count(&o->least_sample, 100);
    default_real(&o->memory, 1000);
    default_count(&o->error_window, 20);
    if (o->error_window > 64) o->error_window = 64;
    default_real(&o->error_rise, 0.25);
    default_real(&o->slow.ratio, 2);
    default_real(&o->slow.seconds, 600);
    default_real(&o->slow.least_excess, 0.05);
    default_count(&o->slow.sample, 20);
    default_real(&o->back_off, 30);
    default_real(&o->most_back_off, 960);
    default_real(&o->calm, 600);
    default_count(&o->probes, 5);
}

bool breaker_is_ready(const struct breaker *b)
{
    return b->o.most_std > 0 || b->spread.n >= b->o.least_sample;
}

void breaker_new_baseline(struct breaker *b)
{
    b->spread = b->loops = b->errors = (struct moments){ 0 };
    b->beyond = 0;
    memset(&b->paces, 0, sizeof b->paces);
}

/* ---- states ---- */

static void enter(struct breaker *b, enum breaker_state state, double now)
{
    b->state = state;
    b->epoch++; // B2
    b->since = now;
    b->probing = false;
    b->good = b->off = b->looped = b->slow = 0;
    b->failed = 0;
}

static void tell(struct breaker *b, const struct audit_note *note)
{
    b->last = *note;
    audit_add(b->o.audit, note);
}

static void trip(struct breaker *b, enum breaker_cause cause, struct audit_note *note)
{
    double wait = b->o.back_off;
    if (b->state == BREAKER_CLOSED && note->now - b->since >= b->o.calm) b->reopened = 0;
    for (uint32_t i = 0; i < b->reopened && wait < b->o.most_back_off; i++) wait *= 2;
    if (wait > b->o.most_back_off) wait = b->o.most_back_off;
    b->reopened++;
    b->trips[cause]++;
    enter(b, BREAKER_OPEN, note->now);
    b->until = note->now + wait;
    if (cause != BREAKER_BY_SLOW && cause != BREAKER_BY_ADMIN) breaker_cut(b);
    audit_number(note, "back_off_seconds", wait);
    tell(b, note);
}

static void close_it(struct breaker *b, struct audit_note *note)
{
    enter(b, BREAKER_CLOSED, note->now);
    b->closings++;
    tell(b, note);
}

void breaker_new_candidate(struct breaker *b, double now)
{
    enter(b, BREAKER_CLOSED, now);
    b->reopened = 0;
}

bool breaker_admit(struct breaker *b, double now, struct breaker_pass *pass)
{
    if (b->state == BREAKER_OPEN && now >= b->until) {
        struct audit_note note =
            audit_note(AUDIT_RULE, "breaker_half_open", "the back-off is over: one at a time", now);
        enter(b, BREAKER_HALF_OPEN, now);
        tell(b, &note);
    }
    bool probe = b->state == BREAKER_HALF_OPEN;
    if (b->state == BREAKER_OPEN || (probe && b->probing)) return false; // B3
    if (probe) b->probing = true;
    *pass = (struct breaker_pass){ .epoch = b->epoch, .probe = probe };
    return true;
}

void breaker_cut(struct breaker *b)
{
    b->cut_epoch = ++b->epoch;
    b->probing = false;
}

bool breaker_cuts(const struct breaker *b, const struct breaker_pass *pass)
{
    return pass->epoch < b->cut_epoch;
}

void breaker_open(struct breaker *b, const char *actor, const char *why, double now)
{
    struct audit_note note = audit_note(actor, "breaker_opened", why, now);
    trip(b, BREAKER_BY_ADMIN, &note);
}

void breaker_close(struct breaker *b, const char *actor, const char *why, double now)
{
    struct audit_note note = audit_note(actor, "breaker_closed", why, now);
    b->reopened = 0;
    close_it(b, &note);
}

/* ---- verdicts ---- */

static uint32_t bits_of(uint64_t bits, uint32_t last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < last; i++) n += bits >> i & 1;
    return n;
}

static double sigma_of(const struct breaker *b)
{
    return fmax(moments_std(&b->spread), OUTCOME_LEAST_SIGMA);
}

static bool is_far(const struct breaker *b, double top1_std)
{
    if (b->o.most_std > 0) return top1_std > b->o.most_std;
    return fabs(top1_std - b->spread.mean) > b->o.sigmas * sigma_of(b);
}

static enum verdict judge_std(const struct breaker *b, const struct outcome *o)
{
    if (!outcome_has_quality(o) || !breaker_is_ready(b)) return NONE;
    bool shifted = bits_of(b->beyond, SHIFT_WINDOW) >= SHIFT_MOST;
    if (b->o.most_std <= 0 && shifted) return NONE; /* a fixed limit is one whatever else is so */
    return is_far(b, o->top1_std) ? BAD : GOOD;
}

static enum verdict judge_loop(const struct outcome *o)
{
    if (o->n_drawn < OUTCOME_LOOP_TOKENS || o->end == OUTCOME_NONFINITE) return NONE;
    return o->loop >= OUTCOME_LOOP_TOKENS ? BAD : GOOD;
}

static enum verdict judge_error(const struct outcome *o)
{
    if (o->end == OUTCOME_DONE) return GOOD;
    return o->end == OUTCOME_FAILED || o->end == OUTCOME_NONFINITE ? BAD : NONE;
}

/* What a request says, by cause, and of its times. */
struct judgement {
    enum verdict of[BREAKER_CAUSE_COUNT];
    double seconds, limit; /* a token, of a slow one */
};

static struct judgement judge(struct breaker *b, enum length_class length, const struct outcome *o,
                              double now)
{
    struct pace_verdict pace = paces_judge(&b->paces, &b->o.slow, length, o, now);
    struct judgement j = { .seconds = pace.seconds, .limit = pace.limit };
    j.of[BREAKER_BY_NONFINITE] = o->end == OUTCOME_NONFINITE ? BAD : NONE;
    j.of[BREAKER_BY_STD] = judge_std(b, o);
    j.of[BREAKER_BY_LOOPS] = judge_loop(o);
    j.of[BREAKER_BY_ERRORS] = judge_error(o);
    j.of[BREAKER_BY_SLOW] = !pace.known ? NONE : pace.slow ? BAD : GOOD;
    return j;
}

/* ---- the baseline ---- */

void breaker_baseline_ended(struct breaker *b, enum length_class length, const struct outcome *o,
                            double now)
{
    enum verdict loop = judge_loop(o), error = judge_error(o);
    if (outcome_has_quality(o)) {
        bool was_ready = breaker_is_ready(b);
        b->beyond = b->beyond << 1 | (was_ready && is_far(b, o->top1_std));
        moments_add(&b->spread, o->top1_std, b->o.memory);
        if (!was_ready && breaker_is_ready(b)) {
            struct audit_note note = audit_note(AUDIT_RULE, "baseline_calibrated",
                                                "enough answers of the baseline are known", now);
            audit_number(&note, "answers", (double)b->spread.n);
            audit_number(&note, "top1_std_mean", b->spread.mean);
            audit_number(&note, "sigma", sigma_of(b));
            tell(b, &note);
        }
    }
    if (loop != NONE) moments_add(&b->loops, loop == BAD, b->o.memory);
    if (error != NONE) moments_add(&b->errors, error == BAD, b->o.memory);
    paces_add(&b->paces, &b->o.slow, length, o, now);
}

/* ---- the candidate ---- */

static uint32_t run_after(uint32_t run, enum verdict v)
{
    return v == NONE ? run : v == BAD ? run + 1 : 0; // B1
}

static uint32_t loops_needed(const struct breaker *b)
{
    double n = fmin((double)b->loops.n, b->o.memory);
    double share = (b->loops.mean * n + 1) / (n + PRIOR);
    return (uint32_t)ceil(log(CHANCE) / log(share));
}

static uint32_t errors_needed(const struct breaker *b)
{
    return (uint32_t)ceil((b->o.error_rise + b->errors.mean) * b->o.error_window - 1e-9);
}

/* BREAKER_CAUSE_COUNT: none has come to its limit. */
static enum breaker_cause find_cause(const struct breaker *b, const struct judgement *j)
{
    if (j->of[BREAKER_BY_NONFINITE] == BAD) return BREAKER_BY_NONFINITE;
    if (b->off >= b->o.in_a_row) return BREAKER_BY_STD;
    if (b->looped >= loops_needed(b)) return BREAKER_BY_LOOPS;
    if (bits_of(b->failed, b->o.error_window) >= errors_needed(b)) return BREAKER_BY_ERRORS;
    if (b->slow >= b->o.in_a_row) return BREAKER_BY_SLOW;
    return BREAKER_CAUSE_COUNT;
}

static void count(struct breaker *b, const struct judgement *j)
{
    b->off = run_after(b->off, j->of[BREAKER_BY_STD]);
    b->looped = run_after(b->looped, j->of[BREAKER_BY_LOOPS]);
    b->slow = run_after(b->slow, j->of[BREAKER_BY_SLOW]);
    enum verdict error = j->of[BREAKER_BY_ERRORS];
    if (error != NONE) b->failed = b->failed << 1 | (error == BAD);
}

static void add_numbers(const struct breaker *b, enum breaker_cause cause,
                        const struct judgement *j, const struct outcome *o, struct audit_note *note)
{
    switch (cause) {
    case BREAKER_BY_STD:
        audit_number(note, "top1_std", o->top1_std);
        audit_number(note, "in_a_row", b->off);
        if (b->o.most_std > 0) {
            audit_number(note, "limit", b->o.most_std);
            break;
        }
        audit_number(note, "baseline_mean", b->spread.mean);
        audit_number(note, "baseline_sigma", sigma_of(b));
        audit_number(note, "sigmas_off", (o->top1_std - b->spread.mean) / sigma_of(b));
        audit_number(note, "limit_sigmas", b->o.sigmas);
        break;
    case BREAKER_BY_LOOPS:
        audit_number(note, "repeated_tokens", o->loop);
        audit_number(note, "in_a_row", b->looped);
        audit_number(note, "limit", loops_needed(b));
        audit_number(note, "baseline_share", b->loops.mean);
        break;
    case BREAKER_BY_ERRORS:
        audit_number(note, "failed", bits_of(b->failed, b->o.error_window));
        audit_number(note, "limit", errors_needed(b));
        audit_number(note, "of_requests", b->o.error_window);
        audit_number(note, "baseline_share", b->errors.mean);
        break;
    case BREAKER_BY_SLOW:
        audit_number(note, "seconds_per_token", j->seconds);
        audit_number(note, "limit_seconds", j->limit);
        audit_number(note, "in_a_row", b->slow);
        break;
    default: audit_number(note, "tokens_before", (double)o->n_drawn); break;
    }
}

static void trip_by_rule(struct breaker *b, enum breaker_cause cause, const struct judgement *j,
                         const struct outcome *o, double now)
{
    static const char *const why[] = {
#define BREAKER_WHY(name, text, reason) reason,
        BREAKER_CAUSES(BREAKER_WHY)
#undef BREAKER_WHY
    };
    struct audit_note note = audit_note(AUDIT_RULE, "breaker_opened", why[cause], now);
    audit_number(&note, "probe", b->state == BREAKER_HALF_OPEN);
    add_numbers(b, cause, j, o, &note);
    trip(b, cause, &note);
}

/* Of a probe: the first bad verdict is enough. */
static bool judge_probe(struct breaker *b, const struct judgement *j, const struct outcome *o,
                        double now)
{
    for (int cause = 0; cause < BREAKER_CAUSE_COUNT; cause++)
        if (j->of[cause] == BAD) {
            trip_by_rule(b, (enum breaker_cause)cause, j, o, now);
            return true;
        }
    if (o->end != OUTCOME_DONE || ++b->good < b->o.probes) return false;
    struct audit_note note = audit_note(AUDIT_RULE, "breaker_closed",
                                        "the requests of the half-open state were good", now);
    audit_number(&note, "good_requests", b->good);
    close_it(b, &note);
    return true;
}

bool breaker_ended(struct breaker *b, const struct breaker_pass *pass, enum length_class length,
                   const struct outcome *o, double now)
{
    if (pass->epoch != b->epoch) return false; // B2
    assert(b->state != BREAKER_OPEN);
    if (pass->probe) b->probing = false;
    if (o->end == OUTCOME_MOVED) return false;
    struct judgement j = judge(b, length, o, now);
    count(b, &j);
    if (pass->probe) return judge_probe(b, &j, o, now);
    enum breaker_cause cause = find_cause(b, &j);
    if (cause == BREAKER_CAUSE_COUNT) return false;
    trip_by_rule(b, cause, &j, o, now);
    return true;
}

/* ---- the document ---- */

void breaker_write(const struct breaker *b, double now, const char *key, struct json_build *w)
{
    static const char *const states[] = { "closed", "open", "half_open" };
    static const char *const causes[] = {
#define BREAKER_TEXT(name, text, reason) text,
        BREAKER_CAUSES(BREAKER_TEXT)
#undef BREAKER_TEXT
    };
    json_build_object(w, key);
    json_build_text(w, "state", states[b->state]);
    json_build_real(w, "state_seconds", now - b->since, 6);
    json_build_real(w, "retry_seconds",
                    b->state == BREAKER_OPEN ? fmax(b->until - now, 0) : NAN, 6);
    json_build_object(w, "trips");
    for (int i = 0; i < BREAKER_CAUSE_COUNT; i++) json_build_uint(w, causes[i], b->trips[i]);
    json_build_object_end(w);
    json_build_uint(w, "closings", b->closings);
    json_build_object(w, "baseline");
    json_build_bool(w, "calibrated", breaker_is_ready(b));
    json_build_uint(w, "answers", b->spread.n);
    json_build_real(w, "top1_std_mean", b->spread.n ? b->spread.mean : NAN, 6);
    json_build_real(w, "top1_std_sigma", b->spread.n ? sigma_of(b) : NAN, 6);
    json_build_real(w, "loop_share", b->loops.n ? b->loops.mean : NAN, 6);
    json_build_real(w, "error_share", b->errors.n ? b->errors.mean : NAN, 6);
    json_build_object_end(w);
    json_build_object(w, "in_a_row");
    json_build_uint(w, "top1_std", b->off);
    json_build_uint(w, "loops", b->looped);
    json_build_uint(w, "slow", b->slow);
    json_build_object_end(w);
    audit_write_note(&b->last, "last", w);
    json_build_object_end(w);
}
