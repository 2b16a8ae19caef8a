/* scalefit.c: the logit scale of a model beyond its trained length.
 * Owns: engine, windows and trial positions of one call.
 * A query that sees n keys spreads its softmax over more of them than it was trained with; beta(n)
 * = 1 + c ln(max(1, n / len)) sharpens it again (Chiang and Cholak 2022; Wang et al. 2024). One c
 * for all layers, which stands in the file for each; keys stay valid, since it acts on queries
 * alone.
 * Fitted: the mean over buckets [L, 2L), [2L, 4L), ... of NLL, L being the trained length, on every
 * second window; told: both halves, before and after. */
#include "evap/scalefit.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "evap/heldwin.h"
#include "evap/trial.h"
#include "model/gguf_write.h"
#include "base/json_build.h"

enum { WINDOWS = 16, MOST_BUCKETS = 8, TIMES = 8, SEQUENCES = 4 };
static const double MOST_C = 1, WIDTH = 0.01;

/* ---- the least of a function ----------------------------------------------------------------- */

/* Kiefer 1953. */
zp_status scalefit_least(scalefit_fn f, void *arg, double low, double high, double width, double *x,
                         zp_err *err)
{
    const double ratio = 0.61803398874989485;
    double a = high - ratio * (high - low), b = low + ratio * (high - low), at_a, at_b;
    ZP_TRY(f(arg, a, &at_a, err));
    ZP_TRY(f(arg, b, &at_b, err));
    while (high - low > width) {
        if (at_a <= at_b) {
            high = b, b = a, at_b = at_a;
            a = high - ratio * (high - low);
            ZP_TRY(f(arg, a, &at_a, err));
        } else {
            low = a, a = b, at_a = at_b;
            b = low + ratio * (high - low);
            ZP_TRY(f(arg, b, &at_b, err));
        }
    }
    *x = at_a <= at_b ? a : b;
    return ZP_OK;
}

/* ---- one call -------------------------------------------------------------------------------- */

struct fit {
    zp_model *m;
    struct shards shards;
    struct heldwin_set windows;
    zp_engine *e;
    struct trial *trials;    /* (windows.n) */
    struct score_row *rows;  /* (windows.n, length) */
    float *c;                /* (n_layer) what the engine reads */
    uint32_t len, n_buckets; /* trained length; bucket 0 lies within it */
    const zp_progress *progress;
    bool second; /* which half of the windows is looked at */
};

static uint32_t bucket_of(const struct fit *f, uint32_t at)
{
    uint32_t b = 0;
    while (b + 1 < f->n_buckets && at >= f->len << b) b++;
    return b;
}

/* NLL by bucket of the half that is looked at, with c in all layers. */
static zp_status measure(struct fit *f, double c, double nll[MOST_BUCKETS], zp_err *err)
{
    double sum[MOST_BUCKETS] = { 0 }, n[MOST_BUCKETS] = { 0 };
    uint32_t length = f->windows.length;
    struct trial_side by = { .e = f->e, .mode = ZP_MODE_FULL, .progress = f->progress,
                             .total = f->windows.n };
    for (uint32_t l = 0; l < f->m->h.n_layer; l++) f->c[l] = (float)c;
    ZP_TRY(trial_run(&by, f->trials, f->windows.n, f->rows, err));
    for (uint32_t w = f->second; w < f->windows.n; w += 2)
        for (uint32_t i = 0; i < length; i++) {
            uint32_t b = bucket_of(f, i);
            sum[b] += f->rows[(size_t)w * length + i].nll, n[b]++;
        }
    for (uint32_t b = 0; b < f->n_buckets; b++) nll[b] = n[b] > 0 ? sum[b] / n[b] : (double)NAN;
    return ZP_OK;
}

static zp_status beyond(void *arg, double c, double *value, zp_err *err)
{
    struct fit *f = arg;
    double nll[MOST_BUCKETS];
    ZP_TRY(measure(f, c, nll, err));
    *value = 0;
    for (uint32_t b = 1; b < f->n_buckets; b++) *value += nll[b] / (f->n_buckets - 1);
    return ZP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status open_windows(struct fit *f, const char *corpus, const zp_scale_options *o,
                              zp_err *err)
{
    const struct tokenizer *t;
    uint32_t n_docs, length = o->length ? o->length : f->len * TIMES;
    ZP_TRY(shards_open(&f->shards, corpus, err));
    ZP_TRY(model_tokenizer(f->m, &t, err));
    ZP_TRY(shards_check_tokenizer(&f->shards, t, corpus, err));
    uint64_t longest = heldwin_longest(&f->shards, &n_docs);
    while (!o->length && length > f->len && length > longest) length /= 2;
    ZP_FAIL_IF(length > longest || length < 2 * f->len, err, ZP_BAD_INPUT,
               "%s: the longest held-out window has %llu tokens; a scale beyond the trained %u "
               "needs twice that", corpus, (unsigned long long)longest, f->len);
    ZP_TRY(heldwin_open(&f->windows, &f->shards, length, o->n_windows ? o->n_windows : WINDOWS,
                        err));
    ZP_FAIL_IF(f->windows.n < 2, err, ZP_BAD_INPUT,
               "%s: one held-out window of %u tokens: one to fit on and one to tell by are needed",
               corpus, length);
    for (f->n_buckets = 2; f->len << (f->n_buckets - 1) < length; f->n_buckets++)
        if (f->n_buckets == MOST_BUCKETS) break;
    return ZP_OK;
}

static zp_status open_engine(struct fit *f, const zp_scale_options *o, zp_err *err)
{
    uint32_t length = f->windows.length;
    zp_engine_options e = { .exact = true, .n_ctx = length, .n_threads = o->n_threads,
                            .n_seq = f->windows.n < SEQUENCES ? f->windows.n : SEQUENCES };
    ZP_TRY(zp_engine_open(&f->e, f->m, &e, err));
    ZP_ALLOC(f->c, MEM_EVAP, f->m->h.n_layer, err, "the scale");
    ZP_ALLOC(f->trials, MEM_EVAP, f->windows.n, err, "windows");
    ZP_ALLOC(f->rows, MEM_EVAP, (size_t)f->windows.n * length, err, "scores");
    f->e->position.scale_c = f->c;
    f->e->position.scale_len = f->len;
    for (uint32_t w = 0; w < f->windows.n; w++)
        f->trials[w] = (struct trial){ f->windows.at[w].tokens, length, 0 };
    return ZP_OK;
}

static zp_status open_all(struct fit *f, const char *model, const char *corpus,
                          const zp_scale_options *o, zp_err *err)
{
    ZP_TRY(zp_model_open(&f->m, model, NULL, err));
    f->len = o->from ? o->from : f->m->h.n_ctx_train;
    ZP_FAIL_IF(f->len == 0 || f->len > 1 << 20, err, ZP_BAD_INPUT,
               "%s does not tell its trained length: give it", model);
    ZP_TRY(open_windows(f, corpus, o, err));
    return open_engine(f, o, err);
}

static void close_all(struct fit *f)
{
    zp_engine_close(f->e);
    mem_free(f->c);
    mem_free(f->trials);
    mem_free(f->rows);
    heldwin_close(&f->windows);
    shards_close(&f->shards);
    zp_model_close(f->m);
}

/* ---- the result ------------------------------------------------------------------------------ */

static zp_status write_file(const struct fit *f, double c, const char *out, zp_err *err)
{
    struct gguf_edit e;
    for (uint32_t l = 0; l < f->m->h.n_layer; l++) f->c[l] = (float)c;
    ZP_TRY(gguf_edit_init(&e, &f->m->gguf, err));
    zp_status status = gguf_edit_set_array(&e, "zerope.attention.scale_c", GGUF_F32, f->c,
                                           f->m->h.n_layer, err);
    if (status == ZP_OK)
        status = gguf_edit_set_u32(&e, "zerope.attention.scale_len", f->len, err);
    gguf_edit_remove_key(&e, "zerope.evidence"); /* measured without it */
    gguf_edit_remove_key(&e, "zerope.context.validated");
    if (status == ZP_OK) status = gguf_edit_write(&e, out, err);
    gguf_edit_free(&e);
    return status;
}

static void report_half(struct json_build *w, const struct fit *f, const char *key,
                        const double before[MOST_BUCKETS], const double after[MOST_BUCKETS])
{
    json_build_array(w, key);
    for (uint32_t b = 0; b < f->n_buckets; b++) {
        json_build_object(w, NULL);
        json_build_uint(w, "from", b ? f->len << (b - 1) : 0);
        json_build_uint(w, "to", b + 1 < f->n_buckets ? f->len << b : f->windows.length);
        json_build_real(w, "nll_before", before[b], 6);
        json_build_real(w, "nll", after[b], 6);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

static zp_status report(struct fit *f, double c, const char *out, char **json, zp_err *err)
{
    struct json_build w;
    double before[MOST_BUCKETS], after[MOST_BUCKETS];
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "file", out);
    json_build_real(&w, "c", c, 6);
    json_build_uint(&w, "scale_len", f->len);
    json_build_uint(&w, "length", f->windows.length);
    json_build_uint(&w, "windows", f->windows.n);
    zp_status status = ZP_OK;
    for (int half = 0; half < 2 && status == ZP_OK; half++) {
        f->second = half == 1;
        status = measure(f, 0, before, err);
        if (status == ZP_OK) status = measure(f, c, after, err);
        if (status == ZP_OK) report_half(&w, f, half ? "held" : "fitted", before, after);
    }
    json_build_object_end(&w);
    zp_status built = json_build_finish(&w, status == ZP_OK ? json : NULL);
    return status != ZP_OK ? status : built;
}

static zp_status run(struct fit *f, const char *out, char **json, zp_err *err)
{
    double c, at_c, at_none;
    ZP_TRY(scalefit_least(beyond, f, 0, MOST_C, WIDTH, &c, err));
    ZP_TRY(beyond(f, c, &at_c, err));
    ZP_TRY(beyond(f, 0, &at_none, err));
    if (at_c >= at_none) c = 0; /* no scale is better */
    if (json) ZP_TRY(report(f, c, out, json, err));
    return write_file(f, c, out, err);
}

zp_status zp_scale_fit(const char *model, const char *corpus, const char *out,
                       const zp_scale_options *options, char **json, zp_err *err)
{
    static const zp_scale_options defaults = { 0 };
    struct fit f = { .progress = options ? &options->progress : NULL };
    if (json) *json = NULL;
    ZP_TRY(gguf_check_output(out, err));
    zp_status status = open_all(&f, model, corpus, options ? options : &defaults, err);
    if (status == ZP_OK) status = run(&f, out, json, err);
    close_all(&f);
    if (status != ZP_OK && json) zp_free(*json), *json = NULL;
    return status;
}
