/* engine.c: places a model for execution and cuts batches into micro-batches.
 * Owns: weights in kernel layout, KV pages, scratch, the worker pool. Does not know: text,
 * sampling, sockets.
 * Threads: one caller at a time.
 * E1 planned bytes = counted bytes.  E2 no allocation in engine_run (I5).
 * E3 a refused run leaves every sequence as it was: all that can be refused is checked before work.
 *    An interrupted one takes back what it appended, but for sequences whose windows have given
 *    back pages of the old length: those keep every token that was computed, and can go on. */
#include "model/engine.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "model/scratch.h"
#include "model/seq.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* Names outside their enumeration, as a caller in another language may hand them over. */
static zp_status check_names(const zp_engine_options *o, zp_err *err)
{
    int kv = (int)o->kv_type, level = (int)o->level;
    ZP_FAIL_IF(kv < 0 || kv > ZP_KV_Q8, err, ZP_USAGE, "KV type %d is unknown", kv);
    ZP_FAIL_IF(level < 0 || level > ZP_LEVEL_AVX512BF16, err, ZP_USAGE,
               "kernel level %d is unknown", level);
    ZP_FAIL_IF(o->exact && o->kv_type != ZP_KV_DEFAULT && o->kv_type != ZP_KV_F32, err, ZP_USAGE,
               "the exact path keeps keys and values in f32: leave the KV type out");
    return ZP_OK;
}

/* Tests run more threads than there are processors. */
static atomic_bool any_threads;

void engine_allow_any_threads(bool on)
{
    atomic_store(&any_threads, on);
}

static zp_status resolve(const struct zp_model *m, zp_engine_options *o, zp_err *err)
{
    ZP_TRY(check_names(o, err));
    uint32_t own = m->position.n_ctx_validated ? m->position.n_ctx_validated : m->h.n_ctx_train;
    if (o->n_ctx == 0) o->n_ctx = own < 4096 ? own : 4096;
    ZP_FAIL_IF(o->n_ctx > 1u << 24, err, ZP_BAD_INPUT, "context of %u positions; at most %u",
               o->n_ctx, 1u << 24);
    if (o->n_seq == 0) o->n_seq = 1;
    ZP_FAIL_IF(o->n_seq > 65536, err, ZP_BAD_INPUT, "%u sequences; at most 65536", o->n_seq);
    if (o->n_threads == 0) o->n_threads = os_core_count();
    else if (o->n_threads > os_cpu_count() && !atomic_load(&any_threads))
        o->n_threads = os_cpu_count();
    ZP_FAIL_IF(o->n_threads > 256, err, ZP_BAD_INPUT, "%u threads; at most 256", o->n_threads);
    if (o->micro_batch == 0) o->micro_batch = 512;
    ZP_FAIL_IF(o->micro_batch > 1u << 20, err, ZP_BAD_INPUT,
               "micro-batch of %u tokens; at most %u", o->micro_batch, 1u << 20);
    uint64_t most = (uint64_t)o->n_ctx * o->n_seq;
    if (o->micro_batch > most) o->micro_batch = (uint32_t)most;
    if (o->kv_type == ZP_KV_DEFAULT) o->kv_type = o->exact ? ZP_KV_F32 : ZP_KV_BF16;
    return ZP_OK;
}

static enum kv_form form_of(zp_kv_type type)
{
    return type == ZP_KV_F32 ? KV_F32 : type == ZP_KV_Q8 ? KV_Q8 : KV_BF16;
}

/* What the options' sequences need, or what their budget holds of it; o is resolved. */
static struct kv_plan plan_kv(const struct zp_model *m, zp_engine_options *o)
{
    struct kv_plan plan = kvcache_plan(&m->position, form_of(o->kv_type), o->n_ctx, o->n_seq,
                                       o->micro_batch, o->prefix_cache);
    if (o->kv_bytes == 0) o->kv_bytes = kv_plan_bytes(&plan);
    kv_plan_fit(&plan, o->kv_bytes);
    return plan;
}

/* Scratch of the engine itself, beside that of the layer program: the run list. */
static uint64_t own_scratch(const zp_engine_options *o)
{
    return o->micro_batch * (uint64_t)sizeof(struct forward_run);
}

static uint64_t own_angles(const struct zp_model *m)
{
    bool any = position_uses_set(&m->position, 0);
    return any && m->h.scaling == ARCH_SCALING_DYNAMIC ? m->position.n_pair * sizeof(double) : 0;
}

zp_status engine_plan(const struct zp_model *m, zp_engine_options *o, struct engine_plan *out,
                      zp_err *err)
{
    ZP_TRY(resolve(m, o, err));
    ZP_TRY(weights_plan(&m->gguf, &m->h, o->exact, &out->weights, &out->reads, err));
    out->pages = plan_kv(m, o);
    out->kv = kv_plan_bytes(&out->pages);
    struct forward f = { .h = &m->h,
                         .position = &m->position,
                         .structure = &m->structure,
                         .micro_batch = o->micro_batch,
                         .n_ctx = o->n_ctx,
                         .n_threads = o->n_threads,
                         .n_seq = o->n_seq,
                         .form = form_of(o->kv_type),
                         .reads = out->reads };
    scratch_plan(&f, &out->scratch, &out->position);
    out->scratch += own_scratch(o);
    if (o->prefix_cache) out->scratch += prefix_plan(&m->position, out->pages.n_pages);
    out->position += own_angles(m);
    return ZP_OK;
}

uint64_t engine_kv_bytes_per_token(const struct position *p, const zp_engine_options *o)
{
    struct kv_plan one = kvcache_plan(p, form_of(o->kv_type), o->n_ctx, 1, o->micro_batch, false);
    return one.n_pages * one.page_bytes / o->n_ctx;
}

static zp_status check_memory(const struct engine_plan *plan, zp_err *err)
{
    uint64_t need = plan->weights + plan->kv + plan->scratch + plan->position,
             have = os_memory_available();
    struct bytes_text text[5];
    ZP_FAIL_IF(have && need > have, err, ZP_NO_MEMORY,
               "not enough memory: %s needed (weights %s, KV %s, scratch %s), %s available; "
               "lower the context (-c) or the number of sequences",
               bytes_in_words(need, &text[0]), bytes_in_words(plan->weights, &text[1]),
               bytes_in_words(plan->kv, &text[2]),
               bytes_in_words(plan->scratch + plan->position, &text[3]),
               bytes_in_words(have, &text[4]));
    return ZP_OK;
}

static enum kern_level level_of(zp_level level)
{
    return level == ZP_LEVEL_BEST ? KERN_LEVEL_COUNT : (enum kern_level)(level - ZP_LEVEL_REF);
}

static zp_status take_weights(struct zp_engine *e, const struct zp_model *m, zp_err *err)
{
    if (e->lender)
        e->weights = e->lender->weights; /* nobody writes to them */
    else
        ZP_TRY(weights_open(&e->weights, &m->gguf, &m->h, &m->position, e->options.exact,
                            e->options.pack_cache, e->pool, err));
    e->options.pack_cache = NULL; /* the caller's; it need not outlive the call */
    return ZP_OK;
}

static zp_status fill(struct zp_engine *e, const struct zp_model *m, zp_err *err)
{
    struct engine_plan plan;
    e->model = m;
    ZP_TRY(engine_plan(m, &e->options, &plan, err));
    if (e->lender) plan.weights = 0;
    ZP_TRY(check_memory(&plan, err));
    kern_table_init(&e->kern, level_of(e->options.level));
    ZP_TRY(pool_open(&e->pool, e->options.n_threads, err));
    if (e->options.pin_threads) ZP_TRY(pool_pin(e->pool, err));
    ZP_TRY(take_weights(e, m, err));
    e->position = m->position;
    if (own_angles(m)) {
        ZP_ALLOC(e->angles, MEM_POSITION, m->position.n_pair, err, "angles");
        position_for_ctx(&e->position, &m->position, &m->h,
                         e->lender ? e->lender->options.n_ctx : e->options.n_ctx, e->angles);
    }
    ZP_TRY(kvcache_open(&e->kv, &e->position, form_of(e->options.kv_type), e->options.micro_batch,
                        &plan.pages, err));
    e->forward = (struct forward){ .h = &m->h,
                                   .position = &e->position,
                                   .structure = &m->structure,
                                   .weights = &e->weights,
                                   .kern = &e->kern,
                                   .pool = e->pool,
                                   .micro_batch = e->options.micro_batch,
                                   .n_ctx = e->options.n_ctx,
                                   .n_threads = e->options.n_threads,
                                   .reads = plan.reads,
                                   .identity = e->options.identity_rotation,
                                   .form = form_of(e->options.kv_type),
                                   .n_seq = e->options.n_seq };
    ZP_TRY(scratch_open(&e->forward, err));
    ZP_ALLOC(e->runs, MEM_SCRATCH, e->options.micro_batch, err, "the run list");
    return ZP_OK;
}

static void tell(const struct zp_engine *e)
{
    static const char *const names[] = { "f32", "bf16", "q8" };
    zp_engine_stats s;
    struct bytes_text text[4];
    zp_engine_describe(e, &s);
    log_info("engine: kernels %s, %u threads, context %u, micro-batch %u, KV %s; weights %s, KV "
             "%s, scratch %s, positions %s",
             s.level, s.n_threads, s.n_ctx, s.micro_batch,
             names[e->kv.form],
             bytes_in_words(s.weights_bytes, &text[0]), bytes_in_words(s.kv_bytes, &text[1]),
             bytes_in_words(s.scratch_bytes, &text[2]), bytes_in_words(s.position_bytes, &text[3]));
}

static zp_status open_engine(zp_engine **out, const zp_model *m, const zp_engine *lender,
                             const zp_engine_options *options, zp_err *err)
{
    *out = NULL;
    struct zp_engine *e = mem_zalloc(MEM_META, sizeof *e);
    ZP_FAIL_IF(!e, err, ZP_NO_MEMORY, "not enough memory for an engine");
    e->options = *options;
    e->lender = lender;
    zp_status status = fill(e, m, err);
    if (status != ZP_OK) {
        if (status == ZP_BAD_FILE || status == ZP_UNSUPPORTED) status_add_path(err, m->gguf.path);
        zp_engine_close(e);
        return status;
    }
    tell(e);
    *out = e;
    return ZP_OK;
}

zp_status zp_engine_open(zp_engine **out, const zp_model *m, const zp_engine_options *options,
                         zp_err *err)
{
    static const zp_engine_options defaults;
    return open_engine(out, m, NULL, options ? options : &defaults, err);
}

zp_status engine_open_beside(zp_engine **out, const zp_engine *lender,
                             const zp_engine_options *options, zp_err *err)
{
    zp_engine_options own = *options;
    own.level = lender->options.level;
    own.exact = lender->options.exact;
    own.pack_cache = NULL;
    return open_engine(out, lender->model, lender, &own, err);
}

void zp_engine_close(zp_engine *e)
{
    if (!e) return;
    mem_free(e->runs);
    mem_free(e->angles);
    if (e->forward.h) scratch_free(&e->forward);
    kvcache_free(&e->kv);
    if (!e->lender) weights_free(&e->weights);
    if (e->pool) pool_close(e->pool);
    mem_free(e);
}

void zp_engine_describe(const zp_engine *e, zp_engine_stats *out)
{
    uint64_t kv = e->kv.pages.n_pages * e->kv.pages.page_bytes +
                  e->kv.open.n_pages * e->kv.open.page_bytes;
    *out = (zp_engine_stats){ .weights_bytes = e->weights.packed_bytes,
                              .kv_bytes = kv,
                              .scratch_bytes = e->forward.scratch_bytes +
                                               own_scratch(&e->options) + e->kv.prefix.bytes,
                              .position_bytes = e->forward.position_bytes + own_angles(e->model),
                              .kv_bytes_per_token =
                                  engine_kv_bytes_per_token(&e->model->position, &e->options),
                              .tokens = e->tokens,
                              .tokens_reused = e->tokens_reused,
                              .tokens_appended = e->tokens_appended,
                              .prefix_tiles = e->kv.prefix.n_used,
                              .prefix_evictions = e->kv.prefix.n_evicted,
                              .position_done = e->position_done,
                              .position_skipped = e->position_skipped,
                              .n_threads = e->options.n_threads,
                              .n_ctx = e->options.n_ctx,
                              .micro_batch = e->options.micro_batch,
                              .level = kern_level_name(e->kern.level),
                              .from_pack_cache = e->weights.from_side_file };
}

/* ---- runs ------------------------------------------------------------------------------------ */

static struct embed *pool_of(const struct engine_job *job, size_t i)
{
    return job->embeds ? job->embeds[i] : NULL;
}

/* Rows of logits. */
static size_t item_rows(const struct engine_job *job, size_t i)
{
    const zp_item *item = &job->items[i];
    if (pool_of(job, i)) return 0;
    return item->want == ZP_WANT_ALL ? item->n : item->want == ZP_WANT_LAST && item->n ? 1 : 0;
}

static zp_status check_item(const struct zp_engine *e, const struct engine_job *job, size_t i,
                            zp_err *err)
{
    const zp_item *item = &job->items[i];
    uint32_t n_ctx = e->options.n_ctx, n_vocab = e->model->h.n_vocab;
    ZP_FAIL_IF(!item->seq, err, ZP_USAGE, "item %zu: the sequence is missing", i);
    ZP_FAIL_IF(!item->ids && item->n, err, ZP_USAGE, "item %zu: the ids are missing", i);
    ZP_FAIL_IF((int)item->want < 0 || (int)item->want > ZP_WANT_ALL, err, ZP_USAGE,
               "item %zu: wanted logits %d are unknown", i, (int)item->want);
    ZP_FAIL_IF(item->seq->engine != e, err, ZP_USAGE,
               "item %zu: the sequence belongs to another engine", i);
    ZP_FAIL_IF(item->n > n_ctx - zp_seq_length(item->seq), err, ZP_BAD_INPUT,
               "%zu tokens after %u do not fit into the context of %u positions; raise --ctx-size",
               item->n, zp_seq_length(item->seq), n_ctx);
    for (size_t t = 0; t < item->n; t++)
        ZP_FAIL_IF(item->ids[t] < 0 || (uint32_t)item->ids[t] >= n_vocab, err, ZP_BAD_INPUT,
                   "item %zu: id %d at %zu is outside the vocabulary of %u", i, item->ids[t], t,
                   n_vocab);
    for (size_t j = 0; j < i; j++)
        ZP_FAIL_IF(job->items[j].seq == item->seq, err, ZP_USAGE,
                   "items %zu and %zu name the same sequence", j, i);
    return ZP_OK;
}

/* Whether the job computes what the model is: what a prefix tree may keep. */
static bool is_plain(const struct zp_engine *e, const struct engine_job *job)
{
    bool all_layers = job->layer_end == 0 || job->layer_end == e->model->h.n_layer;
    return job->layer_begin == 0 && all_layers && !job->x_in && !e->forward.gates &&
           !e->forward.windows;
}

/* Everything that can be refused, before any work (E3). */
static zp_status check_job(const struct zp_engine *e, const struct engine_job *job, zp_err *err)
{
    size_t rows = 0, pages = 0, open = 0;
    ZP_FAIL_IF(!job->items && job->n_items, err, ZP_USAGE, "the list of items is missing");
    ZP_FAIL_IF(e->options.prefix_cache && !is_plain(e, job), err, ZP_USAGE,
               "an engine with a prefix cache computes whole layers of the model as it is");
    for (size_t i = 0; i < job->n_items; i++) {
        ZP_TRY(check_item(e, job, i, err));
        rows += item_rows(job, i);
        const zp_seq *s = job->items[i].seq;
        uint32_t n = (uint32_t)job->items[i].n + s->n_pending;
        pages += kv_table_pages_wanted(&s->kv, &e->kv, n);
        open += kv_table_open_wanted(&s->kv, &e->kv, n);
    }
    ZP_FAIL_IF(rows > (job->logits ? job->rows_room : 0), err, ZP_USAGE,
               "%zu logit rows wanted, room for %zu%s", rows, job->rows_room,
               job->logits ? "" : " at NULL");
    ZP_TRY(pagepool_check(&e->kv.pages, pages, err));
    ZP_TRY(pagepool_check(&e->kv.open, open, err));
    return ZP_OK;
}

struct cut {
    size_t item, token;
}; /* where the next micro-batch begins */

/* Takes up to micro_batch tokens from the cut; returns their number. */
static uint32_t next_runs(struct zp_engine *e, const struct engine_job *job, struct cut *at,
                          size_t *n_runs)
{
    uint32_t n_tok = 0;
    *n_runs = 0;
    while (at->item < job->n_items && n_tok < e->options.micro_batch) {
        const zp_item *item = &job->items[at->item];
        size_t left = item->n - at->token, room = e->options.micro_batch - n_tok;
        uint32_t n = (uint32_t)(left < room ? left : room);
        uint32_t last = item->want == ZP_WANT_LAST && at->token + n == item->n;
        if (n)
            e->runs[(*n_runs)++] =
                (struct forward_run){ .kv = &item->seq->kv,
                                      .ids = item->ids + at->token,
                                      .seq = item->seq,
                                      .embed = pool_of(job, at->item),
                                      .first = item->seq->kv.length,
                                      .n = n,
                                      .n_wanted = item->want == ZP_WANT_ALL ? n : last,
                                      .offset = item->seq->offset,
                                      .anchors = item->seq->anchors,
                                      .n_anchors = item->seq->n_anchors,
                                      .detected = item->seq->detected,
                                      .n_detected = item->seq->n_detected,
                                      .past = item->seq->ids,
                                      .mode = item->seq->mode };
        n_tok += n;
        at->token += n;
        if (at->token == item->n) at->item++, at->token = 0;
    }
    return n_tok;
}

/* Done is what the layer program says it did, not what the position table says it should: verify
 * compares the two. */
static void count_positions(struct zp_engine *e, uint32_t n_tok, uint32_t n_layers)
{
    const struct position *p = &e->model->position;
    uint64_t all = (uint64_t)n_tok * n_layers * p->n_kv * p->n_pair;
    e->position_done += e->forward.n_rotated;
    e->position_skipped += all - e->forward.n_rotated;
}

/* The runs' tokens are in their sequences now. */
static void commit(struct zp_engine *e, size_t n_runs)
{
    for (size_t i = 0; i < n_runs; i++) {
        const struct forward_run *run = &e->runs[i];
        zp_seq *s = run->seq;
        memmove(s->ids + run->first, run->ids, run->n * sizeof *run->ids);
        kv_table_commit(&s->kv, &e->kv, run->n);
        if (s->detected) s->n_detected = s->kv.length;
        if (run->first / KERN_TILE != s->kv.length / KERN_TILE) /* a tile is full */
            seq_keep_prefix(s);
    }
}

/* Rows x (n, d_model) of those that are wanted: those to embed go to their pools, the others to the
 * front. Returns how many these are. */
static size_t pool_rows(struct zp_engine *e, size_t n_runs, float *x, size_t n)
{
    size_t d = e->model->h.d_model, from = 0, to = 0;
    for (size_t i = 0; i < n_runs && from < n; i++) {
        const struct forward_run *run = &e->runs[i];
        for (uint32_t t = 0; t < run->n_wanted; t++, from++) {
            float *row = x + from * d;
            if (run->embed) {
                forward_norm(&e->forward, row);
                embed_add(run->embed, row);
            } else if (from != to++) memcpy(x + (to - 1) * d, row, d * sizeof *x);
        }
    }
    return to;
}

static zp_status run_micro_batches(struct zp_engine *e, const struct engine_job *job, zp_err *err)
{
    uint32_t layer_end = job->layer_end ? job->layer_end : e->model->h.n_layer;
    size_t d = e->model->h.d_model, n_vocab = e->model->h.n_vocab, tokens = 0, rows = 0, total = 0,
           n_runs;
    for (size_t i = 0; i < job->n_items; i++) total += job->items[i].n;
    struct forward_batch batch = { .runs = e->runs,
                                   .layer_begin = job->layer_begin,
                                   .layer_end = layer_end,
                                   .all = job->x_out != NULL };
    struct cut at = { 0, 0 };
    while (at.item < job->n_items) {
        uint32_t n_tok = next_runs(e, job, &at, &n_runs);
        for (size_t i = 0; i < n_runs; i++)
            ZP_TRY(kv_table_reserve(e->runs[i].kv, &e->kv, e->runs[i].n, job->layer_begin,
                                    layer_end, err));
        if (n_tok == 0) break;
        batch.n_runs = n_runs;
        batch.x_in = job->x_in ? job->x_in + tokens * d : NULL;
        size_t n = forward_layers(&e->forward, &batch);
        commit(e, n_runs);
        count_positions(e, n_tok, layer_end - job->layer_begin);
        float *x = e->forward.rows[0].x;
        if (job->embeds) n = pool_rows(e, n_runs, x, n);
        if (job->x_out) memcpy(job->x_out + tokens * d, x, n * d * sizeof *x);
        else if (n) forward_logits(&e->forward, x, n, job->logits + rows * n_vocab);
        rows += job->x_out ? 0 : n;
        tokens += n_tok;
        e->tokens += n_tok;
        ZP_FAIL_IF(job->progress && job->progress->fn &&
                       !job->progress->fn(job->progress->arg, "tokens", tokens, total),
                   err, ZP_INTERRUPTED, "interrupted after %zu of %zu tokens", tokens, total);
    }
    return ZP_OK;
}

/* Takes back what an interrupted run had appended, where the pages are still there (E3). */
static void take_back(const struct engine_job *job, size_t computed)
{
    for (size_t i = 0; i < job->n_items && computed; i++) {
        struct zp_seq *s = job->items[i].seq;
        size_t added = job->items[i].n < computed ? job->items[i].n : computed;
        computed -= added;
        zp_seq_truncate(s, zp_seq_length(s) - (uint32_t)added, NULL);
    }
}

/* Tokens that a cut inside an 8-bit page has left without keys and values are computed again. */
static zp_status settle(struct zp_engine *e, const struct engine_job *job, zp_err *err)
{
    for (size_t i = 0; i < job->n_items; i++) {
        zp_seq *s = job->items[i].seq;
        uint32_t n = s->n_pending;
        if (n == 0 || job->items[i].n == 0) continue;
        const zp_item item = { s, s->ids + s->kv.length, n, ZP_WANT_NONE };
        const struct engine_job again = { .items = &item, .n_items = 1 };
        s->n_pending = 0;
        zp_status status = run_micro_batches(e, &again, err);
        if (status != ZP_OK) s->n_pending = n;
        ZP_TRY(status);
    }
    return ZP_OK;
}

zp_status engine_run(struct zp_engine *e, const struct engine_job *job, zp_err *err)
{
    ZP_TRY(check_job(e, job, err));
    ZP_TRY(settle(e, job, err));
    uint64_t before = e->tokens;
    zp_status status = run_micro_batches(e, job, err);
    if (status != ZP_OK) take_back(job, (size_t)(e->tokens - before));
    return status;
}

void engine_logits(struct zp_engine *e, const float *x, size_t n, float *out)
{
    size_t d = e->model->h.d_model, n_vocab = e->model->h.n_vocab, m = e->options.micro_batch;
    for (size_t t = 0; t < n; t += m)
        forward_logits(&e->forward, x + t * d, n - t < m ? n - t : m, out + t * n_vocab);
}

zp_status zp_engine_run(zp_engine *e, const zp_item *items, size_t n_items, float *logits,
                        size_t rows_room, const zp_progress *progress, zp_err *err)
{
    struct engine_job job = { .items = items,
                              .n_items = n_items,
                              .logits = logits,
                              .rows_room = rows_room,
                              .progress = progress };
    return engine_run(e, &job, err);
}
