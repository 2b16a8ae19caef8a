/* servemodel.c: opens a model and its engine for serving, and says what it is.
 * Owns: model and engine. Does not know: requests, the loop.
 * Threads: opened on any; read by all afterwards but strength, n_jobs, placed and next, which are
 * the loop's. */
#include "serve/servemodel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "base/os.h"
#include "model/engine.h"

enum { DEFAULT_SEQUENCES = 16, MEMORY_SHARE = 4 };

/* ---- size ------------------------------------------------------------------------------------ */

static uint32_t default_context(const struct zp_model *m)
{
    uint32_t validated = m->position.n_ctx_validated, trained = m->h.n_ctx_train;
    return validated != 0 ? validated : trained != 0 ? trained : 4096;
}

/* Bytes of the pool: as asked, or what all sequences need, within a share of the memory; never less
 * than one whole context. */
static zp_status choose_pool(const struct zp_model *m, const zp_serve_options *o,
                             zp_engine_options *e, zp_err *err)
{
    struct engine_plan all, one;
    zp_engine_options options = *e, single = *e;
    uint64_t available = os_memory_available();
    if (e->kv_bytes != 0) return ZP_OK;
    single.n_seq = 1;
    ZP_TRY(engine_plan(m, &options, &all, err));
    ZP_TRY(engine_plan(m, &single, &one, err));
    e->kv_bytes = all.kv;
    if (o->kv_tokens != 0)
        e->kv_bytes = (uint64_t)((double)one.kv / single.n_ctx * (double)o->kv_tokens);
    else if (available != 0 && e->kv_bytes > available / MEMORY_SHARE)
        e->kv_bytes = available / MEMORY_SHARE > one.kv ? available / MEMORY_SHARE : one.kv;
    return ZP_OK;
}

static zp_status open_engine(struct servemodel *m, const zp_serve_options *o, zp_err *err)
{
    zp_engine_options e = o->engine;
    e.prefix_cache = true;
    if (e.n_seq == 0) e.n_seq = DEFAULT_SEQUENCES;
    if (e.n_ctx == 0) e.n_ctx = default_context(m->model);
    ZP_TRY(choose_pool(m->model, o, &e, err));
    return zp_engine_open(&m->engine, m->model, &e, err);
}

/* ---- what is said of it ---------------------------------------------------------------------- */

/* "/models/a-b.gguf" -> "a-b"; a folder's name as it is. */
static char *name_of(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (end - begin > 5 && strncmp(path + end - 5, ".gguf", 5) == 0) end -= 5;
    return mem_strndup(MEM_SERVE, path + begin, end - begin);
}

static bool is_zeroed(const struct position *p, uint32_t layer, zp_mode mode)
{
    if (mode == ZP_MODE_ZERO) return true;
    if (position_layer_has_bias(p, layer)) return false;
    for (uint32_t kv = 0; kv < p->n_kv; kv++) {
        const struct position_head *head = &p->heads[layer * p->n_kv + kv];
        const uint8_t *half = mode == ZP_MODE_HALF ? head->half_open : NULL;
        for (uint32_t s = 0; s < head->n_open; s++)
            if (half == NULL || half[head->pair[s]]) return false;
    }
    return true;
}

static void count_zeroed(struct servemodel *m)
{
    const struct position *p = &m->model->position;
    for (int mode = ZP_MODE_FULL; mode <= ZP_MODE_HALF; mode++)
        for (uint32_t l = 0; l < p->n_layer; l++)
            m->zeroed[mode] += is_zeroed(p, l, (zp_mode)mode);
}

static void describe_position(struct servemodel *m)
{
    const struct hparams *h = &m->model->h;
    bool rotates = false;
    for (uint32_t l = 0; l < h->n_layer; l++) rotates = rotates || h->rope[l];
    count_zeroed(m);
    if (rotates && m->zeroed[ZP_MODE_FULL] < h->n_layer)
        (void)numtext_printf(m->theta, sizeof m->theta, "%.9g", (double)h->rope_base);
    else (void)snprintf(m->theta, sizeof m->theta, "none");
}

static void describe_tokens(struct servemodel *m)
{
    const struct tokenizer *t = m->model->tokenizer;
    m->longest_token = 1;
    for (int32_t id = 0; t != NULL && id < tokenizer_get_info(t)->n_vocab; id++) {
        size_t size;
        (void)tokenizer_token_bytes(t, id, &size);
        if (size > m->longest_token) m->longest_token = size;
    }
}

static void describe(struct servemodel *m)
{
    zp_model_describe(m->model, &m->info);
    zp_engine_describe(m->engine, &m->stats);
    m->n_ctx = m->stats.n_ctx;
    (void)snprintf(m->fingerprint, sizeof m->fingerprint, "zp-%.12s", zp_model_sha256(m->model));
    m->strength = NAN;
    describe_position(m);
    describe_tokens(m);
    m->listing = (struct plain_model){ .id = m->name, .created = os_unix_now() / 1000000000,
                                       .n_ctx = m->n_ctx, .n_ctx_train = m->info.n_ctx_train,
                                       .n_vocab = m->info.n_vocab, .n_params = m->info.n_params,
                                       .size = m->info.file_bytes, .n_layer = m->info.n_layer,
                                       .layer_zeroed = m->zeroed[ZP_MODE_FULL] };
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status fill(struct servemodel *m, const char *path, const zp_serve_options *o,
                      zp_err *err)
{
    m->path = mem_strdup(MEM_SERVE, path);
    m->name = name_of(path);
    ZP_FAIL_IF(m->path == NULL || m->name == NULL, err, ZP_NO_MEMORY,
               "not enough memory for a model's name");
    ZP_TRY(zp_model_open(&m->model, path, &o->model_options, err));
    ZP_FAIL_IF(m->model->tokenizer == NULL, err, ZP_UNSUPPORTED,
               "%s cannot be served without a tokenizer%s%s", path,
               m->model->tokenizer_error.code != ZP_OK ? ": " : "",
               m->model->tokenizer_error.message);
    ZP_TRY(open_engine(m, o, err));
    describe(m);
    return ZP_OK;
}

zp_status servemodel_open(struct servemodel **out, const char *path, const zp_serve_options *o,
                          zp_err *err)
{
    *out = NULL;
    struct servemodel *m = mem_zalloc(MEM_SERVE, sizeof *m);
    ZP_FAIL_IF(m == NULL, err, ZP_NO_MEMORY, "not enough memory for a model");
    zp_status status = fill(m, path, o, err);
    if (status == ZP_OK) *out = m;
    else servemodel_close(m);
    return status;
}

void servemodel_close(struct servemodel *m)
{
    if (m == NULL) return;
    zp_engine_close(m->engine);
    zp_model_close(m->model);
    mem_free(m->path);
    mem_free(m->name);
    mem_free(m);
}

/* ---- two of them ----------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id)
{
    size_t n, k;
    const char *x = tokenizer_token_text(a, id, &n), *y = tokenizer_token_text(b, id, &k);
    return n == k && memcmp(x, y, n) == 0 &&
           tokenizer_token_kind(a, id) == tokenizer_token_kind(b, id);
}

zp_status servemodel_check_alike(const struct servemodel *baseline, struct servemodel *candidate,
                                 zp_err *err)
{
    const struct tokenizer *a = baseline->model->tokenizer, *b = candidate->model->tokenizer;
    const struct tokenizer_info *x = tokenizer_get_info(a), *y = tokenizer_get_info(b);
    ZP_FAIL_IF(x->n_vocab != y->n_vocab ||
                   baseline->model->h.n_vocab != candidate->model->h.n_vocab,
               err, ZP_BAD_INPUT, "the candidate has %d tokens, the baseline %d: they do not share "
               "prompts", y->n_vocab, x->n_vocab);
    ZP_FAIL_IF(strcmp(x->model, y->model) != 0 || strcmp(x->pre, y->pre) != 0 ||
                   x->bos != y->bos || x->add_bos != y->add_bos,
               err, ZP_BAD_INPUT, "the candidate's tokenizer is %s/%s, the baseline's %s/%s",
               y->model, y->pre, x->model, x->pre);
    for (int32_t id = 0; id < x->n_vocab; id++)
        ZP_FAIL_IF(!same_token(a, b, id), err, ZP_BAD_INPUT,
                   "token %d of the candidate is another one than the baseline's", id);
    ZP_FAIL_IF(!same_text(baseline->model->template_text, candidate->model->template_text), err,
               ZP_BAD_INPUT, "the candidate has another chat template than the baseline");
    model_share_vocabulary(candidate->model, baseline->model);
    return ZP_OK;
}

/* ---- small ones ------------------------------------------------------------------------------ */

const char *servemodel_zeroed(const struct servemodel *m, zp_mode mode,
                              struct servemodel_share *room)
{
    (void)snprintf(room->text, sizeof room->text, "%u/%u", m->zeroed[mode], m->info.n_layer);
    return room->text;
}

uint64_t servemodel_least_tokens(const struct servemodel *m, uint64_t n_bytes)
{
    return n_bytes / m->longest_token;
}
