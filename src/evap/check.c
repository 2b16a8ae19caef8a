/* check.c: what a written file costs, on text no plan has seen.
 * Owns: held-out windows and the original's states on them. Does not know: how the file came about.
 * H1 the file itself is measured, not the plan.  H2 every second position of the second half of
 *    each window counts.
 * H3 the promise is the bootstrap 95 % upper bound over windows. */
#include "evap/check.h"

#include <string.h>

static zp_status fill(struct check *k, struct docs *docs, uint32_t n_ctx, uint32_t n_windows,
                      uint32_t least, zp_err *err)
{
    ZP_TRY(
        docs_windows(docs, k->base->model, DOCS_HELD, n_ctx, n_windows, least, &k->windows, err));
    return hidden_run(&k->original, k->base, &k->windows, &k->progress, err);
}

zp_status check_open(struct check *k, struct zp_engine *base, struct docs *docs, uint32_t n_ctx,
                     uint32_t n_windows, uint32_t least, zp_progress progress, zp_err *err)
{
    *k = (struct check){ .base = base,
                         .range = { .begin = n_ctx / 2, .stride = 2 },
                         .n_threads = base->options.n_threads,
                         .progress = progress };
    zp_status status = fill(k, docs, n_ctx, n_windows, least, err);
    if (status != ZP_OK) check_close(k);
    return status;
}

void check_close(struct check *k)
{
    windows_free(&k->windows);
    hidden_free(&k->original);
    memset(k, 0, sizeof *k);
}

static void summarise(struct score *s, const struct check *k, const struct zp_model *m,
                      uint64_t kv_bytes, struct check_result *out)
{
    uint32_t n = s->n_windows;
    *out = (struct check_result){ .n_windows = n,
                                  .n_ctx = k->original.n_ctx,
                                  .n_positions = s->n_values,
                                  .kv_bytes_per_token = kv_bytes / k->original.n_ctx,
                                  .kl_mean = score_average(s->kl, n),
                                  .kl_hi = score_upper95(s->kl, n, 1),
                                  .kl_last200 = score_average(s->kl_last, n),
                                  .nll_before = score_average(s->nll_base, n),
                                  .nll_after = score_average(s->nll, n),
                                  .top1 = score_average(s->top1, n),
                                  .kl_p99 = score_quantile(s, 0.99),
                                  .kl_max = score_quantile(s, 1.0) };
    struct gate_counts *g = &out->gates;
    position_gates(&m->position, &g->total, &g->closed, &g->layers_none, &g->heads_none,
                   &g->heads_local);
    memcpy(out->bucket, s->bucket, sizeof out->bucket);
    memcpy(out->bucket_base, s->bucket_base, sizeof out->bucket_base);
}

static zp_status compare(const struct check *k, struct zp_engine *e, struct score *s, float *x,
                         zp_err *err)
{
    size_t row = (size_t)k->original.n_ctx * k->original.d_model;
    for (uint32_t i = 0; i < k->windows.n; i++) {
        ZP_TRY(score_hidden(e, &k->windows.at[i], 0, NULL, x, err));
        ZP_TRY(score_window(s, i, &k->windows.at[i], k->range, e, x, k->base,
                            k->original.x + i * row, err));
        ZP_FAIL_IF(k->progress.fn &&
                       !k->progress.fn(k->progress.arg, "held-out windows", i + 1, k->windows.n),
                   err, ZP_INTERRUPTED, "interrupted");
    }
    return ZP_OK;
}

zp_status check_model(const struct check *k, const struct zp_model *m, struct check_result *out,
                      zp_err *err)
{
    zp_engine_options options = { .n_ctx = k->original.n_ctx,
                                  .micro_batch = k->original.n_ctx,
                                  .exact = true,
                                  .n_threads = k->n_threads };
    struct zp_engine *e;
    struct engine_plan usual; /* what an engine with default options takes */
    struct score s;
    ZP_TRY(engine_plan(m, &(zp_engine_options){ .n_ctx = k->original.n_ctx }, &usual, err));
    ZP_TRY(zp_engine_open(&e, m, &options, err));
    float *x = mem_array(MEM_EVAP, (size_t)k->original.n_ctx * k->original.d_model, sizeof *x);
    zp_status status = score_open(&s, (uint32_t)k->windows.n, k->original.n_ctx, k->range, err);
    if (!x && status == ZP_OK)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for hidden states");
    if (status == ZP_OK) status = compare(k, e, &s, x, err);
    if (status == ZP_OK) summarise(&s, k, m, usual.kv, out);
    score_free(&s);
    mem_free(x);
    zp_engine_close(e);
    return status;
}

zp_status check_file(const struct check *k, const char *path, struct check_result *out, zp_err *err)
{
    struct zp_model *m;
    ZP_TRY(zp_model_open(&m, path, NULL, err));
    zp_status status = check_model(k, m, out, err);
    zp_model_close(m);
    return status;
}
