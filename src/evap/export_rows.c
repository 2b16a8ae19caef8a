/* export_rows.c: tensors of an evaporated file on their way to a stock one.
 * Owns: row maps and jobs, in the edit's arena. Does not know: keys.
 * X1 rows that only move keep their bytes; rows that a scale changes become F32.
 * X2 the pair of slot s returns to the place the target architecture gives to its original
 *    number. */
#include "evap/export_rows.h"

#include <stdio.h>
#include <string.h>

#include "kern/quant.h"
#include "model/weights.h"

struct rows_job {
    struct export_rows *x;
    const char *name;
    const uint8_t *data;
    const struct quant_traits *from, *to;
    const uint32_t *rows; /* source row of each row, or NULL: the same */
    const float *scale;   /* one a head, or NULL */
    size_t n_in, head_rows;
    float *room;          /* (n_in) */
};

/* ---- orders */

/* Source row, inside its head, of each row of the target order (X2). */
static void head_map(const struct export_rows *x, uint32_t layer, uint32_t kv, uint32_t *source)
{
    const struct position *p = &x->m->position;
    const struct position_head *head = &p->heads[layer * p->n_kv + kv];
    uint32_t map[1024];
    position_row_map(p, &x->m->h, layer, kv, map);
    for (uint32_t c = 0; c < p->d_head; c++) source[c] = map[c];
    for (uint32_t s = 0; s < p->n_pair; s++) {
        uint32_t i = head->pair[s];
        bool pairs_touch = x->route->pairing == ARCH_INTERLEAVED;
        source[pairs_touch ? 2 * i : i] = map[2 * s];
        source[pairs_touch ? 2 * i + 1 : i + p->n_pair] = map[2 * s + 1];
    }
}

/* Rows of all heads; *moves: whether any changes its place. */
static zp_status row_map(const struct export_rows *x, struct gguf_edit *e, uint32_t layer,
                         bool query, uint32_t **rows, bool *moves, zp_err *err)
{
    const struct hparams *h = &x->m->h;
    uint32_t n_heads = query ? h->n_head : h->n_kv, group = n_heads / h->n_kv, source[1024];
    ZP_TAKE(*rows, &e->arena, (size_t)n_heads * h->d_head, err, "the rows to export");
    *moves = false;
    for (uint32_t i = 0; i < n_heads; i++) {
        head_map(x, layer, i / group, source);
        for (uint32_t c = 0; c < h->d_head; c++) {
            (*rows)[i * h->d_head + c] = i * h->d_head + source[c];
            *moves = *moves || source[c] != c;
        }
    }
    return ZP_OK;
}

/* Constant factors on q.k of a layer, one a query head; *scale NULL where all are 1. */
static zp_status query_scale(const struct export_rows *x, struct gguf_edit *e, uint32_t layer,
                             const float **scale, zp_err *err)
{
    const struct position *p = &x->m->position;
    const float *given = p->head_scale ? p->head_scale[layer] : NULL;
    bool magnified = x->route->magnitude_everywhere || x->route->shape.none[layer];
    float all = magnified ? x->route->magnitude : 1.0f, *out;
    bool changes = false;
    *scale = NULL;
    ZP_TAKE(out, &e->arena, p->n_head, err, "the rows to export");
    for (uint32_t i = 0; i < p->n_head; i++) {
        out[i] = all * (given ? given[i] : 1.0f);
        changes = changes || out[i] != 1.0f;
    }
    if (changes) *scale = out;
    return ZP_OK;
}

/* ---- matrices */

static zp_status step(struct export_rows *x, uint64_t n, const char *name, zp_err *err)
{
    const zp_progress *p = x->progress;
    x->done += n;
    ZP_FAIL_IF(p && p->fn && !p->fn(p->arg, "rows", x->done, x->total), err, ZP_INTERRUPTED,
               "interrupted at tensor %s; nothing was written", name);
    return ZP_OK;
}

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    struct rows_job *j = arg;
    size_t in_bytes = quant_row_bytes(j->from, j->n_in), bytes = quant_row_bytes(j->to, j->n_in);
    for (uint64_t r = first; r < first + n; r++) {
        const uint8_t *row = j->data + (j->rows ? j->rows[r] : r) * in_bytes;
        uint8_t *to = (uint8_t *)out + (r - first) * bytes;
        if (j->from == j->to && !j->scale) {
            memcpy(to, row, bytes);
            continue;
        }
        quant_dequantize_row(j->from, row, j->room, j->n_in);
        float factor = j->scale ? j->scale[r / j->head_rows] : 1.0f;
        for (size_t i = 0; factor != 1.0f && i < j->n_in; i++) j->room[i] *= factor;
        ZP_TRY(quant_quantize_row(j->to, j->room, to, j->n_in, err));
    }
    return step(j->x, n, j->name, err);
}

/* Type a matrix has in the written file. */
static const struct quant_traits *type_of(const struct export_rows *x,
                                          const struct quant_traits *from, bool scaled)
{
    bool widened = x->route->kind == EXPORT_HF && from->form != QUANT_FLOAT;
    return scaled || widened ? quant_traits_find(QUANT_F32) : from;
}

static zp_status set_matrix(struct export_rows *x, struct gguf_edit *e,
                            const struct gguf_tensor *t, const uint32_t *rows, const float *scale,
                            zp_err *err)
{
    const struct quant_traits *from = quant_traits_find(t->type);
    const struct quant_traits *to = type_of(x, from, scale != NULL);
    struct rows_job *j;
    if (!rows && to == from) return ZP_OK;
    ZP_TAKE(j, &e->arena, 1, err, "the rows to export");
    *j = (struct rows_job){ .x = x, .name = t->name, .data = t->data, .from = from, .to = to,
                            .rows = rows, .scale = scale, .n_in = (size_t)t->ne[0],
                            .head_rows = x->m->h.d_head };
    ZP_TAKE(j->room, &e->arena, j->n_in, err, "the rows to export");
    struct gguf_edit_tensor out = { .name = t->name, .type = to->type, .n_dims = t->n_dims,
                                    .fill = fill_rows, .fill_arg = j };
    memcpy(out.ne, t->ne, sizeof out.ne);
    x->total += gguf_tensor_rows(t);
    x->n_widened += from->form != QUANT_FLOAT && to->form == QUANT_FLOAT;
    return gguf_edit_set_tensor(e, &out, err);
}

/* ---- vectors */

static zp_status read_vector(struct gguf_edit *e, const struct gguf_tensor *t, uint64_t n,
                             float **out, zp_err *err)
{
    uint64_t have = t->ne[0] * gguf_tensor_rows(t);
    ZP_FAIL_IF(have != n, err, ZP_BAD_FILE, "tensor %s has %llu values; expected %llu", t->name,
               (unsigned long long)have, (unsigned long long)n);
    ZP_TAKE(*out, &e->arena, (size_t)n, err, "the rows to export");
    quant_dequantize_row(quant_traits_find(t->type), t->data, *out, (size_t)n);
    return ZP_OK;
}

static zp_status set_bias(struct export_rows *x, struct gguf_edit *e, uint32_t layer, bool query,
                          const uint32_t *rows, const float *scale, zp_err *err)
{
    char name[64];
    const struct hparams *h = &x->m->h;
    snprintf(name, sizeof name, "blk.%u.%s.bias", layer, query ? "attn_q" : "attn_k");
    const struct gguf_tensor *t = gguf_find_tensor(&x->m->gguf, name);
    uint64_t n = (uint64_t)(query ? h->n_head : h->n_kv) * h->d_head;
    float *old, *moved;
    if (!t || (!rows && !scale)) return ZP_OK;
    ZP_TRY(read_vector(e, t, n, &old, err));
    ZP_TAKE(moved, &e->arena, (size_t)n, err, "the rows to export");
    for (uint64_t r = 0; r < n; r++)
        moved[r] = old[rows ? rows[r] : r] * (scale ? scale[r / h->d_head] : 1.0f);
    return gguf_edit_set_tensor_f32(e, name, 1, &n, moved, err);
}

/* Gains one a head become the shared ones again; *folded: they carry the scale. */
static zp_status set_gains(struct export_rows *x, struct gguf_edit *e, uint32_t layer, bool query,
                           const float *scale, bool *folded, zp_err *err)
{
    char name[64];
    const struct hparams *h = &x->m->h;
    uint32_t n_heads = query ? h->n_head : h->n_kv, group = n_heads / h->n_kv, source[1024];
    uint64_t d = h->d_head;
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, query ? "attn_q_norm" : "attn_k_norm");
    const struct gguf_tensor *t = gguf_find_tensor(&x->m->gguf, name);
    float *old, *shared;
    *folded = t != NULL;
    if (!t) return ZP_OK;
    bool one = gguf_tensor_rows(t) == 1 && t->ne[0] == d;
    ZP_TRY(read_vector(e, t, one ? d : n_heads * d, &old, err));
    ZP_TAKE(shared, &e->arena, (size_t)d, err, "the rows to export");
    for (uint32_t i = 0; i < n_heads; i++) {
        head_map(x, layer, i / group, source);
        for (uint32_t c = 0; c < d; c++) {
            float gain = old[(one ? 0 : i * d) + source[c]] * (scale ? scale[i] : 1.0f);
            ZP_FAIL_IF(i && gain != shared[c], err, ZP_UNSUPPORTED,
                       "tensor %s: head %u has other gains than head 0, which stock engines "
                       "cannot say (they share one row)",
                       name, i);
            shared[c] = gain;
        }
    }
    return gguf_edit_set_tensor_f32(e, name, 1, &d, shared, err);
}

/* ---- layers */

static zp_status set_side(struct export_rows *x, struct gguf_edit *e, uint32_t layer, bool query,
                          const float *scale, zp_err *err)
{
    char name[64];
    const struct gguf_tensor *t;
    uint32_t *rows;
    bool moves, folded;
    ZP_TRY(row_map(x, e, layer, query, &rows, &moves, err));
    ZP_TRY(set_gains(x, e, layer, query, scale, &folded, err));
    if (folded) scale = NULL; /* a norm would undo a scale of its input */
    if (!moves) rows = NULL;
    ZP_TRY(gguf_get_tensor(&x->m->gguf, weights_tensor_name(query ? W_Q : W_K, layer, name), &t,
                           err));
    ZP_TRY(set_matrix(x, e, t, rows, scale, err));
    return set_bias(x, e, layer, query, rows, scale, err);
}

static zp_status set_layer(struct export_rows *x, struct gguf_edit *e, uint32_t layer, zp_err *err)
{
    char name[64];
    const float *scale;
    ZP_TRY(query_scale(x, e, layer, &scale, err));
    ZP_TRY(set_side(x, e, layer, true, scale, err));
    ZP_TRY(set_side(x, e, layer, false, NULL, err));
    x->n_scaled += scale != NULL;
    snprintf(name, sizeof name, "blk.%u.attn_head_scale", layer);
    gguf_edit_remove_tensor(e, name);
    return ZP_OK;
}

static bool is_rotated(const char *name)
{
    return strstr(name, ".attn_q.weight") || strstr(name, ".attn_k.weight");
}

zp_status export_rows_set(struct export_rows *x, struct gguf_edit *e, zp_err *err)
{
    const struct gguf *g = &x->m->gguf;
    for (uint32_t l = 0; l < x->m->h.n_layer; l++) ZP_TRY(set_layer(x, e, l, err));
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (!is_rotated(g->tensors[i].name))
            ZP_TRY(set_matrix(x, e, &g->tensors[i], NULL, NULL, err));
    return ZP_OK;
}
