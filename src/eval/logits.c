/* logits.c: log-probabilities after a prompt, its NLL, the greedy continuation.
 * Owns: rows of logits while they are looked at. Does not know: sampling, gates.
 * L1 memory does not grow with the prompt beyond its NLLs: hidden states come in chunks, logits in
 * chunks of them; same bits as at once (I1). */
#include "eval/logits.h"

#include <math.h>
#include <string.h>

#include "base/json_build.h"
#include "model/sample.h"

enum { CHUNK = 256, ROWS = 32 };

/* Index of the largest logit (the lowest of equal ones) and its lead over the second. */
static int32_t arg_max(const float *x, size_t n, double *margin)
{
    size_t best = 0;
    float second = -INFINITY;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) second = x[best], best = i;
        else if (x[i] > second) second = x[i];
    }
    *margin = (double)x[best] - (double)second;
    return (int32_t)best;
}

/* ---- prompt ---------------------------------------------------------------------------------- */

struct rows {
    struct zp_engine *e;
    const float *logits;    /* (n, n_vocab) */
    const int32_t *targets; /* (n) */
    size_t n;
    double *nll; /* (n) */
};

static void rows_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct rows *r = arg;
    size_t begin, end, n_vocab = r->e->model->h.n_vocab;
    pool_share(r->n, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *row = r->logits + i * n_vocab;
        float max;
        double sum;
        r->e->kern.expsum(row, n_vocab, &max, &sum);
        r->nll[i] = log(sum) + (double)max - (double)row[r->targets[i]];
    }
}

struct prompt_room {
    float *x;      /* (CHUNK, d_model) */
    float *logits; /* (ROWS, n_vocab) */
};

/* NLLs of ids[at + 1 ..] from the hidden states of ids[at .. at + n). */
static void score_chunk(struct zp_engine *e, const struct prompt_room *room, const int32_t *ids,
                        size_t at, size_t n, size_t n_ids, double *nll)
{
    size_t d = e->model->h.d_model;
    for (size_t i = 0; i < n; i += ROWS) {
        size_t left = n_ids - 1 - (at + i), rows = n - i < ROWS ? n - i : ROWS;
        if (rows > left) rows = left; /* nothing follows the last id */
        if (rows == 0) return;
        engine_logits(e, room->x + i * d, rows, room->logits);
        struct rows r = { e, room->logits, ids + at + i + 1, rows, nll + at + i + 1 };
        pool_run(e->pool, rows_worker, &r);
    }
}

static zp_status run_prompt(struct zp_engine *e, zp_seq *seq, const struct prompt_room *room,
                            const int32_t *ids, size_t n, double *nll, float *last, zp_err *err)
{
    size_t d = e->model->h.d_model;
    if (nll) nll[0] = 0.0;
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t rows = n - at < CHUNK ? n - at : CHUNK;
        zp_item item = { seq, ids + at, rows, ZP_WANT_NONE };
        struct engine_job job = { .items = &item, .n_items = 1, .x_out = room->x };
        ZP_TRY(engine_run(e, &job, err));
        if (nll) score_chunk(e, room, ids, at, rows, n, nll);
        if (at + rows == n) engine_logits(e, room->x + (rows - 1) * d, 1, last);
    }
    return ZP_OK;
}

zp_status logits_prompt(struct zp_engine *e, zp_seq *seq, const int32_t *ids, size_t n, double *nll,
                        float *last, zp_err *err)
{
    size_t d = e->model->h.d_model, n_vocab = e->model->h.n_vocab;
    float *memory;
    ZP_ALLOC(memory, MEM_EVAP, CHUNK * d + ROWS * n_vocab, err, "logits of the prompt");
    struct prompt_room room = { memory, memory + CHUNK * d };
    zp_status status = run_prompt(e, seq, &room, ids, n, nll, last, err);
    mem_free(memory);
    return status;
}

/* ---- document -------------------------------------------------------------------------------- */

struct work {
    struct zp_engine *e;
    zp_seq *seq;
    double *nll;                /* (n) */
    float *last;                /* (n_vocab) */
    struct sample_logprob *top; /* (k) */
    double *margin;             /* (n_predict) */
    int32_t *greedy;            /* (n_predict) */
};

static void write_text(struct json_build *w, const char *key, const struct zp_model *m,
                       const int32_t *ids, size_t n)
{
    struct buffer text = buffer_with_max(MEM_EVAP, (size_t)1 << 28);
    if (!m->tokenizer) {
        json_build_null(w, key);
        return;
    }
    unsigned flags = DETOKENIZE_SPECIAL | DETOKENIZE_CONTINUES;
    zp_status status = tokenizer_decode(m->tokenizer, ids, n, flags, &text, w->err);
    if (status == ZP_OK) json_build_bytes(w, key, (const char *)text.data, text.size);
    else if (w->status == ZP_OK) w->status = status;
    buffer_free(&text);
}

static zp_status write_top(struct json_build *w, const struct work *k, uint32_t n, zp_err *err)
{
    const struct zp_model *m = k->e->model;
    ZP_TRY(sample_top(k->last, m->h.n_vocab, n, k->top, err));
    json_build_array(w, "top");
    for (uint32_t i = 0; i < n; i++) {
        json_build_object(w, NULL);
        json_build_int(w, "id", k->top[i].id);
        json_build_real(w, "logprob", k->top[i].logprob, 9);
        write_text(w, "text", m, &k->top[i].id, 1);
        json_build_object_end(w);
    }
    json_build_array_end(w);
    return ZP_OK;
}

static zp_status write_prompt(struct json_build *w, const struct work *k, size_t n, uint32_t n_top,
                              zp_err *err)
{
    double sum = 0.0;
    for (size_t i = 1; i < n; i++) sum += k->nll[i];
    json_build_uint(w, "n_tokens", n);
    if (n > 1) json_build_real(w, "nll_mean", sum / (double)(n - 1), 9);
    else json_build_null(w, "nll_mean");
    return write_top(w, k, n_top, err);
}

static void write_greedy(struct json_build *w, const struct work *k, size_t n_predict)
{
    json_build_array(w, "greedy");
    for (size_t i = 0; i < n_predict; i++) json_build_int(w, NULL, k->greedy[i]);
    json_build_array_end(w);
    json_build_array(w, "greedy_margin");
    for (size_t i = 0; i < n_predict; i++) json_build_real(w, NULL, k->margin[i], 6);
    json_build_array_end(w);
    if (n_predict) write_text(w, "greedy_text", k->e->model, k->greedy, n_predict);
}

static zp_status continue_greedily(struct work *k, size_t n_predict, zp_err *err)
{
    for (size_t i = 0; i < n_predict; i++) {
        k->greedy[i] = arg_max(k->last, k->e->model->h.n_vocab, &k->margin[i]);
        zp_item item = { k->seq, &k->greedy[i], 1, ZP_WANT_LAST };
        if (i + 1 < n_predict) ZP_TRY(zp_engine_run(k->e, &item, 1, k->last, 1, NULL, err));
    }
    return ZP_OK;
}

static zp_status place(struct work *k, size_t n, size_t n_top, size_t n_predict, zp_err *err)
{
    size_t n_vocab = k->e->model->h.n_vocab;
    ZP_ALLOC(k->nll, MEM_EVAP, n, err, "the prompt's NLL");
    ZP_ALLOC(k->last, MEM_EVAP, n_vocab, err, "logits");
    ZP_ALLOC(k->top, MEM_EVAP, n_top, err, "the list of top tokens");
    ZP_ALLOC(k->margin, MEM_EVAP, n_predict, err, "the greedy continuation");
    ZP_ALLOC(k->greedy, MEM_EVAP, n_predict, err, "the greedy continuation");
    return zp_seq_open(&k->seq, k->e, NULL, err);
}

static zp_status run(struct work *k, const int32_t *ids, size_t n, uint32_t n_top, size_t n_predict,
                     struct json_build *w, zp_err *err)
{
    ZP_TRY(place(k, n, n_top, n_predict, err));
    ZP_TRY(logits_prompt(k->e, k->seq, ids, n, k->nll, k->last, err));
    json_build_object(w, NULL);
    ZP_TRY(write_prompt(w, k, n, n_top, err));
    ZP_TRY(continue_greedily(k, n_predict, err));
    write_greedy(w, k, n_predict);
    json_build_object_end(w);
    return ZP_OK;
}

zp_status zp_logits_json(zp_engine *e, const int32_t *ids, size_t n,
                         const zp_logits_options *options, char **json, zp_err *err)
{
    static const zp_logits_options defaults = { 0 };
    const zp_logits_options *o = options ? options : &defaults;
    struct work k = { .e = e };
    struct json_build w;
    uint32_t n_vocab = e->model->h.n_vocab, n_top = o->top ? o->top : 10;
    size_t need = n + o->n_predict;
    if (json) *json = NULL;
    ZP_FAIL_IF(n == 0, err, ZP_BAD_INPUT, "the prompt is empty: there is nothing to predict from");
    ZP_FAIL_IF(n > e->options.n_ctx || need - (o->n_predict != 0) > e->options.n_ctx, err,
               ZP_BAD_INPUT,
               "%zu prompt tokens and %u predicted ones do not fit into the context of %u "
               "positions; raise --ctx-size",
               n, o->n_predict, e->options.n_ctx);
    json_build_open(&w, err);
    zp_status status = run(&k, ids, n, n_top < n_vocab ? n_top : n_vocab, o->n_predict, &w, err);
    if (w.status == ZP_OK) w.status = status;
    zp_seq_close(k.seq);
    mem_free(k.nll), mem_free(k.last), mem_free(k.top), mem_free(k.margin), mem_free(k.greedy);
    return json_build_finish(&w, json);
}
