/* model.c: opens a model file or folder and keeps what never changes.
 * Owns: mapping, hyper-parameters, position table, tokenizer, template. Does not know: engines,
 * sequences.
 * Threads: immutable after zp_model_open, but for the hash, which the first to ask computes.
 * M1 a tokenizer or template that cannot be used does not stop the model from loading; asking for
 *    it tells why. */
#include "model/model.h"

#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "model/hfconfig.h"
#include "model/ownkeys.h"

static zp_status read_file(struct zp_model *m, const char *path, zp_err *err)
{
    if (os_is_folder(path)) return hf_open(&m->gguf, path, err);
    return gguf_open(&m->gguf, path, err);
}

static void open_tokenizer(struct zp_model *m, const char *pre)
{
    zp_err *err = &m->tokenizer_error;
    struct gguf_str json = { 0 }, config = { 0 };
    if (gguf_find_key(&m->gguf, "tokenizer.ggml.model"))
        tokenizer_open_gguf(&m->tokenizer, &m->gguf, pre, err);
    else if (gguf_get_str_or_null(&m->gguf, "tokenizer.huggingface.json", &json, err) != ZP_OK ||
             gguf_get_str_or_null(&m->gguf, "zerope.tokenizer.config", &config, err) != ZP_OK)
        ; /* err says it */
    else if (json.data)
        tokenizer_open_json(&m->tokenizer, json, config, m->gguf.path, err);
    else
        status_fail(err, ZP_BAD_FILE, __FILE__, __LINE__, "the model comes without a tokenizer");
    if (err->code != ZP_OK && err->code != ZP_NO_MEMORY) status_add_path(err, m->gguf.path);
}

static zp_status template_source(struct zp_model *m, const char *given, zp_err *err)
{
    struct gguf_str s = { 0 };
    if (given) s = (struct gguf_str){ given, strlen(given) };
    else ZP_TRY(gguf_get_str_or_null(&m->gguf, "tokenizer.chat_template", &s, err));
    if (s.data) {
        m->template_text = arena_strndup(&m->arena, s.data, s.size);
        ZP_FAIL_IF(!m->template_text, err, ZP_NO_MEMORY, "not enough memory for the chat template");
    }
    return ZP_OK;
}

static void open_template(struct zp_model *m)
{
    if (m->template_text)
        template_open(&m->template, m->template_text, strlen(m->template_text), "chat template",
                      &m->template_error);
    else
        status_fail(&m->template_error, ZP_BAD_FILE, __FILE__, __LINE__,
                    "%s: the model has no chat template", m->gguf.path);
}

/* Identity of keys and tensor table: names, shapes, types, offsets; not of all weight bytes. A
 * stretched model is another one: saved sequences must not go from one to the other. */
static void hash_table(const struct zp_model *m, char hex[65])
{
    const struct gguf *g = &m->gguf;
    struct sha256 s;
    sha256_init(&s);
    for (uint32_t i = 0; i < g->n_kv; i++) {
        sha256_update(&s, g->kvs[i].name, strlen(g->kvs[i].name) + 1);
        sha256_update(&s, g->kvs[i].data, g->kvs[i].bytes);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        sha256_update(&s, t->name, strlen(t->name) + 1);
        sha256_update(&s, t->ne, sizeof t->ne);
        sha256_update(&s, &t->type, sizeof t->type);
        sha256_update(&s, &t->offset, sizeof t->offset);
    }
    sha256_update(&s, m->stretch, strlen(m->stretch));
    sha256_final(&s, hex);
}

/* A start does not need the hash, and vocabularies of megabytes take it milliseconds. Threads that
 * ask at once all compute it; one writes. */
const char *zp_model_sha256(const zp_model *m)
{
    enum { EMPTY, WRITING, READY };
    struct zp_model *own = (struct zp_model *)(uintptr_t)m;
    char hex[65];
    int state = atomic_load(&own->sha256_state);
    if (state == READY) return m->sha256_hex;
    hash_table(m, hex);
    state = EMPTY;
    if (atomic_compare_exchange_strong(&own->sha256_state, &state, WRITING)) {
        memcpy(own->sha256_hex, hex, sizeof hex);
        atomic_store(&own->sha256_state, READY);
    }
    while (atomic_load(&own->sha256_state) != READY) {
    }
    return m->sha256_hex;
}

static _Atomic uint64_t n_vocabularies;

void model_share_vocabulary(zp_model *m, const struct zp_model *with)
{
    m->vocabulary = with->vocabulary;
}

static zp_status fill(struct zp_model *m, const char *path, const zp_model_options *o, zp_err *err)
{
    m->arena.tag = MEM_META;
    m->vocabulary = atomic_fetch_add(&n_vocabularies, 1) + 1;
    ZP_TRY(read_file(m, path, err));
    ZP_TRY(arch_read(&m->h, &m->gguf, &m->arena, err));
    ZP_TRY(ownkeys_check(&m->h, &m->gguf, err));
    const char *stretch = o ? o->rope_scaling : NULL;
    if (stretch) ZP_TRY(stretch_apply(&m->h, &m->gguf, stretch, m->stretch, err));
    ZP_TRY(position_read(&m->position, &m->gguf, &m->h, &m->arena, err));
    ZP_TRY(structhead_read(&m->structure, &m->gguf, &m->h, &m->arena, err));
    if (stretch) ZP_TRY(stretch_check(&m->position, m->stretch, err));
    struct gguf_str name;
    ZP_TRY(gguf_get_str_or_null(&m->gguf, "general.name", &name, err));
    m->name = arena_strndup(&m->arena, name.data ? name.data : "", name.size);
    ZP_FAIL_IF(!m->name, err, ZP_NO_MEMORY, "not enough memory for the model's name");
    for (uint32_t i = 0; i < m->gguf.n_tensors; i++)
        m->n_params += m->gguf.tensors[i].ne[0] * gguf_tensor_rows(&m->gguf.tensors[i]);
    open_tokenizer(m, o ? o->pre : NULL);
    ZP_FAIL_IF(m->tokenizer_error.code == ZP_NO_MEMORY, err, ZP_NO_MEMORY, "%s",
               m->tokenizer_error.message);
    ZP_TRY(template_source(m, o ? o->chat_template : NULL, err));
    open_template(m);
    ZP_FAIL_IF(m->template_error.code == ZP_NO_MEMORY, err, ZP_NO_MEMORY, "%s",
               m->template_error.message);
    return ZP_OK;
}

/* What M1 lets pass. */
static void tell(const struct zp_model *m)
{
    if (!m->tokenizer) log_info("no text with this model: %s", m->tokenizer_error.message);
    if (!m->template && m->template_text)
        log_info("no chats with this model: %s: %s", m->gguf.path, m->template_error.message);
}

zp_status zp_model_open(zp_model **out, const char *path, const zp_model_options *options,
                        zp_err *err)
{
    *out = NULL;
    struct zp_model *m = mem_zalloc(MEM_META, sizeof *m);
    ZP_FAIL_IF(!m, err, ZP_NO_MEMORY, "not enough memory for a model");
    zp_status status = fill(m, path, options, err);
    if (status != ZP_OK) {
        if (status != ZP_NO_MEMORY) status_add_path(err, path);
        zp_model_close(m);
        return status;
    }
    tell(m);
    *out = m;
    return ZP_OK;
}

void zp_model_close(zp_model *m)
{
    if (!m) return;
    template_close(m->template);
    tokentrie_close(atomic_load(&m->trie));
    tokenizer_close(m->tokenizer);
    arena_free(&m->arena);
    gguf_close(&m->gguf);
    mem_free(m);
}

void zp_model_describe(const zp_model *m, zp_model_info *out)
{
    const struct hparams *h = &m->h;
    *out = (zp_model_info){ .arch = m->gguf.arch,
                            .name = m->name,
                            .file_bytes = m->gguf.file_bytes,
                            .n_params = m->n_params,
                            .n_layer = h->n_layer,
                            .n_head = h->n_head,
                            .n_kv = h->n_kv,
                            .d_head = h->d_head,
                            .d_model = h->d_model,
                            .d_ff = h->d_ff,
                            .n_vocab = h->n_vocab,
                            .n_ctx_train = h->n_ctx_train,
                            .n_ctx_validated = m->position.n_ctx_validated,
                            .has_template = m->template != NULL,
                            .has_tokenizer = m->tokenizer != NULL,
                            .pooling = m->h.pooling };
    position_gates(&m->position, &out->gates_total, &out->gates_closed, &out->layers_none,
                   &out->heads_none, &out->heads_local);
}

zp_status model_tokenizer(const struct zp_model *m, const struct tokenizer **out, zp_err *err)
{
    ZP_FAIL_IF(!m->tokenizer, err, m->tokenizer_error.code, "%s", m->tokenizer_error.message);
    *out = m->tokenizer;
    return ZP_OK;
}

zp_status model_template(const struct zp_model *m, const struct template **out, zp_err *err)
{
    ZP_FAIL_IF(!m->template, err, m->template_error.code, "%s%s", m->template_error.message,
               m->template_text ? "" : "; give one with --chat-template");
    *out = m->template;
    return ZP_OK;
}
