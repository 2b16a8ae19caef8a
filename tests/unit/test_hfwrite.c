/* test_hfwrite.c: writing Hugging Face folders: round trips, export routes, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "hf_folders.h"
#include "model/hfconfig.h"
#include "model/hfwrite.h"
#include "model/json_read.h"
#include "model/safetensors.h"

/* Opens a folder, writes it again, and opens the result. */
static void rewrite(const char *from, const char *config, struct gguf *first, struct gguf *second)
{
    struct gguf_edit e;
    zp_err err = {0};
    struct hf_file files[] = {
        {.name = "vocab.json", .copy_from = data_path("llama/tokenizer.json")},
        {.name = "notes.txt", .data = "{{ x }}", .size = 7}};
    struct hf_write_options options = {.files = files, .n_files = 2};
    ok(hf_open_config(first, data_path(from), config, &err), &err);
    ok(gguf_edit_init(&e, first, &err), &err);
    ok(hf_write(folder, &e, &options, &err), &err);
    gguf_edit_free(&e);
    ok(hf_open(second, folder, &err), &err);
}

static bool written(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return os_exists(path);
}

static void test_a_written_folder_is_the_same_model(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"llama", "config.json"},
        {"llama", "config_llama_linear.json"},
        {"llama", "config_llama_yarn.json"},
        {"llama", "config_llama_closed.json"},
        {"llama", "config_mistral.json"},
        {"llama", "config_granite.json"},
        {"llama", "config_smollm3.json"},
        {"llama", "config_smollm3_list.json"},
        {"llama", "config_smollm3_window.json"},
        {"llama", "config_llama_dynamic.json"},
        {"qwen2", "config.json"},
        {"qwen2", "config_qwen2_window.json"},
        {"qwen3", "config_qwen3_yarn.json"},
        {"gemma3", "config.json"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gguf a, b;
        struct safetensors x, y;
        zp_err err = {0};
        rewrite(rows[i][0], rows[i][1], &a, &b);
        assert_same_models(&a, &b);
        assert_non_null(gguf_find_key(&b, "tokenizer.huggingface.json"));
        assert_true(written("vocab.json") && written("notes.txt"));
        ok(safetensors_open_folder(&x, data_path(rows[i][0]), &err), &err);
        ok(safetensors_open_folder(&y, folder, &err), &err);
        assert_int_equal(x.n_tensors, y.n_tensors); /* names, dtypes and bytes are the first ones */
        for (uint32_t t = 0; t < x.n_tensors; t++) {
            assert_string_equal(x.tensors[t].name, y.tensors[t].name);
            if (strcmp(rows[i][0], "gemma3") == 0) continue; /* its gains lose the last bits */
            assert_int_equal(x.tensors[t].dtype, y.tensors[t].dtype);
            assert_memory_equal(x.tensors[t].data, y.tensors[t].data, x.tensors[t].bytes);
        }
        safetensors_close(&x);
        safetensors_close(&y);
        gguf_close(&a);
        gguf_close(&b);
        remove_files();
    }
}

static json_t *written_config(void)
{
    char path[128];
    json_t *root;
    zp_err err = {0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    ok(json_read_file(path, 1 << 20, &root, &err), &err);
    return root;
}

static void start_edit(struct gguf *g, struct gguf_edit *e)
{
    zp_err err = {0};
    ok(hf_open(g, data_path("llama"), &err), &err);
    ok(gguf_edit_init(e, g, &err), &err);
}

static void test_closed_pairs_become_llama3_scaling(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    float divisor[8];
    uint64_t n = 8;
    start_edit(&g, &e);
    for (int i = 0; i < 8; i++) divisor[i] = 1e30f;
    ok(gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 1, &n, divisor, &err), &err);
    ok(hf_write(folder, &e, NULL, &err), &err);
    json_t *root = written_config(), *scaling = json_object_get(root, "rope_scaling");
    assert_string_equal(json_string_value(json_object_get(scaling, "rope_type")), "llama3");
    assert_true(json_number_value(json_object_get(scaling, "factor")) == 1e30);
    assert_true(json_number_value(json_object_get(scaling, "low_freq_factor")) == 1e8);
    assert_true(json_number_value(json_object_get(scaling, "high_freq_factor")) == 2e8);
    json_int_t original = json_integer_value(
        json_object_get(scaling, "original_max_position_embeddings"));
    assert_true(original >= 1 &&
                original < json_integer_value(json_object_get(root, "max_position_embeddings")));
    assert_true(json_number_value(json_object_get(root, "rope_theta")) == 10000.0);
    assert_null(json_object_get(root, "rope_parameters")); /* 4.57 would rotate fully */
    json_decref(root);
    divisor[3] = 1.0f;
    ok(gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 1, &n, divisor, &err), &err);
    assert_int_equal(hf_write(folder, &e, NULL, &err), ZP_UNSUPPORTED);
    assert_non_null(strstr(err.message, "7 of 8 pairs are closed"));
    for (int i = 0; i < 8; i++) divisor[i] = 1.0f;
    ok(gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 1, &n, divisor, &err), &err);
    ok(hf_write(folder, &e, NULL, &err), &err);
    root = written_config();
    assert_null(json_object_get(root, "rope_scaling"));
    json_decref(root);
    gguf_edit_free(&e);
    gguf_close(&g);
    remove_files();
}

static void test_layers_without_rope_become_smollm3(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    static const uint8_t pattern[4] = {0, 1, 0, 0};
    start_edit(&g, &e);
    ok(gguf_edit_set_array(&e, "%.attention.rope_pattern", GGUF_BOOL, pattern, 4, &err), &err);
    assert_int_equal(hf_write(folder, &e, NULL, &err), ZP_UNSUPPORTED);
    assert_non_null(strstr(err.message, "3 of 4 layers have no RoPE"));
    err = (zp_err){0};
    ok(gguf_edit_rename_arch(&e, "smollm3", &err), &err);
    ok(hf_write(folder, &e, NULL, &err), &err);
    json_t *root = written_config(), *list = json_object_get(root, "no_rope_layers");
    assert_string_equal(json_string_value(json_object_get(root, "model_type")), "smollm3");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_integer_value(json_array_get(list, i)), pattern[i]);
    json_decref(root);
    gguf_edit_free(&e);
    gguf_close(&g);
    remove_files();
}

static void assert_not_written(struct gguf_edit *e, const char *part)
{
    zp_err err = {0};
    assert_int_not_equal(hf_write(folder, e, NULL, &err), ZP_OK);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    char **names;
    size_t count;
    ok(os_list_files(folder, &names, &count, &err), &err);
    os_list_free(names, count);
    assert_int_equal(count, 0);
}

static void test_what_the_format_cannot_say_is_refused(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    static const float numbers[64] = {0};
    uint64_t n = 4;
    start_edit(&g, &e);
    ok(gguf_edit_set_u32(&e, "zerope.position.t5_max", 1, &err), &err);
    assert_not_written(&e, "key zerope.position.t5_max has no equivalent");
    gguf_edit_remove_key(&e, "zerope.position.t5_max");
    ok(gguf_edit_set_f32(&e, "%.attention.scale", 0.5f, &err), &err);
    assert_not_written(&e, "attention.scale 0.5 differs from 1/sqrt");
    gguf_edit_remove_key(&e, "%.attention.scale");
    ok(gguf_edit_set_u32(&e, "%.rope.dimension_count", 8, &err), &err);
    assert_not_written(&e, "rope.dimension_count is 8 of 16");
    ok(gguf_edit_set_u32(&e, "%.rope.dimension_count", 16, &err), &err);
    ok(gguf_edit_set_str(&e, "%.rope.scaling.type", "longrope", &err), &err);
    assert_not_written(&e, "rope.scaling.type longrope cannot be written");
    gguf_edit_remove_key(&e, "%.rope.scaling.type");
    ok(gguf_edit_set_tensor_f32(&e, "blk.0.pos_alibi.slope", 1, &n, numbers, &err), &err);
    assert_not_written(&e, "tensor blk.0.pos_alibi.slope has no place");
    gguf_edit_remove_tensor(&e, "blk.0.pos_alibi.slope");
    struct gguf_edit_tensor quantised = {
        .name = "blk.0.ffn_up.weight", .type = 8, .n_dims = 2, .ne = {64, 1}, .data = numbers};
    ok(gguf_edit_set_tensor(&e, &quantised, &err), &err);
    assert_not_written(&e, "tensor blk.0.ffn_up.weight has type Q8_0");
    gguf_edit_remove_tensor(&e, "blk.0.ffn_up.weight");
    assert_not_written(&e, "tensor blk.0.ffn_up.weight is missing");
    ok(gguf_edit_rename_arch(&e, "zerope-llama", &err), &err);
    assert_not_written(&e, "architecture zerope-llama cannot be written");
    gguf_edit_free(&e);
    gguf_close(&g);
}

/* Hands out the rows of a tensor that has data. */
static zp_status fill_from(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    const struct gguf_tensor *t = arg;
    uint64_t row = gguf_tensor_row_bytes(t);
    (void)err;
    memcpy(out, t->data + first * row, (size_t)(n * row));
    return ZP_OK;
}

static void test_callbacks_write_the_same_folder(void **state)
{
    (void)state;
    struct gguf g, h;
    struct gguf_edit e;
    zp_err err = {0};
    start_edit(&g, &e);
    for (uint32_t i = 0; i < g.n_tensors; i++) {
        struct gguf_edit_tensor *t = &e.tensors[i];
        if (t->n_dims != 2) continue;
        t->data = NULL;
        t->fill = fill_from;
        t->fill_arg = &g.tensors[i];
    }
    ok(hf_write(folder, &e, NULL, &err), &err);
    ok(hf_open(&h, folder, &err), &err);
    assert_same_models(&g, &h);
    gguf_close(&h);
    gguf_edit_free(&e);
    gguf_close(&g);
    remove_files();
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    unsigned n = 1;
    for (;; n += n < 200 ? 1 : 7) {
        struct gguf g, h = {0};
        struct gguf_edit e = {0};
        zp_err err = {0};
        mem_fail_at(n, false);
        zp_status status = hf_open(&g, data_path("qwen2"), &err);
        if (status == ZP_OK) status = gguf_edit_init(&e, &g, &err);
        if (status == ZP_OK) status = hf_write(folder, &e, NULL, &err);
        if (status == ZP_OK) status = hf_open(&h, folder, &err);
        bool injected = mem_fail_count() > 0;
        mem_fail_at(0, false);
        gguf_edit_free(&e);
        gguf_close(&g);
        gguf_close(&h);
        assert_int_equal(live_bytes(), before);
        if (!injected) break;
        if (status != ZP_NO_MEMORY) fail_msg("allocation %u: %s", n, err.message);
    }
    assert_true(n > 50);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_written_folder_is_the_same_model),
        cmocka_unit_test(test_closed_pairs_become_llama3_scaling),
        cmocka_unit_test(test_layers_without_rope_become_smollm3),
        cmocka_unit_test(test_what_the_format_cannot_say_is_refused),
        cmocka_unit_test(test_callbacks_write_the_same_folder),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
