/* runpage.c: the page of a training run, and the call that writes page or picture.
 * Owns: nothing between calls. What the document lacks is left out; every text of it is escaped. */
#include "report/runpage.h"

#include <zerope/report.h>

#include <string.h>

#include "base/json_tree.h"
#include "base/numtext.h"
#include "base/os.h"
#include "report/html.h"
#include "report/runfigure.h"

/* A table of objects; cells: their members, and what stands above them. */
struct column {
    const char *key, *title;
};
enum { MOST_COLUMNS = 5 };

/* run.json has 0.05 as 0.050000000000000003, which is exact, and nothing to read. */
static void put_cell(struct html *p, json_t *v)
{
    char text[48], *end = NULL;
    const char *s = json_string_value(v);
    double x = s ? numtext_double(s, &end) : 0;
    if (!s || !strchr(s, '.') || *end != '\0' || strlen(s) <= 12) {
        html_put_value(p, v);
        return;
    }
    numtext_printf(text, sizeof text, "%.9g", x);
    html_put(p, text);
}

static void put_row(struct html *p, const json_t *row, const struct column *columns, size_t n)
{
    html_put(p, "<tr>");
    for (size_t i = 0; i < n; i++) {
        html_put(p, i ? "<td class=\"n\">" : "<th scope=\"row\">");
        put_cell(p, json_object_get(row, columns[i].key));
        html_put(p, i ? "</td>" : "</th>");
    }
    html_put(p, "</tr>\n");
}

static bool is_told(const json_t *rows, const char *key)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *v = json_object_get(json_array_get(rows, i), key);
        any |= v && !json_is_null(v);
    }
    return any;
}

/* Without the columns of which no row says anything. */
static void put_table(struct html *p, const char *title, const json_t *rows,
                      const struct column *all, size_t n_all)
{
    struct column columns[MOST_COLUMNS];
    size_t n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (is_told(rows, all[i].key)) columns[n++] = all[i];
    if (n == 0) return;
    html_put(p, "<h2>");
    html_put(p, title);
    html_put(p, "</h2>\n<table>\n<thead><tr>");
    for (size_t i = 0; i < n; i++) {
        html_put(p, "<th>");
        html_put(p, columns[i].title);
        html_put(p, "</th>");
    }
    html_put(p, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < json_array_size(rows); i++)
        put_row(p, json_array_get(rows, i), columns, n);
    html_put(p, "</tbody>\n</table>\n");
}

static void put_facts(struct html *p, json_t *doc)
{
    static const struct column facts[] = { { "folder", "folder" },
                                           { "last_step", "last step" },
                                           { "resumed", "gone on with from step" },
                                           { "machine", "machine" },
                                           { "model_sha256", "hash of the model" },
                                           { "seeds", "seeds" },
                                           { "versions", "versions" } };
    html_put(p, "<table>\n");
    for (size_t i = 0; i < ZP_COUNT(facts); i++) {
        json_t *v = json_object_get(doc, facts[i].key);
        bool empty = !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
                     (json_is_object(v) && json_object_size(v) == 0);
        if (empty) continue;
        html_put(p, "<tr><th scope=\"row\">");
        html_put(p, facts[i].title);
        html_put(p, "</th><td class=\"n\">");
        html_put_value(p, v);
        html_put(p, "</td></tr>\n");
    }
    html_put(p, "</table>\n");
}

static zp_status put_figure(struct html *p, const struct runfigure *r)
{
    struct canvas c;
    double width, height;
    html_put(p, "<figure>\n");
    ZP_TRY(p->status);
    runfigure_size(r, &width, &height);
    canvas_svg_open(&c, width, height, r->title, p->out, p->err);
    runfigure_draw(r, &c);
    p->status = canvas_svg_finish(&c);
    html_put(p, "</figure>\n");
    return p->status;
}

static void put_tables(struct html *p, const json_t *doc)
{
    static const struct column last[] = { { "name", "series" }, { "value", "value" },
                                          { "step", "step" } };
    static const struct column layers[] = { { "layer", "layer" }, { "event", "event" },
                                            { "count", "times" }, { "first_step", "first step" },
                                            { "last_step", "last step" } };
    static const struct column options[] = { { "name", "option" }, { "value", "value" },
                                             { "origin", "from" } };
    put_table(p, "Last numbers", json_object_get(doc, "last"), last, ZP_COUNT(last));
    put_table(p, "Events by layer", json_object_get(doc, "by_layer"), layers, ZP_COUNT(layers));
    put_table(p, "Options", json_object_get(doc, "options"), options, ZP_COUNT(options));
}

static zp_status write_page(json_t *doc, const struct runfigure *r, struct buffer *out,
                            zp_err *err)
{
    struct html p = { .out = out, .err = err };
    html_begin(&p, "", r->title);
    html_put(&p, "<h1>");
    html_put_text(&p, r->title);
    html_put(&p, "</h1>\n");
    if (json_is_string(json_object_get(doc, "command"))) {
        html_put(&p, "<p><code>");
        html_put_text(&p, html_text_of(doc, "command", ""));
        html_put(&p, "</code></p>\n");
    }
    put_facts(&p, doc);
    ZP_TRY(put_figure(&p, r));
    put_tables(&p, doc);
    html_end(&p, "A value that was not finite is shown as -.");
    return p.status;
}

zp_status runpage_write(json_t *doc, struct buffer *out, zp_err *err)
{
    struct runfigure r;
    ZP_TRY(runfigure_read(&r, doc, err));
    zp_status status = write_page(doc, &r, out, err);
    runfigure_free(&r);
    return status;
}

/* ---- the call */

static void draw(const void *of, struct canvas *c)
{
    runfigure_draw(of, c);
}

static zp_status write_picture(const json_t *doc, const char *path, zp_err *err)
{
    struct runfigure r;
    ZP_TRY(runfigure_read(&r, doc, err));
    struct canvas_figure f = { .label = r.title, .draw = draw, .of = &r };
    runfigure_size(&r, &f.width, &f.height);
    zp_status status = canvas_write(&f, path, err);
    runfigure_free(&r);
    return status;
}

static zp_status write_html(json_t *doc, const char *path, zp_err *err)
{
    struct buffer out = buffer_with_max(MEM_META, (size_t)1 << 30);
    zp_status status = runpage_write(doc, &out, err);
    if (status == ZP_OK) status = os_write_file(path, out.data, out.size, err);
    buffer_free(&out);
    return status;
}

zp_status zp_report_run(const char *json, const char *path, zp_err *err)
{
    const char *end = strrchr(path, '.');
    bool page = end && strcmp(end, ".html") == 0;
    bool picture = end && (strcmp(end, ".svg") == 0 || strcmp(end, ".png") == 0);
    json_t *doc;
    ZP_FAIL_IF(!page && !picture, err, ZP_USAGE,
               "%s: a report's name ends in .html, .svg or .png", path);
    ZP_TRY(json_tree_read(json, strlen(json), "the document", ZP_BAD_INPUT, &doc, err));
    zp_status status = page ? write_html(doc, path, err) : write_picture(doc, path, err);
    json_decref(doc);
    return status;
}
