/* netparam.c: a model's parameters as one array of floats, and back into a file.
 * Owns: the layout. Does not know: what the tensors compute. */
#include "train/netparam.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kern/quant.h"
#include "model/gguf_write.h"
#include "model/weights.h"

enum { UNIT = 16, MOST_CHANNELS = 1024 };

/* ---- layout ---------------------------------------------------------------------------------- */

static enum netparam_rows rows_of(const char *name)
{
    static const struct {
        const char *part;
        enum netparam_rows rows;
    } known[] = { { ".attn_q.", NETPARAM_QUERY_HEADS },
                  { ".attn_q_norm.", NETPARAM_QUERY_HEADS },
                  { ".attn_k.", NETPARAM_KEY_HEADS },
                  { ".attn_k_norm.", NETPARAM_KEY_HEADS } };
    for (size_t i = 0; i < ZP_COUNT(known); i++)
        if (strstr(name, known[i].part)) return known[i].rows;
    return NETPARAM_PLAIN;
}

/* By name, as a matrix may have one row. */
static bool is_matrix(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".weight") == 0 && !strstr(name, "_norm.");
}

static uint32_t layer_of(const char *name, uint32_t n_layer)
{
    unsigned layer;
    return sscanf(name, "blk.%u.", &layer) == 1 ? layer : n_layer;
}

/* Heads of the layer stand in different orders of pairs, so that one head's gains in the order of a
 * file cannot serve all by original pair. */
static bool orders_differ(const struct position *position, uint32_t layer)
{
    const struct position_head *heads = &position->heads[layer * position->n_kv];
    for (uint32_t kv = 1; kv < position->n_kv; kv++)
        if (memcmp(heads[kv].pair, heads[0].pair, position->n_pair * sizeof *heads->pair) != 0)
            return true;
    return false;
}

/* Gains that the file has once for all heads become one row a head where they must. */
static void widen_gains(const struct netparam *p, struct netparam_tensor *t)
{
    const struct hparams *h = &p->model->h;
    size_t n_heads = t->rows == NETPARAM_QUERY_HEADS ? h->n_head : h->n_kv;
    if (t->rows == NETPARAM_PLAIN || t->matrix || t->n != h->d_head || n_heads == 1) return;
    if (p->model->position.reordered && orders_differ(&p->model->position, t->layer))
        t->n = t->n_out = n_heads * h->d_head;
}

/* Rows of heads must be as many as the heads have channels, or file_row would leave the table. */
static zp_status check_heads(const struct netparam *p, const struct netparam_tensor *t, zp_err *err)
{
    const struct hparams *h = &p->model->h;
    if (t->rows == NETPARAM_PLAIN) return ZP_OK;
    size_t n_heads = t->rows == NETPARAM_QUERY_HEADS ? h->n_head : h->n_kv;
    bool shared = strstr(t->name, "_norm.") && t->n == h->d_head;
    ZP_FAIL_IF(t->n_out != n_heads * h->d_head && !shared, err, ZP_BAD_FILE,
               "tensor %s has %zu rows; expected %zu heads of %u channels", t->name, t->n_out,
               n_heads, h->d_head);
    return ZP_OK;
}

static zp_status lay_out(struct netparam *p, const struct gguf_tensor *t, zp_err *err)
{
    struct netparam_tensor *out = &p->tensors[p->n_tensors++];
    uint64_t rows = gguf_tensor_rows(t);
    bool matrix = is_matrix(t->name);
    *out = (struct netparam_tensor){ .name = t->name,
                                     .at = p->n,
                                     .n = (size_t)(t->ne[0] * rows),
                                     .n_in = matrix ? (size_t)t->ne[0] : 1,
                                     .n_out = (size_t)(matrix ? rows : t->ne[0] * rows),
                                     .layer = layer_of(t->name, p->model->h.n_layer),
                                     .rows = rows_of(t->name),
                                     .matrix = matrix };
    ZP_TRY(check_heads(p, out, err));
    widen_gains(p, out);
    p->n += (out->n + UNIT - 1) / UNIT * UNIT;
    return ZP_OK;
}

static zp_status fill(struct netparam *p, zp_err *err)
{
    const struct zp_model *m = p->model;
    const struct gguf *g = &m->gguf;
    ZP_FAIL_IF(m->h.d_head > MOST_CHANNELS, err, ZP_UNSUPPORTED,
               "heads of %u channels cannot be trained", m->h.d_head);
    ZP_TRY(weights_check_names(g, &m->h, err));
    ZP_TAKE(p->tensors, &p->arena, g->n_tensors, err, "the list of parameters");
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (&g->tensors[i] != m->h.rope_freqs && !strstr(g->tensors[i].name, "attn_rot_embd"))
            ZP_TRY(lay_out(p, &g->tensors[i], err));
    return ZP_OK;
}

zp_status netparam_open(struct netparam *p, const struct zp_model *m, zp_err *err)
{
    *p = (struct netparam){ .model = m, .arena = { .tag = MEM_TRAIN } };
    zp_status status = fill(p, err);
    if (status != ZP_OK) netparam_close(p);
    return status;
}

void netparam_close(struct netparam *p)
{
    arena_free(&p->arena);
    *p = (struct netparam){ 0 };
}

const struct netparam_tensor *netparam_find(const struct netparam *p, const char *format,
                                            uint32_t layer)
{
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, format, layer);
    for (size_t i = 0; i < p->n_tensors; i++)
        if (strcmp(p->tensors[i].name, name) == 0) return &p->tensors[i];
    return NULL;
}

/* ---- order of rows --------------------------------------------------------------------------- */

/* File row of row `row` here (P2). */
static size_t file_row(const struct netparam *p, const struct netparam_tensor *t, size_t row)
{
    const struct hparams *h = &p->model->h;
    const struct position *position = &p->model->position;
    if (t->rows == NETPARAM_PLAIN) return row;
    uint32_t map[MOST_CHANNELS], channel = (uint32_t)(row % h->d_head);
    uint32_t head = (uint32_t)(row / h->d_head);
    uint32_t kv = t->rows == NETPARAM_QUERY_HEADS ? head / (h->n_head / h->n_kv) : head;
    position_row_map(position, h, t->layer, kv, map);
    const struct position_head *order = &position->heads[t->layer * h->n_kv + kv];
    uint32_t internal = channel;
    for (uint32_t s = 0; s < position->n_pair && channel < 2 * position->n_pair; s++)
        if (order->pair[s] == channel / 2) internal = 2 * s + channel % 2;
    return row - channel + map[internal];
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status check_finite(const char *name, const float *x, size_t n, zp_err *err)
{
    for (size_t i = 0; i < n; i++)
        ZP_FAIL_IF(!isfinite(x[i]), err, ZP_BAD_FILE, "tensor %s holds %g at %zu: no training "
                   "from a damaged model", name, (double)x[i], i);
    return ZP_OK;
}

static zp_status read_tensor(const struct netparam *p, const struct netparam_tensor *t, float *w,
                             zp_err *err)
{
    const struct gguf_tensor *file = gguf_find_tensor(&p->model->gguf, t->name);
    const struct quant_traits *traits = quant_traits_find(file->type);
    float *all;
    size_t n_file = (size_t)(file->ne[0] * gguf_tensor_rows(file));
    if (t->matrix) {
        for (size_t r = 0; r < t->n_out; r++)
            quant_dequantize_row(traits,
                                 file->data + file_row(p, t, r) * gguf_tensor_row_bytes(file),
                                 w + r * t->n_in, t->n_in);
        return check_finite(t->name, w, t->n, err);
    }
    ZP_ALLOC(all, MEM_TRAIN, n_file, err, "a tensor");
    quant_dequantize_row(traits, file->data, all, n_file);
    for (size_t r = 0; r < t->n_out; r++) w[r] = all[file_row(p, t, r) % n_file];
    mem_free(all);
    return check_finite(t->name, w, t->n, err);
}

zp_status netparam_read(const struct netparam *p, float *w, zp_err *err)
{
    memset(w, 0, p->n * sizeof *w);
    zp_status status = ZP_OK;
    for (size_t i = 0; i < p->n_tensors && status == ZP_OK; i++)
        status = read_tensor(p, &p->tensors[i], w + p->tensors[i].at, err);
    if (status == ZP_BAD_FILE) status_add_path(err, p->model->gguf.path);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct source { /* of one tensor's rows, in the file's order */
    const struct netparam_tensor *tensor;
    const float *w;
    const struct quant_traits *traits;
    size_t *row_here; /* (n_out) by file row */
    size_t n_in;      /* row length in the file: gains by head may have two dimensions there */
    float *room;      /* (n_in) */
};

/* One row of the file. */
static zp_status fill_row(const struct source *s, size_t row, void *out, zp_err *err)
{
    const float *values = s->w + (s->tensor->matrix ? s->row_here[row] * s->n_in : 0);
    zp_err why = { 0 };
    if (!s->tensor->matrix) {
        for (size_t i = 0; i < s->n_in; i++) s->room[i] = s->w[s->row_here[row * s->n_in + i]];
        values = s->room;
    }
    zp_status status = quant_quantize_row(s->traits, values, out, s->n_in, &why);
    ZP_FAIL_IF(status != ZP_OK, err, status, "tensor %s, row %zu: %s", s->tensor->name, row,
               why.message);
    return ZP_OK;
}

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    const struct source *s = arg;
    size_t bytes = quant_row_bytes(s->traits, s->n_in);
    for (uint64_t i = 0; i < n; i++)
        ZP_TRY(fill_row(s, (size_t)(first + i), (uint8_t *)out + i * bytes, err));
    return ZP_OK;
}

static zp_status add_tensor(struct gguf_edit *e, const struct netparam *p,
                            const struct netparam_tensor *t, const float *w, uint32_t type,
                            struct source *s, struct arena *arena, zp_err *err)
{
    const struct quant_traits *wanted = quant_traits_find(type);
    bool small = !t->matrix || strstr(t->name, ".pos_") || strstr(t->name, "struct_") ||
                 t->n_in % wanted->block != 0;
    struct gguf_edit_tensor out = *gguf_edit_find_tensor(e, t->name);
    uint64_t n_file = 1;
    for (uint32_t i = 0; i < out.n_dims; i++) n_file *= out.ne[i];
    *s = (struct source){ .tensor = t, .w = w + t->at };
    s->traits = small ? quant_traits_find(QUANT_F32) : wanted;
    if (t->n != n_file) out.n_dims = 1, out.ne[0] = t->n; /* widened */
    s->n_in = (size_t)out.ne[0];
    ZP_TAKE(s->row_here, arena, t->n_out, err, "an order of rows");
    ZP_TAKE(s->room, arena, s->n_in, err, "a row");
    for (size_t r = 0; r < t->n_out; r++) s->row_here[file_row(p, t, r)] = r;
    out.type = s->traits->type;
    out.data = NULL;
    out.fill = fill_rows;
    out.fill_arg = s;
    return gguf_edit_set_tensor(e, &out, err);
}

static zp_status edit_file(struct gguf_edit *e, const struct netparam *p, const float *w,
                           uint32_t type, const char *recipe, struct arena *arena, zp_err *err)
{
    struct source *sources;
    ZP_TAKE(sources, arena, p->n_tensors, err, "a list of tensors");
    for (size_t i = 0; i < p->n_tensors; i++)
        ZP_TRY(add_tensor(e, p, &p->tensors[i], w, type, &sources[i], arena, err));
    gguf_edit_remove_key(e, "zerope.evidence");
    gguf_edit_remove_key(e, "zerope.context.validated");
    const struct quant_traits *traits = quant_traits_find(type);
    ZP_TRY(gguf_edit_set_u32(e, "general.file_type", traits->file_type, err));
    if (traits->form != QUANT_FLOAT)
        ZP_TRY(gguf_edit_set_u32(e, "general.quantization_version", 2, err));
    return recipe ? gguf_edit_set_str(e, "zerope.recipe", recipe, err) : ZP_OK;
}

zp_status netparam_write(const struct netparam *p, const float *w, uint32_t type,
                         const char *recipe, const char *path, zp_err *err)
{
    const struct quant_traits *traits = quant_traits_find(type);
    struct gguf_edit e;
    struct arena arena = { .tag = MEM_TRAIN };
    ZP_FAIL_IF(!traits || !traits->can_write, err, ZP_USAGE, "tensors of type %u cannot be written",
               type);
    ZP_TRY(gguf_edit_init(&e, &p->model->gguf, err));
    zp_status status = edit_file(&e, p, w, type, recipe, &arena, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, path, err);
    gguf_edit_free(&e);
    arena_free(&arena);
    return status;
}
