/* test_stretch.c: a stretched model computes, bit for bit, what a file with those keys computes,
 * and models for which a stretching means nothing are refused. */
#include "golden.h"
#include "in_folder.h"

#include "model/gguf_write.h"
#include "model/model.h"

enum { CTX = 256 };

static zp_model *open_as(const char *path, const char *scaling)
{
    zp_model *m = NULL;
    zp_model_options o = { .rope_scaling = scaling };
    GOLDEN_OK(zp_model_open(&m, path, &o, err));
    return m;
}

static const char *small(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    return path;
}

static float *logits_of(const zp_model *m)
{
    int32_t ids[CTX];
    for (int i = 0; i < CTX; i++) ids[i] = i * 7 % 251 + 3;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = CTX, .exact = true });
    float *logits = golden_logits(e, m, ids, CTX);
    zp_engine_close(e);
    return logits;
}

struct keys {
    float base;       /* 0: left alone */
    const char *type; /* NULL: left alone */
    float factor;
};

static const char *with_keys(const char *name, struct keys k)
{
    struct gguf g;
    struct gguf_edit e;
    const char *path = in_folder("keys.gguf");
    GOLDEN_OK(gguf_open(&g, small(name), err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    if (k.base != 0) GOLDEN_OK(gguf_edit_set_f32(&e, "%.rope.freq_base", k.base, err));
    if (k.type) GOLDEN_OK(gguf_edit_set_str(&e, "%.rope.scaling.type", k.type, err));
    if (k.type) GOLDEN_OK(gguf_edit_set_f32(&e, "%.rope.scaling.factor", k.factor, err));
    GOLDEN_OK(gguf_edit_write(&e, path, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    return path;
}

static void check_same(const char *name, const char *scaling, struct keys k)
{
    zp_model *stretched = open_as(small(name), scaling), *plain = open_as(small(name), NULL);
    zp_model *file = open_as(with_keys(name, k), NULL);
    size_t bytes = (size_t)CTX * file->h.n_vocab * sizeof(float);
    float *a = logits_of(stretched), *b = logits_of(file), *c = logits_of(plain);
    assert_memory_equal(a, b, bytes);
    assert_true(memcmp(a, c, bytes) != 0); /* or it would show nothing */
    assert_string_not_equal(zp_model_sha256(stretched), zp_model_sha256(plain));
    free(a), free(b), free(c);
    zp_model_close(stretched);
    zp_model_close(plain);
    zp_model_close(file);
}

static void test_stretched_models_are_files_with_those_keys(void **state)
{
    (void)state;
    /* Heads of 8, 12 and 10 rotated channels; the last has windowed layers with a base of their
     * own, whose angles stay. */
    check_same("gguf-qwen2", "linear:4", (struct keys){ .type = "linear", .factor = 4 });
    check_same("gguf-qwen2", "yarn:4", (struct keys){ .type = "yarn", .factor = 4 });
    check_same("gguf-qwen2", "ntk:4",
               (struct keys){ .base = (float)(1e6 * pow(4, 8.0 / 6.0)) });
    check_same("gguf-qwen3", "ntk:2.5",
               (struct keys){ .base = (float)(1e6 * pow(2.5, 12.0 / 10.0)) });
    check_same("zerope-gemma3", "ntk:8",
               (struct keys){ .base = (float)(1e6 * pow(8, 10.0 / 8.0)) });
    check_same("zerope-gemma3", "linear:2", (struct keys){ .type = "linear", .factor = 2 });
    check_same("zerope-mixed", "linear:4", (struct keys){ .type = "linear", .factor = 4 });
    check_same("gguf-llama-llama3", "yarn:2", (struct keys){ .type = "yarn", .factor = 2 });
}

static void test_windowed_layers_without_a_base_of_their_own_follow(void **state)
{
    (void)state;
    zp_model *m = NULL;
    zp_model_options o = { .rope_scaling = "ntk:4" };
    GOLDEN_OK(zp_model_open(&m, small("gguf-qwen2"), &o, err));
    assert_true(m->h.rope_base > 1e6f && m->h.rope_base_swa == m->h.rope_base);
    zp_model_close(m);
    GOLDEN_OK(zp_model_open(&m, small("zerope-gemma3"), &o, err));
    assert_true(m->h.rope_base > 1e6f && m->h.rope_base_swa == 1e4f);
    zp_model_close(m);
}

static void refuse(const char *name, const char *scaling, zp_status status, const char *words)
{
    zp_model *m = NULL;
    zp_err err = { 0 };
    zp_model_options o = { .rope_scaling = scaling };
    assert_int_equal(zp_model_open(&m, small(name), &o, &err), status);
    assert_null(m);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
}

static void test_what_means_nothing_is_refused(void **state)
{
    (void)state;
    static const char *const scalings[] = { "ntk:4", "linear:4", "yarn:4" };
    for (size_t i = 0; i < ZP_COUNT(scalings); i++) {
        refuse("zerope-alibi", scalings[i], ZP_UNSUPPORTED, "means nothing here");
        refuse("gguf-granite-none", scalings[i], ZP_UNSUPPORTED, "means nothing here");
        refuse("gguf-llama-linear", scalings[i], ZP_UNSUPPORTED, "one of its own (linear by 4)");
        refuse("gguf-llama-yarn", scalings[i], ZP_UNSUPPORTED, "one of its own (yarn by 4)");
    }
}

static void test_other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const unknown[] = { "", "ntk", "4", "ntk4", "NTK:4", "dynamic:4", ":4" };
    static const char *const numbers[] = { "ntk:",    "ntk:x",     "ntk:1",   "ntk:0.5", "ntk:-4",
                                           "ntk:4x",  "ntk:4:2",   "yarn:nan", "yarn:inf",
                                           "linear:1e5", "linear:1e-40" };
    for (size_t i = 0; i < ZP_COUNT(unknown); i++)
        refuse("gguf-qwen2", unknown[i], ZP_USAGE, "known: ntk:S, linear:S, yarn:S");
    for (size_t i = 0; i < ZP_COUNT(numbers); i++)
        refuse("gguf-qwen2", numbers[i], ZP_USAGE, "expected a number above 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stretched_models_are_files_with_those_keys),
        cmocka_unit_test(test_windowed_layers_without_a_base_of_their_own_follow),
        cmocka_unit_test(test_what_means_nothing_is_refused),
        cmocka_unit_test(test_other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
