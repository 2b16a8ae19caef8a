/* test_evapfile.c: SCAN and PLAN documents: what is no such document is refused by name; scans with
 * and without gradients of gates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"
#include "evap/evapfile.h"

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"

static char file[] = "/tmp/zerope-evapfile-XXXXXX";
static struct zp_model *model;

static void write_text(const char *text)
{
    assert_int_equal(os_write_file(file, text, strlen(text), NULL), ZP_OK);
}

static void refuse(zp_status status, const zp_err *err, const json_t *root, const char *part)
{
    assert_int_equal(status, ZP_BAD_INPUT);
    assert_null(root);
    if (!strstr(err->message, part)) fail_msg("'%s' lacks '%s'", err->message, part);
}

static void refuse_scan(const char *part)
{
    struct scan s;
    struct evapfile_paths paths;
    json_t *root = NULL;
    zp_err err = { 0 };
    refuse(evapfile_read_scan(&s, file, &root, &paths, &err), &err, root, part);
}

static void refuse_plan(const char *part)
{
    struct plan p;
    json_t *root = NULL;
    zp_err err = { 0 };
    refuse(evapfile_read_plan(&p, file, model, &root, &err), &err, root, part);
}

/* The name of the wrong format is part of the message, and belongs to the document. */
static void other_documents_are_named(void **state)
{
    (void)state;
    write_text("{\"format\": \"zerope-plan\", \"version\": 1}");
    refuse_scan("not a zerope-scan document (format is zerope-plan)");
    write_text("{\"format\": \"zerope-scan\", \"version\": 1}");
    refuse_plan("not a zerope-plan document (format is zerope-scan)");
    static const char *const nameless[] = { "{}", "[]", "{\"format\": 5}", "{\"format\": null}" };
    for (size_t i = 0; i < ZP_COUNT(nameless); i++) {
        write_text(nameless[i]);
        refuse_scan("(format is missing)");
        refuse_plan("(format is missing)");
    }
}

static void other_versions_are_refused(void **state)
{
    (void)state;
    static const char *const versions[] = { "2", "0", "-1", "\"1\"", "1.0", "null" };
    for (size_t i = 0; i < ZP_COUNT(versions); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"format\": \"zerope-scan\", \"version\": %s}",
                 versions[i]);
        write_text(text);
        refuse_scan("version of the zerope-scan document must be 1");
    }
    write_text("{\"format\": \"zerope-plan\"}");
    refuse_plan("version of the zerope-plan document must be 1");
}

/* ---- scans ----------------------------------------------------------------------------------- */

enum { LAYERS = 2, HEADS = 2, PAIRS = 3, GATES = LAYERS * HEADS * PAIRS };

/* Writes a scan whose numbers are made up. */
static void write_scan(bool gradients)
{
    struct scan s = { 0 };
    static uint64_t seen[] = { 0x0123456789abcdef };
    assert_int_equal(scan_place(&s, LAYERS, HEADS, PAIRS, NULL), ZP_OK);
    if (gradients) assert_int_equal(scan_place_gradients(&s, NULL), ZP_OK);
    s.model_sha256 = "0", s.seen = seen, s.n_seen = 1;
    s.n_ctx = 64, s.n_windows_local = 8, s.n_windows_kl = 2;
    for (int i = 0; i < GATES; i++) {
        s.importance[i] = i * 1e-7;
        if (gradients) s.fisher[i] = i * 0.25, s.first_order[i] = i * 0.5;
    }
    struct evapfile_paths paths = { "m.gguf", "text" };
    assert_int_equal(evapfile_write_scan(&s, paths, file, NULL), ZP_OK);
    scan_free(&s);
}

static void read_scan(bool gradients)
{
    struct scan s;
    struct evapfile_paths paths;
    json_t *root;
    zp_err err = { 0 };
    if (evapfile_read_scan(&s, file, &root, &paths, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_int_equal(s.n_pair, PAIRS);
    assert_true(s.importance[GATES - 1] == (GATES - 1) * 1e-7);
    assert_int_equal(s.fisher != NULL, gradients);
    assert_int_equal(s.first_order != NULL, gradients);
    for (int i = 0; gradients && i < GATES; i++)
        assert_true(s.fisher[i] == i * 0.25 && s.first_order[i] == i * 0.5);
    scan_free(&s);
    json_decref(root);
}

static void scans_are_read_with_and_without_gradients(void **state)
{
    (void)state;
    for (int gradients = 0; gradients < 2; gradients++) {
        write_scan(gradients);
        json_t *doc = json_load_file(file, 0, NULL);
        assert_int_equal(json_object_get(doc, "fisher") != NULL, gradients);
        json_decref(doc);
        read_scan(gradients);
    }
}

/* A field of a good scan replaced; NULL takes it away. */
static void scan_without(const char *key, const char *value, const char *part)
{
    write_scan(true);
    json_t *doc = json_load_file(file, 0, NULL);
    if (value) json_object_set_new(doc, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else json_object_del(doc, key);
    assert_int_equal(json_dump_file(doc, file, 0), 0);
    json_decref(doc);
    refuse_scan(part);
}

static void gradients_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = { "fisher", "first_order" };
    for (size_t i = 0; i < ZP_COUNT(keys); i++) {
        scan_without(keys[i], NULL, "must be a list of 12 numbers");
        scan_without(keys[i], "5", "must be a list of 12 numbers");
        scan_without(keys[i], "null", "must be a list of 12 numbers");
        scan_without(keys[i], "[0,1,2,3,4,5,6,7,8,9,10]", "must be a list of 12 numbers; found 11");
        scan_without(keys[i], "[0,1,2,3,4,5,6,7,8,9,10,\"11\"]", "[11] is not a number");
        scan_without(keys[i], "[0,1,2,3,4,5,6,7,8,9,-10,11]", "[10] is below 0");
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int count_of(const char *list) /* of lists of numbers */
{
    int n = -1;
    for (; *list; list++) n += *list == '[';
    return n;
}

/* A plan of MODEL with these parts; ZP_OK or the refusal that holds `part`. */
static void try_plan(const char *order, int used, const char *closed, const char *local,
                     const char *part)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"format\": \"zerope-plan\", \"version\": 1, \"model_sha256\": \"%s\", \"ctx\": 64, "
             "\"budget_kl\": 0.02, \"kl_mean\": 0.01, \"uniform\": false, \"uniform_slow\": false, "
             "\"layers\": false, \"folds\": true, \"planning_documents\": [\"0123456789abcdef\"], "
             "\"n_layer\": 2, \"n_kv\": 2, \"n_pair\": 4, \"closed\": %d, \"total\": 16, "
             "\"layers_none\": 0, \"heads_none\": 0, \"sinks\": %d, "
             "\"local_window\": 16, \"order\": %s, \"used\": %d, \"closed_gates\": %s, "
             "\"local_heads\": %s}",
             zp_model_sha256(model), count_of(closed), strcmp(local, "[]") ? 64 : 0, order, used,
             closed, local);
    write_text(text);
    if (part) {
        refuse_plan(part);
        return;
    }
    struct plan p;
    json_t *root;
    zp_err err = { 0 };
    if (evapfile_read_plan(&p, file, model, &root, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_int_equal(p.n_used, used);
    assert_int_equal(p.n_seen, 1);
    assert_true(p.seen[0] == 0x0123456789abcdef);
    plan_free(&p);
    json_decref(root);
}

static void plans_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const char order[] = "[[\"gate\", 0, 1, 2], [\"local\", 1, 0, 0], [\"pair\", 0, 0, 3]]";
    static const char gates[] = "closed_gates contradicts", heads[] = "local_heads contradicts";
    try_plan("[]", 0, "[]", "[]", NULL);
    try_plan(order, 1, "[[0, 1, 2]]", "[]", NULL);
    try_plan(order, 2, "[[0, 1, 2]]", "[[1, 0, 16]]", NULL);
    try_plan(order, 0, "[[0, 1, 2]]", "[]", gates);
    try_plan("[]", 0, "[[1, 1, 3]]", "[]", gates);
    try_plan(order, 1, "[]", "[]", gates);
    try_plan(order, 1, "[[0, 1, 3]]", "[]", gates);
    try_plan(order, 2, "[[0, 1, 2]]", "[]", heads);
    try_plan(order, 2, "[[0, 1, 2]]", "[[1, 0, 17]]", heads);
    try_plan(order, 1, "[[0, 1, 2]]", "[[1, 0, 16]]", heads);
    try_plan(order, 3, "[[0, 1, 2]]", "[[1, 0, 16]]", gates);
    try_plan(order, 4, "[]", "[]", "used must be");
    try_plan("5", 0, "[]", "[]", "order must be a list");
    try_plan(order, 0, "5", "[]", "must be lists");
    try_plan(order, 0, "[]", "null", "must be lists");
    try_plan(order, 1, "[[0, 9, 2]]", "[]", "the model has");
}

/* A field of a good plan replaced; NULL takes it away. */
static void without(const char *key, const char *value, const char *part)
{
    static const char order[] = "[[\"gate\", 0, 1, 2], [\"local\", 1, 0, 0]]";
    try_plan(order, 2, "[[0, 1, 2]]", "[[1, 0, 16]]", NULL);
    json_t *doc = json_load_file(file, 0, NULL);
    assert_non_null(doc);
    if (value) json_object_set_new(doc, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else json_object_del(doc, key);
    assert_int_equal(json_dump_file(doc, file, 0), 0);
    json_decref(doc);
    refuse_plan(part);
}

static void each_field_of_a_plan_is_checked(void **state)
{
    (void)state;
    static const char *const counts[] = { "n_layer", "n_kv",        "n_pair",     "closed",
                                          "total",   "layers_none", "heads_none", "sinks" };
    for (size_t i = 0; i < ZP_COUNT(counts); i++) {
        without(counts[i], "3", "the rest of the plan gives");
        without(counts[i], "-3", counts[i]);
    }
    static const char *const flags[] = { "uniform", "uniform_slow", "layers", "folds" };
    for (size_t i = 0; i < ZP_COUNT(flags); i++) {
        without(flags[i], "1", "must be true or false");
        without(flags[i], NULL, "must be true or false");
    }
    static const char *const reals[] = { "budget_kl", "kl_mean" };
    for (size_t i = 0; i < ZP_COUNT(reals); i++) {
        without(reals[i], "\"0.02\"", reals[i]);
        without(reals[i], "-1e-3", reals[i]);
        without(reals[i], NULL, reals[i]);
    }
    without("budget_kl", "1e300", "0..100");
    without("rank", "\"theta\"", "known: local fisher sum");
    without("rank", "1", "rank must be a string");
    without("planning_documents", "5", "must be a list");
    without("planning_documents", "[5]", "planning_documents[0]");
    without("planning_documents", "[\"0123456789abcdeg\"]", "planning_documents[0]");
    without("order", "[[\"gate\", 0, 1, 2, 7]]", "expected kind, layer, KV head, pair");
}

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    if (fd < 0) return -1;
    close(fd);
    return zp_model_open(&model, MODEL, NULL, NULL) == ZP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    zp_model_close(model);
    return remove(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_documents_are_named),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(scans_are_read_with_and_without_gradients),
        cmocka_unit_test(gradients_that_do_not_fit_are_refused),
        cmocka_unit_test(plans_that_contradict_themselves_are_refused),
        cmocka_unit_test(each_field_of_a_plan_is_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
