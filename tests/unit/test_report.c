/* test_report.c: pictures and pages by their structure: well-formed, complete, nothing of the
 * document unescaped. Looks are judged by eye, not here. */
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
#include <math.h>
#include <zerope/report.h>

#include "base/os.h"
#include "report/canvas.h"
#include "report/heatmap.h"
#include "live_bytes.h"
#include "markup.h"

static char folder[] = "/tmp/zerope-report-XXXXXX";

static char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct buffer read_back(const char *path)
{
    zp_err err = { 0 };
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    if (os_read_file(path, &b, &err) != ZP_OK) fail_msg("%s", err.message);
    return b;
}

/* ---- documents */

static char *dump(json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    assert_non_null(text);
    return text;
}

static json_t *scan(int n_layer, int n_kv, int n_pair)
{
    json_t *list = json_array();
    for (int i = 0; i < n_layer * n_kv * n_pair; i++)
        json_array_append_new(list, json_real(i % 7 == 3 ? 0.0 : 1e-5 * (1 + i)));
    return json_pack("{ss si si si si ss so}", "format", "zerope-scan", "n_layer", n_layer, "n_kv",
                     n_kv, "n_pair", n_pair, "n_ctx", 1024, "model", "dir/some.gguf", "gates",
                     list);
}

static json_t *plan(void)
{
    return json_pack("{ss si si si s[[iii][iii][iii]] s[[iii]]}", "format", "zerope-plan",
                     "n_layer", 3, "n_kv", 2, "n_pair", 4, "closed_gates", 0, 0, 3, 1, 1, 2, 1, 1,
                     2, "local_heads", 2, 1, 256);
}

static struct buffer svg_of(char *doc)
{
    zp_err err = { 0 };
    char *path = path_of("map.svg");
    if (zp_report_heatmap(doc, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(doc);
    struct buffer svg = read_back(path);
    check_markup((const char *)svg.data);
    unlink(path);
    return svg;
}

/* ---- heat map */

static void test_scan_has_a_named_cell_for_each_gate(void **state)
{
    (void)state;
    struct buffer b = svg_of(dump(scan(3, 2, 4)));
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, "<title>layer "), 24);
    assert_int_equal(count(svg, "<title>layer 2, KV head 1, pair 3: 0.00024</title>"), 1);
    assert_int_equal(count(svg, "closed or without effect"), 3); /* gates 3, 10 and 17 */
    assert_int_equal(count(svg, ">some.gguf, 1024 tokens</text>"), 1);
    assert_true(count(svg, ">1e-4</text>") == 1); /* a mark on the colour scale */
    assert_true(strstr(svg, "RoPE pair") && strstr(svg, "layer (2 KV heads each)") &&
                strstr(svg, "in a layer KV head 0 is on top"));
    buffer_free(&b);
}

static void test_plan_tells_closed_open_and_local_apart(void **state)
{
    (void)state;
    struct buffer b = svg_of(dump(plan()));
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, ": closed</title>"), 2); /* one was listed twice */
    assert_int_equal(count(svg, ": open, local: reach 256</title>"), 4);
    assert_int_equal(count(svg, ": open</title>"), 18);
    assert_int_equal(count(svg, "2 of 24 gates closed (8.3 %), 1 local heads"), 3);
    buffer_free(&b);
}

static void test_inspect_document_keeps_its_pair_count_elsewhere(void **state)
{
    (void)state;
    json_t *doc = plan();
    json_object_del(doc, "n_pair");
    json_object_set_new(doc, "rope", json_pack("{si}", "n_pair", 4));
    json_object_set_new(doc, "gates", json_pack("{si}", "total", 24));
    json_object_set_new(doc, "file", json_string("dir/some.gguf"));
    json_object_set_new(doc, "n_ctx_validated", json_integer(256));
    struct buffer b = svg_of(dump(doc));
    assert_int_equal(count((const char *)b.data, "<title>layer "), 24);
    assert_int_equal(count((const char *)b.data, ">some.gguf, 256 tokens</text>"), 1);
    buffer_free(&b);
}

static void test_few_pairs_fill_the_width(void **state)
{
    (void)state;
    const int pairs[] = { 1, 2, 4, 7, 17, 32 };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        zp_err err = { 0 };
        struct heatmap h;
        double width, height;
        json_t *doc = scan(2, 1, pairs[i]);
        assert_int_equal(heatmap_read(&h, doc, &err), ZP_OK);
        heatmap_size(&h, &width, &height);
        char last[64];
        struct buffer b = svg_of(dump(doc));
        double cell = pairs[i] < 18 ? floor(420.0 / pairs[i]) : 24;
        snprintf(last, sizeof last, "width=\"%.0f\"", cell);
        assert_true(count((const char *)b.data, last) >= 2 * (size_t)pairs[i]);
        assert_true(cell * pairs[i] > 0.95 * (width - 78 - 24));
        heatmap_free(&h);
        buffer_free(&b);
    }
}

static void test_png_is_a_picture_of_twice_the_size(void **state)
{
    (void)state;
    zp_err err = { 0 };
    char *doc = dump(scan(30, 3, 32)), *path = path_of("map.png");
    if (zp_report_heatmap(doc, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(doc);
    struct buffer b = read_back(path);
    assert_true(b.size > 1000);
    assert_memory_equal(b.data, "\x89PNG\r\n\x1a\n", 8);
    uint32_t width = (uint32_t)b.data[18] << 8 | b.data[19];
    uint32_t height = (uint32_t)b.data[22] << 8 | b.data[23];
    assert_int_equal(width, 2 * (78 + 24 * 32 + 24));
    assert_true(height > 2 * 900 && height < 2 * 1400);
    buffer_free(&b);
    unlink(path);
}

static void test_largest_shapes_are_drawn_and_larger_ones_refused(void **state)
{
    (void)state;
    struct buffer b = svg_of(dump(scan(80, 8, 64)));
    assert_int_equal(count((const char *)b.data, "<title>layer "), 80 * 8 * 64);
    buffer_free(&b);
    zp_err err = { 0 };
    char *doc = dump(json_pack("{si si si s[]}", "n_layer", 16384, "n_kv", 16384, "n_pair", 512,
                               "closed_gates"));
    assert_int_equal(zp_report_heatmap(doc, path_of("x.svg"), &err), ZP_BAD_INPUT);
    free(doc);
}

/* ---- speed by depth */

static json_t *speed_row(const char *test, int depth, int batch, double tps)
{
    return json_pack("{ss si si sf sf sf}", "test", test, "depth", depth, "batch", batch,
                     "tps_median", tps, "tps_min", 0.9 * tps, "tps_max", 1.1 * tps);
}

static json_t *speed(void)
{
    json_t *rows = json_array();
    for (int depth = 0; depth <= 2048; depth += 1024) {
        json_array_append_new(rows, speed_row("fill", depth, 1, 1e5));
        json_array_append_new(rows, speed_row("prefill", depth, 1, 4000 - depth));
        for (int batch = 1; batch <= 4; batch += 3)
            json_array_append_new(rows, speed_row("decode", depth, batch, 300.0 * batch));
    }
    return json_pack("{ss si so}", "model", "dir/some.gguf", "threads", 2, "rows", rows);
}

static struct buffer speed_svg(json_t *doc)
{
    zp_err err = { 0 };
    char *path = path_of("speed.svg"), *text = dump(doc);
    if (zp_report_speed(text, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(text);
    struct buffer svg = read_back(path);
    check_markup((const char *)svg.data);
    unlink(path);
    return svg;
}

static void test_speed_has_a_line_for_each_number_of_sequences(void **state)
{
    (void)state;
    struct buffer b = speed_svg(speed());
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, "<title>prefill, depth "), 3);
    assert_int_equal(count(svg, "<title>decode, depth "), 6);
    assert_int_equal(count(svg, "<title>decode, depth 1024, sequences: 4: 1200 t/s (1080 to 1320)"),
                     1);
    assert_int_equal(count(svg, "<polyline"), 9 + 3); /* a range each, and the lines */
    assert_int_equal(count(svg, ">some.gguf, threads: 2</text>"), 1);
    assert_true(strstr(svg, ">1 sequence</text>") && strstr(svg, ">4 sequences</text>"));
    assert_true(strstr(svg, ">prefill</text>") && strstr(svg, ">decode</text>"));
    assert_true(strstr(svg, ">2048</text>") && !strstr(svg, "fill, depth 0, sequences: 1: 1e+05"));
    buffer_free(&b);
}

static void test_speed_of_one_test_at_one_depth(void **state)
{
    (void)state;
    struct buffer b = speed_svg(json_pack("{s[o]}", "rows", speed_row("decode", 0, 1, 0.25)));
    const char *svg = (const char *)b.data;
    assert_int_equal(count(svg, "<title>decode, depth 0"), 1);
    assert_true(!strstr(svg, ">prefill</text>") && strstr(svg, ">0</text>"));
    assert_true(!strstr(svg, "nan") && !strstr(svg, "inf"));
    buffer_free(&b);
}

static void speed_refused(json_t *doc, const char *part)
{
    zp_err err = { 0 };
    char *text = dump(doc), *path = path_of("no.svg");
    assert_int_equal(zp_report_speed(text, path, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, part)) fail_msg("'%s' lacks '%s'", err.message, part);
    assert_int_not_equal(access(path, F_OK), 0);
    free(text);
}

static void test_malformed_speeds_are_refused(void **state)
{
    (void)state;
    speed_refused(json_array(), "no rows");
    speed_refused(json_pack("{s{}}", "rows"), "no rows");
    speed_refused(json_pack("{s[]}", "rows"), "no row of prefill or decode");
    speed_refused(json_pack("{s[i s [] {ss}]}", "rows", 1, "decode", "test", "fill"), "no row of");
    static const char *const keys[] = { "depth", "batch", "tps_median", "tps_min", "tps_max" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *bad[] = { NULL, json_string("1"), json_real(-1), json_real(1e300) };
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            json_t *row = speed_row("decode", 64, 1, 10);
            if (bad[k]) json_object_set_new(row, keys[i], bad[k]);
            else json_object_del(row, keys[i]);
            speed_refused(json_pack("{s[o o]}", "rows", speed_row("decode", 0, 1, 5), row),
                          keys[i]);
        }
    }
    speed_refused(json_pack("{s[o]}", "rows", speed_row("prefill", 0, 1, 1e-320)), "tps_median");
    json_t *rows = json_array(), *points = json_array();
    for (int i = 0; i < 13; i++) json_array_append_new(rows, speed_row("decode", 0, i, 1));
    speed_refused(json_pack("{so}", "rows", rows), "more than 12 lines");
    for (int i = 0; i < 1025; i++) json_array_append_new(points, speed_row("decode", i, 1, 1));
    speed_refused(json_pack("{so}", "rows", points), "more than 1024 rows");
}

/* ---- hostile documents */

static const char evil[] = "<script>alert('x')</script>\"&\x01 \xf0\x9f\x98\x80";

static void test_texts_of_the_document_are_escaped(void **state)
{
    (void)state;
    zp_err err = { 0 };
    json_t *doc = scan(2, 1, 2);
    json_object_set_new(doc, "model", json_string(evil));
    struct buffer b = svg_of(dump(doc));
    assert_null(strstr((const char *)b.data, "<script"));
    buffer_free(&b);
    doc = speed();
    json_object_set_new(doc, "model", json_string(evil));
    b = speed_svg(doc);
    assert_null(strstr((const char *)b.data, "<script"));
    buffer_free(&b);

    doc = json_pack("{ss ss ss s[{ss ss ss ss s[s]}] so}", "status", evil, "model", evil, "base",
                    evil, "checks", "name", evil, "value", evil, "status", evil, "how", evil,
                    "interval", evil, "position", plan());
    json_object_set_new(json_object_get(doc, "position"), "model", json_string(evil));
    json_object_set_new(doc, evil, json_true());
    char *text = dump(doc), *path = path_of("page.html");
    if (zp_report_verify_html(text, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(text);
    b = read_back(path);
    check_markup(strstr((const char *)b.data, "<html"));
    assert_null(strstr((const char *)b.data, "<script"));
    assert_null(strchr((const char *)b.data, 1));
    assert_true(count((const char *)b.data, "&lt;script&gt;") >= 10);
    buffer_free(&b);
    unlink(path);
}

static void test_escape_covers_every_byte(void **state)
{
    (void)state;
    char text[2] = { 0, 0 };
    for (int i = 1; i < 0x80; i++) {
        struct buffer b = buffer_with_max(MEM_META, 64);
        text[0] = (char)i;
        assert_int_equal(canvas_escape(&b, text, NULL), ZP_OK);
        bool special = strchr("&<>\"'", i) != NULL;
        bool foreign = i == 0x7f || (i < 0x20 && !strchr("\t\n\r", i));
        assert_int_equal(b.data[0], special ? '&' : foreign ? 0xef : i);
        assert_int_equal(b.size > 1, special || foreign);
        buffer_free(&b);
    }
}

static void refused(json_t *doc, const char *words)
{
    zp_err err = { 0 };
    char *text = dump(doc), *path = path_of("refused.svg");
    assert_int_equal(zp_report_heatmap(text, path, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
    assert_false(os_exists(path));
    free(text);
}

static void test_malformed_documents_are_refused_by_name(void **state)
{
    (void)state;
    json_t *doc = scan(2, 2, 2);
    json_array_remove(json_object_get(doc, "gates"), 0);
    refused(doc, "importance has 7 values; expected 8");
    doc = scan(2, 2, 2);
    json_array_set_new(json_object_get(doc, "gates"), 3, json_string("1"));
    refused(doc, "importance[3]");
    doc = scan(2, 2, 2);
    json_object_set_new(doc, "n_layer", json_integer(-1));
    refused(doc, "n_layer");
    doc = plan();
    json_array_append_new(json_object_get(doc, "closed_gates"), json_pack("[iii]", 0, 2, 0));
    refused(doc, "closed_gates[3] is [0, 2, 0]");
    doc = plan();
    json_array_append_new(json_object_get(doc, "local_heads"), json_pack("[ii]", 0, 0));
    refused(doc, "local_heads[1]");
    refused(json_pack("{si si si}", "n_layer", 1, "n_kv", 1, "n_pair", 1), "neither importance");
    refused(json_array(), "n_layer is missing");
}

/* ---- page */

static void add_objects(json_t *doc)
{
    json_t *check = json_array_get(json_object_get(doc, "checks"), 1);
    json_object_set_new(check, "value", json_pack("{sf si s[i]}", "original", 0.98, "prompts", 200,
                                                  "deep", 1));
    json_object_set_new(doc, "quality", json_pack("{sf sb}", "kl_mean", 0.0125, "exact", 1));
}

static json_t *verify(void)
{
    return json_pack("{ss ss ss si s[{ss sf sf ss s[ff] ss}{ss so sn ss ss}] "
                     "s[{si si sf sf}{si si sf sf}] so}",
                     "status", "pass", "model", "m.gguf", "base", "b.gguf", "ctx", 1024, "checks",
                     "name", "mean KL", "value", 0.0123456789, "limit", 0.02, "status", "pass",
                     "interval", 0.01, 0.015, "how", "zerope ppl m.gguf", "name", "needle", "value",
                     json_false(), "limit", "status", "n/a", "how", "zerope eval", "buckets",
                     "from", 512, "to", 1024, "nll", 3.1, "nll_base", 3.09, "from", 1024, "to",
                     2047, "nll", 3.05, "nll_base", 3.04, "position", plan());
}

static struct buffer page_of(json_t *doc)
{
    zp_err err = { 0 };
    add_objects(doc);
    char *text = dump(doc), *path = path_of("page.html");
    if (zp_report_verify_html(text, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(text);
    struct buffer b = read_back(path);
    check_markup(strstr((const char *)b.data, "<html"));
    unlink(path);
    return b;
}

static void test_page_holds_checks_chart_and_map(void **state)
{
    (void)state;
    struct buffer b = page_of(verify());
    const char *html = (const char *)b.data;
    assert_true(strstr(html, "1 of 2 checks passed, 0 failed, 1 without verdict") != NULL);
    assert_true(strstr(html, "<td class=\"n\">0.012346 <span") != NULL);
    assert_true(strstr(html, "(0.01, 0.015)</span>") != NULL);
    assert_true(strstr(html, "original 0.98, prompts 200, deep ...</td>") != NULL);
    assert_true(strstr(html, "quality</th></tr>") != NULL);
    assert_int_equal(count(html, "class=\"pass\""), 2); /* the whole and one check */
    assert_true(strstr(html, "<span class=\"other\">n/a</span>") != NULL);
    assert_int_equal(count(html, "<svg "), 2);
    assert_int_equal(count(html, "<polyline"), 4); /* two lines and their keys */
    assert_int_equal(count(html, "<title>layer "), 24);
    assert_true(strstr(html, "prefers-color-scheme:dark") != NULL);
    /* nothing is fetched and nothing runs */
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "src="));
    assert_null(strstr(html, "@import"));
    assert_null(strstr(html, "href="));
    buffer_free(&b);
}

static void test_page_gives_each_member_a_row(void **state)
{
    (void)state;
    zp_err err = { 0 };
    json_t *doc = verify();
    json_object_set_new(doc, "quality",
                        json_pack("{sf sf s{si}}", "kl_mean", 0.25, "kl_hi", 0.5, "deep", "x", 1));
    char *text = dump(doc), *path = path_of("rows.html");
    if (zp_report_verify_html(text, path, &err) != ZP_OK) fail_msg("%s", err.message);
    free(text);
    struct buffer b = read_back(path);
    const char *page = strstr((const char *)b.data, "<html");
    check_markup(page);
    assert_int_equal(count(page, ">quality</th></tr>"), 1);
    assert_int_equal(count(page, ">kl_mean</th><td class=\"n\">0.25</td></tr>"), 1);
    assert_int_equal(count(page, ">kl_hi</th><td class=\"n\">0.5</td></tr>"), 1);
    assert_int_equal(count(page, ">deep</th><td class=\"n\">x 1</td></tr>"), 1);
    buffer_free(&b);
    unlink(path);
}

static void test_page_leaves_out_what_the_document_lacks(void **state)
{
    (void)state;
    json_t *doc = verify();
    json_object_del(doc, "buckets");
    json_object_del(doc, "position");
    struct buffer b = page_of(doc);
    assert_int_equal(count((const char *)b.data, "<svg "), 0);
    buffer_free(&b);
    doc = verify();
    json_object_del(json_array_get(json_object_get(doc, "buckets"), 1), "nll_base");
    b = page_of(doc);
    assert_int_equal(count((const char *)b.data, "<polyline"), 2); /* no half a comparison */
    buffer_free(&b);
}

static void page_refused(const char *text, const char *words)
{
    zp_err err = { 0 };
    char *path = path_of("refused.html");
    assert_int_equal(zp_report_verify_html(text, path, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
    assert_false(os_exists(path));
}

static void test_malformed_verify_documents_are_refused(void **state)
{
    (void)state;
    page_refused("{\"checks\": [", "line 1");
    page_refused("{\"checks\": {}}", "no list of checks");
    page_refused("{\"checks\": [1]}", "checks[0]");
    page_refused("{\"checks\": [], \"buckets\": [{\"from\": 1, \"to\": 2}]}", "buckets[0]: nll");
    page_refused("{\"checks\": [], \"position\": {\"n_layer\": 1}}", "n_kv is missing");
}

/* ---- files */

static void test_unwritable_places_and_other_kinds_are_errors(void **state)
{
    (void)state;
    zp_err err = { 0 };
    char *doc = dump(plan()), *page = dump(verify());
    assert_int_equal(zp_report_heatmap(doc, "/nonexistent/x.svg", &err), ZP_BAD_INPUT);
    assert_true(strstr(err.message, "/nonexistent") != NULL);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_heatmap(doc, "/nonexistent/x.png", &err), ZP_BAD_INPUT);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_heatmap(doc, path_of("x.gif"), &err), ZP_USAGE);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_heatmap(doc, "svg", &err), ZP_USAGE);
    err = (zp_err){ 0 };
    assert_int_equal(zp_report_verify_html(page, "/nonexistent/x.html", &err), ZP_BAD_INPUT);
    free(doc);
    free(page);
}

static void test_a_full_disk_leaves_the_old_picture(void **state)
{
    (void)state;
    char *doc = dump(plan()), *names[] = { "old.svg", "old.png" };
    for (size_t i = 0; i < 2; i++) {
        zp_err err = { 0 };
        char *path = path_of(names[i]);
        assert_int_equal(os_write_file(path, "old", 3, &err), ZP_OK);
        os_fail_writes_after(100);
        assert_int_equal(zp_report_heatmap(doc, path, &err), ZP_NO_SPACE);
        os_fail_writes_after(UINT64_MAX);
        struct buffer b = read_back(path);
        assert_string_equal((const char *)b.data, "old");
        buffer_free(&b);
        unlink(path);
    }
    free(doc);
}

/* ---- memory */

static void fail_each_allocation(zp_status (*call)(const char *, const char *, zp_err *),
                                 const char *doc, char *path)
{
    uint64_t before = live_bytes(), n = 1;
    for (bool failed = true; failed; n++) {
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = call(doc, path, &err);
        failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        if (live_bytes() != before) fail_msg("allocation %llu: a leak", (unsigned long long)n);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
    }
    assert_true(n > 5);
    unlink(path);
}

static void test_each_failed_allocation_is_reported_and_freed(void **state)
{
    (void)state;
    char *map = dump(plan()), *page = dump(verify()), *chart = dump(speed());
    fail_each_allocation(zp_report_speed, chart, path_of("s.svg"));
    fail_each_allocation(zp_report_speed, chart, path_of("s.png"));
    free(chart);
    fail_each_allocation(zp_report_heatmap, map, path_of("m.svg"));
    fail_each_allocation(zp_report_heatmap, map, path_of("m.png"));
    fail_each_allocation(zp_report_verify_html, page, path_of("p.html"));
    free(map);
    free(page);
}

/* ---- */

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if anything was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan_has_a_named_cell_for_each_gate),
        cmocka_unit_test(test_plan_tells_closed_open_and_local_apart),
        cmocka_unit_test(test_inspect_document_keeps_its_pair_count_elsewhere),
        cmocka_unit_test(test_few_pairs_fill_the_width),
        cmocka_unit_test(test_page_gives_each_member_a_row),
        cmocka_unit_test(test_png_is_a_picture_of_twice_the_size),
        cmocka_unit_test(test_largest_shapes_are_drawn_and_larger_ones_refused),
        cmocka_unit_test(test_speed_has_a_line_for_each_number_of_sequences),
        cmocka_unit_test(test_speed_of_one_test_at_one_depth),
        cmocka_unit_test(test_malformed_speeds_are_refused),
        cmocka_unit_test(test_texts_of_the_document_are_escaped),
        cmocka_unit_test(test_escape_covers_every_byte),
        cmocka_unit_test(test_malformed_documents_are_refused_by_name),
        cmocka_unit_test(test_page_holds_checks_chart_and_map),
        cmocka_unit_test(test_page_leaves_out_what_the_document_lacks),
        cmocka_unit_test(test_malformed_verify_documents_are_refused),
        cmocka_unit_test(test_unwritable_places_and_other_kinds_are_errors),
        cmocka_unit_test(test_a_full_disk_leaves_the_old_picture),
        cmocka_unit_test(test_each_failed_allocation_is_reported_and_freed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
