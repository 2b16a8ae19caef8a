/* test_arch_keys.c: numbers of a model's keys that make every result useless are refused by
 * name. */
#include "golden.h"

#include "model/gguf_write.h"
#include "in_folder.h"

static zp_status open_with(const char *model, const char *key, float value, zp_err *failure)
{
    char path[1024];
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", model);
    GOLDEN_OK(gguf_open(&g, path, err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_f32(&e, key, value, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("model.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    zp_status status = zp_model_open(&m, in_folder("model.gguf"), NULL, failure);
    zp_model_close(m);
    return status;
}

static const struct {
    const char *model, *key;
    bool zero; /* has a meaning of its own */
} keys[] = {
    { "gguf-llama-yarn", "%.rope.freq_base", false },
    { "gguf-gemma3", "%.rope.freq_base_swa", false },
    { "gguf-llama-yarn", "%.rope.scaling.factor", true },
    { "gguf-llama-linear", "%.rope.scaling.factor", true },
    { "gguf-llama-yarn", "%.rope.scaling.original_context_length", false },
    { "gguf-llama-yarn", "%.rope.scaling.attn_factor", true },
    { "gguf-llama-yarn", "%.rope.scaling.yarn_beta_fast", true },
    { "gguf-llama-yarn", "%.rope.scaling.yarn_beta_slow", true },
    { "gguf-llama-yarn", "%.rope.scaling.yarn_ext_factor", true },
    { "gguf-qwen3", "%.attention.scale", false },
    { "gguf-qwen3", "%.attention.layer_norm_rms_epsilon", false },
    { "gguf-granite", "%.embedding_scale", false },
    { "gguf-granite", "%.residual_scale", false },
    { "gguf-granite", "%.logit_scale", false },
};

static void numbers_without_use_are_refused_by_name(void **state)
{
    (void)state;
    static const float values[] = { INFINITY, -INFINITY, NAN, -1.0f, 3e38f, 0.0f };
    for (size_t k = 0; k < ZP_COUNT(keys); k++)
        for (size_t i = 0; i < ZP_COUNT(values); i++) {
            zp_err err = { 0 };
            if (values[i] == 0.0f && keys[k].zero) continue;
            zp_status status = open_with(keys[k].model, keys[k].key, values[i], &err);
            if (status != ZP_BAD_FILE || !strstr(err.message, strrchr(keys[k].key, '.') + 1))
                fail_msg("%s = %g: %s: %s", keys[k].key, (double)values[i], zp_status_name(status),
                         err.message);
        }
    zp_err err = { 0 };
    assert_int_equal(open_with("gguf-llama-linear", "%.rope.scaling.factor", 1e-45f, &err),
                     ZP_BAD_FILE);
    static const float bases[] = { 1e-45f, 0.5f, 1.0f }; /* nothing to tell the pairs apart by */
    for (size_t i = 0; i < ZP_COUNT(bases); i++) {
        err = (zp_err){ 0 };
        assert_int_equal(open_with("gguf-llama-yarn", "%.rope.freq_base", bases[i], &err),
                         ZP_BAD_FILE);
        assert_non_null(strstr(err.message, "freq_base"));
    }
}

static zp_status open_with_divisor(float divisor, zp_err *failure)
{
    const float divisors[] = { 1.0f, 1.0f, divisor, 1e30f };
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf", err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 1, (const uint64_t[]){ 4 },
                                       divisors, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("model.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    zp_status status = zp_model_open(&m, in_folder("model.gguf"), NULL, failure);
    zp_model_close(m);
    return status;
}

static void divisors_without_use_are_refused(void **state)
{
    static const float values[] = { NAN, 0.0f, -0.0f, -1.0f, -INFINITY, 1e-45f };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(values); i++) {
        zp_err err = { 0 };
        zp_status status = open_with_divisor(values[i], &err);
        if (status != ZP_BAD_FILE || !strstr(err.message, "rope_freqs.weight[2] is "))
            fail_msg("%g: %s: %s", (double)values[i], zp_status_name(status), err.message);
    }
    GOLDEN_OK(open_with_divisor(8.0f, err));
    GOLDEN_OK(open_with_divisor(INFINITY, err));
}

static void usual_numbers_are_taken(void **state)
{
    (void)state;
    GOLDEN_OK(open_with("gguf-llama-linear", "%.rope.freq_base", 1e7f, err));
    GOLDEN_OK(open_with("gguf-llama-linear", "%.rope.scaling.factor", 0.0f, err));
    GOLDEN_OK(open_with("gguf-llama-linear", "%.rope.scaling.factor", 1e30f, err));
    GOLDEN_OK(open_with("gguf-granite", "%.logit_scale", 16.0f, err));
    GOLDEN_OK(open_with("gguf-granite", "%.embedding_scale", 12.0f, err));
    GOLDEN_OK(open_with("gguf-granite", "%.attention.scale", 0.0078125f, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_without_use_are_refused_by_name),
        cmocka_unit_test(divisors_without_use_are_refused),
        cmocka_unit_test(usual_numbers_are_taken),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
