/* lane_step.c: one run of an engine for the jobs of its lane, and what they draw from it.
 * Owns: nothing beyond the lane. Does not know: which jobs may begin.
 * T1 every sequence that draws is in every step, with one token; prompts share what is left of the
 *    budget (prefillshare.h).
 * T2 a failure is of one job (I8). A run that is refused leaves all sequences as they were: for
 *    want of pages the job that began last gives way, which then ends; else each is tried alone.
 * T3 nothing is allocated for a token but where a text or the bytes of tokens are the largest so
 *    far, and what grammars find out for the first time; what a beginning takes is gen_open's. */
#include "serve/lane.h"

#include <string.h>

#include "base/os.h"
#include "model/sample.h"
#include "serve/prefillshare.h"

/* ---- what is computed ------------------------------------------------------------------------ */

/* Answers begin where the prompt is computed. */
static void fork_all(struct lane *l)
{
    for (struct job *job = l->running.first; job; job = job->next)
        if (!job->failed && job_may_fork(job)) job->failed = job_fork(job, &job->err) != ZP_OK;
}

/* Sequences that draw, into the batch; prompts that can go on, into their list. */
static size_t sort_out(struct lane *l, size_t *n_prompts)
{
    size_t n = 0;
    *n_prompts = 0;
    for (struct job *job = l->running.first; job; job = job->next) {
        for (uint32_t i = 0; i < job->n_open && !job->failed; i++) {
            struct choice *c = &job->choices[i];
            if (c->ended) continue;
            if (c->g.n_run) l->batch[n++] = c;
            else l->prompts[(*n_prompts)++] = c;
        }
    }
    return n;
}

/* Tokens that each prompt may take: where all rows are wanted, as many as there is room for. */
static void measure_prompts(struct lane *l, size_t n)
{
    size_t spare = lane_rows(l->engine) - l->engine->options.n_seq;
    for (size_t i = 0; i < n; i++) {
        size_t left = job_prompt_left(l->prompts[i]);
        if (l->prompts[i]->g.all_rows && left > 1) {
            if (left > spare + 1) left = spare + 1;
            spare -= left - 1;
        }
        l->left[i] = left;
    }
}

/* Fills the batch; returns its size. */
static size_t gather(struct lane *l, size_t budget)
{
    size_t n_prompts, n = sort_out(l, &n_prompts);
    size_t rest = budget > n ? budget - n : 0;
    if (rest < budget / 4) rest = budget / 4;
    measure_prompts(l, n_prompts);
    prefill_share(l->left, l->share, n_prompts, rest ? rest : 1);
    for (size_t i = 0; i < n_prompts; i++) {
        l->prompts[i]->g.chunk = l->share[i];
        if (l->share[i]) l->batch[n++] = l->prompts[i];
    }
    return n;
}

/* ---- what is told ---------------------------------------------------------------------------- */

static struct sched_event event_of(const struct choice *c, enum sched_kind kind)
{
    return (struct sched_event){ .kind = kind, .id = c->job->id, .arg = c->job->o.arg };
}

/* Appends a token's bytes to the lane's. */
static zp_status add_bytes(struct lane *l, struct sched_logprob *p, zp_err *err)
{
    const struct tokenizer *t = l->engine->model->tokenizer;
    size_t before = l->bytes.size;
    if (t) ZP_TRY(tokenizer_decode_token(t, p->id, DETOKENIZE_SPECIAL, &l->bytes, err));
    p->n_bytes = l->bytes.size - before;
    return ZP_OK;
}

static void place_bytes(const struct lane *l, struct sched_logprob *p, size_t *at)
{
    p->bytes = l->bytes.data ? (const char *)l->bytes.data + *at : NULL;
    *at += p->n_bytes;
}

/* Log-probabilities of a token by its row, and of the most likely ones. */
static zp_status find_logprobs(struct lane *l, const float *row, uint32_t n_top,
                               struct sched_token *t, zp_err *err)
{
    uint32_t n_vocab = l->engine->model->h.n_vocab;
    struct sample_logprob top[SCHED_MOST_TOP];
    ZP_TRY(sample_top(row, n_vocab, n_top, top, err));
    t->own = (struct sched_logprob){ .id = t->id };
    t->n_top = n_top, t->top = l->top, t->has_logprob = true;
    buffer_clear(&l->bytes);
    ZP_TRY(add_bytes(l, &t->own, err));
    bool found = false;
    for (uint32_t i = 0; i < n_top; i++) {
        l->top[i] = (struct sched_logprob){ .id = top[i].id, .logprob = top[i].logprob };
        ZP_TRY(add_bytes(l, &l->top[i], err));
        if (top[i].id == t->id) t->own.logprob = top[i].logprob, found = true;
    }
    if (!found) ZP_TRY(sample_logprob_of(row, n_vocab, t->id, &t->own.logprob, err));
    size_t at = 0;
    place_bytes(l, &t->own, &at);
    for (uint32_t i = 0; i < n_top; i++) place_bytes(l, &l->top[i], &at);
    return ZP_OK;
}

/* The largest probability of a row. */
static double top1_of(const struct lane *l, const float *row)
{
    float max;
    double sum;
    l->engine->kern.expsum(row, l->engine->model->h.n_vocab, &max, &sum);
    return 1 / sum;
}

/* The row of a token of the prompt tells of the next one. */
static zp_status tell_prompt_row(struct lane *l, struct choice *c, size_t index, const float *row,
                                 zp_err *err)
{
    const struct sched_job *o = &c->job->o;
    struct sched_event e = event_of(c, SCHED_PROMPT_TOKEN);
    e.token = (struct sched_token){ .index = (uint32_t)index, .id = o->prompt[index] };
    ZP_TRY(find_logprobs(l, row, o->n_top, &e.token, err));
    e.token.top1 = top1_of(l, row);
    return outbox_put(l->out, &e, err);
}

static zp_status tell_prompt(struct lane *l, struct choice *c, size_t n, const float *rows,
                             zp_err *err)
{
    const struct job *job = c->job;
    struct gen *g = &c->g;
    size_t end = g->n_reused + g->n_done, n_vocab = l->engine->model->h.n_vocab;
    for (size_t i = 0; g->all_rows && i < n && end - n + i + 1 < job->o.n_prompt; i++)
        ZP_TRY(tell_prompt_row(l, c, end - n + i + 1, rows + i * n_vocab, err));
    struct sched_event e = event_of(c, SCHED_PROGRESS);
    e.progress = (struct sched_progress){ job->o.n_prompt, job->n_reused, end,
                                          os_now() - job->begun };
    return job->o.progress && c->index == 0 ? outbox_put(l->out, &e, err) : ZP_OK;
}

/* A token that was drawn from a row, with the text that has become certain; or such text alone. */
static zp_status tell_token(struct lane *l, struct choice *c, const float *row, zp_err *err)
{
    struct job *job = c->job;
    struct gen *g = &c->g;
    bool drawn = g->n_ids > c->n_shown;
    struct sched_event e = event_of(c, SCHED_TOKEN);
    e.token = (struct sched_token){ .choice = c->index, .index = c->n_shown, .id = -1,
                                    .text = (const char *)g->text.data, .size = g->text.size };
    if (drawn) {
        struct sched_token *t = &e.token;
        t->id = g->ids[c->n_shown];
        t->top1 = top1_of(l, row);
        quality_add(&c->quality, t->top1, g->ids, c->n_shown++, t->id);
        if (job->o.logprobs) ZP_TRY(find_logprobs(l, row, job->o.n_top, t, err));
        job->n_drawn++;
        counter_add(&l->counters->drawn_tokens, 1);
    }
    return drawn || e.token.size ? outbox_put(l->out, &e, err) : ZP_OK;
}

static void end_choice(struct lane *l, struct choice *c)
{
    c->ended = true;
    c->job->n_ended++;
    l->n_sequences--;
    l->changed = true;
    job_end_choice(c);
}

static zp_status tell_end(struct lane *l, struct choice *c, zp_err *err)
{
    struct sched_event e = event_of(c, SCHED_ENDED);
    e.ended.choice = c->index;
    e.ended.reason = c->g.reason;
    e.ended.stop = (uint32_t)c->g.stream.stop_index;
    end_choice(l, c);
    return outbox_put(l->out, &e, err);
}

/* The job's last event tells of it. */
static zp_status end_embedding(struct lane *l, struct choice *c, zp_err *err)
{
    ZP_TRY(embed_finish(&c->job->embed, c->job->embedding, err));
    end_choice(l, c);
    return ZP_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* A choice's item was computed, with these rows. */
static zp_status take(struct lane *l, struct choice *c, const float *rows, zp_err *err)
{
    struct gen *g = &c->g;
    zp_item item = gen_item(g);
    size_t n_rows = gen_rows(g), n_vocab = l->engine->model->h.n_vocab;
    bool prompt = g->n_run == 0;
    buffer_clear(&g->text); /* told already */
    ZP_TRY(gen_take(g, rows, err));
    if (prompt) {
        counter_add(&l->counters->prompt_tokens, item.n);
        ZP_TRY(tell_prompt(l, c, item.n, rows, err));
        if (g->n_done < g->n_prompt) return ZP_OK;
        if (c->job->first == 0) c->job->first = os_now();
        if (g->embed) return end_embedding(l, c, err);
    }
    ZP_TRY(tell_token(l, c, rows + (n_rows - 1) * n_vocab, err));
    return g->reason ? tell_end(l, c, err) : ZP_OK;
}

/* Whose fault it is that rows were not taken. */
static enum sched_why find_fault(const struct lane *l, const float *rows, size_t n_rows,
                                 const zp_err *err)
{
    uint32_t n_vocab = l->engine->model->h.n_vocab;
    if (n_rows == 0 && err->code == ZP_RUN) return SCHED_NONFINITE; /* an embedding's */
    for (size_t i = 0; i < n_rows; i++)
        if (sample_check_finite(rows + i * n_vocab, n_vocab, NULL) != ZP_OK) return SCHED_NONFINITE;
    return err->code == ZP_BAD_INPUT ? SCHED_INVALID : SCHED_ERROR;
}

/* Returns the rows behind. */
static const float *take_or_fail(struct lane *l, struct choice *c, const float *rows)
{
    struct job *job = c->job;
    size_t n_rows = gen_rows(&c->g);
    if (!job->failed && take(l, c, rows, &job->err) != ZP_OK) {
        job->failed = true;
        job->why = find_fault(l, rows, n_rows, &job->err);
    }
    return rows + n_rows * l->engine->model->h.n_vocab;
}

static zp_status compute(struct lane *l, struct choice *const *batch, size_t n, zp_err *err)
{
    struct engine_job job = { .items = l->items, .n_items = n, .logits = l->logits,
                              .embeds = l->embeds };
    for (size_t i = 0; i < n; i++) {
        l->items[i] = gen_item(&batch[i]->g);
        l->embeds[i] = batch[i]->g.embed;
        job.rows_room += gen_rows(&batch[i]->g);
    }
    return engine_run(l->engine, &job, err);
}

static void take_all(struct lane *l, struct choice *const *batch, size_t n)
{
    const float *rows = l->logits;
    for (size_t i = 0; i < n; i++) rows = take_or_fail(l, batch[i], rows);
}

/* The last that began and has not failed yet; of those in the batch there is one. */
static void give_way(struct lane *l, const zp_err *err)
{
    struct job *job = l->running.last;
    while (job->failed) job = job->before;
    job->failed = true;
    job->err = *err;
    job_unbegin(job);
}

static size_t leave_out_failed(struct choice **batch, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!batch[i]->job->failed) batch[kept++] = batch[i];
    return kept;
}

/* T2. */
static void run(struct lane *l, size_t n)
{
    zp_err err = { 0 };
    zp_status status = ZP_OK;
    while (n && (status = compute(l, l->batch, n, &err)) == ZP_NO_MEMORY) {
        give_way(l, &err);
        n = leave_out_failed(l->batch, n);
        err.code = ZP_OK;
    }
    if (status == ZP_OK) take_all(l, l->batch, n);
    for (size_t i = 0; status != ZP_OK && i < n; i++) {
        struct job *job = l->batch[i]->job;
        if (job->failed) continue;
        job->failed = compute(l, &l->batch[i], 1, &job->err) != ZP_OK;
        if (!job->failed) take_all(l, &l->batch[i], 1);
    }
}

static void end_those_that_have(struct lane *l)
{
    for (struct job *job = l->running.first, *next; job; job = next) {
        next = job->next;
        if (job->failed) lane_end(l, job, SCHED_FAILED, job->why);
        else if (job->n_ended == job->o.n_choices) lane_end(l, job, SCHED_DONE, SCHED_WHY_NONE);
    }
}

size_t lane_step(struct lane *l, size_t budget, size_t *n_sequences)
{
    uint64_t before = l->engine->tokens;
    fork_all(l);
    size_t n = gather(l, budget);
    run(l, n);
    end_those_that_have(l);
    counter_add(&l->counters->step_sequences, n);
    *n_sequences = n;
    return (size_t)(l->engine->tokens - before);
}
