/* export.c: keys and tensors of a stock file from those of an evaporated one.
 * Owns: one export. Does not know: how rows are ordered (export_rows.c), what is possible
 * (export_route.c).
 * O1 no key of zerope.position or zerope.attention is in a stock file: what they said is said by
 *    its own keys, or the export is refused.  O2 context_length is the length with evidence.
 * O3 the written file is opened again and its position table compared with the source's.
 * O4 a GGUF file gets its name last, when nothing can fail any more; of a folder each file does. */
#include "evap/export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "kern/quant.h"
#include "model/hftokenizer.h"
#include "model/outputs.h"

static const float closed_divisor = 1e30f;

/* ---- keys */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void remove_keys(struct gguf_edit *e, const char *prefix)
{
    for (uint32_t i = e->n_kv; i-- > 0;)
        if (begins(e->kvs[i].name, prefix)) gguf_edit_remove_key(e, e->kvs[i].name);
}

static zp_status set_context(struct export_job *j, zp_err *err)
{
    const struct hparams *h = &j->m->h;
    bool scaled = !j->route.drops_scaling;
    uint32_t validated = j->m->position.n_ctx_validated;
    j->n_ctx = validated ? validated : h->n_ctx_train;
    /* Dynamic scaling grows from the length that this key names; it must not move. */
    if (scaled && h->scaling == ARCH_SCALING_DYNAMIC) j->n_ctx = h->n_ctx_train;
    /* YaRN's original length defaults to the key that changes here. */
    if (scaled && h->scaling == ARCH_SCALING_YARN)
        ZP_TRY(gguf_edit_set_u32(&j->edit, "%.rope.scaling.original_context_length",
                                 (uint32_t)h->orig_ctx, err));
    return gguf_edit_set_u32(&j->edit, "%.context_length", j->n_ctx, err);
}

static zp_status set_scaling(struct export_job *j, zp_err *err)
{
    char prefix[96];
    struct gguf_edit *e = &j->edit;
    gguf_edit_remove_key(e, "%.attention.rope_pattern");
    if (j->route.drops_scaling) {
        snprintf(prefix, sizeof prefix, "%.60s.rope.scaling.", j->route.arch);
        remove_keys(e, prefix);
        gguf_edit_remove_key(e, "%.rope.scale_linear");
    }
    if (j->route.way != EXPORT_AS_IS) gguf_edit_remove_key(e, "%.rope.scaling.finetuned");
    if (j->route.way != EXPORT_LINEAR) return ZP_OK;
    ZP_TRY(gguf_edit_set_str(e, "%.rope.scaling.type", "linear", err));
    return gguf_edit_set_f32(e, "%.rope.scaling.factor", closed_divisor, err);
}

/* Divisors the model has already, and 1e30 at closed pairs. */
static zp_status set_divisors(struct export_job *j, zp_err *err)
{
    const struct export_shape *s = &j->route.shape;
    const struct gguf_tensor *old = j->m->h.rope_freqs;
    float divisor[512];
    uint64_t n = s->n_pair;
    if (j->route.way == EXPORT_LINEAR) gguf_edit_remove_tensor(&j->edit, "rope_freqs.weight");
    if (j->route.way == EXPORT_LINEAR || s->n_closed == 0) return ZP_OK;
    for (uint32_t i = 0; i < n; i++) {
        divisor[i] = 1.0f;
        if (old) memcpy(&divisor[i], old->data + 4 * i, 4);
        if (s->closed[i]) divisor[i] = closed_divisor;
    }
    return gguf_edit_set_tensor_f32(&j->edit, "rope_freqs.weight", 1, &n, divisor, err);
}

/* granite_swa with layers that all see everything: one must be marked as windowed, and the window
 * is longer than any context. Attention sinks are required and switched off. */
static zp_status set_granite_swa(struct export_job *j, const bool *rope, zp_err *err)
{
    struct gguf_edit *e = &j->edit;
    uint32_t n_layer = j->m->h.n_layer, first = 0;
    uint64_t n_head = j->m->h.n_head;
    bool windowed[1024] = { false };
    float sinks[1024];
    while (first + 1 < n_layer && !rope[first]) first++;
    windowed[first] = true; /* one that rotates: the engine needs positions in both kinds */
    ZP_TRY(gguf_edit_set_array(e, "%.attention.sliding_window_pattern", GGUF_BOOL, windowed,
                               n_layer, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.sliding_window", 1u << 30, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.rope.dimension_count", j->m->h.n_rot, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.vocab_size", j->m->h.n_vocab, err));
    if (!gguf_edit_find_key(e, "%.logit_scale"))
        ZP_TRY(gguf_edit_set_f32(e, "%.logit_scale", 1.0f, err));
    for (uint32_t i = 0; i < n_head; i++) sinks[i] = -1e30f;
    for (uint32_t l = 0; l < n_layer; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.attn_sinks.weight", l);
        ZP_TRY(gguf_edit_set_tensor_f32(e, name, 1, &n_head, sinks, err));
    }
    return ZP_OK;
}

static zp_status set_pattern(struct export_job *j, zp_err *err)
{
    bool rope[1024];
    if (j->route.way != EXPORT_PATTERN) return ZP_OK;
    for (uint32_t l = 0; l < j->m->h.n_layer; l++) rope[l] = !j->route.shape.none[l];
    ZP_TRY(gguf_edit_set_array(&j->edit, "%.attention.rope_pattern", GGUF_BOOL, rope,
                               j->m->h.n_layer, err));
    return j->route.kind == EXPORT_HF ? ZP_OK : set_granite_swa(j, rope, err);
}

/* llama.cpp loads no file without a tokenizer key; "none" lets token ids in. */
static zp_status set_tokenizer(struct export_job *j, zp_err *err)
{
    j->has_tokenizer = gguf_edit_find_key(&j->edit, "tokenizer.ggml.model") != NULL;
    if (j->has_tokenizer || j->route.kind == EXPORT_HF) return ZP_OK;
    ZP_TRY(gguf_edit_set_str(&j->edit, "tokenizer.ggml.model", "none", err));
    return gguf_edit_set_u32(&j->edit, "%.vocab_size", j->m->h.n_vocab, err);
}

static zp_status make_stock(struct export_job *j, zp_err *err)
{
    struct gguf_edit *e = &j->edit;
    ZP_TRY(gguf_edit_init(e, &j->m->gguf, err));
    remove_keys(e, "zerope.position.");
    remove_keys(e, "zerope.attention.");
    gguf_edit_remove_key(e, "zerope.format_version");
    ZP_TRY(gguf_edit_rename_arch(e, j->route.arch, err));
    ZP_TRY(set_scaling(j, err));
    ZP_TRY(set_divisors(j, err));
    ZP_TRY(set_pattern(j, err));
    ZP_TRY(set_context(j, err));
    ZP_TRY(set_tokenizer(j, err));
    return export_rows_set(&j->rows, e, err);
}

/* ---- the folder's other files */

static zp_status add_copies(struct export_job *j, zp_err *err)
{
    static const char *const names[] = {
        "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "generation_config.json",
    };
    const char *folder = j->m->gguf.folder;
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        size_t size = strlen(folder) + strlen(names[i]) + 2;
        char *path = arena_alloc(&j->edit.arena, size);
        ZP_FAIL_IF(!path, err, ZP_NO_MEMORY, "not enough memory for a path");
        snprintf(path, size, "%s/%s", folder, names[i]);
        if (!os_exists(path)) continue;
        j->files[j->n_files++] = (struct hf_file){ .name = names[i], .copy_from = path };
    }
    return ZP_OK;
}

static void add_text(struct export_job *j, const char *name, const char *text)
{
    if (!text) return;
    j->files[j->n_files++] =
        (struct hf_file){ .name = name, .data = text, .size = strlen(text) };
}

/* From the keys of a GGUF file: byte-level BPE only; others are left to the user, with a note. */
static zp_status add_tokenizer(struct export_job *j, zp_err *err)
{
    const struct tokenizer *t = j->m->tokenizer;
    zp_err why = { 0 };
    if (!hftokenizer_is_possible(t)) return ZP_OK;
    zp_status status = hftokenizer_write(&j->m->gguf, t, &j->tokenizer, &why);
    if (status == ZP_UNSUPPORTED) return ZP_OK;
    ZP_FAIL_IF(status != ZP_OK, err, status, "%s", why.message);
    ZP_TRY(hftokenizer_write_config(t, j->n_ctx, &j->tokenizer_config, err));
    add_text(j, "tokenizer.json", j->tokenizer);
    add_text(j, "tokenizer_config.json", j->tokenizer_config);
    j->has_tokenizer = true;
    return ZP_OK;
}

/* Length of the shortest part of the path that is not there yet, 0 when all of it is. */
static size_t first_missing(const char *path)
{
    char part[4096];
    size_t size = strlen(path);
    for (size_t i = 1; i <= size && size < sizeof part; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (!os_exists(part)) return i;
    }
    return 0;
}

/* Files of another model would become part of this one. */
static zp_status check_folder(const char *path, zp_err *err)
{
    char name[256];
    if (!os_is_folder(path)) return ZP_OK;
    ZP_TRY(os_find_entry(path, hf_is_model_file, name, sizeof name, err));
    ZP_FAIL_IF(name[0], err, ZP_USAGE,
               "%s: holds %s already, which would mix with the export; name a new or an empty "
               "folder", path, name);
    return ZP_OK;
}

/* What a failed export has left: its files, since there were none of these names, and the folders
 * it made, from the innermost to that of the first `made` bytes. */
static void clean_folder(const char *path, size_t made)
{
    char part[4096 + 256], name[256];
    size_t size = strlen(path);
    if (size >= 4096 || !os_is_folder(path)) return;
    while (os_find_entry(path, hf_is_model_file, name, sizeof name, NULL) == ZP_OK && name[0]) {
        snprintf(part, sizeof part, "%s/%s", path, name);
        if (remove(part) != 0) break;
    }
    memcpy(part, path, size + 1);
    while (made && size >= made && remove(part) == 0) {
        while (size > made && part[size - 1] == '/') size--;
        while (size > 0 && part[size - 1] != '/') size--;
        while (size > 1 && part[size - 1] == '/') size--;
        part[size] = '\0';
    }
}

static zp_status write_folder(struct export_job *j, zp_err *err)
{
    /* other keys of GGUF are no files of a folder */
    j->has_tokenizer = gguf_edit_find_key(&j->edit, "tokenizer.huggingface.json") != NULL;
    if (j->m->gguf.folder) ZP_TRY(add_copies(j, err));
    if (!j->has_tokenizer) ZP_TRY(add_tokenizer(j, err));
    struct hf_write_options options = { .files = j->files, .n_files = j->n_files };
    return hf_write(j->out, &j->edit, &options, err);
}

/* ---- reading back (O3) */

static zp_status compare_head(const struct position *a, const struct position *b, uint32_t layer,
                              uint32_t kv, const char *path, zp_err *err)
{
    const struct position_head *x = &a->heads[layer * a->n_kv + kv];
    const struct position_head *y = &b->heads[layer * b->n_kv + kv];
    bool open[512] = { false }, same = x->n_open == y->n_open;
    for (uint32_t s = 0; s < x->n_open; s++) open[x->pair[s]] = true;
    for (uint32_t s = 0; same && s < y->n_open; s++) {
        uint32_t i = y->pair[s];
        double want = a->angle[a->angle_set[layer]][i], got = b->angle[b->angle_set[layer]][i];
        same = open[i] && fabs(got - want) <= 1e-5 * want;
    }
    ZP_FAIL_IF(!same, err, ZP_RUN,
               "%s: read back, layer %u, KV head %u rotates other pairs than the source (%u and %u "
               "open): nothing is left behind",
               path, layer, kv, y->n_open, x->n_open);
    return ZP_OK;
}

static zp_status compare_positions(const struct zp_model *a, const struct zp_model *b,
                                   const char *path, zp_err *err)
{
    const struct position *p = &a->position, *q = &b->position;
    ZP_FAIL_IF(p->n_layer != q->n_layer || p->n_kv != q->n_kv || p->n_pair != q->n_pair, err,
               ZP_RUN, "%s: read back, the shape differs from the source's", path);
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t k = 0; k < p->n_kv; k++) ZP_TRY(compare_head(p, q, l, k, path, err));
    return ZP_OK;
}

static zp_status read_back(struct export_job *j, zp_err *err)
{
    struct zp_model *written;
    if (j->route.way == EXPORT_PATTERN && j->route.kind == EXPORT_STOCK_GGUF &&
        !arch_find(j->route.arch))
        return ZP_OK;
    ZP_TRY(zp_model_open(&written, j->file.temp ? j->file.temp : j->out, NULL, err));
    zp_status status = compare_positions(j->m, written, j->out, err);
    zp_model_close(written);
    j->read_back = status == ZP_OK;
    return status;
}

/* ---- the three kinds */

static zp_status export_stock(struct export_job *j, enum export_kind kind, zp_err *err)
{
    ZP_TRY(export_route_find(&j->route, kind, j->m, err));
    ZP_TRY(make_stock(j, err));
    if (kind == EXPORT_HF) ZP_TRY(write_folder(j, err));
    else ZP_TRY(gguf_edit_write_temp(&j->edit, j->out, &j->file, err));
    return read_back(j, err);
}

static zp_status export_own(struct export_job *j, zp_err *err)
{
    ZP_FAIL_IF(!j->m->h.ours, err, ZP_BAD_INPUT,
               "%s: architecture %s is not one of zerope's: evaporate it first, or use --to "
               "stock-gguf",
               j->model, j->m->gguf.arch);
    ZP_TRY(gguf_edit_init(&j->edit, &j->m->gguf, err));
    j->n_ctx = j->m->position.n_ctx_validated;
    if (!j->n_ctx) j->n_ctx = j->m->h.n_ctx_train;
    j->has_tokenizer = gguf_edit_find_key(&j->edit, "tokenizer.ggml.model") != NULL ||
                       gguf_edit_find_key(&j->edit, "tokenizer.huggingface.json") != NULL;
    ZP_TRY(gguf_edit_write_temp(&j->edit, j->out, &j->file, err));
    return read_back(j, err);
}

static zp_status run(struct export_job *j, char **json, zp_err *err)
{
    ZP_TRY(zp_model_open(&j->m, j->model, NULL, err));
    j->rows.m = j->m;
    j->rows.route = &j->route;
    if (strcmp(j->to, "stock-gguf") == 0) ZP_TRY(export_stock(j, EXPORT_STOCK_GGUF, err));
    else if (strcmp(j->to, "hf") == 0) ZP_TRY(export_stock(j, EXPORT_HF, err));
    else ZP_TRY(export_own(j, err));
    ZP_TRY(export_report(j, json, err));
    return j->file.temp ? os_file_commit(&j->file, err) : ZP_OK;
}

zp_status zp_export_run(const char *model, const char *to, const char *out,
                        const zp_progress *progress, char **json, zp_err *err)
{
    struct export_job *j;
    char *unwanted = NULL;
    if (!json) json = &unwanted;
    *json = NULL;
    bool known = strcmp(to, "stock-gguf") == 0 || strcmp(to, "hf") == 0 || strcmp(to, "gguf") == 0;
    ZP_FAIL_IF(!known, err, ZP_USAGE, "export to '%.40s'; known: hf, stock-gguf, gguf", to);
    ZP_TRY(outputs_check(&out, 1, &model, 1, err));
    bool folder = strcmp(to, "hf") == 0;
    if (!folder) ZP_TRY(gguf_check_output(out, err));
    ZP_ALLOC(j, MEM_EVAP, 1, err, "an export");
    *j = (struct export_job){ .model = model, .to = to, .out = out, .rows.progress = progress };
    size_t made = folder ? first_missing(out) : 0;
    zp_status status = folder ? check_folder(out, err) : ZP_OK;
    bool ran = status == ZP_OK;
    if (ran) status = run(j, json, err);
    if (ran && folder && status != ZP_OK) clean_folder(out, made);
    if (status != ZP_OK) {
        mem_free(*json);
        *json = NULL;
    }
    mem_free(unwanted);
    os_file_abort(&j->file);
    gguf_edit_free(&j->edit);
    zp_model_close(j->m);
    mem_free(j->tokenizer);
    mem_free(j->tokenizer_config);
    mem_free(j);
    return status;
}
