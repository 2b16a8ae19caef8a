/* test_notes.c: what the library tells the caller's sink about models and engines, and at which
 * level. */
#include "golden.h"

#include <unistd.h>

#include "model/gguf_write.h"

static char file[] = "/tmp/zerope-notes-XXXXXX";

struct heard {
    char text[4096]; /* lines "level text\n" */
    size_t size;
};

static void listen(void *arg, int level, const char *text)
{
    struct heard *h = arg;
    int n = snprintf(h->text + h->size, sizeof h->text - h->size, "%d %s\n", level, text);
    assert_true(n > 0 && h->size + (size_t)n < sizeof h->text);
    h->size += (size_t)n;
}

/* Opens the model and an engine, and closes them. */
static void open_and_close(const char *path, uint32_t n_threads)
{
    zp_model *m = NULL;
    zp_engine_options o = { .n_ctx = 40, .n_threads = n_threads, .level = ZP_LEVEL_REF };
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    zp_engine *e = golden_engine(m, o);
    float *logits = golden_logits(e, m, (const int32_t[]){ 1, 2, 3 }, 3);
    free(logits);
    zp_engine_close(e);
    zp_model_close(m);
}

static void assert_heard(const struct heard *h, const char *part)
{
    if (!strstr(h->text, part)) fail_msg("'%s' is missing in:\n%s", part, h->text);
}

/* llama without the key of its base and without a tokenizer. */
static void write_poorer(void)
{
    struct gguf g;
    struct gguf_edit e;
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf", err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    gguf_edit_remove_key(&e, "%.rope.freq_base");
    gguf_edit_remove_key(&e, "tokenizer.ggml.model");
    GOLDEN_OK(gguf_edit_write(&e, file, err));
    gguf_edit_free(&e);
    gguf_close(&g);
}

static void test_sink_hears_of_engines_and_of_what_a_model_lacks(void **state)
{
    (void)state;
    struct heard h = { .size = 0 };
    zp_log_set(listen, &h, 3);
    open_and_close(file, 2);
    zp_log_set(NULL, NULL, 0);
    assert_heard(&h, "2 engine: kernels ref, 2 threads, context 40,");
    assert_heard(&h, "KV bf16; weights ");
    assert_heard(&h, "no key rope.freq_base: base 10000, the default for llama\n");
    assert_heard(&h, "2 no text with this model: ");
    assert_heard(&h, "comes without a tokenizer");
}

static void test_base_in_the_file_is_not_worth_a_note(void **state)
{
    (void)state;
    struct heard h = { .size = 0 };
    zp_log_set(listen, &h, 3);
    open_and_close(ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf", 1);
    zp_log_set(NULL, NULL, 0);
    assert_null(strstr(h.text, "freq_base"));
}

/* Level 1 is what the program shows unless asked for more. */
static void test_usable_models_give_no_warning(void **state)
{
    (void)state;
    for (int level = 0; level <= 1; level++) {
        struct heard h = { .size = 0 };
        zp_log_set(listen, &h, level);
        open_and_close(file, 1);
        zp_log_set(NULL, NULL, 0);
        assert_string_equal(h.text, "");
    }
}

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    if (fd < 0 || close(fd) != 0) return -1;
    write_poorer();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink_hears_of_engines_and_of_what_a_model_lacks),
        cmocka_unit_test(test_base_in_the_file_is_not_worth_a_note),
        cmocka_unit_test(test_usable_models_give_no_warning),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
