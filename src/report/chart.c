/* chart.c: the picture of NLL by position.
 * Owns: a checked copy of the buckets. C1 each bucket has the same width: positions grow by powers
 * of two, and the far ones would else hide the near ones. */
#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"

enum { LEFT = 78, TOP = 34, RIGHT = 24, BOTTOM = 86, HEIGHT = 240, COLUMN = 84 };

static const struct color model_color = { 0, 90, 156 }, base_color = { 230, 140, 20 };

/* ---- reading */

static zp_status read_number(const json_t *bucket, size_t i, const char *key, double *out,
                             zp_err *err)
{
    const json_t *v = json_object_get(bucket, key);
    ZP_FAIL_IF(!json_is_number(v), err, ZP_BAD_INPUT, "buckets[%zu]: %s is not a number", i, key);
    *out = json_number_value(v);
    return ZP_OK;
}

zp_status chart_read(struct chart *ch, const json_t *buckets, zp_err *err)
{
    memset(ch, 0, sizeof *ch);
    ch->n = json_array_size(buckets);
    ZP_FAIL_IF(ch->n > CHART_MAX_BUCKETS, err, ZP_BAD_INPUT, "%zu buckets; at most %d", ch->n,
               CHART_MAX_BUCKETS);
    ch->has_base = ch->n > 0;
    for (size_t i = 0; i < ch->n; i++) {
        const json_t *b = json_array_get(buckets, i);
        ZP_TRY(read_number(b, i, "from", &ch->buckets[i].from, err));
        ZP_TRY(read_number(b, i, "to", &ch->buckets[i].to, err));
        ZP_TRY(read_number(b, i, "nll", &ch->buckets[i].nll, err));
        if (!json_object_get(b, "nll_base")) ch->has_base = false;
        else ZP_TRY(read_number(b, i, "nll_base", &ch->buckets[i].nll_base, err));
    }
    return ZP_OK;
}

void chart_size(const struct chart *ch, double *width, double *height)
{
    double columns = (double)ch->n * COLUMN;
    *width = LEFT + (columns < 420 ? 420 : columns) + RIGHT;
    *height = TOP + HEIGHT + BOTTOM;
}

/* ---- drawing */

struct span { double low, high, step; };

/* A round step that gives 3 to 8 lines, and ends on lines around all values. */
static struct span span_of(const struct chart *ch)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < ch->n; i++) {
        double a = ch->buckets[i].nll, b = ch->has_base ? ch->buckets[i].nll_base : a;
        low = fmin(low, fmin(a, b));
        high = fmax(high, fmax(a, b));
    }
    double room = fmax(high - low, fmax(1e-6, fabs(high) * 0.02));
    double step = canvas_step(room);
    return (struct span){ floor(low / step) * step, ceil(high / step + 1e-9) * step, step };
}

static double y_of(const struct span *s, double value)
{
    double share = s->high > s->low ? (value - s->low) / (s->high - s->low) : 0.5;
    return TOP + HEIGHT * (1 - share);
}

static void draw_axes(const struct chart *ch, const struct span *s, struct canvas *c)
{
    char text[64];
    double right = LEFT + (double)ch->n * COLUMN;
    int lines = (int)lround((s->high - s->low) / s->step);
    for (int i = 0; i <= lines; i++) {
        double value = s->low + i * s->step, y = y_of(s, value);
        numtext_printf(text, sizeof text, "%.5g", fabs(value) < s->step * 1e-9 ? 0 : value);
        c->ops->line(c, LEFT, y, right, y, CANVAS_RULE);
        canvas_label(c, LEFT - 8, y + 4, 11, CANVAS_END, text);
    }
    for (size_t i = 0; i < ch->n; i++) {
        numtext_printf(text, sizeof text, "%.0f-%.0f", ch->buckets[i].from, ch->buckets[i].to);
        canvas_label(c, LEFT + ((double)i + 0.5) * COLUMN, TOP + HEIGHT + 18, 11, CANVAS_MIDDLE,
                     text);
    }
    c->ops->line(c, LEFT, TOP + HEIGHT, right, TOP + HEIGHT, CANVAS_INK);
    canvas_label(c, LEFT, TOP + HEIGHT + 40, 12, CANVAS_START, "position in the window (tokens)");
    struct canvas_text side = { .x = 20, .y = TOP + HEIGHT / 2.0, .size = 12,
                                .anchor = CANVAS_MIDDLE, .upwards = true };
    c->ops->text(c, &side, "NLL, nats a token");
}

static void draw_steps(const struct chart *ch, const struct span *s, struct canvas *c, bool base)
{
    double points[CHART_MAX_BUCKETS * 4];
    for (size_t i = 0; i < ch->n; i++) {
        double y = y_of(s, base ? ch->buckets[i].nll_base : ch->buckets[i].nll);
        points[4 * i] = LEFT + (double)i * COLUMN;
        points[4 * i + 2] = LEFT + (double)(i + 1) * COLUMN;
        points[4 * i + 1] = points[4 * i + 3] = y;
    }
    c->ops->path(c, points, 2 * ch->n, base ? base_color : model_color, 2.5, base);
}

static void draw_key(struct canvas *c, double x, double y, bool base, const char *text)
{
    double points[] = { x, y - 4, x + 28, y - 4 };
    c->ops->path(c, points, 2, base ? base_color : model_color, 2.5, base);
    canvas_label(c, x + 36, y, 12, CANVAS_START, text);
}

void chart_draw(const struct chart *ch, struct canvas *c)
{
    if (ch->n == 0) return;
    struct span s = span_of(ch);
    struct canvas_text title = { .x = LEFT, .y = 20, .size = 14, .bold = true };
    c->ops->text(c, &title, "NLL by position");
    draw_axes(ch, &s, c);
    draw_steps(ch, &s, c, false);
    if (ch->has_base) draw_steps(ch, &s, c, true); /* dashed on top: equal lines show both */
    draw_key(c, LEFT, TOP + HEIGHT + 64, false, "this model");
    if (ch->has_base) draw_key(c, LEFT + 150, TOP + HEIGHT + 64, true, "original");
}
