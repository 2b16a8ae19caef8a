/* schedjob.c: what was asked for, copied and checked, and the sequences that answer it.
 * Owns: one job's memory, sequences and generations. Does not know: other jobs, threads.
 * J1 all that can be refused is refused in job_open, by the caller's thread, before anything is
 *    copied: what it reads of an engine never changes.
 * J2 the choices of a job share its prompt but the last token: the first computes it, the others
 *    fork there, and each computes the last one. So each begins as a job of its own would.
 * J3 a fork gets its own copy of the tile it writes to at once: while it is shared, a run would
 *    want a page for each of those that share it, one more than are taken. */
#include "serve/schedjob.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"
#include "model/sample.h"
#include "model/seq.h"
#include "serve/lane.h"

/* ---- checks ---------------------------------------------------------------------------------- */

void job_refuse(struct job *job, enum sched_why why, uint64_t found, uint64_t most)
{
    job->refusal = (struct sched_event){ .kind = SCHED_REFUSED, .why = why, .arg = job->o.arg,
                                         .refusal = { found, most, 0 }, .err = &job->err };
}

static zp_generate_options options_of(const struct job *job, uint32_t choice)
{
    zp_generate_options o = { .n_predict = job->o.n_predict, .sampler = job->o.sampler,
                              .stop = job->o.stop, .n_stop = job->o.n_stop,
                              .ignore_end = job->o.ignore_end };
    o.sampler.seed += choice;
    return o;
}

static zp_status check_choices(const struct sched_job *o, const struct zp_engine *e, zp_err *err)
{
    uint32_t n_vocab = e->model->h.n_vocab;
    ZP_FAIL_IF(o->n_choices > e->options.n_seq, err, ZP_BAD_INPUT,
               "%u answers to one prompt; the engine computes at most %u sequences at a time",
               o->n_choices, e->options.n_seq);
    ZP_FAIL_IF(o->n_begun >= o->n_prompt || (o->n_begun && o->n_choices > 1), err, ZP_USAGE,
               "%zu of %zu tokens drawn before, for %u answers", o->n_begun, o->n_prompt,
               o->n_choices);
    ZP_FAIL_IF(o->n_top > SCHED_MOST_TOP || o->n_top > n_vocab, err, ZP_BAD_INPUT,
               "log-probabilities of the %u most likely tokens; at most %u", o->n_top,
               n_vocab < SCHED_MOST_TOP ? n_vocab : SCHED_MOST_TOP);
    return ZP_OK;
}

static zp_status check_stops(const struct sched_job *o, const struct zp_engine *e, zp_err *err)
{
    struct textstream stream;
    if (o->n_stop == 0) return ZP_OK;
    ZP_FAIL_IF(!o->stop, err, ZP_USAGE, "the stop strings are missing");
    zp_status status = textstream_init(&stream, e->model->tokenizer, DETOKENIZE_CONTINUES, o->stop,
                                       o->n_stop, err);
    textstream_free(&stream);
    return status;
}

/* Tokens that are expected in all: what mode auto goes by. */
static uint64_t expected(const struct job *job, uint32_t n_ctx)
{
    const struct sched_job *o = &job->o;
    uint64_t n = o->context_length_hint;
    if (o->embeds) return o->n_prompt;
    if (n == 0) n = o->n_predict ? o->n_prompt + (uint64_t)o->n_predict : n_ctx;
    return n < o->n_prompt ? o->n_prompt : n;
}

static zp_status check_embedding(struct job *job, const struct zp_engine *e, zp_err *err)
{
    const struct sched_job *o = &job->o;
    ZP_FAIL_IF(o->n_choices > 1 || o->n_begun, err, ZP_USAGE, "a text has one embedding");
    ZP_TRY(embed_resolve(e->model, o->pooling, &job->o.pooling, err));
    job->o.no_reuse |= !embed_may_reuse(job->o.pooling);
    ZP_TRY(embed_check(e, o->prompt, o->n_prompt, err));
    return seq_resolve_mode(e, o->mode, expected(job, e->options.n_ctx), &job->mode, err);
}

static zp_status check(struct job *job, const struct zp_engine *e, zp_err *err)
{
    const struct sched_job *o = &job->o;
    zp_generate_options options = options_of(job, 0);
    if (o->embeds) return check_embedding(job, e, err);
    ZP_TRY(gen_check(e, 0, o->prompt, o->n_prompt, &options, err));
    ZP_TRY(sample_check(&o->sampler, e->model, err));
    ZP_TRY(check_stops(o, e, err));
    ZP_TRY(check_choices(o, e, err));
    return seq_resolve_mode(e, o->mode, expected(job, e->options.n_ctx), &job->mode, err);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* That a fork takes, beside what it shares, until it has n positions. */
static size_t fork_pages(const struct job *job, const struct zp_engine *e, uint32_t n)
{
    uint32_t at = (uint32_t)job->o.n_prompt - 1;
    return kvcache_fork_pages(&e->position, at, n - at, e->options.micro_batch);
}

static size_t pages_for(const struct job *job, const struct zp_engine *e, uint32_t n)
{
    return kvcache_pages_needed(&e->position, n, e->options.micro_batch) +
           (job->o.n_choices - 1) * fork_pages(job, e, n);
}

/* The most positions below n whose pages the pool holds. */
static uint32_t positions_that_fit(const struct job *job, const struct zp_engine *e, uint32_t n)
{
    uint32_t low = (uint32_t)job->o.n_prompt - 1;
    while (low + 1 < n) {
        uint32_t middle = low + (n - low) / 2;
        if (pages_for(job, e, middle) <= e->kv.pages.n_pages) low = middle;
        else n = middle;
    }
    return low;
}

static void plan(struct job *job, const struct zp_engine *e, uint32_t reserve)
{
    uint64_t n = job->o.n_predict, n_ctx = e->options.n_ctx;
    if (n == 0) n = n_ctx;
    if (reserve && reserve < n) n = reserve;
    if (job->o.embeds) n = 0;
    n += job->o.n_prompt;
    job->n_positions = (uint32_t)(n < n_ctx ? n : n_ctx);
    job->n_pages = pages_for(job, e, job->n_positions);
    if (job->n_pages <= e->kv.pages.n_pages) return;
    uint32_t most = positions_that_fit(job, e, job->n_positions);
    status_fail(&job->err, ZP_BAD_INPUT, __FILE__, __LINE__,
                "the prompt of %zu tokens and its answers need pages for %u positions, the KV "
                "budget holds %u; ask for fewer tokens or answers, or raise --kv-memory",
                job->o.n_prompt, job->n_positions, most);
    job_refuse(job, SCHED_TOO_LONG, job->n_positions, most);
}

size_t job_pages_wanted(const struct job *job)
{
    const struct zp_engine *e = job->lane->engine;
    size_t n = job->forked ? 0 : (job->o.n_choices - 1) * fork_pages(job, e, job->n_positions);
    for (uint32_t i = 0; i < job->n_open; i++) {
        const struct choice *c = &job->choices[i];
        if (!c->g.seq) continue;
        uint32_t length = zp_seq_length(c->g.seq),
                 more = length < job->n_positions ? job->n_positions - length : 0;
        n += kv_table_pages_wanted(&c->g.seq->kv, &e->kv, more);
    }
    return n;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status copy_stops(struct job *job, zp_err *err)
{
    size_t n = job->o.n_stop;
    const char **stops;
    if (n == 0) return ZP_OK;
    ZP_TAKE(stops, &job->arena, n, err, "the stop strings of a job");
    for (size_t i = 0; i < n; i++) {
        stops[i] = arena_strndup(&job->arena, job->o.stop[i], TEXTSTREAM_MAX_STOP_SIZE);
        ZP_FAIL_IF(!stops[i], err, ZP_NO_MEMORY, "not enough memory for a stop string");
    }
    job->o.stop = stops;
    return ZP_OK;
}

static zp_status open_embedding(struct job *job, zp_err *err)
{
    struct embed *m = &job->embed;
    *m = (struct embed){ .pooling = job->o.pooling, .raw = job->o.raw,
                         .width = job->lane->engine->model->h.d_model };
    ZP_TAKE(m->sum, &job->arena, m->width, err, "the embedding of a job");
    ZP_TAKE(job->embedding, &job->arena, m->width, err, "the embedding of a job");
    return ZP_OK;
}

static zp_status copy_anchors(struct job *job, zp_err *err)
{
    zp_anchor *anchors;
    if (job->o.n_anchors == 0) return ZP_OK;
    ZP_TAKE(anchors, &job->arena, job->o.n_anchors, err, "the anchors of a job");
    job->o.anchors = memcpy(anchors, job->o.anchors, job->o.n_anchors * sizeof *anchors);
    return ZP_OK;
}

static zp_status copy(struct job *job, zp_err *err)
{
    struct sched_job *o = &job->o;
    int32_t *ids;
    zp_bias *bias;
    ZP_TAKE(ids, &job->arena, o->n_prompt, err, "the prompt of a job");
    o->prompt = memcpy(ids, o->prompt, o->n_prompt * sizeof *ids);
    ZP_TAKE(bias, &job->arena, o->sampler.n_bias, err, "the logit bias of a job");
    if (o->sampler.n_bias) memcpy(bias, o->sampler.bias, o->sampler.n_bias * sizeof *bias);
    o->sampler.bias = bias;
    ZP_TRY(copy_anchors(job, err));
    ZP_TRY(copy_stops(job, err));
    if (o->embeds) ZP_TRY(open_embedding(job, err));
    ZP_TAKE(job->choices, &job->arena, o->n_choices, err, "the answers of a job");
    for (uint32_t i = 0; i < o->n_choices; i++)
        job->choices[i] = (struct choice){ .job = job, .index = i, .o = options_of(job, i) };
    return ZP_OK;
}

static zp_status fill(struct job *job, const struct sched_options *o, zp_err *err)
{
    const struct zp_engine *e = job->lane ? job->lane->engine : NULL;
    if (!e) {
        status_fail(&job->err, ZP_RUN, __FILE__, __LINE__, "no engine takes jobs of slot %u",
                    job->o.slot);
        job_refuse(job, SCHED_NO_ENGINE, 0, 0);
        return ZP_OK;
    }
    zp_status status = check(job, e, &job->err);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, status, "%s", job->err.message);
    bool too_long = job->o.n_prompt >= e->options.n_ctx + (size_t)job->o.embeds;
    if (too_long) job_refuse(job, SCHED_TOO_LONG, job->o.n_prompt, e->options.n_ctx);
    else if (status != ZP_OK) job_refuse(job, SCHED_INVALID, 0, 0);
    else plan(job, e, o->reserve);
    return job->refusal.kind == SCHED_REFUSED ? ZP_OK : copy(job, err); /* J1 */
}

zp_status job_open(struct job **out, const struct sched_job *given, struct lane *lane,
                   const struct sched_options *o, zp_err *err)
{
    *out = NULL;
    struct job *job = mem_zalloc(MEM_SERVE, sizeof *job);
    ZP_FAIL_IF(!job, err, ZP_NO_MEMORY, "not enough memory for a job");
    job->o = *given;
    job->arena.tag = MEM_SERVE;
    job->lane = lane;
    job->why = SCHED_ERROR;
    if (job->o.n_choices == 0) job->o.n_choices = 1;
    if (job->o.arrived == 0) job->o.arrived = os_now();
    zp_status status = fill(job, o, err);
    if (status != ZP_OK) job_close(job);
    else *out = job;
    return status;
}

void job_close(struct job *job)
{
    arena_free(&job->arena);
    mem_free(job);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Grammar and text stand where they stood behind what was drawn before; that text was told. */
static zp_status go_on(struct gen *g, size_t n_begun, zp_err *err)
{
    const int32_t *ids = g->prompt + g->n_prompt - n_begun;
    bool stop = false;
    for (size_t i = 0; i < n_begun; i++) {
        ZP_TRY(zp_sampler_accept(g->sampler, ids[i], err));
        buffer_clear(&g->piece);
        if (g->has_text) ZP_TRY(textstream_push(&g->stream, ids[i], &g->piece, &stop, err));
        ZP_FAIL_IF(stop, err, ZP_BAD_INPUT, "the answer has ended before: it holds a stop string");
    }
    return ZP_OK;
}

zp_status job_begin(struct job *job, zp_err *err)
{
    struct choice *c = &job->choices[0];
    zp_seq_options o = { .mode = job->mode, .salt = job->o.salt, .anchors = job->o.anchors,
                         .n_anchors = job->o.n_anchors };
    job->n_open = 1;
    job->forked = job->o.n_choices == 1;
    ZP_TRY(seq_open(&c->g.seq, job->lane->engine, &o, err));
    c->g.o = &c->o;
    c->g.prompt = job->o.prompt;
    c->g.n_prompt = job->o.n_prompt;
    c->g.all_rows = job->o.prompt_logprobs;
    c->g.no_reuse = job->o.no_reuse || job->o.prompt_logprobs;
    if (job->o.embeds) {
        job->embed.n = 0;
        c->g.embed = &job->embed;
    }
    ZP_TRY(gen_open(&c->g, err));
    ZP_TRY(go_on(&c->g, job->o.n_begun, err));
    job->n_reused = c->g.n_reused;
    return ZP_OK;
}

static size_t left(const struct choice *c)
{
    return c->g.n_prompt - c->g.n_done;
}

bool job_may_fork(const struct job *job)
{
    return !job->forked && left(&job->choices[0]) == 1;
}

zp_status job_fork(struct job *job, zp_err *err)
{
    const zp_seq *first = job->choices[0].g.seq;
    struct zp_engine *e = job->lane->engine;
    size_t n = job->o.n_prompt - 1;
    assert(zp_seq_length(first) == n); /* J2 */
    job->forked = true;
    while (job->n_open < job->o.n_choices) {
        struct choice *c = &job->choices[job->n_open++];
        ZP_TRY(zp_seq_fork(&c->g.seq, first, (uint32_t)n, err));
        ZP_TRY(kv_table_reserve(&c->g.seq->kv, &e->kv, 1, 0, e->model->h.n_layer, err)); /* J3 */
        c->o.history = job->o.prompt;
        c->o.n_history = n;
        c->g.o = &c->o;
        c->g.prompt = job->o.prompt + n;
        c->g.n_prompt = 1;
        ZP_TRY(gen_open(&c->g, err));
    }
    return ZP_OK;
}

void job_end_choice(struct choice *c)
{
    gen_close(&c->g);
    zp_seq_close(c->g.seq);
    c->g = (struct gen){ 0 };
}

void job_unbegin(struct job *job)
{
    while (job->n_open > 0) job_end_choice(&job->choices[--job->n_open]);
    job->forked = false;
}

size_t job_prompt_left(const struct choice *c)
{
    size_t n = left(c);
    return n && !c->job->forked ? n - 1 : n;
}

size_t job_common(const struct job *job, const struct job *other)
{
    size_t n = 0, most = job->o.n_prompt - 1;
    if (other->o.n_prompt < most) most = other->o.n_prompt;
    while (n < most && job->o.prompt[n] == other->o.prompt[n]) n++;
    return n / KERN_TILE * KERN_TILE;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void job_tell_usage(const struct job *job, double now, struct sched_usage *out)
{
    struct quality all = { 0 };
    double arrived = job->o.arrived;
    for (uint32_t i = 0; i < job->o.n_choices; i++) quality_merge(&all, &job->choices[i].quality);
    *out = (struct sched_usage){ .slot = job->o.slot,
                                 .mode = job->mode,
                                 .phase = job->first ? SCHED_DRAWING
                                                     : job->begun ? SCHED_PROMPT : SCHED_QUEUED,
                                 .n_prompt = job->o.n_prompt,
                                 .n_reused = job->n_reused,
                                 .n_drawn = job->n_drawn,
                                 .queue_seconds = (job->begun ? job->begun : now) - arrived,
                                 .total_seconds = now - arrived,
                                 .top1_mean = all.mean,
                                 .top1_std = quality_std(&all),
                                 .loop = all.loop };
    if (job->first) {
        out->first_seconds = job->first - arrived;
        out->prompt_seconds = job->first - job->begun;
        out->draw_seconds = now - job->first;
    } else if (job->begun) out->prompt_seconds = now - job->begun;
}

void job_list_add(struct job_list *l, struct job *job)
{
    job->before = l->last;
    job->next = NULL;
    if (l->last) l->last->next = job;
    else l->first = job;
    l->last = job;
    l->n++;
    l->n_tokens += job->o.n_prompt;
}

void job_list_remove(struct job_list *l, struct job *job)
{
    if (job->before) job->before->next = job->next;
    else l->first = job->next;
    if (job->next) job->next->before = job->before;
    else l->last = job->before;
    l->n--;
    l->n_tokens -= job->o.n_prompt;
}
