/* speedchart.c: the picture of speed against depth. A panel for prefill and one for decode; in it a
 * line for each number of sequences, with a bar from the slowest to the fastest repetition.
 * Owns: a checked copy of the rows. V1 axes begin at 0: cut off, they would make a small difference
 * look large. */
#include "report/speedchart.h"

#include <zerope/report.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/numtext.h"

enum { LEFT = 84, TOP = 86, WIDTH = 480, RIGHT = 150, PANEL = 190, GAP = 64, BOTTOM = 56 };
static const char *const test_names[] = { "prefill", "decode" };

/* ---- reading */

static zp_status read_number(const json_t *row, size_t i, const char *key, double least,
                             double *out, zp_err *err)
{
    double x = json_number_value(json_object_get(row, key));
    ZP_FAIL_IF(!json_is_number(json_object_get(row, key)) || x < least || x > 1e12, err,
               ZP_BAD_INPUT, "rows[%zu]: %s is not a number from %s to 1e12", i, key,
               least > 0 ? "1e-6" : "0");
    *out = x;
    return ZP_OK;
}

/* SPEED_TESTS: not one to be drawn. */
static enum speed_test test_of(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "test"));
    enum speed_test t = SPEED_PREFILL;
    while (t < SPEED_TESTS && (!name || strcmp(name, test_names[t]) != 0)) t++;
    return t;
}

static zp_status read_point(struct speedchart *s, const json_t *row, size_t i, zp_err *err)
{
    struct speed_point *p = &s->points[s->n_points];
    ZP_FAIL_IF(s->n_points == SPEED_MAX_POINTS, err, ZP_BAD_INPUT, "more than %d rows to draw",
               SPEED_MAX_POINTS);
    ZP_TRY(read_number(row, i, "depth", 0, &p->depth, err));
    ZP_TRY(read_number(row, i, "tps_median", 1e-6, &p->tps, err));
    ZP_TRY(read_number(row, i, "tps_min", 1e-6, &p->low, err));
    ZP_TRY(read_number(row, i, "tps_max", 1e-6, &p->high, err));
    s->n_points++;
    double *fastest = &s->fastest[test_of(row)];
    *fastest = fmax(*fastest, fmax(p->high, p->tps));
    s->deepest = fmax(s->deepest, p->depth);
    return ZP_OK;
}

static bool has_line(const struct speedchart *s, enum speed_test test, double batch)
{
    for (size_t i = 0; i < s->n_lines; i++)
        if (s->lines[i].test == test && s->lines[i].batch == batch) return true;
    return false;
}

/* The line that row `first` begins, with the points of the later rows that belong to it. */
static zp_status read_line(struct speedchart *s, const json_t *rows, size_t first, zp_err *err)
{
    const json_t *row = json_array_get(rows, first);
    enum speed_test test = test_of(row);
    double batch, other;
    if (test == SPEED_TESTS) return ZP_OK;
    ZP_TRY(read_number(row, first, "batch", 0, &batch, err));
    if (has_line(s, test, batch)) return ZP_OK;
    ZP_FAIL_IF(s->n_lines == SPEED_MAX_LINES, err, ZP_BAD_INPUT,
               "more than %d lines: too many numbers of sequences for a picture", SPEED_MAX_LINES);
    struct speed_line *line = &s->lines[s->n_lines++];
    *line = (struct speed_line){ .test = test, .batch = batch, .begin = s->n_points };
    for (size_t i = first; i < json_array_size(rows); i++) {
        row = json_array_get(rows, i);
        if (test_of(row) != test) continue;
        ZP_TRY(read_number(row, i, "batch", 0, &other, err));
        if (other == batch) ZP_TRY(read_point(s, row, i, err));
    }
    line->end = s->n_points;
    return ZP_OK;
}

/* "smollm2.gguf, threads: 2" */
static void write_subtitle(struct speedchart *s, const json_t *doc)
{
    const json_t *n = json_object_get(doc, "threads");
    char name[121], threads[32] = "";
    canvas_file_name(json_string_value(json_object_get(doc, "model")), name, sizeof name);
    if (json_is_integer(n))
        snprintf(threads, sizeof threads, ", threads: %lld", (long long)json_integer_value(n));
    snprintf(s->subtitle, sizeof s->subtitle, "%s%s", name, threads);
}

zp_status speedchart_read(struct speedchart *s, const json_t *doc, zp_err *err)
{
    const json_t *rows = json_object_get(doc, "rows");
    memset(s, 0, sizeof *s);
    ZP_FAIL_IF(!json_is_array(rows), err, ZP_BAD_INPUT,
               "the document has no rows: expected one that bench wrote");
    for (size_t i = 0; i < json_array_size(rows); i++) ZP_TRY(read_line(s, rows, i, err));
    ZP_FAIL_IF(s->n_points == 0, err, ZP_BAD_INPUT, "no row of prefill or decode to draw");
    write_subtitle(s, doc);
    return ZP_OK;
}

static size_t n_panels(const struct speedchart *s)
{
    return (size_t)(s->fastest[SPEED_PREFILL] > 0) + (s->fastest[SPEED_DECODE] > 0);
}

void speedchart_size(const struct speedchart *s, double *width, double *height)
{
    double n = (double)n_panels(s);
    *width = LEFT + WIDTH + RIGHT;
    *height = TOP + n * PANEL + (n - 1) * GAP + BOTTOM;
}

/* ---- drawing */

struct panel {
    const struct speedchart *s;
    enum speed_test test;
    double top, high, step; /* pixels; the axis ends at `high` tokens a second */
};

static double x_of(const struct panel *p, double depth)
{
    return LEFT + (p->s->deepest > 0 ? depth / p->s->deepest * WIDTH : 0);
}

static double y_of(const struct panel *p, double tps)
{
    return p->top + PANEL * (1 - tps / p->high);
}

static void draw_axes(const struct panel *p, struct canvas *c)
{
    char text[64];
    double bottom = p->top + PANEL, step = 1;
    for (int i = 0; i * p->step <= p->high; i++) {
        double y = y_of(p, i * p->step);
        numtext_printf(text, sizeof text, "%.6g", i * p->step);
        c->ops->line(c, LEFT, y, LEFT + WIDTH, y, i == 0 ? CANVAS_INK : CANVAS_RULE);
        canvas_label(c, LEFT - 8, y + 4, 11, CANVAS_END, text);
    }
    while (p->s->deepest / step > 8) step *= 2; /* depths are powers of two, mostly */
    for (double depth = 0; depth <= p->s->deepest; depth += step) {
        double x = x_of(p, depth);
        numtext_printf(text, sizeof text, "%.0f", depth);
        c->ops->line(c, x, bottom, x, bottom + 4, CANVAS_INK);
        canvas_label(c, x, bottom + 18, 11, CANVAS_MIDDLE, text);
    }
    struct canvas_text name = { .x = LEFT, .y = p->top - 10, .size = 13, .bold = true };
    c->ops->text(c, &name, test_names[p->test]);
    struct canvas_text side = { .x = 20, .y = p->top + PANEL / 2.0, .size = 12,
                                .anchor = CANVAS_MIDDLE, .upwards = true };
    c->ops->text(c, &side, "tokens a second");
}

static void draw_line(const struct panel *p, const struct speed_line *line, struct color color,
                      struct canvas *c)
{
    double points[2 * SPEED_MAX_POINTS];
    char tip[160];
    for (size_t i = line->begin; i < line->end; i++) {
        const struct speed_point *at = &p->s->points[i];
        double x = x_of(p, at->depth), y = y_of(p, at->tps);
        double range[] = { x, y_of(p, at->low), x, y_of(p, at->high) };
        points[2 * (i - line->begin)] = x, points[2 * (i - line->begin) + 1] = y;
        numtext_printf(tip, sizeof tip, "%s, depth %.0f, sequences: %.0f: %.4g t/s (%.4g to %.4g)",
                       test_names[line->test], at->depth, line->batch, at->tps, at->low, at->high);
        c->ops->path(c, range, 2, color, 1.5, false);
        c->ops->box(c, x - 3, y - 3, 6, 6, color, tip);
    }
    c->ops->path(c, points, line->end - line->begin, color, 2, false);
}

static void draw_key(const struct panel *p, const struct speed_line *line, size_t i,
                     struct color color, struct canvas *c)
{
    char text[64];
    double x = LEFT + WIDTH + 18, y = p->top + 6 + 17.0 * (double)i;
    if (line->test == SPEED_PREFILL) return; /* its only line */
    numtext_printf(text, sizeof text, line->batch == 1 ? "%.0f sequence" : "%.0f sequences",
                   line->batch);
    c->ops->box(c, x, y - 9, 10, 10, color, NULL);
    canvas_label(c, x + 16, y, 12, CANVAS_START, text);
}

static void draw_panel(const struct panel *p, struct canvas *c)
{
    size_t n = 0, at = 0;
    draw_axes(p, c);
    for (size_t i = 0; i < p->s->n_lines; i++) n += p->s->lines[i].test == p->test;
    for (size_t i = 0; i < p->s->n_lines; i++) {
        const struct speed_line *line = &p->s->lines[i];
        if (line->test != p->test) continue;
        struct color color = canvas_ramp(n > 1 ? 0.25 + 0.6 * (double)at / (double)(n - 1) : 0.25);
        draw_line(p, line, color, c);
        draw_key(p, line, at++, color, c);
    }
}

void speedchart_draw(const struct speedchart *s, struct canvas *c)
{
    double width, height, top = TOP;
    speedchart_size(s, &width, &height);
    struct canvas_text title = { .x = LEFT, .y = 28, .size = 16, .bold = true };
    c->ops->text(c, &title, "Speed by depth");
    canvas_label(c, LEFT, 48, 12, CANVAS_START, s->subtitle);
    for (enum speed_test t = SPEED_PREFILL; t < SPEED_TESTS; t++) {
        if (s->fastest[t] == 0) continue;
        double step = canvas_step(s->fastest[t]), high = ceil(s->fastest[t] / step) * step;
        struct panel p = { s, t, top, high, step };
        draw_panel(&p, c);
        top += PANEL + GAP;
    }
    canvas_label(c, LEFT, height - 14, 12, CANVAS_START,
                 "depth (tokens before the measured ones); bars: slowest to fastest repetition");
}

/* ---- the call */

static void draw(const void *of, struct canvas *c)
{
    speedchart_draw(of, c);
}

static zp_status write_chart(const json_t *doc, const char *path, zp_err *err)
{
    struct speedchart *s;
    ZP_ALLOC(s, MEM_META, 1, err, "a picture");
    struct canvas_figure f = { .label = "Speed by depth", .draw = draw, .of = s };
    zp_status status = speedchart_read(s, doc, err);
    if (status == ZP_OK) {
        speedchart_size(s, &f.width, &f.height);
        status = canvas_write(&f, path, err);
    }
    mem_free(s);
    return status;
}

zp_status zp_report_speed(const char *json, const char *path, zp_err *err)
{
    json_t *doc;
    ZP_TRY(json_tree_read(json, strlen(json), "the document", ZP_BAD_INPUT, &doc, err));
    zp_status status = write_chart(doc, path, err);
    json_decref(doc);
    return status;
}
