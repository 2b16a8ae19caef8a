/* lane.c: which jobs of an engine begin, and how they end.
 * Owns: the lists of jobs, seats and pages promised to them. Does not know: sockets, threads.
 * Threads: opened and closed by the caller's, used by the scheduler's.
 * L1 a job begins only where all its answers have a seat (n_seq of the engine) and all pages that
 *    they may come to want, beside those promised to others: no run finds the pool empty, unless
 *    the option `reserve` promises less. One that fits into an empty pool begins there.
 * L2 jobs begin in the order they came. One that cannot begin yet may be overtaken by
 *    `most_overtaken` others that can; then it is the next. So a small job waits for a large one no
 *    longer than those under way at that moment take, and a large one is never passed for ever.
 * L3 a job whose beginning another is computing waits for it, as far as tiles of the prefix cache
 *    go; in the sense of L2 it cannot begin yet.
 * L4 after its last event the scheduler knows a job no more: the caller frees it. */
#include "serve/lane.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/os.h"

/* Rows for prompts whose log-probabilities are wanted, beside one of every sequence. */
enum { PROMPT_ROWS = 16 };
/* Jobs that are asked whether they can begin before one that came earlier. */
enum { MOST_ASKED = 64 };

size_t lane_rows(const zp_engine *e)
{
    return e->options.n_seq + PROMPT_ROWS;
}

uint64_t lane_bytes(const zp_engine *e)
{
    uint64_t row = e->model->h.n_vocab * sizeof(float);
    uint64_t sequence = 2 * sizeof(struct choice *) + 2 * sizeof(size_t) + sizeof(zp_item) +
                        sizeof(struct embed *);
    return sizeof(struct lane) + lane_rows(e) * row + e->options.n_seq * sequence;
}

static zp_status fill(struct lane *l, zp_err *err)
{
    size_t n = l->engine->options.n_seq, n_vocab = l->engine->model->h.n_vocab;
    l->bytes = buffer_with_max(MEM_SERVE, (size_t)64 << 20);
    ZP_ALLOC(l->batch, MEM_SERVE, n, err, "the batch");
    ZP_ALLOC(l->prompts, MEM_SERVE, n, err, "the prompts");
    ZP_ALLOC(l->left, MEM_SERVE, n, err, "the lengths of prompts");
    ZP_ALLOC(l->share, MEM_SERVE, n, err, "the shares of prompts");
    ZP_ALLOC(l->items, MEM_SERVE, n, err, "the batch's items");
    ZP_ALLOC(l->embeds, MEM_SERVE, n, err, "the batch's pools");
    ZP_ALLOC(l->logits, MEM_SERVE, lane_rows(l->engine) * n_vocab, err, "the batch's logits");
    return ZP_OK;
}

zp_status lane_open(struct lane **out, zp_engine *e, uint32_t slot, const struct sched_options *o,
                    struct outbox *box, struct sched_counters *counters, zp_err *err)
{
    *out = NULL;
    struct lane *l = mem_zalloc(MEM_SERVE, sizeof *l);
    ZP_FAIL_IF(!l, err, ZP_NO_MEMORY, "not enough memory for the jobs of an engine");
    l->engine = e;
    l->slot = slot;
    l->o = o;
    l->out = box;
    l->counters = counters;
    l->room = e->kv.pages.n_free + e->kv.pages.n_idle;
    zp_status status = fill(l, err);
    if (status != ZP_OK) lane_close(l);
    else *out = l;
    return status;
}

void lane_close(struct lane *l)
{
    buffer_free(&l->bytes);
    mem_free(l->batch);
    mem_free(l->prompts);
    mem_free(l->left);
    mem_free(l->share);
    mem_free(l->items);
    mem_free(l->embeds);
    mem_free(l->logits);
    mem_free(l);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* What is neither held nor promised (L1), with a job more or NULL. False: more is promised than
 * there is. Steps change nothing: what they take was promised before. Ends leave it too small until
 * it is counted again. */
static bool count_room(struct lane *l, const struct job *more)
{
    size_t have = l->engine->kv.pages.n_free + l->engine->kv.pages.n_idle;
    size_t wanted = more ? job_pages_wanted(more) : 0;
    for (const struct job *job = l->running.first; job; job = job->next)
        wanted += job_pages_wanted(job);
    l->room = wanted < have ? have - wanted : 0;
    return wanted <= have;
}

/* L3. */
static bool is_being_computed(const struct lane *l, const struct job *job)
{
    if (!l->engine->options.prefix_cache || job->o.no_reuse || job->o.prompt_logprobs ||
        job->o.n_anchors != 0)
        return false;
    for (const struct job *other = l->running.first; other; other = other->next) {
        if (other->first || other->failed || other->o.n_anchors != 0) continue;
        if (other->mode != job->mode || other->o.salt != job->o.salt) continue;
        if (job_common(job, other) > zp_seq_length(other->choices[0].g.seq)) return true;
    }
    return false;
}

/* Whether a job has begun; a failure is told by the next step. Reuse makes it smaller than planned,
 * which is known only afterwards: the first in line is tried even where it does not seem to fit. In
 * windows reuse also makes pages common, whose owners then may want more: it is taken back. */
static bool try_begin(struct lane *l, struct job *job, bool is_first)
{
    if (l->n_sequences + job->o.n_choices > l->engine->options.n_seq) return false;
    if (job->n_pages > l->room && !is_first) return false;
    if (is_being_computed(l, job)) {
        l->changed = true; /* to be asked again after the next step */
        return false;
    }
    job->failed = job_begin(job, &job->err) != ZP_OK;
    if (job->failed || count_room(l, job)) return true;
    job_unbegin(job);
    count_room(l, NULL);
    return false;
}

static void start(struct lane *l, struct job *job)
{
    job->begun = os_now();
    job_list_add(&l->running, job);
    l->n_sequences += job->o.n_choices;
    counter_add(&l->counters->reused_tokens, job->n_reused);
}

/* L2. Who passes a job passes all that came before it: the first was overtaken most often. */
static bool may_overtake(const struct lane *l)
{
    return l->waiting.n == 0 || l->waiting.first->overtaken < l->o->most_overtaken;
}

static void overtake(struct job *first, const struct job *end)
{
    for (struct job *job = first; job != end; job = job->next) job->overtaken++;
}

bool lane_take(struct lane *l, struct job *job, bool may_begin)
{
    l->changed |= !may_begin;
    if (!may_begin || !may_overtake(l) || !try_begin(l, job, l->waiting.n == 0)) {
        job_list_add(&l->waiting, job);
        return true;
    }
    overtake(l->waiting.first, NULL);
    start(l, job);
    return false;
}

void lane_refuse(struct lane *l, struct job *job)
{
    job_list_remove(&l->waiting, job);
}

void lane_begin(struct lane *l)
{
    struct job *job = l->waiting.first, *next;
    if (!l->changed) return;
    l->changed = false;
    count_room(l, NULL);
    for (uint32_t asked = 0; job && asked < MOST_ASKED; job = next, asked++) {
        bool first = job == l->waiting.first;
        next = job->next;
        if (l->n_sequences == l->engine->options.n_seq || !(first || may_overtake(l))) return;
        if (!try_begin(l, job, first)) continue;
        overtake(l->waiting.first, job);
        job_list_remove(&l->waiting, job);
        start(l, job);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

void lane_end(struct lane *l, struct job *job, enum sched_kind kind, enum sched_why why)
{
    struct sched_event e = { .kind = kind, .why = why, .id = job->id, .arg = job->o.arg,
                             .err = kind == SCHED_FAILED ? &job->err : NULL,
                             .embedding = kind == SCHED_DONE ? job->embedding : NULL };
    job_tell_usage(job, os_now(), &e.usage);
    if (job->begun) {
        job_list_remove(&l->running, job);
        l->n_sequences -= job->o.n_choices - job->n_ended;
        job_unbegin(job);
    } else job_list_remove(&l->waiting, job);
    l->changed = true;
    outbox_put(l->out, &e, NULL); /* L4; it is small enough */
}

static void end_late(struct lane *l, struct job *job)
{
    job->err.code = ZP_OK;
    status_fail(&job->err, ZP_INTERRUPTED, __FILE__, __LINE__,
                "the deadline passed with %zu tokens drawn", job->n_drawn);
    lane_end(l, job, SCHED_FAILED, SCHED_LATE);
}

static void sweep(struct lane *l, struct job *first, double now, enum sched_why all)
{
    for (struct job *job = first, *next; job; job = next) {
        next = job->next;
        bool cancelled = atomic_load(&job->cancelled);
        if (cancelled || all) lane_end(l, job, SCHED_CANCELLED, cancelled ? SCHED_BY_CALLER : all);
        else if (job->o.deadline && job->o.deadline <= now) end_late(l, job);
    }
}

void lane_sweep(struct lane *l, double now, enum sched_why all)
{
    sweep(l, l->waiting.first, now, all);
    sweep(l, l->running.first, now, all);
}

static double first_deadline(const struct job *job, double first)
{
    for (; job; job = job->next)
        if (job->o.deadline && job->o.deadline < first) first = job->o.deadline;
    return first;
}

double lane_deadline(const struct lane *l)
{
    return first_deadline(l->running.first, first_deadline(l->waiting.first, INFINITY));
}

bool lane_draws(const struct lane *l)
{
    for (const struct job *job = l->running.first; job; job = job->next)
        if (job->first) return true;
    return false;
}

void lane_drop_cache(struct lane *l)
{
    struct kvcache *kv = &l->engine->kv;
    if (l->engine->options.prefix_cache)
        prefix_make_room(&kv->prefix, kv, kv->pages.n_free + kv->pages.n_idle);
}
