/* page.c: the verify report.
 * Owns: nothing between calls. Does not know: what the checks mean.
 * G1 every text of the document goes through canvas_escape.  G2 a status is told in words, not in
 * colour alone.  G3 what the document lacks is left out; what is malformed is an error. */
#include "report/page.h"

#include <zerope/report.h>

#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "report/chart.h"
#include "report/heatmap.h"
#include "report/html.h"

static const char *class_of(const char *status)
{
    return strcmp(status, "pass") == 0 ? "pass" : strcmp(status, "fail") == 0 ? "fail" : "other";
}

static void put_status(struct html *p, const char *status)
{
    const char *class = class_of(status);
    html_put(p, "<span class=\"");
    html_put(p, class);
    html_put(p, strcmp(class, "pass") == 0 ? "\">\xe2\x9c\x93 " :
           strcmp(class, "fail") == 0 ? "\">\xe2\x9c\x97 " : "\">");
    html_put_text(p, status);
    html_put(p, "</span>");
}

/* ---- parts */

static void put_summary(struct html *p, const json_t *doc)
{
    const json_t *checks = json_object_get(doc, "checks");
    size_t n = json_array_size(checks), pass = 0, fail = 0;
    char text[160];
    for (size_t i = 0; i < n; i++) {
        const char *status = html_text_of(json_array_get(checks, i), "status", "");
        pass += strcmp(status, "pass") == 0;
        fail += strcmp(status, "fail") == 0;
    }
    html_put(p, "<h1>Verification of ");
    html_put_text(p, html_text_of(doc, "model", "a model"));
    html_put(p, ": ");
    put_status(p, html_text_of(doc, "status", "unknown"));
    snprintf(text, sizeof text,
             "</h1>\n<p>%zu of %zu checks passed, %zu failed, %zu without verdict.</p>\n", pass, n,
             fail, n - pass - fail);
    html_put(p, text);
}

static bool is_scalar(const json_t *v)
{
    return json_is_string(v) || json_is_number(v) || json_is_boolean(v);
}

/* A row; an object gets a heading and a row for each member. */
static void put_fact(struct html *p, const char *key, json_t *v, bool member)
{
    const char *name;
    json_t *inner;
    bool group = json_is_object(v) && !member;
    html_put(p, group ? "<tr><th scope=\"rowgroup\" colspan=\"2\">" :
           member ? "<tr class=\"member\"><th scope=\"row\">" : "<tr><th scope=\"row\">");
    html_put_text(p, key);
    html_put(p, group ? "</th></tr>\n" : "</th><td class=\"n\">");
    if (group) {
        json_object_foreach(v, name, inner) put_fact(p, name, inner, true);
        return;
    }
    html_put_value(p, v);
    html_put(p, "</td></tr>\n");
}

static void put_facts(struct html *p, json_t *doc)
{
    const char *key;
    json_t *v;
    html_put(p, "<table>\n");
    json_object_foreach(doc, key, v) {
        bool shown = is_scalar(v) || (json_is_object(v) && strcmp(key, "position") != 0);
        if (!shown || strcmp(key, "status") == 0) continue;
        put_fact(p, key, v, false);
    }
    html_put(p, "</table>\n");
}

static void put_check(struct html *p, const json_t *check)
{
    const json_t *interval = json_object_get(check, "interval");
    html_put(p, "<tr><th scope=\"row\">");
    html_put_text(p, html_text_of(check, "name", "(no name)"));
    html_put(p, "</th><td class=\"n\">");
    html_put_value(p, json_object_get(check, "value"));
    if (json_is_array(interval) && json_array_size(interval) > 0) {
        html_put(p, " <span class=\"soft\">(");
        html_put_list(p, interval);
        html_put(p, ")</span>");
    }
    html_put(p, "</td><td class=\"n\">");
    html_put_value(p, json_object_get(check, "limit"));
    html_put(p, "</td><td>");
    put_status(p, html_text_of(check, "status", "unknown"));
    html_put(p, "</td><td><code>");
    html_put_text(p, html_text_of(check, "how", ""));
    html_put(p, "</code></td></tr>\n");
}

static zp_status put_checks(struct html *p, const json_t *doc)
{
    const json_t *checks = json_object_get(doc, "checks");
    html_put(p, "<h2>Checks</h2>\n<table>\n<thead><tr><th>check</th><th>value</th><th>limit</th>"
           "<th>status</th><th>how to reproduce</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        ZP_FAIL_IF(!json_is_object(check), p->err, ZP_BAD_INPUT, "checks[%zu] is not an object", i);
        put_check(p, check);
    }
    html_put(p, "</tbody>\n</table>\n");
    return ZP_OK;
}

static zp_status put_buckets(struct html *p, const json_t *doc)
{
    struct chart chart;
    struct canvas c;
    double width, height;
    ZP_TRY(chart_read(&chart, json_object_get(doc, "buckets"), p->err));
    if (chart.n == 0) return ZP_OK;
    html_put(p, "<h2>Quality by position</h2>\n<figure>\n");
    ZP_TRY(p->status);
    chart_size(&chart, &width, &height);
    canvas_svg_open(&c, width, height, "NLL by position", p->out, p->err);
    chart_draw(&chart, &c);
    p->status = canvas_svg_finish(&c);
    html_put(p, "</figure>\n");
    return p->status;
}

static zp_status put_gates(struct html *p, const json_t *doc)
{
    struct heatmap h;
    struct canvas c;
    double width, height;
    const json_t *position = json_object_get(doc, "position");
    if (!json_is_object(position)) return ZP_OK;
    ZP_TRY(heatmap_read(&h, position, p->err));
    html_put(p, "<h2>Which gates are closed</h2>\n<figure>\n");
    if (p->status == ZP_OK) {
        heatmap_size(&h, &width, &height);
        canvas_svg_open(&c, width, height, h.title, p->out, p->err);
        heatmap_draw(&h, &c);
        p->status = canvas_svg_finish(&c);
    }
    html_put(p, "</figure>\n");
    heatmap_free(&h);
    return p->status;
}

zp_status page_write(json_t *doc, struct buffer *out, zp_err *err)
{
    struct html p = { .out = out, .err = err };
    ZP_FAIL_IF(!json_is_array(json_object_get(doc, "checks")), err, ZP_BAD_INPUT,
               "the document has no list of checks: expected one that verify wrote");
    html_begin(&p, "Verification of ", html_text_of(doc, "model", "a model"));
    put_summary(&p, doc);
    put_facts(&p, doc);
    ZP_TRY(put_checks(&p, doc));
    ZP_TRY(put_buckets(&p, doc));
    ZP_TRY(put_gates(&p, doc));
    html_end(&p, "Checks without verdict (inconclusive, n/a) do not count as passed.");
    return p.status;
}

zp_status zp_report_verify_html(const char *json, const char *path, zp_err *err)
{
    struct buffer out = buffer_with_max(MEM_META, (size_t)1 << 30);
    json_t *doc;
    ZP_TRY(json_tree_read(json, strlen(json), "the document", ZP_BAD_INPUT, &doc, err));
    zp_status status = page_write(doc, &out, err);
    if (status == ZP_OK) status = os_write_file(path, out.data, out.size, err);
    buffer_free(&out);
    json_decref(doc);
    return status;
}
