/* apply.c: from a set of closed gates to a file.
 * Owns: the row order of written files and the keys that describe it. Does not know: budgets,
 * measurements.
 * Y1 open pairs stand first in each head in ascending number, then the closed ones; biases and norm
 *    gains move along.
 * Y2 rows that only move keep their bytes; rows that a fold changes become Q8_0 (F16, F32 where the
 *    source is float).
 * Y3 what no open pair or bias needs any more (angle divisors, bias tensors of a layer) is not in
 *    the file. */
#include "evap/apply.h"

#include <stdio.h>
#include <string.h>

#include "model/gguf_write.h"

/* New order of one head: pair and file rows of each new slot. */
struct head_order {
    uint16_t pair[512];
    uint32_t row[1024];
    uint32_t n_open;
};

static void order_head(const struct zp_model *m, const struct gateset *set, uint32_t layer,
                       uint32_t kv, struct head_order *o)
{
    const struct position *p = &m->position;
    const struct position_head *head = &p->heads[layer * p->n_kv + kv];
    uint32_t map[1024], slot_of[512], n = 0;
    position_row_map(p, &m->h, layer, kv, map);
    for (uint32_t s = 0; s < p->n_pair; s++) slot_of[head->pair[s]] = s;
    for (int closed = 0; closed < 2; closed++) {
        for (uint32_t i = 0; i < p->n_pair; i++)
            if ((set->open[gateset_at(set, layer, kv, i)] == 0) == closed)
                o->pair[n++] = (uint16_t)i;
        if (!closed) o->n_open = n;
    }
    for (uint32_t c = 0; c < p->d_head; c++)
        o->row[c] = c < 2 * p->n_pair ? map[2 * slot_of[o->pair[c / 2]] + c % 2] : map[c];
}

/* ---- rows of q and k ------------------------------------------------------------------------- */

struct rows_job { /* one tensor on its way to the file */
    const struct zp_model *m;
    const struct gateset *set;
    const struct fold *fold; /* NULL: rows only move */
    const struct gguf_tensor *tensor;
    const struct quant_traits *from, *to;
    uint32_t layer, n_heads;
    float *mixed; /* (3, n_in) */
};

static const uint8_t *source_row(const struct rows_job *j, uint32_t head, uint32_t row)
{
    return j->tensor->data +
           (head * (size_t)j->m->h.d_head + row) * gguf_tensor_row_bytes(j->tensor);
}

/* Row c of a folded head: w times the pair (a, b) seen as a + ib. */
static zp_status folded_row(const struct rows_job *j, const struct head_order *o, uint32_t head,
                            uint32_t c, void *out, zp_err *err)
{
    size_t n = (size_t)j->tensor->ne[0];
    float *a = j->mixed, *b = a + n, *y = b + n;
    quant_dequantize_row(j->from, source_row(j, head, o->row[c]), c % 2 ? b : a, n);
    memcpy(y, c % 2 ? b : a, n * sizeof *y);
    if (c < 2 * j->m->position.n_pair) {
        const float *w =
            j->fold->w +
            (((size_t)j->layer * j->fold->n_head + head) * j->fold->n_pair + o->pair[c / 2]) * 2;
        quant_dequantize_row(j->from, source_row(j, head, o->row[c ^ 1]), c % 2 ? a : b, n);
        for (size_t i = 0; i < n; i++)
            y[i] = c % 2 ? w[1] * a[i] + w[0] * b[i] : w[0] * a[i] - w[1] * b[i];
    }
    return quant_quantize_row(j->to, y, out, n, err);
}

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    const struct rows_job *j = arg;
    uint32_t d = j->m->h.d_head, group = j->n_heads / j->m->h.n_kv;
    size_t bytes = quant_row_bytes(j->to, (size_t)j->tensor->ne[0]);
    struct head_order o;
    for (uint64_t r = first; r < first + n; r++) {
        uint32_t head = (uint32_t)(r / d), c = (uint32_t)(r % d);
        if (r == first || c == 0) order_head(j->m, j->set, j->layer, head / group, &o);
        uint8_t *to = (uint8_t *)out + (r - first) * bytes;
        if (j->fold) ZP_TRY(folded_row(j, &o, head, c, to, err));
        else memcpy(to, source_row(j, head, o.row[c]), bytes);
    }
    return ZP_OK;
}

static uint32_t folded_type(const struct quant_traits *from, uint64_t n_in)
{
    if (from->type == QUANT_F32 || n_in % 32 != 0) return QUANT_F32;
    return from->form == QUANT_FLOAT ? QUANT_F16 : QUANT_Q8_0;
}

static zp_status move_matrix(struct gguf_edit *e, const struct zp_model *m,
                             const struct gateset *set, const struct fold *fold, uint32_t layer,
                             enum weights_mat mat, zp_err *err)
{
    char name[64];
    const struct gguf_tensor *t;
    ZP_TRY(gguf_get_tensor(&m->gguf, weights_tensor_name(mat, layer, name), &t, err));
    struct rows_job *j = arena_alloc(&e->arena, sizeof *j);
    float *mixed = arena_array(&e->arena, 3 * (size_t)t->ne[0], sizeof *mixed);
    ZP_FAIL_IF(!j || !mixed, err, ZP_NO_MEMORY, "not enough memory to reorder %s", name);
    const struct quant_traits *from = quant_traits_find(t->type);
    bool folded = mat == W_Q && fold_touches(fold, layer);
    *j = (struct rows_job){
        m,    set, folded ? fold : NULL, t, from, from, layer, mat == W_Q ? m->h.n_head : m->h.n_kv,
        mixed
    };
    if (folded) j->to = quant_traits_find(folded_type(from, t->ne[0]));
    struct gguf_edit_tensor out = {
        .name = name, .type = j->to->type, .n_dims = t->n_dims, .fill = fill_rows, .fill_arg = j
    };
    memcpy(out.ne, t->ne, sizeof out.ne);
    return gguf_edit_set_tensor(e, &out, err);
}

/* ---- biases and gains ------------------------------------------------------------------------ */

static zp_status move_bias(struct gguf_edit *e, const struct zp_model *m, const struct gateset *set,
                           const struct fold *fold, uint32_t layer, bool query, zp_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.bias", layer, query ? "attn_q" : "attn_k");
    const struct gguf_tensor *t = gguf_find_tensor(&m->gguf, name);
    if (!t) return ZP_OK;
    uint32_t n_heads = query ? m->h.n_head : m->h.n_kv, group = n_heads / m->h.n_kv,
             d = m->h.d_head;
    uint64_t n = (uint64_t)n_heads * d;
    float *old = arena_array(&e->arena, 2 * n, sizeof *old), *moved = old + n;
    ZP_FAIL_IF(!old, err, ZP_NO_MEMORY, "not enough memory to reorder %s", name);
    quant_dequantize_row(quant_traits_find(t->type), t->data, old, n);
    struct head_order o;
    for (uint32_t head = 0; head < n_heads; head++) {
        order_head(m, set, layer, head / group, &o);
        for (uint32_t c = 0; c < d; c++) moved[head * d + c] = old[head * d + o.row[c]];
        for (uint32_t s = 0; fold && query && s < m->position.n_pair; s++) {
            const float *w =
                fold->w + (((size_t)layer * fold->n_head + head) * fold->n_pair + o.pair[s]) * 2;
            float *v = moved + head * d + 2 * s, a = v[0], b = v[1];
            v[0] = w[0] * a - w[1] * b;
            v[1] = w[1] * a + w[0] * b;
        }
    }
    return gguf_edit_set_tensor_f32(e, name, 1, &n, moved, err);
}

/* Gains shared by all heads become one row a head, since heads now differ in order (Y1). */
static zp_status move_gains(struct gguf_edit *e, const struct zp_model *m,
                            const struct gateset *set, uint32_t layer, bool query, zp_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, query ? "attn_q_norm" : "attn_k_norm");
    const struct gguf_tensor *t = gguf_find_tensor(&m->gguf, name);
    if (!t) return ZP_OK;
    uint32_t n_heads = query ? m->h.n_head : m->h.n_kv, group = n_heads / m->h.n_kv,
             d = m->h.d_head;
    bool shared = gguf_tensor_rows(t) == 1 && t->ne[0] == d;
    uint64_t ne[2] = { d, n_heads }, have = t->ne[0] * gguf_tensor_rows(t);
    ZP_FAIL_IF(!shared && have != (uint64_t)n_heads * d, err, ZP_BAD_FILE,
               "tensor %s has %llu values", name, (unsigned long long)have);
    float *old = arena_array(&e->arena, have + (size_t)n_heads * d, sizeof *old),
          *moved = old + have;
    ZP_FAIL_IF(!old, err, ZP_NO_MEMORY, "not enough memory to reorder %s", name);
    quant_dequantize_row(quant_traits_find(t->type), t->data, old, (size_t)have);
    struct head_order o;
    for (uint32_t head = 0; head < n_heads; head++) {
        order_head(m, set, layer, head / group, &o);
        for (uint32_t c = 0; c < d; c++)
            moved[head * d + c] = old[(shared ? 0 : head * d) + o.row[c]];
    }
    return gguf_edit_set_tensor_f32(e, name, 2, ne, moved, err);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool bias_is_open(const struct zp_model *m, const struct apply_info *info, uint32_t layer,
                         uint32_t head)
{
    const struct position *p = &m->position;
    size_t at = (size_t)layer * p->n_head + head;
    bool in_file = !p->bias_gate || p->bias_gate[at] != 0.0f;
    return in_file && (!info->bias_open || info->bias_open[at]);
}

static uint32_t open_biases(const struct zp_model *m, const struct apply_info *info, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t h = 0; h < m->h.n_head && position_layer_has_bias(&m->position, layer); h++)
        n += bias_is_open(m, info, layer, h);
    return n;
}

/* Takes a layer's bias tensors out; says so where other makers' tools look. */
static zp_status remove_bias(struct gguf_edit *e, uint32_t layer, zp_err *err)
{
    static const char *const parts[] = { "pos_alibi.slope", "pos_t5.weight", "pos_mlp.0.weight",
                                         "pos_mlp.0.bias", "pos_mlp.1.weight", "pos_mlp.1.bias" };
    for (size_t i = 0; i < ZP_COUNT(parts); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, parts[i]);
        gguf_edit_remove_tensor(e, name);
    }
    return gguf_edit_set_bool(e, "%.pos_bias_layer.zeroed", true, err);
}

/* Gates of the biases that are left, where not all of them are open. */
static zp_status set_biases(struct gguf_edit *e, const struct zp_model *m,
                            const struct apply_info *info, zp_err *err)
{
    const struct position *p = &m->position;
    size_t n = (size_t)p->n_layer * p->n_head;
    bool partial = false, any = false;
    float *gates = arena_array(&e->arena, n, sizeof *gates);
    ZP_FAIL_IF(!gates, err, ZP_NO_MEMORY, "not enough memory for the position keys");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        if (!position_layer_has_bias(p, l)) continue;
        uint32_t open = open_biases(m, info, l);
        if (open == 0) ZP_TRY(remove_bias(e, l, err));
        any |= open > 0;
        partial |= open > 0 && open < p->n_head;
        for (uint32_t h = 0; h < p->n_head; h++)
            if (bias_is_open(m, info, l, h))
                gates[(size_t)l * p->n_head + h] =
                    p->bias_gate ? p->bias_gate[(size_t)l * p->n_head + h] : 1.0f;
    }
    if (!any) {
        gguf_edit_remove_key(e, "zerope.position.t5_buckets");
        gguf_edit_remove_key(e, "zerope.position.t5_max");
    }
    if (!partial) {
        gguf_edit_remove_key(e, "zerope.position.bias_gate");
        return ZP_OK;
    }
    return gguf_edit_set_array(e, "zerope.position.bias_gate", GGUF_F32, gates, n, err);
}

static zp_status set_kinds(struct gguf_edit *e, const struct zp_model *m, const struct gateset *set,
                           const struct apply_info *info, zp_err *err)
{
    const struct position *p = &m->position;
    struct gguf_str *kinds = arena_array(&e->arena, p->n_layer, sizeof *kinds);
    ZP_FAIL_IF(!kinds, err, ZP_NO_MEMORY, "not enough memory for the position keys");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t open = 0;
        for (uint32_t i = 0; i < p->n_kv * p->n_pair; i++)
            open += set->open[(size_t)l * p->n_kv * p->n_pair + i];
        enum position_kind kind = open_biases(m, info, l) > 0 ? p->kind[l]
                                  : open == 0                   ? POSITION_NONE
                                  : open == p->n_kv * p->n_pair ? POSITION_ROPE
                                                                : POSITION_PARTIAL;
        const char *name = position_kind_name(kind);
        kinds[l] = (struct gguf_str){ name, strlen(name) };
    }
    return gguf_edit_set_strs(e, "zerope.position.kind", kinds, p->n_layer, err);
}

static zp_status set_pairs(struct gguf_edit *e, const struct gateset *set, zp_err *err)
{
    size_t heads = (size_t)set->n_layer * set->n_kv, n = 0;
    int32_t *pairs = arena_array(&e->arena, gateset_total(set) + 1, sizeof *pairs);
    uint32_t *offsets = arena_array(&e->arena, heads + 1, sizeof *offsets);
    ZP_FAIL_IF(!pairs || !offsets, err, ZP_NO_MEMORY, "not enough memory for the position keys");
    for (size_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < set->n_pair; i++)
            if (set->open[h * set->n_pair + i]) pairs[n++] = (int32_t)i;
        offsets[h + 1] = (uint32_t)n;
    }
    if (n == 0) { /* absent = all closed */
        gguf_edit_remove_key(e, "zerope.position.pairs_open");
        gguf_edit_remove_key(e, "zerope.position.pairs_open_offset");
        return ZP_OK;
    }
    ZP_TRY(gguf_edit_set_array(e, "zerope.position.pairs_open", GGUF_I32, pairs, n, err));
    return gguf_edit_set_array(e, "zerope.position.pairs_open_offset", GGUF_U32, offsets, heads + 1,
                               err);
}

static zp_status set_keys(struct gguf_edit *e, const struct zp_model *m, const struct gateset *set,
                          const struct apply_info *info, zp_err *err)
{
    char arch[80];
    snprintf(arch, sizeof arch, "zerope-%s", m->h.arch->name);
    if (strcmp(arch, m->gguf.arch) != 0) ZP_TRY(gguf_edit_rename_arch(e, arch, err));
    ZP_TRY(gguf_edit_set_u32(e, "zerope.format_version", 1, err));
    ZP_TRY(set_kinds(e, m, set, info, err));
    ZP_TRY(set_biases(e, m, info, err));
    ZP_TRY(set_pairs(e, set, err));
    if (gateset_heads_local(set)) {
        ZP_TRY(gguf_edit_set_array(e, "zerope.attention.head_window", GGUF_U32, set->window,
                                   (uint64_t)set->n_layer * set->n_kv, err));
        ZP_TRY(gguf_edit_set_u32(e, "zerope.attention.sinks", set->n_sink, err));
    }
    gguf_edit_remove_key(e, "zerope.context.validated");
    gguf_edit_remove_key(e, "zerope.evidence");
    if (info->n_ctx_validated)
        ZP_TRY(gguf_edit_set_u32(e, "zerope.context.validated", info->n_ctx_validated, err));
    if (!gguf_edit_find_key(e, "zerope.source.sha256"))
        ZP_TRY(gguf_edit_set_str(e, "zerope.source.sha256", zp_model_sha256(m), err));
    if (info->recipe) ZP_TRY(gguf_edit_set_str(e, "zerope.recipe", info->recipe, err));
    if (info->evidence) ZP_TRY(gguf_edit_set_str(e, "zerope.evidence", info->evidence, err));
    if (gateset_closed(set) == gateset_total(set))
        gguf_edit_remove_tensor(e, "rope_freqs.weight"); /* Y3 */
    return ZP_OK;
}

static zp_status fill(struct gguf_edit *e, const struct zp_model *m, const struct gateset *set,
                      const struct fold *fold, const struct apply_info *info, zp_err *err)
{
    ZP_TRY(set_keys(e, m, set, info, err));
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        ZP_TRY(move_matrix(e, m, set, fold, l, W_Q, err));
        ZP_TRY(move_matrix(e, m, set, fold, l, W_K, err));
        for (int query = 0; query < 2; query++) {
            ZP_TRY(move_bias(e, m, set, fold, l, query, err));
            ZP_TRY(move_gains(e, m, set, l, query, err));
        }
    }
    return info->add ? info->add(e, info->add_arg, err) : ZP_OK;
}

zp_status apply_write(const struct zp_model *m, const struct gateset *set, const struct fold *fold,
                      const struct apply_info *info, const char *path, zp_err *err)
{
    struct gguf_edit e;
    ZP_TRY(gguf_edit_init(&e, &m->gguf, err));
    zp_status status = fill(&e, m, set, fold, info, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, path, err);
    gguf_edit_free(&e);
    return status;
}

zp_status apply_evidence(const struct gguf *g, const char *path, const char *evidence,
                         uint32_t n_ctx_validated, zp_err *err)
{
    struct gguf_edit e;
    ZP_TRY(gguf_edit_init(&e, g, err));
    zp_status status = gguf_edit_set_str(&e, "zerope.evidence", evidence, err);
    if (status == ZP_OK && n_ctx_validated)
        status = gguf_edit_set_u32(&e, "zerope.context.validated", n_ctx_validated, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, path, err);
    gguf_edit_free(&e);
    return status;
}
