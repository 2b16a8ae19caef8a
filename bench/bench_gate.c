/* bench_gate.c: what the default path loses against the exact one, on a text of any length; the
 * second half of each window is scored, as llama-perplexity does (tools/peer_kl.sh measures it).
 * Usage: bench_gate MODEL TEXT WINDOWS [CTX]     prints JSON */
#include <stdio.h>
#include <stdlib.h>

#include "eval/ppl.h"

struct gate {
    zp_model *model;
    zp_engine *engine, *exact;
    struct docs docs;
    struct windows windows;
    struct score score;
};

static zp_status run(struct gate *g, char **arguments, uint32_t n_windows, uint32_t n_ctx,
                     zp_err *err)
{
    zp_engine_options o = { .n_ctx = n_ctx }, exact = { .n_ctx = n_ctx, .exact = true };
    ZP_TRY(zp_model_open(&g->model, arguments[1], NULL, err));
    ZP_TRY(zp_engine_open(&g->engine, g->model, &o, err));
    ZP_TRY(zp_engine_open(&g->exact, g->model, &exact, err));
    ZP_TRY(docs_open(&g->docs, arguments[2], err));
    ZP_TRY(docs_contiguous(&g->docs, g->model, n_ctx, n_windows, &g->windows, err));
    ZP_TRY(score_open(&g->score, (uint32_t)g->windows.n, n_ctx, ppl_range(n_ctx), err));
    return ppl_score(&g->score, &g->windows, g->engine, ZP_MODE_FULL, g->exact, NULL, err);
}

static void print(struct gate *g, uint32_t n_ctx)
{
    struct score *s = &g->score;
    uint32_t n = s->n_windows;
    double d_nll = score_average(s->nll, n) - score_average(s->nll_base, n);
    printf("{\"ctx\": %u, \"windows\": %u, \"kl_mean\": %.7f, \"kl_p99\": %.6f, \"kl_max\": %.5f, "
           "\"top1_agree\": %.3f, \"d_nll\": %.6f}\n",
           n_ctx, n, score_average(s->kl, n), score_quantile(s, 0.99), score_quantile(s, 1.0),
           100 * score_average(s->top1, n), d_nll);
}

int main(int argc, char **argv)
{
    struct gate g = { 0 };
    zp_err err = { 0 };
    unsigned long n_windows = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    unsigned long n_ctx = argc > 4 ? strtoul(argv[4], NULL, 10) : 1024;
    if (n_windows < 1 || n_windows > 1u << 20 || n_ctx < 8 || n_ctx > 1u << 20) {
        fprintf(stderr, "usage: bench_gate MODEL TEXT WINDOWS [CTX]\n");
        return 2;
    }
    zp_status status = run(&g, argv, (uint32_t)n_windows, (uint32_t)n_ctx, &err);
    if (status == ZP_OK) print(&g, (uint32_t)n_ctx);
    else fprintf(stderr, "bench_gate: %s\n", err.message);
    score_free(&g.score);
    windows_free(&g.windows);
    docs_close(&g.docs);
    zp_engine_close(g.exact);
    zp_engine_close(g.engine);
    zp_model_close(g.model);
    return zp_status_exit_code(status);
}
