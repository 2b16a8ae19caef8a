/* paces.c: windows of seconds per token by kind of request, and verdicts by them.
 * Owns: nothing. Does not know: runs of verdicts, what follows from them.
 * P1 like is held against like: times of a kind are judged by that kind, or by a smaller one. */
#include "serve/paces.h"

#include <math.h>

/* If half of the baseline's last requests are slow as well, it is the machine. */
enum { SHIFT_WINDOW = 16, SHIFT_MOST = 8 };

/* One time of a request: its pace, over how many tokens, among which windows. */
struct timing {
    double seconds, n;
    struct latency_window *kinds; /* (PACE_KINDS) */
    unsigned kind;
};

static unsigned kind_of(uint64_t n, const uint64_t most[PACE_KINDS - 1])
{
    unsigned kind = 0;
    while (kind < PACE_KINDS - 1 && n > most[kind]) kind++;
    return kind;
}

static struct timing prompt_of(struct paces *p, enum length_class l, const struct outcome *o)
{
    static const uint64_t most[PACE_KINDS - 1] = { 32, 256, 2048 };
    double n = o->n_computed < most[0] ? (double)most[0] : (double)o->n_computed;
    return (struct timing){ outcome_prompt_pace(o), n, p->prompt[l], kind_of(o->n_computed, most) };
}

static struct timing token_of(struct paces *p, enum length_class l, const struct outcome *o)
{
    static const uint64_t most[PACE_KINDS - 1] = { 3, 15, 63 };
    uint64_t n = o->n_drawn > 1 ? o->n_drawn - 1 : 1;
    return (struct timing){ outcome_token_pace(o), (double)n, p->token[l], kind_of(n, most) };
}

static struct pace_verdict judge(const struct pace_options *o, const struct timing *t, double now)
{
    struct pace_verdict v = { .seconds = t->seconds, .limit = NAN };
    struct latency sum = { 0 };
    if (t->seconds <= 0) return v;
    for (unsigned k = t->kind + 1; k-- > 0 && sum.n < o->sample;) // P1
        latency_window_sum(&t->kinds[k], o->seconds, now, &sum);
    if (sum.n < o->sample) {
        v.known = v.slow = isinf(t->seconds); /* what did not end in its time is slow by itself */
        return v;
    }
    v.known = true;
    v.limit = o->ratio * latency_quantile(&sum, 0.95);
    v.slow = t->seconds > v.limit && (t->seconds - v.limit) * t->n > o->least_excess;
    return v;
}

/* By its prompt, unless that says nothing bad; then by its tokens. */
static struct pace_verdict judge_both(struct paces *p, const struct pace_options *o,
                                      enum length_class length, const struct outcome *one,
                                      double now)
{
    struct timing prompt = prompt_of(p, length, one), token = token_of(p, length, one);
    struct pace_verdict first = judge(o, &prompt, now), then = { 0 };
    if (first.slow) return first;
    then = judge(o, &token, now);
    return then.known ? then : first;
}

bool paces_have_shifted(const struct paces *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SHIFT_WINDOW; i++) n += p->beyond >> i & 1;
    return n >= SHIFT_MOST;
}

struct pace_verdict paces_judge(struct paces *p, const struct pace_options *o,
                                enum length_class length, const struct outcome *one, double now)
{
    struct pace_verdict v = judge_both(p, o, length, one, now);
    if (v.slow && !isinf(v.seconds) && paces_have_shifted(p)) v.known = v.slow = false;
    return v;
}

static void add(const struct pace_options *o, const struct timing *t, double now)
{
    if (t->seconds > 0) latency_window_add(&t->kinds[t->kind], o->seconds, now, t->seconds);
}

void paces_add(struct paces *p, const struct pace_options *o, enum length_class length,
               const struct outcome *one, double now)
{
    struct pace_verdict v = judge_both(p, o, length, one, now);
    struct timing prompt = prompt_of(p, length, one), token = token_of(p, length, one);
    if (v.known) p->beyond = p->beyond << 1 | v.slow;
    add(o, &prompt, now);
    add(o, &token, now);
}
