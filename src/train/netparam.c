/* netparam.c: a model's parameters as one array of floats, or as the file has them, and back into a
 * file.
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

static size_t padded(size_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT; // P3
}

static zp_status lay_out(struct netparam *p, const struct gguf_tensor *t, zp_err *err)
{
    struct netparam_tensor *out = &p->tensors[p->n_tensors++];
    uint64_t rows = gguf_tensor_rows(t);
    bool matrix = is_matrix(t->name);
    *out = (struct netparam_tensor){ .name = t->name,
                                     .file = t,
                                     .at = p->n,
                                     .n = (size_t)(t->ne[0] * rows),
                                     .n_in = matrix ? (size_t)t->ne[0] : 1,
                                     .n_out = (size_t)(matrix ? rows : t->ne[0] * rows),
                                     .layer = layer_of(t->name, p->model->h.n_layer),
                                     .rows = rows_of(t->name),
                                     .matrix = matrix };
    ZP_TRY(check_heads(p, out, err));
    widen_gains(p, out);
    p->n += padded(out->n);
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
    mem_count_unmapped(MEM_WEIGHTS, p->file_bytes);
    arena_free(&p->arena);
    *p = (struct netparam){ 0 };
}

/* What is read through netparam_rows, netparam_matrix and netparam_gather alone. */
static bool may_stay(const struct netparam *p, const struct netparam_tensor *t)
{
    static const char *const parts[] = { "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate",
                                         "ffn_up", "ffn_down" };
    char name[GGUF_MAX_NAME];
    if (t->layer == p->model->h.n_layer)
        return strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0;
    for (size_t i = 0; i < ZP_COUNT(parts); i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", t->layer, parts[i]);
        if (strcmp(t->name, name) == 0) return true;
    }
    return false;
}

void netparam_leave(struct netparam *p, netparam_learns_fn learns, void *arg)
{
    p->n = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        struct netparam_tensor *t = &p->tensors[i];
        t->in_file = may_stay(p, t) && !(learns && learns(arg, t)); // P4
        t->at = p->n;
        if (t->in_file) p->file_bytes += t->file->bytes;
        else p->n += padded(t->n);
    }
    mem_count_mapped(MEM_WEIGHTS, p->file_bytes);
}

void netparam_set_change(struct netparam *p, netparam_change_fn change, void *arg)
{
    p->change = change;
    p->change_arg = arg;
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

const struct netparam_tensor *netparam_output(const struct netparam *p)
{
    const struct netparam_tensor *own = netparam_find(p, "output.weight", 0);
    return own ? own : netparam_find(p, "token_embd.weight", 0);
}

/* ---- order of rows --------------------------------------------------------------------------- */

/* rows[c]: the place in its head, in the file, of channel c of a head here (P2). */
static void head_rows(const struct netparam *p, const struct netparam_tensor *t, size_t head,
                      uint32_t rows[MOST_CHANNELS])
{
    const struct hparams *h = &p->model->h;
    const struct position *position = &p->model->position;
    uint32_t map[MOST_CHANNELS];
    uint32_t kv = (uint32_t)(t->rows == NETPARAM_QUERY_HEADS ? head / (h->n_head / h->n_kv) : head);
    position_row_map(position, h, t->layer, kv, map);
    memcpy(rows, map, h->d_head * sizeof *rows);
    const struct position_head *order = &position->heads[t->layer * h->n_kv + kv];
    for (uint32_t s = 0; s < position->n_pair; s++)
        for (uint32_t c = 0; c < 2; c++) rows[2 * order->pair[s] + c] = map[2 * s + c];
}

/* Rows in their order here, whose places in the file are asked for one after the other. */
struct rows {
    const struct netparam *p;
    const struct netparam_tensor *t;
    size_t head; /* whose places are known */
    uint32_t at[MOST_CHANNELS];
};

static void rows_begin(struct rows *r, const struct netparam *p, const struct netparam_tensor *t)
{
    r->p = p, r->t = t, r->head = SIZE_MAX;
}

/* File row of row `row` here. */
static size_t file_row(struct rows *r, size_t row)
{
    size_t d = r->p->model->h.d_head;
    if (r->t->rows == NETPARAM_PLAIN) return row;
    if (row / d != r->head) head_rows(r->p, r->t, r->head = row / d, r->at);
    return row / d * d + r->at[row % d];
}

/* ---- reading --------------------------------------------------------------------------------- */

struct widening {
    const struct netparam *p;
    const struct netparam_tensor *t;
    size_t first, n;
    const int32_t *ids; /* in place of first, first + 1, ...; NULL: none */
    float *out;
};

static void widen_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct widening *j = arg;
    const struct gguf_tensor *file = j->t->file;
    const struct quant_traits *traits = quant_traits_find(file->type);
    size_t begin, end, bytes = gguf_tensor_row_bytes(file);
    struct rows rows;
    rows_begin(&rows, j->p, j->t);
    pool_share(j->n, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        size_t row = file_row(&rows, j->ids ? (size_t)j->ids[i] : j->first + i);
        quant_dequantize_row(traits, file->data + row * bytes, j->out + i * j->t->n_in, j->t->n_in);
    }
}

static void widen(struct pool *pool, struct widening *j)
{
    if (pool) pool_run(pool, widen_share, j);
    else widen_share(j, 0, 1);
}

const float *netparam_rows(const struct netparam *p, const float *w,
                           const struct netparam_tensor *t, struct pool *pool, size_t first,
                           size_t n, float *room)
{
    if (!t->in_file) return w + t->at + first * t->n_in;
    widen(pool, &(struct widening){ .p = p, .t = t, .first = first, .n = n, .out = room });
    return room;
}

const float *netparam_matrix(const struct netparam *p, const float *w,
                             const struct netparam_tensor *t, struct pool *pool, float *room)
{
    const float *all = netparam_rows(p, w, t, pool, 0, t->n_out, room);
    if (t->in_file && p->change) p->change(p->change_arg, t, room);
    return all;
}

size_t netparam_room(const struct netparam *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct netparam_tensor *t = &p->tensors[i];
        if (t->in_file && t->layer < p->model->h.n_layer && t->n > most) most = t->n;
    }
    return most;
}

void netparam_gather(const struct netparam *p, const struct netparam_tensor *t, struct pool *pool,
                     size_t n, const int32_t *ids, float *out)
{
    widen(pool, &(struct widening){ .p = p, .t = t, .n = n, .ids = ids, .out = out });
}

static zp_status check_finite(const char *name, const float *x, size_t n, zp_err *err)
{
    for (size_t i = 0; i < n; i++)
        ZP_FAIL_IF(!isfinite(x[i]), err, ZP_BAD_FILE, "tensor %s holds %g at %zu: no training "
                   "from a damaged model", name, (double)x[i], i);
    return ZP_OK;
}

static zp_status check_file(const struct gguf_tensor *file, zp_err *err)
{
    const struct quant_traits *traits = quant_traits_find(file->type);
    uint64_t n_rows = gguf_tensor_rows(file);
    for (uint64_t r = 0; r < n_rows; r++)
        ZP_FAIL_IF(!quant_row_is_finite(traits, file->data + r * gguf_tensor_row_bytes(file),
                                        (size_t)file->ne[0]),
                   err, ZP_BAD_FILE, "tensor %s holds what is not finite in row %llu: no training "
                   "from a damaged model", file->name, (unsigned long long)r);
    return ZP_OK;
}

static zp_status read_vector(const struct netparam *p, const struct netparam_tensor *t, float *w,
                             zp_err *err)
{
    float *all;
    size_t n_file = (size_t)(t->file->ne[0] * gguf_tensor_rows(t->file));
    struct rows rows;
    rows_begin(&rows, p, t);
    ZP_ALLOC(all, MEM_TRAIN, n_file, err, "a tensor");
    quant_dequantize_row(quant_traits_find(t->file->type), t->file->data, all, n_file);
    for (size_t r = 0; r < t->n_out; r++) w[r] = all[file_row(&rows, r) % n_file];
    mem_free(all);
    return ZP_OK;
}

static zp_status read_tensor(const struct netparam *p, const struct netparam_tensor *t, float *w,
                             zp_err *err)
{
    if (t->in_file) return check_file(t->file, err);
    if (t->matrix)
        widen(NULL, &(struct widening){ .p = p, .t = t, .n = t->n_out, .out = w + t->at });
    else ZP_TRY(read_vector(p, t, w + t->at, err));
    return check_finite(t->name, w + t->at, t->n, err);
}

zp_status netparam_read(const struct netparam *p, float *w, zp_err *err)
{
    memset(w, 0, p->n * sizeof *w);
    zp_status status = ZP_OK;
    for (size_t i = 0; i < p->n_tensors && status == ZP_OK; i++)
        status = read_tensor(p, &p->tensors[i], w, err);
    if (status == ZP_BAD_FILE) status_add_path(err, p->model->gguf.path);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A file being written. */
struct writing {
    const struct netparam *p;
    const float *w;
    float *room; /* netparam_room floats, of `widened`; NULL: matrices are as the file has them */
    const struct netparam_tensor *widened;
};

struct source { /* of one tensor's rows, in the file's order */
    struct writing *by;
    const struct netparam_tensor *tensor;
    const struct quant_traits *traits;
    size_t *row_here; /* (n_out) by file row */
    size_t n_in;      /* row length in the file: gains by head may have two dimensions there */
    float *room;      /* (n_in) */
};

static const float *matrix_row(const struct source *s, size_t row)
{
    struct writing *by = s->by;
    const struct netparam_tensor *t = s->tensor;
    bool whole = t->in_file && by->room && t->layer < by->p->model->h.n_layer;
    if (!whole) return netparam_rows(by->p, by->w, t, NULL, row, 1, s->room);
    if (by->widened != t) netparam_matrix(by->p, by->w, t, NULL, by->room);
    by->widened = t;
    return by->room + row * t->n_in;
}

static const float *gather_values(const struct source *s, size_t row)
{
    const float *w = s->by->w + s->tensor->at;
    for (size_t i = 0; i < s->n_in; i++) s->room[i] = w[s->row_here[row * s->n_in + i]];
    return s->room;
}

/* One row of the file. */
static zp_status fill_row(const struct source *s, size_t row, void *out, zp_err *err)
{
    const float *values = s->tensor->matrix ? matrix_row(s, s->row_here[row])
                                            : gather_values(s, row);
    zp_err why = { 0 };
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

static zp_status add_tensor(struct gguf_edit *e, struct writing *by,
                            const struct netparam_tensor *t, uint32_t type, struct source *s,
                            struct arena *arena, zp_err *err)
{
    const struct quant_traits *wanted = quant_traits_find(type);
    bool small = !t->matrix || strstr(t->name, ".pos_") || strstr(t->name, "struct_") ||
                 t->n_in % wanted->block != 0;
    struct gguf_edit_tensor out = *gguf_edit_find_tensor(e, t->name);
    uint64_t n_file = 1;
    struct rows rows;
    for (uint32_t i = 0; i < out.n_dims; i++) n_file *= out.ne[i];
    *s = (struct source){ .by = by, .tensor = t };
    s->traits = small ? quant_traits_find(QUANT_F32) : wanted;
    if (t->n != n_file) out.n_dims = 1, out.ne[0] = t->n; /* widened */
    s->n_in = (size_t)out.ne[0];
    ZP_TAKE(s->row_here, arena, t->n_out, err, "an order of rows");
    ZP_TAKE(s->room, arena, s->n_in, err, "a row");
    rows_begin(&rows, by->p, t);
    for (size_t r = 0; r < t->n_out; r++) s->row_here[file_row(&rows, r)] = r;
    out.type = s->traits->type;
    out.data = NULL;
    out.fill = fill_rows;
    out.fill_arg = s;
    return gguf_edit_set_tensor(e, &out, err);
}

static zp_status edit_file(struct gguf_edit *e, struct writing *by, uint32_t type,
                           const char *recipe, struct arena *arena, zp_err *err)
{
    const struct netparam *p = by->p;
    struct source *sources;
    ZP_TAKE(sources, arena, p->n_tensors, err, "a list of tensors");
    if (p->change) ZP_TAKE(by->room, arena, netparam_room(p), err, "a matrix");
    for (size_t i = 0; i < p->n_tensors; i++)
        ZP_TRY(add_tensor(e, by, &p->tensors[i], type, &sources[i], arena, err));
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
    struct writing by = { .p = p, .w = w };
    struct arena arena = { .tag = MEM_TRAIN };
    ZP_FAIL_IF(!traits || !traits->can_write, err, ZP_USAGE, "tensors of type %u cannot be written",
               type);
    ZP_TRY(gguf_edit_init(&e, &p->model->gguf, err));
    zp_status status = edit_file(&e, &by, type, recipe, &arena, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, path, err);
    gguf_edit_free(&e);
    arena_free(&arena);
    return status;
}
