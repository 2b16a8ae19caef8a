/* key_scales.c: what rounding keys to 8 bits costs, by what shares a scale: the channels of a
 * position (as KV type q8 has it), or the positions of a channel in a page of 64. All else is
 * exact: f32 pages are rounded in place as soon as they are full.
 * Usage: key_scales MODEL TEXT WINDOWS [CTX]
 * Prints JSON: {"ctx", "windows", "kl_position", "kl_channel"}: mean KL to unrounded keys of the
 * second half of each window. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "eval/docs.h"
#include "model/engine.h"

enum { TILE = KERN_TILE };
enum rounding { KEEP, BY_POSITION, BY_CHANNEL, N_ROUNDINGS };

struct job {
    zp_model *model;
    zp_engine *engine;
    struct docs docs;
    struct windows windows;
    float *kept, *logits; /* (TILE, n_vocab) */
    double kl[N_ROUNDINGS];
    uint64_t n;
};

/* n values, `step` apart, to 255 steps of their largest. */
static void round_group(float *x, size_t n, size_t step)
{
    float max = 0;
    for (size_t i = 0; i < n; i++) max = fmaxf(max, fabsf(x[i * step]));
    float scale = f16_to_f32(f32_to_f16(max / 127));
    for (size_t i = 0; scale > 0 && i < n; i++)
        x[i * step] = fminf(fmaxf(rintf(x[i * step] / scale), -127), 127) * scale;
}

/* K tile (d, TILE), f32. */
static void round_keys(float *k, size_t d, enum rounding how)
{
    if (how == BY_POSITION)
        for (size_t j = 0; j < TILE; j++)
            for (size_t c = 0; c < d; c += KERN_Q8_GROUP)
                round_group(k + c * TILE + j, d - c < KERN_Q8_GROUP ? d - c : KERN_Q8_GROUP, TILE);
    else if (how == BY_CHANNEL)
        for (size_t c = 0; c < d; c++) round_group(k + c * TILE, TILE, 1);
}

static void round_page(const struct job *j, zp_seq *s, size_t tile, enum rounding how)
{
    for (size_t head = 0; head < j->engine->kv.n_heads; head++) {
        const void *page = s->kv.k[head * s->kv.n_tiles + tile];
        /* this sequence's own page, written between runs */
        if (page) round_keys((float *)(uintptr_t)page, j->model->h.d_head, how);
    }
}

static double kl_of(const struct job *j, const float *p, const float *q)
{
    const struct kern_table *kern = &j->engine->kern;
    size_t n = j->model->h.n_vocab;
    float p_max, q_max;
    double p_sum, q_sum;
    kern->expsum(p, n, &p_max, &p_sum);
    kern->expsum(q, n, &q_max, &q_sum);
    return kern->kl_row(p, p_max, p_sum, q, q_max, q_sum, n);
}

/* One page of a window in all ways, each in a sequence of its own. */
static zp_status run_page(struct job *j, zp_seq **seqs, const struct window *w, uint32_t from,
                          zp_err *err)
{
    size_t n_vocab = j->model->h.n_vocab;
    bool scored = from >= w->n / 2;
    for (int how = KEEP; how < N_ROUNDINGS; how++) {
        float *logits = how == KEEP ? j->kept : j->logits;
        zp_item item = { seqs[how], w->ids + from, TILE, scored ? ZP_WANT_ALL : ZP_WANT_NONE };
        ZP_TRY(zp_engine_run(j->engine, &item, 1, scored ? logits : NULL, scored ? TILE : 0, NULL,
                             err));
        round_page(j, seqs[how], from / TILE, (enum rounding)how);
        for (size_t i = 0; scored && i < TILE; i++)
            j->kl[how] += kl_of(j, j->kept + i * n_vocab, logits + i * n_vocab);
    }
    if (scored) j->n += TILE;
    return ZP_OK;
}

static zp_status run_window(struct job *j, const struct window *w, zp_err *err)
{
    zp_seq *seqs[N_ROUNDINGS] = { NULL };
    zp_status status = ZP_OK;
    for (int i = 0; i < N_ROUNDINGS && status == ZP_OK; i++)
        status = zp_seq_open(&seqs[i], j->engine, NULL, err);
    for (uint32_t from = 0; status == ZP_OK && from + TILE <= w->n; from += TILE)
        status = run_page(j, seqs, w, from, err);
    for (int i = 0; i < N_ROUNDINGS; i++) zp_seq_close(seqs[i]);
    return status;
}

static zp_status run(struct job *j, char **arguments, uint32_t n_windows, uint32_t n_ctx,
                     zp_err *err)
{
    zp_engine_options o = { .n_ctx = n_ctx, .exact = true, .n_seq = N_ROUNDINGS };
    ZP_TRY(zp_model_open(&j->model, arguments[1], NULL, err));
    ZP_TRY(zp_engine_open(&j->engine, j->model, &o, err));
    size_t rows = (size_t)TILE * j->model->h.n_vocab;
    ZP_ALLOC(j->kept, MEM_SCRATCH, rows, err, "logits");
    ZP_ALLOC(j->logits, MEM_SCRATCH, rows, err, "logits");
    ZP_TRY(docs_open(&j->docs, arguments[2], err));
    ZP_TRY(docs_contiguous(&j->docs, j->model, n_ctx, n_windows, &j->windows, err));
    for (size_t i = 0; i < j->windows.n; i++) ZP_TRY(run_window(j, &j->windows.at[i], err));
    return ZP_OK;
}

int main(int argc, char **argv)
{
    struct job j = { 0 };
    zp_err err = { 0 };
    unsigned long n_windows = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    unsigned long n_ctx = argc > 4 ? strtoul(argv[4], NULL, 10) : 1024;
    if (n_windows < 1 || n_windows > 1u << 20 || n_ctx < 2 * TILE || n_ctx > 1u << 20) {
        fprintf(stderr, "usage: key_scales MODEL TEXT WINDOWS [CTX]\n");
        return 2;
    }
    zp_status status = run(&j, argv, (uint32_t)n_windows, (uint32_t)n_ctx, &err);
    if (status == ZP_OK)
        printf("{\"ctx\": %lu, \"windows\": %zu, \"kl_position\": %.8f, \"kl_channel\": %.8f}\n",
               n_ctx, j.windows.n, j.kl[BY_POSITION] / (double)j.n,
               j.kl[BY_CHANNEL] / (double)j.n);
    else fprintf(stderr, "key_scales: %s\n", err.message);
    windows_free(&j.windows);
    docs_close(&j.docs);
    mem_free(j.kept);
    mem_free(j.logits);
    zp_engine_close(j.engine);
    zp_model_close(j.model);
    return zp_status_exit_code(status);
}
