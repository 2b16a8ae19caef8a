/* calib.c: the measuring bench of planning: one exact engine, original states, KL of a change.
 * Owns: engine, windows, cached states. Does not know: what is tried, in which order.
 * B1 the original is the file as given, on the exact path; both sides use the same engine and
 *    weights. */
#include "evap/calib.h"

#include <string.h>

#include <zerope/evap.h>
#include "base/os.h"

zp_status calib_step(const struct calib *c, const char *what, uint64_t done, uint64_t total,
                     zp_err *err)
{
    ZP_FAIL_IF(c->progress.fn && !c->progress.fn(c->progress.arg, what, done, total), err,
               ZP_INTERRUPTED, "interrupted at %s %llu of %llu", what, (unsigned long long)done,
               (unsigned long long)total);
    return ZP_OK;
}

/* ---- original states ------------------------------------------------------------------------- */

struct keep {
    float *to;
    size_t row; /* floats of one layer's stream */
};

static void keep_stream(void *arg, uint32_t layer, size_t n_tok, const float *x)
{
    struct keep *k = arg;
    (void)n_tok; /* a window is one micro-batch */
    memcpy(k->to + layer * k->row, x, k->row * sizeof *x);
}

zp_status calib_keep(struct calib *c, const struct window *w, float *at_layer, float *x_out,
                     zp_err *err)
{
    struct keep keep = { at_layer, (size_t)c->n_ctx * c->model->h.d_model };
    struct forward_hooks hooks = { .arg = &keep, .at_layer = keep_stream };
    return score_layers(c->engine, w, 0, 0, NULL, x_out, &hooks, err);
}

static zp_status original_states(struct calib *c, zp_err *err)
{
    size_t d = c->model->h.d_model, row = (size_t)c->n_ctx * d, n_layer = c->model->h.n_layer;
    ZP_ALLOC(c->base.x, MEM_EVAP, c->windows.n * row, err, "the original's hidden states");
    ZP_ALLOC(c->at_layer, MEM_EVAP, c->n_restart * n_layer * row, err,
             "the original's states before each layer");
    c->base.n_windows = (uint32_t)c->windows.n, c->base.n_ctx = c->n_ctx,
    c->base.d_model = (uint32_t)d;
    for (uint32_t i = 0; i < c->windows.n; i++) {
        const struct window *w = &c->windows.at[i];
        float *x = c->base.x + i * row;
        if (i < c->n_restart) ZP_TRY(calib_keep(c, w, c->at_layer + i * n_layer * row, x, err));
        else ZP_TRY(score_hidden(c->engine, w, 0, NULL, x, err));
        ZP_TRY(calib_step(c, "original windows", i + 1, c->windows.n, err));
    }
    return ZP_OK;
}

void calib_rotate(const struct calib *c, uint32_t layer, uint32_t kv, uint32_t at, float *x,
                  float *cs, float *room)
{
    const struct position *p = &c->model->position;
    struct position_view view = { ZP_MODE_FULL, NULL, false };
    const float *own;
    position_angles(p, p->angle_set[layer], at, cs);
    uint32_t n = position_head_cs(p, view, layer, kv, cs, room, &own);
    if (n) c->engine->kern.rotate(x, own, n);
}

zp_status calib_restart_at(struct calib *c, const struct gateset *g, zp_err *err)
{
    size_t row = (size_t)c->n_ctx * c->model->h.d_model, n_layer = c->model->h.n_layer;
    zp_status status = ZP_OK;
    float *x = mem_array(MEM_EVAP, row, sizeof *x);
    ZP_FAIL_IF(!x, err, ZP_NO_MEMORY, "not enough memory for hidden states");
    if (g) gateset_apply(g, c->engine);
    for (uint32_t i = 0; i < c->n_restart && status == ZP_OK; i++)
        status = calib_keep(c, &c->windows.at[i], c->at_layer + i * n_layer * row, x, err);
    gateset_release(c->engine);
    mem_free(x);
    return status;
}

/* States before each layer are the bulk: asked for in one piece they would be refused by nobody and
 * end the process when they are written. */
static zp_status check_room(const struct calib *c, zp_err *err)
{
    const struct hparams *h = &c->model->h;
    struct bytes_text text[2];
    uint64_t row = (uint64_t)c->n_ctx * h->d_model * sizeof(float), have = os_memory_available(),
             need = (c->windows.n + (uint64_t)(c->n_restart + c->n_probes) * h->n_layer) * row;
    ZP_FAIL_IF(have && need > have, err, ZP_NO_MEMORY,
               "not enough memory: %s needed for the original's states at %u tokens, %s available; "
               "a smaller -c needs less", bytes_in_words(need, &text[0]), c->n_ctx,
               bytes_in_words(have, &text[1]));
    return ZP_OK;
}

zp_status calib_start(struct calib *c, uint32_t n_windows, uint32_t n_threads, zp_err *err)
{
    zp_engine_options engine = {
        .n_ctx = c->n_ctx, .n_threads = n_threads, .micro_batch = c->n_ctx, .exact = true
    };
    ZP_TRY(docs_windows(&c->docs, c->model, DOCS_PLAN, c->n_ctx, n_windows, ZP_SCAN_WINDOWS_MIN,
                        &c->windows, err));
    if (c->n_restart > c->windows.n) c->n_restart = (uint32_t)c->windows.n;
    ZP_TRY(zp_engine_open(&c->engine, c->model, &engine, err));
    ZP_TRY(check_room(c, err));
    /* every fourth position of the second half: neighbours tell little more, logits cost much */
    c->range = (struct score_range){ .begin = c->n_ctx / 2, .stride = 4 };
    return original_states(c, err);
}

zp_status calib_open(struct calib *c, const char *model, const char *text, uint32_t n_ctx,
                     zp_err *err)
{
    memset(c, 0, sizeof *c);
    c->n_ctx = n_ctx;
    zp_status status = zp_model_open(&c->model, model, NULL, err);
    if (status == ZP_OK && c->model->structure.weight)
        status = status_fail(err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                             "%s: gates are measured before a structure head is added: give the "
                             "model it was added to", model);
    if (status == ZP_OK) status = docs_open(&c->docs, text, err);
    if (status != ZP_OK) calib_close(c);
    return status;
}

void calib_close(struct calib *c)
{
    mem_free(c->at_layer);
    hidden_free(&c->base);
    windows_free(&c->windows);
    docs_close(&c->docs);
    zp_engine_close(c->engine);
    zp_model_close(c->model);
    memset(c, 0, sizeof *c);
}

/* ---- cost of a change ------------------------------------------------------------------------ */

static zp_status kl_windows(struct calib *c, uint32_t from, uint32_t n_windows, float *x,
                            struct score *s, zp_err *err)
{
    size_t row = (size_t)c->n_ctx * c->model->h.d_model, n_layer = c->model->h.n_layer;
    for (uint32_t i = 0; i < n_windows; i++) {
        bool restart = from > 0 && i < c->n_restart;
        const float *x_in = restart ? c->at_layer + (i * n_layer + from) * row : NULL;
        ZP_TRY(score_hidden(c->engine, &c->windows.at[i], restart ? from : 0, x_in, x, err));
        ZP_TRY(score_window(s, i, &c->windows.at[i], c->range, c->engine, x, c->engine,
                            c->base.x + i * row, err));
    }
    return ZP_OK;
}

zp_status calib_kl(struct calib *c, const struct gateset *g, uint32_t from, uint32_t n_windows,
                   double *kl, zp_err *err)
{
    struct score s;
    float *x = NULL;
    if (n_windows > c->windows.n) n_windows = (uint32_t)c->windows.n;
    ZP_TRY(score_open(&s, n_windows, c->n_ctx, c->range, err));
    zp_status status = ZP_OK;
    if (!(x = mem_array(MEM_EVAP, (size_t)c->n_ctx * c->model->h.d_model, sizeof *x)))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for hidden states");
    gateset_apply(g, c->engine);
    if (status == ZP_OK) status = kl_windows(c, from, n_windows, x, &s, err);
    gateset_release(c->engine);
    *kl = score_average(s.kl, n_windows);
    mem_free(x);
    score_free(&s);
    return status;
}
