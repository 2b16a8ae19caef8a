/* newmodel.c: a model from nothing: sizes from a JSON object, random weights, a tokenizer's keys.
 * Owns: what members a config may have, and initial values. Does not know: how models train. */
#include "train/newmodel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/numtext.h"
#include "base/os.h"
#include "base/rng.h"
#include "kern/quant.h"
#include "model/gguf_write.h"
#include "model/json_read.h"
#include "model/outputs.h"
#include "model/position.h"
#include "model/tokenizer.h"

enum { MLP_WIDTH = 32 }; /* as position.c reads it */
static const double small_std = 0.02, distance_std = 0.5;
/* Shares of keys in queries' weights, and of values' in those behind attention: heads that begin by
 * looking for their like, and by passing on what they see, come to copy text several times sooner
 * (after Trockman and Kolter, Mimetic Initialization of Self-Attention Layers, 2023). */
static const double query_noise = 0.5, value_share = 0.1, output_noise = 0.5;
static const float norm_eps = 1e-5f;

/* ---- config ---------------------------------------------------------------------------------- */

struct config {
    enum position_kind position;
    uint32_t n_layer, d_model, n_head, n_kv, d_head, d_ff, n_ctx, n_rot, buckets, max_distance;
    float rope_base;
    bool qk_norm;
};

/* Value of a member as messages show it; room for 64 bytes. */
static const char *text_of(const json_t *value, char *out)
{
    enum { ROOM = 64 };
    if (json_is_integer(value))
        snprintf(out, ROOM, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        numtext_printf(out, ROOM, "the real number %g", json_real_value(value));
    else if (json_is_string(value)) snprintf(out, ROOM, "'%.40s'", json_string_value(value));
    else if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    else return json_is_null(value) ? "null" : json_is_array(value) ? "an array" : "an object";
    return out;
}

static zp_status read_kind(const json_t *root, const char *where, struct config *c, zp_err *err)
{
    const json_t *value = json_object_get(root, "position");
    char found[64];
    ZP_FAIL_IF(!value, err, ZP_BAD_FILE,
               "%s: position is missing; expected rope, partial, alibi, t5, mlp or none", where);
    for (int k = POSITION_ROPE; json_is_string(value) && k <= POSITION_MLP; k++)
        if (strcmp(json_string_value(value), position_kind_name((enum position_kind)k)) == 0) {
            c->position = (enum position_kind)k;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_BAD_FILE, "%s: position is %s; expected rope, partial, alibi, t5, mlp or none",
            where, text_of(value, found));
}

/* A member that nothing reads would make another model than was meant. */
static zp_status refuse_others(json_t *root, const char *where, const struct config *c, zp_err *err)
{
    enum { ANY = ~0, TURNS = 1 << POSITION_ROPE | 1 << POSITION_PARTIAL };
    static const struct {
        const char *key;
        int kinds;
    } known[] = { { "n_layer", ANY },    { "d_model", ANY },
                  { "n_head", ANY },     { "n_kv", ANY },
                  { "d_head", ANY },     { "d_ff", ANY },
                  { "n_ctx", ANY },      { "position", ANY },
                  { "qk_norm", ANY },    { "rope_base", TURNS },
                  { "n_rot", 1 << POSITION_PARTIAL },
                  { "buckets", 1 << POSITION_T5 },
                  { "max_distance", 1 << POSITION_T5 } };
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        size_t i = 0;
        while (i < ZP_COUNT(known) && strcmp(known[i].key, key) != 0) i++;
        ZP_FAIL_IF(i == ZP_COUNT(known), err, ZP_BAD_FILE,
                   "%s: unknown member '%.40s'; known: n_layer d_model n_head n_kv d_head d_ff "
                   "n_ctx position qk_norm rope_base n_rot buckets max_distance", where, key);
        ZP_FAIL_IF(!(known[i].kinds >> c->position & 1), err, ZP_BAD_FILE,
                   "%s: %s means nothing to position %s; leave it out", where, key,
                   position_kind_name(c->position));
    }
    return ZP_OK;
}

/* *out holds the default; 0: the member must be there. */
static zp_status read_size(const json_t *root, const char *where, const char *key, uint32_t least,
                           uint32_t most, uint32_t *out, zp_err *err)
{
    const json_t *value = json_object_get(root, key);
    char found[64];
    ZP_FAIL_IF(!value && *out == 0, err, ZP_BAD_FILE,
               "%s: %s is missing; expected an integer, %u to %u", where, key, least, most);
    if (!value) return ZP_OK;
    json_int_t n = json_integer_value(value); /* 0: another type */
    ZP_FAIL_IF(n < least || n > most, err, ZP_BAD_FILE,
               "%s: %s is %s; expected an integer, %u to %u", where, key, text_of(value, found),
               least, most);
    *out = (uint32_t)n;
    return ZP_OK;
}

static zp_status read_heads(const json_t *root, const char *where, struct config *c, zp_err *err)
{
    ZP_TRY(read_size(root, where, "n_head", 1, 1024, &c->n_head, err));
    c->n_kv = c->n_head;
    ZP_TRY(read_size(root, where, "n_kv", 1, c->n_head, &c->n_kv, err));
    ZP_FAIL_IF(c->n_head % c->n_kv != 0, err, ZP_BAD_FILE,
               "%s: n_kv is %u; expected a divisor of n_head, %u", where, c->n_kv, c->n_head);
    uint32_t share = c->d_model / c->n_head;
    c->d_head = c->d_model % c->n_head == 0 && share % 2 == 0 && share <= 1024 ? share : 0;
    ZP_TRY(read_size(root, where, "d_head", 2, 1024, &c->d_head, err));
    ZP_FAIL_IF(c->d_head % 2 != 0, err, ZP_BAD_FILE,
               "%s: d_head is %u; expected an even number, 2 to 1024", where, c->d_head);
    return ZP_OK;
}

/* What only some kinds have. */
static zp_status read_details(const json_t *root, const char *where, struct config *c, zp_err *err)
{
    static const float most_base = 1e20f;
    const json_t *base = json_object_get(root, "rope_base");
    char found[64];
    c->rope_base = base ? (float)json_number_value(base) : 10000.0f; /* another type: 0 */
    ZP_FAIL_IF(!(c->rope_base > 1.0f && c->rope_base <= most_base), err, ZP_BAD_FILE,
               "%s: rope_base is %s; expected a number above 1, at most 1e20", where,
               text_of(base, found));
    c->n_rot = c->position == POSITION_PARTIAL ? 0 : c->d_head;
    ZP_TRY(read_size(root, where, "n_rot", 2, 1024, &c->n_rot, err));
    ZP_FAIL_IF(c->n_rot % 2 != 0 || (c->position == POSITION_PARTIAL && c->n_rot >= c->d_head),
               err, ZP_BAD_FILE, "%s: n_rot is %u; expected an even number below d_head, %u", where,
               c->n_rot, c->d_head);
    c->buckets = 32, c->max_distance = 128;
    ZP_TRY(read_size(root, where, "buckets", 2, 4096, &c->buckets, err));
    ZP_TRY(read_size(root, where, "max_distance", 2, 1 << 24, &c->max_distance, err));
    ZP_FAIL_IF(c->max_distance <= c->buckets / 2, err, ZP_BAD_FILE,
               "%s: max_distance is %u; expected more than half of buckets, %u", where,
               c->max_distance, c->buckets);
    return ZP_OK;
}

/* Ranges are those of arch.c, position.c and engine.c. */
static zp_status read_config(json_t *root, const char *where, struct config *c, zp_err *err)
{
    ZP_FAIL_IF(!json_is_object(root), err, ZP_BAD_FILE, "%s: not a JSON object", where);
    ZP_TRY(read_kind(root, where, c, err));
    ZP_TRY(refuse_others(root, where, c, err));
    ZP_TRY(read_size(root, where, "n_layer", 1, 1024, &c->n_layer, err));
    ZP_TRY(read_size(root, where, "d_model", 1, 1 << 17, &c->d_model, err));
    ZP_TRY(read_size(root, where, "d_ff", 1, 1 << 20, &c->d_ff, err));
    ZP_TRY(read_size(root, where, "n_ctx", 1, 1 << 24, &c->n_ctx, err));
    ZP_TRY(read_heads(root, where, c, err));
    ZP_TRY(read_details(root, where, c, err));
    const json_t *norm = json_object_get(root, "qk_norm");
    char found[64];
    ZP_FAIL_IF(norm && !json_is_boolean(norm), err, ZP_BAD_FILE,
               "%s: qk_norm is %s; expected true or false", where, text_of(norm, found));
    c->qk_norm = json_is_true(norm);
    return ZP_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static zp_status put_sizes(struct gguf_edit *e, const struct config *c, zp_err *err)
{
    bool stock = c->position == POSITION_ROPE || c->position == POSITION_PARTIAL;
    char arch[32];
    snprintf(arch, sizeof arch, "%s%s", stock ? "" : "zerope-", c->qk_norm ? "qwen3" : "llama");
    ZP_TRY(gguf_edit_set_str(e, "general.architecture", arch, err));
    ZP_TRY(gguf_edit_set_u32(e, "general.file_type", quant_traits_find(QUANT_F32)->file_type, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.block_count", c->n_layer, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.context_length", c->n_ctx, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.embedding_length", c->d_model, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.feed_forward_length", c->d_ff, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.head_count", c->n_head, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.head_count_kv", c->n_kv, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.key_length", c->d_head, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.value_length", c->d_head, err));
    ZP_TRY(gguf_edit_set_f32(e, "%.attention.layer_norm_rms_epsilon", norm_eps, err));
    /* qwen3 has no default base: its reader asks for one, whatever the layers do with it. */
    ZP_TRY(gguf_edit_set_u32(e, "%.rope.dimension_count", c->n_rot, err));
    return gguf_edit_set_f32(e, "%.rope.freq_base", c->rope_base, err);
}

/* Of kinds that stock files cannot say: no pair is open. */
static zp_status put_kinds(struct gguf_edit *e, const struct config *c, struct arena *arena,
                           zp_err *err)
{
    struct gguf_str *kinds;
    const char *name = position_kind_name(c->position);
    if (c->position == POSITION_ROPE || c->position == POSITION_PARTIAL) return ZP_OK;
    ZP_TAKE(kinds, arena, c->n_layer, err, "the kinds of layers");
    for (uint32_t l = 0; l < c->n_layer; l++) kinds[l] = (struct gguf_str){ name, strlen(name) };
    ZP_TRY(gguf_edit_set_u32(e, "zerope.format_version", 1, err));
    ZP_TRY(gguf_edit_set_strs(e, "zerope.position.kind", kinds, c->n_layer, err));
    if (c->position != POSITION_T5) return ZP_OK;
    ZP_TRY(gguf_edit_set_u32(e, "zerope.position.t5_buckets", c->buckets, err));
    return gguf_edit_set_u32(e, "zerope.position.t5_max", c->max_distance, err);
}

static zp_status copy_tokenizer(struct gguf_edit *e, const struct gguf *g, uint32_t *n_vocab,
                                zp_err *err)
{
    struct tokenizer *t;
    ZP_TRY(tokenizer_open_gguf(&t, g, NULL, err)); /* one that cannot be used is not copied */
    *n_vocab = (uint32_t)tokenizer_get_info(t)->n_vocab;
    tokenizer_close(t);
    ZP_TRY(gguf_edit_set_u32(e, "%.vocab_size", *n_vocab, err));
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (strncmp(g->kvs[i].name, "tokenizer.", 10) == 0)
            ZP_TRY(gguf_edit_set_kv(e, &g->kvs[i], err));
    return ZP_OK;
}

static zp_status put_tokenizer(struct gguf_edit *e, const char *path, uint32_t *n_vocab,
                               zp_err *err)
{
    struct gguf g;
    ZP_TRY(gguf_open(&g, path, err));
    zp_status status = copy_tokenizer(e, &g, n_vocab, err);
    if (status != ZP_OK && status != ZP_NO_MEMORY) status_add_path(err, path);
    gguf_close(&g);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

struct making {
    const struct config *c;
    struct gguf_edit *e;
    struct arena *arena; /* lives until the file is written */
    uint64_t seed;
};

struct values { /* of one tensor */
    uint64_t seed, stream, n_in;
    double mean, std; /* std 0: all are the mean */
    /* What is added: values of another tensor, whose rows are those of the KV heads. */
    const struct values *like; /* NULL: nothing is */
    double share;
    bool turned; /* this one's columns are heads, not its rows */
    uint64_t d_head, group; /* heads of this one for each of the other's */
};

static double own_value(const struct values *v, uint64_t row, uint64_t column)
{
    struct rng r = { v->seed, v->stream, row * v->n_in + column }; // A1
    return v->std == 0 ? v->mean : v->mean + v->std * (double)rng_normal(&r);
}

static double value_at(const struct values *v, uint64_t row, uint64_t column)
{
    double x = own_value(v, row, column);
    if (!v->like) return x;
    uint64_t place = v->turned ? column : row, other = v->turned ? row : column;
    uint64_t head = place / v->d_head / v->group;
    return x + v->share * own_value(v->like, head * v->d_head + place % v->d_head, other);
}

static zp_status fill_values(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    const struct values *v = arg;
    float *to = out;
    (void)err;
    for (uint64_t i = 0; i < n * v->n_in; i++)
        to[i] = (float)value_at(v, first + i / v->n_in, i % v->n_in);
    return ZP_OK;
}

static struct values values_of(const struct making *m, const char *name, uint64_t n_in, double mean,
                               double std)
{
    return (struct values){ .seed = m->seed, .stream = hash_xxh64(name, strlen(name), 0),
                            .n_in = n_in, .mean = mean, .std = std };
}

/* n_out 0: a vector. */
static zp_status add_tensor(const struct making *m, const char *name, uint64_t n_out,
                            struct values values, zp_err *err)
{
    struct values *v;
    ZP_TAKE(v, m->arena, 1, err, "a tensor");
    *v = values;
    struct gguf_edit_tensor t = { .name = name, .type = QUANT_F32, .n_dims = n_out ? 2 : 1,
                                  .ne = { v->n_in, n_out }, .fill = fill_values, .fill_arg = v };
    return gguf_edit_set_tensor(m->e, &t, err);
}

/* Powers of 2 heads: 2^(-8 (h + 1) / n). Others: those of the largest power of 2 below, then every
 * other one of the next power's. */
static zp_status add_slopes(const struct making *m, const char *name, zp_err *err)
{
    uint64_t n = m->c->n_head;
    uint32_t whole = 1;
    float slope[1024];
    while (whole * 2 <= n) whole *= 2;
    for (uint32_t h = 0; h < n; h++)
        slope[h] = (float)exp2(h < whole ? -8.0 * (h + 1) / whole
                                         : -8.0 * (2 * (h - whole) + 1) / (2 * whole));
    return gguf_edit_set_tensor_f32(m->e, name, 1, &n, slope, err);
}

/* The matrices of attention. */
static zp_status add_attention(const struct making *m, uint32_t layer, zp_err *err)
{
    const struct config *c = m->c;
    uint64_t d = c->d_model, q = (uint64_t)c->n_head * c->d_head;
    uint64_t kv = (uint64_t)c->n_kv * c->d_head;
    double std = 1 / sqrt((double)d), back = std / sqrt(2.0 * c->n_layer);
    enum { Q, K, V, O, MATRICES };
    static const char *const names[MATRICES] = { "q", "k", "v", "output" };
    char name[MATRICES][GGUF_MAX_NAME];
    for (int i = 0; i < MATRICES; i++)
        snprintf(name[i], sizeof name[i], "blk.%u.attn_%s.weight", layer, names[i]);
    struct values *k, *v;
    ZP_TAKE(k, m->arena, 1, err, "a tensor");
    ZP_TAKE(v, m->arena, 1, err, "a tensor");
    *k = values_of(m, name[K], d, 0, std);
    *v = values_of(m, name[V], d, 0, std);
    struct values from = values_of(m, name[Q], d, 0, query_noise * std);
    struct values to = values_of(m, name[O], q, 0, output_noise * back);
    from.like = k, from.share = 1;
    to.like = v, to.share = value_share, to.turned = true;
    from.d_head = to.d_head = c->d_head;
    from.group = to.group = c->n_head / c->n_kv;
    ZP_TRY(add_tensor(m, name[Q], q, from, err));
    ZP_TRY(add_tensor(m, name[K], kv, *k, err));
    ZP_TRY(add_tensor(m, name[V], kv, *v, err));
    return add_tensor(m, name[O], d, to, err);
}

static zp_status add_layer(const struct making *m, uint32_t layer, zp_err *err)
{
    const struct config *c = m->c;
    uint64_t d = c->d_model, head = c->qk_norm ? c->d_head : 0;
    bool t5 = c->position == POSITION_T5, mlp = c->position == POSITION_MLP;
    double std = 1 / sqrt((double)d), back = 1 / sqrt(2.0 * c->n_layer * c->d_ff);
    const struct {
        const char *name;
        uint64_t n_in, n_out; /* n_in 0: the model has none */
        double mean, std;
    } rows[] = {
        { "attn_norm.weight", d, 0, 1, 0 },
        { "attn_q_norm.weight", head, 0, 1, 0 },
        { "attn_k_norm.weight", head, 0, 1, 0 },
        { "ffn_norm.weight", d, 0, 1, 0 },
        { "ffn_gate.weight", d, c->d_ff, 0, std },
        { "ffn_up.weight", d, c->d_ff, 0, std },
        { "ffn_down.weight", c->d_ff, d, 0, back },
        { "pos_t5.weight", t5 ? c->buckets : 0, c->n_head, 0, small_std },
        { "pos_mlp.0.weight", mlp, MLP_WIDTH, 0, distance_std },
        { "pos_mlp.0.bias", mlp ? MLP_WIDTH : 0, 0, 0, 0 },
        { "pos_mlp.1.weight", mlp ? MLP_WIDTH : 0, c->n_head, 0, small_std },
        { "pos_mlp.1.bias", mlp ? c->n_head : 0, 0, 0, 0 },
    };
    char name[GGUF_MAX_NAME];
    ZP_TRY(add_attention(m, layer, err));
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        snprintf(name, sizeof name, "blk.%u.%s", layer, rows[i].name);
        struct values values = values_of(m, name, rows[i].n_in, rows[i].mean, rows[i].std);
        if (rows[i].n_in) ZP_TRY(add_tensor(m, name, rows[i].n_out, values, err));
    }
    snprintf(name, sizeof name, "blk.%u.pos_alibi.slope", layer);
    return c->position == POSITION_ALIBI ? add_slopes(m, name, err) : ZP_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static zp_status fill(const struct making *m, const char *tokenizer_path, zp_err *err)
{
    const struct config *c = m->c;
    uint32_t n_vocab;
    ZP_TRY(put_sizes(m->e, c, err));
    ZP_TRY(put_kinds(m->e, c, m->arena, err));
    ZP_TRY(put_tokenizer(m->e, tokenizer_path, &n_vocab, err));
    struct values embedding = values_of(m, "token_embd.weight", c->d_model, 0, small_std);
    struct values norm = values_of(m, "output_norm.weight", c->d_model, 1, 0);
    ZP_TRY(add_tensor(m, "token_embd.weight", n_vocab, embedding, err));
    for (uint32_t l = 0; l < c->n_layer; l++) ZP_TRY(add_layer(m, l, err));
    return add_tensor(m, "output_norm.weight", 0, norm, err);
}

zp_status newmodel_write(const char *config_json, const char *config_name,
                         const char *tokenizer_path, uint64_t seed, const char *out_path,
                         zp_err *err)
{
    struct config c = { 0 };
    struct gguf_edit e;
    struct arena arena = { .tag = MEM_TRAIN };
    json_t *root;
    ZP_TRY(outputs_check(&out_path, 1, &tokenizer_path, 1, err));
    ZP_TRY(json_read_text(config_json, strlen(config_json), config_name, &root, err));
    zp_status status = read_config(root, config_name, &c, err);
    json_decref(root);
    ZP_TRY(status);
    ZP_TRY(gguf_edit_init(&e, NULL, err));
    status = fill(&(struct making){ &c, &e, &arena, seed }, tokenizer_path, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, out_path, err);
    gguf_edit_free(&e);
    arena_free(&arena);
    return status;
}

zp_status zp_model_new(const char *config, const char *tokenizer, uint64_t seed, const char *out,
                       zp_err *err)
{
    enum { MOST_BYTES = 1 << 20 };
    struct os_map map;
    ZP_TRY(os_map_file(&map, config, err));
    char *text = map.size <= MOST_BYTES ? mem_strndup(MEM_TRAIN, (const char *)map.data, map.size)
                                        : NULL;
    size_t size = map.size;
    os_unmap(&map);
    ZP_FAIL_IF(!text, err, size > MOST_BYTES ? ZP_BAD_FILE : ZP_NO_MEMORY,
               "%s: %zu bytes are too many for the description of a model", config, size);
    zp_status status = newmodel_write(text, config, tokenizer, seed, out, err);
    mem_free(text);
    return status;
}
