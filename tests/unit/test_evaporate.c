/* test_evaporate.c: scan, plan, snap and verify on a small random model, in every way of choosing:
 * the promise holds for the written file, the file does what its report says, and a file can be
 * evaporated again. */
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

#include <zerope/evap.h>
#include <zerope/zerope.h>
#include "in_folder.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        zp_err check_err = { 0 }, *err = &check_err;                       \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, check_err.message); \
    } while (0)

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

/* Sanitizers slow this down; gates alone and local heads show them all code there is. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 5 };
#else
enum { STEP = 1 };
#endif
enum { CTX = 512, REACH = 64, GATES = 16, HEADS = 4 }; /* bytes are tokens here: prompts are long */

static json_t *evaporate(const char *model, zp_plan_options plan, const char *out)
{
    zp_evaporate_options o = { .scan = { .n_ctx = CTX, .n_threads = 2 }, .plan = plan };
    char *text = NULL;
    o.plan.n_threads = 2;
    CHECK(zp_evaporate_run(model, TEXT, &o, out, &text, err));
    json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(report);
    zp_free(text);
    return report;
}

static double number(const json_t *report, const char *key)
{
    const json_t *v = json_object_get(report, key);
    if (!json_is_number(v)) fail_msg("%s is missing or no number", key);
    return json_number_value(v);
}

/* The report keeps the promise and says what the file says; verify agrees. */
static void check_promise(const json_t *report, const char *file, double budget)
{
    zp_model *m;
    zp_model_info info;
    zp_verify_options o = { .n_threads = 2 };
    char *text = NULL;
    assert_true(number(report, "kl_hi") <= budget);
    assert_true(number(report, "kl_mean") <= number(report, "kl_hi"));
    assert_int_equal(number(report, "ctx"), CTX);
    CHECK(zp_model_open(&m, file, NULL, err));
    zp_model_describe(m, &info);
    assert_int_equal(info.gates_closed, number(report, "closed"));
    assert_int_equal(info.heads_local, number(report, "heads_local"));
    assert_int_equal(info.layers_none, number(report, "layers_none"));
    assert_int_equal(info.n_ctx_validated, CTX);
    zp_model_close(m);
    CHECK(zp_verify_run(file, MODEL, TEXT, &o, &text, err));
    zp_free(text);
}

static void check_choice(zp_plan_options plan, const char *name)
{
    static const double budgets[] = { 1e-7, 3e-6, 1e-4 };
    double before = -1.0;
    for (size_t i = 0; i < 3; i++) {
        plan.budget_kl = budgets[i];
        json_t *report = evaporate(MODEL, plan, in_folder(name));
        double closed = number(report, "closed") + number(report, "heads_local");
        printf("  %-14s budget %g: %g gates, %g heads local, upper bound %.3g\n", name, budgets[i],
               number(report, "closed"), number(report, "heads_local"), number(report, "kl_hi"));
        check_promise(report, in_folder(name), budgets[i]);
        bool folded = json_is_true(json_object_get(report, "folded"));
        assert_int_equal(folded, number(report, "closed") > 0.0 && !plan.no_fold);
        assert_true(closed >= before);
        before = closed;
        json_decref(report);
    }
    assert_true(before > 0.0);
}

/* Closing what matters least costs so little that its KL rounds to below zero: still it is there to
 * be closed, which -1 would deny. */
static void test_every_open_pair_is_ranked(void **state)
{
    static const char *const lists[] = { "kl_head", "kl_layer", "kl_pair", "kl_local" };
    zp_scan_options o = { .n_ctx = 32, .n_windows_local = 2, .n_windows_kl = 1, .n_threads = 1 };
    (void)state;
    CHECK(zp_scan_run(MODEL, TEXT, &o, in_folder("scan.json"), err));
    json_t *scan = json_load_file(in_folder("scan.json"), 0, NULL), *value;
    for (size_t k = 0, i; k < 4; k++)
        json_array_foreach(json_object_get(scan, lists[k]), i, value)
            assert_true(json_number_value(value) >= 0.0); /* every gate of this model is open */
    assert_int_equal(json_array_size(json_object_get(scan, "kl_pair")), 4);
    json_decref(scan);
}

static void test_every_shape_of_plan(void **state)
{
    static const struct {
        zp_plan_options plan;
        const char *file;
    } shapes[] = {
        { { 0 }, "gates.gguf" },
        { { .no_fold = true }, "no-fold.gguf" },
        { { .uniform = true }, "uniform.gguf" },
        { { .uniform_slow = true }, "slow.gguf" },
        { { .layers = true }, "layers.gguf" },
        { { .local_window = REACH }, "local.gguf" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += STEP)
        check_choice(shapes[i].plan, shapes[i].file);
}

/* Ids of a text by the model of that file; *n of them. */
static int32_t *ids_of(const char *path, size_t *n)
{
    static const char text[] = "<s>Naïve 12 texts  \n";
    zp_model *m;
    int32_t *ids;
    CHECK(zp_model_open(&m, path, NULL, err));
    CHECK(zp_tokenize(m, text, strlen(text), ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, &ids, n, err));
    zp_model_close(m);
    return ids;
}

static void test_a_folder_brings_its_tokenizer_along(void **state)
{
    static const char source[] = ZP_TEST_DATA "/arch/qwen2";
    (void)state;
    json_decref(evaporate(source, (zp_plan_options){ .budget_kl = 1e-4 }, in_folder("f.gguf")));
    char *report = NULL;
    CHECK(zp_quantize(in_folder("f.gguf"), in_folder("f8.gguf"), "q8_0", NULL, &report, err));
    zp_free(report);
    const char *const files[] = { in_folder("f.gguf"), in_folder("f8.gguf") };
    size_t n, n_other;
    int32_t *ids = ids_of(source, &n);
    for (int i = 0; i < 2; i++) {
        int32_t *other = ids_of(files[i], &n_other);
        assert_int_equal(n_other, n);
        assert_memory_equal(other, ids, n * sizeof *ids);
        zp_free(other);
    }
    zp_free(ids);
}

static zp_status verify(const char *file, const char *base, zp_verify_options o, json_t **doc)
{
    char *text = NULL;
    zp_err err = { 0 };
    *doc = NULL;
    o.n_threads = 2;
    zp_status status = zp_verify_run(file, base, TEXT, &o, &text, &err);
    if (text) *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    else if (status != ZP_OK) assert_true(err.message[0] != '\0');
    zp_free(text);
    return status;
}

static void assert_says(const json_t *doc, const char *status, bool written)
{
    assert_string_equal(json_string_value(json_object_get(doc, "status")), status);
    assert_int_equal(json_is_true(json_object_get(doc, "evidence_written")), written);
}

static bool has_evidence(const char *file)
{
    zp_model *m;
    zp_model_info info;
    CHECK(zp_model_open(&m, file, NULL, err));
    zp_model_describe(m, &info);
    char *text;
    CHECK(zp_inspect_json(m, NULL, &text, err));
    bool has = strstr(text, "\"has_evidence\":true") || strstr(text, "\"has_evidence\": true");
    zp_free(text);
    zp_model_close(m);
    return has;
}

/* Every second position counts: of the second half for the promise, of all for the buckets. */
static void assert_positions(const json_t *doc)
{
    const json_t *quality = json_object_get(doc, "quality"), *b;
    double windows = number(quality, "windows"), sum = 0.0;
    size_t i;
    json_array_foreach(json_object_get(doc, "buckets"), i, b) sum += number(b, "positions");
    assert_true(number(quality, "positions") == windows * CTX / 4); /* 256, 258 .. 510 */
    assert_true(sum == windows * (CTX / 2 - 1)); /* 2, 4 .. 510 */
}

/* What is written into a file has been shown in full, against the original the file names. */
static void test_evidence_vouches_for_no_more_than_was_run(void **state)
{
    static const char other[] = ZP_TEST_DATA "/arch/gguf/gguf-llama-yarn.gguf";
    (void)state;
    const char *file = in_folder("v.gguf");
    zp_verify_options o = { .write_evidence = true, .quick = true };
    json_t *doc;
    json_decref(evaporate(MODEL, (zp_plan_options){ .budget_kl = 1e-4 }, file));
    assert_int_equal(verify(file, MODEL, o, &doc), ZP_OK);
    assert_says(doc, "pass", false);
    assert_true(json_is_true(json_object_get(doc, "quick")));
    assert_positions(doc);
    json_decref(doc);
    o.quick = false;
    assert_int_equal(verify(file, other, o, &doc), ZP_OK); /* same shape, another model */
    assert_says(doc, "inconclusive", false);
    json_decref(doc);
    assert_int_equal(verify(file, ZP_TEST_DATA "/arch/gguf/gguf-qwen3.gguf", o, &doc),
                     ZP_BAD_INPUT);
    assert_int_equal(verify(MODEL, MODEL, o, &doc), ZP_BAD_INPUT); /* no file to write into */
    assert_false(has_evidence(file));
    assert_int_equal(verify(file, MODEL, o, &doc), ZP_OK);
    assert_says(doc, "pass", true);
    assert_true(has_evidence(file));
    json_decref(doc);
}

static void test_again(void **state)
{
    (void)state;
    json_t *first = evaporate(MODEL, (zp_plan_options){ .budget_kl = 3e-6 }, in_folder("1.gguf"));
    json_t *second =
        evaporate(in_folder("1.gguf"), (zp_plan_options){ .budget_kl = 1.0 }, in_folder("2.gguf"));
    assert_true(number(second, "closed") >= number(first, "closed"));
    assert_int_equal(number(second, "closed"), GATES);
    json_decref(first);
    json_decref(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_open_pair_is_ranked),
        cmocka_unit_test(test_every_shape_of_plan),
        cmocka_unit_test(test_a_folder_brings_its_tokenizer_along),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_evidence_vouches_for_no_more_than_was_run),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
