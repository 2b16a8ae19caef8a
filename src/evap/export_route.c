/* export_route.c: from a position table to the one stock form that says the same.
 * Owns: the choice. Does not know: how files are written.
 * Facts about engines, as run (llama.cpp 0c1e570, transformers 4.57 and 5.24) or read in their
 * sources:
 *  - llama.cpp applies rope_freqs.weight in llama, granite and granite_swa, and refuses the tensor
 *    in qwen2, qwen3, gemma3 and smollm3. llama's graph equals smollm3's but for the layers
 *    without rotation, and qwen2's but for the order of rows, so both are written as llama.
 *  - linear scaling by 1e30 leaves no rotation; gemma3's windowed layers ignore it.
 *  - granite_swa reads which layers rotate; its K-shift is wrong, so it is the last choice.
 *  - transformers: llama3 scaling closes the slowest pairs of any family but gemma3's;
 *    no_rope_layers is smollm3's alone. */
#include "evap/export_route.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *export_way_name(enum export_way way)
{
    static const char *const names[] = { "as is", "divisors", "linear", "pattern" };
    return names[way];
}

/* ---- what to do instead */

static bool arch_is(const struct zp_model *m, const char *name)
{
    return strcmp(m->h.arch->name, name) == 0;
}

static uint32_t windowed_layers(const struct zp_model *m)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->h.n_layer; l++) n += m->h.window[l] != 0;
    return n;
}

static bool has_divisors(const struct zp_model *m)
{
    const float *d = m->h.rope_freqs ? (const float *)(const void *)m->h.rope_freqs->data : NULL;
    for (uint32_t i = 0; d && i < m->position.n_pair; i++)
        if (d[i] != 1.0f && d[i] < POSITION_CLOSED_DIVISOR) return true;
    return false;
}

/* Whether the target can say that some pairs are closed, the same ones in all heads. */
static bool says_pairs(const struct zp_model *m, enum export_kind kind)
{
    uint32_t unrotated = 0;
    for (uint32_t l = 0; l < m->h.n_layer; l++) unrotated += !m->h.rope[l];
    if (arch_is(m, "qwen3") || arch_is(m, "gemma3")) return false;
    if (kind == EXPORT_HF)
        return !unrotated && m->h.scaling == ARCH_SCALING_NONE && !has_divisors(m);
    bool pattern = m->h.n_rot == m->h.d_head && !windowed_layers(m);
    return m->h.scaling != ARCH_SCALING_DYNAMIC && (!unrotated || pattern);
}

/* What surely leads to an export. --layers does not: what its budget has left closes single gates.
 * The original, because a closed gate does not open again. */
static const char *advice(const struct zp_model *m, enum export_kind kind)
{
    if (arch_is(m, "gemma3") && windowed_layers(m))
        return "evaporate the original with a --plan that closes the layers without a window and "
               "nothing else";
    if (!says_pairs(m, kind))
        return "evaporate the original with --close-all (everything, whatever it costs)";
    if (kind == EXPORT_HF)
        return "evaporate the original with --uniform-slow (the slowest pairs everywhere); "
               "--layers alone goes on with single gates";
    return "evaporate the original with --uniform (the same pairs everywhere); --layers alone goes "
           "on with single gates";
}

/* ---- what no stock engine has */

static zp_status refuse_own_parts(const struct zp_model *m, enum export_kind kind, zp_err *err)
{
    const struct position *p = &m->position;
    ZP_FAIL_IF(m->structure.weight, err, ZP_UNSUPPORTED,
               "the model has a structure head (struct_head), which no stock engine reads: run the "
               "file with zerope, or export the model from before the head");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        ZP_FAIL_IF(position_layer_has_bias(p, l), err, ZP_UNSUPPORTED,
                   "layer %u has a position bias (%s), which no stock engine reads: run the file "
                   "with zerope", l, position_kind_name(p->kind[l]));
        ZP_FAIL_IF(position_layer_has_gate(p, l), err, ZP_UNSUPPORTED,
                   "layer %u gates its queries by their position (pos_gate), which no stock engine "
                   "does: run the file with zerope, or export the model from before the gate", l);
        ZP_FAIL_IF(
            p->scale_c && p->scale_c[l] != 0.0f, err, ZP_UNSUPPORTED,
            "layer %u scales its logits by the length seen (zerope.attention.scale_c), which "
            "no stock engine does",
            l);
        for (uint32_t k = 0; k < p->n_kv; k++)
            ZP_FAIL_IF(p->heads[l * p->n_kv + k].window != 0, err, ZP_UNSUPPORTED,
                       "layer %u, KV head %u is local (reach %u), which no stock engine can say: "
                       "leave --local out and %s",
                       l, k, p->heads[l * p->n_kv + k].window, advice(m, kind));
    }
    return ZP_OK;
}

/* ---- shape */

static void closed_pairs(const struct position *p, uint32_t layer, uint32_t kv, bool *closed)
{
    const struct position_head *h = &p->heads[layer * p->n_kv + kv];
    for (uint32_t s = 0; s < p->n_pair; s++) closed[h->pair[s]] = s >= h->n_open;
}

/* The first rotating head decides; every other one must be like it or closed with its layer. */
static zp_status compare_heads(struct export_shape *s, const struct zp_model *m,
                               enum export_kind kind, zp_err *err)
{
    const struct position *p = &m->position;
    bool closed[512], found = false;
    uint32_t first_layer = 0, first_kv = 0;
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t k = 0; k < p->n_kv && !s->none[l]; k++) {
            closed_pairs(p, l, k, found ? closed : s->closed);
            bool same = !found || memcmp(closed, s->closed, p->n_pair) == 0;
            if (!found) first_layer = l, first_kv = k;
            found = true;
            ZP_FAIL_IF(!same, err, ZP_UNSUPPORTED,
                       "layer %u, KV head %u keeps other pairs (%u of %u open) than layer %u, KV "
                       "head %u (%u open); stock engines rotate all heads of a layer alike: %s",
                       l, k, p->heads[l * p->n_kv + k].n_open, p->n_pair, first_layer, first_kv,
                       p->heads[first_layer * p->n_kv + first_kv].n_open, advice(m, kind));
        }
    return ZP_OK;
}

static zp_status shape_read(struct export_shape *s, const struct zp_model *m,
                            enum export_kind kind, zp_err *err)
{
    const struct position *p = &m->position;
    *s = (struct export_shape){ .n_layer = p->n_layer, .n_pair = p->n_pair };
    for (uint32_t l = 0; l < p->n_layer; l++) {
        s->none[l] = true;
        for (uint32_t k = 0; k < p->n_kv; k++)
            if (p->heads[l * p->n_kv + k].n_open) s->none[l] = false;
        s->n_none += s->none[l];
    }
    s->is_free = s->n_none == s->n_layer;
    if (s->is_free) memset(s->closed, 1, s->n_pair);
    ZP_TRY(compare_heads(s, m, kind, err));
    s->closed_are_slowest = true;
    for (uint32_t i = 0; i < s->n_pair; i++) {
        s->n_closed += s->closed[i];
        if (i && s->closed[i - 1] && !s->closed[i]) s->closed_are_slowest = false;
    }
    return ZP_OK;
}

/* ---- ways */

static void go(struct export_route *r, enum export_way way, const char *arch)
{
    r->way = way;
    r->arch = arch;
    r->drops_scaling = r->shape.is_free;
    const struct arch_row *row = arch_find(arch);
    r->pairing = row ? row->pairing : ARCH_INTERLEAVED; /* granite_swa is a granite */
}

/* Layers without rotation are those the stock architecture itself leaves out. */
static bool pattern_is_native(const struct zp_model *m, const struct export_shape *s)
{
    enum arch_nope rule = m->h.arch->nope;
    if (rule != ARCH_NOPE_EVERY_4TH) return s->n_none == 0;
    for (uint32_t l = 0; l < s->n_layer; l++)
        if (s->none[l] != ((l + 1) % 4 == 0)) return false;
    return true;
}

/* gemma3: linear scaling reaches the layers without a window only, in both kinds of engine. */
static zp_status route_gemma3(struct export_route *r, const struct zp_model *m, zp_err *err)
{
    const struct export_shape *s = &r->shape;
    uint32_t l = 0;
    while (l < s->n_layer && s->none[l] == (m->h.window[l] == 0)) l++;
    if (l == s->n_layer && s->n_none && (s->is_free || s->n_closed == 0)) {
        go(r, EXPORT_LINEAR, "gemma3");
        r->drops_scaling = true;
        return ZP_OK;
    }
    ZP_FAIL_IF(windowed_layers(m), err, ZP_UNSUPPORTED,
               "layer %u: stock engines can take rotation out of gemma3 only in all layers without "
               "a window, and must keep it whole in the windowed ones (%u of %u layers here): %s",
               l < s->n_layer ? l : 0, windowed_layers(m), s->n_layer, advice(m, r->kind));
    ZP_FAIL(err, ZP_UNSUPPORTED, "stock engines can take rotation out of gemma3 only as a whole: "
            "%s", advice(m, r->kind));
}

static uint32_t first_of(const bool *flags, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && !flags[i]) i++;
    return i;
}

static zp_status route_stock(struct export_route *r, const struct zp_model *m, zp_err *err)
{
    const struct export_shape *s = &r->shape;
    const char *arch = m->h.arch->name;
    const char *plain = arch_is(m, "granite") ? "granite" : "llama";
    bool pattern = s->n_none > 0 && !s->is_free;
    uint32_t rotating = 0;
    if (arch_is(m, "gemma3")) return route_gemma3(r, m, err);
    if (arch_is(m, "qwen3")) {
        while (rotating < s->n_layer && s->none[rotating]) rotating++;
        ZP_FAIL_IF(!s->is_free, err, ZP_UNSUPPORTED,
                   "layer %u rotates %u of %u pairs and %u of %u layers none: stock engines can "
                   "take rotation out of qwen3 only as a whole: %s",
                   rotating, s->n_pair - s->n_closed, s->n_pair, s->n_none, s->n_layer,
                   advice(m, r->kind));
        go(r, EXPORT_LINEAR, "qwen3");
        return ZP_OK;
    }
    if (!pattern) {
        go(r, EXPORT_DIVISORS, plain);
        return ZP_OK;
    }
    ZP_FAIL_IF(m->h.n_rot != m->h.d_head, err, ZP_UNSUPPORTED,
               "layer %u has no rotation and others have: that needs architecture granite_swa, "
               "which rotates whole heads, but %s rotates %u of %u channels: %s",
               first_of(s->none, s->n_layer), arch, m->h.n_rot, m->h.d_head, advice(m, r->kind));
    ZP_FAIL_IF(windowed_layers(m), err, ZP_UNSUPPORTED,
               "layer %u has no rotation and others have: that needs architecture granite_swa, and "
               "the model has sliding windows of its own: %s",
               first_of(s->none, s->n_layer), advice(m, r->kind));
    go(r, EXPORT_PATTERN, "granite_swa");
    return ZP_OK;
}

static zp_status route_hf(struct export_route *r, const struct zp_model *m, zp_err *err)
{
    const struct export_shape *s = &r->shape;
    const char *arch = m->h.arch->name;
    bool llama = arch_is(m, "llama") || arch_is(m, "smollm3");
    bool pattern = s->n_none > 0 && !s->is_free;
    if (arch_is(m, "gemma3")) return route_gemma3(r, m, err);
    if (pattern) {
        ZP_FAIL_IF(!llama || windowed_layers(m), err, ZP_UNSUPPORTED,
                   "layer %u has no rotation and others have: transformers knows that only for "
                   "smollm3, as which a llama without windows can be written, but not a %s: %s",
                   first_of(s->none, s->n_layer), arch, advice(m, r->kind));
        ZP_FAIL_IF(s->n_closed, err, ZP_UNSUPPORTED,
                   "layer %u has no rotation, and in the other layers %u of %u pairs are closed: a "
                   "Hugging Face folder can say one of the two: %s",
                   first_of(s->none, s->n_layer), s->n_closed, s->n_pair, advice(m, r->kind));
        go(r, EXPORT_PATTERN, "smollm3");
        return ZP_OK;
    }
    ZP_FAIL_IF(!s->closed_are_slowest, err, ZP_UNSUPPORTED,
               "pair %u is closed and slower ones are open: a Hugging Face folder can close only "
               "the slowest pairs: %s",
               first_of(s->closed, s->n_pair), advice(m, r->kind));
    bool scaled = m->h.scaling != ARCH_SCALING_NONE || has_divisors(m);
    ZP_FAIL_IF(!s->is_free && scaled, err, ZP_UNSUPPORTED,
               "%u of %u pairs are closed and the open ones are scaled: a Hugging Face folder has "
               "one scaling: %s",
               s->n_closed, s->n_pair, advice(m, r->kind));
    go(r, EXPORT_DIVISORS, llama ? "llama" : arch);
    return ZP_OK;
}

/* The original's own architecture, if it already says everything. */
static bool route_as_is(struct export_route *r, const struct zp_model *m)
{
    const struct export_shape *s = &r->shape;
    if (s->is_free || s->n_closed || !pattern_is_native(m, s)) return false;
    go(r, EXPORT_AS_IS, m->h.arch->name);
    return true;
}

zp_status export_route_find(struct export_route *r, enum export_kind kind, const struct zp_model *m,
                            zp_err *err)
{
    *r = (struct export_route){ .kind = kind, .magnitude = 1.0f };
    ZP_TRY(refuse_own_parts(m, kind, err));
    ZP_TRY(shape_read(&r->shape, m, kind, err));
    if (!route_as_is(r, m))
        ZP_TRY(kind == EXPORT_HF ? route_hf(r, m, err) : route_stock(r, m, err));
    bool dynamic = m->h.scaling == ARCH_SCALING_DYNAMIC && !r->drops_scaling;
    ZP_FAIL_IF(dynamic && kind == EXPORT_STOCK_GGUF, err, ZP_UNSUPPORTED,
               "the layers that rotate use dynamic scaling (by %g beyond %g tokens), which "
               "llama.cpp does not know: %s",
               (double)m->h.scaling_factor, (double)m->h.orig_ctx,
               r->way == EXPORT_AS_IS ? "export with --to hf" : advice(m, kind));
    /* llama.cpp applies YaRN's magnitude in ggml_rope, so where rope runs with closed divisors the
     * keys stay; transformers' llama3 scaling has none, and layers without rope never see it. */
    bool yarn = m->h.scaling == ARCH_SCALING_YARN;
    if (!yarn) return ZP_OK;
    bool keeps = kind == EXPORT_STOCK_GGUF && r->way == EXPORT_DIVISORS;
    if (keeps) r->drops_scaling = false;
    r->magnitude_everywhere = r->drops_scaling;
    if (r->drops_scaling || r->way == EXPORT_PATTERN)
        r->magnitude = m->position.attn_scale / m->h.attn_scale;
    return ZP_OK;
}
