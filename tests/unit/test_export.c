/* test_export.c: small evaporated models, exported by each route and read again: the same logits
 * (to the bit where no weight changed its type), the right keys, clear refusals. What stock engines
 * make of the files is docs/evidence/export-*.json (tools/check_export.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/os.h"
#include "base/rng.h"
#include "evap/apply.h"
#include "evap/export.h"
#include "live_bytes.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        zp_err check_err = { 0 }, *err = &check_err;                       \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, check_err.message); \
    } while (0)

enum { N_IDS = 40, VALIDATED = 48 };

static char folder[] = "/tmp/zerope-export-XXXXXX";
static char own[64], stock[64], hf[64], edited[64];

/* ---- evaporated files, made without measuring */

typedef bool (*close_rule)(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair);

static bool close_all(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p, (void)layer, (void)kv, (void)pair;
    return true;
}

static bool close_nothing(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p, (void)layer, (void)kv, (void)pair;
    return false;
}

static bool close_even_pairs(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p, (void)layer, (void)kv;
    return pair % 2 == 0;
}

static bool close_slow_half(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)layer, (void)kv;
    return pair >= p->n_pair / 2;
}

static bool close_first_layer(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p, (void)kv, (void)pair;
    return layer == 0;
}

static bool close_layer_and_pair(const struct position *p, uint32_t layer, uint32_t kv,
                                 uint32_t pair)
{
    (void)p, (void)kv;
    return layer == 0 || pair == 1;
}

static bool close_one_head(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p;
    return layer == 1 && kv == 1 && pair == 0;
}

static bool close_one_gate(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)p;
    return layer == 1 && kv == 0 && pair == 0;
}

static bool close_unwindowed(const struct position *p, uint32_t layer, uint32_t kv, uint32_t pair)
{
    (void)kv, (void)pair;
    return p->window[layer] == 0;
}

static const char *data(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/arch/%s", ZP_TEST_DATA, name);
    return path;
}

static void evaporate_path(const char *path, close_rule rule)
{
    zp_model *m;
    struct gateset g;
    struct apply_info info = { .n_ctx_validated = VALIDATED, .recipe = "{}" };
    CHECK(zp_model_open(&m, path, NULL, err));
    CHECK(gateset_open(&g, &m->position, err));
    for (uint32_t l = 0; l < g.n_layer; l++)
        for (uint32_t k = 0; k < g.n_kv; k++)
            for (uint32_t i = 0; i < g.n_pair; i++)
                if (rule(&m->position, l, k, i)) g.open[gateset_at(&g, l, k, i)] = 0;
    CHECK(apply_write(m, &g, NULL, &info, own, err));
    gateset_free(&g);
    zp_model_close(m);
}

static void evaporate(const char *name, close_rule rule)
{
    evaporate_path(data(name), rule);
}

/* ---- exporting and running */

/* An export goes into a folder without a model only. */
static void clear_folder(const char *path)
{
    char **names;
    size_t n;
    if (os_list_files(path, &names, &n, NULL) != ZP_OK) return;
    for (size_t i = 0; i < n; i++) unlink(names[i]);
    os_list_free(names, n);
}

static json_t *export_to(const char *to, const char *out)
{
    char *text;
    if (strcmp(to, "hf") == 0) clear_folder(out);
    CHECK(zp_export_run(own, to, out, NULL, &text, err));
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    assert_true(json_array_size(json_object_get(doc, "files")) >= 1);
    assert_true(json_array_size(json_object_get(doc, "expected_engines")) >= 1);
    zp_free(text);
    return doc;
}

static void check_route(json_t *doc, const char *route, const char *arch)
{
    assert_string_equal(json_string_value(json_object_get(doc, "route")), route);
    assert_string_equal(json_string_value(json_object_get(doc, "architecture")), arch);
    assert_int_equal(json_integer_value(json_object_get(doc, "context_length")), VALIDATED);
    json_decref(doc);
}

/* Logits of all rows of a fixed prompt on the exact path; caller frees. */
static float *logits(const char *path, size_t *count)
{
    zp_model *m;
    zp_engine *e;
    zp_seq *s;
    zp_model_info info;
    int32_t ids[N_IDS];
    zp_engine_options o = { .n_ctx = 64, .exact = true, .n_threads = 1 };
    CHECK(zp_model_open(&m, path, NULL, err));
    zp_model_describe(m, &info);
    for (uint32_t i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(rng_unit_at(7, 7, i) * (double)info.n_vocab);
    CHECK(zp_engine_open(&e, m, &o, err));
    CHECK(zp_seq_open(&s, e, NULL, err));
    *count = (size_t)N_IDS * info.n_vocab;
    float *out = malloc(*count * sizeof *out);
    assert_non_null(out);
    zp_item item = { s, ids, N_IDS, ZP_WANT_ALL };
    CHECK(zp_engine_run(e, &item, 1, out, N_IDS, NULL, err));
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
    return out;
}

static float largest_difference(const char *a_path, const char *b_path)
{
    size_t n, m;
    float *a = logits(a_path, &n), *b = logits(b_path, &m), worst = 0, largest = 0;
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        worst = fmaxf(worst, fabsf(a[i] - b[i]));
        largest = fmaxf(largest, fabsf(a[i]));
    }
    free(a);
    free(b);
    return worst / largest;
}

static void same_bits(const char *path)
{
    float d = largest_difference(own, path);
    if (d != 0) fail_msg("%s differs by %g of the largest logit", path, (double)d);
}

static void nearly_same(const char *path)
{
    float d = largest_difference(own, path);
    if (d > 2e-6f) fail_msg("%s differs by %g of the largest logit", path, (double)d);
}

static struct gguf opened;

static void open_stock(const char *arch)
{
    CHECK(gguf_open(&opened, stock, err));
    assert_string_equal(opened.arch, arch);
    for (uint32_t i = 0; i < opened.n_kv; i++) {
        assert_null(strstr(opened.kvs[i].name, "zerope.position"));
        assert_null(strstr(opened.kvs[i].name, "zerope.attention"));
        assert_null(strstr(opened.kvs[i].name, "zerope-"));
    }
    uint32_t n_ctx;
    CHECK(gguf_get_u32(&opened, "%.context_length", &n_ctx, err));
    assert_int_equal(n_ctx, VALIDATED);
    assert_non_null(gguf_find_key(&opened, "zerope.source.sha256"));
    assert_non_null(gguf_find_key(&opened, "zerope.recipe"));
}

static float divisor(uint32_t pair)
{
    const struct gguf_tensor *t = gguf_find_tensor(&opened, "rope_freqs.weight");
    float value;
    assert_non_null(t);
    memcpy(&value, t->data + 4 * pair, 4);
    return value;
}

/* ---- divisors */

static void test_closed_llama_is_divisors_and_the_same_bits(void **state)
{
    (void)state;
    evaporate("gguf/gguf-llama-llama3.gguf", close_all);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
    open_stock("llama");
    for (uint32_t i = 0; i < 4; i++) assert_true(divisor(i) == 1e30f);
    gguf_close(&opened);
}

static void test_uniform_closing_keeps_the_other_divisors(void **state)
{
    (void)state;
    struct gguf original;
    float before[4];
    CHECK(gguf_open(&original, data("gguf/gguf-llama-llama3.gguf"), err));
    memcpy(before, gguf_find_tensor(&original, "rope_freqs.weight")->data, sizeof before);
    gguf_close(&original);
    evaporate("gguf/gguf-llama-llama3.gguf", close_even_pairs);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
    open_stock("llama");
    assert_true(divisor(0) == 1e30f && divisor(2) == 1e30f);
    assert_true(divisor(1) == before[1] && divisor(3) == before[3]);
    gguf_close(&opened);
}

static void test_yarn_stays_where_rotation_stays(void **state)
{
    (void)state;
    static const close_rule rules[] = { close_all, close_even_pairs };
    for (size_t i = 0; i < 2; i++) {
        evaporate("gguf/gguf-llama-yarn.gguf", rules[i]);
        check_route(export_to("stock-gguf", stock), "divisors", "llama");
        same_bits(stock);
        open_stock("llama");
        assert_non_null(gguf_find_key(&opened, "%.rope.scaling.factor"));
        gguf_close(&opened);
    }
}

static void test_linear_scaling_goes_with_the_last_rotation(void **state)
{
    (void)state;
    evaporate("gguf/gguf-llama-linear.gguf", close_all);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
    open_stock("llama");
    assert_null(gguf_find_key(&opened, "%.rope.scaling.factor"));
    assert_null(gguf_find_key(&opened, "%.rope.scaling.type"));
    gguf_close(&opened);
    evaporate("gguf/gguf-llama-linear.gguf", close_even_pairs);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
}

static void test_qwen2_and_smollm3_become_llama(void **state)
{
    (void)state;
    evaporate("gguf/gguf-qwen2.gguf", close_even_pairs); /* rows change from halves to pairs */
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
    evaporate("gguf/gguf-smollm3.gguf", close_all);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
}

static void test_granite_keeps_its_name_without_its_switch(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf/gguf-granite.gguf", "gguf/gguf-granite-none.gguf" };
    for (size_t i = 0; i < 2; i++) {
        evaporate(names[i], close_all);
        check_route(export_to("stock-gguf", stock), "divisors", "granite");
        same_bits(stock);
        open_stock("granite");
        assert_null(gguf_find_key(&opened, "%.rope.scaling.finetuned"));
        assert_true(divisor(0) == 1e30f);
        gguf_close(&opened);
    }
}

/* ---- linear */

static void test_qwen3_is_linear_and_gets_its_shared_gains_back(void **state)
{
    (void)state;
    evaporate("gguf/gguf-qwen3.gguf", close_all);
    check_route(export_to("stock-gguf", stock), "linear", "qwen3");
    same_bits(stock);
    open_stock("qwen3");
    const struct gguf_tensor *gain = gguf_find_tensor(&opened, "blk.0.attn_q_norm.weight");
    assert_int_equal(gain->n_dims, 1);
    float factor;
    CHECK(gguf_get_f32(&opened, "%.rope.scaling.factor", &factor, err));
    assert_true(factor == 1e30f);
    assert_null(gguf_find_tensor(&opened, "rope_freqs.weight")); /* llama.cpp would refuse it */
    gguf_close(&opened);
}

static void test_gemma3_loses_rotation_in_layers_without_window_only(void **state)
{
    (void)state;
    evaporate("gguf/gguf-gemma3.gguf", close_unwindowed);
    check_route(export_to("stock-gguf", stock), "linear", "gemma3");
    same_bits(stock);
    check_route(export_to("hf", hf), "linear", "gemma3");
    nearly_same(hf);
}

/* Adds YaRN to a file, so that its magnitude has to go somewhere when the rotation goes. */
static void with_yarn(const char *name)
{
    struct gguf g;
    struct gguf_edit e;
    CHECK(gguf_open(&g, data(name), err));
    CHECK(gguf_edit_init(&e, &g, err));
    CHECK(gguf_edit_set_str(&e, "%.rope.scaling.type", "yarn", err));
    CHECK(gguf_edit_set_f32(&e, "%.rope.scaling.factor", 4.0f, err));
    CHECK(gguf_edit_set_u32(&e, "%.rope.scaling.original_context_length", 16, err));
    CHECK(gguf_edit_write(&e, edited, err));
    gguf_edit_free(&e);
    gguf_close(&g);
}

static void test_magnitude_of_yarn_is_folded_where_yarn_goes(void **state)
{
    (void)state;
    with_yarn("gguf/gguf-qwen3.gguf"); /* into the norm gains */
    evaporate_path(edited, close_all);
    check_route(export_to("stock-gguf", stock), "linear", "qwen3");
    nearly_same(stock);
    with_yarn("gguf/gguf-qwen2.gguf"); /* into rows and biases of q */
    evaporate_path(edited, close_all);
    check_route(export_to("hf", hf), "divisors", "qwen2");
    nearly_same(hf);
}

/* ---- patterns */

static void test_layers_without_rotation_are_granite_swa(void **state)
{
    (void)state;
    uint32_t value, mask[2];
    bool found;
    evaporate("gguf/gguf-llama-llama3.gguf", close_layer_and_pair);
    check_route(export_to("stock-gguf", stock), "pattern", "granite_swa");
    open_stock("granite_swa");
    CHECK(gguf_get_u32_layers(&opened, "%.attention.rope_pattern", 2, mask, &found, err));
    assert_true(found && mask[0] == 0 && mask[1] == 1);
    CHECK(gguf_get_u32_layers(&opened, "%.attention.sliding_window_pattern", 2, mask, &found, err));
    assert_true(found && mask[0] == 0 && mask[1] == 1); /* the windowed layer rotates */
    CHECK(gguf_get_u32(&opened, "%.attention.sliding_window", &value, err));
    assert_int_equal(value, 1 << 30);
    float scale;
    CHECK(gguf_get_f32(&opened, "%.logit_scale", &scale, err));
    assert_true(scale == 1.0f);
    assert_non_null(gguf_find_tensor(&opened, "blk.1.attn_sinks.weight"));
    assert_true(divisor(1) == 1e30f && divisor(0) < 1e29f);
    gguf_close(&opened);
}

static void test_smollm3_with_its_own_pattern_stays_as_it_is(void **state)
{
    (void)state;
    evaporate("gguf/gguf-smollm3.gguf", close_nothing);
    check_route(export_to("stock-gguf", stock), "as is", "smollm3");
    same_bits(stock);
    open_stock("smollm3");
    gguf_close(&opened);
}

/* ---- folders */

static json_t *config(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", hf);
    json_t *doc = json_load_file(path, 0, NULL);
    assert_non_null(doc);
    return doc;
}

static void test_folder_of_a_closed_llama(void **state)
{
    (void)state;
    evaporate("llama", close_all);
    check_route(export_to("hf", hf), "divisors", "llama");
    nearly_same(hf);
    json_t *doc = config(), *scaling = json_object_get(doc, "rope_scaling");
    assert_string_equal(json_string_value(json_object_get(scaling, "rope_type")), "llama3");
    assert_true(json_number_value(json_object_get(scaling, "factor")) == 1e30);
    assert_true(json_is_number(json_object_get(doc, "rope_theta"))); /* the old spelling */
    assert_null(json_object_get(doc, "rope_parameters"));
    assert_int_equal(json_integer_value(json_object_get(doc, "max_position_embeddings")),
                     VALIDATED);
    json_decref(doc);
}

static void test_folder_with_the_slow_half_closed(void **state)
{
    (void)state;
    static const char *const names[] = { "llama", "qwen2", "qwen3" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        evaporate(names[i], close_slow_half);
        check_route(export_to("hf", hf), "divisors", names[i]);
        nearly_same(hf);
    }
}

static void test_folder_of_a_layer_pattern_is_a_smollm3(void **state)
{
    (void)state;
    evaporate("llama", close_first_layer);
    check_route(export_to("hf", hf), "pattern", "smollm3");
    nearly_same(hf);
    json_t *doc = config(), *list = json_object_get(doc, "no_rope_layers");
    assert_int_equal(json_array_size(list), 4);
    assert_int_equal(json_integer_value(json_array_get(list, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(list, 3)), 1); /* 1 = HAS RoPE */
    json_decref(doc);
}

static void test_quantised_weights_become_f32_in_a_folder(void **state)
{
    (void)state;
    char *text;
    CHECK(zp_quantize(data("gguf/gguf-qwen2.gguf"), edited, "Q8_0", NULL, &text, err));
    zp_free(text);
    evaporate_path(edited, close_all);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    same_bits(stock);
    check_route(export_to("hf", hf), "divisors", "qwen2");
    nearly_same(hf);
}

static zp_status ids_of(const char *path, const char *text, size_t size, int32_t **ids, size_t *n)
{
    zp_model *m;
    CHECK(zp_model_open(&m, path, NULL, err));
    zp_status status = zp_tokenize(m, text, size, ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, ids, n, NULL);
    zp_model_close(m);
    return status;
}

static void test_folder_has_the_tokenizer_of_the_file(void **state)
{
    (void)state;
    struct buffer text = buffer_with_max(MEM_META, 1 << 20);
    int32_t *a, *b;
    size_t n, m;
    static const char more[] = "<|im_start|>x 12345 caf\xc3\xa9\n\n  \t\xe4\xb8\xad<|im_end|>";
    CHECK(os_read_file(ZP_TEST_DATA "/prose.txt", &text, err));
    CHECK(buffer_append(&text, more, sizeof more - 1, err));
    evaporate("gguf/gguf-qwen2.gguf", close_all);
    json_decref(export_to("hf", hf));
    assert_int_equal(ids_of(own, (const char *)text.data, text.size, &a, &n), ZP_OK);
    assert_int_equal(ids_of(hf, (const char *)text.data, text.size, &b, &m), ZP_OK);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof *a);
    zp_free(a);
    zp_free(b);
    buffer_free(&text);
}

/* ---- own form, scales */

static void test_own_form_is_an_identical_copy(void **state)
{
    (void)state;
    struct buffer a = buffer_with_max(MEM_META, 1 << 24), b = buffer_with_max(MEM_META, 1 << 24);
    evaporate("gguf/gguf-qwen2.gguf", close_one_head);
    check_route(export_to("gguf", stock), "copy", "zerope-qwen2");
    CHECK(os_read_file(own, &a, err));
    CHECK(os_read_file(stock, &b, err));
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    buffer_free(&a);
    buffer_free(&b);
}

static void test_scales_of_heads_are_folded_into_queries(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    CHECK(gguf_open(&g, data("gguf/zerope-scaled.gguf"), err));
    CHECK(gguf_edit_init(&e, &g, err));
    gguf_edit_remove_key(&e, "zerope.attention.scale_c");
    gguf_edit_remove_key(&e, "zerope.attention.scale_len");
    CHECK(gguf_edit_set_u32(&e, "zerope.context.validated", VALIDATED, err));
    CHECK(gguf_edit_set_str(&e, "zerope.source.sha256", "0", err));
    CHECK(gguf_edit_set_str(&e, "zerope.recipe", "{}", err));
    CHECK(gguf_edit_write(&e, own, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    check_route(export_to("stock-gguf", stock), "divisors", "llama");
    nearly_same(stock);
    open_stock("llama");
    assert_null(gguf_find_tensor(&opened, "blk.0.attn_head_scale"));
    gguf_close(&opened);
    check_route(export_to("hf", hf), "divisors", "llama");
    nearly_same(hf);
}

/* ---- refusals */

static void refused(const char *model, const char *to, zp_status status, const char *words)
{
    char *text = NULL;
    zp_err err = { 0 };
    const char *out = strcmp(to, "hf") == 0 ? hf : edited;
    if (strcmp(to, "hf") == 0) clear_folder(out);
    unlink(edited);
    assert_int_equal(zp_export_run(model, to, out, NULL, &text, &err), status);
    assert_null(text);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
    assert_false(strcmp(to, "hf") != 0 && os_exists(edited));
}

static void test_what_no_engine_can_say_is_refused_by_layer_and_head(void **state)
{
    (void)state;
    evaporate("gguf/gguf-llama-llama3.gguf", close_one_head);
    refused(own, "stock-gguf", ZP_UNSUPPORTED,
            "layer 1, KV head 1 keeps other pairs (3 of 4 open)");
    refused(own, "hf", ZP_UNSUPPORTED, "layer 1, KV head 1");
    refused(data("gguf/zerope-local.gguf"), "stock-gguf", ZP_UNSUPPORTED,
            "layer 0, KV head 0 is local (reach 8)");
    refused(data("gguf/zerope-alibi.gguf"), "hf", ZP_UNSUPPORTED, "layer 0 has a position bias");
    refused(data("gguf/zerope-scaled.gguf"), "stock-gguf", ZP_UNSUPPORTED, "scale_c");
    evaporate("gguf/gguf-qwen3.gguf", close_even_pairs);
    refused(own, "stock-gguf", ZP_UNSUPPORTED, "qwen3 only as a whole");
    evaporate("gguf/gguf-gemma3.gguf", close_all);
    refused(own, "stock-gguf", ZP_UNSUPPORTED, "gemma3 only in all layers without a window");
    evaporate("llama", close_even_pairs);
    refused(own, "hf", ZP_UNSUPPORTED, "only the slowest pairs");
    evaporate("llama", close_layer_and_pair);
    refused(own, "hf", ZP_UNSUPPORTED, "one of the two");
    evaporate("qwen2", close_first_layer);
    refused(own, "hf", ZP_UNSUPPORTED, "not a qwen2");
}

/* ---- what a refusal advises */

static zp_evaporate_options quick_options(void)
{
    return (zp_evaporate_options){
        .scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1, .n_threads = 1 },
        .plan = { .budget_kl = 1.0, .n_threads = 1 },
        .n_windows_check = 2,
    };
}

/* A plan of evaporate's, left with the layers that have no window. */
static void keep_layers_without_window(const char *model, const char *plan)
{
    zp_model *m;
    json_t *doc = json_load_file(plan, 0, NULL), *order = json_array(), *closed = json_array();
    CHECK(zp_model_open(&m, model, NULL, err));
    const struct position *p = &m->position;
    for (int l = 0; l < (int)p->n_layer; l++) {
        if (p->window[l]) continue;
        json_array_append_new(order, json_pack("[siii]", "layer", l, 0, 0));
        for (int k = 0; k < (int)p->n_kv; k++)
            for (int i = 0; i < (int)p->n_pair; i++)
                json_array_append_new(closed, json_pack("[iii]", l, k, i));
    }
    zp_model_close(m);
    json_object_set_new(doc, "used", json_integer((json_int_t)json_array_size(order)));
    json_object_set_new(doc, "order", order);
    json_object_set_new(doc, "closed_gates", closed);
    static const char *const counts[] = { "closed", "layers_none", "heads_none", "sinks" };
    for (size_t i = 0; i < ZP_COUNT(counts); i++) json_object_del(doc, counts[i]);
    assert_int_equal(json_dump_file(doc, plan, 0), 0);
    json_decref(doc);
}

static void follow(const char *model, const char *words)
{
    zp_evaporate_options o = quick_options();
    char plan[80], *json = NULL;
    snprintf(plan, sizeof plan, "%s/plan.json", folder);
    o.plan.uniform_slow = strstr(words, "--uniform-slow") != NULL;
    o.plan.uniform = !o.plan.uniform_slow && strstr(words, "--uniform") != NULL;
    o.close_all = strstr(words, "--close-all") != NULL;
    bool by_plan = strstr(words, "a --plan that closes the layers without a window") != NULL;
    if (o.plan.uniform + o.plan.uniform_slow + o.close_all + by_plan != 1) fail_msg("%s", words);
    if (by_plan) {
        o.plan_out = plan;
        CHECK(zp_evaporate_run(model, ZP_TEST_DATA "/prose.txt", &o, own, NULL, err));
        keep_layers_without_window(model, plan);
        o.plan_out = NULL, o.plan_in = plan, o.close_all = true;
    }
    CHECK(zp_evaporate_run(model, ZP_TEST_DATA "/prose.txt", &o, own, &json, err));
    assert_null(strstr(json, "\"closed\": 0,"));
    zp_free(json);
}

/* Whatever the refusal of a file with single gates closed says leads to one that is exported. */
static void test_advice_leads_to_an_export(void **state)
{
    (void)state;
    static const struct {
        const char *model, *to, *option;
    } cases[] = {
        { "gguf/gguf-llama-yarn.gguf", "stock-gguf", "--uniform (" },
        { "gguf/gguf-llama-llama3.gguf", "hf", "--close-all" }, /* the one scaling is taken */
        { "llama", "hf", "--uniform-slow (" },
        { "gguf/gguf-qwen2.gguf", "stock-gguf", "--uniform (" },
        { "gguf/gguf-qwen2.gguf", "hf", "--uniform-slow (" },
        { "gguf/gguf-smollm3.gguf", "stock-gguf", "--uniform (" },
        { "gguf/gguf-smollm3.gguf", "hf", "--close-all" }, /* layers without rotation are said */
        { "gguf/gguf-granite.gguf", "stock-gguf", "--uniform (" },
        { "gguf/gguf-granite.gguf", "hf", "--uniform-slow (" },
        { "gguf/gguf-qwen3.gguf", "stock-gguf", "--close-all" },
        { "gguf/gguf-qwen3.gguf", "hf", "--close-all" },
        { "gguf/gguf-gemma3.gguf", "stock-gguf", "--plan" },
        { "gguf/gguf-gemma3.gguf", "hf", "--plan" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zp_err err = { 0 };
        char model[256];
        bool folder_wanted = strcmp(cases[i].to, "hf") == 0;
        snprintf(model, sizeof model, "%s", data(cases[i].model));
        evaporate(cases[i].model, close_one_gate);
        refused(own, cases[i].to, ZP_UNSUPPORTED, cases[i].option);
        (void)zp_export_run(own, cases[i].to, folder_wanted ? hf : stock, NULL, NULL, &err);
        follow(model, err.message);
        json_decref(export_to(cases[i].to, folder_wanted ? hf : stock));
    }
}

static void test_wrong_calls_are_usage_errors(void **state)
{
    (void)state;
    refused(own, "onnx", ZP_USAGE, "known: hf, stock-gguf, gguf");
    refused(edited, "gguf", ZP_USAGE, "would be written over the input");
    refused(data("gguf/gguf-qwen2.gguf"), "gguf", ZP_BAD_INPUT, "evaporate it first");
    refused("/nonexistent.gguf", "hf", ZP_BAD_INPUT, "/nonexistent.gguf");
}

static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg, (void)what;
    return done < total / 2;
}

static void test_stopped_or_full_leaves_the_old_file(void **state)
{
    (void)state;
    zp_progress progress = { .fn = stop };
    struct buffer b = buffer_with_max(MEM_META, 16);
    char *text;
    evaporate("gguf/gguf-qwen2.gguf", close_even_pairs);
    zp_err err = { 0 };
    assert_int_equal(os_write_file(stock, "old", 3, &err), ZP_OK);
    assert_int_equal(zp_export_run(own, "stock-gguf", stock, &progress, &text, &err),
                     ZP_INTERRUPTED);
    err = (zp_err){ 0 };
    os_fail_writes_after(5000);
    assert_int_equal(zp_export_run(own, "stock-gguf", stock, NULL, &text, &err), ZP_NO_SPACE);
    os_fail_writes_after(UINT64_MAX);
    assert_int_equal(os_read_file(stock, &b, NULL), ZP_OK);
    assert_string_equal((const char *)b.data, "old");
    buffer_free(&b);
}

static void fail_each_allocation(const char *to, const char *out)
{
    uint64_t before = live_bytes();
    for (uint64_t n = 1;; n++) {
        char *text = NULL;
        zp_err err = { 0 };
        if (strcmp(to, "hf") == 0) clear_folder(out);
        mem_fail_at(n, false);
        zp_status status = zp_export_run(own, to, out, NULL, &text, &err);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        zp_free(text);
        if (live_bytes() != before) fail_msg("allocation %llu: a leak", (unsigned long long)n);
        if (!failed) {
            assert_int_equal(status, ZP_OK);
            assert_true(n > 20);
            return;
        }
        if (status != ZP_NO_MEMORY && status != ZP_OK)
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.message);
    }
}

static void test_each_failed_allocation_is_reported_and_freed(void **state)
{
    (void)state;
    evaporate("gguf/gguf-qwen2.gguf", close_all);
    fail_each_allocation("stock-gguf", stock);
    fail_each_allocation("hf", hf);
}

/* ---- */

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(own, sizeof own, "%s/own.gguf", folder);
    snprintf(stock, sizeof stock, "%s/stock.gguf", folder);
    snprintf(edited, sizeof edited, "%s/edited.gguf", folder);
    snprintf(hf, sizeof hf, "%s/hf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char **names;
    size_t n;
    if (os_list_files(folder, &names, &n, NULL) != ZP_OK) return 1;
    for (size_t i = 0; i < n; i++) unlink(names[i]);
    os_list_free(names, n);
    rmdir(hf);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_llama_is_divisors_and_the_same_bits),
        cmocka_unit_test(test_uniform_closing_keeps_the_other_divisors),
        cmocka_unit_test(test_yarn_stays_where_rotation_stays),
        cmocka_unit_test(test_linear_scaling_goes_with_the_last_rotation),
        cmocka_unit_test(test_qwen2_and_smollm3_become_llama),
        cmocka_unit_test(test_granite_keeps_its_name_without_its_switch),
        cmocka_unit_test(test_qwen3_is_linear_and_gets_its_shared_gains_back),
        cmocka_unit_test(test_gemma3_loses_rotation_in_layers_without_window_only),
        cmocka_unit_test(test_magnitude_of_yarn_is_folded_where_yarn_goes),
        cmocka_unit_test(test_layers_without_rotation_are_granite_swa),
        cmocka_unit_test(test_smollm3_with_its_own_pattern_stays_as_it_is),
        cmocka_unit_test(test_folder_of_a_closed_llama),
        cmocka_unit_test(test_folder_with_the_slow_half_closed),
        cmocka_unit_test(test_folder_of_a_layer_pattern_is_a_smollm3),
        cmocka_unit_test(test_quantised_weights_become_f32_in_a_folder),
        cmocka_unit_test(test_folder_has_the_tokenizer_of_the_file),
        cmocka_unit_test(test_own_form_is_an_identical_copy),
        cmocka_unit_test(test_scales_of_heads_are_folded_into_queries),
        cmocka_unit_test(test_what_no_engine_can_say_is_refused_by_layer_and_head),
        cmocka_unit_test(test_advice_leads_to_an_export),
        cmocka_unit_test(test_wrong_calls_are_usage_errors),
        cmocka_unit_test(test_stopped_or_full_leaves_the_old_file),
        cmocka_unit_test(test_each_failed_allocation_is_reported_and_freed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
