/* html.c: what pages share: their look in light and dark, and values of documents as text. */
#include "report/html.h"

#include <stdio.h>

#include "base/numtext.h"
#include "report/canvas.h"

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

void html_put(struct html *p, const char *text)
{
    if (p->status == ZP_OK) p->status = buffer_append_text(p->out, text, p->err);
}

void html_put_text(struct html *p, const char *text)
{
    if (p->status == ZP_OK) p->status = canvas_escape(p->out, text, p->err);
}

void html_begin(struct html *p, const char *what, const char *name)
{
    html_put(p, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    html_put_text(p, what);
    html_put_text(p, name);
    html_put(p, "</title>\n<style>\n");
    html_put(p, style);
    html_put(p, "</style>\n</head>\n<body>\n<main>\n");
}

void html_end(struct html *p, const char *note)
{
    html_put(p, "<p class=\"soft\">Written by zerope. ");
    html_put_text(p, note);
    html_put(p, "</p>\n</main>\n</body>\n</html>\n");
}

/* ---- values */

static void put_members(struct html *p, json_t *object);

void html_put_value(struct html *p, json_t *v)
{
    char text[64];
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_STRING: html_put_text(p, json_string_value(v)); return;
    case JSON_INTEGER: snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: numtext_printf(text, sizeof text, "%.5g", json_real_value(v)); break;
    case JSON_TRUE: snprintf(text, sizeof text, "yes"); break;
    case JSON_FALSE: snprintf(text, sizeof text, "no"); break;
    case JSON_ARRAY: html_put_list(p, v); return;
    case JSON_OBJECT: put_members(p, v); return;
    default: snprintf(text, sizeof text, "-"); break;
    }
    html_put(p, text);
}

static bool is_nest(const json_t *v)
{
    return json_is_array(v) || json_is_object(v);
}

void html_put_list(struct html *p, const json_t *list)
{
    enum { SHOWN = 8 };
    char more[48];
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        json_t *v = json_array_get(list, i);
        html_put(p, i ? ", " : "");
        if (is_nest(v)) html_put(p, "..."); /* no nesting without end */
        else html_put_value(p, v);
    }
    snprintf(more, sizeof more, ", ... (%zu in all)", n);
    if (n > SHOWN) html_put(p, more);
}

/* "original 0.98, file 0.97". */
static void put_members(struct html *p, json_t *object)
{
    const char *key, *comma = "";
    json_t *v;
    json_object_foreach(object, key, v) {
        html_put(p, comma);
        html_put_text(p, key);
        html_put(p, " ");
        if (is_nest(v)) html_put(p, "...");
        else html_put_value(p, v);
        comma = ", ";
    }
}

const char *html_text_of(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}
