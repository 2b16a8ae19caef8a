/* hfkeys.c: config.json -> GGUF keys, family by family, as transformers 4 and 5 read it.
 * Owns: the family table and what absent members mean. Does not know: tensors, files.
 * A member that would change the mathematics and is not understood is an error, never ignored. */
#include "model/hfkeys.h"

#include <math.h>
#include <string.h>
#include "model/hfrope.h"

static const struct hf_family families[] = {
    {.model_type = "llama",
     .arch = "llama",
     .class_name = "LlamaForCausalLM",
     .act = "silu",
     .permuted = true,
     .kv_is_heads = true,
     .theta = 10000.0},
    {.model_type = "mistral",
     .arch = "llama",
     .class_name = "MistralForCausalLM",
     .act = "silu",
     .permuted = true,
     .theta = 10000.0,
     .windows = HF_WINDOW_ALL},
    {.model_type = "qwen2",
     .arch = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .act = "silu",
     .windows = HF_WINDOW_UPPER},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .act = "silu",
     .qk_norm = true,
     .d_head = 128,
     .windows = HF_WINDOW_UPPER},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .class_name = "Gemma3ForCausalLM",
     .act = "gelu_pytorch_tanh",
     .gemma = true,
     .qk_norm = true,
     .tied = true,
     .d_head = 256,
     .theta = 1000000.0,
     .theta_local = 10000.0,
     .windows = HF_WINDOW_PERIOD},
    {.model_type = "smollm3",
     .arch = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .act = "silu",
     .permuted = true,
     .tied = true,
     .theta = 2000000.0,
     .windows = HF_WINDOW_NOPE},
    {.model_type = "granite",
     .arch = "granite",
     .class_name = "GraniteForCausalLM",
     .act = "silu",
     .permuted = true,
     .kv_is_heads = true,
     .theta = 10000.0},
};

const struct hf_family *hf_family_at(size_t i)
{
    return i < ZP_COUNT(families) ? &families[i] : NULL;
}

const struct hf_family *hf_family_by_type(const char *model_type)
{
    for (size_t i = 0; i < ZP_COUNT(families); i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

/* ---- shape */

static zp_status need_u32(const json_t *root, const char *key, const char *where, uint32_t max,
                          uint32_t *out, zp_err *err)
{
    bool found;
    ZP_TRY(json_read_u32(root, key, where, out, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "%s: %s is missing", where, key);
    ZP_FAIL_IF(*out < 1 || *out > max, err, ZP_BAD_FILE, "%s: %s is %u, expected 1 to %u", where,
               key, *out, max);
    return ZP_OK;
}

static zp_status read_family(const json_t *root, const char *where, struct hf_config *c,
                             zp_err *err)
{
    const char *type = NULL;
    bool found;
    ZP_FAIL_IF(!json_is_object(root), err, ZP_BAD_FILE, "%s: not a JSON object", where);
    ZP_TRY(json_read_string(root, "model_type", where, &type, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "%s: model_type is missing", where);
    c->family = hf_family_by_type(type);
    ZP_FAIL_IF(c->family == NULL, err, ZP_UNSUPPORTED,
               "%s: model_type %.60s is unknown; known: llama, mistral, qwen2, qwen3, gemma3_text, "
               "smollm3, granite",
               where, type);
    return ZP_OK;
}

static zp_status read_heads(const json_t *root, const char *where, struct hf_config *c, zp_err *err)
{
    bool found;
    ZP_TRY(need_u32(root, "num_attention_heads", where, 1024, &c->n_head, err));
    ZP_TRY(json_read_u32(root, "num_key_value_heads", where, &c->n_kv, &found, err));
    /* null means "as many as heads" everywhere, absence only where the family says so. */
    bool null = json_is_null(json_object_get(root, "num_key_value_heads"));
    ZP_FAIL_IF(!found && !null && !c->family->kv_is_heads, err, ZP_BAD_FILE,
               "%s: num_key_value_heads is missing", where);
    if (!found) c->n_kv = c->n_head;
    ZP_FAIL_IF(c->n_kv < 1 || c->n_head % c->n_kv != 0, err, ZP_BAD_FILE,
               "%s: num_key_value_heads is %u, expected a divisor of num_attention_heads, %u",
               where, c->n_kv, c->n_head);
    ZP_TRY(json_read_u32(root, "head_dim", where, &c->d_head, &found, err));
    if (!found) {
        ZP_FAIL_IF(c->family->d_head == 0 && c->d_model % c->n_head != 0, err, ZP_BAD_FILE,
                   "%s: hidden_size %u is not a multiple of num_attention_heads %u, and head_dim "
                   "is missing",
                   where, c->d_model, c->n_head);
        c->d_head = c->family->d_head != 0 ? c->family->d_head : c->d_model / c->n_head;
    }
    ZP_FAIL_IF(c->d_head < 2 || c->d_head > 1024 || c->d_head % 2 != 0, err, ZP_BAD_FILE,
               "%s: head_dim is %u, expected an even number from 2 to 1024", where, c->d_head);
    return ZP_OK;
}

static zp_status read_shape(const json_t *root, const char *where, struct hf_config *c, zp_err *err)
{
    bool found;
    ZP_TRY(need_u32(root, "num_hidden_layers", where, HF_MAX_LAYERS, &c->n_layer, err));
    ZP_TRY(need_u32(root, "hidden_size", where, 1u << 20, &c->d_model, err));
    ZP_TRY(need_u32(root, "intermediate_size", where, 1u << 24, &c->d_ff, err));
    ZP_TRY(need_u32(root, "vocab_size", where, 1u << 24, &c->n_vocab, err));
    ZP_TRY(need_u32(root, "max_position_embeddings", where, 1u << 30, &c->n_ctx, err));
    ZP_TRY(read_heads(root, where, c, err));
    c->tied = c->family->tied;
    return json_read_bool(root, "tie_word_embeddings", where, &c->tied, &found, err);
}

/* Members that other models use to change the mathematics. */
static zp_status refuse_unknown(const json_t *root, const char *where, const struct hf_family *f,
                                zp_err *err)
{
    static const char *const refused[] = {
        "quantization_config",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "attention_type",
        "attn_temperature_tuning",
        "attention_chunk_size",
        "softmax_scale",
        "qk_rope_head_dim",
        "num_local_experts",
        "num_experts",
        "alibi",
    };
    const char *text = NULL;
    bool found, flag = false;
    for (size_t i = 0; i < ZP_COUNT(refused); i++) {
        const json_t *value = json_object_get(root, refused[i]);
        bool off = value == NULL || json_is_null(value) || json_is_false(value);
        ZP_FAIL_IF(!off, err, ZP_UNSUPPORTED,
                   "%s: %s is set, which model_type %s has no use for here", where, refused[i],
                   f->model_type);
    }
    ZP_TRY(json_read_bool(root, "use_bidirectional_attention", where, &flag, &found, err));
    ZP_FAIL_IF(flag, err, ZP_UNSUPPORTED,
               "%s: use_bidirectional_attention: only causal attention "
               "is supported",
               where);
    ZP_TRY(json_read_string(root, "position_embedding_type", where, &text, &found, err));
    ZP_FAIL_IF(found && strcmp(text, "rope") != 0, err, ZP_UNSUPPORTED,
               "%s: position_embedding_type is %.40s, expected rope", where, text);
    const char *key = f->gemma ? "hidden_activation" : "hidden_act";
    ZP_TRY(json_read_string(root, key, where, &text, &found, err));
    ZP_FAIL_IF(found && strcmp(text, f->act) != 0, err, ZP_UNSUPPORTED,
               "%s: %s is %.40s, expected %s", where, key, text, f->act);
    return ZP_OK;
}

static zp_status put_shape(const json_t *root, const char *where, struct gguf_edit *e,
                           const struct hf_config *c, zp_err *err)
{
    double eps = 1e-6; /* the default of every family here */
    bool found;
    ZP_TRY(json_read_number(root, "rms_norm_eps", where, &eps, &found, err));
    ZP_FAIL_IF(!((float)eps > 0 && (float)eps < 1), err, ZP_BAD_FILE,
               "%s: rms_norm_eps is %g, expected a small number above 0", where, eps);
    ZP_TRY(gguf_edit_set_u32(e, "%.block_count", c->n_layer, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.context_length", c->n_ctx, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.embedding_length", c->d_model, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.feed_forward_length", c->d_ff, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.head_count", c->n_head, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.head_count_kv", c->n_kv, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.key_length", c->d_head, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.value_length", c->d_head, err));
    ZP_TRY(gguf_edit_set_f32(e, "%.attention.layer_norm_rms_epsilon", (float)eps, err));
    return gguf_edit_set_u32(e, "%.vocab_size", c->n_vocab, err);
}

/* ---- which layers have RoPE, which a window */

/* smollm3: no_rope_layers[i] = 1 means the layer HAS RoPE. */
static zp_status rope_from_list(const json_t *list, const char *where, const struct hf_config *c,
                                uint8_t *rope, zp_err *err)
{
    ZP_FAIL_IF(json_array_size(list) < c->n_layer, err, ZP_BAD_FILE,
               "%s: no_rope_layers has %zu items, expected one for each of %u layers", where,
               json_array_size(list), c->n_layer);
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t value = json_is_true(item) ? 1 : json_integer_value(item);
        ZP_FAIL_IF(!(json_is_boolean(item) || json_is_integer(item)) || value < 0 || value > 1, err,
                   ZP_BAD_FILE, "%s: no_rope_layers[%u] is not 0 or 1", where, i);
        rope[i] = (uint8_t)value;
    }
    return ZP_OK;
}

static zp_status rope_from_interval(const json_t *root, const char *where,
                                    const struct hf_config *c, uint8_t *rope, zp_err *err)
{
    /* The first name is transformers'; the others were met in files of other tools. */
    static const char *const names[] = {"no_rope_layer_interval", "no_rope_layer",
                                        "nope_layer_interval"};
    uint32_t interval = 4, value = 0;
    bool found, any = false;
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        ZP_TRY(json_read_u32(root, names[i], where, &value, &found, err));
        ZP_FAIL_IF(found && any && value != interval, err, ZP_BAD_FILE,
                   "%s: %s is %u, but another spelling of it says %u", where, names[i], value,
                   interval);
        if (found) interval = value;
        any = any || found;
    }
    ZP_FAIL_IF(interval == 0, err, ZP_BAD_FILE, "%s: no_rope_layer_interval is 0", where);
    for (uint32_t i = 0; i < c->n_layer; i++) rope[i] = (i + 1) % interval != 0;
    return ZP_OK;
}

static zp_status read_rope_layers(const json_t *root, const char *where, const struct hf_config *c,
                                  struct gguf_edit *e, uint8_t *rope, zp_err *err)
{
    const json_t *list;
    memset(rope, 1, c->n_layer);
    if (c->family->windows != HF_WINDOW_NOPE) return ZP_OK;
    ZP_TRY(json_read_array(root, "no_rope_layers", where, &list, err));
    if (list != NULL)
        ZP_TRY(rope_from_list(list, where, c, rope, err));
    else
        ZP_TRY(rope_from_interval(root, where, c, rope, err));
    return gguf_edit_set_array(e, "%.attention.rope_pattern", GGUF_BOOL, rope, c->n_layer, err);
}

/* *window = 0: none. */
static zp_status read_window(const json_t *root, const char *where, const struct hf_config *c,
                             uint32_t *window, zp_err *err)
{
    enum hf_windows kind = c->family->windows;
    bool found, use = kind != HF_WINDOW_NONE;
    *window = 0;
    if (kind == HF_WINDOW_UPPER || kind == HF_WINDOW_NOPE) {
        use = false;
        ZP_TRY(json_read_bool(root, "use_sliding_window", where, &use, &found, err));
    }
    if (!use) return ZP_OK;
    ZP_TRY(json_read_u32(root, "sliding_window", where, window, &found, err));
    if (!found && json_object_get(root, "sliding_window") == NULL && kind != HF_WINDOW_NOPE)
        *window = 4096; /* the documented default; null means no window */
    ZP_FAIL_IF(found && *window == 0, err, ZP_BAD_FILE,
               "%s: sliding_window is 0, expected 1 or more", where);
    return ZP_OK;
}

static zp_status windows_from_types(const json_t *types, const char *where,
                                    const struct hf_config *c, uint8_t *windowed, zp_err *err)
{
    ZP_FAIL_IF(json_array_size(types) != c->n_layer, err, ZP_BAD_FILE,
               "%s: layer_types has %zu items, expected %u", where, json_array_size(types),
               c->n_layer);
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        windowed[i] = type != NULL && strcmp(type, "sliding_attention") == 0;
        ZP_FAIL_IF(!windowed[i] && (type == NULL || strcmp(type, "full_attention") != 0), err,
                   ZP_UNSUPPORTED,
                   "%s: layer_types[%u] is %.40s, known: full_attention, sliding_attention", where,
                   i, type == NULL ? "not a string" : type);
    }
    return ZP_OK;
}

static zp_status windows_by_rule(const json_t *root, const char *where, const struct hf_config *c,
                                 const uint8_t *rope, uint8_t *windowed, zp_err *err)
{
    uint32_t from = 28, period = 6;
    bool found;
    ZP_TRY(json_read_u32(root, "max_window_layers", where, &from, &found, err));
    ZP_TRY(json_read_u32(root, "sliding_window_pattern", where, &period, &found, err));
    ZP_FAIL_IF(period == 0, err, ZP_BAD_FILE, "%s: sliding_window_pattern is 0", where);
    for (uint32_t i = 0; i < c->n_layer; i++) switch (c->family->windows) {
        case HF_WINDOW_NONE:
            windowed[i] = 0;
            break;
        case HF_WINDOW_ALL:
            windowed[i] = 1;
            break;
        case HF_WINDOW_UPPER:
            windowed[i] = i >= from;
            break;
        case HF_WINDOW_NOPE:
            windowed[i] = !rope[i];
            break;
        case HF_WINDOW_PERIOD:
            windowed[i] = (i + 1) % period != 0;
            break;
        }
    return ZP_OK;
}

static zp_status read_windows(const json_t *root, const char *where, const struct hf_config *c,
                              struct gguf_edit *e, const uint8_t *rope, zp_err *err)
{
    uint8_t windowed[HF_MAX_LAYERS];
    uint32_t window, n = 0;
    const json_t *types = NULL;
    ZP_TRY(read_window(root, where, c, &window, err));
    if (c->family->windows != HF_WINDOW_NONE && c->family->windows != HF_WINDOW_ALL)
        ZP_TRY(json_read_array(root, "layer_types", where, &types, err));
    if (types != NULL)
        ZP_TRY(windows_from_types(types, where, c, windowed, err));
    else if (window != 0)
        ZP_TRY(windows_by_rule(root, where, c, rope, windowed, err));
    else
        return ZP_OK;
    for (uint32_t i = 0; i < c->n_layer; i++) n += windowed[i];
    ZP_FAIL_IF(n > 0 && window == 0, err, ZP_BAD_FILE,
               "%s: layer_types has sliding_attention, but sliding_window is not set or not used",
               where);
    if (n == 0) return ZP_OK;
    ZP_TRY(gguf_edit_set_u32(e, "%.attention.sliding_window", window, err));
    return gguf_edit_set_array(e, "%.attention.sliding_window_pattern", GGUF_BOOL, windowed,
                               c->n_layer, err);
}

/* ---- scales */

static zp_status put_number(const json_t *root, const char *where, const char *member,
                            struct gguf_edit *e, const char *key, zp_err *err)
{
    double value = 1.0; /* granite's default for each */
    bool found;
    ZP_TRY(json_read_number(root, member, where, &value, &found, err));
    ZP_FAIL_IF((float)value == 0.0f || !isfinite((float)value), err, ZP_BAD_FILE,
               "%s: %s is %g, expected neither 0 nor beyond f32", where, member, value);
    return gguf_edit_set_f32(e, key, (float)value, err);
}

static zp_status read_scales(const json_t *root, const char *where, const struct hf_config *c,
                             struct gguf_edit *e, zp_err *err)
{
    if (strcmp(c->family->arch, "granite") == 0) {
        ZP_TRY(put_number(root, where, "attention_multiplier", e, "%.attention.scale", err));
        ZP_TRY(put_number(root, where, "embedding_multiplier", e, "%.embedding_scale", err));
        ZP_TRY(put_number(root, where, "residual_multiplier", e, "%.residual_scale", err));
        return put_number(root, where, "logits_scaling", e, "%.logit_scale", err);
    }
    if (!c->family->gemma) return ZP_OK;
    double scalar = 256.0; /* gemma3's default */
    bool found;
    ZP_TRY(json_read_number(root, "query_pre_attn_scalar", where, &scalar, &found, err));
    ZP_FAIL_IF(!(scalar >= 1 && scalar <= 1e9), err, ZP_BAD_FILE,
               "%s: query_pre_attn_scalar is %g, expected 1 or more", where, scalar);
    if (scalar == (double)c->d_head) return ZP_OK;
    return gguf_edit_set_f32(e, "%.attention.scale", (float)(1.0 / sqrt(scalar)), err);
}

/* ---- ids */

/* One token id; null, absent and -1 say "none". */
static zp_status put_token(const json_t *root, const char *where, const char *member,
                           struct gguf_edit *e, const char *key, zp_err *err)
{
    const json_t *value = json_object_get(root, member);
    if (value == NULL || json_is_null(value)) return ZP_OK;
    json_int_t id = json_integer_value(value);
    ZP_FAIL_IF(!json_is_integer(value) || id < -1 || id > INT32_MAX, err, ZP_BAD_FILE,
               "%s: %s is not a token number", where, member);
    return id < 0 ? ZP_OK : gguf_edit_set_u32(e, key, (uint32_t)id, err);
}

zp_status hfkeys_read_eos(const json_t *root, const char *where, struct gguf_edit *e, zp_err *err)
{
    int32_t ids[HF_MAX_EOS];
    const json_t *list = json_object_get(root, "eos_token_id");
    if (!json_is_array(list)) {
        if (json_is_integer(list)) gguf_edit_remove_key(e, HF_EOS_KEY);
        return put_token(root, where, "eos_token_id", e, "tokenizer.ggml.eos_token_id", err);
    }
    size_t n = json_array_size(list);
    ZP_FAIL_IF(n > HF_MAX_EOS, err, ZP_BAD_FILE, "%s: eos_token_id lists %zu tokens, at most %d",
               where, n, HF_MAX_EOS);
    for (size_t i = 0; i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        ZP_FAIL_IF(!json_is_integer(json_array_get(list, i)) || id < 0 || id > INT32_MAX, err,
                   ZP_BAD_FILE, "%s: eos_token_id[%zu] is not a token number", where, i);
        ids[i] = (int32_t)id;
    }
    if (n == 0) return ZP_OK;
    ZP_TRY(gguf_edit_set_u32(e, "tokenizer.ggml.eos_token_id", (uint32_t)ids[0], err));
    return gguf_edit_set_array(e, HF_EOS_KEY, GGUF_I32, ids, n, err);
}

zp_status hfkeys_read(const json_t *root, const char *where, struct gguf_edit *e,
                      struct hf_config *c, zp_err *err)
{
    uint8_t rope[HF_MAX_LAYERS];
    *c = (struct hf_config){0};
    ZP_TRY(read_family(root, where, c, err));
    ZP_TRY(gguf_edit_set_str(e, "general.architecture", c->family->arch, err));
    ZP_TRY(read_shape(root, where, c, err));
    ZP_TRY(refuse_unknown(root, where, c->family, err));
    ZP_TRY(put_shape(root, where, e, c, err));
    ZP_TRY(read_rope_layers(root, where, c, e, rope, err));
    ZP_TRY(read_windows(root, where, c, e, rope, err));
    ZP_TRY(read_scales(root, where, c, e, err));
    ZP_TRY(hfrope_read(root, where, e, c, err));
    ZP_TRY(put_token(root, where, "bos_token_id", e, "tokenizer.ggml.bos_token_id", err));
    ZP_TRY(hfkeys_read_eos(root, where, e, err));
    return put_token(root, where, "pad_token_id", e, "tokenizer.ggml.padding_token_id", err);
}
