/* test_weights.c: a tensor of the file is computed with or refused by name. */
#include "golden.h"

#include "model/gguf_write.h"
#include "in_folder.h"

/* Opens an engine over a small model to which a tensor was added. */
static zp_status open_with(const char *model, const char *tensor, zp_err *failure)
{
    static const float values[64] = { 0 };
    const uint64_t n = 64;
    char path[1024];
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    zp_engine *engine = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", model);
    GOLDEN_OK(gguf_open(&g, path, err));
    assert_null(gguf_find_tensor(&g, tensor));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_tensor_f32(&e, tensor, 1, &n, values, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("model.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    GOLDEN_OK(zp_model_open(&m, in_folder("model.gguf"), NULL, err));
    zp_status status =
        zp_engine_open(&engine, m, &(zp_engine_options){ .n_ctx = 16, .n_threads = 1 }, failure);
    zp_engine_close(engine);
    zp_model_close(m);
    return status;
}

static void test_tensors_nothing_computes_with_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "zerope-mixed" };
    static const char *const tensors[] = {
        /* of the whole model: a bias, a norm, a second head, factors by length */
        "output.bias", "output_norm.bias", "token_embd_norm.weight", "position_embd.weight",
        "rope_factors_short.weight", "cls.weight", "x",
        /* of a layer: experts, norms, divisors, layers past the last */
        "blk.0.ffn_gate_inp.weight", "blk.0.ffn_down.bias", "blk.0.attn_norm.bias",
        "blk.0.rope_freqs.weight", "blk.99.attn_norm.weight", "blk.00.attn_norm.weight",
        "blk.attn_norm.weight", "blk.-1.attn_norm.weight", "blk.0attn_norm.weight", "blk."
    };
    for (size_t m = 0; m < ZP_COUNT(models); m++)
        for (size_t i = 0; i < ZP_COUNT(tensors); i++) {
            zp_err err = { 0 };
            zp_status status = open_with(models[m], tensors[i], &err);
            char named[80];
            snprintf(named, sizeof named, "tensor %s is not one", tensors[i]);
            if (status != ZP_UNSUPPORTED || !strstr(err.message, named))
                fail_msg("%s with %s: %s: %s", models[m], tensors[i], zp_status_name(status),
                         err.message);
        }
}

/* Old converters wrote the angles of each layer, which the keys tell as well. */
static void test_repeated_angles_are_taken(void **state)
{
    (void)state;
    zp_err err = { 0 };
    assert_int_equal(open_with("gguf-llama-yarn", "blk.0.attn_rot_embd", &err), ZP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_nothing_computes_with_are_refused_by_name),
        cmocka_unit_test(test_repeated_angles_are_taken),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
