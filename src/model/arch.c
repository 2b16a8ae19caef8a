/* arch.c: architectures as data rows, and the reading of hyper-parameters.
 * Owns: what an architecture's name implies. Does not know: tensors' bytes, positions of tokens.
 * A1 a key that the maths needs is required or has a default that the row states; never silent.
 * A2 every count is checked before it sizes anything. */
#include "model/arch.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

static const struct arch_row rows[] = {
    { .name = "llama", .pairing = ARCH_INTERLEAVED, .act = ARCH_SILU, .rope_base = 10000.0f },
    { .name = "qwen2", .pairing = ARCH_HALVES, .act = ARCH_SILU, .qkv_bias = true },
    { .name = "qwen3", .pairing = ARCH_HALVES, .act = ARCH_SILU, .qk_norm = true },
    { .name = "gemma3",
      .pairing = ARCH_HALVES,
      .act = ARCH_GELU,
      .qk_norm = true,
      .post_norms = true,
      .embed_sqrt = true,
      .swa_pattern = 6,
      .rope_base = 1000000.0f,
      .rope_base_swa = 10000.0f },
    { .name = "smollm3",
      .pairing = ARCH_INTERLEAVED,
      .act = ARCH_SILU,
      .nope = ARCH_NOPE_EVERY_4TH },
    { .name = "granite",
      .pairing = ARCH_INTERLEAVED,
      .act = ARCH_SILU,
      .multipliers = true,
      .nope = ARCH_NOPE_UNLESS_FINETUNED,
      .rope_base = 10000.0f },
};

const char *arch_base_name(const char *name)
{
    return strncmp(name, "zerope-", 7) == 0 ? name + 7 : name;
}

const struct arch_row *arch_find(const char *name)
{
    for (size_t i = 0; i < ZP_COUNT(rows); i++)
        if (strcmp(rows[i].name, arch_base_name(name)) == 0) return &rows[i];
    return NULL;
}

const char *arch_known_names(void)
{
    return "llama, qwen2, qwen3, gemma3, smollm3, granite (each also as zerope-<name>)";
}

static zp_status read_counts(struct hparams *h, const struct gguf *g, zp_err *err)
{
    ZP_TRY(gguf_get_u32(g, "%.block_count", &h->n_layer, err));
    ZP_FAIL_IF(h->n_layer < 1 || h->n_layer > 1024, err, ZP_BAD_FILE,
               "%s: block_count is %u; expected 1..1024", g->path, h->n_layer);
    ZP_TRY(gguf_get_u32(g, "%.embedding_length", &h->d_model, err));
    ZP_TRY(gguf_get_u32(g, "%.context_length", &h->n_ctx_train, err));
    uint32_t per_layer[1024];
    bool found;
    ZP_TRY(gguf_get_u32_layers(g, "%.attention.head_count", h->n_layer, per_layer, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "key %s.attention.head_count is missing", g->arch);
    h->n_head = per_layer[0];
    for (uint32_t i = 1; i < h->n_layer; i++)
        ZP_FAIL_IF(per_layer[i] != h->n_head, err, ZP_UNSUPPORTED,
                   "%s: layers differ in head_count (%u and %u)", g->path, h->n_head, per_layer[i]);
    for (uint32_t i = 0; i < h->n_layer; i++) per_layer[i] = h->n_head;
    ZP_TRY(gguf_get_u32_layers(g, "%.attention.head_count_kv", h->n_layer, per_layer, &found, err));
    h->n_kv = per_layer[0];
    for (uint32_t i = 1; i < h->n_layer; i++)
        ZP_FAIL_IF(per_layer[i] != h->n_kv, err, ZP_UNSUPPORTED,
                   "%s: layers differ in head_count_kv (%u and %u)", g->path, h->n_kv,
                   per_layer[i]);
    ZP_TRY(gguf_get_u32_layers(g, "%.feed_forward_length", h->n_layer, per_layer, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "key %s.feed_forward_length is missing", g->arch);
    h->d_ff = per_layer[0];
    for (uint32_t i = 1; i < h->n_layer; i++)
        ZP_FAIL_IF(per_layer[i] != h->d_ff, err, ZP_UNSUPPORTED,
                   "%s: layers differ in feed_forward_length (%u and %u)", g->path, h->d_ff,
                   per_layer[i]);
    return ZP_OK;
}

static zp_status check_counts(struct hparams *h, const struct gguf *g, zp_err *err)
{
    ZP_FAIL_IF(h->d_model < 1 || h->d_model > 1u << 17 || h->d_ff < 1 || h->d_ff > 1u << 20, err,
               ZP_BAD_FILE, "%s: embedding_length %u or feed_forward_length %u out of range",
               g->path, h->d_model, h->d_ff);
    ZP_FAIL_IF(h->n_head < 1 || h->n_head > 1024 || h->n_kv < 1 || h->n_kv > h->n_head ||
                   h->n_head % h->n_kv != 0,
               err, ZP_BAD_FILE,
               "%s: head_count %u and head_count_kv %u; expected 1..1024 and a divisor", g->path,
               h->n_head, h->n_kv);
    ZP_FAIL_IF(h->n_ctx_train < 1, err, ZP_BAD_FILE, "%s: context_length is 0", g->path);
    uint32_t d_value;
    ZP_TRY(gguf_get_u32_or(g, "%.attention.key_length", h->d_model / h->n_head, &h->d_head, err));
    ZP_TRY(gguf_get_u32_or(g, "%.attention.value_length", h->d_head, &d_value, err));
    ZP_FAIL_IF(h->d_head != d_value, err, ZP_UNSUPPORTED,
               "%s: key_length %u differs from value_length %u", g->path, h->d_head, d_value);
    ZP_FAIL_IF(h->d_head < 2 || h->d_head > 1024 || h->d_head % 2 != 0, err, ZP_BAD_FILE,
               "%s: head size %u; expected an even number in 2..1024", g->path, h->d_head);
    ZP_TRY(gguf_get_u32_or(g, "%.rope.dimension_count", h->d_head, &h->n_rot, err));
    ZP_FAIL_IF(h->n_rot > h->d_head || h->n_rot % 2 != 0 || h->n_rot == 0, err, ZP_BAD_FILE,
               "%s: rope.dimension_count %u; expected an even number in 2..%u", g->path, h->n_rot,
               h->d_head);
    ZP_TRY(gguf_get_f32(g, "%.attention.layer_norm_rms_epsilon", &h->norm_eps, err));
    ZP_FAIL_IF(!(h->norm_eps > 0.0f && h->norm_eps < 1.0f), err, ZP_BAD_FILE,
               "%s: layer_norm_rms_epsilon is %g; expected a small positive number", g->path,
               (double)h->norm_eps);
    const struct gguf_tensor *embd;
    ZP_TRY(gguf_get_tensor(g, "token_embd.weight", &embd, err));
    ZP_FAIL_IF(embd->n_dims != 2 || embd->ne[1] > 1u << 24, err, ZP_BAD_FILE,
               "%s: token_embd.weight must have 2 dimensions and at most 2^24 rows", g->path);
    h->n_vocab = (uint32_t)embd->ne[1];
    return ZP_OK;
}

/* A number that stands in the file must be in lo..hi, which leaves no room for NaN, infinities and
 * numbers that make every result 0 or infinite. *out holds the value for files without the key. */
static zp_status read_between(const struct gguf *g, const char *key, float lo, float hi, float *out,
                              zp_err *err)
{
    ZP_TRY(gguf_get_f32_or(g, key, *out, out, err));
    bool found = gguf_find_key(g, key) != NULL;
    ZP_FAIL_IF(found && !(*out >= lo && *out <= hi), err, ZP_BAD_FILE,
               "%s: %s is %g; expected %g to %g", g->path, key + 2, (double)*out, (double)lo,
               (double)hi); /* without "%." */
    return ZP_OK;
}

static zp_status read_multipliers(struct hparams *h, const struct gguf *g, zp_err *err)
{
    static const float least = 1e-6f, most = 1e6f;
    h->attn_scale = 1.0f / sqrtf((float)h->d_head);
    h->embed_scale = h->arch->embed_sqrt ? sqrtf((float)h->d_model) : 1.0f;
    h->residual_scale = 1.0f;
    h->logit_scale = 1.0f;
    ZP_TRY(read_between(g, "%.attention.scale", least, most, &h->attn_scale, err));
    if (!h->arch->multipliers) return ZP_OK;
    float divisor;
    ZP_TRY(read_between(g, "%.embedding_scale", least, most, &h->embed_scale, err));
    ZP_TRY(read_between(g, "%.residual_scale", least, most, &h->residual_scale, err));
    ZP_TRY(gguf_get_f32(g, "%.logit_scale", &divisor, err));
    ZP_TRY(read_between(g, "%.logit_scale", least, most, &divisor, err));
    h->logit_scale = 1.0f / divisor;
    return ZP_OK;
}

/* Windowed layers: a period (u32) or a mask (bool per layer) in the file, else the row's period. */
static zp_status read_windows(struct hparams *h, const struct gguf *g, zp_err *err)
{
    uint32_t window, period = h->arch->swa_pattern;
    ZP_TRY(gguf_get_u32_or(g, "%.attention.sliding_window", 0, &window, err));
    const struct gguf_kv *kv = gguf_find_key(g, "%.attention.sliding_window_pattern");
    if (kv && kv->is_array) {
        uint32_t mask[1024];
        bool found;
        ZP_TRY(gguf_get_u32_layers(g, "%.attention.sliding_window_pattern", h->n_layer, mask,
                                   &found, err));
        for (uint32_t i = 0; i < h->n_layer; i++) h->window[i] = mask[i] ? window : 0;
        return ZP_OK;
    }
    if (kv) ZP_TRY(gguf_get_u32(g, "%.attention.sliding_window_pattern", &period, err));
    for (uint32_t i = 0; i < h->n_layer; i++)
        h->window[i] = window != 0 && (period == 0 || (i + 1) % period != 0) ? window : 0;
    return ZP_OK;
}

/* rope[i]: the layer HAS rotation. `%.attention.rope_pattern` (granite_swa's key, also ours)
 * wins. */
static zp_status read_rope_layers(struct hparams *h, const struct gguf *g, zp_err *err)
{
    for (uint32_t i = 0; i < h->n_layer; i++)
        h->rope[i] = h->arch->nope != ARCH_NOPE_EVERY_4TH || (i + 1) % 4 != 0;
    if (h->arch->nope == ARCH_NOPE_UNLESS_FINETUNED) {
        bool finetuned;
        ZP_TRY(gguf_get_bool_or(g, "%.rope.scaling.finetuned", true, &finetuned, err));
        for (uint32_t i = 0; i < h->n_layer; i++) h->rope[i] = finetuned;
    }
    uint32_t pattern[1024];
    bool found;
    ZP_TRY(gguf_get_u32_layers(g, "%.attention.rope_pattern", h->n_layer, pattern, &found, err));
    for (uint32_t i = 0; found && i < h->n_layer; i++) h->rope[i] = pattern[i] != 0;
    return ZP_OK;
}

static zp_status read_scaling(struct hparams *h, const struct gguf *g, zp_err *err)
{
    struct gguf_str type;
    float old_linear;
    ZP_TRY(gguf_get_str_or_null(g, "%.rope.scaling.type", &type, err));
    ZP_TRY(gguf_get_f32_or(g, "%.rope.scale_linear", 0.0f, &old_linear, err));
    ZP_TRY(gguf_get_f32_or(g, "%.rope.scaling.factor", old_linear, &h->scaling_factor, err));
    bool yarn = type.data && gguf_str_is(type, "yarn");
    bool none = type.data && gguf_str_is(type, "none");
    bool dynamic = type.data && gguf_str_is(type, "dynamic");
    ZP_FAIL_IF(type.data && !yarn && !none && !dynamic && !gguf_str_is(type, "linear"), err,
               ZP_UNSUPPORTED, "%s: rope scaling type '%.*s'; known: none, linear, yarn, dynamic",
               g->path, (int)(type.size < 40 ? type.size : 40), type.data);
    bool usable = h->scaling_factor == 0.0f || /* 1e30: an export that closes all pairs */
                  (h->scaling_factor >= 1e-3f && h->scaling_factor <= 2e30f);
    ZP_FAIL_IF(!usable, err, ZP_BAD_FILE,
               "%s: rope.scaling.factor is %g; expected 0.001 to 1e30, or 0 for none", g->path,
               (double)h->scaling_factor);
    if (h->scaling_factor == 0.0f || none) h->scaling_factor = 1.0f;
    h->scaling = yarn                        ? ARCH_SCALING_YARN
                 : h->scaling_factor == 1.0f ? ARCH_SCALING_NONE
                 : dynamic                   ? ARCH_SCALING_DYNAMIC
                                             : ARCH_SCALING_LINEAR;
    h->orig_ctx = (float)h->n_ctx_train;
    h->yarn_attn_factor = 1.0f, h->yarn_ext_factor = 1.0f;
    h->yarn_beta_fast = 32.0f, h->yarn_beta_slow = 1.0f;
    ZP_TRY(read_between(g, "%.rope.scaling.original_context_length", 0.0f, 1e10f, &h->orig_ctx,
                        err));
    ZP_TRY(read_between(g, "%.rope.scaling.attn_factor", 0.0f, 1e6f, &h->yarn_attn_factor, err));
    ZP_TRY(read_between(g, "%.rope.scaling.yarn_beta_fast", 0.0f, 1e6f, &h->yarn_beta_fast, err));
    ZP_TRY(read_between(g, "%.rope.scaling.yarn_beta_slow", 0.0f, 1e6f, &h->yarn_beta_slow, err));
    ZP_TRY(read_between(g, "%.rope.scaling.yarn_ext_factor", 0.0f, 1e6f, &h->yarn_ext_factor, err));
    ZP_FAIL_IF((yarn || dynamic) && !(h->orig_ctx >= 1.0f), err, ZP_BAD_FILE,
               "%s: rope.scaling.original_context_length is %g; expected >= 1", g->path,
               (double)h->orig_ctx);
    ZP_FAIL_IF(dynamic && (h->scaling_factor < 1.0f || h->n_rot <= 2), err, ZP_BAD_FILE,
               "%s: dynamic rope scaling by %g over %u channels; expected a factor >= 1 and more "
               "than 2 channels",
               g->path, (double)h->scaling_factor, h->n_rot);
    return ZP_OK;
}

/* Divisors above 1 slow a pair down, without bound: closed. Infinity closes it as well. */
static zp_status check_divisors(const struct hparams *h, const struct gguf *g, zp_err *err)
{
    static const float least = 1e-3f;
    const float *divisor = h->rope_freqs ? (const float *)(const void *)h->rope_freqs->data : NULL;
    for (uint32_t i = 0; divisor && i < h->n_rot / 2; i++)
        ZP_FAIL_IF(!(divisor[i] >= least), err, ZP_BAD_FILE,
                   "%s: rope_freqs.weight[%u] is %g; expected %g or more", g->path, i,
                   (double)divisor[i], (double)least);
    return ZP_OK;
}

static zp_status read_rope(struct hparams *h, const struct gguf *g, zp_err *err)
{
    static const float most_base = 1e20f;
    ZP_TRY(read_rope_layers(h, g, err));
    bool any = false;
    for (uint32_t i = 0; i < h->n_layer; i++) any = any || h->rope[i];
    if (any && h->arch->rope_base == 0.0f)
        ZP_TRY(gguf_get_f32(g, "%.rope.freq_base", &h->rope_base, err));
    else ZP_TRY(gguf_get_f32_or(g, "%.rope.freq_base", h->arch->rope_base, &h->rope_base, err));
    float swa = h->arch->rope_base_swa != 0.0f ? h->arch->rope_base_swa : h->rope_base;
    ZP_TRY(gguf_get_f32_or(g, "%.rope.local.freq_base", swa, &swa,
                           err)); /* another converter's name */
    ZP_TRY(gguf_get_f32_or(g, "%.rope.freq_base_swa", swa, &h->rope_base_swa, err));
    /* At 1 all pairs turn alike, below it the slowest are the fastest. */
    bool usable = h->rope_base > 1.0f && h->rope_base <= most_base && h->rope_base_swa > 1.0f &&
                  h->rope_base_swa <= most_base;
    ZP_FAIL_IF(any && !usable, err, ZP_BAD_FILE,
               "%s: rope.freq_base is %g, freq_base_swa %g; expected numbers above 1, at most "
               "%g", g->path, (double)h->rope_base, (double)h->rope_base_swa, (double)most_base);
    if (any && !gguf_find_key(g, "%.rope.freq_base"))
        log_info("%s: no key rope.freq_base: base %g, the default for %s", g->path,
                 (double)h->rope_base, h->arch->name);
    ZP_TRY(read_scaling(h, g, err));
    h->rope_freqs = gguf_find_tensor(g, "rope_freqs.weight");
    ZP_FAIL_IF(h->rope_freqs && (h->rope_freqs->n_dims != 1 || h->rope_freqs->type != 0 ||
                                 h->rope_freqs->ne[0] != h->n_rot / 2),
               err, ZP_BAD_FILE, "%s: rope_freqs.weight must be f32 (%u)", g->path, h->n_rot / 2);
    ZP_TRY(check_divisors(h, g, err));
    ZP_FAIL_IF(gguf_find_tensor(g, "rope_factors_long.weight"), err, ZP_UNSUPPORTED,
               "%s: longrope factors are not supported", g->path);
    return ZP_OK;
}

/* llama.cpp's numbers: none, mean, cls, last, rank. What is no vector of a text's own is `last`,
 * which every decoder has. */
static zp_status read_pooling(struct hparams *h, const struct gguf *g, zp_err *err)
{
    uint32_t type;
    ZP_TRY(gguf_get_u32_or(g, "%.pooling_type", 0, &type, err));
    h->pooling = type == 1 ? ZP_POOL_MEAN : type == 2 ? ZP_POOL_FIRST : ZP_POOL_LAST;
    return ZP_OK;
}

zp_status arch_read(struct hparams *h, const struct gguf *g, struct arena *arena, zp_err *err)
{
    memset(h, 0, sizeof *h);
    ZP_FAIL_IF(g->arch[0] == 0, err, ZP_BAD_FILE, "%s: key general.architecture is missing",
               g->path);
    h->arch = arch_find(g->arch);
    ZP_FAIL_IF(!h->arch, err, ZP_UNSUPPORTED, "%s: unknown architecture '%.60s'; known: %s",
               g->path, g->arch, arch_known_names());
    h->ours = strncmp(g->arch, "zerope-", 7) == 0;
    ZP_TRY(read_counts(h, g, err));
    ZP_TRY(check_counts(h, g, err));
    h->window = arena_array(arena, h->n_layer, sizeof *h->window);
    h->rope = arena_array(arena, h->n_layer, sizeof *h->rope);
    ZP_FAIL_IF(!h->window || !h->rope, err, ZP_NO_MEMORY, "not enough memory for the layer table");
    ZP_TRY(read_multipliers(h, g, err));
    ZP_TRY(read_pooling(h, g, err));
    ZP_TRY(read_windows(h, g, err));
    return read_rope(h, g, err);
}
