/* hfconfig_write.c: GGUF keys -> config.json. Refuses what the format cannot say, so that a model
 * is never silently different in another engine.
 * Numbers are f32 in GGUF; they are printed with the fewest digits that give the same f32. */
#include "model/hfconfig_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_tree.h"
#include "base/num.h"
#include "base/numtext.h"
#include "base/status.h"

#define PI 3.14159265358979323846
#define CLOSED_DIVISOR 1e29f

struct writing {
    struct gguf g; /* view of the keys */
    struct gguf_edit *e;
    struct hf_config *c;
    json_t *root;
};

static double shortest(float value)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        numtext_printf(text, sizeof text, "%.*g", digits, (double)value);
        if (numtext_float(text, NULL) == value) return numtext_double(text, NULL);
    }
    return (double)value;
}

static zp_status put(json_t *object, const char *key, json_t *value, zp_err *err)
{
    ZP_FAIL_IF(json_object_set_new(object, key, value) != 0, err, ZP_NO_MEMORY,
               "not enough memory for config.json");
    return ZP_OK;
}

static zp_status put_int(json_t *object, const char *key, uint64_t value, zp_err *err)
{
    return put(object, key, json_integer((json_int_t)value), err);
}

static zp_status put_real(json_t *object, const char *key, float value, zp_err *err)
{
    return put(object, key, json_real(shortest(value)), err);
}

/* ---- what cannot be said */

static zp_status refuse_own_keys(const struct gguf_edit *e, zp_err *err)
{
    for (uint32_t i = 0; i < e->n_kv; i++) {
        const char *name = e->kvs[i].name;
        ZP_FAIL_IF(strncmp(name, "zerope.position.", 16) == 0 ||
                       strncmp(name, "zerope.attention.", 17) == 0,
                   err, ZP_UNSUPPORTED, "key %.80s has no equivalent in a Hugging Face folder",
                   name);
    }
    return ZP_OK;
}

static zp_status read_family(struct writing *w, zp_err *err)
{
    const struct hf_family *f;
    bool mistral = strcmp(w->g.arch, "llama") == 0 &&
                   gguf_find_key(&w->g, "%.attention.sliding_window") != NULL;
    for (size_t i = 0; (f = hf_family_at(i)) != NULL; i++)
        if (strcmp(f->arch, w->g.arch) == 0 && mistral == (f->windows == HF_WINDOW_ALL)) break;
    ZP_FAIL_IF(f == NULL, err, ZP_UNSUPPORTED,
               "architecture %s cannot be written as a Hugging Face folder; llama, qwen2, qwen3, "
               "gemma3, smollm3 and granite can",
               w->g.arch);
    w->c->family = f;
    return ZP_OK;
}

/* ---- shape */

static zp_status per_layer_u32(const struct writing *w, const char *key, uint32_t fallback,
                               uint32_t *out, zp_err *err)
{
    uint32_t values[HF_MAX_LAYERS];
    bool found;
    ZP_TRY(gguf_get_u32_layers(&w->g, key, w->c->n_layer, values, &found, err));
    *out = found ? values[0] : fallback;
    for (uint32_t i = 1; found && i < w->c->n_layer; i++)
        ZP_FAIL_IF(values[i] != values[0], err, ZP_UNSUPPORTED,
                   "key %s differs between layers, which config.json cannot say", key);
    return ZP_OK;
}

static zp_status read_shape(struct writing *w, zp_err *err)
{
    struct hf_config *c = w->c;
    struct gguf_edit_tensor *embd = gguf_edit_find_tensor(w->e, "token_embd.weight");
    ZP_FAIL_IF(embd == NULL, err, ZP_BAD_INPUT, "tensor token_embd.weight is missing");
    c->n_vocab = (uint32_t)embd->ne[1];
    c->tied = gguf_edit_find_tensor(w->e, "output.weight") == NULL;
    ZP_TRY(gguf_get_u32(&w->g, "%.block_count", &c->n_layer, err));
    ZP_FAIL_IF(c->n_layer < 1 || c->n_layer > HF_MAX_LAYERS, err, ZP_BAD_INPUT,
               "block_count is %u, expected 1 to %d", c->n_layer, HF_MAX_LAYERS);
    ZP_TRY(gguf_get_u32(&w->g, "%.embedding_length", &c->d_model, err));
    ZP_TRY(gguf_get_u32(&w->g, "%.context_length", &c->n_ctx, err));
    ZP_TRY(per_layer_u32(w, "%.feed_forward_length", 0, &c->d_ff, err));
    ZP_TRY(per_layer_u32(w, "%.attention.head_count", 0, &c->n_head, err));
    ZP_TRY(per_layer_u32(w, "%.attention.head_count_kv", c->n_head, &c->n_kv, err));
    ZP_FAIL_IF(c->n_head < 1 || c->n_kv < 1 || c->d_ff < 1, err, ZP_BAD_INPUT,
               "head_count, head_count_kv or feed_forward_length is missing or 0");
    ZP_TRY(
        gguf_get_u32_or(&w->g, "%.attention.key_length", c->d_model / c->n_head, &c->d_head, err));
    ZP_TRY(gguf_get_u32_or(&w->g, "%.rope.dimension_count", c->d_head, &c->n_rot, err));
    ZP_FAIL_IF(c->d_head < 2 || c->d_head > 1024 || c->d_head % 2 != 0, err, ZP_BAD_INPUT,
               "key_length is %u, expected an even number from 2 to 1024", c->d_head);
    ZP_FAIL_IF(c->n_rot != c->d_head, err, ZP_UNSUPPORTED,
               "rope.dimension_count is %u of %u channels: %s in transformers rotates whole heads",
               c->n_rot, c->d_head, c->family->model_type);
    return ZP_OK;
}

/* qwen2 always has biases of q, k and v and none of the output; the others all four or none. */
static zp_status put_bias(struct writing *w, zp_err *err)
{
    bool qkv = gguf_edit_find_tensor(w->e, "blk.0.attn_q.bias") != NULL;
    bool output = gguf_edit_find_tensor(w->e, "blk.0.attn_output.bias") != NULL;
    bool qwen2 = strcmp(w->c->family->model_type, "qwen2") == 0;
    ZP_FAIL_IF(qwen2 ? !qkv || output : qkv != output, err, ZP_UNSUPPORTED,
               "attention biases of q (%s) and of the output (%s) do not fit %s in transformers",
               qkv ? "present" : "absent", output ? "present" : "absent", w->c->family->model_type);
    return qwen2 ? ZP_OK : put(w->root, "attention_bias", json_boolean(qkv), err);
}

static zp_status put_shape(struct writing *w, const char *dtype, zp_err *err)
{
    const struct hf_config *c = w->c;
    json_t *root = w->root;
    float eps;
    ZP_TRY(gguf_get_f32(&w->g, "%.attention.layer_norm_rms_epsilon", &eps, err));
    ZP_TRY(put(root, "architectures", json_pack("[s]", c->family->class_name), err));
    ZP_TRY(put(root, "model_type", json_string(c->family->model_type), err));
    ZP_TRY(put_int(root, "vocab_size", c->n_vocab, err));
    ZP_TRY(put_int(root, "hidden_size", c->d_model, err));
    ZP_TRY(put_int(root, "intermediate_size", c->d_ff, err));
    ZP_TRY(put_int(root, "num_hidden_layers", c->n_layer, err));
    ZP_TRY(put_int(root, "num_attention_heads", c->n_head, err));
    ZP_TRY(put_int(root, "num_key_value_heads", c->n_kv, err));
    ZP_TRY(put_int(root, "head_dim", c->d_head, err));
    ZP_TRY(put(root, c->family->gemma ? "hidden_activation" : "hidden_act",
               json_string(c->family->act), err));
    ZP_TRY(put_int(root, "max_position_embeddings", c->n_ctx, err));
    ZP_TRY(put_real(root, "rms_norm_eps", eps, err));
    ZP_TRY(put(root, "tie_word_embeddings", json_boolean(c->tied), err));
    ZP_TRY(put_bias(w, err));
    return put(root, "torch_dtype", json_string(dtype), err);
}

/* ---- layers */

static zp_status read_rope_layers(struct writing *w, bool *rope, zp_err *err)
{
    uint32_t pattern[HF_MAX_LAYERS];
    bool found, smollm3 = w->c->family->windows == HF_WINDOW_NOPE, finetuned;
    uint32_t n = w->c->n_layer, n_rope = 0;
    for (uint32_t i = 0; i < n; i++) rope[i] = !smollm3 || (i + 1) % 4 != 0;
    ZP_TRY(gguf_get_u32_layers(&w->g, "%.attention.rope_pattern", n, pattern, &found, err));
    for (uint32_t i = 0; found && i < n; i++) rope[i] = pattern[i] != 0;
    for (uint32_t i = 0; i < n; i++) n_rope += rope[i];
    ZP_FAIL_IF(!smollm3 && n_rope != n, err, ZP_UNSUPPORTED,
               "%u of %u layers have no RoPE, which in a Hugging Face folder only smollm3 can say",
               n - n_rope, n);
    ZP_TRY(gguf_get_bool_or(&w->g, "%.rope.scaling.finetuned", true, &finetuned, err));
    ZP_FAIL_IF(!finetuned && strcmp(w->c->family->arch, "granite") == 0, err, ZP_UNSUPPORTED,
               "granite without RoPE cannot be said in a Hugging Face folder");
    return ZP_OK;
}

static zp_status put_rope_layers(struct writing *w, const bool *rope, zp_err *err)
{
    if (w->c->family->windows != HF_WINDOW_NOPE) return ZP_OK;
    json_t *list = json_array();
    for (uint32_t i = 0; i < w->c->n_layer; i++)
        list = json_tree_add(list, json_integer(rope[i])); /* 1 = HAS RoPE */
    return put(w->root, "no_rope_layers", list, err);
}

/* windowed[i]: by mask, period, or the family's own rule. */
static zp_status read_windows(struct writing *w, uint32_t *window, bool *windowed, zp_err *err)
{
    uint32_t mask[HF_MAX_LAYERS], n = w->c->n_layer, period;
    bool found;
    const struct gguf_kv *kv = gguf_find_key(&w->g, "%.attention.sliding_window_pattern");
    ZP_TRY(gguf_get_u32_or(&w->g, "%.attention.sliding_window", 0, window, err));
    period = w->c->family->windows == HF_WINDOW_PERIOD ? 6 : 0;
    if (kv != NULL && kv->is_array) {
        ZP_TRY(
            gguf_get_u32_layers(&w->g, "%.attention.sliding_window_pattern", n, mask, &found, err));
        for (uint32_t i = 0; i < n; i++) windowed[i] = *window != 0 && mask[i] != 0;
        return ZP_OK;
    }
    if (kv != NULL) ZP_TRY(gguf_get_u32(&w->g, "%.attention.sliding_window_pattern", &period, err));
    for (uint32_t i = 0; i < n; i++)
        windowed[i] = *window != 0 && (period == 0 || (i + 1) % period != 0);
    return ZP_OK;
}

static zp_status put_windows(struct writing *w, const bool *rope, zp_err *err)
{
    bool windowed[HF_MAX_LAYERS];
    uint32_t window, n = 0, misfit = 0;
    enum hf_windows kind = w->c->family->windows;
    ZP_TRY(read_windows(w, &window, windowed, err));
    for (uint32_t i = 0; i < w->c->n_layer; i++) {
        n += windowed[i];
        misfit += kind == HF_WINDOW_NOPE  ? windowed[i] == rope[i]
                  : kind == HF_WINDOW_ALL ? !windowed[i]
                                          : 0;
    }
    bool use = n > 0;
    if (kind == HF_WINDOW_UPPER || kind == HF_WINDOW_NOPE)
        ZP_TRY(put(w->root, "use_sliding_window", json_boolean(use), err));
    ZP_FAIL_IF(use && (misfit > 0 || kind == HF_WINDOW_NONE), err, ZP_UNSUPPORTED,
               "%u of %u layers have a sliding window, which %s in transformers cannot say", n,
               w->c->n_layer, w->c->family->model_type);
    if (kind == HF_WINDOW_NONE) return ZP_OK;
    ZP_TRY(put(w->root, "sliding_window", use ? json_integer(window) : json_null(), err));
    if (kind == HF_WINDOW_ALL) return ZP_OK;
    json_t *types = json_array();
    for (uint32_t i = 0; i < w->c->n_layer; i++)
        types = json_tree_add(
            types, json_string(windowed[i] ? "sliding_attention" : "full_attention"));
    return put(w->root, "layer_types", types, err);
}

/* ---- scales */

static zp_status put_granite(struct writing *w, zp_err *err)
{
    static const struct {
        const char *key, *member;
    } rows[] = {
        {"%.embedding_scale", "embedding_multiplier"},
        {"%.residual_scale", "residual_multiplier"},
        {"%.logit_scale", "logits_scaling"},
    };
    float value;
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        ZP_TRY(gguf_get_f32_or(&w->g, rows[i].key, 0.0f, &value, err));
        ZP_TRY(put_real(w->root, rows[i].member, value == 0.0f ? 1.0f : value, err));
    }
    ZP_TRY(gguf_get_f32_or(&w->g, "%.attention.scale", 0.0f, &value, err));
    if (value == 0.0f) value = 1.0f / sqrtf((float)w->c->d_head);
    return put_real(w->root, "attention_multiplier", value, err);
}

static zp_status put_scales(struct writing *w, zp_err *err)
{
    float scale;
    if (strcmp(w->c->family->arch, "granite") == 0) return put_granite(w, err);
    ZP_TRY(gguf_get_f32_or(&w->g, "%.attention.scale", 0.0f, &scale, err));
    double plain = 1.0 / sqrt((double)w->c->d_head);
    if (scale == 0.0f) scale = (float)plain;
    if (!w->c->family->gemma) {
        ZP_FAIL_IF(fabs((double)scale - plain) > 1e-6 * plain, err, ZP_UNSUPPORTED,
                   "attention.scale %g differs from 1/sqrt(head size), which %s in transformers "
                   "cannot say",
                   (double)scale, w->c->family->model_type);
        return ZP_OK;
    }
    double scalar = 1.0 / ((double)scale * (double)scale), whole = round(scalar);
    ZP_FAIL_IF(fabs(scalar - whole) > 1e-5 * scalar || whole < 1, err, ZP_UNSUPPORTED,
               "attention.scale %g is not 1/sqrt of a whole number, which gemma3 needs",
               (double)scale);
    return put_int(w->root, "query_pre_attn_scalar", (uint64_t)whole, err);
}

/* ---- rotation */

static zp_status put_llama3(struct writing *w, float factor, float low, float high,
                            uint64_t original, zp_err *err)
{
    json_t *scaling = json_pack("{s:s}", "rope_type", "llama3");
    ZP_TRY(put(w->root, "rope_scaling", scaling, err));
    ZP_TRY(put_real(scaling, "factor", factor, err));
    ZP_TRY(put_real(scaling, "low_freq_factor", low, err));
    ZP_TRY(put_real(scaling, "high_freq_factor", high, err));
    return put_int(scaling, "original_max_position_embeddings", original, err);
}

static bool is_llama3(const float *divisor, uint32_t n_rot, double theta, double factor,
                      double original)
{
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double wave = 2.0 * PI * pow(theta, 2.0 * i / n_rot);
        double smooth = (original / wave - 1.0) / 3.0;
        if (wave > original) smooth = 0.0;
        if (wave < original / 4.0) smooth = 1.0;
        double expected = 1.0 / ((1.0 - smooth) / factor + smooth);
        if (fabs((double)divisor[i] - expected) > 1e-5 * expected) return false;
    }
    return true;
}

/* The n_open fastest pairs as they are, the others closed: both bounds of Llama 3's rule lie
 * between the wave lengths of the two neighbours. */
static zp_status put_slowest_closed(struct writing *w, uint32_t n_open, double theta,
                                    uint64_t original, zp_err *err)
{
    double n_rot = w->c->n_rot, wave = 2.0 * PI * pow(theta, 2.0 * (n_open - 1) / n_rot);
    double step = pow(theta, 2.0 / n_rot);
    double high = (double)original / (wave * pow(step, 1.0 / 3.0));
    double low = (double)original / (wave * pow(step, 2.0 / 3.0));
    ZP_FAIL_IF(!((float)high > (float)low), err, ZP_UNSUPPORTED,
               "rope.freq_base %g leaves no room between two pairs", theta);
    return put_llama3(w, 1e30f, (float)low, (float)high, original, err);
}

/* rope_freqs.weight: all closed, the slowest closed, or Llama 3's rule with its low and high of 1
 * and 4. */
static zp_status put_divisors(struct writing *w, const struct gguf_edit_tensor *t, float theta,
                              zp_err *err)
{
    float divisor[512];
    uint32_t n_pair = w->c->n_rot / 2, n_closed = 0, n_one = 0, n_open = 0;
    float largest = 1.0f;
    ZP_FAIL_IF(t->type != 0 || t->data == NULL || t->n_dims != 1 || t->ne[0] != n_pair, err,
               ZP_BAD_INPUT, "tensor rope_freqs.weight is not %u numbers of type F32", n_pair);
    memcpy(divisor, t->data, n_pair * sizeof *divisor);
    for (uint32_t i = 0; i < n_pair; i++) {
        n_closed += divisor[i] >= CLOSED_DIVISOR;
        n_one += divisor[i] == 1.0f;
        n_open += n_open == i && divisor[i] == 1.0f; /* 1s before anything else */
        if (divisor[i] > largest) largest = divisor[i];
    }
    if (n_one == n_pair) return ZP_OK;
    /* Below max_position_embeddings, or transformers warns at each load. */
    uint64_t original = w->c->n_ctx > 1 ? w->c->n_ctx / 2 : 1;
    if (n_closed == n_pair) return put_llama3(w, 1e30f, 1e8f, 2e8f, original, err);
    if (n_open > 0 && n_open + n_closed == n_pair)
        return put_slowest_closed(w, n_open, (double)theta, original, err);
    static const uint32_t lengths[] = {8192, 4096, 2048, 16384, 32768};
    for (size_t i = 0; i < ZP_COUNT(lengths); i++)
        if (is_llama3(divisor, w->c->n_rot, (double)theta, (double)largest, lengths[i]))
            return put_llama3(w, largest, 1.0f, 4.0f, lengths[i], err);
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "%u of %u pairs are closed by rope_freqs.weight: a Hugging Face folder can close all "
            "pairs, the slowest ones, or none",
            n_closed, n_pair);
}

static zp_status put_yarn(struct writing *w, json_t *scaling, float factor, zp_err *err)
{
    static const struct {
        const char *key, *member;
        float fallback;
    } betas[] = {
        {"%.rope.scaling.yarn_beta_fast", "beta_fast", 32.0f},
        {"%.rope.scaling.yarn_beta_slow", "beta_slow", 1.0f},
    };
    uint32_t original;
    float magnitude, value, extrapolation;
    ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.scaling.yarn_ext_factor", 1.0f, &extrapolation, err));
    ZP_FAIL_IF(extrapolation != 1.0f, err, ZP_UNSUPPORTED,
               "rope.scaling.yarn_ext_factor %g cannot be said in config.json",
               (double)extrapolation);
    ZP_TRY(gguf_get_u32_or(&w->g, "%.rope.scaling.original_context_length", w->c->n_ctx, &original,
                           err));
    ZP_TRY(put_int(scaling, "original_max_position_embeddings", original, err));
    for (size_t i = 0; i < ZP_COUNT(betas); i++) {
        ZP_TRY(gguf_get_f32_or(&w->g, betas[i].key, betas[i].fallback, &value, err));
        ZP_TRY(put_real(scaling, betas[i].member, value, err));
    }
    ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.scaling.attn_factor", 1.0f, &magnitude, err));
    if (magnitude == 1.0f) return ZP_OK;
    magnitude *= 1.0f + 0.1f * logf(factor);
    return put_real(scaling, "attention_factor", magnitude, err);
}

static zp_status put_scaling(struct writing *w, zp_err *err)
{
    struct gguf_str type;
    float factor, old;
    ZP_TRY(gguf_get_str_or_null(&w->g, "%.rope.scaling.type", &type, err));
    ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.scale_linear", 0.0f, &old, err));
    ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.scaling.factor", old, &factor, err));
    bool none = gguf_str_is(type, "none"), yarn = gguf_str_is(type, "yarn");
    bool dynamic = gguf_str_is(type, "dynamic");
    ZP_FAIL_IF(type.data != NULL && !none && !yarn && !dynamic && !gguf_str_is(type, "linear"), err,
               ZP_UNSUPPORTED, "rope.scaling.type %.*s cannot be written",
               (int)(type.size < 40 ? type.size : 40), type.data);
    if (none || ((factor == 0.0f || factor == 1.0f) && !yarn)) return ZP_OK;
    ZP_FAIL_IF(!(factor > 0.0f && factor <= 1e38f), err, ZP_UNSUPPORTED,
               "rope.scaling.factor %g cannot be written", (double)factor);
    json_t *scaling = json_object();
    ZP_TRY(put(w->root, "rope_scaling", scaling, err));
    const char *name = yarn ? "yarn" : dynamic ? "dynamic" : "linear";
    ZP_TRY(put(scaling, "rope_type", json_string(name), err));
    ZP_TRY(put_real(scaling, "factor", factor, err));
    return yarn ? put_yarn(w, scaling, factor, err) : ZP_OK;
}

static zp_status put_rope(struct writing *w, zp_err *err)
{
    const struct hf_family *f = w->c->family;
    float theta, local;
    if (f->theta == 0)
        ZP_TRY(gguf_get_f32(&w->g, "%.rope.freq_base", &theta, err));
    else /* absent: the GGUF default of the architecture, which for llama and granite is 10,000 */
        ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.freq_base", (float)f->theta, &theta, err));
    ZP_TRY(put_real(w->root, "rope_theta", theta, err));
    if (f->theta_local != 0) {
        ZP_TRY(gguf_get_f32_or(&w->g, "%.rope.freq_base_swa", (float)f->theta_local, &local, err));
        ZP_TRY(put_real(w->root, "rope_local_base_freq", local, err));
    }
    ZP_TRY(put_scaling(w, err));
    const struct gguf_edit_tensor *freqs = gguf_edit_find_tensor(w->e, "rope_freqs.weight");
    if (freqs == NULL) return ZP_OK;
    ZP_FAIL_IF(json_object_get(w->root, "rope_scaling") != NULL, err, ZP_UNSUPPORTED,
               "rope_freqs.weight and rope.scaling together cannot be said in config.json");
    ZP_FAIL_IF(f->theta_local != 0, err, ZP_UNSUPPORTED,
               "rope_freqs.weight acts on all layers, which gemma3 in transformers cannot say");
    return put_divisors(w, freqs, theta, err);
}

/* ---- ids */

static zp_status put_token(struct writing *w, const char *key, const char *member, zp_err *err)
{
    uint32_t id;
    if (gguf_find_key(&w->g, key) == NULL) return put(w->root, member, json_null(), err);
    ZP_TRY(gguf_get_u32(&w->g, key, &id, err));
    return put_int(w->root, member, id, err);
}

static zp_status put_eos(struct writing *w, zp_err *err)
{
    const struct gguf_kv *ids;
    ZP_TRY(gguf_find_array(&w->g, HF_EOS_KEY, GGUF_ANY_INT, &ids, err));
    if (ids == NULL) return put_token(w, "tokenizer.ggml.eos_token_id", "eos_token_id", err);
    ZP_FAIL_IF(ids->count > HF_MAX_EOS, err, ZP_BAD_INPUT, "key %s has more than %d tokens",
               HF_EOS_KEY, HF_MAX_EOS);
    json_t *list = json_array();
    for (uint64_t i = 0; i < ids->count; i++)
        list = json_tree_add(list, json_integer(gguf_item_int(ids, i)));
    return put(w->root, "eos_token_id", list, err);
}

static zp_status write_all(struct writing *w, const char *dtype, zp_err *err)
{
    bool rope[HF_MAX_LAYERS];
    ZP_TRY(refuse_own_keys(w->e, err));
    ZP_TRY(read_family(w, err));
    ZP_TRY(read_shape(w, err));
    ZP_TRY(put_shape(w, dtype, err));
    ZP_TRY(read_rope_layers(w, rope, err));
    ZP_TRY(put_rope_layers(w, rope, err));
    ZP_TRY(put_windows(w, rope, err));
    ZP_TRY(put_scales(w, err));
    ZP_TRY(put_rope(w, err));
    ZP_TRY(put_token(w, "tokenizer.ggml.bos_token_id", "bos_token_id", err));
    ZP_TRY(put_eos(w, err));
    return put_token(w, "tokenizer.ggml.padding_token_id", "pad_token_id", err);
}

zp_status hfconfig_write(struct gguf_edit *e, const char *dtype, json_t **out, struct hf_config *c,
                         zp_err *err)
{
    struct writing w = {.e = e, .c = c};
    *out = NULL;
    *c = (struct hf_config){0};
    ZP_TRY(gguf_edit_view(e, &w.g, err));
    w.root = json_object();
    zp_status status = write_all(&w, dtype, err);
    gguf_edit_view_free(&w.g);
    if (status == ZP_OK)
        *out = w.root;
    else
        json_decref(w.root);
    return status;
}
