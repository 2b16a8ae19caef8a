/* test_hfconfig.c: Hugging Face folders as GGUF keys: spellings, polarity, row order,
 * contradictions. Weights: the small random models of tests/data/arch. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/num.h"
#include "hf_folders.h"
#include "model/hfconfig.h"
#include "model/hftensors.h"
#include "model/safetensors_write.h"

/* ---- keys from a configuration alone */

static struct gguf keys;
static struct gguf_edit edit;
static struct hf_config shape;

static zp_status read_config(const char *text, zp_err *err)
{
    json_t *root;
    ok(json_read_text(text, strlen(text), "config.json", &root, err), err);
    ok(gguf_edit_init(&edit, NULL, err), err);
    zp_status status = hfkeys_read(root, "config.json", &edit, &shape, err);
    json_decref(root);
    if (status != ZP_OK) gguf_edit_free(&edit);
    return status;
}

static void open_config(const char *text)
{
    zp_err err = {0};
    ok(read_config(text, &err), &err);
    ok(gguf_edit_view(&edit, &keys, &err), &err);
}

static void close_config(void)
{
    gguf_edit_view_free(&keys);
    gguf_edit_free(&edit);
}

static void assert_refused(const char *text, const char *part)
{
    zp_err err = {0};
    assert_int_not_equal(read_config(text, &err), ZP_OK);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
}

static float f32_of(const char *key)
{
    float value = NAN;
    zp_err err = {0};
    ok(gguf_get_f32(&keys, key, &value, &err), &err);
    return value;
}

static uint32_t u32_of(const char *key)
{
    uint32_t value = 0;
    zp_err err = {0};
    ok(gguf_get_u32(&keys, key, &value, &err), &err);
    return value;
}

/* "1101" for a bool array, "-" when the key is absent. */
static const char *mask_of(const char *key)
{
    static char text[64];
    const struct gguf_kv *kv = gguf_find_key(&keys, key);
    if (kv == NULL) return "-";
    for (uint64_t i = 0; i < kv->count; i++) text[i] = (char)('0' + gguf_item_int(kv, i));
    text[kv->count] = 0;
    return text;
}

#define SIZES                                                                                      \
    "\"vocab_size\":8,\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":4,"          \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"max_position_embeddings\":64"
#define CONFIG(type, rest) "{\"model_type\":\"" type "\"," SIZES rest "}"

static void test_defaults_are_those_of_the_family(void **state)
{
    (void)state;
    open_config(CONFIG("llama", ""));
    assert_string_equal(keys.arch, "llama");
    assert_true(f32_of("%.rope.freq_base") == 10000.0f);
    assert_int_equal(u32_of("%.attention.key_length"), 4);
    assert_int_equal(u32_of("%.rope.dimension_count"), 4);
    assert_true(f32_of("%.attention.layer_norm_rms_epsilon") == 1e-6f);
    assert_false(shape.tied);
    assert_null(gguf_find_key(&keys, "%.rope.scaling.type"));
    close_config();
    open_config(CONFIG("gemma3_text", ""));
    assert_string_equal(keys.arch, "gemma3");
    assert_true(f32_of("%.rope.freq_base") == 1e6f);
    assert_true(f32_of("%.rope.freq_base_swa") == 1e4f);
    assert_int_equal(u32_of("%.attention.key_length"), 256);
    assert_true(shape.tied);
    close_config();
    open_config(CONFIG("qwen3", ",\"rope_theta\":5e5"));
    assert_int_equal(u32_of("%.attention.key_length"), 128);
    close_config();
    open_config(CONFIG("smollm3", ""));
    assert_true(f32_of("%.rope.freq_base") == 2e6f);
    close_config();
}

static void test_theta_is_found_at_the_root_and_nested(void **state)
{
    (void)state;
    static const char *const same[] = {
        ",\"rope_theta\":500000", ",\"rope_parameters\":{\"rope_theta\":500000.0}",
        ",\"rope_theta\":500000,\"rope_parameters\":{\"rope_theta\":500000.0}",
        ",\"rope_theta\":500000,\"rope_scaling\":null",
        (",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5e5},"
         "\"sliding_attention\":{\"rope_theta\":5e5}}")};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\":\"qwen2\"," SIZES "%s}", same[i]);
        open_config(text);
        assert_true(f32_of("%.rope.freq_base") == 500000.0f);
        close_config();
    }
    assert_refused(CONFIG("qwen2", ",\"rope_theta\":1e6,\"rope_parameters\":{\"rope_theta\":1e4}"),
                   "rope_theta is 10000 in rope_parameters but 1e+06 in the root");
    assert_refused(CONFIG("qwen2", ""), "rope_theta is missing, both at the root and in");
    assert_refused(CONFIG("qwen2", ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5e5},"
                                   "\"sliding_attention\":{\"rope_theta\":1e4}}"),
                   "differ between layer types");
    assert_refused(CONFIG("llama", ",\"rope_theta\":\"1e4\""), "rope_theta is a string");
    assert_refused(CONFIG("llama", ",\"rope_theta\":0"), "rope_theta is 0, expected");
    assert_refused(CONFIG("gemma3_text", ",\"rope_local_base_freq\":1e4,\"rope_parameters\":{"
                                         "\"full_attention\":{},\"sliding_attention\":"
                                         "{\"rope_theta\":2e4}}"),
                   "rope_local_base_freq is 10000, but");
}

static void test_scalings_become_gguf_keys(void **state)
{
    (void)state;
    open_config(CONFIG("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"));
    assert_true(f32_of("%.rope.scaling.factor") == 4.0f);
    close_config();
    open_config(CONFIG("llama", ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                                "\"original_max_position_embeddings\":16,\"beta_fast\":8}"));
    assert_int_equal(u32_of("%.rope.scaling.original_context_length"), 16);
    assert_true(f32_of("%.rope.scaling.yarn_beta_fast") == 8.0f);
    assert_true(f32_of("%.rope.scaling.yarn_beta_slow") == 1.0f);
    assert_null(gguf_find_key(&keys, "%.rope.scaling.attn_factor")); /* built in */
    close_config();
    open_config(CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                                "\"attention_factor\":1.5}"));
    assert_true(fabs((double)f32_of("%.rope.scaling.attn_factor") - 1.5 / (1 + 0.1 * log(4))) <
                1e-7);
    assert_int_equal(u32_of("%.rope.scaling.original_context_length"), 64);
    close_config();
    open_config(CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}"));
    assert_true(
        gguf_str_is(gguf_item_str(gguf_find_key(&keys, "%.rope.scaling.type"), 0), "dynamic"));
    close_config();
    open_config(CONFIG("llama", ",\"partial_rotary_factor\":0.5"));
    assert_int_equal(u32_of("%.rope.dimension_count"), 2);
    close_config();
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"factor\":4}"), "factor but no rope_type");
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"type\":\"linear\"}"),
                   "rope type linear needs factor");
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
                                   "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2}"),
                   "the rope type is yarn in one place and linear in another");
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
                                   "\"rope_parameters\":{\"factor\":3}"),
                   "factor is 3 in rope_parameters but 2 in rope_scaling");
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":4}"),
                   "rope type longrope is unknown");
    assert_refused(CONFIG("llama", ",\"partial_rotary_factor\":0.3"), "rotates 1 of 4 channels");
    assert_refused(CONFIG("llama", ",\"rope_scaling\":3"), "rope_scaling is an integer");
}

static void test_llama3_scaling_becomes_divisors(void **state)
{
    (void)state;
    open_config(
        "{\"model_type\":\"llama\"," SIZES ",\"head_dim\":128,\"rope_theta\":500000.0,"
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    const struct gguf_edit_tensor *t = gguf_edit_find_tensor(&edit, "rope_freqs.weight");
    assert_non_null(t);
    assert_int_equal(t->ne[0], 64);
    const float *divisor = t->data;
    /* wave length of pair i: 2 pi 500000^(i/64); kept below 2048, divided above 8192 */
    assert_true(divisor[0] == 1.0f && divisor[28] == 1.0f);
    assert_true(divisor[35] == 32.0f && divisor[63] == 32.0f);
    double wave = 2 * 3.14159265358979323846 * pow(500000.0, 32.0 / 64);
    double smooth = (8192 / wave - 1) / 3;
    assert_true(smooth > 0 && smooth < 1);
    assert_true(fabs((double)divisor[32] * ((1 - smooth) / 32 + smooth) - 1) < 1e-6);
    close_config();
    open_config(CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":1e30,"
                                "\"low_freq_factor\":1e8,\"high_freq_factor\":2e8,"
                                "\"original_max_position_embeddings\":32}"));
    divisor = gguf_edit_find_tensor(&edit, "rope_freqs.weight")->data;
    assert_true(divisor[0] >= 1e29f && divisor[1] >= 1e29f);
    close_config();
    assert_refused(CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                                   "\"low_freq_factor\":4,\"high_freq_factor\":1}"),
                   "high_freq_factor 1 is not above low_freq_factor 4");
}

static void test_no_rope_layers_means_has_rope(void **state)
{
    (void)state;
    open_config(CONFIG("smollm3", ",\"no_rope_layers\":[1,0,0,1]"));
    assert_string_equal(mask_of("%.attention.rope_pattern"), "1001");
    close_config();
    open_config(CONFIG("smollm3", ",\"no_rope_layers\":[true,false,true,true,0]"));
    assert_string_equal(mask_of("%.attention.rope_pattern"), "1011");
    close_config();
    open_config(CONFIG("smollm3", ",\"no_rope_layers\":null"));
    assert_string_equal(mask_of("%.attention.rope_pattern"), "1110");
    close_config();
    open_config(CONFIG("smollm3", ",\"no_rope_layer_interval\":2"));
    assert_string_equal(mask_of("%.attention.rope_pattern"), "1010");
    close_config();
    open_config(CONFIG("smollm3", ",\"no_rope_layer\":3"));
    assert_string_equal(mask_of("%.attention.rope_pattern"), "1101");
    close_config();
    assert_refused(CONFIG("smollm3", ",\"no_rope_layers\":[1,0,0]"), "has 3 items");
    assert_refused(CONFIG("smollm3", ",\"no_rope_layers\":[1,0,0,2]"),
                   "no_rope_layers[3] is not 0");
    assert_refused(CONFIG("smollm3", ",\"no_rope_layer_interval\":0"), "interval is 0");
}

static void test_windows_follow_each_familys_rule(void **state)
{
    (void)state;
    open_config(CONFIG("mistral", ",\"sliding_window\":16"));
    assert_int_equal(u32_of("%.attention.sliding_window"), 16);
    assert_string_equal(mask_of("%.attention.sliding_window_pattern"), "1111");
    close_config();
    open_config(CONFIG("mistral", ",\"sliding_window\":null"));
    assert_null(gguf_find_key(&keys, "%.attention.sliding_window"));
    close_config();
    open_config(CONFIG("mistral", ""));
    assert_int_equal(u32_of("%.attention.sliding_window"), 4096);
    close_config();
    open_config(
        CONFIG("qwen2", ",\"rope_theta\":1e6,\"sliding_window\":16,\"max_window_layers\":3"));
    assert_null(gguf_find_key(&keys, "%.attention.sliding_window"));
    close_config();
    open_config(CONFIG("qwen2", ",\"rope_theta\":1e6,\"sliding_window\":16,\"max_window_layers\":3,"
                                "\"use_sliding_window\":true"));
    assert_string_equal(mask_of("%.attention.sliding_window_pattern"), "0001");
    close_config();
    open_config(CONFIG("gemma3_text", ",\"sliding_window\":8,\"sliding_window_pattern\":2"));
    assert_string_equal(mask_of("%.attention.sliding_window_pattern"), "1010");
    close_config();
    open_config(CONFIG("gemma3_text", ",\"sliding_window\":8,\"layer_types\":[\"full_attention\","
                                      "\"sliding_attention\",\"full_attention\","
                                      "\"full_attention\"]"));
    assert_string_equal(mask_of("%.attention.sliding_window_pattern"), "0100");
    close_config();
    open_config(CONFIG("smollm3", ",\"no_rope_layers\":[1,0,1,0],\"use_sliding_window\":true,"
                                  "\"sliding_window\":16"));
    assert_string_equal(mask_of("%.attention.sliding_window_pattern"), "0101");
    close_config();
    open_config(CONFIG("llama", ",\"sliding_window\":16")); /* transformers ignores it, too */
    assert_null(gguf_find_key(&keys, "%.attention.sliding_window"));
    close_config();
    assert_refused(CONFIG("gemma3_text", ",\"layer_types\":[\"full_attention\"]"), "has 1 items");
    assert_refused(CONFIG("gemma3_text", ",\"layer_types\":[\"full_attention\",\"full_attention\","
                                         "\"full_attention\",\"chunked_attention\"]"),
                   "layer_types[3] is chunked_attention");
    assert_refused(CONFIG("gemma3_text", ",\"sliding_window\":0"), "sliding_window is 0");
    assert_refused(CONFIG("qwen2", ",\"rope_theta\":1e6,\"layer_types\":[\"sliding_attention\","
                                   "\"full_attention\",\"full_attention\",\"full_attention\"]"),
                   "sliding_window is not set or not used");
}

static void test_contradictions_and_unknown_mathematics_are_refused(void **state)
{
    (void)state;
    assert_refused("{}", "model_type is missing");
    assert_refused("[]", "not a JSON object");
    assert_refused(CONFIG("deepseek_v3", ""), "model_type deepseek_v3 is unknown; known: llama");
    assert_refused("{\"model_type\":\"llama\"}", "num_hidden_layers is missing");
    assert_refused("{\"model_type\":\"llama\",\"num_hidden_layers\":-1}",
                   "num_hidden_layers is -1, expected 0 to");
    assert_refused("{\"model_type\":\"llama\",\"num_hidden_layers\":2.5}",
                   "a number with a fraction");
    assert_refused("{\"model_type\":\"llama\",\"num_hidden_layers\":100000}", "expected 1 to 1024");
    assert_refused(CONFIG("llama", ",\"hidden_act\":\"relu\""),
                   "hidden_act is relu, expected silu");
    assert_refused(CONFIG("llama", ",\"quantization_config\":{}"), "quantization_config is set");
    assert_refused(CONFIG("llama", ",\"attention_type\":\"nope\""), "attention_type is set");
    assert_refused(CONFIG("gemma3_text", ",\"final_logit_softcapping\":30.0"),
                   "softcapping is set");
    assert_refused(CONFIG("gemma3_text", ",\"use_bidirectional_attention\":true"), "only causal");
    assert_refused(CONFIG("granite", ",\"position_embedding_type\":\"nope\""), "expected rope");
    assert_refused(CONFIG("llama", ",\"head_dim\":3"), "head_dim is 3, expected an even number");
    assert_refused(CONFIG("llama", ",\"rms_norm_eps\":0"), "rms_norm_eps is 0");
    assert_refused(CONFIG("llama", ",\"eos_token_id\":\"x\""),
                   "eos_token_id is not a token number");
    assert_refused(CONFIG("granite", ",\"logits_scaling\":0"), "logits_scaling is 0");
    open_config(CONFIG("llama", ",\"eos_token_id\":[7,9],\"bos_token_id\":null"));
    assert_int_equal(u32_of("tokenizer.ggml.eos_token_id"), 7);
    assert_int_equal(gguf_item_int(gguf_find_key(&keys, "zerope.tokenizer.eos_ids"), 1), 9);
    assert_null(gguf_find_key(&keys, "tokenizer.ggml.bos_token_id"));
    close_config();
}

/* ---- folders */

static void test_both_spellings_give_the_same_model(void **state)
{
    (void)state;
    static const char *const pairs[][3] = {
        {"llama", "config.json", "config_llama_v5.json"},
        {"llama", "config_llama_linear.json", "config_llama_linear_v5.json"},
        {"llama", "config_llama_yarn.json", "config_llama_yarn_v5.json"},
        {"llama", "config_llama_llama3.json", "config_llama_llama3_v5.json"},
        {"llama", "config_llama_closed.json", "config_llama_closed_v5.json"},
        {"llama", "config_llama_dynamic.json", "config_llama_dynamic_v5.json"},
        {"llama", "config_llama_partial.json", "config_llama_partial_v5.json"},
        {"llama", "config_mistral.json", "config_mistral_v5.json"},
        {"llama", "config_granite.json", "config_granite_v5.json"},
        {"llama", "config_smollm3.json", "config_smollm3_v5.json"},
        {"llama", "config_smollm3_list.json", "config_smollm3_list_v5.json"},
        {"llama", "config_smollm3_window.json", "config_smollm3_window_v5.json"},
        {"qwen2", "config.json", "config_qwen2_v5.json"},
        {"qwen2", "config_qwen2_window.json", "config_qwen2_window_v5.json"},
        {"qwen3", "config.json", "config_qwen3_v5.json"},
        {"qwen3", "config_qwen3_yarn.json", "config_qwen3_yarn_v5.json"},
        {"gemma3", "config.json", "config_gemma3_v5.json"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct gguf a, b;
        zp_err err = {0};
        ok(hf_open_config(&a, data_path(pairs[i][0]), pairs[i][1], &err), &err);
        ok(hf_open_config(&b, data_path(pairs[i][0]), pairs[i][2], &err), &err);
        assert_same_models(&a, &b);
        gguf_close(&a);
        gguf_close(&b);
    }
}

static void test_rows_are_interleaved_where_the_architecture_says_so(void **state)
{
    (void)state;
    struct gguf g;
    struct safetensors s;
    zp_err err = {0};
    ok(hf_open(&g, data_path("llama"), &err), &err);
    ok(safetensors_open_folder(&s, data_path("llama"), &err), &err);
    const struct gguf_tensor *k = gguf_find_tensor(&g, "blk.1.attn_k.weight");
    const struct safetensors_tensor *hf = safetensors_find(
        &s, "model.layers.1.self_attn.k_proj.weight");
    size_t row = (size_t)gguf_tensor_row_bytes(k);
    assert_int_equal(k->ne[1], 32); /* 2 heads of 16 */
    for (size_t head = 0; head < 2; head++)
        for (size_t i = 0; i < 8; i++) {
            const uint8_t *at = k->data + head * 16 * row, *from = hf->data + head * 16 * row;
            assert_memory_equal(at + 2 * i * row, from + i * row, row);
            assert_memory_equal(at + (2 * i + 1) * row, from + (i + 8) * row, row);
        }
    const struct gguf_tensor *v = gguf_find_tensor(&g, "blk.1.attn_v.weight");
    hf = safetensors_find(&s, "model.layers.1.self_attn.v_proj.weight");
    assert_memory_equal(v->data, hf->data, v->bytes);
    safetensors_close(&s);
    gguf_close(&g);

    ok(hf_open(&g, data_path("qwen2"), &err), &err);
    ok(safetensors_open_folder(&s, data_path("qwen2"), &err), &err);
    k = gguf_find_tensor(&g, "blk.1.attn_k.weight");
    hf = safetensors_find(&s, "model.layers.1.self_attn.k_proj.weight");
    assert_memory_equal(k->data, hf->data, k->bytes);
    safetensors_close(&s);
    gguf_close(&g);
}

static void test_row_orders_are_inverse_and_leave_unrotated_rows(void **state)
{
    (void)state;
    for (uint64_t row = 0; row < 60; row++) {
        assert_int_equal(hf_row_of_halves(hf_row_of_interleaved(row, 20, 12), 20, 12), row);
        if (row % 20 >= 12) assert_int_equal(hf_row_of_interleaved(row, 20, 12), row);
    }
    assert_int_equal(hf_row_of_interleaved(1, 20, 12), 6);
    assert_int_equal(hf_row_of_interleaved(22, 20, 12), 21);
}

static void test_gemma_gains_get_their_one(void **state)
{
    (void)state;
    struct gguf g;
    struct safetensors s;
    zp_err err = {0};
    ok(hf_open(&g, data_path("gemma3"), &err), &err);
    ok(safetensors_open_folder(&s, data_path("gemma3"), &err), &err);
    static const char *const names[][2] = {
        {"blk.2.attn_norm.weight", "model.layers.2.input_layernorm.weight"},
        {"blk.2.post_attention_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
        {"blk.2.ffn_norm.weight", "model.layers.2.pre_feedforward_layernorm.weight"},
        {"blk.2.post_ffw_norm.weight", "model.layers.2.post_feedforward_layernorm.weight"},
        {"blk.2.attn_q_norm.weight", "model.layers.2.self_attn.q_norm.weight"},
        {"output_norm.weight", "model.norm.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct gguf_tensor *t = gguf_find_tensor(&g, names[i][0]);
        const struct safetensors_tensor *hf = safetensors_find(&s, names[i][1]);
        assert_int_equal(t->type, 0);
        for (uint64_t c = 0; c < t->ne[0]; c++) {
            float gain, stored;
            uint16_t half;
            memcpy(&gain, t->data + 4 * c, 4);
            memcpy(&stored, hf->data + 4 * c, hf->dtype == ST_F32 ? 4 : 0);
            memcpy(&half, hf->data + 2 * c, 2);
            if (hf->dtype == ST_BF16) stored = bf16_to_f32(half);
            if (hf->dtype == ST_F16) stored = f16_to_f32(half);
            assert_true(gain == stored + 1.0f);
        }
    }
    assert_null(gguf_find_tensor(&g, "output.weight"));
    safetensors_close(&s);
    gguf_close(&g);
}

static void assert_text_of_file(const struct gguf *g, const char *key, const char *path)
{
    zp_err err = {0};
    struct gguf_str text;
    struct buffer file = buffer_with_max(MEM_META, 1 << 20);
    ok(os_read_file(path, &file, &err), &err);
    ok(gguf_get_str(g, key, &text, &err), &err);
    assert_int_equal(text.size, file.size);
    assert_memory_equal(text.data, file.data, file.size);
    buffer_free(&file);
}

static void test_folders_bring_their_tokenizer(void **state)
{
    (void)state;
    struct gguf g;
    zp_err err = {0};
    ok(hf_or_gguf_open(&g, data_path("llama"), &err), &err);
    assert_text_of_file(&g, "tokenizer.huggingface.json", data_path("llama/tokenizer.json"));
    assert_text_of_file(&g, "zerope.tokenizer.config", data_path("llama/tokenizer_config.json"));
    assert_null(gguf_find_key(&g, "tokenizer.chat_template"));
    assert_string_equal(g.folder, data_path("llama"));
    gguf_close(&g);
    ok(hf_or_gguf_open(&g, data_path("gguf/gguf-llama-linear.gguf"), &err), &err);
    assert_null(g.folder);
    gguf_close(&g);
    assert_int_equal(hf_or_gguf_open(&g, ZP_TEST_DATA, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "a folder without config.json: expected a GGUF file or"));
}

/* ---- folders that are wrong */

#define TINY                                                                                       \
    "{\"model_type\":\"llama\",\"vocab_size\":2,\"hidden_size\":2,\"intermediate_size\":1,"        \
    "\"num_hidden_layers\":1,\"num_attention_heads\":1,\"max_position_embeddings\":8,"             \
    "\"tie_word_embeddings\":"

static void write_tiny(const char *tied, const struct safetensors_out *outs, uint32_t n)
{
    zp_err err = {0};
    char text[512], path[128];
    snprintf(text, sizeof text, TINY "%s}", tied);
    snprintf(path, sizeof path, "%s/config.json", folder);
    ok(os_write_file(path, text, strlen(text), &err), &err);
    ok(safetensors_write_folder(folder, outs, n, 0, &err), &err);
}

static void assert_folder(zp_status expected, const char *part)
{
    struct gguf g;
    zp_err err = {0};
    assert_int_equal(hf_open(&g, folder, &err), expected);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    gguf_close(&g);
}

/* Older folders hold the chat template in tokenizer_config.json, alone or in a list. */
static void test_a_template_may_stand_in_the_configuration(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"chat_template\":\"one\"}", "one"},
        {"{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"no\"},"
         "{\"name\":\"default\",\"template\":\"two\"}]}", "two"},
        {"{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"no\"}]}", NULL},
        {"{\"chat_template\":null}", NULL},
        {"{\"chat_template\"", NULL},
    };
    static const float zeros[8] = {0};
    struct safetensors_out embd = {
        "model.embed_tokens.weight", ST_F32, 2, {2, 2}, zeros, NULL, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[128];
        zp_err err = {0};
        struct gguf g;
        struct gguf_str text;
        write_tiny("true", &embd, 1);
        snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
        ok(os_write_file(path, rows[i][0], strlen(rows[i][0]), &err), &err);
        ok(hf_open(&g, folder, &err), &err);
        ok(gguf_get_str_or_null(&g, "tokenizer.chat_template", &text, &err), &err);
        assert_int_equal(text.size, rows[i][1] ? strlen(rows[i][1]) : 0);
        if (rows[i][1]) assert_memory_equal(text.data, rows[i][1], text.size);
        gguf_close(&g);
        remove_files();
    }
}


static void test_wrong_weights_are_refused_by_name(void **state)
{
    (void)state;
    static const float zeros[8] = {0}, ones[8] = {1, 1, 1, 1};
    struct safetensors_out embd = {
        "model.embed_tokens.weight", ST_F32, 2, {2, 2}, zeros, NULL, NULL};
    struct safetensors_out head = {"lm_head.weight", ST_F32, 2, {2, 2}, zeros, NULL, NULL};
    struct safetensors_out q = {
        "model.layers.0.self_attn.q_proj.weight", ST_F32, 2, {2, 2}, zeros, NULL, NULL};
    write_tiny("false", (struct safetensors_out[]){embd, head, q}, 3);
    assert_folder(ZP_OK, "");
    write_tiny("false", &embd, 1);
    assert_folder(ZP_BAD_FILE,
                  "tie_word_embeddings is false, but tensor lm_head.weight is missing");
    write_tiny("true", &embd, 1);
    assert_folder(ZP_OK, "");
    write_tiny("true", (struct safetensors_out[]){embd, head}, 2);
    assert_folder(ZP_OK, "");
    head.data = ones;
    write_tiny("true", (struct safetensors_out[]){embd, head}, 2);
    assert_folder(ZP_BAD_FILE, "lm_head.weight differs from the embedding");
    write_tiny("true", &head, 1);
    assert_folder(ZP_BAD_FILE, "model.embed_tokens.weight is missing");
    q.shape[0] = 4;
    write_tiny("true", (struct safetensors_out[]){embd, q}, 2);
    assert_folder(ZP_BAD_FILE, "has 4 rows, expected 1 heads of 2");
    q = (struct safetensors_out){
        "model.layers.0.mlp.up_proj.bias", ST_F32, 1, {2}, zeros, NULL, NULL};
    write_tiny("true", (struct safetensors_out[]){embd, q}, 2);
    assert_folder(ZP_UNSUPPORTED, "tensor model.layers.0.mlp.up_proj.bias has no place in a llama");
    q.name = "model.layers.1.input_layernorm.weight";
    write_tiny("true", (struct safetensors_out[]){embd, q}, 2);
    assert_folder(ZP_UNSUPPORTED, "has no place in a llama model of 1 layers");
    q.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    write_tiny("true", (struct safetensors_out[]){embd, q}, 2);
    assert_folder(ZP_OK, "");
    embd.dtype = ST_I32;
    write_tiny("true", &embd, 1);
    assert_folder(ZP_UNSUPPORTED, "has dtype I32, weights are F32, F16 or BF16");
    embd.dtype = ST_F32;
    embd.shape[0] = 1;
    write_tiny("true", &embd, 1);
    assert_folder(ZP_BAD_FILE, "is not vocab_size 2 x hidden_size 2");
    remove_files();
    assert_folder(ZP_BAD_INPUT, "a folder without config.json");
}

static void test_generation_config_lists_the_end_tokens(void **state)
{
    (void)state;
    static const float zeros[4] = {0};
    static const char text[] = "{\"eos_token_id\": [1, 0]}";
    struct safetensors_out embd = {
        "model.embed_tokens.weight", ST_F32, 2, {2, 2}, zeros, NULL, NULL};
    struct gguf g;
    char path[128];
    uint32_t eos;
    zp_err err = {0};
    write_tiny("true, \"eos_token_id\": 0", &embd, 1);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    ok(os_write_file(path, text, strlen(text), &err), &err);
    ok(hf_open(&g, folder, &err), &err);
    ok(gguf_get_u32(&g, "tokenizer.ggml.eos_token_id", &eos, &err), &err);
    assert_int_equal(eos, 1);
    assert_int_equal(gguf_find_key(&g, "zerope.tokenizer.eos_ids")->count, 2);
    gguf_close(&g);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_of_the_family),
        cmocka_unit_test(test_theta_is_found_at_the_root_and_nested),
        cmocka_unit_test(test_scalings_become_gguf_keys),
        cmocka_unit_test(test_llama3_scaling_becomes_divisors),
        cmocka_unit_test(test_no_rope_layers_means_has_rope),
        cmocka_unit_test(test_windows_follow_each_familys_rule),
        cmocka_unit_test(test_contradictions_and_unknown_mathematics_are_refused),
        cmocka_unit_test(test_both_spellings_give_the_same_model),
        cmocka_unit_test(test_rows_are_interleaved_where_the_architecture_says_so),
        cmocka_unit_test(test_row_orders_are_inverse_and_leave_unrotated_rows),
        cmocka_unit_test(test_gemma_gains_get_their_one),
        cmocka_unit_test(test_folders_bring_their_tokenizer),
        cmocka_unit_test(test_a_template_may_stand_in_the_configuration),
        cmocka_unit_test(test_wrong_weights_are_refused_by_name),
        cmocka_unit_test(test_generation_config_lists_the_end_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
