/* ppl.c: perplexity of a text, and what a changed model costs against its original.
 * Owns: engines of one call, the window being scored. Does not know: gates, plans.
 * L1 a token is scored once, in the second half of one window, with at least n_ctx/2 - 1 tokens
 *    before it.  L2 both models read the same ids: their tokenizers are compared first.
 * L3 the base always runs in mode full, so that the same file may be compared with itself in
 *    another mode. */
#include "eval/ppl.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "base/json_build.h"

enum { DEFAULT_CTX = 1024, LEAST_CTX = 16, PROBE_BYTES = 1 << 16 };

/* ---- windows */

/* Every token is at least a byte, so this is more than the text can give. */
static size_t most_windows(const struct docs *d, uint32_t n_ctx)
{
    size_t n = 1;
    for (size_t i = 0; i < d->n; i++) n += d->docs[i].size / (n_ctx - 1) + 1;
    return n;
}

zp_status ppl_windows(struct docs *d, const struct zp_model *m, const zp_ppl_options *o,
                      struct windows *out, zp_err *err)
{
    uint32_t n_ctx = o->n_ctx;
    ZP_FAIL_IF(n_ctx < LEAST_CTX, err, ZP_BAD_INPUT,
               "windows of %u tokens are too short: -c of at least %d is needed", n_ctx, LEAST_CTX);
    if (d->single_file || o->contiguous)
        return docs_contiguous(d, m, n_ctx, o->max_windows, out, err);
    size_t most = most_windows(d, n_ctx);
    if (o->max_windows != 0 && o->max_windows < most) most = o->max_windows;
    return docs_windows(d, m, DOCS_ALL, n_ctx, most, 1, out, err);
}

/* ---- scoring */

struct score_range ppl_range(uint32_t n_ctx)
{
    return (struct score_range){ .begin = n_ctx / 2, .stride = 1 };
}

static zp_status run_window(struct zp_engine *e, zp_mode mode, const struct window *w, float *x,
                            zp_err *err)
{
    zp_seq *seq;
    zp_seq_options options = { .mode = mode };
    ZP_TRY(zp_seq_open(&seq, e, &options, err));
    zp_item item = { seq, w->ids, w->n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .x_out = x };
    zp_status status = engine_run(e, &job, err);
    zp_seq_close(seq);
    return status;
}

static zp_status score_all(struct score *s, const struct windows *w, struct zp_engine *e,
                           zp_mode mode, struct zp_engine *b, float *x, float *base_x,
                           const zp_progress *progress, zp_err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct window *win = &w->at[i];
        ZP_TRY(run_window(e, mode, win, x, err));
        if (b) ZP_TRY(run_window(b, ZP_MODE_FULL, win, base_x, err));
        ZP_TRY(score_window(s, (uint32_t)i, win, ppl_range(win->n), e, x, b, base_x, err));
        bool go = !progress || !progress->fn ||
                  progress->fn(progress->arg, "windows", i + 1, w->n);
        ZP_FAIL_IF(!go, err, ZP_INTERRUPTED, "interrupted after %zu of %zu windows", i + 1, w->n);
    }
    return ZP_OK;
}

zp_status ppl_score(struct score *s, const struct windows *w, struct zp_engine *e, zp_mode mode,
                    struct zp_engine *b, const zp_progress *progress, zp_err *err)
{
    size_t row = w->n ? w->at[0].n : 0, d = e->model->h.d_model;
    size_t base_d = b ? b->model->h.d_model : 0;
    float *x = mem_array(MEM_EVAP, row, (d + base_d) * sizeof *x);
    ZP_FAIL_IF(!x, err, ZP_NO_MEMORY, "not enough memory for the states of a window");
    float *base_x = b ? x + row * d : NULL;
    zp_status status = score_all(s, w, e, mode, b, x, base_x, progress, err);
    mem_free(x);
    return status;
}

/* ---- the two models */

static zp_status encode_probe(const struct zp_model *m, const char *text, size_t size,
                              struct token_list *out, zp_err *err)
{
    const struct tokenizer *t;
    ZP_TRY(model_tokenizer(m, &t, err));
    return tokenizer_encode(t, text, size, 0, out, err);
}

/* L2, on the beginning of the text. */
static zp_status same_tokens(const struct zp_model *m, const struct zp_model *base,
                             const struct docs *d, zp_err *err)
{
    struct token_list a = { 0 }, b = { 0 };
    const struct doc *doc = &d->docs[0];
    size_t most = doc->size < PROBE_BYTES ? doc->size : PROBE_BYTES;
    size_t size = utf8_complete_prefix(doc->text, most);
    zp_status status = encode_probe(m, doc->text, size, &a, err);
    if (status == ZP_OK) status = encode_probe(base, doc->text, size, &b, err);
    bool same = status == ZP_OK && a.count == b.count &&
                (a.count == 0 || memcmp(a.ids, b.ids, a.count * sizeof *a.ids) == 0);
    size_t n[2] = { a.count, b.count };
    token_list_free(&a);
    token_list_free(&b);
    ZP_TRY(status);
    ZP_FAIL_IF(!same, err, ZP_BAD_INPUT,
               "the two models' tokenizers differ (%zu and %zu tokens for the same text): a "
               "comparison needs a base with the same tokenizer", n[0], n[1]);
    return ZP_OK;
}

static zp_status open_engine(struct zp_engine **out, const struct zp_model *m,
                             const zp_engine_options *given, uint32_t n_ctx, zp_err *err)
{
    zp_engine_options options = *given;
    options.n_ctx = n_ctx;
    options.n_seq = 1;
    return zp_engine_open(out, m, &options, err);
}

/* ---- the document */

struct report {
    const struct zp_model *m, *base;
    const zp_ppl_options *o;
    const struct docs *d;
    const struct windows *w;
    struct score *s;
    double seconds;
};

static void write_bucket(struct json_build *j, const struct report *r, uint32_t b)
{
    const struct score_mean *mean = &r->s->bucket[b];
    uint32_t begin = ppl_range(r->o->n_ctx).begin, end = r->o->n_ctx - 1;
    uint32_t from = b ? 1u << b : 0, to = 1u << (b + 1);
    double nll = score_average(mean, 1);
    json_build_object(j, NULL);
    json_build_uint(j, "from", from > begin ? from : begin);
    json_build_uint(j, "to", to < end ? to : end);
    json_build_uint(j, "tokens", mean->n);
    json_build_real(j, "nll", nll, 7);
    json_build_real(j, "ppl", exp(nll), 7);
    if (r->base) json_build_real(j, "nll_base", score_average(&r->s->bucket_base[b], 1), 7);
    json_build_object_end(j);
}

/* Between windows: neighbouring tokens are not independent. */
static double standard_error(const struct score_mean *m, uint32_t n)
{
    double mean = score_average(m, n), sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        double off = score_average(&m[i], 1) - mean;
        sum += off * off;
    }
    return n > 1 ? sqrt(sum / (n - 1.0) / n) : 0.0;
}

static void write_comparison(struct json_build *j, const struct report *r)
{
    struct score *s = r->s;
    double nll = score_average(s->nll, s->n_windows);
    double base = score_average(s->nll_base, s->n_windows);
    json_build_text(j, "base", r->base->gguf.path);
    json_build_real(j, "nll_base", base, 9);
    json_build_real(j, "ppl_base", exp(base), 9);
    json_build_real(j, "ppl_change", expm1(nll - base), 6);
    json_build_real(j, "kl_mean", score_average(s->kl, s->n_windows), 9);
    json_build_real(j, "kl_hi", score_upper95(s->kl, s->n_windows, 1), 9);
    json_build_real(j, "kl_p50", score_quantile(s, 0.50), 9);
    json_build_real(j, "kl_p99", score_quantile(s, 0.99), 9);
    json_build_real(j, "kl_max", score_quantile(s, 1.0), 9);
    json_build_real(j, "kl_last200", score_average(s->kl_last, s->n_windows), 9);
    json_build_real(j, "top1_agree", score_average(s->top1, s->n_windows), 9);
}

static uint64_t scored_of(const struct score *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_windows; i++) n += s->nll[i].n;
    return n;
}

static zp_status write_report(const struct report *r, char **json, zp_err *err)
{
    static const char *const modes[] = { "full", "zero", "half", "auto" };
    struct json_build j;
    const struct score *s = r->s;
    double nll = score_average(s->nll, s->n_windows);
    json_build_open(&j, err);
    json_build_object(&j, NULL);
    json_build_text(&j, "model", r->m->gguf.path);
    json_build_text(&j, "mode", modes[r->o->mode]);
    json_build_bool(&j, "exact", r->o->engine.exact);
    json_build_uint(&j, "ctx", r->o->n_ctx);
    json_build_uint(&j, "windows", r->w->n);
    json_build_text(&j, "windows_of", r->d->single_file || r->o->contiguous ? "joined text"
                                                                           : "documents");
    json_build_uint(&j, "tokens", (uint64_t)r->w->n * r->o->n_ctx);
    json_build_uint(&j, "scored", scored_of(s));
    json_build_real(&j, "nll", nll, 9);
    json_build_real(&j, "nll_stderr", standard_error(s->nll, s->n_windows), 4);
    json_build_real(&j, "ppl", exp(nll), 9);
    if (r->base) write_comparison(&j, r);
    json_build_array(&j, "buckets");
    for (uint32_t b = 0; b < ZP_COUNT(s->bucket); b++)
        if (s->bucket[b].n) write_bucket(&j, r, b);
    json_build_array_end(&j);
    json_build_real(&j, "total_seconds", r->seconds, 4);
    json_build_object_end(&j);
    return json_build_finish(&j, json);
}

/* ---- the call */

struct job {
    struct docs docs;
    struct windows windows;
    struct zp_engine *e, *b;
    struct score score;
};

static zp_status run_job(struct job *t, const zp_model *m, const zp_model *base, const char *path,
                         const zp_ppl_options *o, char **json, zp_err *err)
{
    double begin = os_now();
    ZP_TRY(docs_open(&t->docs, path, err));
    if (base) ZP_TRY(same_tokens(m, base, &t->docs, err));
    ZP_TRY(ppl_windows(&t->docs, m, o, &t->windows, err));
    ZP_TRY(open_engine(&t->e, m, &o->engine, o->n_ctx, err));
    if (base) ZP_TRY(open_engine(&t->b, base, &o->base_engine, o->n_ctx, err));
    uint32_t n = (uint32_t)t->windows.n;
    ZP_TRY(score_open(&t->score, n, o->n_ctx, ppl_range(o->n_ctx), err));
    ZP_TRY(ppl_score(&t->score, &t->windows, t->e, o->mode, t->b, &o->progress, err));
    struct report r = { m, base, o, &t->docs, &t->windows, &t->score, os_now() - begin };
    return write_report(&r, json, err);
}

zp_status zp_ppl_json(const zp_model *m, const zp_model *base, const char *path,
                      const zp_ppl_options *options, char **json, zp_err *err)
{
    struct job t = { 0 };
    zp_ppl_options o = { 0 };
    if (json) *json = NULL;
    if (options) o = *options;
    if (o.n_ctx == 0) o.n_ctx = DEFAULT_CTX;
    zp_status status = run_job(&t, m, base, path, &o, json, err);
    score_free(&t.score);
    zp_engine_close(t.b);
    zp_engine_close(t.e);
    windows_free(&t.windows);
    docs_close(&t.docs);
    return status;
}
