/* page.c: the verify report.
 * Owns: nothing between calls. Does not know: what the checks mean.
 * G1 every text of the document goes through canvas_escape.  G2 a status is told in words, not in
 * colour alone.  G3 what the document lacks is left out; what is malformed is an error. */
#include "report/page.h"

#include <zerope/report.h>

#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/numtext.h"
#include "base/os.h"
#include "report/chart.h"
#include "report/heatmap.h"

struct page {
    struct buffer *out;
    zp_err *err;
    zp_status status; /* the first failure; nothing is appended after it */
};

static const char style[] =
    ":root{--fg:#1a1a1a;--soft:#595959;--bg:#fff;--edge:#d0d0d0;--pass:#1d6b2f;--fail:#b3261e;"
    "--other:#7a5900}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e8e8e8;--soft:#ababab;--bg:#16181c;"
    "--edge:#41454d;--pass:#7bd88f;--fail:#ff8a80;--other:#ffd479}}\n"
    "body{color:var(--fg);background:var(--bg);font:16px/1.5 system-ui,'Liberation Sans',Arial,"
    "sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem;line-height:1.25;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2rem 0 "
    ".5rem}\n"
    "p{margin:.25rem 0}.soft{color:var(--soft)}\n"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4rem .75rem .4rem 0;"
    "border-bottom:1px solid var(--edge);vertical-align:top;overflow-wrap:anywhere}\n"
    "th{font-weight:600}tr.member "
    "th{font-weight:400;padding-left:1.5rem}td.n{font-variant-numeric:tabular-nums}code{font-size:."
    "85em}\n"
    ".pass{color:var(--pass)}.fail{color:var(--fail)}.other{color:var(--other)}"
    ".pass,.fail,.other{font-weight:600;white-space:nowrap}\n"
    "figure{margin:1rem 0;overflow-x:auto}svg{max-width:none}svg .ink{fill:var(--fg)}"
    "svg .line{stroke:var(--fg)}svg .rule{stroke:var(--edge)}svg .paper{fill:none}\n";

static void put(struct page *p, const char *text)
{
    if (p->status == ZP_OK) p->status = buffer_append_text(p->out, text, p->err);
}

static void put_escaped(struct page *p, const char *text)
{
    if (p->status == ZP_OK) p->status = canvas_escape(p->out, text, p->err);
}

/* ---- values */

static void put_list(struct page *p, const json_t *list);
static void put_members(struct page *p, json_t *object);

static void put_value(struct page *p, json_t *v)
{
    char text[64];
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_STRING: put_escaped(p, json_string_value(v)); return;
    case JSON_INTEGER: snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: numtext_printf(text, sizeof text, "%.5g", json_real_value(v)); break;
    case JSON_TRUE: snprintf(text, sizeof text, "yes"); break;
    case JSON_FALSE: snprintf(text, sizeof text, "no"); break;
    case JSON_ARRAY: put_list(p, v); return;
    case JSON_OBJECT: put_members(p, v); return;
    default: snprintf(text, sizeof text, "-"); break;
    }
    put(p, text);
}

static bool is_nest(const json_t *v)
{
    return json_is_array(v) || json_is_object(v);
}

/* An interval or a short list; long ones are cut, and the cut says so. */
static void put_list(struct page *p, const json_t *list)
{
    enum { SHOWN = 8 };
    char more[48];
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        json_t *v = json_array_get(list, i);
        put(p, i ? ", " : "");
        if (is_nest(v)) put(p, "..."); /* no nesting without end */
        else put_value(p, v);
    }
    snprintf(more, sizeof more, ", ... (%zu in all)", n);
    if (n > SHOWN) put(p, more);
}

/* "original 0.98, file 0.97". */
static void put_members(struct page *p, json_t *object)
{
    const char *key, *comma = "";
    json_t *v;
    json_object_foreach(object, key, v) {
        put(p, comma);
        put_escaped(p, key);
        put(p, " ");
        if (is_nest(v)) put(p, "...");
        else put_value(p, v);
        comma = ", ";
    }
}

static const char *text_of(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}

static const char *class_of(const char *status)
{
    return strcmp(status, "pass") == 0 ? "pass" : strcmp(status, "fail") == 0 ? "fail" : "other";
}

static void put_status(struct page *p, const char *status)
{
    const char *class = class_of(status);
    put(p, "<span class=\"");
    put(p, class);
    put(p, strcmp(class, "pass") == 0 ? "\">\xe2\x9c\x93 " :
           strcmp(class, "fail") == 0 ? "\">\xe2\x9c\x97 " : "\">");
    put_escaped(p, status);
    put(p, "</span>");
}

/* ---- parts */

static void put_summary(struct page *p, const json_t *doc)
{
    const json_t *checks = json_object_get(doc, "checks");
    size_t n = json_array_size(checks), pass = 0, fail = 0;
    char text[160];
    for (size_t i = 0; i < n; i++) {
        const char *status = text_of(json_array_get(checks, i), "status", "");
        pass += strcmp(status, "pass") == 0;
        fail += strcmp(status, "fail") == 0;
    }
    put(p, "<h1>Verification of ");
    put_escaped(p, text_of(doc, "model", "a model"));
    put(p, ": ");
    put_status(p, text_of(doc, "status", "unknown"));
    snprintf(text, sizeof text,
             "</h1>\n<p>%zu of %zu checks passed, %zu failed, %zu without verdict.</p>\n", pass, n,
             fail, n - pass - fail);
    put(p, text);
}

static bool is_scalar(const json_t *v)
{
    return json_is_string(v) || json_is_number(v) || json_is_boolean(v);
}

/* A row; an object gets a heading and a row for each member. */
static void put_fact(struct page *p, const char *key, json_t *v, bool member)
{
    const char *name;
    json_t *inner;
    bool group = json_is_object(v) && !member;
    put(p, group ? "<tr><th scope=\"rowgroup\" colspan=\"2\">" :
           member ? "<tr class=\"member\"><th scope=\"row\">" : "<tr><th scope=\"row\">");
    put_escaped(p, key);
    put(p, group ? "</th></tr>\n" : "</th><td class=\"n\">");
    if (group) {
        json_object_foreach(v, name, inner) put_fact(p, name, inner, true);
        return;
    }
    put_value(p, v);
    put(p, "</td></tr>\n");
}

static void put_facts(struct page *p, json_t *doc)
{
    const char *key;
    json_t *v;
    put(p, "<table>\n");
    json_object_foreach(doc, key, v) {
        bool shown = is_scalar(v) || (json_is_object(v) && strcmp(key, "position") != 0);
        if (!shown || strcmp(key, "status") == 0) continue;
        put_fact(p, key, v, false);
    }
    put(p, "</table>\n");
}

static void put_check(struct page *p, const json_t *check)
{
    const json_t *interval = json_object_get(check, "interval");
    put(p, "<tr><th scope=\"row\">");
    put_escaped(p, text_of(check, "name", "(no name)"));
    put(p, "</th><td class=\"n\">");
    put_value(p, json_object_get(check, "value"));
    if (json_is_array(interval) && json_array_size(interval) > 0) {
        put(p, " <span class=\"soft\">(");
        put_list(p, interval);
        put(p, ")</span>");
    }
    put(p, "</td><td class=\"n\">");
    put_value(p, json_object_get(check, "limit"));
    put(p, "</td><td>");
    put_status(p, text_of(check, "status", "unknown"));
    put(p, "</td><td><code>");
    put_escaped(p, text_of(check, "how", ""));
    put(p, "</code></td></tr>\n");
}

static zp_status put_checks(struct page *p, const json_t *doc)
{
    const json_t *checks = json_object_get(doc, "checks");
    put(p, "<h2>Checks</h2>\n<table>\n<thead><tr><th>check</th><th>value</th><th>limit</th>"
           "<th>status</th><th>how to reproduce</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        ZP_FAIL_IF(!json_is_object(check), p->err, ZP_BAD_INPUT, "checks[%zu] is not an object", i);
        put_check(p, check);
    }
    put(p, "</tbody>\n</table>\n");
    return ZP_OK;
}

static zp_status put_buckets(struct page *p, const json_t *doc)
{
    struct chart chart;
    struct canvas c;
    double width, height;
    ZP_TRY(chart_read(&chart, json_object_get(doc, "buckets"), p->err));
    if (chart.n == 0) return ZP_OK;
    put(p, "<h2>Quality by position</h2>\n<figure>\n");
    ZP_TRY(p->status);
    chart_size(&chart, &width, &height);
    canvas_svg_open(&c, width, height, "NLL by position", p->out, p->err);
    chart_draw(&chart, &c);
    p->status = canvas_svg_finish(&c);
    put(p, "</figure>\n");
    return p->status;
}

static zp_status put_gates(struct page *p, const json_t *doc)
{
    struct heatmap h;
    struct canvas c;
    double width, height;
    const json_t *position = json_object_get(doc, "position");
    if (!json_is_object(position)) return ZP_OK;
    ZP_TRY(heatmap_read(&h, position, p->err));
    put(p, "<h2>Which gates are closed</h2>\n<figure>\n");
    if (p->status == ZP_OK) {
        heatmap_size(&h, &width, &height);
        canvas_svg_open(&c, width, height, h.title, p->out, p->err);
        heatmap_draw(&h, &c);
        p->status = canvas_svg_finish(&c);
    }
    put(p, "</figure>\n");
    heatmap_free(&h);
    return p->status;
}

zp_status page_write(json_t *doc, struct buffer *out, zp_err *err)
{
    struct page p = { .out = out, .err = err };
    ZP_FAIL_IF(!json_is_array(json_object_get(doc, "checks")), err, ZP_BAD_INPUT,
               "the document has no list of checks: expected one that verify wrote");
    put(&p, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n<title>Verification of ");
    put_escaped(&p, text_of(doc, "model", "a model"));
    put(&p, "</title>\n<style>\n");
    put(&p, style);
    put(&p, "</style>\n</head>\n<body>\n<main>\n");
    put_summary(&p, doc);
    put_facts(&p, doc);
    ZP_TRY(put_checks(&p, doc));
    ZP_TRY(put_buckets(&p, doc));
    ZP_TRY(put_gates(&p, doc));
    put(&p, "<p class=\"soft\">Written by zerope. Checks without verdict (inconclusive, n/a) do "
            "not count as passed.</p>\n</main>\n</body>\n</html>\n");
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
