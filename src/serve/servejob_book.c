/* servejob_book.c: how a request counts: in metrics, in the roll-out, in the log.
 * B1 a request that was accepted is booked once, as completed, cancelled or failed, in all three at
 *    the same place; one that was not is refused, once. */
#include "serve/servejob.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "serve/serveguard.h"
#include "serve/servejobs.h"
#include "serve/servetrace.h"

static unsigned length_of(const struct servejob *j)
{
    return (unsigned)j->ticket.length; /* LABEL_LENGTH_* are in the same order */
}

void servejob_accepted(struct servejob *j)
{
    if (j->accepted) return;
    j->accepted = true;
    j->accepted_at = os_now();
    metrics_accepted(j->s->metrics, j->endpoint, j->first_variant);
}

void servejob_token(struct servejob *j, struct servechoice *c)
{
    double now = os_now();
    struct metrics *m = j->s->metrics;
    j->n_drawn++;
    if (j->first == 0) {
        j->first = now;
        metrics_first_token(m, j->first_variant, length_of(j), now - j->arrived);
    }
    metrics_token(m, j->ticket.variant, c->last != 0 ? now - c->last : -1);
    c->last = j->last = now;
}

/* To the microsecond, for the log. */
static double rounded(double seconds)
{
    return round(seconds * 1e6) / 1e6;
}

/* ---- refusals -------------------------------------------------------------------------------- */

static bool is_code(const struct apifault *f, const char *code)
{
    return f->code != NULL && strcmp(f->code, code) == 0;
}

static unsigned refusal_of(const struct apifault *f)
{
    switch (f->status) {
    case 401:
    case 403: return LABEL_REFUSAL_UNAUTHORIZED;
    case 429:
        return is_code(f, "queue_full")   ? LABEL_REFUSAL_QUEUE
               : is_code(f, "overloaded") ? LABEL_REFUSAL_SHED : LABEL_REFUSAL_RATE;
    case 503: return is_code(f, "draining") ? LABEL_REFUSAL_DRAINING : LABEL_REFUSAL_UNAVAILABLE;
    default: break;
    }
    return f->n_ctx != 0 ? LABEL_REFUSAL_TOO_LONG : LABEL_REFUSAL_INVALID;
}

void servejob_count_refusal(zp_serve *s, enum serve_endpoint endpoint, const struct apifault *f)
{
    metrics_add(s->metrics, METRIC_REFUSED, METRIC_AT(endpoint, refusal_of(f)), 1);
}

static void leave_variant(struct servejob *j)
{
    if (j->has_ticket && j->ticket.variant == VARIANT_CANDIDATE && j->runs_on != NULL)
        j->s->n_at_candidate--;
}

void servejob_refused(struct servejob *j)
{
    zp_serve *s = j->s;
    if (j->booked) return;
    j->booked = true;
    leave_variant(j);
    servejob_count_refusal(s, j->endpoint, &j->fault);
    const struct outcome o = { .end = OUTCOME_CANCELLED };
    if (j->has_ticket) rollout_end(s->rollout, &j->ticket, &o, os_now());
    LOGLINE(&s->log, LOG_INFO, "request_refused", j->request_id,
            logline_int("status", j->fault.status), logline_text("code", j->fault.code),
            logline_text("error", j->fault.message));
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum outcome_end servejob_end_of(const struct sched_event *last)
{
    return last == NULL ? OUTCOME_FAILED : outcome_of_event(last).end;
}

static struct outcome outcome_of(const struct servejob *j, enum outcome_end end,
                                 const struct sched_usage *u)
{
    bool drew = u->n_drawn != 0;
    return (struct outcome){ .end = end, .n_computed = u->n_prompt - u->n_reused,
                             .n_drawn = u->n_drawn, .queue_seconds = u->queue_seconds,
                             .first_seconds = j->first != 0 ? j->first - j->arrived : 0,
                             .total_seconds = (drew && j->last != 0 ? j->last : os_now()) -
                                              j->arrived,
                             .top1_mean = u->top1_mean, .top1_std = u->top1_std,
                             .loop = u->loop };
}

/* Sums over the prompts; quality of the one that drew most. */
static struct sched_usage usage_of(const struct servejob *j)
{
    struct sched_usage sum = { 0 };
    size_t most = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        const struct serveprompt *p = &j->prompts[i];
        size_t n_prompt = sum.n_prompt, n_reused = sum.n_reused, n_drawn = sum.n_drawn;
        if (p->usage.n_drawn >= most) {
            most = p->usage.n_drawn;
            sum = p->usage;
        }
        sum.n_prompt = n_prompt + p->usage.n_prompt;
        sum.n_reused = n_reused + p->usage.n_reused;
        sum.n_drawn = n_drawn + p->usage.n_drawn + p->n_before;
    }
    return sum;
}

static unsigned finish_of(const struct servejob *j)
{
    if (j->reply.choices == NULL) return LABEL_FINISH_NONE; /* nothing was drawn */
    switch (j->reply.choices[0].finish) {
    case FINISH_END: return LABEL_FINISH_END;
    case FINISH_STOP: return LABEL_FINISH_STOP;
    case FINISH_LENGTH: return LABEL_FINISH_LENGTH;
    default: return LABEL_FINISH_NONE;
    }
}

static void count(const struct servejob *j, enum servejob_outcome o, enum outcome_end end,
                  const struct sched_usage *u)
{
    struct outcome seen = outcome_of(j, end, u);
    bool judged = outcome_has_quality(&seen);
    uint64_t room = j->runs_on->n_ctx - (u->n_prompt < j->runs_on->n_ctx ? u->n_prompt : 0);
    if (j->r.job.embeds) room = 0; /* nothing is drawn */
    const struct metrics_request m = {
        .endpoint = j->endpoint, .variant = j->first_variant, .outcome = o,
        .phase = j->first != 0 ? LABEL_PHASE_DECODE
                 : u->phase == SCHED_QUEUED ? LABEL_PHASE_QUEUE : LABEL_PHASE_PREFILL,
        .length = length_of(j), .mode = j->mode,
        .failure = end == OUTCOME_LATE ? LABEL_FAILURE_DEADLINE
                   : end == OUTCOME_NONFINITE ? LABEL_FAILURE_NONFINITE : LABEL_FAILURE_ENGINE,
        .finish = o == SERVEJOB_COMPLETED ? finish_of(j) : LABEL_FINISH_NONE,
        .n_computed = u->n_prompt - u->n_reused, .n_reused = u->n_reused,
        .n_generated = u->n_drawn,
        .n_limit = j->r.job.n_predict != 0 && j->r.job.n_predict < room ? j->r.job.n_predict : room,
        .queue_seconds = u->queue_seconds, .prefill_seconds = u->prompt_seconds,
        .decode_seconds = u->draw_seconds, .total_seconds = seen.total_seconds,
        .top1_mean = judged ? u->top1_mean : NAN, .top1_std = judged ? u->top1_std : NAN,
        .looped = u->loop >= OUTCOME_LOOP_TOKENS
    };
    metrics_ended(j->s->metrics, &m);
    if (m.phase == LABEL_PHASE_QUEUE) return;
    metrics_add(
        j->s->metrics, METRIC_LOOKUPS,
        METRIC_AT(j->first_variant, u->n_reused != 0 ? LABEL_LOOKUP_HIT : LABEL_LOOKUP_MISS), 1);
}

static void log_end(const struct servejob *j, enum servejob_outcome o, const struct sched_usage *u)
{
    static const char *const names[] = { "completed", "cancelled", "failed" };
    const char *error = o == SERVEJOB_FAILED ? j->reply.fault.message : NULL;
    LOGLINE(&j->s->log, o == SERVEJOB_FAILED ? LOG_WARN : LOG_INFO, "request_ended", j->request_id,
            logline_text("outcome", names[o]),
            logline_text("variant", variant_name(j->ticket.variant)),
            logline_text("mode", position_mode_name(j->mode)), logline_bool("moved", j->moved),
            logline_uint("prompt_tokens", u->n_prompt), logline_uint("reused", u->n_reused),
            logline_uint("tokens", u->n_drawn),
            logline_real("queue_seconds", rounded(u->queue_seconds)),
            logline_real("first_seconds", j->first != 0 ? rounded(j->first - j->arrived) : NAN),
            logline_real("seconds", rounded(os_now() - j->arrived)), logline_text("error", error),
            logline_text("cause", o == SERVEJOB_FAILED ? j->reply.err.message : NULL),
            logline_content("prompt", (const char *)j->prompts[0].p.text.data));
}

static void trace_end(const struct servejob *j, enum servejob_outcome o,
                      const struct sched_usage *u)
{
    const struct apifault *f = &j->reply.fault;
    int status = o == SERVEJOB_CANCELLED ? 499
                 : o == SERVEJOB_FAILED && !j->begun ? apifault_status(f, servejob_api(j)) : 200;
    servetrace_end(j->s->trace, j, u, status, o == SERVEJOB_FAILED ? f->message : NULL);
}

void servejob_book(struct servejob *j, enum servejob_outcome o, const struct sched_event *last)
{
    zp_serve *s = j->s;
    if (j->booked) return; // B1
    j->booked = true;
    leave_variant(j);
    servejob_accepted(j);
    struct sched_usage u = usage_of(j);
    if (u.n_prompt == 0 && last != NULL) u = last->usage;
    enum outcome_end end = o == SERVEJOB_COMPLETED ? OUTCOME_DONE
                           : o == SERVEJOB_CANCELLED ? OUTCOME_CANCELLED : servejob_end_of(last);
    struct outcome outcome = outcome_of(j, end, &u);
    count(j, o, end, &u);
    serveguard_charge(j->key, u.n_drawn);
    if (j->has_ticket) rollout_end(s->rollout, &j->ticket, &outcome, os_now());
    s->cuts = true;
    log_end(j, o, &u);
    trace_end(j, o, &u);
}

void servejob_book_move(struct servejob *j, const struct sched_event *failed)
{
    struct sched_usage u = failed != NULL ? failed->usage : usage_of(j);
    enum outcome_end end = failed != NULL ? servejob_end_of(failed) : OUTCOME_MOVED;
    struct outcome o = outcome_of(j, end, &u);
    rollout_end(j->s->rollout, &j->ticket, &o, os_now());
    j->s->cuts = true;
    LOGLINE(&j->s->log, LOG_WARN, "request_moved", j->request_id,
            logline_text("why", failed != NULL && failed->err != NULL ? failed->err->message
                                                                      : "the breaker cut it"),
            logline_uint("tokens", u.n_drawn));
}
