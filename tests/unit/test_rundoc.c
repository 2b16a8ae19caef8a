/* test_rundoc.c: the document of a run, from folders of both kinds, while it is written and
 * afterwards; what is no run, or damaged, is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <zerope/train.h>

#include "base/mem.h"
#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "train/series.h"

#define OK(call)                                                                \
    do {                                                                        \
        zp_err ok_err_ = { 0 }, *err = &ok_err_;                                \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, ok_err_.message);        \
    } while (0)

static const struct series_option options[] = { { "tokens", "2m", "command line" } };

/* The state is whether it is lines. */
static struct series *new_run(void **state, const char *path)
{
    struct series *s;
    const struct series_info info = { .command = "zerope train x", .options = options,
                                      .n_options = 1, .lines = *state != NULL };
    OK(series_create(&s, path, &info, err));
    return s;
}

static const char *run_folder(void **state, const char *name)
{
    char with[64];
    snprintf(with, sizeof with, "%s-%s", name, *state ? "lines" : "sqlite");
    return in_folder(with);
}

static json_t *document(const char *path)
{
    char *text;
    OK(zp_train_run_json(path, &text, err));
    json_t *doc = json_loads(text, 0, NULL);
    zp_free(text);
    assert_non_null(doc);
    assert_string_equal(json_string_value(json_object_get(doc, "format")), "zerope-run");
    return doc;
}

static json_int_t int_of(const json_t *row, const char *key)
{
    assert_true(json_is_integer(json_object_get(row, key)));
    return json_integer_value(json_object_get(row, key));
}

static const json_t *row_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) return row;
    }
    return NULL;
}

static void close_gate(struct series *s, uint64_t step, const char *what, uint32_t layer,
                       uint32_t pair)
{
    const struct series_event e = { step, what, "schedule", layer, 0, pair };
    OK(series_add_event(s, &e, err));
}

static void test_document_holds_series_and_counts_events(void **state)
{
    const char *path = run_folder(state, "whole");
    struct series *s = new_run(state, path);
    for (uint64_t step = 0; step < 3; step++) {
        OK(series_add(s, step, "loss", step == 1 ? (double)NAN : 2.5 - (double)step, err));
        OK(series_add(s, step, "rate", 0.001, err));
    }
    OK(series_add(s, 2, "held.ce", 3.25, err));
    close_gate(s, 1, "gate closed", 2, 0);
    close_gate(s, 1, "gate closed", 0, 1);
    close_gate(s, 1, "gate closed", 2, 1);
    close_gate(s, 4, "gate opened", 2, 1);
    OK(series_flush(s, err));
    json_t *doc = document(path); /* the writer has it open */
    const json_t *list = json_object_get(doc, "series");
    assert_int_equal(json_array_size(list), 3);
    const json_t *loss = row_named(list, "loss"), *values = json_object_get(loss, "values");
    assert_int_equal(json_array_size(json_object_get(loss, "steps")), 3);
    assert_true(json_real_value(json_array_get(values, 0)) == 2.5);
    assert_true(json_is_null(json_array_get(values, 1)));
    const json_t *last = row_named(json_object_get(doc, "last"), "held.ce");
    assert_int_equal(int_of(last, "step"), 2);
    assert_true(json_real_value(json_object_get(last, "value")) == 3.25);
    assert_int_equal(int_of(doc, "last_step"), 4);
    list = json_object_get(doc, "events");
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(int_of(json_array_get(list, 0), "layer"), 0);
    assert_int_equal(int_of(json_array_get(list, 1), "layer"), 2);
    assert_int_equal(int_of(json_array_get(list, 1), "count"), 2);
    assert_int_equal(int_of(json_array_get(list, 2), "step"), 4);
    list = json_object_get(doc, "by_layer");
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(int_of(json_array_get(list, 1), "first_step"), 1);
    assert_string_equal(json_string_value(json_object_get(doc, "command")), "zerope train x");
    assert_int_equal(json_array_size(json_object_get(doc, "options")), 1);
    json_decref(doc);
    OK(series_add(s, 3, "loss", 1, err)); /* reading was in no writer's way */
    OK(series_flush(s, err));
    series_close(s);
    doc = document(path);
    loss = row_named(json_object_get(doc, "series"), "loss");
    assert_int_equal(json_array_size(json_object_get(loss, "steps")), 4);
    json_decref(doc);
}

static void test_a_run_that_recorded_nothing_is_one(void **state)
{
    const char *path = run_folder(state, "empty");
    series_close(new_run(state, path));
    json_t *doc = document(path);
    assert_int_equal(json_array_size(json_object_get(doc, "series")), 0);
    assert_int_equal(json_array_size(json_object_get(doc, "events")), 0);
    assert_int_equal(json_array_size(json_object_get(doc, "by_layer")), 0);
    assert_int_equal(int_of(doc, "last_step"), 0);
    json_decref(doc);
}

static void test_resumptions_are_told(void **state)
{
    const char *path = run_folder(state, "resumed");
    struct series *s = new_run(state, path);
    const struct series_info info = { .command = "again", .lines = *state != NULL };
    OK(series_add(s, 5, "loss", 1, err));
    OK(series_flush(s, err));
    series_close(s);
    OK(series_resume(&s, path, 3, &info, err));
    series_close(s);
    json_t *doc = document(path), *resumed = json_object_get(doc, "resumed");
    assert_int_equal(json_array_size(resumed), 1);
    assert_int_equal(json_integer_value(json_array_get(resumed, 0)), 3);
    assert_int_equal(json_array_size(json_object_get(doc, "series")), 0); /* cut */
    json_decref(doc);
}

static void refused(const char *path, zp_status code, const char *words)
{
    zp_err err = { 0 };
    char *text = "";
    uint64_t live = live_bytes();
    assert_int_equal(zp_train_run_json(path, &text, &err), code);
    assert_null(text);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
    assert_int_equal(live_bytes(), live);
}

static void put_file(const char *path, const char *name, const char *text)
{
    char file[200];
    snprintf(file, sizeof file, "%s/%s", path, name);
    OK(os_write_file(file, text, strlen(text), err));
}

static void test_what_is_no_run_is_named(void **state)
{
    const char *path = run_folder(state, "none");
    refused(path, ZP_BAD_INPUT, "has no record of a run");
    OK(os_make_folders(path, err));
    refused(path, ZP_BAD_INPUT, "has no record of a run");
    put_file(path, "run.json", "{\"format\": 1}");
    refused(path, ZP_BAD_INPUT, "has no numbers of a run");
}

static void test_damaged_files_are_named(void **state)
{
    const char *path = run_folder(state, "damaged");
    struct series *s = new_run(state, path);
    OK(series_add(s, 5, "loss", 1, err));
    OK(series_flush(s, err));
    series_close(s);
    put_file(path, *state ? "metrics.jsonl" : "metrics.sqlite", "no records of a run at all\n");
    refused(path, ZP_BAD_FILE, *state ? "metrics.jsonl: line 1" : "metrics.sqlite: ");
    put_file(path, "run.json", "{\"format\": 1");
    refused(path, ZP_BAD_FILE, "run.json");
    put_file(path, "run.json", "[]");
    refused(path, ZP_BAD_FILE, "run.json: has no number `format`");
    put_file(path, "run.json", "{\"format\": 2}");
    refused(path, ZP_UNSUPPORTED, "run.json: is of format 2");
    put_file(path, "run.json", "{\"format\": 1, \"options\": {}}");
    refused(path, ZP_BAD_FILE, "run.json: `options` is not of its type");
}

static void test_each_failed_allocation_is_reported_and_freed(void **state)
{
    const char *path = run_folder(state, "memory");
    struct series *s = new_run(state, path);
    OK(series_add(s, 5, "loss", 1, err));
    close_gate(s, 5, "gate closed", 1, 1);
    OK(series_flush(s, err));
    series_close(s);
    uint64_t n = 1, before = live_bytes();
    for (bool failed = true; failed; n++) {
        zp_err err = { 0 };
        char *text;
        mem_fail_at(n, false);
        zp_status status = zp_train_run_json(path, &text, &err);
        failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        zp_free(text);
        assert_int_equal(live_bytes(), before);
    }
    assert_true(n > 10);
}

static char options_of_lines[] = "lines";
#if ZEROPE_HAVE_SQLITE
#define BOTH(test) cmocka_unit_test(test), { #test "_lines", test, NULL, NULL, options_of_lines }
#else
#define BOTH(test) { #test "_lines", test, NULL, NULL, options_of_lines }
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_document_holds_series_and_counts_events),
        BOTH(test_a_run_that_recorded_nothing_is_one),
        BOTH(test_resumptions_are_told),
        BOTH(test_what_is_no_run_is_named),
        BOTH(test_damaged_files_are_named),
        BOTH(test_each_failed_allocation_is_reported_and_freed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
