/* verify.c: the evidence for one file against its original.
 * Owns: the list of checks, their limits and how each is reproduced. Does not know: how the file
 * came about.
 * E1 every check has a value, a limit and a status: pass, fail, inconclusive or n/a; the last two
 *    never count as pass.
 * E2 the file itself is measured, on held-out documents, at the length it claims, and evidence goes
 *    into that file only. */
#include "evap/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "eval/retrieval.h"
#include "evap/apply.h"
#include "evap/check.h"
#include "evap/evapfile.h"
#include "evap/recipe.h"
#include "model/gguf_write.h"

enum { RETRIEVAL_LEAST = 256 }; /* tokens of a window that has room for a prompt */

struct verify {
    const char *path, *base_path, *text;
    zp_verify_options o;
    struct zp_model *model, *base;
    struct docs docs;
    uint32_t n_ctx, n_windows;
    double budget;
    struct recipe recipe;
    struct os_stamp stamp; /* of the file that is measured */
    json_t *checks, *root;
    bool failed, inconclusive;
};

static void add_check(struct verify *v, const char *name, json_t *value, json_t *limit,
                      const char *status, const char *how)
{
    json_t *c = json_pack("{ss so so ss ss}", "name", name, "value", value, "limit", limit,
                          "status", status, "how", how);
    v->checks = json_tree_add(v->checks, c); /* NULL from the first failure on: see finish */
    v->failed = v->failed || *status == 'f'; /* fail */
    v->inconclusive = v->inconclusive || *status == 'i';
}

static void set(struct verify *v, const char *key, json_t *value)
{
    v->root = json_tree_put(v->root, key, value);
}

static const char *verdict(bool ok)
{
    return ok ? "pass" : "fail";
}

/* ---- same bits ------------------------------------------------------------------------------- */

/* Logits of the last token of a window under the given engine and sequence options. */
static zp_status last_logits(const struct verify *v, const struct window *w, bool identity,
                             uint64_t offset, float *logits, zp_engine_stats *stats, zp_err *err)
{
    zp_engine_options options = { .n_ctx = w->n,
                                  .n_threads = v->o.n_threads,
                                  .identity_rotation = identity };
    zp_seq_options so = { .position_offset = offset };
    zp_engine *e;
    zp_seq *s = NULL;
    ZP_TRY(zp_engine_open(&e, v->model, &options, err));
    zp_status status = zp_seq_open(&s, e, &so, err);
    zp_item item = { s, w->ids, w->n, ZP_WANT_LAST };
    if (status == ZP_OK) status = zp_engine_run(e, &item, 1, logits, 1, NULL, err);
    if (stats) zp_engine_describe(e, stats);
    zp_seq_close(s);
    zp_engine_close(e);
    return status;
}

/* A position gate is position work, whatever else is closed. */
static bool position_free(const struct verify *v)
{
    zp_model_info info;
    zp_model_describe(v->model, &info);
    return info.layers_none == info.n_layer && !position_has_gate(&v->model->position);
}

static zp_status check_offsets(struct verify *v, const struct window *w, const float *plain,
                               float *other, zp_err *err)
{
    static const uint64_t offsets[] = { 1, 1000, 1000000 };
    static const char how[] = "zerope verify: the same window with the index of its first token "
                              "moved by 1, 1000, 1000000";
    if (!position_free(v)) {
        add_check(v, "offsets +1 +1000 +1e6", json_null(), json_string("same bits"), "n/a", how);
        return ZP_OK;
    }
    bool same = true;
    for (size_t i = 0; i < ZP_COUNT(offsets); i++) {
        ZP_TRY(last_logits(v, w, false, offsets[i], other, NULL, err));
        same = same && memcmp(plain, other, v->model->h.n_vocab * sizeof *plain) == 0;
    }
    add_check(v, "offsets +1 +1000 +1e6", json_string(same ? "same bits" : "bits differ"),
              json_string("same bits"), verdict(same), how);
    return ZP_OK;
}

/* Rotations done and skipped must be what the file's table says; a wholly closed file holds no
 * position memory. */
static void check_trace(struct verify *v, const struct window *w, const zp_engine_stats *s)
{
    struct position_view view = { ZP_MODE_FULL, NULL, false };
    uint64_t done, skipped;
    position_count(&v->model->position, view, &done, &skipped);
    bool ok = s->position_done == done * w->n && s->position_skipped == skipped * w->n;
    bool free_of_it = position_free(v);
    if (free_of_it) ok = ok && s->position_done == 0 && s->position_bytes == 0;
    double total = (double)(s->position_done + s->position_skipped);
    add_check(
        v, "position work",
        json_pack("{sI sI sI sf}", "done", (json_int_t)s->position_done, "skipped",
                  (json_int_t)s->position_skipped, "bytes", (json_int_t)s->position_bytes,
                  "skip_rate", total > 0.0 ? (double)s->position_skipped / total : 1.0),
        json_string(free_of_it ? "0 done, 0 bytes" : "done and skipped as the file's table says"),
        verdict(ok),
        "zerope run --json: timings.position_done, position_skipped (layer x KV head x pair x "
        "token)");
}

static zp_status check_memory(struct verify *v, uint64_t measured, uint32_t n_ctx, zp_err *err)
{
    zp_engine_options o = { .n_ctx = n_ctx, .n_threads = v->o.n_threads };
    struct engine_plan plan;
    ZP_TRY(engine_plan(v->model, &o, &plan, err));
    double gap = plan.position == measured
                     ? 0.0
                     : 100.0 * fabs((double)measured - (double)plan.position) /
                           fmax(1.0, (double)plan.position);
    add_check(
        v, "position memory",
        json_pack("{sI sI}", "predicted", (json_int_t)plan.position, "measured",
                  (json_int_t)measured),
        json_string("equal within 3 %"), verdict(gap <= 3.0),
        "zerope inspect -c N --json: memory.position_bytes; counted by the engine's allocator");
    return ZP_OK;
}

static zp_status check_bits(struct verify *v, zp_err *err)
{
    struct windows w;
    size_t n_vocab = v->model->h.n_vocab;
    float *plain = mem_array(MEM_EVAP, 2 * n_vocab, sizeof *plain), *other = plain + n_vocab;
    zp_engine_stats stats;
    ZP_FAIL_IF(!plain, err, ZP_NO_MEMORY, "not enough memory for logits");
    zp_status status = docs_windows(&v->docs, v->model, DOCS_HELD, v->n_ctx < 512 ? v->n_ctx : 512,
                                    1, 1, &w, err);
    if (status == ZP_OK) {
        status = last_logits(v, &w.at[0], false, 0, plain, &stats, err);
        if (status == ZP_OK) status = last_logits(v, &w.at[0], true, 0, other, NULL, err);
        bool same = status == ZP_OK && memcmp(plain, other, n_vocab * sizeof *plain) == 0;
        if (status == ZP_OK)
            add_check(v, "skip = identity rotation",
                      json_string(same ? "same bits" : "bits differ"), json_string("same bits"),
                      verdict(same),
                      "zerope verify: logits with closed pairs skipped and with closed pairs "
                      "rotated by angle 0");
        if (status == ZP_OK) status = check_offsets(v, &w.at[0], plain, other, err);
        if (status == ZP_OK) check_trace(v, &w.at[0], &stats);
        if (status == ZP_OK) status = check_memory(v, stats.position_bytes, w.at[0].n, err);
        windows_free(&w);
    }
    mem_free(plain);
    return status;
}

/* ---- file probe ------------------------------------------------------------------------------ */

/* Tensors of a kind that the layer (or the whole model) no longer has. */
static void check_file_probe(struct verify *v)
{
    const struct gguf *g = &v->model->gguf;
    const struct position *p = &v->model->position;
    json_t *found = json_array();
    bool any_open = position_uses_set(p, 0) || position_uses_set(p, 1);
    const struct gguf_tensor *freqs = gguf_find_tensor(g, "rope_freqs.weight");
    if (freqs && !any_open && v->model->h.ours)
        found = json_tree_add(found, json_tree_text(freqs->name));
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const char *name = g->tensors[i].name, *bias = strstr(name, ".pos_");
        unsigned layer;
        char *end = NULL;
        if (!bias || strncmp(name, "blk.", 4) != 0) continue;
        layer = (unsigned)strtoul(name + 4, &end, 10);
        bool gate = strcmp(bias, ".pos_gate.weight") == 0; /* closes with nothing */
        if (layer < p->n_layer && !position_layer_has_bias(p, layer) && !gate)
            found = json_tree_add(found, json_tree_text(name));
    }
    bool ok = json_array_size(found) == 0;
    add_check(v, "file probe", found, json_string("no tensor of a closed part"), verdict(ok),
              "zerope inspect --tensors --json: tensors named rope_freqs, blk.N.pos_*, but for "
              "pos_gate");
}

/* ---- the original ---------------------------------------------------------------------------- */

/* The file names what it was made of. Another quantisation of it may be what the user wants to
 * compare with, but vouches for nothing. */
static zp_status check_original(struct verify *v, zp_err *err)
{
    struct gguf_str named;
    ZP_TRY(gguf_get_str_or_null(&v->model->gguf, "zerope.source.sha256", &named, err));
    bool same = gguf_str_is(named, zp_model_sha256(v->base));
    enum { SHOWN = 12 }; /* digits, enough for the eye */
    char digits[SHOWN + 1] = "";
    if (named.size >= SHOWN) memcpy(digits, named.data, SHOWN);
    add_check(v, "--base is the original that the file names",
              json_sprintf("%.12s", zp_model_sha256(v->base)),
              digits[0] ? json_tree_text(digits) : json_null(),
              !named.data ? "n/a"
              : same      ? "pass"
                          : "inconclusive",
              "zerope inspect BASE --json: header_sha256 (of keys and tensor table); "
              "zerope.source.sha256 of the file");
    return ZP_OK;
}

/* ---- norms of q and k ------------------------------------------------------------------------ */

struct norms {
    const struct hparams *h;
    double *q, *k;
};

static double longest(const float *x, size_t n_rows, size_t d)
{
    double most = 0.0;
    for (size_t r = 0; r < n_rows; r++) {
        double sum = 0.0;
        for (size_t c = 0; c < d; c++) sum += (double)x[r * d + c] * (double)x[r * d + c];
        most = fmax(most, sum);
    }
    return sqrt(most);
}

static void note_norms(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                       const float *values)
{
    struct norms *n = arg;
    (void)values;
    n->q[layer] = fmax(n->q[layer], longest(q, n_tok * n->h->n_head, n->h->d_head));
    n->k[layer] = fmax(n->k[layer], longest(k, n_tok * n->h->n_kv, n->h->d_head));
}

static zp_status norms_of(const struct verify *v, const struct zp_model *m, const struct windows *w,
                          double *q, double *k, zp_err *err)
{
    zp_engine_options options = { .n_ctx = w->at[0].n, .n_threads = v->o.n_threads };
    struct zp_engine *e;
    struct norms n = { &m->h, q, k };
    ZP_TRY(zp_engine_open(&e, m, &options, err));
    e->forward.hooks = (struct forward_hooks){ .arg = &n, .at_qkv = note_norms };
    zp_status status = ZP_OK;
    for (size_t i = 0; i < w->n && status == ZP_OK; i++)
        status = score_hidden(e, &w->at[i], 0, NULL, NULL, err);
    zp_engine_close(e);
    return status;
}

static zp_status check_norms(struct verify *v, zp_err *err)
{
    double n[4][1024] = { { 0 } };
    struct windows w;
    ZP_TRY(docs_windows(&v->docs, v->model, DOCS_HELD, v->n_ctx, 2, 1, &w, err));
    zp_status status = norms_of(v, v->model, &w, n[0], n[1], err);
    if (status == ZP_OK) status = norms_of(v, v->base, &w, n[2], n[3], err);
    windows_free(&w);
    ZP_TRY(status);
    double worst = 0.0;
    for (uint32_t l = 0; l < v->model->h.n_layer; l++)
        for (int i = 0; i < 2; i++)
            if (n[2 + i][l] > 0.0) worst = fmax(worst, n[i][l] / n[2 + i][l]);
    add_check(v, "largest q or k norm / original", json_tree_real(worst), json_real(4.0),
              verdict(worst <= 4.0),
              "zerope verify: largest norm of a head's q and k over two windows, worst layer");
    return ZP_OK;
}

/* ---- quality --------------------------------------------------------------------------------- */

static void add_buckets(struct verify *v, const struct check_result *r)
{
    json_t *list = json_array();
    for (uint32_t b = 0; b < 24; b++) {
        const struct score_mean *own = &r->bucket[b], *base = &r->bucket_base[b];
        if (own->n == 0) continue;
        list = json_tree_add(
            list, json_pack("{sI sI sI so so}", "from", (json_int_t)1 << b, "to",
                            ((json_int_t)1 << (b + 1)) - 1, "positions", (json_int_t)own->n, "nll",
                            json_tree_real(own->sum / (double)own->n), "nll_base",
                            json_tree_real(base->sum / (double)base->n)));
    }
    set(v, "buckets", list);
}

static json_t *quality_json(const struct check_result *r)
{
    return json_pack("{so so so so so so so so si sI}", "kl_mean", json_tree_real(r->kl_mean),
                     "kl_hi", json_tree_real(r->kl_hi), "kl_last200", json_tree_real(r->kl_last200),
                     "kl_p99", json_tree_real(r->kl_p99), "kl_max", json_tree_real(r->kl_max),
                     "top1_agree", json_tree_real(r->top1), "ppl_base",
                     json_tree_real(exp(r->nll_before)), "ppl", json_tree_real(exp(r->nll_after)),
                     "windows", (int)r->n_windows, "positions", (json_int_t)r->n_positions);
}

static zp_status check_quality(struct verify *v, zp_err *err)
{
    zp_engine_options options = {
        .n_ctx = v->n_ctx, .micro_batch = v->n_ctx, .exact = true, .n_threads = v->o.n_threads
    };
    struct zp_engine *e;
    struct check k;
    struct check_result r;
    ZP_TRY(zp_engine_open(&e, v->base, &options, err));
    zp_status status = check_open(&k, e, &v->docs, v->n_ctx, v->n_windows,
                                  v->n_windows < 32 ? v->n_windows : 32, v->o.progress, err);
    if (status == ZP_OK) {
        k.range.buckets_begin = 1; /* the promise is on the second half, buckets are on all */
        status = check_model(&k, v->model, &r, err);
        check_close(&k);
    }
    zp_engine_close(e);
    ZP_TRY(status);
    add_buckets(v, &r);
    double growth = 100.0 * (exp(r.nll_after - r.nll_before) - 1.0),
           limit = fmax(1.0, 200.0 * v->budget);
    const char *how = "zerope verify: exact path of both on held-out documents (zerope ppl --base "
                      "--exact does the same over all documents)";
    bool known = v->budget > 0.0;
    add_check(v, "mean KL(original || file), upper 95 % bound", json_tree_real(r.kl_hi),
              known ? json_tree_real(v->budget) : json_null(),
              !known ? "n/a" : verdict(r.kl_hi <= v->budget), how);
    add_check(v, "perplexity, growth in %", json_tree_real(growth), json_tree_real(limit),
              verdict(growth <= limit), how);
    set(v, "quality", quality_json(&r));
    return ZP_OK;
}

/* ---- retrieval: prose KL does not see it ----------------------------------------------------- */

static zp_status accuracy(const struct verify *v, const struct zp_model *m,
                          const struct retrieval *r, uint32_t *right, zp_err *err)
{
    zp_engine_options options = { .n_ctx = v->n_ctx, .n_threads = v->o.n_threads };
    struct zp_engine *e;
    ZP_TRY(zp_engine_open(&e, m, &options, err));
    float *x = mem_array(MEM_EVAP, (size_t)v->n_ctx * m->h.d_model, sizeof *x);
    zp_status status =
        x ? ZP_OK : status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory");
    *right = 0;
    for (size_t i = 0; i < r->n && status == ZP_OK; i++) {
        struct window w = { r->cases[i].ids, r->cases[i].n, 0 };
        double nll;
        bool ok = false;
        status = score_hidden(e, &w, 0, NULL, x, err);
        if (status == ZP_OK) status = retrieval_score(e, &r->cases[i], x, &nll, &ok, err);
        *right += ok;
        if (status == ZP_OK && v->o.progress.fn &&
            !v->o.progress.fn(v->o.progress.arg, "retrieval prompts", i + 1, r->n))
            status = status_fail(err, ZP_INTERRUPTED, __FILE__, __LINE__, "interrupted");
    }
    mem_free(x);
    zp_engine_close(e);
    return status;
}

/* Within two points of the original where that reaches 80 %; few prompts make it inconclusive, not
 * passed; a short window has no room for a prompt. */
static zp_status check_retrieval(struct verify *v, enum retrieval_kind kind, zp_err *err)
{
    struct retrieval r;
    uint32_t n = v->o.quick ? 40 : 200, before = 0, after = 0;
    char name[60], how[160];
    snprintf(name, sizeof name, "%s accuracy at %u, points below original",
             retrieval_kind_name(kind), v->n_ctx);
    if (v->n_ctx < RETRIEVAL_LEAST) {
        add_check(v, name, json_null(), json_tree_real(2.0), "n/a", "prompts need 256 tokens");
        return ZP_OK;
    }
    ZP_TRY(retrieval_make(&r, &v->docs, v->model, DOCS_HELD, kind, RETRIEVAL_TEST, v->n_ctx, n, 7,
                          err));
    zp_status status = accuracy(v, v->base, &r, &before, err);
    if (status == ZP_OK) status = accuracy(v, v->model, &r, &after, err);
    retrieval_free(&r);
    ZP_TRY(status);
    double a = 100.0 * before / n, b = 100.0 * after / n;
    snprintf(how, sizeof how,
             "zerope verify%s: %u prompts in held-out text, wordings never used in ranking",
             v->o.quick ? " --quick" : "", n);
    const char *state = a < 80.0      ? "n/a"
                        : b < a - 2.0 ? (v->o.quick ? "inconclusive" : "fail")
                        : v->o.quick  ? "inconclusive"
                                      : "pass";
    add_check(
        v, name,
        json_pack("{sf sf sf si}", "original", a, "file", b, "drop", a - b, "prompts", (int)n),
        json_tree_real(2.0), state, how);
    return ZP_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Length and budget: as asked, else what the file's recipe says. */
static zp_status read_claim(struct verify *v, zp_err *err)
{
    uint32_t claimed = v->model->position.n_ctx_validated;
    ZP_TRY(recipe_read(&v->recipe, v->model, err));
    ZP_TRY(docs_exclude(&v->docs, v->recipe.seen, v->recipe.n_seen, err));
    v->n_ctx = v->o.n_ctx ? v->o.n_ctx : claimed ? claimed : v->recipe.n_ctx;
    v->budget = v->o.budget_kl != 0.0 ? v->o.budget_kl : v->recipe.budget_kl;
    if (v->n_ctx == 0) v->n_ctx = v->model->h.n_ctx_train < 1024 ? v->model->h.n_ctx_train : 1024;
    ZP_FAIL_IF(v->n_ctx < 16, err, ZP_BAD_INPUT,
               "windows of %u tokens are too short: -c of at least 16 is needed", v->n_ctx);
    return ZP_OK;
}

static bool same_kind(const struct zp_model *a, const struct zp_model *b)
{
    const struct hparams *x = &a->h, *y = &b->h;
    return x->arch == y->arch && x->n_layer == y->n_layer && x->n_head == y->n_head &&
           x->n_kv == y->n_kv && x->d_head == y->d_head && x->d_model == y->d_model &&
           x->n_vocab == y->n_vocab;
}

static zp_status add_position(struct verify *v, zp_err *err)
{
    struct gateset g;
    json_t *o;
    ZP_TRY(gateset_open(&g, &v->model->position, err));
    zp_status status = gateset_to_json(&g, &v->model->position, &o, err);
    if (status == ZP_OK) {
        o = json_tree_put(o, "n_layer", json_integer(g.n_layer));
        o = json_tree_put(o, "n_kv", json_integer(g.n_kv));
        set(v, "position", json_tree_put(o, "n_pair", json_integer(g.n_pair)));
    }
    gateset_free(&g);
    return status;
}

static zp_status run_checks(struct verify *v, zp_err *err)
{
    zp_model_info info;
    ZP_TRY(os_stamp_of(v->path, &v->stamp, err));
    ZP_TRY(zp_model_open(&v->model, v->path, NULL, err));
    ZP_TRY(zp_model_open(&v->base, v->base_path, NULL, err));
    ZP_FAIL_IF(!same_kind(v->model, v->base), err, ZP_BAD_INPUT,
               "%s is no original of %s: architecture or shape differ", v->base_path, v->path);
    ZP_FAIL_IF(v->o.write_evidence && !v->model->h.ours, err, ZP_BAD_INPUT,
               "%s is not a file of ours (architecture %s): evidence cannot be written into it; "
               "--no-write only measures", v->path, v->model->gguf.arch);
    if (v->o.write_evidence) ZP_TRY(gguf_check_output(v->path, err));
    ZP_TRY(docs_open(&v->docs, v->text, err));
    ZP_TRY(read_claim(v, err));
    v->n_windows = v->o.quick ? 8 : 32;
    zp_model_describe(v->model, &info);
    ZP_TRY(check_original(v, err));
    check_file_probe(v);
    ZP_TRY(check_bits(v, err));
    ZP_TRY(check_norms(v, err));
    ZP_TRY(check_quality(v, err));
    ZP_TRY(check_retrieval(v, RETRIEVAL_PASSKEY, err));
    ZP_TRY(check_retrieval(v, RETRIEVAL_MULTIKEY, err));
    ZP_TRY(add_position(v, err));
    set(v, "ctx", json_integer(v->n_ctx));
    set(v, "gates", json_pack("{si si si si si}", "closed", (int)info.gates_closed, "total",
                              (int)info.gates_total, "layers_none", (int)info.layers_none,
                              "heads_none", (int)info.heads_none, "heads_local",
                              (int)info.heads_local));
    return ZP_OK;
}

/* Into the file that was measured and no other (E2). */
static zp_status put_evidence(const struct verify *v, const char *json, zp_err *err)
{
    struct os_stamp now;
    ZP_TRY(os_stamp_of(v->path, &now, err));
    ZP_FAIL_IF(!os_stamp_equal(&now, &v->stamp), err, ZP_BAD_INPUT,
               "%s was replaced or changed while it was verified: nothing is written into it",
               v->path);
    return apply_evidence(&v->model->gguf, v->path, json, v->budget > 0.0 ? v->n_ctx : 0, err);
}

/* Where that fails, what was measured is still told, but not that it was written. */
static zp_status write_evidence(struct verify *v, char **json, zp_err *err)
{
    zp_status status = put_evidence(v, *json, err);
    if (status == ZP_OK) return ZP_OK;
    mem_free(*json);
    *json = NULL;
    set(v, "evidence_written", json_false());
    if (v->root) (void)evapfile_text(v->root, json, NULL);
    return status;
}

/* Why evidence that could be written is not; NULL: it is. Evidence never says less than the file
 * says already. */
static const char *why_not_written(const struct verify *v)
{
    double own = v->recipe.budget_kl;
    if (v->failed || v->inconclusive) return "not all checks passed";
    if (v->o.quick) return "--quick: fewer windows and prompts vouch for no length";
    if (v->n_ctx < v->model->position.n_ctx_validated) return "the file claims a longer length";
    if (own > 0.0 && v->budget > own) return "the file promises a smaller budget";
    return NULL;
}

static zp_status finish(struct verify *v, char **json, zp_err *err)
{
    const char *status = v->failed ? "fail" : v->inconclusive ? "inconclusive" : "pass";
    const char *why_not = v->o.write_evidence ? why_not_written(v) : "--no-write";
    set(v, "status", json_string(status));
    set(v, "quick", json_boolean(v->o.quick));
    set(v, "evidence_written", json_boolean(!why_not));
    if (why_not) set(v, "evidence_not_written", json_string(why_not));
    set(v, "verified_modes", json_pack("[s]", "full"));
    set(v, "checks", json_incref(v->checks));
    ZP_FAIL_IF(!v->root, err, ZP_NO_MEMORY, "not enough memory for the evidence");
    ZP_TRY(evapfile_text(v->root, json, err));
    if (!why_not) ZP_TRY(write_evidence(v, json, err));
    ZP_FAIL_IF(v->failed, err, ZP_VERIFY, "verification of %s failed: see the checks marked fail",
               v->path);
    return ZP_OK;
}

zp_status zp_verify_run(const char *model, const char *base, const char *text,
                        const zp_verify_options *options, char **json, zp_err *err)
{
    struct verify v = { .path = model, .base_path = base, .text = text };
    char *unwanted = NULL;
    if (options) v.o = *options;
    if (!json) json = &unwanted;
    *json = NULL;
    v.checks = json_array();
    v.root = json_pack("{ss so so so}", "format", "zerope-verify", "model", json_tree_text(model),
                       "base", json_tree_text(base), "text", json_tree_text(text));
    zp_status status = v.checks && v.root ? run_checks(&v, err)
                                          : status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                                                        "not enough memory for the evidence");
    if (status == ZP_OK) status = finish(&v, json, err);
    json_decref(v.checks);
    json_decref(v.root);
    recipe_free(&v.recipe);
    docs_close(&v.docs);
    zp_model_close(v.base);
    zp_model_close(v.model);
    mem_free(unwanted);
    return status;
}
