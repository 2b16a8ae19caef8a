/* test_runpage.c: pictures and pages of training runs by their structure, from a recorded run and
 * from documents without events, with gaps, of one step, of many; malformed ones are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <zerope/report.h>
#include <zerope/train.h>

#include "base/mem.h"
#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "markup.h"
#include "report/runfigure.h"
#include "train/series.h"

#define OK(call)                                                                \
    do {                                                                        \
        zp_err ok_err_ = { 0 }, *err = &ok_err_;                                \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, ok_err_.message);        \
    } while (0)

/* ---- documents */

static json_t *new_document(json_int_t last_step)
{
    return json_pack("{ss ss ss sI s[{ss ss ss}] s[] s[] s[] s[]}", "format", "zerope-run",
                     "folder", "runs/first", "command", "zerope train <m>", "last_step", last_step,
                     "options", "name", "tokens", "value", "2m", "origin", "command line",
                     "resumed", "last", "events", "series");
}

/* Steps 0, 1, ... n - 1; where value(step) is NaN the number is null. */
static void add_series(json_t *doc, const char *name, size_t n, double (*value)(size_t))
{
    json_t *steps = json_array(), *values = json_array();
    for (size_t i = 0; i < n; i++) {
        double x = value(i);
        json_array_append_new(steps, json_integer((json_int_t)i));
        json_array_append_new(values, isnan(x) ? json_null() : json_real(x));
    }
    json_array_append_new(json_object_get(doc, "series"),
                          json_pack("{ss so so}", "name", name, "steps", steps, "values", values));
}

static void add_event(json_t *doc, const char *event, int layer, int step, int n)
{
    json_array_append_new(json_object_get(doc, "events"),
                          json_pack("{ss si si si}", "event", event, "layer", layer, "step", step,
                                    "count", n));
}

static double falling(size_t step) { return 8 - (double)(step % 7); }
static double zero(size_t step) { return 0 * (double)step; }
static double missing(size_t step) { return step % 2 ? (double)NAN : 3; }
static double never(size_t step) { return (double)NAN + (double)step; }
static double spike(size_t step) { return step == 7001 ? 1000 : 1; }

static struct buffer written(json_t *doc, const char *name)
{
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    const char *path = in_folder(name);
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    OK(zp_report_run(text, path, err));
    free(text);
    OK(os_read_file(path, &b, err));
    const char *begin = strstr((const char *)b.data, "<html");
    if (!strstr(name, ".png")) check_markup(begin ? begin : (const char *)b.data);
    return b;
}

static struct runfigure figure_of(json_t *doc)
{
    struct runfigure r;
    OK(runfigure_read(&r, doc, err));
    json_decref(doc);
    return r;
}

/* ---- drawing */

static void test_a_recorded_run_becomes_a_page(void **state)
{
    (void)state;
    struct series *s;
    const struct series_info info = { .command = "zerope anneal x --share <half>" };
    const char *path = in_folder("run");
    char *text;
    OK(series_create(&s, path, &info, err));
    for (uint64_t step = 0; step < 20; step++) {
        OK(series_add(s, step, "loss", 3 - 0.1 * (double)step, err));
        OK(series_add(s, step, "ce", 3 - 0.1 * (double)step, err));
        OK(series_add(s, step, "kl", 0, err));
    }
    OK(series_add(s, 10, "held.ce", 2.5, err));
    OK(series_add_event(s, &(struct series_event){ 5, "gate closed", "schedule", 2, 0, 1 }, err));
    OK(series_flush(s, err));
    OK(zp_train_run_json(path, &text, err)); /* while it is open */
    series_close(s);
    json_t *doc = json_loads(text, 0, NULL);
    zp_free(text);
    struct buffer b = written(doc, "run.html");
    const char *html = (const char *)b.data;
    assert_int_equal(count(html, "<svg "), 1);
    assert_true(strstr(html, "zerope anneal x --share &lt;half&gt;") != NULL);
    assert_true(strstr(html, ">held.ce</th><td class=\"n\">2.5</td><td class=\"n\">10<") != NULL);
    assert_true(strstr(html, "2</th><td class=\"n\">gate closed</td><td class=\"n\">1<") != NULL);
    assert_true(strstr(html, "layer 2, steps 5 to 19: 1 closed") != NULL);
    assert_null(strstr(html, "KL(original")); /* 0 everywhere: there is no original */
    assert_true(strstr(html, "prefers-color-scheme:dark") != NULL);
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "src="));
    assert_null(strstr(html, "href="));
    buffer_free(&b);
}

static void test_a_run_that_just_began_says_so(void **state)
{
    (void)state;
    struct buffer b = written(new_document(0), "empty.svg");
    assert_true(strstr((const char *)b.data, "no numbers yet") != NULL);
    buffer_free(&b);
    json_t *doc = new_document(4);
    add_series(doc, "kl", 5, zero);
    add_series(doc, "loss", 5, never);
    b = written(doc, "empty.html");
    assert_true(strstr((const char *)b.data, "no numbers yet") != NULL);
    assert_null(strstr((const char *)b.data, "Events by layer"));
    buffer_free(&b);
}

static void test_one_step_is_a_dot(void **state)
{
    (void)state;
    json_t *doc = new_document(0);
    add_series(doc, "loss", 1, falling);
    add_event(doc, "gate closed", 0, 0, 3);
    struct buffer b = written(doc, "one.svg");
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, "<polyline"), 0);
    assert_int_equal(count(svg, "width=\"4\" height=\"4\""), 1);
    assert_true(strstr(svg, "layer 0, steps 0 to 0: 3 closed") != NULL);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    buffer_free(&b);
}

static void test_numbers_that_are_not_finite_are_gaps(void **state)
{
    (void)state;
    json_t *doc = new_document(9);
    add_series(doc, "loss", 10, missing);
    struct buffer b = written(doc, "gaps.svg");
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, "<polyline"), 0);
    assert_int_equal(count(svg, "width=\"4\" height=\"4\""), 5);
    assert_int_equal(count(svg, "is not finite"), 5);
    assert_true(strstr(svg, "loss (5 not finite)") != NULL);
    buffer_free(&b);
    doc = new_document(9);
    add_series(doc, "ce", 10, never);
    add_series(doc, "held.ce", 10, falling);
    struct runfigure r = figure_of(doc);
    assert_int_equal(r.n_panels, 1);
    assert_int_equal(r.panels[0].n_lines, 1);
    assert_string_equal(r.panels[0].lines[0].name, "held.ce");
    runfigure_free(&r);
}

static void test_many_steps_are_thinned_and_no_spike_is_lost(void **state)
{
    (void)state;
    json_t *doc = new_document(9999);
    add_series(doc, "grad_norm", 10000, spike);
    struct runfigure r = figure_of(doc);
    const struct curve_line *line = &r.panels[0].lines[0];
    double highest = 0;
    assert_true(line->n_raw <= CURVE_MAX_RAW && line->n_raw >= CURVE_BINS);
    assert_true(line->n_mean == CURVE_BINS && line->half == 166);
    for (size_t i = 0; i < line->n_raw; i++) highest = fmax(highest, line->raw[i].value);
    assert_true(highest == 1000);
    assert_true(r.panels[0].high < 10); /* the mean's, not the spike's */
    for (size_t i = 0; i < line->n_mean; i++)
        assert_true(line->mean[i].value >= 1 && line->mean[i].value < 5);
    runfigure_free(&r);
}

static void test_gates_that_open_again_count_back(void **state)
{
    (void)state;
    json_t *doc = new_document(9);
    add_event(doc, "gate closed", 1, 2, 5);
    add_event(doc, "bias closed", 1, 3, 1);
    add_event(doc, "gate opened", 1, 6, 4);
    add_event(doc, "something else", 1 << 20, 6, 4); /* not ours */
    struct runfigure r = figure_of(doc);
    const double expected[] = { 0, 0, 5, 6, 6, 6, 2, 2, 2, 2 };
    assert_int_equal(r.map.n_layer, 2);
    assert_int_equal(r.map.n_columns, 10);
    for (size_t k = 0; k < 10; k++) {
        assert_true(r.map.closed[k] == 0);
        assert_true(r.map.closed[10 + k] == expected[k]);
    }
    runfigure_free(&r);
}

/* ---- refusals */

static void refused(json_t *doc, const char *words)
{
    zp_err err = { 0 };
    uint64_t live = live_bytes();
    const char *path = in_folder("refused.svg");
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    assert_int_equal(zp_report_run(text, path, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
    assert_false(os_exists(path));
    assert_int_equal(live_bytes(), live);
    free(text);
}

static void test_malformed_documents_are_refused_by_name(void **state)
{
    (void)state;
    json_t *doc = json_pack("{ss}", "format", "zerope-scan");
    refused(doc, "no series and last_step");
    doc = new_document(3);
    add_series(doc, "loss", 4, falling);
    json_t *series = json_array_get(json_object_get(doc, "series"), 0);
    json_array_remove(json_object_get(series, "values"), 0);
    refused(json_incref(doc), "series loss: has no lists steps and values of one length");
    json_array_append_new(json_object_get(series, "values"), json_string("1"));
    refused(json_incref(doc), "series loss: values[3]");
    json_array_set_new(json_object_get(series, "steps"), 2, json_integer(0));
    refused(doc, "series loss: steps[2]");
    doc = new_document(3);
    add_event(doc, "gate closed", 4000, 1, 1);
    refused(doc, "events[0]: layer");
    doc = new_document(3);
    add_event(doc, "gate closed", 1, 4, 1);
    refused(doc, "events[0]: step");
    doc = new_document(3);
    add_event(doc, "gate closed", 1, 3, -1);
    refused(doc, "events[0]: count");
    doc = new_document(3);
    json_object_del(doc, "events");
    refused(doc, "no list of events");
}

static void test_other_names_than_pages_and_pictures_are_refused(void **state)
{
    (void)state;
    zp_err err = { 0 };
    assert_int_equal(zp_report_run("{}", in_folder("x.gif"), &err), ZP_USAGE);
    assert_true(strstr(err.message, ".html, .svg or .png") != NULL);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_run("{}", "html", &err), ZP_USAGE);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_run("{\"a\": ", in_folder("x.html"), &err), ZP_BAD_INPUT);
}

static void test_each_failed_allocation_is_reported_and_freed(void **state)
{
    static const char *const names[] = { "m.html", "m.svg", "m.png" };
    (void)state;
    json_t *doc = new_document(99);
    add_series(doc, "loss", 100, falling);
    add_event(doc, "gate closed", 1, 3, 1);
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    for (size_t k = 0; k < ZP_COUNT(names); k++) {
        uint64_t before = live_bytes(), n = 1;
        for (bool failed = true; failed; n++) {
            zp_err err = { 0 };
            mem_fail_at(n, false);
            zp_status status = zp_report_run(text, in_folder(names[k]), &err);
            failed = mem_fail_count() > 0;
            mem_fail_at(0, false);
            assert_int_equal(live_bytes(), before);
            assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        }
        assert_true(n > 5);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_recorded_run_becomes_a_page),
        cmocka_unit_test(test_a_run_that_just_began_says_so),
        cmocka_unit_test(test_one_step_is_a_dot),
        cmocka_unit_test(test_numbers_that_are_not_finite_are_gaps),
        cmocka_unit_test(test_many_steps_are_thinned_and_no_spike_is_lost),
        cmocka_unit_test(test_gates_that_open_again_count_back),
        cmocka_unit_test(test_malformed_documents_are_refused_by_name),
        cmocka_unit_test(test_other_names_than_pages_and_pictures_are_refused),
        cmocka_unit_test(test_each_failed_allocation_is_reported_and_freed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
