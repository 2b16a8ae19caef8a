/* test_evaporate_steps.c: steps that build on earlier ones, on small random models: a scan or plan
 * that is read back counts as if it had just been made, a second round is measured against the
 * first original, and nothing vouches for what it has not seen. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include <zerope/evap.h>
#include <zerope/zerope.h>
#include "base/os.h"
#include "in_folder.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        zp_err check_err = { 0 }, *err = &check_err;                       \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, check_err.message); \
    } while (0)

#define DATA ZP_TEST_DATA "/arch/gguf/"
#define MODEL DATA "gguf-llama-linear.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

enum { CTX = 64 };

static zp_evaporate_options usual(double budget)
{
    return (zp_evaporate_options){ .scan = { .n_ctx = CTX, .n_threads = 1 },
                                   .plan = { .budget_kl = budget } };
}

static json_t *evaporate(const char *model, const char *text, zp_evaporate_options o,
                         const char *out)
{
    char *json = NULL;
    CHECK(zp_evaporate_run(model, text, &o, out, &json, err));
    json_t *report = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(report);
    zp_free(json);
    return report;
}

static void refuse(const char *model, zp_evaporate_options o, zp_status status, const char *part)
{
    zp_err err = { 0 };
    assert_int_equal(zp_evaporate_run(model, TEXT, &o, in_folder("refused.gguf"), NULL, &err),
                     status);
    if (!strstr(err.message, part)) fail_msg("'%s' lacks '%s'", err.message, part);
    assert_false(os_exists(in_folder("refused.gguf")));
}

static double number(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    if (!json_is_number(v)) fail_msg("%s is missing or no number", key);
    return json_number_value(v);
}

static json_t *load(const char *path)
{
    json_t *doc = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!doc) fail_msg("%s is no JSON", path);
    return doc;
}

static json_t *inspect(const char *path)
{
    zp_model *m;
    char *text;
    CHECK(zp_model_open(&m, path, NULL, err));
    CHECK(zp_inspect_json(m, NULL, &text, err));
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    zp_free(text);
    zp_model_close(m);
    return doc;
}

static uint32_t validated(const char *path)
{
    zp_model *m;
    zp_model_info info;
    CHECK(zp_model_open(&m, path, NULL, err));
    zp_model_describe(m, &info);
    zp_model_close(m);
    return info.n_ctx_validated;
}

static void assert_same_files(const char *a, const char *b)
{
    struct buffer x = buffer_with_max(MEM_META, 64 << 20), y = x;
    CHECK(os_read_file(a, &x, err));
    CHECK(os_read_file(b, &y, err));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    buffer_free(&x);
    buffer_free(&y);
}

/* ---- scans and plans ------------------------------------------------------------------------- */

static void test_a_scan_read_back_gives_the_same_file(void **state)
{
    (void)state;
    static const zp_plan_options ways[] = { { .budget_kl = 2e-6 },
                                            { .budget_kl = 2e-6, .layers = true },
                                            { .budget_kl = 2e-6, .uniform = true } };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        zp_evaporate_options o = usual(0.0);
        o.plan = ways[i];
        o.scan_out = in_folder("s.json"), o.plan_out = in_folder("p.json");
        json_decref(evaporate(MODEL, TEXT, o, in_folder("a.gguf")));
        o.scan_in = o.scan_out, o.scan_out = NULL, o.plan_out = in_folder("p2.json");
        json_decref(evaporate(MODEL, TEXT, o, in_folder("b.gguf")));
        assert_same_files(in_folder("a.gguf"), in_folder("b.gguf"));
        assert_same_files(in_folder("p.json"), in_folder("p2.json"));
    }
}

static void scan_and_plan(zp_plan_options wish)
{
    zp_scan_options s = { .n_ctx = CTX, .n_threads = 1, .local_window = wish.local_window };
    wish.n_threads = 1;
    CHECK(zp_scan_run(MODEL, TEXT, &s, in_folder("s.json"), err));
    CHECK(zp_plan_run(in_folder("s.json"), &wish, in_folder("p.json"), err));
}

/* Nothing more closes than the plan closes, whatever the budget, and it is told as it was made. */
static void test_a_plan_is_followed_and_no_further(void **state)
{
    (void)state;
    static const zp_plan_options wishes[] = { { .budget_kl = 1e-6, .uniform = true },
                                              { .budget_kl = 1e-6, .no_fold = true } };
    for (size_t i = 0; i < 2; i++) {
        zp_evaporate_options o = usual(1.0);
        scan_and_plan(wishes[i]);
        o.plan_in = in_folder("p.json"), o.plan_out = in_folder("p2.json");
        json_t *report = evaporate(MODEL, TEXT, o, in_folder("a.gguf"));
        json_t *plan = load(in_folder("p.json")), *again = load(in_folder("p2.json"));
        json_t *doc = inspect(in_folder("a.gguf")), *recipe = json_object_get(doc, "recipe");
        assert_true(number(plan, "closed") > 0.0 && number(plan, "closed") < 16.0);
        assert_true(number(report, "closed") == number(plan, "closed"));
        /* the plan's KL is what its outcome measures */
        assert_true(fabs(number(again, "kl_mean") - number(plan, "kl_mean")) < 1e-9);
        assert_true(number(again, "budget_kl") == 1.0);
        assert_int_equal(json_is_true(json_object_get(recipe, "uniform")), wishes[i].uniform);
        assert_int_equal(json_is_true(json_object_get(report, "folded")), !wishes[i].no_fold);
        json_decref(report), json_decref(plan), json_decref(again), json_decref(doc);
    }
}

static bool nothing_is_measured(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    fail_msg("measured: %s", what);
    return false;
}

static void test_what_does_not_fit_is_refused_before_measuring(void **state)
{
    (void)state;
    zp_evaporate_options o = usual(1e-6);
    scan_and_plan((zp_plan_options){ .budget_kl = 1e-6 });
    o.scan.progress.fn = nothing_is_measured;
    o.scan_in = in_folder("s.json");
    refuse(DATA "gguf-llama-yarn.gguf", o, ZP_BAD_INPUT, "the scan was made of another model");
    o.scan.n_ctx = 2 * CTX;
    refuse(MODEL, o, ZP_BAD_INPUT, "a scan holds for its own length only");
    o.scan.n_ctx = CTX, o.plan.local_window = 16;
    refuse(MODEL, o, ZP_BAD_INPUT, "scan again with --local 16");
    o.plan.local_window = 0, o.scan_in = NULL, o.plan_in = in_folder("p.json");
    refuse(DATA "gguf-llama-yarn.gguf", o, ZP_BAD_INPUT, "the plan was made for another model");
    o.scan.n_ctx = 2 * CTX;
    refuse(MODEL, o, ZP_BAD_INPUT, "a plan holds for its own length only");
}

static void test_contradictory_wishes_are_refused(void **state)
{
    (void)state;
    zp_evaporate_options o = usual(1e-6);
    o.scan.progress.fn = nothing_is_measured;
    const zp_plan_options both[] = { { .uniform = true, .layers = true },
                                     { .uniform = true, .uniform_slow = true },
                                     { .uniform = true, .local_window = 16 },
                                     { .layers = true, .local_window = 16 } };
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        o.plan = both[i];
        o.plan.budget_kl = 1e-6;
        refuse(MODEL, o, ZP_USAGE, "exclude each other");
    }
    o.plan = (zp_plan_options){ .budget_kl = 1e-6, .local_window = CTX };
    refuse(MODEL, o, ZP_USAGE, "shortens no head at 64 tokens");
}

/* ---- orders of gates ------------------------------------------------------------------------- */

static json_t *plan_by(const char *scan, const char *rank)
{
    zp_plan_options o = { .budget_kl = 1e-6, .rank = rank, .n_threads = 1 };
    CHECK(zp_plan_run(scan, &o, in_folder("p.json"), err));
    json_t *plan = load(in_folder("p.json"));
    assert_string_equal(json_string_value(json_object_get(plan, "rank")), rank ? rank : "local");
    return plan;
}

static void assert_ascending(const json_t *scan, const json_t *order)
{
    const json_t *worth = json_object_get(scan, "fisher");
    double n_kv = number(scan, "n_kv"), n_pair = number(scan, "n_pair"), last = 0.0;
    assert_int_equal(json_array_size(order), json_array_size(worth));
    for (size_t i = 0; i < json_array_size(order); i++) {
        double at[3];
        for (size_t k = 0; k < 3; k++)
            at[k] = json_number_value(json_array_get(json_array_get(order, i), k + 1));
        size_t gate = (size_t)((at[0] * n_kv + at[1]) * n_pair + at[2]);
        double value = json_number_value(json_array_get(worth, gate));
        assert_true(value >= last);
        last = value;
    }
    assert_true(last > 0.0);
}

/* What a scan measures beside it leaves the usual order as it is; each rank is an order of its
 * own. */
static void test_ranks_order_gates_by_what_the_scan_has(void **state)
{
    (void)state;
    zp_scan_options s = { .n_ctx = CTX, .n_threads = 1 };
    CHECK(zp_scan_run(MODEL, TEXT, &s, in_folder("s.json"), err));
    s.fisher = true;
    CHECK(zp_scan_run(MODEL, TEXT, &s, in_folder("f.json"), err));
    json_t *scan = load(in_folder("f.json"));
    json_t *usual = plan_by(in_folder("s.json"), NULL), *same = plan_by(in_folder("f.json"), NULL);
    json_t *fisher = plan_by(in_folder("f.json"), "fisher");
    json_t *sum = plan_by(in_folder("f.json"), "sum");
    const json_t *order = json_object_get(fisher, "order");
    assert_true(json_equal(usual, same));
    assert_ascending(scan, order);
    assert_false(json_equal(json_object_get(usual, "order"), order));
    assert_false(json_equal(json_object_get(sum, "order"), order));
    assert_false(json_equal(json_object_get(sum, "order"), json_object_get(usual, "order")));
    json_decref(usual), json_decref(same), json_decref(fisher), json_decref(sum);
    json_decref(scan);
}

static void test_a_rank_asks_for_its_measure(void **state)
{
    (void)state;
    zp_evaporate_options o = usual(2e-6);
    o.plan.rank = "sum", o.scan_out = in_folder("f.json");
    json_decref(evaporate(MODEL, TEXT, o, in_folder("a.gguf"))); /* measures it */
    o.scan_in = in_folder("f.json"), o.scan_out = NULL;
    json_decref(evaporate(MODEL, TEXT, o, in_folder("b.gguf")));
    assert_same_files(in_folder("a.gguf"), in_folder("b.gguf"));
    scan_and_plan((zp_plan_options){ .budget_kl = 1e-6 });
    o.scan_in = in_folder("s.json");
    o.scan.progress.fn = nothing_is_measured;
    refuse(MODEL, o, ZP_BAD_INPUT, "scan again with --fisher");
    o.plan.rank = "theta";
    refuse(MODEL, o, ZP_USAGE, "known: local fisher sum");
    o.plan.rank = "sum", o.plan.uniform = true;
    refuse(MODEL, o, ZP_USAGE, "--rank sum orders single gates");
}

/* ---- a second round -------------------------------------------------------------------------- */

static void test_a_second_round_vouches_against_the_first_original_only(void **state)
{
    (void)state;
    const double budget = 2e-6;
    json_t *first = evaporate(MODEL, TEXT, usual(budget), in_folder("1.gguf"));
    json_t *blind = evaporate(in_folder("1.gguf"), TEXT, usual(budget), in_folder("2.gguf"));
    assert_int_equal(validated(in_folder("1.gguf")), CTX);
    assert_null(json_object_get(blind, "promise"));
    assert_non_null(json_object_get(blind, "no_promise"));
    assert_int_equal(validated(in_folder("2.gguf")), 0);
    zp_evaporate_options o = usual(4.0 * budget);
    o.base = MODEL;
    json_t *known = evaporate(in_folder("1.gguf"), TEXT, o, in_folder("3.gguf"));
    assert_non_null(json_object_get(known, "promise"));
    assert_int_equal(validated(in_folder("3.gguf")), CTX);
    assert_true(number(known, "kl_hi") <= 4.0 * budget);
    assert_true(number(known, "closed") > number(first, "closed"));
    zp_verify_options v = { .n_threads = 1 };
    CHECK(zp_verify_run(in_folder("3.gguf"), MODEL, TEXT, &v, NULL, err));
    o.base = DATA "gguf-llama-yarn.gguf";
    refuse(in_folder("1.gguf"), o, ZP_BAD_INPUT, "is not the original that");
    o.base = MODEL;
    refuse(MODEL, o, ZP_BAD_INPUT, "--base has no meaning");
    o.plan.budget_kl = 1e-12; /* the first round took more */
    refuse(in_folder("1.gguf"), o, ZP_BAD_INPUT, "no budget is left");
    json_decref(first), json_decref(blind), json_decref(known);
}

/* zerope-local.gguf has heads that reach 8, 12 and 20. */
static void test_local_heads_are_never_widened(void **state)
{
    (void)state;
    zp_evaporate_options o = usual(1.0);
    o.scan.n_ctx = 512; /* bytes are tokens here: retrieval prompts are long */
    o.plan.local_window = 128;
    json_t *before = inspect(DATA "zerope-local.gguf");
    json_t *report = evaporate(DATA "zerope-local.gguf", TEXT, o, in_folder("l.gguf"));
    const json_t *local = json_object_get(report, "local_heads"), *item;
    size_t i, short_ones = 0;
    json_array_foreach(local, i, item)
        short_ones += json_integer_value(json_array_get(item, 2)) <= 20;
    assert_int_equal(short_ones, 3);
    assert_true(json_array_size(local) > 3);
    json_decref(before), json_decref(report);
}

/* Counts are of gates as the file has them: a distance bias is one gate a head. */
static void test_counts_are_those_of_the_file(void **state)
{
    (void)state;
    zp_evaporate_options o = usual(0.0);
    o.close_all = true;
    json_t *report = evaporate(DATA "zerope-mixed.gguf", TEXT, o, in_folder("m.gguf"));
    zp_model *m;
    zp_model_info info;
    CHECK(zp_model_open(&m, in_folder("m.gguf"), NULL, err));
    zp_model_describe(m, &info);
    assert_true(info.gates_closed < info.gates_total); /* biases stay */
    assert_true(number(report, "closed") == info.gates_closed);
    assert_true(number(report, "total") == info.gates_total);
    assert_true(number(report, "heads_none") == info.heads_none);
    assert_true(number(report, "layers_none") == info.layers_none);
    /* the rest are bias gates that the file had closed before */
    assert_true(json_array_size(json_object_get(report, "closed_gates")) < info.gates_closed);
    zp_model_close(m);
    json_decref(report);
}

/* ---- documents ------------------------------------------------------------------------------- */

static void write_document(const char *name, unsigned seed)
{
    char text[6000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "etaoin shrdlu\n"[(seed = seed * 1103515245u + 12345u) >> 16 & 7];
    CHECK(os_write_file(in_folder(name), text, sizeof text, err));
}

/* Nine documents, and copies of those that planning takes: every third. */
static void make_documents(void)
{
    char name[16];
    mkdir(in_folder("docs"), 0700);
    mkdir(in_folder("planned"), 0700);
    for (unsigned i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "docs/d%u", i);
        write_document(name, i);
    }
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "planned/d%u", i);
        write_document(name, 3 * i);
    }
}

/* A document that sorts first moves every other one by a place; those of the plan stay out of what
 * is held out, and a folder of nothing else holds nothing out. */
static void test_what_was_planned_with_is_never_held_out(void **state)
{
    (void)state;
    make_documents();
    zp_evaporate_options o = usual(2e-6);
    o.plan_out = in_folder("p.json");
    json_decref(evaporate(MODEL, in_folder("docs"), o, in_folder("d.gguf")));
    zp_verify_options v = { .n_threads = 1, .quick = true };
    zp_err err = { 0 };
    assert_int_equal(
        zp_verify_run(in_folder("d.gguf"), MODEL, in_folder("planned"), &v, NULL, &err),
        ZP_BAD_INPUT);
    if (!strstr(err.message, "gives 0 held-out windows")) fail_msg("%s", err.message);
    o.plan_in = o.plan_out, o.plan_out = NULL;
    assert_int_equal(zp_evaporate_run(MODEL, in_folder("planned"), &o, in_folder("e.gguf"), NULL,
                                      &err), ZP_BAD_INPUT);
    write_document("docs/a", 77);
    if (zp_verify_run(in_folder("d.gguf"), MODEL, in_folder("docs"), &v, NULL, &err) != ZP_OK)
        fail_msg("%s", err.message);
    json_t *plan = load(in_folder("p.json"));
    assert_int_equal(json_array_size(json_object_get(plan, "planning_documents")), 3);
    json_decref(plan);
}

/* ---- verify ---------------------------------------------------------------------------------- */

static bool replace_file(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    if (os_exists(arg)) rename(arg, in_folder("v.gguf"));
    return true;
}

static void test_evidence_goes_into_the_file_that_was_measured(void **state)
{
    (void)state;
    zp_evaporate_options all = usual(0.0);
    all.close_all = true;
    json_decref(evaporate(MODEL, TEXT, usual(2e-6), in_folder("v.gguf")));
    json_decref(evaporate(MODEL, TEXT, all, in_folder("other.gguf")));
    json_decref(evaporate(MODEL, TEXT, all, in_folder("same.gguf")));
    char other[128], *json = NULL;
    snprintf(other, sizeof other, "%s", in_folder("other.gguf"));
    zp_verify_options v = { .n_threads = 1, .write_evidence = true };
    v.progress = (zp_progress){ replace_file, other };
    zp_err err = { 0 };
    assert_int_equal(zp_verify_run(in_folder("v.gguf"), MODEL, TEXT, &v, &json, &err),
                     ZP_BAD_INPUT);
    if (!strstr(err.message, "was replaced or changed")) fail_msg("%s", err.message);
    assert_non_null(strstr(json, "\"evidence_written\": false"));
    assert_same_files(in_folder("v.gguf"), in_folder("same.gguf"));
    zp_free(json);
}

static void verify_writes(const char *file, zp_verify_options v, bool written)
{
    char *json = NULL;
    v.n_threads = 1, v.write_evidence = true;
    CHECK(zp_verify_run(file, MODEL, TEXT, &v, &json, err));
    bool told = strstr(json, "\"evidence_written\": true") != NULL;
    assert_int_equal(told, written);
    zp_free(json);
}

static void test_evidence_claims_no_less_than_the_file_does(void **state)
{
    (void)state;
    char file[128];
    snprintf(file, sizeof file, "%s", in_folder("w.gguf"));
    json_decref(evaporate(MODEL, TEXT, usual(2e-6), file));
    verify_writes(file, (zp_verify_options){ .n_ctx = CTX / 2 }, false);
    verify_writes(file, (zp_verify_options){ .n_ctx = 2 * CTX, .budget_kl = 10.0 }, false);
    assert_int_equal(validated(file), CTX);
    verify_writes(file, (zp_verify_options){ 0 }, true);
    assert_int_equal(validated(file), CTX);
    zp_evaporate_options all = usual(0.0);
    all.close_all = true;
    json_decref(evaporate(MODEL, TEXT, all, file));
    verify_writes(file, (zp_verify_options){ 0 }, true); /* without a budget: no length */
    assert_int_equal(validated(file), 0);
    zp_verify_options tiny = { .n_ctx = 4 };
    assert_int_equal(zp_verify_run(file, MODEL, TEXT, &tiny, NULL, NULL), ZP_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scan_read_back_gives_the_same_file),
        cmocka_unit_test(test_a_plan_is_followed_and_no_further),
        cmocka_unit_test(test_what_does_not_fit_is_refused_before_measuring),
        cmocka_unit_test(test_contradictory_wishes_are_refused),
        cmocka_unit_test(test_ranks_order_gates_by_what_the_scan_has),
        cmocka_unit_test(test_a_rank_asks_for_its_measure),
        cmocka_unit_test(test_a_second_round_vouches_against_the_first_original_only),
        cmocka_unit_test(test_local_heads_are_never_widened),
        cmocka_unit_test(test_counts_are_those_of_the_file),
        cmocka_unit_test(test_what_was_planned_with_is_never_held_out),
        cmocka_unit_test(test_evidence_goes_into_the_file_that_was_measured),
        cmocka_unit_test(test_evidence_claims_no_less_than_the_file_does),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
