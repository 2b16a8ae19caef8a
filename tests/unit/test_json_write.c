/* test_json_write.c: texts and numbers that JSON cannot hold become ones that it can, and the
 * reports of a model with boundless logits are written whole. */
#include "golden.h"

#include <unistd.h>
#include <zerope/evap.h>

#include "model/gguf_write.h"
#include "base/json_tree.h"

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-granite.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

static void bad_bytes_become_replacement_characters(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "", "" },
        { "plain", "plain" },
        { "caf\xc3\xa9", "caf\xc3\xa9" },
        { "caf\xe9.gguf", "caf\xef\xbf\xbd.gguf" },
        { "\xff", "\xef\xbf\xbd" },
        { "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "a\xffZ\xc3", "a\xef\xbf\xbdZ\xef\xbf\xbd" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* a surrogate */
    };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        json_t *value = json_tree_text(cases[i][0]);
        assert_non_null(value);
        assert_string_equal(json_string_value(value), cases[i][1]);
        json_decref(value);
    }
}

static void numbers_that_are_not_finite_become_null(void **state)
{
    (void)state;
    static const double others[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < ZP_COUNT(others); i++)
        assert_true(json_is_null(json_tree_real(others[i])));
    json_t *value = json_tree_real(-1.5e300);
    assert_true(json_real_value(value) == -1.5e300);
    json_decref(value);
}

static const json_t *get(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    if (value == NULL) fail_msg("%s is missing", key);
    return value;
}

static void infinite_perplexity_is_null_in_every_report(void **state)
{
    (void)state;
    char big[] = "/tmp/zerope-big-XXXXXX", out[] = "/tmp/zerope-out-XXXXXX", *text = NULL;
    close(mkstemp(big));
    close(mkstemp(out));
    struct gguf g;
    struct gguf_edit e;
    GOLDEN_OK(gguf_open(&g, MODEL, err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_f32(&e, "%.logit_scale", 1e-6f, err)); /* logits are divided by it */
    GOLDEN_OK(gguf_edit_write(&e, big, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    zp_scan_options scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 };
    zp_evaporate_options o = { .scan = scan, .close_all = true, .n_windows_check = 2 };
    zp_verify_options v = { .n_ctx = 64, .budget_kl = 1.0, .quick = true };
    GOLDEN_OK(zp_evaporate_run(big, TEXT, &o, out, &text, err));
    json_t *root = json_loads(text, 0, NULL);
    assert_true(json_is_null(get(root, "ppl_before")) && json_is_null(get(root, "ppl_after")));
    json_decref(root);
    zp_free(text);
    zp_status status = zp_verify_run(out, big, TEXT, &v, &text, NULL);
    assert_true(status == ZP_OK || status == ZP_VERIFY);
    root = json_loads(text, 0, NULL);
    assert_true(json_is_null(get(get(root, "quality"), "ppl")));
    json_decref(root);
    zp_free(text);
    remove(big);
    remove(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_bytes_become_replacement_characters),
        cmocka_unit_test(numbers_that_are_not_finite_become_null),
        cmocka_unit_test(infinite_perplexity_is_null_in_every_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
