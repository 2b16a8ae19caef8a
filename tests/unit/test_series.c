/* test_series.c: runs are recorded and read back, in SQLite and in lines alike; resumed runs lose
 * what came after their checkpoint; readers see a run while it is written; damaged files say so. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "model/json_read.h"
#include "train/series.h"

static const struct series_option options[] = { { "steps", "100", "command line" },
                                                { "rate", "3e-4", "default" } };
static const struct series_seed seeds[] = { { "data", UINT64_MAX }, { "init", 7 } };
static const struct series_version versions[] = { { "dnnl", "2.6" } };
static const struct series_info base = {
    .command = "zerope train x.json", .model_sha256 = "abc", .machine = "two cores",
    .options = options, .seeds = seeds, .versions = versions,
    .n_options = 2, .n_seeds = 2, .n_versions = 1,
};

/* What both ways of storing are tried with; the state is whether it is lines. */
static struct series_info info_of(void **state)
{
    struct series_info info = base;
    info.lines = *state != NULL;
    return info;
}

static void ok(zp_status status, const zp_err *err)
{
    if (status != ZP_OK) fail_msg("%s: %s", zp_status_name(status), err->message);
}
#define OK(call)            \
    do {                    \
        zp_err err = { 0 }; \
        ok(call, &err);     \
    } while (0)

static const char *run_folder(void **state, const char *name)
{
    char with[64];
    snprintf(with, sizeof with, "%s-%s", name, *state ? "lines" : "sqlite");
    return in_folder(with);
}

static void check_series(const char *path, const char *name, size_t n, const uint64_t *steps,
                         const double *values)
{
    struct series_points p;
    OK(series_read(path, name, &p, &err));
    assert_int_equal(p.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(p.steps[i], steps[i]);
        if (!(p.values[i] == values[i] || (isnan(p.values[i]) && isnan(values[i]))))
            fail_msg("%s at %zu: %.17g, expected %.17g", name, i, p.values[i], values[i]);
    }
    series_points_free(&p);
}

static void add_steps(struct series *s, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step <= to; step++) {
        OK(series_add(s, step, "train.loss", 1.0 / 3 + (double)step, &err));
        if (step % 2 == 0) OK(series_add(s, step, "eval.loss", -(double)step, &err));
        OK(series_add_event(s, &(struct series_event){ step, "gate closed", "small gradient", 1,
                                                       2, (uint32_t)step }, &err));
    }
}

static void test_records_come_back_in_order(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "order/deep");
    char **names;
    size_t n;
    uint64_t live = live_bytes();
    OK(series_create(&s, path, &info, &err));
    add_steps(s, 1, 4);
    OK(series_flush(s, &err));
    OK(series_flush(s, &err)); /* nothing */
    OK(series_add(s, 9, "train.loss", NAN, &err));
    OK(series_add(s, 8, "train.loss", INFINITY, &err)); /* behind a later one */
    OK(series_add(s, 7, "train.loss", 5e-324, &err));
    OK(series_add(s, 7, "train.loss", 0.1, &err)); /* the last one counts */
    OK(series_add(s, INT64_MAX, "strange \"name\"\n\xc3\xa9", 1, &err));
    OK(series_flush(s, &err));
    OK(series_add(s, 10, "train.loss", 1, &err)); /* never flushed */
    series_close(s);
    check_series(path, "train.loss", 7, (const uint64_t[]){ 1, 2, 3, 4, 7, 8, 9 },
                 (const double[]){ 1.0 / 3 + 1, 1.0 / 3 + 2, 1.0 / 3 + 3, 1.0 / 3 + 4, 0.1, NAN,
                                   NAN });
    check_series(path, "eval.loss", 2, (const uint64_t[]){ 2, 4 }, (const double[]){ -2, -4 });
    check_series(path, "strange \"name\"\n\xc3\xa9", 1, (const uint64_t[]){ INT64_MAX },
                 (const double[]){ 1 });
    check_series(path, "nothing", 0, NULL, NULL);
    OK(series_names(path, &names, &n, &err));
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "eval.loss");
    assert_string_equal(names[1], "strange \"name\"\n\xc3\xa9");
    assert_string_equal(names[2], "train.loss");
    os_list_free(names, n);
    struct series_events e;
    OK(series_read_events(path, &e, &err));
    assert_int_equal(e.n, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(e.list[i].step, i + 1);
        assert_int_equal(e.list[i].layer, 1);
        assert_int_equal(e.list[i].kv, 2);
        assert_int_equal(e.list[i].pair, i + 1);
        assert_string_equal(e.list[i].what, "gate closed");
        assert_string_equal(e.list[i].reason, "small gradient");
    }
    series_events_free(&e);
    assert_int_equal(live_bytes(), live);
}

static json_t *read_run(const char *path)
{
    char file[200];
    json_t *run;
    snprintf(file, sizeof file, "%s/run.json", path);
    OK(json_read_file(file, 1 << 20, &run, &err));
    return run;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(none)";
}

static void test_run_json_says_what_was_asked_for(void **state)
{
    struct series *s;
    struct series_info info = info_of(state);
    const char *path = run_folder(state, "asked");
    OK(series_create(&s, path, &info, &err));
    series_close(s);
    info.command = "zerope train --resume";
    OK(series_resume(&s, path, 12, &info, &err));
    series_close(s);
    OK(series_resume(&s, path, 13, &info, &err));
    series_close(s);
    json_t *run = read_run(path);
    const json_t *option = json_array_get(json_object_get(run, "options"), 0);
    assert_string_equal(text_of(run, "command"), "zerope train x.json");
    assert_string_equal(text_of(run, "machine"), "two cores");
    assert_string_equal(text_of(run, "model_sha256"), "abc");
    assert_string_equal(text_of(option, "name"), "steps");
    assert_string_equal(text_of(option, "value"), "100");
    assert_string_equal(text_of(option, "origin"), "command line");
    assert_string_equal(text_of(json_object_get(run, "seeds"), "data"), "18446744073709551615");
    assert_string_equal(text_of(json_object_get(run, "versions"), "dnnl"), "2.6");
    assert_string_not_equal(text_of(json_object_get(run, "versions"), "zerope"), "(none)");
    const json_t *resumed = json_object_get(run, "resumed");
    assert_int_equal(json_array_size(resumed), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(resumed, 0), "step")), 12);
    assert_string_equal(text_of(json_array_get(resumed, 1), "command"), "zerope train --resume");
    json_decref(run);
}

static void test_resumed_run_loses_later_steps(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "resumed");
    OK(series_create(&s, path, &info, &err));
    add_steps(s, 1, 6);
    OK(series_flush(s, &err));
    series_close(s);
    OK(series_resume(&s, path, 3, &info, &err));
    OK(series_add(s, 4, "train.loss", 44, &err));
    OK(series_flush(s, &err));
    OK(series_add(s, 5, "train.loss", 55, &err));
    OK(series_cut(s, 4, &err)); /* rolled back: what was not flushed is gone too */
    OK(series_flush(s, &err));
    check_series(path, "train.loss", 4, (const uint64_t[]){ 1, 2, 3, 4 },
                 (const double[]){ 1.0 / 3 + 1, 1.0 / 3 + 2, 1.0 / 3 + 3, 44 });
    struct series_events e;
    OK(series_read_events(path, &e, &err));
    assert_int_equal(e.n, 3);
    series_events_free(&e);
    OK(series_cut(s, UINT64_MAX, &err));
    OK(series_cut(s, 0, &err));
    check_series(path, "train.loss", 0, NULL, NULL);
    series_close(s);
}

static void test_a_run_is_read_while_it_is_written(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "live");
    OK(series_create(&s, path, &info, &err));
    for (uint64_t step = 1; step <= 5; step++) {
        OK(series_add(s, step, "x", (double)step, &err));
        OK(series_flush(s, &err));
        struct series_points p;
        OK(series_read(path, "x", &p, &err));
        assert_int_equal(p.n, step);
        series_points_free(&p);
    }
    series_close(s);
    char **files;
    size_t n;
    OK(os_list_files(path, &files, &n, &err));
    assert_int_equal(n, 2); /* run.json and the numbers: nothing else is needed */
    os_list_free(files, n);
}

/* A run that records much between its flushes does not gather it all. */
static void test_many_records_go_to_disk_by_themselves(void **state)
{
    enum { MANY = 5000, KEPT = 1024 };
    struct series *s;
    struct series_points p;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "many");
    uint64_t most = 0;
    OK(series_create(&s, path, &info, &err));
    uint64_t live = live_bytes();
    for (uint64_t step = 1; step <= MANY; step++) {
        OK(series_add(s, step, "x", (double)step, &err));
        if (live_bytes() - live > most) most = live_bytes() - live;
    }
    assert_true(most < 256 << 10);
    OK(series_read(path, "x", &p, &err));
    assert_int_equal(p.n, MANY / KEPT * KEPT);
    for (size_t i = 0; i < p.n; i++) assert_int_equal(p.steps[i], i + 1);
    series_points_free(&p);
    series_close(s);
}

static void test_folders_without_a_run_and_with_one_say_so(void **state)
{
    struct series *s;
    struct series_points p;
    zp_err why = { 0 };
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "twice");
    assert_int_equal(series_resume(&s, path, 1, &info, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "no record of a run"));
    assert_null(s);
    assert_int_equal(series_read(path, "x", &p, NULL), ZP_BAD_INPUT);
    OK(series_create(&s, path, &info, &err));
    series_close(s);
    why.code = ZP_OK;
    assert_int_equal(series_create(&s, path, &info, &why), ZP_USAGE);
    assert_non_null(strstr(why.message, "already"));
    assert_null(s);
    series_close(NULL);
}

static void write_file(const char *path, const char *name, const char *text)
{
    char file[200];
    snprintf(file, sizeof file, "%s/%s", path, name);
    OK(os_write_file(file, text, strlen(text), &err));
}

static void test_half_made_run_is_made_anew(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "half");
    OK(os_make_folders(path, &err)); /* killed before run.json was there */
    write_file(path, "metrics.sqlite", "not a database");
    if (*state) unlink(in_folder("half-lines/metrics.sqlite"));
    write_file(path, "metrics.jsonl", "rubbish\n");
    if (!*state) unlink(in_folder("half-sqlite/metrics.jsonl"));
    OK(series_create(&s, path, &info, &err));
    OK(series_add(s, 1, "x", 2, &err));
    OK(series_flush(s, &err));
    series_close(s);
    check_series(path, "x", 1, (const uint64_t[]){ 1 }, (const double[]){ 2 });
}

static void refuse_read(const char *path, zp_status code, const char *part)
{
    struct series_points p;
    zp_err err = { 0 };
    uint64_t live = live_bytes();
    zp_status status = series_read(path, "x", &p, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("%s: '%s' lacks '%s'", zp_status_name(status), err.message, part);
    assert_int_equal(live_bytes(), live);
}

static void test_damaged_lines_say_where(void **state)
{
    (void)state;
    static const char good[] = "{\"step\":1,\"name\":\"x\",\"value\":2}\n";
    const char *path = in_folder("bad-lines");
    static const char *const wrong[] = {
        "no json", "[1]", "{\"step\":-1,\"name\":\"x\",\"value\":2}",
        "{\"step\":1.5,\"name\":\"x\",\"value\":2}", "{\"step\":1,\"value\":2}",
        "{\"step\":1,\"name\":\"x\"}", "{\"step\":1,\"name\":\"x\",\"value\":\"2\"}",
        "{\"step\":1,\"event\":\"g\",\"layer\":1,\"kv\":0,\"pair\":4294967296,\"reason\":\"\"}",
        "{\"step\":1,\"event\":\"gate closed\",\"layer\":1,\"kv\":0,\"pair\":1}", "" };
    OK(os_make_folders(path, &err));
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        char text[400];
        snprintf(text, sizeof text, "%s%s\n%s", good, wrong[i], good);
        write_file(path, "metrics.jsonl", text);
        refuse_read(path, ZP_BAD_FILE, "line 2 is no record");
    }
    char torn[200]; /* what a killed writer left counts as not written */
    snprintf(torn, sizeof torn, "%s{\"step\":2,\"na", good);
    write_file(path, "metrics.jsonl", torn);
    check_series(path, "x", 1, (const uint64_t[]){ 1 }, (const double[]){ 2 });
    write_file(path, "run.json", "{\"resumed\":[]}");
    struct series *s;
    OK(series_resume(&s, path, 1, &base, &err)); /* and goes when the run goes on */
    OK(series_add(s, 2, "x", 3, &err));
    OK(series_flush(s, &err));
    series_close(s);
    check_series(path, "x", 2, (const uint64_t[]){ 1, 2 }, (const double[]){ 2, 3 });
}

static void test_damaged_run_json_is_refused(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "bad-run");
    static const char *const wrong[] = { "{", "[]", "{\"resumed\":1}", "" };
    OK(series_create(&s, path, &info, &err));
    series_close(s);
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        uint64_t live = live_bytes();
        zp_err err = { 0 };
        write_file(path, "run.json", wrong[i]);
        assert_int_not_equal(series_resume(&s, path, 1, &info, &err), ZP_OK);
        assert_true(err.message[0] != '\0');
        assert_null(s);
        assert_int_equal(live_bytes(), live);
    }
}

#if ZEROPE_HAVE_SQLITE
static void test_database_that_is_none_is_refused(void **state)
{
    (void)state;
    const char *path = in_folder("bad-db");
    OK(os_make_folders(path, &err));
    write_file(path, "metrics.sqlite", "this is not a database, but it is long enough to be read "
                                       "as the header of one, which has one hundred bytes in it");
    refuse_read(path, ZP_BAD_FILE, "metrics.sqlite");
    write_file(path, "metrics.sqlite", ""); /* one without tables */
    refuse_read(path, ZP_UNSUPPORTED, "version 0");
}
#endif

/* Every allocation of a flush and a read fails once: nothing is lost, and nothing stays behind. */
static void test_memory_that_runs_out_loses_nothing(void **state)
{
    struct series *s;
    const struct series_info info = info_of(state);
    const char *path = run_folder(state, "memory");
    OK(series_create(&s, path, &info, &err));
    add_steps(s, 1, 3);
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        mem_fail_at(n, false);
        zp_status status = series_flush(s, NULL);
        failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
    }
    failed = true;
    for (uint64_t n = 1; failed; n++) {
        struct series_points p = { 0 };
        struct series_events e = { 0 };
        uint64_t live = live_bytes();
        mem_fail_at(n, false);
        zp_status status = series_read(path, "train.loss", &p, NULL);
        if (status == ZP_OK) status = series_read_events(path, &e, NULL);
        failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        if (!failed) assert_true(p.n == 3 && e.n == 3);
        series_points_free(&p);
        series_events_free(&e);
        assert_int_equal(live_bytes(), live);
    }
    series_close(s);
}

/* Each for lines, too. */
#define BOTH(test) cmocka_unit_test(test), { #test "_lines", test, NULL, NULL, options_of_lines }
static char options_of_lines[] = "lines";


int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_records_come_back_in_order),
        BOTH(test_run_json_says_what_was_asked_for),
        BOTH(test_resumed_run_loses_later_steps),
        BOTH(test_a_run_is_read_while_it_is_written),
        BOTH(test_many_records_go_to_disk_by_themselves),
        BOTH(test_folders_without_a_run_and_with_one_say_so),
        BOTH(test_half_made_run_is_made_anew),
        cmocka_unit_test(test_damaged_lines_say_where),
        BOTH(test_damaged_run_json_is_refused),
#if ZEROPE_HAVE_SQLITE
        cmocka_unit_test(test_database_that_is_none_is_refused),
#endif
        BOTH(test_memory_that_runs_out_loses_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
