/* score.c: comparison of next-token distributions, position by position.
 * Owns: sums and their intervals. Does not know: gates, files.
 * S1 both sides' logits are computed by their own engines in the same way; KL(base || candidate) in
 *    nats.
 * S2 rows are scored in chunks: memory does not grow with window or vocabulary beyond ROWS rows. */
#include "eval/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { ROWS = 64, BOOTSTRAP = 2000 };

zp_status score_layers(struct zp_engine *e, const struct window *w, uint32_t layer_begin,
                       uint32_t layer_end, const float *x_in, float *x_out,
                       const struct forward_hooks *hooks, zp_err *err)
{
    zp_seq *seq;
    zp_seq_options options = { .mode = ZP_MODE_FULL };
    struct forward_hooks before = e->forward.hooks;
    ZP_TRY(zp_seq_open(&seq, e, &options, err));
    zp_item item = { seq, w->ids, w->n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item,
                              .n_items = 1,
                              .layer_begin = layer_begin,
                              .layer_end = layer_end,
                              .x_in = x_in,
                              .x_out = x_out };
    if (hooks) e->forward.hooks = *hooks;
    zp_status status = engine_run(e, &job, err);
    e->forward.hooks = before;
    zp_seq_close(seq);
    return status;
}

zp_status score_hidden(struct zp_engine *e, const struct window *w, uint32_t layer_begin,
                       const float *x_in, float *x_out, zp_err *err)
{
    return score_layers(e, w, layer_begin, 0, x_in, x_out, NULL, err);
}

static zp_status hidden_fill(struct hidden *h, struct zp_engine *e, const struct windows *w,
                             const zp_progress *progress, zp_err *err)
{
    size_t row = (size_t)h->n_ctx * h->d_model;
    ZP_ALLOC(h->x, MEM_EVAP, w->n * row, err, "hidden states of the windows");
    for (uint32_t i = 0; i < w->n; i++) {
        ZP_TRY(score_hidden(e, &w->at[i], 0, NULL, h->x + i * row, err));
        ZP_FAIL_IF(progress && progress->fn &&
                       !progress->fn(progress->arg, "original windows", i + 1, w->n),
                   err, ZP_INTERRUPTED, "interrupted");
    }
    return ZP_OK;
}

zp_status hidden_run(struct hidden *h, struct zp_engine *e, const struct windows *w,
                     const zp_progress *progress, zp_err *err)
{
    *h = (struct hidden){ NULL, (uint32_t)w->n, w->n ? w->at[0].n : 0, e->model->h.d_model };
    zp_status status = hidden_fill(h, e, w, progress, err);
    if (status != ZP_OK) hidden_free(h);
    return status;
}

void hidden_free(struct hidden *h)
{
    mem_free(h->x);
    h->x = NULL;
}

static zp_status score_fill(struct score *s, uint32_t n_windows, uint32_t n_ctx,
                            struct score_range range, zp_err *err)
{
    s->n_windows = n_windows;
    struct score_mean **all[] = { &s->nll, &s->nll_base, &s->kl, &s->top1, &s->kl_last };
    for (size_t i = 0; i < ZP_COUNT(all); i++) {
        ZP_ALLOC(*all[i], MEM_EVAP, n_windows, err, "scores");
        memset(*all[i], 0, n_windows * sizeof **all[i]);
    }
    ZP_ALLOC(s->kl_values, MEM_EVAP, (size_t)n_windows * (n_ctx / range.stride + 1), err, "scores");
    return ZP_OK;
}

zp_status score_open(struct score *s, uint32_t n_windows, uint32_t n_ctx, struct score_range range,
                     zp_err *err)
{
    memset(s, 0, sizeof *s);
    zp_status status = score_fill(s, n_windows, n_ctx, range, err);
    if (status != ZP_OK) score_free(s);
    return status;
}

void score_free(struct score *s)
{
    mem_free(s->nll), mem_free(s->nll_base), mem_free(s->kl), mem_free(s->top1),
        mem_free(s->kl_last);
    mem_free(s->kl_values);
    memset(s, 0, sizeof *s);
}

/* ---- one row --------------------------------------------------------------------------------- */

static uint32_t arg_max(const float *x, size_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static bool is_first(const float *x, int32_t target, float max)
{
    if (x[target] != max) return false;
    for (int32_t i = 0; i < target; i++)
        if (x[i] == max) return false;
    return true;
}

void score_row(const struct kern_table *kern, const float *logits, const float *base,
               size_t n_vocab, int32_t target, struct score_row *out)
{
    float max, base_max;
    double sum, base_sum;
    *out = (struct score_row){ 0 };
    kern->expsum(logits, n_vocab, &max, &sum);
    out->nll = log(sum) + (double)max - (double)logits[target];
    out->right = is_first(logits, target, max);
    if (!base) return;
    kern->expsum(base, n_vocab, &base_max, &base_sum);
    out->nll_base = log(base_sum) + (double)base_max - (double)base[target];
    out->right_base = is_first(base, target, base_max);
    out->kl = kern->kl_row(base, base_max, base_sum, logits, max, sum, n_vocab);
    out->same = arg_max(logits, n_vocab) == arg_max(base, n_vocab);
}

/* ---- rows in chunks -------------------------------------------------------------------------- */

struct chunk {
    const struct window *w;
    struct zp_engine *e, *b;
    struct score_range range;
    uint32_t at[ROWS], n; /* positions */
    float *x, *base_x;    /* (ROWS, d_model) */
    float *logits, *base; /* (ROWS, n_vocab) */
    struct score_row row[ROWS];
};

static void chunk_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct chunk *c = arg;
    size_t n_vocab = c->e->model->h.n_vocab, begin, end;
    pool_share(c->n, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++)
        score_row(&c->e->kern, c->logits + i * n_vocab, c->b ? c->base + i * n_vocab : NULL,
                  n_vocab, c->w->ids[c->at[i] + 1], &c->row[i]);
}

static void add(struct score_mean *m, double value)
{
    m->sum += value;
    m->n++;
}

static void count_chunk(struct score *s, uint32_t window, const struct chunk *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct score_row *row = &c->row[i];
        uint32_t bucket = 0;
        while (bucket < 23 && c->at[i] >> (bucket + 1)) bucket++;
        add(&s->bucket[bucket], row->nll);
        if (c->b) add(&s->bucket_base[bucket], row->nll_base);
        if (c->at[i] < c->range.begin) continue;
        add(&s->nll[window], row->nll);
        if (!c->b) continue;
        add(&s->nll_base[window], row->nll_base);
        add(&s->kl[window], row->kl);
        add(&s->top1[window], row->same ? 1.0 : 0.0);
        if (c->at[i] + 200 >= c->w->n) add(&s->kl_last[window], row->kl);
        s->kl_values[s->n_values++] = (float)row->kl;
    }
}

static zp_status run_chunk(struct score *s, uint32_t window, struct chunk *c, zp_err *err)
{
    engine_logits(c->e, c->x, c->n, c->logits);
    if (c->b) engine_logits(c->b, c->base_x, c->n, c->base);
    pool_run(c->e->pool, chunk_worker, c);
    for (uint32_t i = 0; i < c->n; i++)
        ZP_FAIL_IF(!isfinite(c->row[i].nll) || (c->b && !isfinite(c->row[i].kl)), err, ZP_RUN,
                   "logits at position %u of window %u are not finite", c->at[i], window);
    count_chunk(s, window, c);
    c->n = 0;
    return ZP_OK;
}

static zp_status score_rows(struct score *s, uint32_t i, struct chunk *c, const float *x,
                            const float *base_x, zp_err *err)
{
    size_t d = c->e->model->h.d_model;
    const struct score_range *r = &c->range;
    uint32_t first = r->buckets_begin && r->buckets_begin < r->begin ? r->buckets_begin : r->begin;
    for (uint32_t p = first; p + 1 < c->w->n; p++) {
        if (p % r->stride != 0) continue;
        memcpy(c->x + c->n * d, x + p * d, d * sizeof *x);
        if (c->b) memcpy(c->base_x + c->n * d, base_x + p * d, d * sizeof *x);
        c->at[c->n++] = p;
        if (c->n == ROWS) ZP_TRY(run_chunk(s, i, c, err));
    }
    return c->n ? run_chunk(s, i, c, err) : ZP_OK;
}

zp_status score_window(struct score *s, uint32_t i, const struct window *w,
                       struct score_range range, struct zp_engine *e, const float *x,
                       struct zp_engine *b, const float *base_x, zp_err *err)
{
    size_t n_vocab = e->model->h.n_vocab, d = e->model->h.d_model;
    ZP_FAIL_IF(b && (b->model->h.n_vocab != n_vocab || b->model->h.d_model != d), err, ZP_BAD_INPUT,
               "the two models differ in vocabulary (%zu and %u) or width (%zu and %u)", n_vocab,
               b->model->h.n_vocab, d, b->model->h.d_model);
    struct chunk *c = mem_zalloc(MEM_EVAP, sizeof *c);
    float *memory = mem_array(MEM_EVAP, 2 * ROWS * (n_vocab + d), sizeof *memory);
    zp_status status = ZP_OK;
    if (!c || !memory)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory for logits");
    if (status == ZP_OK) {
        c->w = w, c->e = e, c->b = b, c->range = range;
        c->logits = memory, c->base = memory + ROWS * n_vocab;
        c->x = memory + 2 * ROWS * n_vocab, c->base_x = c->x + ROWS * d;
        status = score_rows(s, i, c, x, base_x, err);
    }
    mem_free(memory);
    mem_free(c);
    return status;
}

/* ---- summaries ------------------------------------------------------------------------------- */

double score_average(const struct score_mean *m, uint32_t n)
{
    double sum = 0.0;
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) sum += m[i].sum, count += m[i].n;
    return count ? sum / (double)count : 0.0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double score_quantile(const struct score *s, double q)
{
    if (s->n_values == 0) return 0.0;
    qsort(s->kl_values, s->n_values, sizeof *s->kl_values, by_value);
    return (double)s->kl_values[(size_t)(q * (double)(s->n_values - 1))];
}

/* Sorted means of entries drawn with replacement. */
static void bootstrap(const struct score_mean *m, uint32_t n, uint64_t seed,
                      double means[BOOTSTRAP])
{
    struct rng r = rng_stream(seed, 95);
    for (int k = 0; k < BOOTSTRAP; k++) {
        double sum = 0.0;
        uint64_t count = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct score_mean *pick = &m[rng_below(&r, n)];
            sum += pick->sum, count += pick->n;
        }
        means[k] = count ? sum / (double)count : 0.0;
    }
    qsort(means, BOOTSTRAP, sizeof *means, by_double);
}

double score_upper95(const struct score_mean *m, uint32_t n, uint64_t seed)
{
    double means[BOOTSTRAP];
    bootstrap(m, n, seed, means);
    return means[(int)(0.95 * BOOTSTRAP)];
}

struct score_interval score_interval95(const struct score_mean *m, uint32_t n, uint64_t seed)
{
    double means[BOOTSTRAP];
    if (n < 2) return (struct score_interval){ (double)NAN, (double)NAN };
    bootstrap(m, n, seed, means);
    return (struct score_interval){ means[(int)(0.025 * BOOTSTRAP)],
                                    means[(int)(0.975 * BOOTSTRAP) - 1] };
}

static const double z95 = 1.959963984540054; /* 97.5 % of the normal distribution are below */

struct score_interval score_wilson95(uint64_t right, uint64_t n)
{
    const double z = z95;
    if (n == 0) return (struct score_interval){ (double)NAN, (double)NAN };
    double share = (double)right / (double)n, z2 = z * z / (double)n;
    double middle = share + z2 / 2.0;
    double half = z * sqrt(share * (1.0 - share) / (double)n + z2 / (4.0 * (double)n));
    double lo = (middle - half) / (1.0 + z2), hi = (middle + half) / (1.0 + z2);
    return (struct score_interval){ right ? lo : 0.0, right < n ? hi : 1.0 };
}

struct score_interval score_paired95(uint64_t more, uint64_t fewer, uint64_t n)
{
    if (n == 0) return (struct score_interval){ (double)NAN, (double)NAN };
    double all = (double)n + 2.0, off = (double)more - (double)fewer;
    double differ = (double)more + (double)fewer + 1.0;
    double half = z95 * sqrt(differ - off * off / all) / all, middle = off / all;
    return (struct score_interval){ fmax(-1.0, middle - half), fmin(1.0, middle + half) };
}
