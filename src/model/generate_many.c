/* generate_many.c: zp_generate_many: jobs in turn on as many sequences as the engine has; the next
 * tokens of all of them are computed in one run.
 * Owns: the sequences and generations of one call. Does not know: how a token comes about.
 * M1 jobs begin in their order. What one gives does not depend on its company (generate.c, N3).
 * M2 a beginning that jobs share is computed once, as far as it fills tiles of the prefix cache: a
 *    job that would share with one whose prompt is about to be computed begins after it.
 * M3 a failure that is of one job names it. Whatever else has ended by then keeps its result.
 * M4 the jobs under way have pages for all they may come to: where the KV budget is for fewer, the
 *    others wait. */
#include <string.h>

#include "model/generate.h"

struct many {
    struct zp_engine *e;
    const zp_seq_options *seq_options;
    zp_job *jobs;
    size_t n_jobs, n_begun, n_ended;
    struct slot { struct gen g; zp_job *job; } *slots; /* (most) */
    struct gen **active;                               /* (most): of them, those under way */
    size_t n_active, most;
    zp_item *items; /* (most) */
    float *logits;  /* (most * (1 + the longest draft), n_vocab) */
};

static zp_status open_many(struct many *m, zp_err *err)
{
    size_t n_seq = m->e->options.n_seq, n_rows = 1;
    m->most = n_seq < m->n_jobs ? n_seq : m->n_jobs;
    for (size_t i = 0; i < m->n_jobs; i++) {
        size_t n_draft = m->jobs[i].options ? m->jobs[i].options->n_draft : 0;
        if (n_draft > GEN_MOST_DRAFT) n_draft = GEN_MOST_DRAFT; /* gen_open refuses it */
        if (1 + n_draft > n_rows) n_rows = 1 + n_draft;
    }
    ZP_ALLOC(m->slots, MEM_META, m->most, err, "the generations");
    memset(m->slots, 0, m->most * sizeof *m->slots);
    ZP_ALLOC(m->active, MEM_META, m->most, err, "the list of generations");
    ZP_ALLOC(m->items, MEM_META, m->most, err, "the batch");
    ZP_ALLOC(m->logits, MEM_SCRATCH, m->most * n_rows * m->e->model->h.n_vocab, err, "logits");
    return ZP_OK;
}

static void close_slot(struct slot *s)
{
    gen_close(&s->g);
    zp_seq_close(s->g.seq);
    *s = (struct slot){ 0 };
}

static void close_many(struct many *m)
{
    for (size_t i = 0; m->slots && i < m->most; i++) close_slot(&m->slots[i]);
    mem_free(m->slots);
    mem_free(m->active);
    mem_free(m->items);
    mem_free(m->logits);
}

static zp_status name_job(const struct many *m, const struct gen *g, zp_status status, zp_err *err)
{
    const struct slot *s = (const struct slot *)g; /* its first member */
    if (status != ZP_OK) status_add_index(err, "job", (size_t)(s->job - m->jobs));
    return status;
}

static zp_status begin_job(struct many *m, struct slot *s, zp_err *err)
{
    static const zp_generate_options defaults = { 0 };
    s->job = &m->jobs[m->n_begun++];
    s->g.o = s->job->options ? s->job->options : &defaults;
    s->g.prompt = s->job->prompt;
    s->g.n_prompt = s->job->n_prompt;
    ZP_TRY(zp_seq_open(&s->g.seq, m->e, m->seq_options, err));
    return name_job(m, &s->g, gen_open(&s->g, err), err);
}

/* Tokens of full tiles that a prompt can take over from another one. */
static size_t shared_tiles(const zp_job *a, const zp_job *from)
{
    size_t n = 0, most = a->prompt && a->n_prompt ? a->n_prompt - 1 : 0;
    if (from->n_prompt < most) most = from->n_prompt;
    while (n < most && a->prompt[n] == from->prompt[n]) n++;
    return n / KERN_TILE * KERN_TILE;
}

/* Pages that a job takes at most. */
static size_t most_pages(const struct many *m, const zp_job *job)
{
    size_t n_ctx = m->e->options.n_ctx, n = job->options ? job->options->n_predict : 0;
    bool all = n == 0 || n >= n_ctx || job->n_prompt >= n_ctx - n;
    return kvcache_pages_needed(&m->e->model->position, (uint32_t)(all ? n_ctx : job->n_prompt + n),
                                m->e->options.micro_batch);
}

/* Whether the next job would find more in the prefix cache one run later (M2), or might not find
 * the pages it needs beside those under way (M4). */
static bool next_waits(const struct many *m)
{
    const zp_job *next = &m->jobs[m->n_begun];
    size_t n_pages = most_pages(m, next), n_active = 0;
    for (size_t i = 0; i < m->most; i++) {
        const struct slot *s = &m->slots[i];
        if (!s->job || s->g.reason) continue;
        if (m->e->options.prefix_cache && s->g.n_run == 0 &&
            shared_tiles(next, s->job) > s->g.n_reused)
            return true;
        n_pages += most_pages(m, s->job);
        n_active++;
    }
    return n_active && n_pages > m->e->kv.pages.n_pages;
}

/* Results of those that ended are given away. */
static void give_results(struct many *m)
{
    for (size_t i = 0; m->slots && i < m->most; i++) {
        struct slot *s = &m->slots[i];
        if (!s->job || !s->g.reason) continue;
        gen_result(&s->g, &s->job->result);
        close_slot(s);
        m->n_ended++;
    }
}

/* Jobs that wait take the places of those that ended. */
static zp_status turn_over(struct many *m, zp_err *err)
{
    give_results(m);
    m->n_active = 0;
    for (size_t i = 0; i < m->most; i++) {
        struct slot *s = &m->slots[i];
        if (!s->job && m->n_begun < m->n_jobs && !next_waits(m)) ZP_TRY(begin_job(m, s, err));
        if (s->job) m->active[m->n_active++] = &s->g;
    }
    return ZP_OK;
}

/* The next tokens of all that are under way. */
static zp_status step(struct many *m, zp_err *err)
{
    size_t failed;
    zp_status status =
        gen_step(m->e, m->active, m->n_active, m->items, m->logits, NULL, &failed, err);
    if (failed == m->n_active) return status;
    m->active[failed]->reason = NULL; /* whatever ended it, its text is not whole */
    return name_job(m, m->active[failed], status, err);
}

static zp_status run_many(struct many *m, const zp_progress *progress, zp_err *err)
{
    ZP_TRY(open_many(m, err));
    ZP_TRY(turn_over(m, err));
    while (m->n_active > 0) {
        ZP_TRY(step(m, err));
        ZP_TRY(turn_over(m, err));
        bool go_on = !progress || !progress->fn ||
                     progress->fn(progress->arg, "answers", m->n_ended, m->n_jobs);
        ZP_FAIL_IF(!go_on && m->n_active, err, ZP_INTERRUPTED, "stopped after %zu of %zu answers",
                   m->n_ended, m->n_jobs);
    }
    return ZP_OK;
}

zp_status zp_generate_many(zp_engine *e, const zp_seq_options *seq_options, zp_job *jobs,
                           size_t n_jobs, const zp_progress *progress, zp_err *err)
{
    struct many m = { .e = e, .seq_options = seq_options, .jobs = jobs, .n_jobs = n_jobs };
    for (size_t i = 0; i < n_jobs; i++) jobs[i].result = (zp_generated){ 0 };
    zp_status status = run_many(&m, progress, err);
    give_results(&m); /* after a failure */
    close_many(&m);
    return status;
}
