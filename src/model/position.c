/* position.c: the position table: read from keys, asked by the layer program.
 * Owns: kinds, open pairs, angles with their scalings, windows, biases. Does not know: weights,
 * caches, threads.
 * P1 slots [0, n_open) of a head are its open pairs; a closed pair has no angle anywhere.
 * P2 a layer of kind none has n_open 0 in every head.  P3 angles are computed in double, once a
 *    pair. */
#include "model/position.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/json_read.h"
#include "model/posgate.h"

#define MOST_FACTOR 1e6 /* of a bias or a logit: beyond it a softmax sees nothing else */

const char *position_kind_name(enum position_kind kind)
{
    static const char *const names[] = { "rope", "partial", "none", "alibi", "t5", "mlp" };
    return names[kind];
}

const char *position_mode_name(zp_mode mode)
{
    static const char *const names[] = { "full", "zero", "half", "auto" };
    return names[mode];
}

/* ---- angles ---------------------------------------------------------------------------------- */

/* Pair index at which `turns` rotations fit the original context (YaRN, arXiv 2309.00071, section
 * 3.2). */
static double yarn_pair(const struct hparams *h, double base, double turns)
{
    return h->n_rot * log((double)h->orig_ctx / (turns * 2.0 * 3.14159265358979323846)) /
           (2.0 * log(base));
}

static double yarn_angle(const struct hparams *h, double base, uint32_t i, double plain)
{
    double low = fmax(0.0, floor(yarn_pair(h, base, (double)h->yarn_beta_fast)));
    double high = fmin(h->n_rot - 1.0, ceil(yarn_pair(h, base, (double)h->yarn_beta_slow)));
    double ramp = ((double)i - low) / fmax(0.001, high - low);
    double keep = (1.0 - fmin(1.0, fmax(0.0, ramp))) * (double)h->yarn_ext_factor;
    return plain / (double)h->scaling_factor * (1.0 - keep) + plain * keep;
}

/* Dynamic NTK: beyond the original context the base grows so that the slowest pair spans n_ctx as
 * it spanned that. */
static double base_of(const struct hparams *h, uint32_t set, uint32_t n_ctx)
{
    double base = (double)(set ? h->rope_base_swa : h->rope_base), n = h->n_rot;
    if (set || h->scaling != ARCH_SCALING_DYNAMIC || (double)n_ctx <= (double)h->orig_ctx)
        return base;
    double f = (double)h->scaling_factor, stretch = f * n_ctx / (double)h->orig_ctx - (f - 1.0);
    return base * pow(stretch, n / (n - 2.0));
}

static void fill_angles(const struct position *p, const struct hparams *h, uint32_t set,
                        uint32_t n_ctx, double *angle)
{
    double base = base_of(h, set, n_ctx);
    const float *divisor = h->rope_freqs ? (const float *)(const void *)h->rope_freqs->data : NULL;
    for (uint32_t i = 0; i < p->n_pair; i++) {
        double a = pow(base, -2.0 * i / h->n_rot);
        if (divisor) a /= (double)divisor[i];
        if (h->scaling == ARCH_SCALING_LINEAR && !set) a /= (double)h->scaling_factor;
        if (h->scaling == ARCH_SCALING_YARN && !set) a = yarn_angle(h, base, i, a);
        angle[i] = a;
    }
}

/* 1: a windowed layer of an architecture that gives those their own base, out of scalings'
 * reach. */
static uint8_t angle_set_of(const struct hparams *h, uint32_t layer)
{
    bool own = h->rope_base_swa != h->rope_base || h->arch->rope_base_swa != 0.0f;
    return h->window[layer] != 0 && own;
}

/* The architecture or a stock export closes this pair: no angle that could matter. */
static bool closed_by_file(const struct hparams *h, uint32_t layer, uint32_t pair)
{
    if (!h->rope[layer]) return true;
    if (h->scaling == ARCH_SCALING_LINEAR && h->scaling_factor >= POSITION_CLOSED_DIVISOR &&
        !angle_set_of(h, layer))
        return true;
    const float *divisor = h->rope_freqs ? (const float *)(const void *)h->rope_freqs->data : NULL;
    return divisor && divisor[pair] >= POSITION_CLOSED_DIVISOR;
}

void position_angles(const struct position *p, uint32_t set, double at, float *cs)
{
    for (uint32_t i = 0; i < p->n_pair; i++) {
        cs[2 * i] = (float)cos(at * p->angle[set][i]);
        cs[2 * i + 1] = (float)sin(at * p->angle[set][i]);
    }
}

void position_for_ctx(struct position *own, const struct position *p, const struct hparams *h,
                      uint32_t n_ctx, double *room)
{
    *own = *p;
    own->angle[0] = room;
    fill_angles(own, h, 0, n_ctx, room);
}

bool position_uses_set(const struct position *p, uint32_t set)
{
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t k = 0; p->angle_set[l] == set && k < p->n_kv; k++)
            if (p->heads[l * p->n_kv + k].n_open) return true;
    return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status place(struct position *p, const struct hparams *h, struct arena *arena,
                       zp_err *err)
{
    p->n_layer = h->n_layer, p->n_kv = h->n_kv, p->n_head = h->n_head, p->d_head = h->d_head;
    p->n_pair = h->n_rot / 2;
    size_t n_heads = (size_t)p->n_layer * p->n_kv;
    p->kind = arena_array(arena, p->n_layer, sizeof *p->kind);
    p->heads = arena_array(arena, n_heads, sizeof *p->heads);
    p->window = arena_array(arena, p->n_layer, sizeof *p->window);
    p->angle_set = arena_array(arena, p->n_layer, 1);
    uint16_t *pairs = arena_array(arena, n_heads * p->n_pair, sizeof *pairs);
    for (int set = 0; set < 2; set++) p->angle[set] = arena_array(arena, p->n_pair, sizeof(double));
    ZP_FAIL_IF(!p->kind || !p->heads || !p->window || !p->angle_set || !pairs || !p->angle[0] ||
                   !p->angle[1],
               err, ZP_NO_MEMORY, "not enough memory for the position table");
    for (size_t i = 0; i < n_heads; i++) p->heads[i].pair = pairs + i * p->n_pair;
    return ZP_OK;
}

/* Files of others: all pairs of a rotated layer are open but those that rope_freqs or the scaling
 * closes. */
static void table_of_stock_file(struct position *p, const struct hparams *h)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t n_open = 0;
        for (uint32_t k = 0; k < p->n_kv; k++) {
            struct position_head *head = &p->heads[l * p->n_kv + k];
            uint32_t slot = 0;
            for (uint32_t i = 0; i < p->n_pair; i++)
                if (!closed_by_file(h, l, i)) head->pair[slot++] = (uint16_t)i;
            head->n_open = (uint16_t)slot;
            for (uint32_t i = 0; i < p->n_pair; i++)
                if (closed_by_file(h, l, i)) head->pair[slot++] = (uint16_t)i;
            n_open = head->n_open;
        }
        p->kind[l] = n_open == 0           ? POSITION_NONE
                     : n_open == p->n_pair ? POSITION_ROPE
                                           : POSITION_PARTIAL;
    }
}

static zp_status kind_from_text(struct gguf_str s, enum position_kind *out, uint32_t layer,
                                zp_err *err)
{
    for (int k = POSITION_ROPE; k <= POSITION_MLP; k++)
        if (gguf_str_is(s, position_kind_name((enum position_kind)k))) {
            *out = (enum position_kind)k;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_BAD_FILE,
            "zerope.position.kind of layer %u is '%.*s'; known: rope partial none alibi t5 mlp",
            layer, (int)(s.size < 30 ? s.size : 30), s.data);
}

/* pairs_open and half_pairs: original pair numbers, per layer then KV head, with offsets. */
static zp_status read_pair_lists(const struct gguf *g, const char *key, const struct position *p,
                                 const struct gguf_kv **pairs, const struct gguf_kv **offsets,
                                 zp_err *err)
{
    char offset_key[64];
    snprintf(offset_key, sizeof offset_key, "%s_offset", key);
    ZP_TRY(gguf_find_array(g, key, GGUF_ANY_INT, pairs, err));
    ZP_TRY(gguf_find_array(g, offset_key, GGUF_ANY_INT, offsets, err));
    if (!*pairs && !*offsets) return ZP_OK;
    ZP_FAIL_IF(!*pairs || !*offsets, err, ZP_BAD_FILE, "%s and %s must come together", key,
               offset_key);
    uint64_t n = (uint64_t)p->n_layer * p->n_kv;
    ZP_FAIL_IF((*offsets)->count != n + 1, err, ZP_BAD_FILE, "%s has %llu items; expected %llu",
               offset_key, (unsigned long long)(*offsets)->count, (unsigned long long)(n + 1));
    for (uint64_t i = 0; i <= n; i++) {
        int64_t at = gguf_item_int(*offsets, i), last = i ? gguf_item_int(*offsets, i - 1) : 0;
        ZP_FAIL_IF(at < last || at > (int64_t)(*pairs)->count || at - last > (int64_t)p->n_pair ||
                       (i == 0 && at),
                   err, ZP_BAD_FILE, "%s[%llu] is %lld: out of order or range", offset_key,
                   (unsigned long long)i, (long long)at);
    }
    int64_t end = gguf_item_int(*offsets, n);
    ZP_FAIL_IF(end != (int64_t)(*pairs)->count, err, ZP_BAD_FILE,
               "%s ends at %lld, but %s has %llu items; expected as many", offset_key,
               (long long)end, key, (unsigned long long)(*pairs)->count);
    for (uint64_t i = 0; i < (*pairs)->count; i++)
        ZP_FAIL_IF(gguf_item_int(*pairs, i) < 0 || gguf_item_int(*pairs, i) >= (int64_t)p->n_pair,
                   err, ZP_BAD_FILE, "%s[%llu] is %lld; a head has %u pairs", key,
                   (unsigned long long)i, (long long)gguf_item_int(*pairs, i), p->n_pair);
    return ZP_OK;
}

/* Without the key every pair is closed (check_kinds refuses kinds that rotate). */
static zp_status read_open_pairs(struct position *p, const struct gguf *g, zp_err *err)
{
    const struct gguf_kv *pairs, *offsets;
    ZP_TRY(read_pair_lists(g, "zerope.position.pairs_open", p, &pairs, &offsets, err));
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++) {
        struct position_head *head = &p->heads[i];
        bool seen[512] = { false };
        uint32_t slot = 0;
        int64_t begin = pairs ? gguf_item_int(offsets, i) : 0,
                end = pairs ? gguf_item_int(offsets, i + 1) : 0;
        for (int64_t at = begin; at < end; at++) {
            int64_t pair = gguf_item_int(pairs, (uint64_t)at);
            ZP_FAIL_IF(seen[pair], err, ZP_BAD_FILE,
                       "zerope.position.pairs_open names pair %lld twice in one head",
                       (long long)pair);
            seen[pair] = true;
            head->pair[slot++] = (uint16_t)pair;
        }
        head->n_open = (uint16_t)slot;
        for (uint32_t pair = 0; pair < p->n_pair; pair++)
            if (!seen[pair]) head->pair[slot++] = (uint16_t)pair;
    }
    return ZP_OK;
}

/* The keys must not contradict each other: the kind follows from the open pairs (P1, P2). */
static zp_status check_kinds(const struct position *p, const struct hparams *h, zp_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t open = 0;
        for (uint32_t k = 0; k < p->n_kv; k++) open += p->heads[l * p->n_kv + k].n_open;
        bool all = open == p->n_kv * p->n_pair;
        enum position_kind kind = p->kind[l];
        bool fits = kind == POSITION_ROPE      ? all
                    : kind == POSITION_PARTIAL ? open > 0 && !all
                                               : open == 0;
        ZP_FAIL_IF(!fits, err, ZP_BAD_FILE, "layer %u is of kind %s but has %u of %u pairs open", l,
                   position_kind_name(kind), open, p->n_kv * p->n_pair);
        ZP_FAIL_IF(open && !h->rope[l], err, ZP_BAD_FILE,
                   "layer %u has open pairs but its architecture keys say it does not rotate", l);
    }
    return ZP_OK;
}

static zp_status read_half(struct position *p, const struct gguf *g, struct arena *arena,
                           zp_err *err)
{
    const struct gguf_kv *pairs, *offsets;
    ZP_TRY(read_pair_lists(g, "zerope.position.half_pairs", p, &pairs, &offsets, err));
    p->has_half = pairs != NULL;
    for (uint32_t i = 0; pairs && i < p->n_layer * p->n_kv; i++) {
        uint8_t *open = arena_array(arena, p->n_pair, 1);
        ZP_FAIL_IF(!open, err, ZP_NO_MEMORY, "not enough memory for the position table");
        for (int64_t at = gguf_item_int(offsets, i); at < gguf_item_int(offsets, i + 1); at++)
            open[gguf_item_int(pairs, (uint64_t)at)] = 1;
        p->heads[i].half_open = open;
    }
    return ZP_OK;
}

static zp_status read_kinds(struct position *p, const struct gguf *g, const struct hparams *h,
                            zp_err *err)
{
    const struct gguf_kv *kinds;
    ZP_TRY(gguf_find_array(g, "zerope.position.kind", GGUF_STRS, &kinds, err));
    ZP_FAIL_IF(!kinds && h->ours, err, ZP_BAD_FILE,
               "%s: architecture %s needs the key zerope.position.kind", g->path, g->arch);
    if (!kinds) {
        table_of_stock_file(p, h);
        return ZP_OK;
    }
    ZP_FAIL_IF(kinds->count != p->n_layer, err, ZP_BAD_FILE,
               "zerope.position.kind has %llu items; expected %u", (unsigned long long)kinds->count,
               p->n_layer);
    uint32_t version;
    ZP_TRY(gguf_get_u32(g, "zerope.format_version", &version, err));
    ZP_FAIL_IF(version != 1, err, ZP_UNSUPPORTED,
               "%s: zerope.format_version is %u; this program reads 1", g->path, version);
    for (uint32_t l = 0; l < p->n_layer; l++)
        ZP_TRY(kind_from_text(gguf_item_str(kinds, l), &p->kind[l], l, err));
    p->reordered = true;
    ZP_TRY(read_open_pairs(p, g, err));
    return check_kinds(p, h, err);
}

static zp_status read_windows(struct position *p, const struct gguf *g, const struct hparams *h,
                              zp_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        p->window[l] = h->window[l];
        p->angle_set[l] = angle_set_of(h, l);
    }
    const struct gguf_kv *kv;
    ZP_TRY(gguf_find_array(g, "zerope.attention.head_window", GGUF_ANY_INT, &kv, err));
    uint64_t n = (uint64_t)p->n_layer * p->n_kv;
    ZP_FAIL_IF(kv && kv->count != n, err, ZP_BAD_FILE,
               "zerope.attention.head_window has %llu items; expected %llu",
               (unsigned long long)kv->count, (unsigned long long)n);
    for (uint64_t i = 0; kv && i < n; i++) {
        int64_t w = gguf_item_int(kv, i);
        ZP_FAIL_IF(w < 0 || w > INT32_MAX, err, ZP_BAD_FILE,
                   "zerope.attention.head_window[%llu] is %lld", (unsigned long long)i,
                   (long long)w);
        p->heads[i].window = (uint32_t)w;
    }
    ZP_TRY(gguf_get_u32_or(g, "zerope.attention.sinks", 0, &p->n_sink, err));
    ZP_FAIL_IF(p->n_sink > 64, err, ZP_BAD_FILE, "zerope.attention.sinks is %u; expected 0..64",
               p->n_sink);
    return ZP_OK;
}

/* Fills one pointer a layer from blk.N.<suffix>; *table stays NULL when no layer has it. */
static zp_status read_per_layer(const struct position *p, const struct gguf *g, const char *suffix,
                                uint64_t ne0, uint64_t ne1, const float ***table,
                                struct arena *arena, zp_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        char name[64];
        const float *data;
        snprintf(name, sizeof name, "blk.%u.%s", l, suffix);
        ZP_TRY(gguf_find_f32(g, name, ne0, ne1, &data, err));
        if (!data) continue;
        if (!*table) *table = arena_array(arena, p->n_layer, sizeof **table);
        ZP_FAIL_IF(!*table, err, ZP_NO_MEMORY, "not enough memory for the position table");
        (*table)[l] = data;
    }
    return ZP_OK;
}

/* A factor beyond MOST_FACTOR at no position. */
static zp_status read_gate(struct position *p, const struct gguf *g, struct arena *arena,
                           zp_err *err)
{
    ZP_TRY(read_per_layer(p, g, "pos_gate.weight", POSGATE_STEPS, p->n_head, &p->gate, arena, err));
    for (uint32_t l = 0; p->gate && l < p->n_layer; l++)
        for (uint32_t h = 0; p->gate[l] && h < p->n_head; h++) {
            float size = 0;
            for (int i = 0; i < POSGATE_STEPS; i++)
                size += fabsf(p->gate[l][h * POSGATE_STEPS + (uint32_t)i]);
            ZP_FAIL_IF(!((double)size <= log(MOST_FACTOR)), err, ZP_BAD_FILE,
                       "tensor blk.%u.pos_gate.weight: the sizes of head %u's weights add up to "
                       "%g; expected at most %g", l, h, (double)size, log(MOST_FACTOR));
        }
    return ZP_OK;
}

static zp_status read_biases(struct position *p, const struct gguf *g, struct arena *arena,
                             zp_err *err)
{
    ZP_TRY(gguf_get_u32_or(g, "zerope.position.t5_buckets", 32, &p->t5_buckets, err));
    ZP_TRY(gguf_get_u32_or(g, "zerope.position.t5_max", 128, &p->t5_max, err));
    ZP_FAIL_IF(p->t5_buckets < 2 || p->t5_buckets > 4096 || p->t5_max <= p->t5_buckets / 2, err,
               ZP_BAD_FILE, "zerope.position.t5_buckets %u and t5_max %u do not fit", p->t5_buckets,
               p->t5_max);
    ZP_TRY(read_per_layer(p, g, "pos_alibi.slope", p->n_head, 1, &p->alibi, arena, err));
    ZP_TRY(read_per_layer(p, g, "pos_t5.weight", p->t5_buckets, p->n_head, &p->t5, arena, err));
    ZP_TRY(read_per_layer(p, g, "pos_mlp.0.weight", 1, 32, &p->mlp[0], arena, err));
    ZP_TRY(read_per_layer(p, g, "pos_mlp.0.bias", 32, 1, &p->mlp[1], arena, err));
    ZP_TRY(read_per_layer(p, g, "pos_mlp.1.weight", 32, p->n_head, &p->mlp[2], arena, err));
    ZP_TRY(read_per_layer(p, g, "pos_mlp.1.bias", p->n_head, 1, &p->mlp[3], arena, err));
    ZP_TRY(read_per_layer(p, g, "attn_head_scale", p->n_head, 1, &p->head_scale, arena, err));
    ZP_TRY(read_gate(p, g, arena, err));
    for (uint32_t l = 0; l < p->n_layer; l++) {
        enum position_kind kind = p->kind[l];
        bool alibi = p->alibi && p->alibi[l], t5 = p->t5 && p->t5[l], mlp = true, any_mlp = false;
        for (int i = 0; i < 4; i++) {
            mlp = mlp && p->mlp[i] && p->mlp[i][l];
            any_mlp = any_mlp || (p->mlp[i] && p->mlp[i][l]);
        }
        bool fits = (kind == POSITION_ALIBI) == alibi && (kind == POSITION_T5) == t5 &&
                    (kind == POSITION_MLP) == mlp && any_mlp == mlp;
        ZP_FAIL_IF(!fits, err, ZP_BAD_FILE,
                   "layer %u is of kind %s but its bias tensors say otherwise", l,
                   position_kind_name(kind));
    }
    const struct gguf_kv *gate;
    ZP_TRY(gguf_find_array(g, "zerope.position.bias_gate", GGUF_ANY_FLOAT, &gate, err));
    if (!gate) return ZP_OK;
    uint64_t n = (uint64_t)p->n_layer * p->n_head;
    ZP_FAIL_IF(gate->count != n, err, ZP_BAD_FILE,
               "zerope.position.bias_gate has %llu items; expected %llu",
               (unsigned long long)gate->count, (unsigned long long)n);
    float *copy = arena_array(arena, n, sizeof *copy);
    ZP_FAIL_IF(!copy, err, ZP_NO_MEMORY, "not enough memory for the position table");
    for (uint64_t i = 0; i < n; i++) {
        copy[i] = (float)gguf_item_float(gate, i);
        ZP_FAIL_IF(!(fabsf(copy[i]) <= MOST_FACTOR), err, ZP_BAD_FILE,
                   "zerope.position.bias_gate[%llu] is %g; expected -%g to %g",
                   (unsigned long long)i, (double)copy[i], MOST_FACTOR, MOST_FACTOR);
    }
    p->bias_gate = copy;
    return ZP_OK;
}

static zp_status read_length_scale(struct position *p, const struct gguf *g, struct arena *arena,
                                   zp_err *err)
{
    const struct gguf_kv *kv;
    ZP_TRY(gguf_find_array(g, "zerope.attention.scale_c", GGUF_ANY_FLOAT, &kv, err));
    if (!kv) return ZP_OK;
    ZP_FAIL_IF(kv->count != p->n_layer, err, ZP_BAD_FILE,
               "zerope.attention.scale_c has %llu items; expected %u",
               (unsigned long long)kv->count, p->n_layer);
    ZP_TRY(gguf_get_u32(g, "zerope.attention.scale_len", &p->scale_len, err));
    p->scale_c = arena_array(arena, p->n_layer, sizeof *p->scale_c);
    ZP_FAIL_IF(!p->scale_c, err, ZP_NO_MEMORY, "not enough memory for the position table");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        p->scale_c[l] = (float)gguf_item_float(kv, l);
        ZP_FAIL_IF(!(fabsf(p->scale_c[l]) <= MOST_FACTOR) || p->scale_len == 0, err, ZP_BAD_FILE,
                   "zerope.attention.scale_c[%u] is %g, scale_len %u; expected -%g to %g, above 0",
                   l, (double)p->scale_c[l], p->scale_len, MOST_FACTOR, MOST_FACTOR);
    }
    return ZP_OK;
}

/* Field verified_modes of the evidence: what a passing verify has run. Evidence that does not parse
 * vouches for nothing. */
static zp_status read_verified_modes(struct position *p, struct gguf_str evidence, zp_err *err)
{
    json_t *root;
    ZP_TRY(json_read_or_null(evidence.data, evidence.size, &root, err));
    const json_t *modes = json_object_get(root, "verified_modes");
    for (size_t i = 0; i < json_array_size(modes); i++) {
        const char *name = json_string_value(json_array_get(modes, i));
        for (int m = 0; name && m < 4; m++)
            if (strcmp(name, position_mode_name((zp_mode)m)) == 0) p->verified[m] = true;
    }
    json_decref(root);
    return ZP_OK;
}

static zp_status read_mode(struct position *p, const struct gguf *g, zp_err *err)
{
    struct gguf_str s;
    ZP_TRY(gguf_get_str_or_null(g, "zerope.position.mode_default", &s, err));
    bool known = s.data == NULL;
    for (int m = 0; s.data && m < 4; m++)
        if (gguf_str_is(s, position_mode_name((zp_mode)m)))
            p->mode_default = (zp_mode)m, known = true;
    ZP_FAIL_IF(!known, err, ZP_BAD_FILE,
               "zerope.position.mode_default is '%.*s'; known: full zero half auto",
               (int)(s.size < 30 ? s.size : 30), s.data);
    ZP_TRY(gguf_get_u32_or(g, "zerope.position.auto_threshold", 0, &p->auto_threshold, err));
    ZP_TRY(gguf_get_u32_or(g, "zerope.context.validated", 0, &p->n_ctx_validated, err));
    ZP_TRY(gguf_get_str_or_null(g, "zerope.evidence", &s, err));
    return read_verified_modes(p, s, err);
}

zp_status position_read(struct position *p, const struct gguf *g, const struct hparams *h,
                        struct arena *arena, zp_err *err)
{
    memset(p, 0, sizeof *p);
    ZP_TRY(place(p, h, arena, err));
    ZP_TRY(read_kinds(p, g, h, err));
    ZP_TRY(read_windows(p, g, h, err));
    ZP_TRY(read_half(p, g, arena, err));
    ZP_TRY(read_biases(p, g, arena, err));
    ZP_TRY(read_length_scale(p, g, arena, err));
    ZP_TRY(read_mode(p, g, err));
    for (uint32_t set = 0; set < 2; set++) fill_angles(p, h, set, 0, p->angle[set]);
    p->attn_scale = h->attn_scale;
    if (h->scaling == ARCH_SCALING_YARN && h->scaling_factor > 1.0f) {
        /* Magnitude of YaRN on cos and sin of q and k = its square on the logits, closed pairs
         * included. */
        float m = h->yarn_attn_factor * (1.0f + 0.1f * logf(h->scaling_factor));
        ZP_FAIL_IF(h->n_rot != h->d_head, err, ZP_UNSUPPORTED,
                   "YaRN with partial rotary is not supported");
        p->attn_scale *= m * m;
    }
    return ZP_OK;
}

/* ---- asked by the layer program -------------------------------------------------------------- */

void position_row_map(const struct position *p, const struct hparams *h, uint32_t layer,
                      uint32_t kv, uint32_t *map)
{
    const struct position_head *head = &p->heads[layer * p->n_kv + kv];
    for (uint32_t c = 0; c < p->d_head; c++) map[c] = c;
    if (p->reordered) return;
    for (uint32_t s = 0; s < p->n_pair; s++) {
        uint32_t i = head->pair[s];
        map[2 * s] = h->arch->pairing == ARCH_INTERLEAVED ? 2 * i : i;
        map[2 * s + 1] = h->arch->pairing == ARCH_INTERLEAVED ? 2 * i + 1 : i + p->n_pair;
    }
}

static bool slot_rotates(const struct position *p, struct position_view view, uint32_t layer,
                         uint32_t kv, uint32_t slot)
{
    size_t at = (size_t)layer * p->n_kv + kv;
    const struct position_head *head = &p->heads[at];
    uint32_t pair = head->pair[slot];
    if (slot >= head->n_open || view.mode == ZP_MODE_ZERO) return false;
    if (view.mode == ZP_MODE_HALF && head->half_open && !head->half_open[pair]) return false;
    return !view.gates || view.gates[at * p->n_pair + pair] != 0;
}

uint32_t position_head_cs(const struct position *p, struct position_view view, uint32_t layer,
                          uint32_t kv, const float *token_cs, float *room, const float **cs)
{
    const struct position_head *head = &p->heads[layer * p->n_kv + kv];
    uint32_t n = view.identity ? p->n_pair : view.mode == ZP_MODE_ZERO ? 0 : head->n_open;
    *cs = room;
    uint32_t last = 0;
    for (uint32_t s = 0; s < n; s++) {
        bool rotates = slot_rotates(p, view, layer, kv, s);
        room[2 * s] = rotates ? token_cs[2 * head->pair[s]] : 1.0f;
        room[2 * s + 1] = rotates ? token_cs[2 * head->pair[s] + 1] : 0.0f;
        if (rotates) last = s + 1;
    }
    return view.identity ? n : last;
}

void position_count(const struct position *p, struct position_view view, uint64_t *rotated,
                    uint64_t *skipped)
{
    *rotated = *skipped = 0;
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t k = 0; k < p->n_kv; k++) {
            uint32_t n = p->n_pair; /* slots up to the last one that rotates */
            while (n > 0 && !view.identity && !slot_rotates(p, view, l, k, n - 1)) n--;
            *rotated += n;
            *skipped += p->n_pair - n;
        }
}

bool position_is_free(const struct position *p, zp_mode mode)
{
    uint64_t rotated, skipped;
    position_count(p, (struct position_view){ .mode = mode }, &rotated, &skipped);
    if (position_has_gate(p)) return false;
    for (uint32_t l = 0; l < p->n_layer && rotated == 0; l++) {
        for (uint32_t k = 0; k < p->n_kv; k++)
            if (position_head_sight(p, l, k).window != 0) return false;
        for (uint32_t h = 0; h < p->n_head && position_layer_has_bias(p, l); h++)
            if (!p->bias_gate || p->bias_gate[l * p->n_head + h] != 0.0f) return false;
    }
    return rotated == 0;
}

float position_query_scale(const struct position *p, uint32_t layer, uint32_t head,
                           uint32_t n_visible)
{
    float scale = p->attn_scale;
    if (p->scale_c && p->scale_c[layer] != 0.0f) {
        float ratio = (float)n_visible / (float)p->scale_len;
        scale *= 1.0f + p->scale_c[layer] * logf(ratio > 1.0f ? ratio : 1.0f);
    }
    return p->head_scale && p->head_scale[layer] ? scale * p->head_scale[layer][head] : scale;
}

bool position_has_gate(const struct position *p)
{
    bool any = false;
    for (uint32_t l = 0; l < p->n_layer; l++) any |= position_layer_has_gate(p, l);
    return any;
}

float position_gate_factor(const struct position *p, uint32_t layer, uint32_t head, uint64_t at)
{
    float phi[POSGATE_STEPS];
    if (!position_layer_has_gate(p, layer)) return 1.0f;
    posgate_features(at, phi);
    return posgate_factor(p->gate[layer] + head * POSGATE_STEPS, phi);
}

struct position_sight position_try_sight(const struct position *p, uint32_t layer,
                                         uint32_t head_window, uint32_t n_sink)
{
    uint32_t own = p->window[layer], w = head_window;
    return (struct position_sight){ own != 0 && (w == 0 || own < w) ? own : w, w ? n_sink : 0 };
}

struct position_sight position_head_sight(const struct position *p, uint32_t layer, uint32_t kv)
{
    return position_try_sight(p, layer, p->heads[layer * p->n_kv + kv].window, p->n_sink);
}

struct position_seen position_seen(struct position_sight s, uint32_t at)
{
    uint32_t first = s.window == 0 || at < s.window ? 0 : at + 1 - s.window;
    return (struct position_seen){ s.n_sink < first ? s.n_sink : first, first };
}

bool position_layer_has_bias(const struct position *p, uint32_t layer)
{
    return p->kind[layer] == POSITION_ALIBI || p->kind[layer] == POSITION_T5 ||
           p->kind[layer] == POSITION_MLP;
}

/* T5's causal buckets: exact up to half of them, then logarithmic up to t5_max (Raffel et al.,
 * 2020). */
static uint32_t t5_bucket(const struct position *p, uint32_t d)
{
    uint32_t exact = p->t5_buckets / 2;
    if (d < exact) return d;
    double at = log((double)d / exact) / log((double)p->t5_max / exact) * (p->t5_buckets - exact);
    uint32_t b = exact + (uint32_t)at;
    return b < p->t5_buckets ? b : p->t5_buckets - 1;
}

static double mlp_bias(const struct position *p, uint32_t layer, uint32_t head, uint32_t d)
{
    double in = log(1.0 + d), sum = (double)p->mlp[3][layer][head];
    for (uint32_t i = 0; i < 32; i++) {
        double z = (double)p->mlp[0][layer][i] * in + (double)p->mlp[1][layer][i];
        double gelu = 0.5 * z * (1.0 + erf(z / sqrt(2.0)));
        sum += (double)p->mlp[2][layer][head * 32 + i] * gelu;
    }
    return sum;
}

void position_bias_fill(const struct position *p, uint32_t layer, uint32_t head, uint32_t n,
                        float *out)
{
    float gate = p->bias_gate ? p->bias_gate[layer * p->n_head + head] : 1.0f;
    for (uint32_t d = 0; d < n; d++) {
        double b = 0.0;
        if (p->kind[layer] == POSITION_ALIBI) b = -(double)p->alibi[layer][head] * d;
        else if (p->kind[layer] == POSITION_T5)
            b = (double)p->t5[layer][head * p->t5_buckets + t5_bucket(p, d)];
        else if (p->kind[layer] == POSITION_MLP && gate != 0.0f) b = mlp_bias(p, layer, head, d);
        out[n - 1 - d] = gate == 0.0f ? 0.0f : gate * (float)b;
    }
}

void position_gates(const struct position *p, uint32_t *total, uint32_t *closed,
                    uint32_t *layers_none, uint32_t *heads_none, uint32_t *heads_local)
{
    *total = *closed = *layers_none = *heads_none = *heads_local = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        bool bias = position_layer_has_bias(p, l);
        *layers_none += p->kind[l] == POSITION_NONE;
        for (uint32_t k = 0; k < p->n_kv; k++) {
            const struct position_head *head = &p->heads[l * p->n_kv + k];
            *heads_local += head->window != 0;
            *heads_none += !bias && head->n_open == 0;
            if (!bias) *total += p->n_pair, *closed += p->n_pair - head->n_open;
        }
        for (uint32_t i = 0; bias && i < p->n_head; i++) {
            *total += 1;
            *closed += p->bias_gate && p->bias_gate[l * p->n_head + i] == 0.0f;
        }
    }
}
