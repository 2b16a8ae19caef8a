/* trial.c: sequences of one or two models, a group at a time, in steps.
 * Owns: the sequences and logits of one call. Does not know: where tokens come from.
 * T1 a row's numbers depend on its trial alone, not on group, step or thread (I1), and rows come
 *    out in the order of trials: sums over them are the same bits however they were computed.
 * T2 memory does not grow with the number of scored rows: logits of a step are scored before the
 *    next one. */
#include "evap/trial.h"

#include <math.h>
#include <string.h>

enum { STEP_TOKENS = 2048, LOGITS = 1 << 24 };

struct want {
    int32_t target;
    struct score_row *out;
};

struct run {
    struct trial_side *by;
    zp_seq **seqs[2];      /* (n_group) of the engine, and of the base */
    float *logits[2];      /* (rows_room, n_vocab) */
    const struct trial *group;
    struct score_row **out; /* (n_group) where a trial's next row goes */
    uint32_t *at, *take;    /* (n_group) tokens computed; in this step */
    zp_item *items;         /* (n_group) */
    struct want *wants;     /* (rows_room) */
    size_t n_group, most, rows_room, n_wants;
};

static struct zp_engine *engine_of(const struct run *r, int side)
{
    return side ? r->by->base : r->by->e;
}

static zp_status take_memory(struct run *r, zp_err *err)
{
    size_t n_vocab = r->by->e->model->h.n_vocab;
    r->rows_room = LOGITS / n_vocab;
    if (r->rows_room > STEP_TOKENS) r->rows_room = STEP_TOKENS;
    if (r->rows_room < r->most) r->rows_room = r->most; /* one row each */
    ZP_ALLOC(r->out, MEM_EVAP, r->most, err, "trials");
    ZP_ALLOC(r->at, MEM_EVAP, r->most, err, "trials");
    ZP_ALLOC(r->take, MEM_EVAP, r->most, err, "trials");
    ZP_ALLOC(r->items, MEM_EVAP, r->most, err, "trials");
    ZP_ALLOC(r->wants, MEM_EVAP, r->rows_room, err, "trials");
    for (int side = 0; side < 2 && engine_of(r, side); side++) {
        ZP_ALLOC(r->seqs[side], MEM_EVAP, r->most, err, "trials");
        memset(r->seqs[side], 0, r->most * sizeof *r->seqs[side]);
        ZP_ALLOC(r->logits[side], MEM_EVAP, r->rows_room * n_vocab, err, "logits");
    }
    return ZP_OK;
}

static void close_seqs(struct run *r)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; r->seqs[side] && i < r->most; i++) {
            zp_seq_close(r->seqs[side][i]);
            r->seqs[side][i] = NULL;
        }
}

static void free_memory(struct run *r)
{
    close_seqs(r);
    for (int side = 0; side < 2; side++) {
        mem_free(r->seqs[side]);
        mem_free(r->logits[side]);
    }
    mem_free(r->out);
    mem_free(r->at);
    mem_free(r->take);
    mem_free(r->items);
    mem_free(r->wants);
}

/* ---- steps ---- */

static uint32_t least(size_t a, size_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* What each trial of the group takes next: tokens nobody asks about, or scored ones. False: all of
 * them are through. */
static bool plan_step(struct run *r)
{
    size_t n_active = 0;
    for (size_t i = 0; i < r->n_group; i++) n_active += r->at[i] < r->group[i].n;
    if (n_active == 0) return false;
    size_t rows = r->rows_room / n_active, tokens = STEP_TOKENS / n_active;
    r->n_wants = 0;
    for (size_t i = 0; i < r->n_group; i++) {
        const struct trial *t = &r->group[i];
        uint32_t at = r->at[i];
        if (at < t->first) {
            r->take[i] = least(t->first - at, tokens ? tokens : 1);
            continue;
        }
        r->take[i] = least(t->n - at, rows);
        for (uint32_t k = 0; k < r->take[i]; k++)
            r->wants[r->n_wants++] = (struct want){ t->tokens[at + k + 1], r->out[i]++ };
    }
    return true;
}

static zp_status run_side(struct run *r, int side, zp_err *err)
{
    size_t n_items = 0;
    for (size_t i = 0; i < r->n_group; i++) {
        const struct trial *t = &r->group[i];
        if (r->take[i] == 0) continue;
        r->items[n_items++] = (zp_item){ r->seqs[side][i], t->tokens + r->at[i], r->take[i],
                                         r->at[i] < t->first ? ZP_WANT_NONE : ZP_WANT_ALL };
    }
    return zp_engine_run(engine_of(r, side), r->items, n_items, r->logits[side], r->rows_room,
                         NULL, err);
}

static void score_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct run *r = arg;
    const struct zp_engine *e = r->by->e;
    size_t n_vocab = e->model->h.n_vocab, begin, end;
    pool_share(r->n_wants, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++)
        score_row(&e->kern, r->logits[0] + i * n_vocab,
                  r->by->base ? r->logits[1] + i * n_vocab : NULL, n_vocab, r->wants[i].target,
                  r->wants[i].out);
}

static zp_status check_rows(const struct run *r, zp_err *err)
{
    for (size_t i = 0; i < r->n_wants; i++) {
        const struct score_row *row = r->wants[i].out;
        bool finite = isfinite(row->nll) && isfinite(row->nll_base) && isfinite(row->kl);
        ZP_FAIL_IF(!finite, err, ZP_RUN, "logits of %s are not finite",
                   isfinite(row->nll) ? "the base, or its distance," : "the model");
    }
    return ZP_OK;
}

static zp_status watch(struct run *r, zp_err *err)
{
    struct trial_side *by = r->by;
    for (size_t i = 0; i < r->n_group; i++) {
        r->at[i] += r->take[i];
        by->done += r->take[i] && r->at[i] == r->group[i].n;
    }
    bool go = !by->progress || !by->progress->fn ||
              by->progress->fn(by->progress->arg, "sequences", by->done, by->total);
    ZP_FAIL_IF(!go, err, ZP_INTERRUPTED, "interrupted after %llu of %llu sequences",
               (unsigned long long)by->done, (unsigned long long)by->total);
    return ZP_OK;
}

static zp_status step(struct run *r, zp_err *err)
{
    ZP_TRY(run_side(r, 0, err));
    if (r->by->base) ZP_TRY(run_side(r, 1, err));
    pool_run(r->by->e->pool, score_worker, r);
    ZP_TRY(check_rows(r, err));
    return watch(r, err);
}

/* ---- groups ---- */

static zp_status open_group(struct run *r, const struct trial *trials, size_t n,
                            struct score_row **rows, zp_err *err)
{
    r->group = trials;
    r->n_group = n;
    for (size_t i = 0; i < n; i++) {
        r->at[i] = 0;
        r->out[i] = *rows;
        *rows += trial_rows(&trials[i]);
        for (int side = 0; side < 2 && engine_of(r, side); side++) {
            zp_seq_options o = { .mode = side ? ZP_MODE_FULL : r->by->mode };
            ZP_TRY(zp_seq_open(&r->seqs[side][i], engine_of(r, side), &o, err));
        }
    }
    return ZP_OK;
}

static zp_status run_all(struct run *r, const struct trial *trials, size_t n,
                         struct score_row *rows, zp_err *err)
{
    ZP_TRY(take_memory(r, err));
    for (size_t i = 0; i < n; i += r->n_group) {
        ZP_TRY(open_group(r, trials + i, least(n - i, r->most), &rows, err));
        while (plan_step(r)) ZP_TRY(step(r, err));
        close_seqs(r);
    }
    return ZP_OK;
}

zp_status trial_run(struct trial_side *by, const struct trial *trials, size_t n,
                    struct score_row *rows, zp_err *err)
{
    struct run r = { .by = by, .most = least(n, by->e->options.n_seq) };
    if (n == 0) return ZP_OK;
    zp_status status = run_all(&r, trials, n, rows, err);
    free_memory(&r);
    return status;
}
