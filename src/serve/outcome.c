/* outcome.c: outcomes of jobs, their names, and times that can be compared.
 * Owns: nothing. Does not know: rules. */
#include "serve/outcome.h"

#include <math.h>
#include <stddef.h>

#include "serve/scheduler.h"

enum { LEAST_COMPUTED = 32 }; /* below, a step takes as long as with more */

static enum outcome_end end_of(const struct sched_event *e)
{
    if (e->kind == SCHED_DONE) return OUTCOME_DONE;
    if (e->kind == SCHED_CANCELLED || e->why == SCHED_INVALID) return OUTCOME_CANCELLED;
    if (e->why == SCHED_LATE) return OUTCOME_LATE;
    return e->why == SCHED_NONFINITE ? OUTCOME_NONFINITE : OUTCOME_FAILED;
}

struct outcome outcome_of_event(const struct sched_event *e)
{
    const struct sched_usage *u = &e->usage;
    return (struct outcome){ .end = end_of(e),
                             .n_computed = u->n_prompt - u->n_reused,
                             .n_drawn = u->n_drawn,
                             .queue_seconds = u->queue_seconds,
                             .first_seconds = u->first_seconds,
                             .total_seconds = u->total_seconds,
                             .top1_mean = u->top1_mean,
                             .top1_std = u->top1_std,
                             .loop = u->loop };
}

const char *variant_name(enum variant v)
{
    return v == VARIANT_CANDIDATE ? "candidate" : "baseline";
}

const char *length_name(enum length_class l)
{
    static const char *const names[LENGTHS] = { "short", "medium", "long" };
    return names[l];
}

const char *outcome_name(enum outcome_end end)
{
    static const char *const names[] = {
#define OUTCOME_TEXT(name, text) text,
        OUTCOMES(OUTCOME_TEXT)
#undef OUTCOME_TEXT
    };
    return names[end];
}

bool outcome_is_error(enum outcome_end end)
{
    return end == OUTCOME_LATE || end == OUTCOME_FAILED || end == OUTCOME_NONFINITE;
}

struct outcome outcome_checked(const struct outcome *o)
{
    struct outcome good = *o;
    double *const times[] = { &good.queue_seconds, &good.first_seconds, &good.total_seconds };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!isfinite(*times[i]) || *times[i] < 0) *times[i] = 0;
    if (isfinite(o->top1_mean) && isfinite(o->top1_std)) return good;
    good.end = OUTCOME_NONFINITE;
    good.top1_mean = good.top1_std = 0;
    return good;
}

bool outcome_has_quality(const struct outcome *o)
{
    return o->n_drawn >= OUTCOME_LEAST_TOKENS && o->end != OUTCOME_NONFINITE;
}

double outcome_first(const struct outcome *o)
{
    if (o->first_seconds > 0) return o->first_seconds;
    return o->end == OUTCOME_LATE ? INFINITY : 0;
}

double outcome_total(const struct outcome *o)
{
    return o->end == OUTCOME_LATE ? INFINITY : o->end == OUTCOME_DONE ? o->total_seconds : 0;
}

double outcome_prompt_pace(const struct outcome *o)
{
    double n = o->n_computed < LEAST_COMPUTED ? LEAST_COMPUTED : (double)o->n_computed;
    double first = outcome_first(o);
    if (isinf(first) && o->queue_seconds >= o->total_seconds) return 0; /* it never began */
    return first > o->queue_seconds ? (first - o->queue_seconds) / n : 0;
}

double outcome_token_pace(const struct outcome *o)
{
    if (o->first_seconds <= 0) return 0;
    if (o->end == OUTCOME_LATE && o->n_drawn < 2) return INFINITY;
    if (o->n_drawn < 2 || o->total_seconds <= o->first_seconds) return 0;
    return (o->total_seconds - o->first_seconds) / (double)(o->n_drawn - 1);
}
